"""Gradients that are bounded before backward has added the last part of them."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
data = torch.randn(24, 8, 4)

def bound():
    LIMIT

for number, x in enumerate(data):
    BEFORE
    (net(x).square().mean() / 4).backward()
    AFTER
    if (number + 1) % 4 == 0:
        LAST
        optimizer.step()
        optimizer.zero_grad()
"""

NORM = "nn.utils.clip_grad_norm_(net.parameters(), 0.1)"
VALUE = "net[0].weight.grad is None or nn.utils.clip_grad_value_(net.parameters(), 0.01)"
OWN = """\
given = [one.grad for one in net.parameters() if one.grad is not None]
    size = torch.stack([one.norm() for one in given]).norm() if given else torch.tensor(1.0)
    for one in given:
        one.mul_(torch.clamp(0.1 / (size + 1e-6), max=1.0))"""
GUARD = "if number % 4 == 3: bound()"
AGAIN, NEVER = ("note", "scaled again"), ("warning", "nothing limits")

CASES = {
    "before each pass": (NORM, "bound()", "pass", "pass", [NEVER]),
    "the values, before each pass": (VALUE, "bound()", "pass", "pass", [NEVER]),
    "by the program's own norm": (OWN, "bound()", "pass", "pass", [NEVER]),
    "after each pass": (NORM, "pass", "bound()", "pass", [AGAIN]),
    "before each pass, and before the step": (NORM, "bound()", "pass", "bound()", [AGAIN]),
    "before the step": (NORM, "pass", "pass", "bound()", []),
    "after the last pass": (NORM, "pass", GUARD, "pass", []),
    "the norm for a log alone": (
        "torch.stack([one.grad.norm() for one in net.parameters()])", "pass", "bound()", "pass", [],
    ),
    "each pass by itself, which is taken out and summed": (
        NORM, "pass",
        "bound(); kept = [one.grad.clone() for one in net.parameters()]; optimizer.zero_grad()",
        "[setattr(one, 'grad', grad) for one, grad in zip(net.parameters(), kept)]", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_bound_on_a_part_of_a_sum(name, tmp_path):
    limit, before, after, last, expected = CASES[name]
    text = PROGRAM.replace("LIMIT", limit).replace("BEFORE", before)
    found = [
        one
        for one in record_program(
            text.replace("AFTER", after).replace("LAST", last), tmp_path
        ).findings
        if "is limited" in str(one.message)
    ]
    assert [one.severity for one in found] == [severity for severity, _ in expected]
    assert all(words in str(one.message) for one, (_, words) in zip(found, expected, strict=True))
