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
