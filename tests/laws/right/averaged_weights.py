"""An average of weights beside the model, and a swap for evaluation."""

import copy

import torch
from torch import nn

torch.manual_seed(2)


class Averaged:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.backup = {}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name].mul_(self.decay).add_(p, alpha=1 - self.decay)

    @torch.no_grad()
    def apply(self, model):
        for name, p in model.named_parameters():
            self.backup[name] = p.detach().clone()
            p.copy_(self.shadow[name])

    @torch.no_grad()
    def restore(self, model):
        for name, p in model.named_parameters():
            p.copy_(self.backup[name])


model = nn.Linear(4, 1)
teacher = copy.deepcopy(model)
average = Averaged(model, 0.9)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(16, 4)
scores = []
for _ in range(5):
    opt.zero_grad()
    (model(data) - 1).pow(2).mean().backward()
    opt.step()
    average.update(model)
    average.apply(model)
    with torch.no_grad():
        scores.append(model(data).mean().item())
    average.restore(model)
print(scores, teacher(data).mean().item(), model(data).mean().item())
