"""Parameters that a change of mode takes out of the loss, and look-alikes that are right.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4)
        self.side = nn.Linear(4, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        h = self.base(x)
        if self.training:
            h = h + self.side(x)
        return self.out(self.norm(h))


def fit(model, opt, steps=3):
    for _ in range(steps):
        opt.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        opt.step()


model = Model()
opt = torch.optim.SGD(model.parameters(), 0.1)
"""

CEASED = {
    "validated within the loop, and put into training mode before it": """\
def validate(model):
    model.eval()  #! gradient-unused model.side.weight
    with torch.no_grad():
        return model(torch.randn(8, 4)).mean().item()


model.train()
for epoch in range(3):
    fit(model, opt)
    print(validate(model))
""",
    "put back only where it is best": """\
best = float("inf")
for epoch in range(3):
    fit(model, opt)
    model.train(False)  #! gradient-unused model.side.weight
    with torch.no_grad():
        score = model(torch.randn(8, 4)).mean().item()
    if score > 1e9:
        model.train()
""",
    "once, which may be meant": """\
fit(model, opt)
model.eval()  #! gradient-unused model.side.weight (note)
fit(model, opt)
""",
}

GOES_ON = {
    "put back at each epoch": """\
for epoch in range(3):
    model.train()
    fit(model, opt)
    model.eval()
    print(model(torch.randn(8, 4)).mean().item())
""",
    "put back to what it was": """\
for epoch in range(3):
    fit(model, opt)
    before = model.training
    model.eval()
    print(model(torch.randn(8, 4)).mean().item())
    model.train(before)
""",
    "evaluated when all is done": """\
fit(model, opt)
model.eval()
for _ in range(3):
    print(model(torch.randn(8, 4)).mean().item())
    model.eval()
""",
    "one part of it in evaluation mode": """\
for epoch in range(3):
    model.train()
    model.norm.eval()
    fit(model, opt)
    model.norm.eval()
""",
    "one part after the other, each evaluated, and no mode that anything depends on": """\
first, second = nn.Linear(4, 4), nn.Linear(4, 1)
net = nn.Sequential(first, second)
both = torch.optim.SGD(net.parameters(), 0.1)
for part in range(2):
    for _ in range(3):
        both.zero_grad()
        h = first(torch.randn(8, 4))
        (h.pow(2).mean() if part == 0 else second(h.detach()).pow(2).mean()).backward()
        both.step()
    net.eval()
    with torch.no_grad():
        print(net(torch.randn(8, 4)).sum().item())
""",
    "a second stage that trains the rest": """\
fit(model, opt)
rest = torch.optim.SGD(model.out.parameters(), 0.1)
for epoch in range(2):
    model.eval()
    fit(model, rest)
""",
}


@pytest.mark.parametrize("text", CEASED.values(), ids=CEASED)
def test_what_a_mode_took_out_of_the_loss_is_told(text, tmp_path):
    check_program(MODEL + text, tmp_path)


@pytest.mark.parametrize("text", GOES_ON.values(), ids=GOES_ON)
def test_what_is_put_back_is_not(text, tmp_path):
    check_program(MODEL + text, tmp_path)


def test_a_module_whose_parameters_are_not_there_yet(tmp_path):
    check_program("import torch\nprint(torch.nn.LazyLinear(3).eval())\n", tmp_path)
