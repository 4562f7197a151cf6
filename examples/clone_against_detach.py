"""y = x * w + b beside a detached and a cloned w: what flows where.

    tether run examples/clone_against_detach.py

The loss uses w through all three. The gradient comes back through `y` and through the clone; the
way through the detached tensor is cut, which is no problem, since w has other ways.
"""

import torch

x = torch.tensor([1.0, 2.0])
w = torch.tensor([3.0, 4.0], requires_grad=True)
b = torch.tensor([0.5, 0.5], requires_grad=True)

y = x * w + b
z = w.detach()
v = w.clone()
loss = (y + z + v).sum()
loss.backward()

print("w.grad", w.grad.tolist(), "b.grad", b.grad.tolist())
