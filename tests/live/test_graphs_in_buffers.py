"""Registered buffers that a write gives a graph, and buffers that are trained or written apart.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.register_buffer("levels", torch.zeros(2))
        self.seen = 0

    def forward(self, x):
        out = self.body(x).exp()
        self.seen += 1
        {write}
        return out / {level}


net = Scaled()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.randn(4, 6, 4):
    opt.zero_grad()
    net(x).mean().backward()
    opt.step()
"""

LEVEL = "self.levels[0].item()"
TOLD = {
    "set once": "if self.seen == 1: self.levels[0] = out.mean()  #! graph-retained net.levels (note)",
    "filled once, by a call": "if self.seen == 1: "
    "self.levels.copy_(out.mean().expand(2))  #! graph-retained net.levels (note)",
}


@pytest.mark.parametrize("write", TOLD.values(), ids=TOLD)
def test_a_buffer_that_is_given_a_graph_is_noted(write, tmp_path):
    check_program(HEAD.format(write=write, level=LEVEL), tmp_path)


QUIET = {
    "values alone": ("if self.seen == 1: self.levels[0] = out.mean().detach()", LEVEL),
    "numbers": ("if self.seen == 1: self.levels[0] = out.mean().item()", LEVEL),
    "a level of its own each time": ("level = self.levels + out.mean()", "level[0]"),
    "a buffer that is made anew and gone through": (
        "self.levels = torch.zeros(2); self.levels[0] = out.mean()",
        "self.levels[0]",
    ),
}


@pytest.mark.parametrize(("write", "level"), QUIET.values(), ids=QUIET)
def test_of_other_buffers_nothing_is_said(write, level, tmp_path):
    recording = check_program(HEAD.format(write=write, level=level), tmp_path)
    assert "graph-retained" not in {one.slug for one in recording.findings}
