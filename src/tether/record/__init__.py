"""The recorder: what a running program does to its tensors becomes facts."""
