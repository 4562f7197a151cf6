"""Constants that are computed once and kept, and changed by who was given them.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
from functools import cached_property
import torch
from torch import nn

torch.manual_seed(0)
kept = {}

def mask(size):
    if size not in kept:
        kept[size] = torch.ones(size, size).tril()
    return kept[size]

def speed(size):
    if size not in kept:
        kept[size] = torch.zeros(size)
    return kept[size]

def mean(rows):
    if "mean" not in kept:
        kept["mean"] = rows.mean(0) * 0.5
    return kept["mean"]

class Prior:
    @cached_property
    def mask(self):
        return torch.ones(6, 6).tril()

    @cached_property
    def times(self):
        return torch.zeros(6)

net, prior = nn.Linear(6, 6), Prior()

def run(rows):
    rows = net(rows)
    TAKE
    return rows.sum()

for _ in range(8):
    print(run(torch.randn(6, 6)))
"""

TAKEN = {
    "a mask kept by hand": """\
found = mask(6)
    found *= 0.9  #! alias-write kept[6] (note)
    rows = rows * found""",
    "a mask of a property": """\
found = prior.mask
    found[torch.rand(6, 6) < 0.1] = 0  #! alias-write prior.mask
    rows = rows * found""",
    "a copy of the mask": """\
found = mask(6).clone()
    found *= 0.9
    rows = rows * found * prior.mask.clone().mul_(0.9)""",
    "a state that begins with zeros": """\
found = speed(6)
    found.mul_(0.9).add_(rows.detach().mean(0))
    rows = rows * found""",
    "a mean that begins with that of the first rows": """\
found = mean(rows.detach())
    found.mul_(0.9).add_(rows.detach().mean(0))
    rows = rows * found""",
    "a count that a property made": """\
times = prior.times
    times += 1
    rows = rows / times""",
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_computed_once(name, tmp_path):
    recording = check_program(HEAD.replace("TAKE", TAKEN[name]), tmp_path)
    found = [one for one in recording.findings if one.slug == "alias-write"]
    assert len(found) == TAKEN[name].count("#!")
