"""Sharpness-aware steps: weights are moved, the gradient taken, and the weights put back."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(8, 3), torch.randint(0, 2, (8,))


def loss():
    return nn.functional.cross_entropy(model(x), y)


for _ in range(4):
    loss().backward()
    with torch.no_grad():
        saved = [p.clone() for p in model.parameters()]
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for p in model.parameters():
            p += 0.05 * p.grad / norm
    opt.zero_grad()
    loss().backward()
    with torch.no_grad():
        for p, old in zip(model.parameters(), saved):
            p.copy_(old)
    opt.step()
    opt.zero_grad()
print([p.sum().item() for p in model.parameters()], loss().item())
