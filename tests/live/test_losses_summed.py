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


TRAINING = """
class Coupling(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(16) + 0.5)

    def forward(self, rows):
        return rows * self.scale, self.scale.abs().log().sum()

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(Coupling() for _ in range(4))

    def forward(self, rows):
        volume = 0
        for part in self.parts:
            rows, one = part(rows)
            volume = volume + one
        return rows, volume

flow = nn.ModuleList(Block() for _ in range(3))
opt.add_param_group({"params": list(flow.parameters())})

def through(rows):
    volume = 0
    for block in flow:
        rows, one = block(rows)
        volume = volume + one
    return rows, volume

shown = total = 0
for number in range(10):
    rows = data[number]
    opt.zero_grad()
    STEP
    opt.step()
    print(float(shown))
"""

TRAININGS = {
    "the volumes of a flow, in the loss and in a figure that is shown": """\
out, volume = through(rows)
    loss = (out.pow(2).sum(1) - volume).mean()
    shown = (volume / 16).mean()
    loss.backward()""",
    "the figure is made after the pass": """\
out, volume = through(rows)
    (out.pow(2).sum(1) - volume).mean().backward()
    shown = volume / 16 + 1""",
    "terms of one loss that are shown together": """\
terms = [net[0](rows).select(1, n).mean() for n in range(12)]
    torch.stack(terms).mean().backward()
    shown = sum(one / 12 for one in terms)""",
    "a sum for the screen, before a pass of each": """\
losses = [F.mse_loss(net(some), some[:, :1]) for some in few]
    shown = sum(losses)
    for loss in losses:
        loss.backward()""",
    "the losses of all steps": """\
loss = F.mse_loss(net(rows), rows[:, :1])
    loss.backward()
    total = total + loss  #!""",
    "the losses of all steps, added before the pass": """\
loss = F.mse_loss(net(rows), rows[:, :1])
    total = total + loss  #!
    loss.backward()""",
    "losses of all steps that are sums": """\
out, volume = through(rows)
    loss = (out.pow(2).sum(1) - volume).mean()
    loss.backward()
    total = total + loss / 10  #!""",
    "numbers of all steps": """\
out, volume = through(rows)
    loss = (out.pow(2).sum(1) - volume).mean()
    loss.backward()
    total = total + loss.item()""",
}


@pytest.mark.parametrize("name", TRAININGS)
def test_sums_of_what_had_its_pass(name, tmp_path):
    text = HEAD + TRAINING.replace("STEP", TRAININGS[name])
    recording = record_program(text, tmp_path)
    assert recording.error is None
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    found = [one.site.line for one in recording.findings if one.slug == "graph-retained"]
    assert found == lines
