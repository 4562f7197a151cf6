"""A decoder with a cache of keys that grows in a preallocated memory."""

import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.register_buffer("keys", torch.zeros(length, width))
        self.register_buffer("values", torch.zeros(length, width))
        self.used = 0

    def forward(self, x):
        self.keys[self.used] = self.k(x)
        self.values[self.used] = self.v(x)
        self.used += 1
        scores = self.q(x) @ self.keys[: self.used].T
        return scores.softmax(-1) @ self.values[: self.used]

    def snapshot(self):
        return self.keys.clone(), self.values.clone(), self.used

    def rewind(self, snapshot):
        self.keys.copy_(snapshot[0])
        self.values.copy_(snapshot[1])
        self.used = snapshot[2]


@torch.no_grad()
def generate():
    net = Attention(4, 8)
    x = torch.ones(4)
    for _ in range(2):
        x = net(x)
    saved, branches = net.snapshot(), []
    for k in range(3):
        net.rewind(saved)
        y = x + k
        for _ in range(2):
            y = net(y)
        branches.append((y.clone(), net.keys.clone()))
    return [y.sum().item() for y, _ in branches], [keys.sum().item() for _, keys in branches]


print(generate())
