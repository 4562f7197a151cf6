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


ONE_STATEMENT = {
    "a view that its own statement writes and reads": """\
import torch

c = torch.rand(4, 4)
for _ in range(3):
    print(torch.diagonal(c).add_(-1).pow_(2).sum().item())
""",
    "clamped, and copied at once": """\
import torch

net = torch.nn.Linear(3, 2)
kept = [one.detach().clone() for one in net.parameters()]
for _ in range(3):
    for one, copy in zip(net.parameters(), kept):
        copy.copy_(one.data.clamp_(-0.1, 0.1))
""",
    "moved to where it is": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    net(torch.rand(5, 3)).sum().backward()
    opt.step()
    net.to("cpu")
""",
}
TWO_STATEMENTS = {
    "a view that is read after another's write": """\
import torch

c = torch.rand(4, 4)
line = torch.diagonal(c)
for _ in range(3):
    c.mul_(0.5)
    print(line.sum().item())
""",
    "a view that is written, and its whole read": """\
import torch

c = torch.rand(4, 4)
line = c.detach()
for _ in range(3):
    line.mul_(0.5)
    print(c.sum().item())
""",
}


def _listed(text, folder):
    found = record_program(text, folder).history.get(Ties).found
    return [one for one in found if not one.standing.plain]


@pytest.mark.parametrize("text", ONE_STATEMENT.values(), ids=ONE_STATEMENT)
def test_what_shows_its_own_write_is_no_tie(text, tmp_path):
    assert _listed(text, tmp_path) == []


@pytest.mark.parametrize("text", TWO_STATEMENTS.values(), ids=TWO_STATEMENTS)
def test_what_shows_the_write_of_another_is_a_tie(text, tmp_path):
    assert len(_listed(text, tmp_path)) == 1
