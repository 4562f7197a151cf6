"""NumPy's arrays: their memory, their lives, what is copied from them and into PyTorch."""
