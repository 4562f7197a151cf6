"""What counts as a parameter of a program in the table of gradients, and under which name."""

import pytest

from programs import record_program

AVERAGES = """\
import copy
import torch
from torch import nn

speech = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
weights = dict(speech.named_parameters())
for season in range(3):
    averages = {}
    for name, part in copy.deepcopy(weights).items():
        part.data.zero_()
        averages[name] = part.data
    for _ in range(2):
        speech.zero_grad()
        speech(torch.randn(5, 4)).pow(2).sum().backward()
        for name, part in speech.named_parameters():
            averages[name] += part.grad.abs()
    print(sum(one.sum().item() for one in averages.values()))
"""


def test_copies_that_keep_numbers_are_no_parameters(tmp_path):
    recording = record_program(AVERAGES, tmp_path)
    names = {f"speech.{n}.{kind}" for n in (0, 1) for kind in ("weight", "bias")}
    assert {one.name: one.status for one in recording.gradients} == dict.fromkeys(names, "reached")


def test_a_loop_variable_is_asked_for_those_that_have_no_better_name(tmp_path):
    answer = str(record_program(AVERAGES, tmp_path).why("part"))
    assert "called part for a while too" in answer
    assert "gradient whenever" not in answer
    assert "used by linear" not in answer


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            """\
            import torch
            slope = torch.tensor([2.0], requires_grad=True)
            lift = torch.tensor([1.0], requires_grad=True)
            for _ in range(3):
                (slope * 3 + lift.detach()).sum().backward()
                with torch.no_grad():
                    slope -= 0.1 * slope.grad
                    if lift.grad is not None:
                        lift -= 0.1 * lift.grad
            """,
            {"slope": "reached", "lift": "none"},
        ),
        (
            """\
            import torch
            class Curve:
                def __init__(self):
                    self.near = torch.nn.Parameter(torch.ones(2))
                    self.far = torch.nn.Parameter(torch.ones(2))
            curve = Curve()
            bend = curve.far * 2
            for _ in range(2):
                (curve.near * 3).sum().backward()
                curve.near.data -= 0.1 * curve.near.grad
            """,
            {"curve.near": "reached", "curve.far": "none"},
        ),
        (
            """\
            import torch
            from torch import nn
            class Two(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.used, self.left = nn.Linear(2, 1), nn.Parameter(torch.ones(1))
                def forward(self, x):
                    return self.used(x) + self.left.item()
            two = Two()
            two(torch.ones(3, 2)).sum().backward()
            """,
            {"two.used.weight": "reached", "two.used.bias": "reached", "two.left": "none"},
        ),
    ],
)
def test_what_might_have_got_a_gradient_counts(text, rows, tmp_path):
    recording = record_program(text, tmp_path)
    assert {one.name: one.status for one in recording.gradients} == rows


TWO_MODELS = """\
import torch
from torch import nn

torch.manual_seed(0)
hull, sail = nn.Linear(3, 4), nn.Linear(4, 1)
spare = nn.Linear(4, 1)
trims = torch.optim.SGD(hull.parameters(), lr=0.1)
{more}
for _ in range(3):
    sail(hull(torch.randn(5, 3))).mean().backward()
    trims.step()
    {then}
"""


@pytest.mark.parametrize(
    ("more", "then"),
    [
        ("sets = torch.optim.SGD(sail.parameters(), lr=0.1)", "sets.zero_grad()"),
        ("sets = torch.optim.SGD(sail.parameters(), lr=0.1)", "sets.zero_grad(), sets.step()"),
        ("", "pass"),
        ("", "raise SystemExit(1)"),
        ("", "raise ValueError"),
    ],
)
def test_what_backward_gave_a_gradient_got_one(more, then, tmp_path):
    recording = record_program(TWO_MODELS.format(more=more, then=then), tmp_path)
    names = {f"{one}.{kind}" for one in ("hull", "sail") for kind in ("weight", "bias")}
    assert {one.name: one.status for one in recording.gradients} == dict.fromkeys(names, "reached")


def test_what_backward_never_gave_a_gradient_got_none(tmp_path):
    text = TWO_MODELS.format(
        more="sets = torch.optim.SGD([*sail.parameters(), *spare.parameters()], lr=0.1)",
        then="sets.step()",
    )
    rows = {one.name: one.status for one in record_program(text, tmp_path).gradients}
    assert {name for name, status in rows.items() if status == "none"} == {
        "spare.weight",
        "spare.bias",
    }
    assert len(rows) == 6
