"""An in-place write to a leaf that requires grad: PyTorch refuses it, and tether says whose it was.

Run `tether run examples/write_to_a_leaf.py`. The error that PyTorch raises names no tensor and no
way out. Look below it in the report: which leaf was written, by which expression, where the leaf
was made, and what to do instead. The first two writes are such ways, and pass.
"""

import torch

scale = torch.ones(3, requires_grad=True)
shift = torch.zeros(3, requires_grad=True)

with torch.no_grad():
    scale += 1.0  # a new value for the leaf

moved = shift.clone()
moved += 1.0  # a copy that is a result: gradients flow back to shift
(scale * moved).sum().backward()
print("shift.grad", shift.grad.tolist())

scale += 1.0
