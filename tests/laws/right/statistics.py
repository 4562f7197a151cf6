"""Running statistics in buffers, and what they were at an earlier time."""

import copy

import torch
from torch import nn

torch.manual_seed(0)


class Normal(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.1)
                self.var.lerp_(x.var(0), 0.1)
        return (x - self.mean) / self.var.sqrt()


norm, batch = Normal(3), nn.BatchNorm1d(3)
means, states = [], []
for k in range(4):
    x = torch.randn(8, 3) + k
    norm(x)
    batch(x)
    means.append(norm.mean.clone())
    states.append(copy.deepcopy(norm.state_dict()))
before = batch.running_mean.clone()
batch(torch.randn(8, 3) * 4)
frozen = copy.deepcopy(norm).eval()
norm(torch.randn(8, 3) + 9)
print(torch.stack(means).sum(1).tolist(), [s["var"].sum().item() for s in states])
print((batch.running_mean - before).norm().item(), (norm.mean - frozen.mean).norm().item())
