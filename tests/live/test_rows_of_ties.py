"""Rows of the table of ties: each names two places that are two."""

import pytest

from programs import record_program
from tether.analysis.ties import Ties

WRAPPED = """\
import torch
from torch import nn


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Whole(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.around = Around(inner)

    def forward(self, x):
        return self.around(x) + self.inner(x)


inner = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
whole = Whole(inner)
for _ in range(4):
    whole(torch.rand(5, 3))
"""

STATE = """\
import torch


class Slow(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})
        for group in self.param_groups:
            for one in group["params"]:
                self.state[one]["count"] = torch.tensor(0.0)
                self.state[one]["sum"] = torch.tensor([0.0, 0.0, 0.0])

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one]
                state["count"] += 1
                state["sum"].add_(one.grad)
                one -= state["sum"] / state["count"].item()


marks = torch.ones(3, requires_grad=True)
slow = Slow([marks])
for _ in range(4):
    slow.zero_grad()
    (marks * 2).sum().backward()
    slow.step()
    print(slow.state[marks]["count"], slow.state[marks]["sum"])
"""


@pytest.mark.parametrize("text", [WRAPPED, STATE])
def test_two_names_of_one_place_are_no_tie(text, tmp_path):
    ties = record_program(text, tmp_path).history.get(Ties).found
    inside = ("running", "num_batches", "count", "sum")
    assert not [one for one in ties if any(word in one.shows[0] for word in inside)]


ONE_LAYER_THRICE = """\
import torch
from torch import nn

stack = nn.ModuleList([nn.BatchNorm1d(3)] * 3)
x = torch.rand(5, 3)
for _ in range(4):
    for layer in stack:
        x = layer(x)
    print(stack[0].running_mean, stack[2].running_mean)
"""

ONE_STATE_FOR_TWO = """\
import torch

tides = [torch.tensor([0.0, 1.0])] * 2
tides[0] += 1
print(tides[1].sum())
"""


@pytest.mark.parametrize(
    ("text", "shown"), [(ONE_LAYER_THRICE, "running_mean"), (ONE_STATE_FOR_TWO, "tides")]
)
def test_one_object_in_two_places_is_a_tie(text, shown, tmp_path):
    ties = record_program(text, tmp_path).history.get(Ties).found
    assert any(shown in name for one in ties for name in one.shows)
