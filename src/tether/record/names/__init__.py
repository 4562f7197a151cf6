"""What holds tensors, and what the program calls them."""
