"""Getting numbers out for a log: the orders people write, side by side.

    tether run examples/values_for_logging.py

Every line gives the same values. "copies and conversions" shows what each one copied and shared:
detach shares, cpu() of a CPU tensor does nothing, clone copies; item() of a sum copies four bytes.
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

loss_per_row.sum().backward()
print(len(f), a.shape == b.shape == c.shape == d.shape == e.shape, g > 0)
