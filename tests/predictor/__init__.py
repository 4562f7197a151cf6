"""Predicts random programs from the rulebook, as an oracle for the recorder's laws."""
