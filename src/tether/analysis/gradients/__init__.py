"""The gradient graph: its calls, the paths through it, where values leave it, what losses add."""
