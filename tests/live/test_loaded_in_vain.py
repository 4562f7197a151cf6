"""States that an optimizer loads before another takes its place, and look-alikes that use them."""

import pytest

from programs import record_program

PROGRAM = """\
import io
import torch
from torch import nn

torch.manual_seed(0)
x, target = torch.randn(16, 4), torch.randn(16, 2)
disk = io.BytesIO()


def steps(model, optimizer, times):
    for _ in range(times):
        optimizer.zero_grad()
        (model(x) - target).pow(2).mean().backward()
        optimizer.step()


class Trainer:
    def __init__(self, kind=torch.optim.Adam, **settings):
        self.model, self.kind, self.settings = nn.Linear(4, 2), kind, settings
        self.prepare()

    def prepare(self, **settings):
        self.optimizer = self.kind(self.model.parameters(), **{**self.settings, **settings})

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def saved(trainer):
    steps(trainer.model, trainer.optimizer, 3)
    torch.save({"model": trainer.model.state_dict(),
                "optimizer": trainer.optimizer.state_dict()}, disk)
    disk.seek(0)
    return torch.load(disk)


"""

FOUND = {
    "prepared again by a helper": """\
one, two = Trainer(lr=0.01), Trainer(lr=0.01)
two.load(saved(one))
two.prepare()
steps(two.model, two.optimizer, 3)
""",
    "momentum, and several steps": """\
kind = torch.optim.SGD
one = Trainer(kind, lr=0.1, momentum=0.9)
two = Trainer(kind, lr=0.1, momentum=0.9)
two.load(saved(one))
for phase in range(2):
    two.prepare()
    steps(two.model, two.optimizer, 3)
""",
    "one trainer": """\
one = Trainer(torch.optim.AdamW, lr=0.01)
state = saved(one)
one.load(state)
one.prepare()
steps(one.model, one.optimizer, 2)
""",
}

NOTED = """\
one, two = Trainer(lr=0.01), Trainer(lr=0.01)
two.load(saved(one))
two.prepare(lr=0.001)
steps(two.model, two.optimizer, 3)
"""

RIGHT = {
    "used": """\
one, two = Trainer(lr=0.01), Trainer(lr=0.01)
state = saved(one)
two.prepare()
two.load(state)
steps(two.model, two.optimizer, 3)
""",
    "handed on": """\
one, two = Trainer(lr=0.01), Trainer(lr=0.01)
two.load(saved(one))
state = two.optimizer.state_dict()
two.prepare()
two.optimizer.load_state_dict(state)
steps(two.model, two.optimizer, 3)
""",
    "used, and then a second phase": """\
one, two = Trainer(lr=0.01), Trainer(lr=0.01)
two.load(saved(one))
steps(two.model, two.optimizer, 3)
two.prepare()
steps(two.model, two.optimizer, 3)
""",
    "another kind": """\
one, two = Trainer(lr=0.01), Trainer(lr=0.01)
two.load(saved(one))
optimizer = torch.optim.SGD(two.model.parameters(), lr=0.01)
steps(two.model, optimizer, 3)
""",
    "nothing was kept": """\
kind = torch.optim.SGD
one, two = Trainer(kind, lr=0.1), Trainer(kind, lr=0.1)
two.load(saved(one))
two.prepare()
steps(two.model, two.optimizer, 3)
""",
    "never stepped again": """\
one, two = Trainer(lr=0.01), Trainer(lr=0.01)
two.load(saved(one))
two.prepare()
print(two.model(x).sum())
""",
}


LOAD = 1 + PROGRAM[: PROGRAM.index("self.optimizer.load_state_dict")].count("\n")


def _lost(body, folder):
    found = record_program(PROGRAM + body, folder).findings
    return [(one.severity, one.site.line) for one in found if one.slug == "values-lost"]


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_a_state_that_another_optimizer_is_made_after_is_lost(body, tmp_path):
    assert _lost(body, tmp_path) == [("warning", LOAD)]


def test_with_another_rate_it_is_a_note(tmp_path):
    assert _lost(NOTED, tmp_path) == [("note", LOAD)]


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_a_state_that_is_used_or_empty_is_not_lost(body, tmp_path):
    assert ("warning", LOAD) not in _lost(body, tmp_path)
    assert ("note", LOAD) not in _lost(body, tmp_path)
