"""Gradients that are bounded while they hold the scale of a gradient scaler, and right look-alikes."""

import pytest

from programs import record_program

START = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
bound, norms = 0.5, []
parameters = list(net.parameters())


def limit():
    return bound * scaler.get_scale()


for step in range(4):
    opt.zero_grad()
    before = scaler.get_scale()
    scaler.scale(net(torch.randn(8, 4)).pow(2).mean()).backward()
    scale = scaler.get_scale()
    {}
    scaler.step(opt)
    scaler.update()
"""

WRONG = {
    "a bound as it is": "nn.utils.clip_grad_norm_(parameters, bound)",
    "the scale is read to be printed": "print(scale); nn.utils.clip_grad_norm_(parameters, bound)",
    "a bound of values": "nn.utils.clip_grad_value_(parameters, bound)",
    "a bound that falls": "nn.utils.clip_grad_norm_(parameters, bound / (step + 1))",
    "the norm alone is divided":
        "norms.append(nn.utils.clip_grad_norm_(parameters, bound).item() / scale)",
}  # fmt: skip

RIGHT = {
    "a bound times the scale": "nn.utils.clip_grad_norm_(parameters, bound * scale)",
    "the scale that was read before": "nn.utils.clip_grad_norm_(parameters, bound * before)",
    "a function that scales it": "nn.utils.clip_grad_norm_(parameters, limit())",
    "by hand, with the scale as a tensor": """\
norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    factor = (bound * scaler._scale / norm).clamp(max=1.0)
    for p in parameters:
        p.grad.mul_(factor)""",
    "a bound of values times the scale":
        "nn.utils.clip_grad_value_(parameters, clip_value=bound * scale)",
    "the scale is taken out first":
        "scaler.unscale_(opt); nn.utils.clip_grad_norm_(parameters, bound)",
}  # fmt: skip


def told(line, folder):
    found = record_program(START.replace("{}", line), folder).findings
    return [one.severity for one in found if one.slug == "gradient-discarded"]


@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG)
def test_a_bound_that_is_divided_with_the_gradients_is_told(line, tmp_path):
    assert told(line, tmp_path) == ["warning"]


@pytest.mark.parametrize("line", RIGHT.values(), ids=RIGHT)
def test_a_bound_that_holds_the_scale_too_is_not(line, tmp_path):
    assert told(line, tmp_path) == []
