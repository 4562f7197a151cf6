"""Models that begin from the same weights and go their own ways."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
base = nn.Linear(3, 2)
left, right = copy.deepcopy(base), copy.deepcopy(base)
layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
table = torch.randn(5, 3)
words = nn.Embedding(5, 3)
words.weight.data.copy_(table)
marks = nn.Parameter(table.clone())
opt = torch.optim.SGD(
    [*left.parameters(), *layers.parameters(), marks, *words.parameters()], lr=0.1
)
ids = torch.tensor([0, 2, 4])
for _ in range(3):
    opt.zero_grad()
    x = left(words(ids) + marks[ids])
    for layer in layers:
        x = torch.tanh(layer(x))
    (x - 1).pow(2).mean().backward()
    opt.step()
with torch.no_grad():
    print((left.weight - right.weight).norm().item(), (left.weight - base.weight).norm().item())
    print((words.weight - marks).norm().item(), (table - words.weight).norm().item())
    print([(a.weight - b.weight).norm().item() for a, b in zip(layers, layers[1:])])
