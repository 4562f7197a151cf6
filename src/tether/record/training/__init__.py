"""Steps of optimizers: what moved, and with which state."""
