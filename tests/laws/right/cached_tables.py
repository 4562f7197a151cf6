"""Tables that a cache keeps, and callers who change only copies of them."""

import functools

import torch

torch.manual_seed(0)


@functools.lru_cache
def positions(n):
    return torch.arange(float(n)) / n


@functools.cache
def mask(n):
    return torch.tril(torch.ones(n, n))


class Encoder:
    _frequencies = {}

    def frequencies(self, n):
        if n not in self._frequencies:
            self._frequencies[n] = 1.0 / (1 + torch.arange(float(n)))
        return self._frequencies[n]

    def encode(self, x, shift):
        table = self.frequencies(len(x)).clone()
        table += shift
        return x * table


def shifted(n, k):
    table = positions(n).clone()
    table += k
    return table


def blocked(n, column):
    found = mask(n).clone()
    found[:, column] = 0
    return found


encoder = Encoder()
x = torch.ones(4)
print([shifted(4, k).sum().item() for k in range(3)], positions(4).sum().item())
print([blocked(3, k).sum().item() for k in range(3)], mask(3).sum().item())
print([encoder.encode(x, k).sum().item() for k in (1, 2, 3)])
