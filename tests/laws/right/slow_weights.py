"""Slow weights, which every few steps take a part of the fast ones, and give it back (Lookahead)."""

from collections import defaultdict

import torch


class Lookahead:
    def __init__(self, params, alpha=0.5, k=2):
        self.params, self.alpha, self.k = list(params), alpha, k
        self.state, self.n = defaultdict(dict), 0

    def step(self):
        self.n += 1
        with torch.no_grad():
            for p in self.params:
                p -= 0.1 * p.grad
        if self.n % self.k == 0:
            for fast in self.params:
                param_state = self.state[fast]
                if "slow_param" not in param_state:
                    param_state["slow_param"] = torch.clone(fast.data).detach()
                slow = param_state["slow_param"]
                fast.data.mul_(self.alpha).add_(slow, alpha=1.0 - self.alpha)
                slow.data.copy_(fast)


model = torch.nn.Linear(3, 1)
opt = Lookahead(model.parameters())
for _ in range(12):
    model.zero_grad()
    model(torch.rand(4, 3)).pow(2).mean().backward()
    opt.step()
print(model.weight.sum())
