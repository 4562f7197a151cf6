"""Activations taken by hooks, of a network whose activation works in place."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True))
features = {}


def keep(name):
    def hook(module, args, output):
        features[name] = output.detach().clone()

    return hook


for name, module in net.named_children():
    module.register_forward_hook(keep(name))
x = torch.randn(5, 3)
out = net(x)
print({name: value.sum().item() for name, value in features.items()}, out.sum().item())
history = []
for _ in range(3):
    net(torch.randn(5, 3))
    history.append(features["0"].min().item())
print(history)
