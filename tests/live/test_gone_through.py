"""Iterators of parameters that an optimizer has gone through, and that are read again, or not."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)

class Trainer:
    def __init__(self, net):
        self.net = net
        MADE

    def shrink(self):
        for one in GIVEN:
            if one.grad is not None:
                one.grad.clamp_(-0.1, 0.1)

    def step(self):
        self.opt.zero_grad()
        self.net(torch.randn(4, 3)).pow(2).mean().backward()
        self.shrink()
        self.opt.step()

trainer = Trainer(nn.Linear(3, 2))
for _ in range(3):
    trainer.step()
"""
ALL = "net.parameters()"
ITERATOR = "filter(lambda one: one.requires_grad, net.parameters())"

CASES = {
    "an attribute": (
        f"self.some = {ITERATOR}; self.opt = torch.optim.SGD(self.some, lr=0.1)", "self.some", 1
    ),
    "an attribute that is a list": (
        f"self.some = [*{ITERATOR}]; self.opt = torch.optim.SGD(self.some, lr=0.1)", "self.some", 0
    ),
    "an attribute that is given another one": (
        f"self.some = {ITERATOR}; self.opt = torch.optim.SGD(self.some, lr=0.1); self.some = [*{ALL}]",
        "self.some",
        0,
    ),
    "a variable that nobody reads again": (
        f"some = {ITERATOR}; self.opt = torch.optim.SGD(some, lr=0.1)", "self.net.parameters()", 0
    ),
    "no name at all": (f"self.opt = torch.optim.SGD({ITERATOR}, lr=0.1)", "net.parameters()", 0),
}  # fmt: skip

COUNTED = """\
import torch

net = torch.nn.Linear(3, 2)
some = net.parameters()
opt = torch.optim.SGD(some, lr=0.1)
AGAIN
net(torch.randn(4, 3)).sum().backward()
opt.step()
print(sum(one.numel() for one in some))
"""


@pytest.mark.parametrize("name", CASES)
def test_what_an_optimizer_took_of_an_iterator_nobody_finds_again(name, tmp_path):
    made, given, told = CASES[name]
    found = record_program(
        PROGRAM.replace("MADE", made).replace(
            "GIVEN", given.replace("net.p", "self.net.p").replace("self.self.", "self.")
        ),
        tmp_path,
    ).findings
    lines = [(one.slug, one.severity, one.site.line) for one in found if one.operation == ""]
    assert lines == [("gradient-discarded", "note", 12)] * told


def test_a_variable_counts_until_it_is_assigned_again(tmp_path):
    found = record_program(COUNTED.replace("AGAIN", ""), tmp_path).findings
    assert [(one.slug, one.subject) for one in found] == [("gradient-discarded", "some")]
    again = COUNTED.replace("AGAIN", "some = list(net.parameters())")
    assert record_program(again, tmp_path, "again.py").findings == []
