"""The running program: everything that touches torch."""
