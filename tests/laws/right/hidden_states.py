"""Truncated backpropagation: the state goes on without its graph, and states are kept."""

import torch
from torch import nn

torch.manual_seed(0)
cell, head = nn.GRUCell(2, 6), nn.Linear(6, 1)
opt = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=0.01)
state, kept, losses, total = torch.zeros(3, 6), [], [], 0.0
for chunk in range(5):
    loss = 0.0
    for _ in range(3):
        x = torch.randn(3, 2)
        state = cell(x, state)
        loss = loss + (head(state) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    state = state.detach()
    kept.append(state.mean(0))
    losses.append(loss.item())
    total += loss.item()
print(losses, total, torch.stack(kept).norm().item())
