"""Gradients of each batch kept by value, their similarity, and an average made by hand."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
batches = [torch.randn(5, 4) for _ in range(4)]
kept = []
for batch in batches:
    model.zero_grad(set_to_none=False)
    model(batch).pow(2).mean().backward()
    kept.append([p.grad.clone() for p in model.parameters()])
flat = torch.stack([torch.cat([g.flatten() for g in grads]) for grads in kept])
print((flat[0] @ flat[1:].T).tolist())

momentum = [torch.zeros_like(p) for p in model.parameters()]
for batch in batches:
    model.zero_grad(set_to_none=False)
    model(batch).pow(2).mean().backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    ratios = [(p.grad.norm() / before[name].norm()).item() for name, p in model.named_parameters()]
    with torch.no_grad():
        for p, m in zip(model.parameters(), momentum):
            m.mul_(0.9).add_(p.grad)
            p -= 0.1 * m
print(ratios, [p.sum().item() for p in model.parameters()])
