"""Slow weights that follow fast ones every third step."""

import torch
from torch import nn

torch.manual_seed(0)


class Lookahead:
    def __init__(self, inner, k, alpha):
        self.inner, self.k, self.alpha, self.count = inner, k, alpha, 0
        self.slow = [p.detach().clone() for g in inner.param_groups for p in g["params"]]

    def step(self):
        self.inner.step()
        self.count += 1
        if self.count % self.k == 0:
            fast = [p for g in self.inner.param_groups for p in g["params"]]
            for slow, p in zip(self.slow, fast):
                slow += self.alpha * (p.detach() - slow)
                p.data.copy_(slow)


model = nn.Linear(3, 1)
opt = Lookahead(torch.optim.SGD(model.parameters(), lr=0.2), 3, 0.5)
x = torch.randn(10, 3)
for _ in range(7):
    for p in model.parameters():
        p.grad = None
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    opt.step()
print([p.tolist() for p in model.parameters()], [s.tolist() for s in opt.slow])
