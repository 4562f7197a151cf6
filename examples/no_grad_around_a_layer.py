"""no_grad cuts by its block, not by its operations.

    tether run examples/no_grad_around_a_layer.py

The finding points at the line of the `with`, and names the call that ran under it. The NumPy call
needs no detach there, since nothing under no_grad requires grad.
"""

import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(4, 4), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)

for step in range(3):
    x = torch.randn(8, 4)
    with torch.no_grad():
        features = torch.tanh(encoder(x))
        largest = features.numpy().max()
    optimizer.zero_grad()
    loss = head(features).pow(2).mean()
    loss.backward()
    optimizer.step()
print("done", largest > 0)
