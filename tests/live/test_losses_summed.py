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


VALIDATION = """
def predict(rows):
    return net(rows)

def train():
    for rows in data:
        opt.zero_grad()
        F.mse_loss(predict(rows), rows[:, :1]).backward()
        opt.step()

def validate():
    VALIDATE

for epoch in range(2):
    train()
    print(validate())
with torch.no_grad():
    print([predict(rows).sum().item() for rows in few])
"""

VALIDATIONS = {
    "a running sum": """\
total = 0
    for rows in data:
        total += F.mse_loss(predict(rows), rows[:, :1])  #!
    return (total / len(data)).item()""",
    "a sum whose mean is returned": """\
total = torch.zeros(1)
    for rows in data:
        total = total + F.mse_loss(predict(rows), rows[:, :1])  #!
    return total.mean().detach()""",
    "a list that is stacked": """\
losses = [predict(rows).pow(2).mean() for rows in data]
    return torch.stack(losses).mean().item()  #!""",
    "Python's own sum": """\
return sum(predict(rows).pow(2).mean() for rows in data).item()  #!""",
    "the sums of two losses": """\
total = both = 0
    for rows in data:
        out = predict(rows)
        first, second = out.abs().mean(), out.pow(2).mean()
        total = total + first + second  #!
    return float(total)""",
    "without gradients": """\
total = 0
    with torch.no_grad():
        for rows in data:
            total += F.mse_loss(predict(rows), rows[:, :1])
    return total.item()""",
    "numbers": """\
total = 0
    for rows in data:
        total += F.mse_loss(predict(rows), rows[:, :1]).item()
    return total""",
    "values without their graph": """\
total = 0
    for rows in data:
        total += F.mse_loss(predict(rows), rows[:, :1]).detach()
    return total""",
    "a sum that is small": """\
total = 0
    for rows in few:
        total += F.mse_loss(predict(rows), rows[:, :1])
    return total.item()""",
    "a penalty of the weights that is looked at": """\
return sum(one.pow(2).sum() for one in net.parameters()).item()""",
    "a sum that gradients are asked of": """\
total = 0
    for rows in data:
        total = total + F.mse_loss(predict(rows), rows[:, :1])
    return torch.autograd.grad(total, [net[0].weight])[0].norm()""",
}


@pytest.mark.parametrize("name", VALIDATIONS)
def test_sums_that_no_pass_goes_back_from(name, tmp_path):
    text = HEAD + VALIDATION.replace("VALIDATE", VALIDATIONS[name])
    recording = record_program(text, tmp_path)
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    kinds = ("graph-retained", "storage-pinned")
    found = [one.site.line for one in recording.findings if one.slug in kinds]
    assert found == lines
