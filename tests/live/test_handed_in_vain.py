"""Modules called with tensors for their parameters: by names that they have not, and that they have.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

IN_VAIN = {
    "an average of a part, given to the whole": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
average = {name: one.detach().clone() for name, one in net[1].named_parameters()}
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
    with torch.no_grad():
        for name, one in net[1].named_parameters():
            average[name].lerp_(one, 0.1)
        x = torch.ones(2, 4)
        print(torch.func.functional_call(net, average, x))  #! values-lost average['weight']
""",
    "a scale that no layer has, beside weights that there are": """\
import torch

net = torch.nn.Linear(4, 1)
given = dict(net.named_parameters(), scale=torch.ones(1))
print(torch.func.functional_call(net, given, torch.ones(2, 4)))  #! values-lost given['scale'] (note)
""",
}

READ = {
    "all that a module has, and a part of it": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
given = {name: one.detach() * 2 for name, one in [*net.named_parameters(), *net.named_buffers()]}
print(torch.func.functional_call(net, given, torch.ones(2, 4)))
print(torch.func.functional_call(net, {"0.bias": torch.ones(4)}, torch.ones(2, 4)))
""",
    "tied weights by either name": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
net[1].weight = net[0].weight
print(torch.func.functional_call(net, {"1.weight": torch.ones(4, 4)}, torch.ones(2, 4)))
""",
    "the original behind a parametrization": """\
import torch
from torch.nn.utils import parametrizations

net = parametrizations.weight_norm(torch.nn.Linear(4, 1))
given = {"parametrizations.weight.original0": torch.ones(1, 1)}
print(torch.func.functional_call(net, given, torch.ones(2, 4)))
""",
    "weights that a larger network makes, for a layer that has none": """\
import torch

layer, made = torch.nn.Linear(4, 1), torch.nn.Linear(2, 5)
del layer.weight, layer.bias
opt = torch.optim.SGD(made.parameters(), 0.1)
for _ in range(3):
    values = made(torch.randn(2))
    weights = {"weight": values[:4].view(1, 4), "bias": values[4:]}
    opt.zero_grad()
    torch.func.functional_call(layer, weights, (torch.randn(8, 4),)).pow(2).mean().backward()
    opt.step()
""",
    "an ensemble in one call": """\
import torch

nets = [torch.nn.Linear(4, 1) for _ in range(3)]
weights, buffers = torch.func.stack_module_state(nets)


def one(weights, buffers, x):
    return torch.func.functional_call(nets[0], (weights, buffers), (x,))


print(torch.func.vmap(one, in_dims=(0, 0, None))(weights, buffers, torch.ones(2, 4)).shape)
""",
}


@pytest.mark.parametrize("text", IN_VAIN.values(), ids=IN_VAIN)
def test_what_a_module_was_given_in_vain_is_told(text, tmp_path):
    check_program(text, tmp_path)


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_what_a_module_reads_is_not(text, tmp_path):
    check_program(text, tmp_path)
