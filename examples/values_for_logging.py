"""Getting numbers out for a log: the orders people write, side by side.

    tether run examples/values_for_logging.py

Every line gives the same values. "copies and conversions" shows what each one copied and shared:
detach shares, cpu() of a CPU tensor does nothing, clone copies; item() of a sum copies four bytes.
On a GPU numpy() is refused, and cpu(), tolist() and item() wait until it has done all before them:
`d` and `e` copy there as well, and `h` waits 256 times. `h` is found: one call for each element,
with the factor measured on your machine. The cheapest right way is `a` for an array that is read at
once, `a` with .copy() for one that is kept, `f` for a list, `g` for one number.
"""

import torch

w = torch.randn(256, 256, requires_grad=True)
loss_per_row = (w * w).mean(1)

a = loss_per_row.detach().cpu().numpy()
b = loss_per_row.cpu().detach().numpy()
c = loss_per_row.data.cpu().numpy()
d = loss_per_row.detach().clone().cpu().numpy()
e = loss_per_row.clone().detach().cpu().numpy()
f = loss_per_row.tolist()
g = loss_per_row.sum().item()
h = [one.item() for one in loss_per_row]

loss_per_row.sum().backward()
print(len(f), a.shape == b.shape == c.shape == d.shape == e.shape, g > 0, f == h)
