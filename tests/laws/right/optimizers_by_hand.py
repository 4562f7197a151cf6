"""Adam written by hand, a schedule of weights, and a momentum that starts from the gradient."""

import torch

torch.manual_seed(0)


class Adam:
    def __init__(self, params, lr):
        self.params, self.lr, self.t = list(params), lr, 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p, m, v in zip(self.params, self.m, self.v):
            m.mul_(0.9).add_(p.grad, alpha=0.1)
            v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
            p -= self.lr * (m / (1 - 0.9**self.t)) / ((v / (1 - 0.99**self.t)).sqrt() + 1e-8)

    def zero(self):
        for p in self.params:
            p.grad.zero_()


class Momentum:
    def __init__(self, p):
        self.p, self.velocity = p, None

    @torch.no_grad()
    def step(self, rate):
        if self.velocity is None:
            self.velocity = self.p.grad.clone()
        else:
            self.velocity.mul_(0.9).add_(self.p.grad)
        self.p -= rate * self.velocity


w = torch.randn(3, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
x = torch.randn(10, 3)
opt = Adam([w, b], 0.1)
for _ in range(4):
    (x @ w + b - 1).pow(2).mean().backward()
    opt.step()
    opt.zero()
u = torch.ones(3, requires_grad=True)
mover = Momentum(u)
for k in range(4):
    ((u - torch.arange(3.0)) ** 2).sum().backward()
    mover.step(0.1)
    u.grad.zero_()
print(w.tolist(), b.item(), u.tolist(), mover.velocity.tolist())
