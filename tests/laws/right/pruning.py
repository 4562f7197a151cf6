"""Pruning: the weights before it are kept, masks applied, and the lottery ticket rewound."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
start = copy.deepcopy(model.state_dict())
x, y = torch.randn(16, 4), torch.randn(16, 1)


def train(net, masks):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        opt.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        opt.step()
        with torch.no_grad():
            for name, p in net.named_parameters():
                if name in masks:
                    p.mul_(masks[name])


masks = {name: torch.ones_like(p) for name, p in model.named_parameters() if p.dim() > 1}
for _ in range(2):
    train(model, masks)
    for name, p in model.named_parameters():
        if name in masks:
            limit = p.detach().abs().flatten().median()
            masks[name] = (p.detach().abs() > limit).float()
    model.load_state_dict(start)
dense = model[0].weight.detach().clone()
with torch.no_grad():
    model[0].weight.mul_(masks["0.weight"])
print((dense - model[0].weight).abs().sum().item(), {k: v.sum().item() for k, v in masks.items()})
