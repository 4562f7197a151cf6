"""Loops over parameters that bind their variable anew for nobody, and look-alikes that are right.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
other = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


"""

VAIN = {
    "other parameters, pair by pair": """\
def computed(given, x):
    for mine, its in zip(given, net.parameters()):
        its = mine  #! values-lost its
    return net(x)


print(computed(list(other.parameters()), torch.randn(2, 4)))
""",
    "values by name": """\
values = other.state_dict()
for name, parameter in net.named_parameters():
    if name in values:
        parameter = values[name]  #! values-lost parameter
print(net(torch.randn(2, 4)))
""",
}

VAIN |= {
    "in a function that calls nothing else": """\
def put(model, values):
    for parameter, value in zip(model.parameters(), values):
        parameter = value  #! values-lost parameter


put(net, [one * 0.5 for one in net.parameters()])
print(net(torch.randn(2, 4)))
""",
    "from a list that was made before": """\
def put(model, values):
    params = list(model.parameters())
    for number, parameter in enumerate(params):
        parameter = values[number]  #! values-lost parameter


put(net, [one * 0.5 for one in net.parameters()])
""",
    "by a method, with buffers": """\
class Averaged:
    def __init__(self, model):
        self.model, self.kept = model, {n: b.clone() for n, b in model.named_parameters()}

    def restore(self):
        for name, p in self.model.named_parameters():
            p = self.kept[name]  #! values-lost p


Averaged(net).restore()
""",
}

FOLLOW = """\
import copy

averaged = copy.deepcopy(net)


def follow(source, target, decay=0.9):
    given, kept = source.state_dict(), target.state_dict()
    for key in given:
        LINE


for _ in range(3):
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1)
    follow(net, averaged)
print(averaged(torch.randn(2, 4)))
"""

VAIN["tensors of a state, put on other memory"] = FOLLOW.replace(
    "LINE",
    "kept[key].data = decay * kept[key] + (1 - decay) * given[key]"
    "  #! values-lost averaged.0.weight",
)

RIGHT = {
    "tensors of a state, written": FOLLOW.replace(
        "LINE", "kept[key].copy_(decay * kept[key] + (1 - decay) * given[key])"
    ),
    "a function that is never called": """\
def put(model, values):
    for parameter, value in zip(model.parameters(), values):
        parameter = value


print(net(torch.randn(2, 4)))
""",
    "chosen, and put into a list": """\
def chosen(model, values):
    found = []
    for parameter, value in zip(model.parameters(), values):
        if value is not None:
            parameter = value
        found.append(parameter)
    return found


print(chosen(net, [one * 2 for one in net.parameters()]))
""",
    "names, and a list of values": """\
def renamed(model, names, values):
    params = list(model.parameters())
    for name, value in zip(names, values):
        name = value
    for number, value in enumerate(values):
        value = params[number]


renamed(net, ["a", "b"], [one * 2 for one in net.parameters()])
""",
    "written into": """\
with torch.no_grad():
    for mine, its in zip(other.parameters(), net.parameters()):
        its.copy_(mine)
    for mine, its in zip(other.parameters(), net.parameters()):
        its.data = mine.data.clone()
""",
    "bound, and read after": """\
total = 0.0
for parameter in net.parameters():
    if parameter.dim() > 1:
        parameter = parameter.T
    total += parameter.sum()
for name, parameter in net.named_parameters():
    last = parameter
    name = parameter
print(total, last)
""",
    "the last one, read after the loop": """\
for parameter in net.parameters():
    parameter = parameter.data
print(parameter)
""",
}


@pytest.mark.parametrize("text", VAIN.values(), ids=VAIN)
def test_what_is_bound_for_nobody_is_told(text, tmp_path):
    check_program(MODEL + text, tmp_path)


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_is_written_or_read_is_not(text, tmp_path):
    check_program(MODEL + text, tmp_path)
