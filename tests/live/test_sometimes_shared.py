"""Lines that share memory in some runs alone, or with what they were given, and look-alikes.

A comment ``#! alias-write subject (note)`` is on the line that the finding must name.
"""

import pytest

from programs import check_program, record_program

HEAD = """\
import torch

torch.manual_seed(0)
"""

SHARED = {
    "rows by a slice, or by numbers": """\
table = torch.ones(6, 3)
shift = torch.arange(18.0).reshape(6, 3)

def begin(rows):
    row = table[rows]  #! alias-write table (note)
    row += shift[rows]
    return row.sum()

for rows in (slice(0, 6), torch.tensor([1, 2]), torch.tensor([0])):
    print(begin(rows))
""",
    "a row by its number, or several by a list; a piece of it is written": """\
line = torch.ones(4, 4)

def pick(key):
    part = line[key]  #! alias-write line (note)
    part[0].mul_(3)
    return part.sum()

print(pick([0, 1]), pick(2), line.sum())
""",
}

MEANT = {
    "written back": """\
table = torch.ones(6, 3)

def move(rows):
    row = table[rows]
    row += 1
    table[rows] = row

for rows in (slice(0, 2), torch.tensor([1, 2]), torch.tensor([0])):
    move(rows)
    print(table.sum())
""",
    "never read again": """\
def normed(data, rows):
    part = data[rows]
    part -= part.mean()
    return part

data = torch.randn(8, 3)
print(normed(data, torch.tensor([0, 1])).sum(), normed(data, slice(2, 8)).sum())
""",
    "only read where it is a view": """\
table = torch.ones(6, 3)

def taken(rows, scale):
    row = table[rows]
    if scale:
        row *= 2
    return row.sum()

print(taken(slice(0, 6), False), taken(torch.tensor([1]), True), taken(slice(0, 6), False))
""",
    "a state that moves": """\
state = torch.zeros(6, 3)

def step(rows):
    row = state[rows]
    row += 1
    return row

for rows in (slice(0, 3), torch.tensor([1, 2]), slice(3, 6)):
    state.copy_(state + 1)
    print(step(rows).sum(), state.sum())
""",
    "two tensors, one by slices and one by numbers": """\
def begin(table, rows):
    row = table[rows]
    row += 1
    return row

moving, fixed = torch.zeros(6, 3), torch.ones(6, 3)
for turn in range(3):
    begin(moving, slice(turn, turn + 2))
    print(begin(fixed, torch.tensor([turn])).sum(), moving.sum(), fixed.sum())
""",
}

RULE = """\
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randn(32, 3)


def shaped(m, rounds=2):
    MADE
    z.div_(z.norm() + 1e-7)
    for _ in range(rounds):
        z = 1.5 * z - 0.5 * z @ z.T @ z
    return z


class Rule(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p]
                if not kept:
                    kept["mean"] = torch.zeros_like(p)
                mean = kept["mean"]
                mean.lerp_(p.grad, 0.1)
                TAKEN
                p.sub_(change, alpha=group["lr"])


layer = nn.Linear(4, 3, bias=False)
opt = Rule(layer.parameters())
for _ in range(6):
    opt.zero_grad()
    (layer(x) - y).pow(2).mean().backward()
    opt.step()
"""
TAKEN = "change = shaped(mean)"
NOTED = "  #! alias-write mean (note)"

CONVERTED = {
    "float": ("z = m.float()" + NOTED, TAKEN),
    "to": ("z = m.to(torch.float32)" + NOTED, TAKEN),
    "in order": ("z = m.contiguous()" + NOTED, TAKEN),
}

GIVEN_AWAY = {
    "a new tensor is handed in": ("z = m.float()", "change = shaped(p.grad.lerp(mean, 0.9))"),
    "a copy is asked for": ("z = m.to(torch.float32, copy=True)", TAKEN),
    "a new tensor is made": ("z = m.float() * 1.0", TAKEN),
    "a type that differs": ("z = m.double()", "change = shaped(mean).float()"),
    "the mean is to be what is made of it": (
        "z = m.float()", "kept['mean'] = mean = change = shaped(mean)"),
    "the mean is filled anew": (
        "z = m.float()", "change = shaped(mean); mean.copy_(p.grad)"),
}  # fmt: skip

UPDATED = """\
import torch

class Running:
    def __init__(self):
        self.total = torch.ones(3)

    def update(self, new):
        total = self.total.to("cpu")
        total.mul_(0.9).add_(new)
        return total.sum()

def decayed(total, new):
    total = total.float()
    total.mul_(0.9).add_(new)
    return total.sum()

running = Running()
for turn in range(4):
    print(running.update(torch.rand(3)), running.total)
    own = running.total
    print(decayed(own, torch.rand(3)), running.total)
"""


def _notes(recording):
    words = ("had nothing to convert", "a copy in the others")
    return [one for one in recording.findings if any(each in one.message for each in words)]


@pytest.mark.parametrize("name", SHARED)
def test_a_line_that_shares_in_some_runs(name, tmp_path):
    assert _notes(check_program(HEAD + SHARED[name], tmp_path))


@pytest.mark.parametrize("name", MEANT)
def test_what_may_be_written(name, tmp_path):
    assert not _notes(check_program(HEAD + MEANT[name], tmp_path))


@pytest.mark.parametrize("name", CONVERTED)
def test_a_conversion_that_gave_back_a_state(name, tmp_path):
    made, taken = CONVERTED[name]
    assert _notes(check_program(RULE.replace("MADE", made).replace("TAKEN", taken), tmp_path))


@pytest.mark.parametrize("name", GIVEN_AWAY)
def test_a_conversion_whose_result_may_be_written(name, tmp_path):
    made, taken = GIVEN_AWAY[name]
    text = RULE.replace("MADE", made).replace("TAKEN", taken)
    assert not _notes(record_program(text, tmp_path))


def test_a_total_that_is_converted_in_vain_and_updated(tmp_path):
    assert not _notes(record_program(UPDATED, tmp_path))
