"""Lines that change parameters by their gradients, and ask for some of them at the wrong time."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 2))
words, labels = torch.randint(0, 20, (16, 4)), torch.randint(0, 2, (16,))

def update(parameters, rate=0.1):
    with torch.no_grad():
        for one in parameters:
            if one.grad is not None:
                one -= rate * one.grad
                one.grad = None

START
for step in range(6):
    net.zero_grad()
    loss = nn.functional.cross_entropy(net(words), labels)
    loss.backward()
    AFTER
print(loss.item())
"""

EARLY = """\
for part in net.parameters():
    part.register_hook(lambda grad: update(net.parameters()))"""
LATE = """\
for part in net.parameters():
    part.register_post_accumulate_grad_hook(lambda one: update([one]))"""
NORMS = """\
head = torch.optim.SGD(net.parameters(), lr=0.1)
def norms():
    return [one.grad.norm().item() for one in net.parameters() if one.grad is not None]"""

CASES = {
    "in hooks that run before a gradient is stored": (EARLY, "pass", 1),
    "in such hooks, and once more after the pass": (EARLY, "update(net.parameters())", 0),
    "in hooks that run afterwards": (LATE, "pass", 0),
    "after the pass": ("", "update(net.parameters())", 0),
    "after the pass, of the head alone": ("", "update(net[2:].parameters())", 0),
    "of what is frozen, too": ("net[0].requires_grad_(False)", "update(net.parameters())", 0),
    "for a log, before an optimizer steps": (NORMS, "print(norms()); head.step()", 0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_that_is_never_there_yet(name, tmp_path):
    start, after, told = CASES[name]
    text = PROGRAM.replace("START", start).replace("AFTER", after)
    found = record_program(text, tmp_path).findings
    assert [one.slug for one in found if one.severity != "note"] == ["gradient-discarded"] * told
    for one in found[:told]:
        assert one.site.line == 11
        assert one.subject == "net.0.weight"
