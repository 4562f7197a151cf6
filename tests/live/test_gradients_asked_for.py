"""What `autograd.grad` returned for a parameter is a gradient of it: so the table says."""

import pytest

from programs import record_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
tide, wind = nn.Linear(4, 2), nn.Linear(4, 1)
hours = torch.randn(12, 4)
"""
BESIDE_BACKWARD = """
for _ in range(3):
    wind.zero_grad()
    wind(hours).square().mean().backward()
    with torch.no_grad():
        for one in wind.parameters():
            one -= 0.1 * one.grad
    found = torch.autograd.grad(tide(hours).square().mean(), list(tide.parameters()))
    with torch.no_grad():
        for one, gradient in zip(tide.parameters(), found):
            one -= 0.1 * gradient
"""
BESIDE_AN_OPTIMIZER = """
opt = torch.optim.SGD(wind.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    wind(hours).square().mean().backward()
    opt.step()
    found = torch.autograd.grad(tide(hours).square().mean(), list(tide.parameters()))
    for one, gradient in zip(tide.parameters(), found):
        one.data.sub_(gradient, alpha=0.1)
wind(hours).mean().backward()
"""
LEAVES = """
phase = torch.zeros(2, requires_grad=True)
for _ in range(3):
    wind(hours + phase.detach().sum()).square().mean().backward()
    (found,) = torch.autograd.grad((tide(hours) + phase).square().mean(), [phase])
    phase.data -= 0.1 * found
"""
UNUSED = """
for _ in range(3):
    wind(hours).square().mean().backward()
    found = torch.autograd.grad(
        tide.weight.square().sum(), list(tide.parameters()), allow_unused=True
    )
"""


def statuses(body, tmp_path):
    recording = record_program(HEAD + body, tmp_path)
    return recording, {row.name: row.status for row in recording.gradients}


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (BESIDE_BACKWARD, "tide.weight"),
        (BESIDE_BACKWARD, "tide.bias"),
        (BESIDE_AN_OPTIMIZER, "wind.weight"),
        (LEAVES, "phase"),
    ],
)
def test_a_gradient_that_was_asked_for_is_one(body, name, tmp_path):
    recording, found = statuses(body, tmp_path)
    assert found[name] == "reached"
    assert "no gradient" not in str(recording.why(name))
    assert "reached it" in str(recording.why(name))


def test_no_parameter_is_counted_as_without_one(tmp_path):
    _, found = statuses(BESIDE_AN_OPTIMIZER, tmp_path)
    assert "none" not in found.values()


def test_what_autograd_found_none_for_has_none(tmp_path):
    recording, found = statuses(UNUSED, tmp_path)
    assert found["tide.bias"] == "none"
    assert found["tide.weight"] == "reached"
    assert "no gradient" in str(recording.why("tide.bias"))
