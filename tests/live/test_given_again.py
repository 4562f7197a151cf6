"""Trainings that begin in the memory of their starting values, one after the other."""

import pytest

from programs import check_program, record_program

HEAD = """\
import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.manual_seed(0)


def fit(model, x, y, rate=0.1):
    opt = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=rate)
    for _ in range(3):
        opt.zero_grad()
        (model(x).squeeze(-1) - y).square().mean().backward()
        opt.step()


"""

BROKEN = {
    "folds on one table of vectors": """\
class Scorer(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(torch.from_numpy(vectors), freeze=False)  #! alias-write model.words.weight
        self.head = nn.Linear(4, 1)

    def forward(self, ids):
        return self.head(self.words(ids).mean(1))


table = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
ids, y = torch.randint(0, 10, (12, 3)), torch.randn(12)
for fold in range(3):
    held_out = torch.arange(12) % 3 == fold
    model = Scorer(table)
    fit(model, ids[~held_out], y[~held_out])
    with torch.no_grad():
        print(model(ids[held_out]).mean())
""",
    "rates tried from one vector": """\
net = nn.Linear(5, 1)
x, y = torch.randn(20, 5), torch.randn(20)
start = parameters_to_vector(net.parameters()).detach()
for rate in (0.01, 0.1, 0.5):
    vector_to_parameters(start, net.parameters())  #! alias-write net.weight
    fit(net, x, y, rate)
""",
    "two optimizers compared from one tensor": """\
start = torch.randn(6)
curves = []
for kind in (torch.optim.SGD, torch.optim.Adam):
    w = nn.Parameter(start)  #! alias-write w
    opt = kind([w], lr=0.1)
    for _ in range(4):
        opt.zero_grad()
        loss = (w - 1).square().sum()
        loss.backward()
        opt.step()
    curves.append(loss.item())
print(curves)
""",
}

RIGHT = {
    "a copy for each fold": """\
table = np.random.default_rng(0).normal(size=(10, 5)).astype(np.float32)
x, y = torch.randint(0, 10, (12,)), torch.randn(12)
for fold in range(3):
    words = nn.Embedding.from_pretrained(torch.tensor(table), freeze=False)
    model = nn.Sequential(words, nn.Linear(5, 1))
    fit(model, x, y)
""",
    "a clone of the vector": """\
net = nn.Linear(5, 1)
x, y = torch.randn(20, 5), torch.randn(20)
start = parameters_to_vector(net.parameters()).detach()
for rate in (0.01, 0.1):
    vector_to_parameters(start.clone(), net.parameters())
    fit(net, x, y, rate)
print(start.sum())
""",
    "a frozen table": """\
table = np.random.default_rng(0).normal(size=(10, 5)).astype(np.float32)
x, y = torch.randint(0, 10, (12,)), torch.randn(12)
for fold in range(3):
    words = nn.Embedding.from_pretrained(torch.from_numpy(table))
    model = nn.Sequential(words, nn.Linear(5, 1))
    fit(model, x, y)
""",
    "weights of several clients, each in memory of its own": """\
net = nn.Linear(5, 1)
x, y = torch.randn(20, 5), torch.randn(20)
weights = [torch.randn(1, 5) for _ in range(3)]
for turn in range(2):
    for own in weights:
        net.weight.data = own
        fit(net, x, y)
print(torch.stack(weights).mean())
""",
    "a head that goes on from the trained one": """\
net = nn.Linear(5, 1)
x, y = torch.randn(20, 5), torch.randn(20)
fit(net, x, y)
other = nn.Linear(5, 1)
other.weight = nn.Parameter(net.weight.data)
fit(other, x, y)
""",
    "one flat vector, tied again before each pass": """\
net = nn.Linear(5, 1)
x, y = torch.randn(20, 5), torch.randn(20)
flat = parameters_to_vector(net.parameters()).detach().clone()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    vector_to_parameters(flat, net.parameters())
    opt.zero_grad()
    (net(x).squeeze(-1) - y).square().mean().backward()
    opt.step()
    print(flat.norm())
""",
}


@pytest.mark.parametrize("name", BROKEN)
def test_memory_that_two_trainings_begin_from(name, tmp_path):
    check_program(HEAD + BROKEN[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_memory_that_each_training_has_for_itself(name, tmp_path):
    found = record_program(HEAD + RIGHT[name], tmp_path).findings
    assert not any("to begin from" in one.message for one in found)
