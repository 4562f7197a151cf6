"""Conjugate gradients and a power iteration that compare an iterate with the one before."""

import torch

torch.manual_seed(0)
root = torch.randn(5, 5)
matrix = root @ root.T + torch.eye(5)


def solve(matrix, b, steps):
    x = torch.zeros_like(b)
    r = b - matrix @ x
    p = r.clone()
    for _ in range(steps):
        ap = matrix @ p
        alpha = (r @ r) / (p @ ap)
        x += alpha * p
        old = r.clone()
        r -= alpha * ap
        p = r + (r @ r) / (old @ old) * p
    return x


def largest(matrix, steps):
    v = torch.ones(len(matrix))
    changes = []
    for _ in range(steps):
        last = v.clone()
        v.copy_(matrix @ v)
        v /= v.norm()
        changes.append((v - last).norm().item())
    return v @ matrix @ v, changes


b = torch.ones(5)
print((matrix @ solve(matrix, b, 5) - b).norm() < 1e-3, largest(matrix, 6))
