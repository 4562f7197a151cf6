"""Gradients that a step finds in another tensor's place: both ends are named, and where they met."""

import pytest

from programs import record_program

START = """\
import torch
from torch import nn

torch.manual_seed(0)


class Station:
    def __init__(self):
        self.local_model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def learn(self, main, optimizer):
        self.local_model.load_state_dict(main.state_dict())
        loss = self.local_model(torch.rand(5, 3)).pow(2).mean()
        CLEAR
        loss.backward()  # backward
        for one, other in zip(self.local_model.parameters(), main.parameters()):
            GIVEN
        optimizer.step()


main, station = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), Station()
optimizer = torch.optim.SGD(main.parameters(), lr=0.1)
for _ in range(5):
    station.learn(main, optimizer)
"""

ALONE, BOTH = (
    "optimizer.zero_grad()  # clear",
    "optimizer.zero_grad(); self.local_model.zero_grad()",
)
ITSELF = "other.grad = one.grad  # tied"


def told(clear, given, folder):
    text = START.replace("CLEAR", clear).replace("GIVEN", given)
    recording = record_program(text, folder)
    assert recording.error is None
    lines = {
        mark: number
        for number, line in enumerate(text.splitlines(), 1)
        for mark in ("tied", "clear", "backward")
        if line.endswith(f"# {mark}")
    }
    found = [one for one in recording.findings if one.slug == "gradient-accumulated"]
    return found, lines


@pytest.mark.parametrize("given", [ITSELF, ITSELF.replace("other.grad", "other._grad")])
def test_both_ends_of_a_gradient_are_named(given, tmp_path):
    (found,), lines = told(ALONE, given, tmp_path)
    mine, its = "`main.0.weight`", "`station.local_model.0.weight`"
    assert found.message == (
        f"Later steps use again what a step has used: line {lines['tied']} makes one tensor the"
        f" gradient of {mine} and of {its}. Line {lines['clear']} clears it for {mine} alone, and"
        f" backward at line {lines['backward']} adds to what {its} still has."
    )
    assert found.fix.text.endswith(f"call zero_grad() on the model that has {its}.")
    steps = [(one.site.line, one.text) for one in found.evidence]
    assert len(steps) == len({line for line, _ in steps})  # each line once, for all parameters


@pytest.mark.parametrize(
    ("clear", "given"),
    [
        (BOTH, ITSELF),
        ("self.local_model.zero_grad()", ITSELF),
        (BOTH, "other.grad = one.grad.clone()"),
    ],
)
def test_gradients_that_are_cleared_where_they_are_made_are_not_told(clear, given, tmp_path):
    found, _ = told(clear, given, tmp_path)
    assert found == []


def test_a_public_name_comes_before_a_private_path(tmp_path):
    text = """\
import torch

class Task:
    def __init__(self, *given):
        self._given = given

scales_of_the_sensors = torch.nn.Linear(3, 3)
task = Task(scales_of_the_sensors)
print(scales_of_the_sensors(torch.rand(2, 3)).sum())
"""
    history = record_program(text, tmp_path).history
    first = [history.names_of(one)[0] for one in history.trace.tensors if history.is_parameter(one)]
    assert first == ["scales_of_the_sensors.weight", "scales_of_the_sensors.bias"]
