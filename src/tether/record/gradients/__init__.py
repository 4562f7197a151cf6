"""The gradient graph as it runs: its nodes, the gradients, hooks, custom Functions, checkpoints."""
