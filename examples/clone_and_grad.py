"""Is .grad copied along? Not by clone or detach; by assignment it is the same; by deepcopy, yes.

    tether run examples/clone_and_grad.py
"""

import copy

import torch

a = torch.tensor([1.0, 2.0], requires_grad=True)
a.grad = torch.tensor([0.1, 0.2])

b = a.detach().clone()
c = a
d = copy.deepcopy(a)
print("clone:", b.grad, " assignment:", c.grad is a.grad, " deepcopy:", d.grad.tolist())
