"""What should train: what did not move, what is frozen, held by no optimizer, or put back."""
