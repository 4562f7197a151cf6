"""Layers whose units begin with the same weights and stay the same: found, and what looks alike.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

START = """\
import torch
from torch import nn

torch.manual_seed(0)


def train(model, target=None, steps=20, **options):
    opt = torch.optim.Adam(model.parameters(), lr=0.01, **options)
    for _ in range(steps):
        x = torch.rand(16, 4)
        y = x[:, :1].mul(3).sin() if target is None else target(x)
        opt.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        opt.step()


"""

FOUND = {
    "a network of which all weights are one number": """\
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    nn.init.constant_(layer.weight, 0.1)  #! parameter-unmoved model.0.weight
    nn.init.zeros_(layer.bias)
train(model)
""",
    "a layer of its own that is made of ones": """\
class Layer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_out, n_in) / n_in)  #! parameter-unmoved model.0.weight

    def forward(self, x):
        return x @ self.weight.t()


model = nn.Sequential(Layer(4, 8), nn.Tanh(), Layer(8, 1))
train(model)
""",
    "filters of a convolution that are all copies of one": """\
model = nn.Sequential(
    nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 6, 3), nn.ReLU(), nn.Conv1d(6, 1, 2), nn.Flatten()
)
with torch.no_grad():
    model[1].weight.copy_(torch.rand(1, 1, 3).expand(6, 1, 3))  #! parameter-unmoved model.1.weight
    model[1].bias.zero_()
    model[3].weight.fill_(0.2)
train(model)
""",
    "a table of queries that begins with zeros": """\
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(5, 4))  #! parameter-unmoved model.queries (note)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        seen = torch.softmax(self.queries @ x.t(), 1) @ x
        return self.out(seen.mean(0)).expand(len(x), 1)


model = Reader()
train(model)
""",
    "members of an ensemble that begin with the same weights": """\
class Ensemble(nn.Module):
    def __init__(self, members):
        super().__init__()
        first = torch.randn(4, 1)
        self.weight = nn.Parameter(first.repeat(members, 1, 1))  #! parameter-unmoved model.weight (note)

    def forward(self, x):
        return torch.einsum("bi,mio->mbo", x, self.weight).tanh()


model = Ensemble(3)
train(model)
""",
}

RIGHT = {
    "a last layer of zeros behind layers with random weights": """\
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
nn.init.zeros_(model[2].weight)
nn.init.zeros_(model[2].bias)
train(model, target=lambda x: x[:, :2])
""",
    "an adapter of low rank of which one factor begins with zeros": """\
class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 3).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, 4))
        self.up = nn.Parameter(torch.zeros(3, 2))

    def forward(self, x):
        return self.base(x) + x @ self.down.t() @ self.up.t()


train(Adapted(), target=lambda x: x[:, :3])
""",
    "a layer of ones between layers with random weights": """\
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
nn.init.ones_(model[2].weight)
train(model)
""",
    "weights that are all one number, with random biases": """\
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
nn.init.constant_(model[0].weight, 0.1)
nn.init.constant_(model[2].weight, 0.1)
train(model)
""",
    "scales of channels and weights of a logistic regression that begin alike": """\
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 1))
        self.out = nn.Linear(4, 3)
        nn.init.zeros_(self.out.weight)

    def forward(self, x):
        return self.out((x.t() * self.scale).t())


train(Scaled(), target=lambda x: torch.eye(3)[x[:, :3].argmax(1)])
""",
    "plain tensors of a small exercise": """\
w = torch.ones(3, 4, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(9):
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
""",
    "a layer that a mask freezes, and weights that only decay": """\
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
extra = nn.Linear(4, 4)
nn.init.ones_(extra.weight)
model.append(nn.Identity())
model[3].extra = extra
opt = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
for _ in range(9):
    x = torch.rand(16, 4)
    opt.zero_grad()
    (model(x).sum() + 0.0 * extra(x).sum()).backward()
    opt.step()
""",
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_units_that_stay_the_same_are_found(body, tmp_path):
    check_program(START + body, tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_of_units_that_become_different_nothing_is_said(body, tmp_path):
    found = check_program(START + body, tmp_path).findings
    assert [one for one in found if one.slug == "parameter-unmoved"] == []
