"""Gradients that are something only at some steps, and what is said where not all were looked at."""

import pytest

from programs import record_program
from tether.record.gradients import gradients
from tether.record.training import movement
from tether.report.document.text import render
from tether.report.formats import json as as_json

LONG = 37
"""Steps: the 1st, 2nd, 4th, 8th, 16th and 32nd of them are looked at in any case."""

ONE_STEP = f"""\
import torch

torch.manual_seed(0)
gain = torch.nn.Parameter(torch.ones(3))
gate = torch.nn.Parameter(torch.full((2,), 0.5))
opt = torch.optim.SGD([gain, gate], lr=0.1)
for day in range({LONG}):
    rain = torch.rand(3)
    open_ = 1.0 if day == 20 else 0.0
    loss = (gain * rain).sum() + open_ * gate.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

RARE_WORD = f"""\
import torch

torch.manual_seed(0)
words = torch.nn.Embedding(6, 4)
rare = torch.nn.Linear(4, 1)
opt = torch.optim.Adam([*words.parameters(), *rare.parameters()], lr=0.01)
for n in range({LONG}):
    opt.zero_grad(set_to_none=False)
    text = torch.randint(0, 5, (7,))
    one = words(text)
    loss = (one - 1).pow(2).mean()
    if n % 9 == 5:
        loss = loss + rare(one).pow(2).mean()
    else:
        loss = loss + (rare(one) * 0).sum()
    loss.backward()
    opt.step()
"""

BY_HAND = f"""\
import torch

torch.manual_seed(0)
slope, hinge = torch.ones(2, requires_grad=True), torch.zeros(1, requires_grad=True)
for n in range({LONG}):
    x = torch.rand(2)
    loss = (slope * x).sum() + (hinge if n in (9, 22) else hinge * 0).sum()
    loss.backward()
    with torch.no_grad():
        for one in (slope, hinge):
            one -= 0.1 * one.grad
            one.grad = None
"""

ALWAYS_ZERO = ONE_STEP.replace("day == 20", "day == 99")

CLOSURE = f"""\
import torch

torch.manual_seed(0)
tilt = torch.nn.Parameter(torch.ones(2))
lift = torch.nn.Parameter(torch.ones(2))
opt = torch.optim.SGD([tilt, lift], lr=0.1)
for n in range({LONG}):
    def closure():
        opt.zero_grad()
        loss = (tilt * torch.rand(2)).sum() + (lift * (n == 10)).sum()
        loss.backward()
        return loss
    opt.step(closure)
"""


def rows(recording):
    made = as_json.to_json(recording.about)
    return {one["name"]: one for one in made["gradients"]}


@pytest.mark.parametrize(
    ("program", "name"),
    [(ONE_STEP, "gate"), (RARE_WORD, "rare.weight"), (BY_HAND, "hinge"), (CLOSURE, "lift")],
    ids=["one step", "a rare word", "a step by hand", "a closure"],
)
def test_a_gradient_at_a_step_between_the_looks_is_one(program, name, tmp_path):
    recording = record_program(program, tmp_path)
    row = rows(recording)[name]
    assert (row["status"], row["unlooked"]) == ("reached", 0)
    assert not [one for one in recording.findings if one.slug == "gradient-zero"]


def test_one_that_is_zero_at_each_step_is_said_to_be(tmp_path):
    recording = record_program(ALWAYS_ZERO, tmp_path)
    row = rows(recording)["gate"]
    assert (row["status"], row["changed"], row["unlooked"]) == ("zero", False, 0)


@pytest.fixture
def no_time(monkeypatch):
    """Looks between are never due: as where they have taken their share of the run."""
    monkeypatch.setattr(gradients, "Budget", Late)
    monkeypatch.setattr(movement, "Budget", Late)


class Late:
    def __init__(self, share, allowed):
        self.late = lambda: share < 0.01

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


@pytest.mark.usefixtures("no_time")
def test_where_there_was_no_time_the_table_says_how_many_were_looked_at(tmp_path):
    recording = record_program(ONE_STEP, tmp_path)
    row = rows(recording)["gate"]
    assert (row["status"], row["changed"], row["unlooked"]) == ("zero", True, LONG - 6)
    shown = render(recording.document(), width=100)
    assert "1 of 2 parameters got a gradient, 1 zeros whenever it was looked at" in shown
    assert f"zero (6 of {LONG} looked at), changed" in shown
    assert "only zeros" not in shown


ROUNDED = f"""\
import torch

torch.manual_seed(0)
level = torch.nn.Parameter(torch.ones(3))
opt = torch.optim.SGD([level], lr=0.1)
for n in range({LONG}):
    opt.zero_grad()
    loss = (torch.round(level * 3) * torch.rand(3)).sum()
    loss.backward()
    opt.step()
"""


def zero_message(recording):
    (found,) = [one for one in recording.findings if one.slug == "gradient-zero"]
    return str(found.message)


def test_a_step_function_is_told_of_every_step(tmp_path):
    message = zero_message(record_program(ROUNDED, tmp_path))
    assert "got a gradient of exactly zero at every step: its only paths" in message


@pytest.mark.usefixtures("no_time")
def test_a_step_function_is_told_of_the_steps_that_were_looked_at(tmp_path):
    message = zero_message(record_program(ROUNDED, tmp_path))
    assert "exactly zero at each of the 6 steps that were looked at: its only paths" in message


def test_a_step_function_is_told_of_the_steps_that_gave_a_gradient(tmp_path):
    some = ROUNDED.replace(
        "    loss = (", "    part = level if n < 30 else torch.ones(3)\n    loss = ("
    )
    some = some.replace("torch.round(level", "torch.round(part")
    some = some.replace(".sum()\n", ".sum() + torch.zeros(1, requires_grad=True).sum()\n")
    message = zero_message(record_program(some, tmp_path))
    assert "exactly zero at each of the 30 steps that gave it one: its only paths" in message


LOCAL = f"""\
import torch


def train():
    torch.manual_seed(0)
    wide = torch.nn.Linear(3, 2)
    opt = torch.optim.SGD(wide.parameters(), lr=0.1)
    for n in range({LONG}):
        opt.zero_grad()
        (wide(torch.rand(5, 3)).pow(2).mean() * RATE).backward()
        opt.step()
    return 0


train()
"""


@pytest.mark.parametrize(
    ("rate", "changed"),
    [("(n > 32)", True), ("(n == 12)", True), ("0", False), ("1", True)],
    ids=["after the last look", "between two looks", "never", "always"],
)
def test_whether_it_changed_is_known_though_it_is_gone_at_the_end(rate, changed, tmp_path):
    found = rows(record_program(LOCAL.replace("RATE", rate), tmp_path))
    assert {one["changed"] for one in found.values()} == {changed}


@pytest.mark.usefixtures("no_time")
@pytest.mark.parametrize("rate", ["(n > 32)", "0"])
def test_it_is_not_known_where_there_was_no_time_for_the_last_steps(rate, tmp_path):
    recording = record_program(LOCAL.replace("RATE", rate), tmp_path)
    assert {one["changed"] for one in rows(recording).values()} == {None}
    assert "never changed" not in " ".join(str(one.message) for one in recording.findings)
