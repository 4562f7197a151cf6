"""Custom Functions of two outputs: whether backward reads the gradients of both."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mean, power = x.mean(1), x.pow(2).mean(1)
        ctx.save_for_backward(x)
        {mark}
        return mean, power

    @staticmethod
    def backward(ctx, of_mean, of_power):
        (x,) = ctx.saved_tensors
        {backward}


body = nn.Linear(4, 6)
opt = torch.optim.SGD(body.parameters(), lr=0.1)
for x in torch.randn(8, 5, 4):
    mean, power = Moments.apply(body(x).tanh())
    loss = {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

ONE = "return of_mean[:, None].expand_as(x) / x.shape[1]"
BOTH = "return (of_mean[:, None] + 2 * x * of_power[:, None]) / x.shape[1]"
LOSS = "mean.pow(2).mean() + (power - 1).pow(2).mean()"


def _told(text, folder):
    findings = record_program(text, folder).findings
    return [one for one in findings if "does not use the gradient of output" in one.message]


def test_an_output_whose_gradient_is_not_read_is_noted(tmp_path):
    (found,) = _told(PROGRAM.format(mark="pass", backward=ONE, loss=LOSS), tmp_path)
    assert found.severity == "note"
    assert found.subject == "Moments"
    assert "output 2: line 25 computes with this output" in found.message
    assert {one.site.line for one in found.evidence} >= {24, 25}


QUIET = {
    "both are read": ("pass", BOTH, LOSS),
    "the second goes into no loss": ("pass", ONE, "mean.pow(2).mean() + 0 * x.sum()"),
    "the second has no gradient": (
        "ctx.mark_non_differentiable(power)", ONE, "(mean.pow(2) * power).mean()"
    ),
    "the second is looked at alone": ("pass", ONE, "mean.pow(2).mean() + 0 * power.max().item()"),
    "the second is asked whether it is zero": (
        "pass",
        "return (of_mean + of_power * 0 if of_power.any() else of_mean)[:, None].expand_as(x)",
        LOSS,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("mark", "backward", "loss"), QUIET.values(), ids=QUIET)
def test_of_other_outputs_nothing_is_said(mark, backward, loss, tmp_path):
    assert not _told(PROGRAM.format(mark=mark, backward=backward, loss=loss), tmp_path)
