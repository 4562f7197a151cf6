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

RIGHT = {
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
