"""The lines that a finding of shared memory names beside its own: what returned, what was filled.

A comment ``#!`` marks a line that has to be among the evidence.
"""

import pytest

from programs import record_program

RING = """\
import torch

class Ring:
    def __init__(self):
        self.slots, self.turn = torch.zeros(4), 0

    def push(self, value):
        self.slots[self.turn % 4] = value
        self.turn += 1

    def values(self):
        RETURN

ring, kept = Ring(), []
for turn in range(8):
    ring.push(float(turn))
    kept.append(ring.values())
print([one.sum() for one in kept])
"""

RETURNS = {
    "the attribute": ("return self.slots  #!", 1),
    "the attribute, in one of two returns": (
        "if self.turn > 0:\n            return self.slots  #!\n        return None", 1),
    "a copy": ("return self.slots.clone()", 0),
}  # fmt: skip

SHARED = """\
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.norm = inner, nn.LayerNorm(8)

    def forward(self, x):
        return x + self.inner(self.norm(x))

class Net(nn.Module):
    def __init__(self, count=3):
        super().__init__()
        inner = nn.Linear(8, 8)
        FILL

    def forward(self, x):
        for layer in self.blocks:
            x = layer(x)
        return x

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.randn(2, 8)).pow(2).mean().backward()
    optimizer.step()
"""

FILLS = {
    "a list of layers around one module":
        "self.blocks = nn.ModuleList([Layer(inner) for _ in range(count)])  #!",
    "one module many times": "self.blocks = nn.ModuleList([inner] * count)  #!",
    "a module for each":
        "self.blocks = nn.ModuleList([Layer(nn.Linear(8, 8)) for _ in range(count)])",
}  # fmt: skip


def _named(text, recording):
    found = [one for one in recording.findings if one.slug == "alias-write"]
    marked = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    return found, marked, {each.site.line for one in found for each in one.evidence}


@pytest.mark.parametrize("name", RETURNS)
def test_the_line_that_returns_what_is_shared(name, tmp_path):
    returned, count = RETURNS[name]
    text = RING.replace("RETURN", returned)
    found, marked, lines = _named(text, record_program(text, tmp_path))
    assert len(found) == len(marked) == count
    assert lines.issuperset(marked)
    assert all("returned" in each.text for one in found for each in one.evidence
               if each.site.line in marked)  # fmt: skip


@pytest.mark.parametrize("name", FILLS)
def test_the_line_that_puts_one_module_into_many_places(name, tmp_path):
    text = SHARED.replace("FILL", FILLS[name])
    found, marked, lines = _named(text, record_program(text, tmp_path))
    assert bool(found) == bool(marked)
    assert all(one.severity == "note" for one in found)
    assert lines.issuperset(marked)


PLAIN = """\
import torch


def scaled(scores, heat):
    return scores.div_(heat)


def drawn(scores, heat):
    TAKEN
    scores = scaled(scores, heat)
    picked = scores.softmax(-1).argmax(-1)
    return raw.log_softmax(-1)[picked]


print(drawn(torch.randn(8), 0.5))
"""


@pytest.mark.parametrize(
    ("taken", "named"),
    [
        ("raw = scores", True),
        ("raw = None\n    if heat > 0:\n        raw = scores", True),
        ("raw = scores if heat > 1 else scores.view(-1)", False),
        ("raw = scores.clone()", False),
    ],
)
def test_the_line_of_a_second_plain_name(taken, named, tmp_path):
    recording = record_program(PLAIN.replace("TAKEN", taken), tmp_path)
    steps = [step for one in recording.findings for step in one.evidence]
    found = [one for one in steps if "is the same tensor as `scores`" in one.text]
    lines = PLAIN.replace("TAKEN", taken).splitlines()
    assert {lines[one.site.line - 1].strip() for one in found} == (
        {"raw = scores"} if named else set()
    )
    assert not named or recording.findings[0].evidence[0] == found[0]
