"""Averages that follow in training mode only and were left in the other, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import copy
import torch
from torch import nn


class Average(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model, always=False):
        if self.training or always:
            for one, other in zip(self.model.parameters(), model.parameters()):
                one.lerp_(other, 0.1)

    def forward(self, x):
        return self.model(x)


def fit(average, times=3):
    for _ in range(times):
        opt.zero_grad()
        net(torch.randn(8, 4)).pow(2).mean().backward()
        opt.step()
        average.update(net)


def score(average):
    with torch.no_grad():
        return average(torch.randn(8, 4)).mean().item()


net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 1))
average = Average(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
"""

STOPPED = {
    "put into training mode once": """\
average.train()
for epoch in range(3):
    fit(average)
    average.eval()  #! mode-kept average.model.0.weight
    print(score(average))
""",
    "evaluated again and again": """\
for epoch in range(3):
    fit(average)
    average.train(False)  #! mode-kept average.model.0.weight
    print(score(average))
""",
    "put into evaluation mode once": """\
fit(average)
average.eval()  #! mode-kept average.model.0.weight (note)
fit(average)
print(score(average))
""",
}

FOLLOWING = {
    "put back after each evaluation": """\
for epoch in range(3):
    average.train()
    fit(average)
    average.eval()
    print(score(average))
""",
    "an update that does not ask for the mode": """\
for epoch in range(3):
    net.train()
    for _ in range(3):
        opt.zero_grad()
        net(torch.randn(8, 4)).pow(2).mean().backward()
        opt.step()
        average.update(net, always=True)
    average.eval()
    print(score(average))
""",
    "evaluated at the end": """\
fit(average, 6)
average.eval()
for _ in range(2):
    print(score(average))
""",
    "never used again": """\
fit(average)
average.eval()
print(score(average))
fit(average)
""",
    "an average that is held still until the end, in evaluation mode from the first": """\
average.eval()
for epoch in range(3):
    fit(average)
    average.eval()
    print(score(average))
""",
}


@pytest.mark.parametrize("name", STOPPED)
def test_an_average_that_follows_no_more(name, tmp_path):
    check_program(MODEL + STOPPED[name], tmp_path)


@pytest.mark.parametrize("name", FOLLOWING)
def test_an_average_that_follows_or_is_not_used(name, tmp_path):
    check_program(MODEL + FOLLOWING[name], tmp_path)
