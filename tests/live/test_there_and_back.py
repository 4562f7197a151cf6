"""Whole numbers that become floating-point numbers and come back: needless; and what looks alike.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest
import torch

from programs import check_program
from tether.record.values.whole_numbers import _BITS

START = """\
import torch

torch.manual_seed(0)


"""

FOUND = {
    "labels by way of a function's argument": """\
def right(labels, guess):
    return (labels == guess.long()).sum().item()  #! needless-copy guess.long() (note)


for _ in range(3):
    scores = torch.rand(64, 64, 9)
    guess = scores.argmax(-1).float()
    print(right(torch.randint(9, (64, 64)), guess))
""",
    "types that are named": """\
def step(x):
    wide = x.to(torch.float32)
    y = wide.to(torch.int64)  #! needless-copy y (note)
    return (y * 2).sum().item(), wide.mean().item()


for _ in range(3):
    print(step(torch.randint(1000, (64, 64))))
""",
    "numbers that only float64 has": """\
for _ in range(3):
    x = torch.randint(1 << 40, (64, 64))
    print(x.double().long().sum().item())  #! needless-copy x.double().long() (note)
""",
    "in another shape": """\
for _ in range(3):
    x = torch.randint(-500, 500, (64, 64), dtype=torch.int32)
    y = x.float().t().flatten(0, 0).int()  #! needless-copy y (note)
    print(y.amax(1).sum().item())
""",
    "what lives on in more bytes": """\
class Labels:
    def __init__(self, numbers):
        self.numbers = numbers
        self.given = numbers.float()

    def read(self):
        return self.given.long().sum().item()  #! needless-copy self.given.long() (note)


labels = Labels(torch.randint(1000, (64, 64)))
for _ in range(3):
    print(labels.read())
""",
}

QUIET = {
    "numbers that are rounded": """\
for _ in range(3):
    x = torch.randint(1 << 40, (64, 64))
    print(x.float().long().sum().item())
""",
    "numbers that are rounded in one run": """\
for n in range(3):
    x = torch.randint(1 << 40 if n == 1 else 1000, (64, 64))
    print(x.float().long().sum().item())
""",
    "one run": """\
x = torch.randint(1000, (64, 64))
print(x.float().long().sum().item())
""",
    "whole ones among the others": """\
for _ in range(3):
    x = torch.rand(64, 64).round()
    print(x.long().float().sum().item())
""",
    "a smaller type, which wraps round": """\
for _ in range(3):
    x = torch.randint(100, (64, 64))
    print(x.byte().long().sum().item())
""",
    "what is written on the way": """\
for _ in range(3):
    x = torch.randint(1000, (64, 64)).float()
    x += 1
    print(x.long().sum().item())
""",
    "what is written through another object": """\
for _ in range(3):
    x = torch.randint(1000, (64, 64)).float()
    x.data.add_(1)
    print(x.long().sum().item())
""",
    "what an array writes on the way": """\
for _ in range(3):
    x = torch.randint(1000, (64, 64)).float()
    x.numpy()[3] = 7
    print(x.long().sum().item())
""",
    "truths that an array changes on the way": """\
for _ in range(3):
    x = (torch.rand(64, 64) > 0.5).float()
    x.numpy()[3] = 0
    print(x.bool().sum().item())
""",
    "a result that is written": """\
for _ in range(3):
    x = torch.randint(1000, (64, 64))
    y = x.float().long()
    y += 1
    print(x.sum().item(), y.sum().item())
""",
    "another type of whole numbers": """\
for _ in range(3):
    x = torch.randint(1000, (64, 64))
    print(x.float().int().sum().item())
""",
    "what is kept in fewer bytes": """\
class Memory:
    def __init__(self):
        self.rows = []

    def put(self, row):
        self.rows.append(row.float())

    def take(self, n):
        return self.rows[n].long()


memory = Memory()
for _ in range(3):
    memory.put(torch.randint(1000, (64, 64)))
for n in range(3):
    print(memory.take(n).sum().item())
""",
    "an attribute of fewer bytes": """\
class Last:
    def put(self, row):
        self.row = row.float()

    def take(self):
        return self.row.long()


last = Last()
for _ in range(3):
    last.put(torch.randint(1000, (64, 64)))
    print(last.take().sum().item())
""",
}


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_a_conversion_there_and_back_is_not_needed(program, tmp_path):
    check_program(START + program, tmp_path)


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_a_conversion_that_changes_something_is(program, tmp_path):
    findings = check_program(START + program, tmp_path).findings
    assert "needless-copy" not in {one.slug for one in findings}


@pytest.mark.parametrize("dtype", _BITS)
def test_below_the_bound_every_number_comes_back_and_none_comes_from_beyond_it(dtype):
    bound = 1 << _BITS[dtype]
    near = torch.arange(max(0, bound - 1000), bound + 1000)
    numbers = torch.cat([near, -near, torch.tensor([2**62, -(2**63), 2**63 - 1])])
    back = numbers.to(dtype).long()
    below = back.clamp(-bound, bound).abs() < bound
    assert bool((back == numbers)[below].all())
    assert torch.equal(below, numbers.clamp(-bound, bound).abs() < bound)
