"""Swaps without a third place, and those that have one."""

import pytest

from programs import check_program

HEAD = """\
import torch

torch.manual_seed(0)
"""

BROKEN = {
    "two rows of a matrix": """\
order = torch.arange(12.0).reshape(4, 3)
for i, j in ((0, 3), (1, 2)):
    order[i], order[j] = order[j], order[i]  #! alias-write `order[i]`
print(order.sum())
""",
    "parts of rows, in a method": """\
class Deck:
    def __init__(self):
        self.cards = torch.rand(6, 8)

    def cut(self, left, right):
        self.cards[left], self.cards[right] = (  #! alias-write self.cards[right]
            self.cards[right], self.cards[left])


deck = Deck()
for k in range(5):
    deck.cut(k, k + 1)
print(deck.cards.mean())
""",
    "rows that the standard library shuffles": """\
import random

def epoch(rows):
    random.shuffle(rows)  #! values-lost rows
    return rows[:3].sum()

rows = torch.arange(24.0).reshape(8, 3)
print([epoch(rows) for _ in range(3)])
""",
    "numbers that NumPy shuffles": """\
import numpy as np

ids = torch.arange(12)
np.random.default_rng(0).shuffle(ids)  #! values-lost ids
print(ids)
""",
    "two buffers": """\
front, back = torch.rand(5), torch.rand(5)
for _ in range(3):
    front.copy_(back)
    back.copy_(front)  #! values-lost back
    front.add_(1)
print(front, back)
""",
}

RIGHT = {
    "rows by one assignment": """\
order = torch.arange(12.0).reshape(4, 3)
order[[0, 3]] = order[[3, 0]]
print(order.sum())
""",
    "numbers": """\
values = [3.0, 1.0]
order = torch.arange(4.0)
order[0], order[3] = order[3].item(), order[0].item()
print(order, values)
""",
    "a copy first": """\
order = torch.arange(12.0).reshape(4, 3)
order[0], order[3] = order[3].clone(), order[0].clone()
held = order[1].clone()
order[1] = order[2]
order[2] = held
print(order)
""",
    "a list of rows that is shuffled": """\
import random

rows = list(torch.arange(24.0).reshape(8, 3))
random.shuffle(rows)
print(torch.stack(rows[:3]).sum())
""",
    "names alone": """\
front, back = torch.rand(5), torch.rand(5)
for _ in range(3):
    front.add_(back)
    front, back = back, front
print(front, back)
""",
    "a backup that was not needed this time": """\
weight, backup = torch.rand(5), torch.empty(5)
backup.copy_(weight)
if weight.sum() > 100:
    weight.zero_()
weight.copy_(backup)
print(weight)
""",
    "the best that there was, put back when it was the last": """\
weight, best, kept = torch.rand(5), 1e9, torch.empty(5)
for step in range(6):
    weight.mul_(0.5)
    now = weight.sum().item()
    if now < best:
        best = now
        kept.copy_(weight)
weight.copy_(kept)
print(weight)
""",
    "the best of one round": """\
weight, best, kept = torch.rand(5), 1e9, torch.empty(5)
now = weight.sum().item()
if now < best:
    kept.copy_(weight)
weight.copy_(kept)
print(weight)
""",
    "what one method keeps and another one brings back": """\
class Shadow:
    def __init__(self, weight):
        self.kept = torch.empty_like(weight)

    def store(self, weight):
        self.kept.copy_(weight)

    def restore(self, weight):
        weight.copy_(self.kept)


weight = torch.rand(5)
shadow = Shadow(weight)
shadow.store(weight)
shadow.restore(weight)
print(weight)
""",
    "borders of a field": """\
field = torch.rand(6, 6)
for _ in range(3):
    field[0] = field[-2]
    field[-1] = field[1]
print(field)
""",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_swap_that_swaps_nothing(name, tmp_path):
    check_program(HEAD + BROKEN[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_a_swap_that_swaps(name, tmp_path):
    recording = check_program(HEAD + RIGHT[name], tmp_path)
    assert not any(one.slug == "values-lost" for one in recording.findings)
