"""v = w.clone(); y = x * w + v: w gets both flows.

    tether run examples/two_flows_into_one_leaf.py

The gradient of w is 3.0: 2.0 through the product and 1.0 through the clone. v is no leaf; it has a
gradient of its own only because retain_grad() asked for it.
"""

import torch

x = torch.tensor(2.0)
w = torch.tensor(4.0, requires_grad=True)
v = w.clone()
v.retain_grad()

y = x * w + v
y.backward()

print("w.grad", w.grad.item(), "v.grad", v.grad.item())
