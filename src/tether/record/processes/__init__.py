"""Other processes: those that the program starts, and what they have of its memory."""
