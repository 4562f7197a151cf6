"""Optimizers that are made again and get nothing for what they held: found, and what looks alike.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

START = """\
import torch
from torch.optim import SGD, Adam

torch.manual_seed(0)
body, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)


def train(opt, times=3):
    for _ in range(times):
        opt.zero_grad()
        (head(body(torch.rand(8, 3))) - torch.rand(8, 1)).pow(2).mean().backward()
        opt.step()


"""

FOUND = {
    "two iterators in a list": """\
parts = [body.parameters(), head.parameters()]
for rate in (0.1, 0.01):
    opt = SGD([{"params": one} for one in parts], lr=rate)  #! parameter-unmoved body.weight
    train(opt)
""",
    "one of two groups": """\
slow = body.parameters()


def build(rate):
    return Adam(  #! parameter-unmoved body.weight
        [{"params": head.parameters(), "lr": rate}, {"params": slow, "lr": rate / 10}]
    )


train(build(0.01))
train(build(0.001))
""",
    "a filter that is used up": """\
wanted = filter(lambda one: one.requires_grad, head.parameters())
for rate in (0.1, 0.01):
    groups = [{"params": list(body.parameters())}, {"params": wanted, "weight_decay": 0.1}]
    train(SGD(groups, lr=rate))  #! parameter-unmoved head.weight
""",
}

QUIET = {
    "lists": """\
parts = [list(body.parameters()), list(head.parameters())]
for rate in (0.1, 0.01):
    train(SGD([{"params": one} for one in parts], lr=rate))
""",
    "a group that was always empty": """\
for rate in (0.1, 0.01):
    train(SGD([{"params": []}, {"params": [*body.parameters(), *head.parameters()]}], lr=rate))
""",
    "what is frozen by then": """\
for stage in range(2):
    if stage:
        body.requires_grad_(False)
    parts = [[one for one in body.parameters() if one.requires_grad], list(head.parameters())]
    train(SGD([{"params": one} for one in parts], lr=0.1))
""",
    "what went into another group": """\
sides = [list(body.parameters()), list(head.parameters())]
for stage in range(2):
    if stage:
        sides = [[], sides[0] + sides[1]]
    train(SGD([{"params": one} for one in sides], lr=0.1))
""",
    "what another optimizer steps": """\
sides, extra = [list(body.parameters()), list(head.parameters())], []
for stage in range(2):
    if stage:
        extra, sides = [SGD(sides[0], lr=0.1)], [[], sides[1]]
    opt = SGD([{"params": one} for one in sides], lr=0.1)
    train(opt)
    for one in extra:
        one.step()
""",
    "an optimizer of nothing beside another": """\
nothing = SGD([{"params": []}], lr=0.1)
opt = SGD([*body.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    train(opt, 1)
    nothing.step()
""",
}


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_a_group_that_got_nothing_is_told(program, tmp_path):
    check_program(START + program, tmp_path)


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_a_group_that_is_meant_to_be_empty_is_not(program, tmp_path):
    assert not check_program(START + program, tmp_path).trace.gaps
