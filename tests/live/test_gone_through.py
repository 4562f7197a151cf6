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


CHOSEN = """\
import torch

KIND, READY = "fast", True
net = torch.nn.Linear(3, 2)


def made(kind):
    some = net.parameters()
BODY


opt = made(KIND)
for _ in range(2):
    net(torch.randn(4, 3)).sum().backward()
    opt.step()
"""
ONE_OF_TWO = {
    "branches": """\
if kind == "fast":
    opt = torch.optim.Adam(some)
else:
    opt = torch.optim.SGD(some, lr=0.1)
return opt""",
    "a chain of branches": """\
if kind == "slow":
    opt = torch.optim.SGD(some, lr=0.1)
elif kind == "fast":
    opt = torch.optim.Adam(some)
elif kind == "other":
    opt = torch.optim.Rprop(some)
else:
    raise ValueError(kind)
return opt""",
    "a return": """\
if kind == "fast":
    with torch.enable_grad():
        return torch.optim.Adam(some)
return torch.optim.SGD(some, lr=0.1)""",
    "a match": """\
match kind:
    case "fast":
        opt = torch.optim.Adam(some)
    case _:
        opt = torch.optim.SGD(some, lr=0.1)
return opt""",
    "one expression": """\
return (
    torch.optim.Adam(some)
    if kind == "fast"
    else torch.optim.SGD(some, lr=0.1)
)""",
    "conditions of which one is true": """\
if kind == "fast":
    opt = torch.optim.Adam(some)
if kind == "slow":
    opt = torch.optim.SGD(some, lr=0.1)
return opt""",
    "a condition and its opposite": """\
if READY:
    opt = torch.optim.Adam(some)
if not READY:
    opt = torch.optim.SGD(some, lr=0.1)
return opt""",
    "a loop that is left": """\
for name in ("fast", "slow"):
    some = net.parameters()
    if name == kind:
        opt = torch.optim.Adam(some)
    else:
        opt = torch.optim.SGD(some, lr=0.1)
return opt""",
}
ONE_AFTER_THE_OTHER = {
    "behind both branches": """\
if kind == "fast":
    opt = torch.optim.Adam(some)
else:
    opt = torch.optim.SGD(some, lr=0.1)
print([one.shape for one in some])
return opt""",
    "in the same branch": """\
if kind == "fast":
    opt = torch.optim.Adam(some)
    print(len([*some]))
return opt""",
    "behind what is tried": """\
try:
    opt = torch.optim.Adam(some)
except ValueError:
    opt = None
else:
    print(len([*some]))
return opt""",
    "where the condition changed": """\
if kind == "fast":
    opt = torch.optim.Adam(some)
    kind = "slow"
if kind == "slow":
    print(len([*some]))
return opt""",
    "another turn of a loop": """\
for turn in ("first", "second"):
    if turn == "first":
        opt = torch.optim.Adam(some)
    else:
        print(len([*some]))
return opt""",
}


def _notes_of_iterators(body, folder):
    lines = "\n".join("    " + one for one in body.splitlines())
    found = record_program(CHOSEN.replace("BODY", lines), folder).findings
    return [one for one in found if "iterator" in one.message]


@pytest.mark.parametrize("name", ONE_OF_TWO)
def test_what_cannot_follow_on_an_optimizer_reads_nothing_again(name, tmp_path):
    assert _notes_of_iterators(ONE_OF_TWO[name], tmp_path) == []


@pytest.mark.parametrize("name", ONE_AFTER_THE_OTHER)
def test_what_may_follow_on_an_optimizer_is_told(name, tmp_path):
    assert len(_notes_of_iterators(ONE_AFTER_THE_OTHER[name], tmp_path)) == 1
