"""Steps that are undone by what is written over them, and resets that are meant."""

import pytest

from programs import record_program

START = """\
import copy, io

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
start = copy.deepcopy(net.state_dict())


def fit(opt, n=3):
    for _ in range(n):
        opt.zero_grad()
        net(torch.randn(8, 4)).pow(2).mean().backward()
        opt.step()


"""

UNDONE = {
    "loaded each epoch, one optimizer": """\
opt = torch.optim.SGD(net.parameters(), .1)
for _ in range(4):
    fit(opt)
    net.load_state_dict(start)
""",
    "evaluated, and loaded each epoch, one optimizer": """\
opt = torch.optim.SGD(net.parameters(), .1)
for _ in range(4):
    fit(opt)
    print(net(torch.ones(1, 4)).item())
    net.load_state_dict(start)
""",
    "checkpoint once, overwritten each step": """\
opt = torch.optim.SGD(net.parameters(), .1)
for i in range(6):
    with torch.no_grad():
        net[0].weight.copy_(torch.ones(6, 4) * 0.1)
    fit(opt, 1)
    if i == 3:
        torch.save(net.state_dict(), io.BytesIO())
""",
    "a copy that is dropped at once": """\
opt = torch.optim.SGD(net.parameters(), .1)
for i in range(6):
    fit(opt, 1)
    print(net[0].weight.clone().norm().item())
    net.load_state_dict(start)
""",
    "once, at the end": """\
opt = torch.optim.SGD(net.parameters(), .1)
fit(opt)
net.load_state_dict(start)
""",
}

MEANT = {
    "an optimizer for each task": """\
for task in range(4):
    net.load_state_dict(start)
    fit(torch.optim.SGD(net.parameters(), .1))
""",
    "tenants in turn": """\
states = [copy.deepcopy(start) for _ in range(3)]
for i in (0, 1, 2, 1, 0):
    net.load_state_dict(states[i])
    opt = torch.optim.Adam(net.parameters())
    fit(opt)
    print(net(torch.ones(1, 4)).item())
""",
    "stored for each task, one optimizer": """\
opt = torch.optim.SGD(net.parameters(), .1)
kept = []
for task in range(4):
    net.load_state_dict(start)
    fit(opt)
    kept.append(copy.deepcopy(net.state_dict()))
""",
    "saved for each task, one optimizer": """\
opt = torch.optim.SGD(net.parameters(), .1)
for task in range(4):
    net.load_state_dict(start)
    fit(opt)
    torch.save(net.state_dict(), io.BytesIO())
""",
    "cloned into a list of parts": """\
opt = torch.optim.SGD(net.parameters(), .1)
found = {}
for task in range(4):
    with torch.no_grad():
        for p, s in zip(net.parameters(), start.values()):
            p.copy_(s)
    fit(opt)
    found[task] = [p.detach().clone() for p in net.parameters()]
""",
    "the best of a population is taken over": """\
nets = [nn.Linear(4, 1) for _ in range(3)]
opts = [torch.optim.Adam(one.parameters(), 10.0 ** -n) for n, one in enumerate(nets)]
for round in range(6):
    for net, opt in zip(nets, opts):
        fit(opt, 2)
    nets[round % 3].load_state_dict(nets[(round + 1) % 3].state_dict())
""",
    "a few weights for each task are pruned": """\
opt = torch.optim.SGD(net.parameters(), .1)
for column in range(3):
    with torch.no_grad():
        net[0].weight.t()[column].zero_()
    fit(opt)
    print(net(torch.ones(1, 4)).item())
""",
    "reset at the end of each task": """\
for task in range(4):
    opt = torch.optim.SGD(net.parameters(), .1)
    fit(opt)
    print(net(torch.ones(1, 4)).item())
    net.load_state_dict(start)
""",
}


def told(text, folder):
    recording = record_program(START + text, folder)
    assert recording.error is None
    return [one for one in recording.findings if one.slug == "parameter-unmoved"]


@pytest.mark.parametrize("text", UNDONE.values(), ids=UNDONE)
def test_what_the_steps_made_is_written_over(text, tmp_path):
    (found,) = told(text, tmp_path)
    assert "are undone" in found.message


@pytest.mark.parametrize("text", MEANT.values(), ids=MEANT)
def test_a_reset_is_meant_where_a_new_optimizer_begins_or_what_was_made_is_kept(text, tmp_path):
    assert told(text, tmp_path) == []
