"""Rows swapped and rotated, a queue moved on, and a tensor shuffled, each through a copy."""

import torch

torch.manual_seed(0)


def swapped(x, i, j):
    kept = x[i].clone()
    x[i] = x[j]
    x[j] = kept
    return x


def rotated(x):
    last = x[-1].clone()
    x[1:] = x[:-1].clone()
    x[0] = last
    return x


class Queue:
    def __init__(self, size):
        self.slots = torch.zeros(size)

    def push(self, value):
        self.slots[:-1] = self.slots[1:].clone()
        self.slots[-1] = value
        return self.slots.sum().item()


def mirrored(x):
    half = x.shape[1] // 2
    x[:, :half] = x[:, half:].flip(1).clone()
    return x


grid = torch.arange(12.0).reshape(4, 3)
print(swapped(grid, 0, 3).tolist())
print(rotated(grid).tolist())
queue = Queue(3)
print([queue.push(float(k)) for k in range(5)])
print(mirrored(torch.arange(8.0).reshape(2, 4)).tolist())
