"""Terms of a loss that undo each other in one pass, and sums that are zero by their formula.

A comment ``#!`` marks the line that the warning must name; a program without one is right.
"""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
policy, value = nn.Linear(4, 3), nn.Linear(4, 3)
weight = nn.Parameter(torch.zeros(()))
opt = torch.optim.Adam([*policy.parameters(), *value.parameters(), weight], lr=0.01)
for step in range(12):
    x = torch.randn(16, 4)
    logits, worth = policy(x), value(x)
    logp = logits.log_softmax(-1)
    LOSS
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

LOSSES = {
    "the value is not taken for a constant": """
    gain = (weight.exp().detach() * logp - worth).mean()
    dual = -(weight.exp() * (logp + 1.0)).mean()  #!
    loss = gain + dual""",
    "the value is taken for a constant": """
    gain = (weight.exp().detach() * logp - worth).mean()
    dual = -(weight.exp() * (logp.detach() + 1.0)).mean()
    loss = gain + dual""",
    "a multiplier of a constraint, which is a sum": """
    excess = logp.exp().mean(0) - 0.2
    loss = worth.pow(2).mean() + (weight.detach().exp() * excess).sum()
    loss = loss - (weight.exp() * excess).sum()  #!""",
    "two weights that are equal in the first pass alone": """
    other = 1.0 if step == 0 else 0.5
    loss = (weight.exp() * logp).mean() - (other * logp).mean() + worth.mean()""",
    "a maximum that is taken off and added again": """
    top = worth.max(1, keepdim=True).values
    loss = ((worth - top).exp().sum(1, keepdim=True).log() + top - logits).pow(2).mean()""",
    "a mean that is taken off": """
    level = worth.mean()
    loss = (worth - level).pow(2).mean() + logp.pow(2).mean()""",
    "one value on both sides of a margin": """
    loss = (worth[:, 0] - worth[:, 0] + logp[:, 0]).clamp(min=-9).pow(2).mean()""",
}


PRODUCT = """\
import torch

torch.manual_seed(0)
policy, spread = torch.nn.Linear(3, 2), torch.nn.Parameter(torch.zeros(2))
weights = [*policy.parameters(), spread]
states = torch.randn(16, 3)


def curvature(direction):
    mean, log_std = policy(states), spread.expand(16, 2)
    old_mean, old_log_std = mean.detach(), log_std.detach()
    apart = (2 * old_log_std).exp() + (old_mean - mean).pow(2)
    gap = log_std - old_log_std + apart / (2 * (2 * log_std).exp()) - 0.5
    slopes = torch.autograd.grad(gap.sum(1).mean(), weights, create_graph=True)
    along = sum((one * way).sum() for one, way in zip(slopes, direction))
    return torch.autograd.grad(along, weights)


for _ in range(4):
    print([one.sum().item() for one in curvature([torch.ones_like(one) for one in weights])])
"""


def test_of_a_gradient_that_is_differentiated_again_nothing_is_said(tmp_path):
    findings = record_program(PRODUCT, tmp_path).findings
    assert [one.slug for one in findings if one.severity != "note"] == []


@pytest.mark.parametrize("name", LOSSES)
def test_what_adds_up_to_nothing(name, tmp_path):
    text = PROGRAM.replace("    LOSS", LOSSES[name].strip("\n"))
    found = [one for one in record_program(text, tmp_path).findings if one.severity != "note"]
    marked = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    told = [one.site.line for one in found if "the terms undo each other" in one.message]
    assert told == marked
