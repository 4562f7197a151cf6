"""Losses of many runs that one backward pass goes through: a note where a pass for each would do.

A comment ``#!`` marks the line that the note must name.
"""

import pytest

from programs import record_program

HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
cell = nn.RNNCell(16, 512)
opt = torch.optim.SGD([*net.parameters(), *cell.parameters()], lr=0.01)
data = [torch.randn(128, 16) for _ in range(10)]
few = [torch.randn(4, 16) for _ in range(10)]
"""

LOOP = """
for epoch in range(2):
    opt.zero_grad()
    LOSSES
    opt.step()
"""

SUMMED = {
    "a running sum": """\
total = 0
    for rows in data:
        total = total + F.mse_loss(net(rows), rows[:, :1])  #!
    (total / len(data)).backward()""",
    "a list that is stacked": """\
losses = [net(rows).pow(2).mean() for rows in data]  #!
    torch.stack(losses).mean().backward()""",
    "a pass for each": """\
for rows in data:
        (F.mse_loss(net(rows), rows[:, :1]) / len(data)).backward()""",
    "runs that have an encoding in common": """\
total, means = 0, net[:2](torch.cat(data)).chunk(len(data))
    for rows in means:
        total = total + net[2:](rows).pow(2).mean()
    total.backward()""",
    "runs that go on from one another": """\
total, state = 0, torch.zeros(128, 512)
    for rows in data:
        state = cell(rows, state)
        total = total + net[2:](state).pow(2).mean()
    total.backward()""",
    "runs that weigh little": """\
total = sum(net(rows).pow(2).mean() for rows in few)
    total.backward()""",
    "a product": """\
total = torch.ones(())
    for rows in data:
        total = total * net(rows).pow(2).mean()
    total.backward()""",
}


@pytest.mark.parametrize("name", SUMMED)
def test_losses_that_are_summed_up(name, tmp_path):

    text = HEAD + LOOP.replace("LOSSES", SUMMED[name])
    recording = record_program(text, tmp_path)
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    found = [one.site.line for one in recording.findings if one.slug == "graph-retained"]
    assert found == lines
