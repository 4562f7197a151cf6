"""Copies of parameters that an optimizer trains, and what becomes of the originals."""

import pytest

from programs import check_program, record_program

CREWS = """\
import copy

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

torch.manual_seed(0)
sea, wind = torch.randn(12, 3), torch.randn(12, 1)


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.leave(self.enter(x).tanh())


crews = [Forecast() for _ in range(3)]
shape = copy.deepcopy(crews[0]).to("meta")


def off(weights, buffers):
    return (functional_call(shape, (weights, buffers), (sea,)) - wind).pow(2).mean()


def train(weights, buffers, watched=()):
    opt = torch.optim.SGD(weights.values(), lr=0.1)
    for _ in range(4):
        opt.zero_grad()
        loss = vmap(off)(weights, buffers).sum()
        for one in watched:
            loss = loss + (one(sea).detach() - wind).pow(2).mean()
        loss.backward()
        opt.step()


def vote():
    with torch.no_grad():
        return torch.stack([one(sea) for one in crews]).mean(0)


"""

ONE = """\
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
net, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(8, 3)


def train(weights, rate=0.1):
    opt = torch.optim.Adam(weights.values(), lr=rate)
    for _ in range(4):
        opt.zero_grad()
        functional_call(net, weights, (x,)).pow(2).mean().backward()
        opt.step()


"""

LOST = {
    "an ensemble that votes with what it began with": CREWS
    + """\
weights, buffers = stack_module_state(crews)  #! values-lost weights['enter.weight'] (note)
train(weights, buffers)
print(vote())
""",
    "leaves that are stacked by hand": CREWS
    + """\
names = [name for name, _ in crews[0].named_parameters()]
weights = {
    one: torch.stack(  #! values-lost weights['enter.weight'] (note)
        [crew.get_parameter(one) for crew in crews]
    ).detach().requires_grad_()
    for one in names
}
train(weights, {})
print(vote())
""",
    "one network, called as it was": ONE
    + """\
weights = {
    name: one.detach().clone().requires_grad_()  #! values-lost weights['0.weight'] (note)
    for name, one in net.named_parameters()
}
train(weights)
print(net(x).mean())
""",
}

KEPT = {
    "weights that are written back": CREWS
    + """\
weights, buffers = stack_module_state(crews)
train(weights, buffers)
with torch.no_grad():
    for name, rows in weights.items():
        for crew, row in zip(crews, rows):
            crew.get_parameter(name).copy_(row)
print(vote())
""",
    "weights that are loaded": CREWS
    + """\
weights, buffers = stack_module_state(crews)
train(weights, buffers)
for n, crew in enumerate(crews):
    crew.load_state_dict({name: rows[n] for name, rows in weights.items()})
print(vote())
""",
    "weights that are computed with": CREWS
    + """\
weights, buffers = stack_module_state(crews)
train(weights, buffers)
with torch.no_grad():
    print(vmap(off)(weights, buffers))
""",
    "what they began with, beside what they have become": CREWS
    + """\
weights, buffers = stack_module_state(crews)
train(weights, buffers)
with torch.no_grad():
    print(vmap(off)(weights, buffers))
print("untrained", vote())
""",
    "a vote before the training": CREWS
    + """\
print(vote())
weights, buffers = stack_module_state(crews)
train(weights, buffers)
""",
    "what they began with as a reference in training": CREWS
    + """\
weights, buffers = stack_module_state(crews)
train(weights, buffers, crews)
""",
    "a second round from the same beginning": CREWS
    + """\
for _ in range(2):
    weights, buffers = stack_module_state(crews)
    train(weights, buffers)
    print(vmap(off)(weights, buffers).min())
""",
    "weights that are saved": CREWS
    + """\
import io

weights, buffers = stack_module_state(crews)
train(weights, buffers)
torch.save(weights, io.BytesIO())
print(vote())
""",
    "a network that learns from what its copies have learned": ONE
    + """\
outer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    weights = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
    train(weights)
    outer.zero_grad()
    for name, one in net.named_parameters():
        one.grad = one.detach() - weights[name].detach()
    outer.step()
print(net(x).mean())
""",
    "a copy of a network": ONE
    + """\
import copy

other = copy.deepcopy(net)
opt = torch.optim.SGD(other.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    other(x).pow(2).mean().backward()
    opt.step()
print(net(x).mean())
""",
    "a network whose parameters become the copies": ONE
    + """\
weights = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
train(weights)
net[0].weight = nn.Parameter(weights["0.weight"].detach())
print(net(x).mean())
""",
}


@pytest.mark.parametrize("program", LOST.values(), ids=LOST)
def test_originals_that_are_used_in_place_of_trained_copies_are_told(program, tmp_path):
    check_program(program, tmp_path)


@pytest.mark.parametrize("program", KEPT.values(), ids=KEPT)
def test_trained_copies_that_are_used_are_quiet(program, tmp_path):
    recording = record_program(program, tmp_path)
    assert recording.error is None
    assert [one for one in recording.findings if one.slug == "values-lost"] == []


def test_the_copies_the_optimizer_and_the_use_are_named(tmp_path):
    recording = record_program(LOST["one network, called as it was"], tmp_path)
    (found,) = (one for one in recording.findings if one.slug == "values-lost")
    assert found.message == (
        "Adam (line 10) trains copies that `one.detach()` (line 18) makes of `net.0.weight` and 3"
        " more. After the last of its 4 steps nothing reads the copies, and line 22 computes with"
        " the originals, which have the values that they had before the training."
    )
