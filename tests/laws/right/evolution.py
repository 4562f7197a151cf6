"""Evolution: children are noisy copies of their parent, and the best one becomes it."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(20, 3)
y = x.sum(1, keepdim=True)


@torch.no_grad()
def score(net):
    return -(net(x) - y).pow(2).mean().item()


@torch.no_grad()
def child_of(parent):
    child = copy.deepcopy(parent)
    for p in child.parameters():
        p += 0.1 * torch.randn_like(p)
    return child


parent = nn.Linear(3, 1)
population = [child_of(parent) for _ in range(3)]
scores = []
for _ in range(4):
    children = [child_of(parent) for _ in range(4)]
    best = max(children, key=score)
    if score(best) > score(parent):
        parent = best
    scores.append(score(parent))
print(scores, [score(one) for one in population])
