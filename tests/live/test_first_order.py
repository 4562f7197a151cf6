"""Updates inside a loss by gradients without a graph: where that was not chosen, and is used.

A comment ``#!`` marks the line that the note must name, with the number of times behind it.
"""

import re

import pytest

from programs import record_program

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(3, 1)
opt = torch.optim.Adam(policy.parameters(), lr=0.01)


def season():
    x = torch.randn(6, 3)
    return x, x.sum(1, keepdim=True)


def shaped(weights, x):
    return F.linear(x, *weights)


"""

LOOP = """\
for week in range(4):
    opt.zero_grad()
    loss_of(*season(), *season()).backward()
    opt.step()
"""

TOLD = {
    "it says so by nothing": """\
def loss_of(x, y, later, wanted):
    weights = [*policy.parameters()]
    slopes = torch.autograd.grad(F.mse_loss(shaped(weights, x), y), weights)  #! 4
    return F.mse_loss(shaped([w - 0.1 * s for w, s in zip(weights, slopes)], later), wanted)


"""
    + LOOP,
    "it says so by a constant, and an evaluation does, too": """\
def loss_of(x, y, later, wanted):
    weights = [*policy.parameters()]
    for _ in range(2):
        start = F.mse_loss(shaped(weights, x), y)
        slopes = torch.autograd.grad(start, weights, create_graph=False)  #! 8
        weights = [w - 0.1 * s for w, s in zip(weights, slopes)]
    return F.mse_loss(shaped(weights, later), wanted)


def looked_at():
    loss = loss_of(*season(), *season())
    loss.backward()
    opt.zero_grad()
    return loss.item()


for week in range(4):
    opt.zero_grad()
    loss_of(*season(), *season()).backward()
    opt.step()
    looked_at()
""",
    "gradients that the program hands on itself": """\
def loss_of(x, y, later, wanted):
    weights = [*policy.parameters()]
    slopes = torch.autograd.grad(F.mse_loss(shaped(weights, x), y), weights)  #! 4
    return F.mse_loss(shaped([w - 0.1 * s for w, s in zip(weights, slopes)], later), wanted)


for week in range(4):
    policy.zero_grad()
    loss_of(*season(), *season()).backward()
    with torch.no_grad():
        for one in policy.parameters():
            one -= 0.01 * one.grad
opt.step()
""",
}

QUIET = {
    "an evaluation alone goes without, by what it is handed": """\
def loss_of(x, y, later, wanted, train=True):
    weights = [*policy.parameters()]
    start = F.mse_loss(shaped(weights, x), y)
    slopes = torch.autograd.grad(start, weights, create_graph=train)
    return F.mse_loss(shaped([w - 0.1 * s for w, s in zip(weights, slopes)], later), wanted)


for week in range(4):
    opt.zero_grad()
    loss_of(*season(), *season()).backward()
    opt.step()
    loss_of(*season(), *season(), train=False).backward()
""",
    "an evaluation of its own, whose gradients are cleared": """\
def loss_of(x, y, later, wanted):
    weights = [*policy.parameters()]
    slopes = torch.autograd.grad(F.mse_loss(shaped(weights, x), y), weights)
    return F.mse_loss(shaped([w - 0.1 * s for w, s in zip(weights, slopes)], later), wanted)


for week in range(4):
    loss_of(*season(), *season()).backward()
    x, y = season()
    opt.zero_grad()
    F.mse_loss(policy(x), y).backward()
    opt.step()
""",
    "an order that the program is told": """\
second_order = False


def loss_of(x, y, later, wanted):
    weights = [*policy.parameters()]
    start = F.mse_loss(shaped(weights, x), y)
    slopes = torch.autograd.grad(start, weights, create_graph=second_order)
    return F.mse_loss(shaped([w - 0.1 * s for w, s in zip(weights, slopes)], later), wanted)


"""
    + LOOP,
    "options that are handed on": """\
options = {"create_graph": False}


def loss_of(x, y, later, wanted):
    weights = [*policy.parameters()]
    slopes = torch.autograd.grad(F.mse_loss(shaped(weights, x), y), weights, **options)
    return F.mse_loss(shaped([w - 0.1 * s for w, s in zip(weights, slopes)], later), wanted)


"""
    + LOOP,
    "the first order for a start, by a helper": """\
def slopes_of(loss, weights, *how):
    return torch.autograd.grad(loss, weights, None, *how)


def loss_of(x, y, later, wanted, week):
    weights = [*policy.parameters()]
    slopes = slopes_of(F.mse_loss(shaped(weights, x), y), weights, week > 1, week > 1)
    return F.mse_loss(shaped([w - 0.1 * s for w, s in zip(weights, slopes)], later), wanted)


for week in range(4):
    opt.zero_grad()
    loss_of(*season(), *season(), week).backward()
    opt.step()
""",
    "a graph for each": """\
def loss_of(x, y, later, wanted):
    weights = [*policy.parameters()]
    start = F.mse_loss(shaped(weights, x), y)
    slopes = torch.autograd.grad(start, weights, create_graph=True)
    return F.mse_loss(shaped([w - 0.1 * s for w, s in zip(weights, slopes)], later), wanted)


"""
    + LOOP,
}


@pytest.mark.parametrize("name", [*TOLD, *QUIET])
def test_the_first_order(name, tmp_path):
    text = HEAD + (TOLD | QUIET)[name]
    recording = record_program(text, tmp_path)
    assert recording.error is None
    marks = [(n, re.search(r"#! (\d)", line)) for n, line in enumerate(text.splitlines(), 1)]
    found = [one for one in recording.findings if one.slug == "gradient-lost"]
    assert [(one.site.line, one.count) for one in found] == [
        (n, int(mark[1])) for n, mark in marks if mark
    ]
    callers = {e.site.line for one in found for e in one.evidence if e.role == "called"}
    looks = [n for n, line in enumerate(text.splitlines(), 1) if "= loss_of(" in line]
    assert callers.isdisjoint(looks)
