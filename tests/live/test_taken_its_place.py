"""Tensors made of what an optimizer trains that take its place in the model, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
import copy
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

torch.manual_seed(0)
model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)


def train(steps):
    for _ in range(steps):
        x = torch.randn(8, 4)
        opt.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        opt.step()


"""

TOLD = {
    "a norm that is taken out for a look, and training goes on": """\
@torch.no_grad()
def look():
    parametrize.remove_parametrizations(model[0], "weight")  #! parameter-stale model.0.parametrizations.weight.original0
    return model(torch.ones(1, 4)).item()


for _ in range(3):
    train(4)
    if _ == 0:
        print(look())
""",
    "a layer that is made of two, as one": """\
train(4)
with torch.no_grad():
    weight = model[2].weight @ torch.eye(4)
    joined = nn.Linear(4, 1, bias=False)
    joined.weight = nn.Parameter(weight.clone())  #! parameter-stale model.2.weight
model[2] = joined
train(4)
""",
}


@pytest.mark.parametrize("text", TOLD.values(), ids=TOLD)
def test_what_takes_the_place_of_the_trained_is_told(text, tmp_path):
    recording = check_program(HEAD + text, tmp_path)
    assert any(one.slug == "parameter-stale" for one in recording.findings)


QUIET = {
    "taken out when all is trained": """\
train(6)
parametrize.remove_parametrizations(model[0], "weight")
with torch.no_grad():
    print(model(torch.ones(1, 4)))
""",
    "taken out of a copy": """\
for _ in range(3):
    train(4)
    with torch.no_grad():
        fast = copy.deepcopy(model)
        parametrize.remove_parametrizations(fast[0], "weight")
        print(fast(torch.ones(1, 4)))
""",
    "taken out, and an optimizer made anew": """\
train(4)
parametrize.remove_parametrizations(model[0], "weight")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
train(4)
""",
    "a second head that starts from the first, which rests": """\
train(4)
first = model[2]
model[2] = copy.deepcopy(first)
opt.add_param_group({"params": list(model[2].parameters())})
train(4)
""",
}


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_of_others_nothing_is_said(text, tmp_path):
    recording = check_program(HEAD + text, tmp_path)
    assert not any(one.slug == "parameter-stale" for one in recording.findings)
