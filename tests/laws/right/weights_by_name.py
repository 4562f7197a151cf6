"""Weights kept by name at each epoch, and how far they moved."""

import torch
from torch import nn

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
opt = torch.optim.Adam(model.parameters(), lr=0.05)
first = {name: p.detach().clone() for name, p in model.named_parameters()}
history = []
for epoch in range(4):
    for _ in range(2):
        opt.zero_grad()
        model(torch.randn(6, 3)).pow(2).mean().backward()
        opt.step()
    history.append(model[0].weight.detach().clone())
moved = {name: (p - first[name]).norm().item() for name, p in model.named_parameters()}
steps = [(b - a).norm().item() for a, b in zip(history, history[1:])]
print(moved, steps)
