"""A kernel with one workspace; callers that keep what it returns copy it."""

import torch


class Kernel:
    def __init__(self, size):
        self.work = torch.empty(size)

    def __call__(self, x):
        torch.mul(x, x, out=self.work)
        return self.work


def rows(kernel, count):
    found = []
    for k in range(count):
        found.append(kernel(torch.full((4,), float(k))).clone())
    return torch.stack(found)


kernel = Kernel(4)
one = kernel(torch.ones(4)).clone()
two = kernel(torch.ones(4) * 2)
print(rows(kernel, 4).sum(1).tolist(), one.tolist(), two.tolist())
