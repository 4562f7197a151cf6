"""Clippings that find no gradient: given what keeps none, or at a time when there is none."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.Adam(net.parameters())
for _ in range(5):
    opt.zero_grad()
    loss = net(torch.randn(4, 3)).square().mean()
    BEFORE
    loss.backward()
    AFTER
    opt.step()
"""


@pytest.mark.parametrize(
    ("before", "after", "line", "advice"),
    [
        ("pass", "clip_grad_norm_(loss, 0.1)", 13, "Give it the parameters"),
        ("clip_grad_norm_(net.parameters(), 0.1)", "pass", 11, "Clip between the backward pass"),
    ],
)
def test_the_advice_goes_by_what_was_clipped(before, after, line, advice, tmp_path):
    text = PROGRAM.replace("BEFORE", before).replace("AFTER", after)
    (found,) = [one for one in record_program(text, tmp_path).findings if "clipping" in one.message]
    assert found.site.line == line
    assert str(found.fix.text).startswith(advice)
