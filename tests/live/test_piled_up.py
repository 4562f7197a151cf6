"""Gradients of a part that does not step yet: they pile up until its first step, or are cleared.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

MODEL = """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
body, head = net[0], net[2]
first = torch.optim.SGD(head.parameters(), 0.1)


def batch():
    return net(torch.randn(5, 3)).pow(2).mean()


"""

PILED = {
    "the whole is trained after the head, by an optimizer made then": """\
for _ in range(4):
    batch().backward()
    first.step()
    first.zero_grad()  #! gradient-accumulated body.weight
both = torch.optim.SGD(net.parameters(), 0.01)
for _ in range(4):
    batch().backward()
    both.step()
    both.zero_grad()
""",
    "a body that waits for some epochs": """\
second = torch.optim.SGD(body.parameters(), 0.01)
for epoch in range(6):
    for _ in range(2):
        batch().backward()
        first.step()
        first.zero_grad()  #! gradient-accumulated body.weight
        if epoch > 2:
            second.step()
            second.zero_grad()
""",
    "all gradients are clipped, those of the body as well": """\
second = torch.optim.Adam(body.parameters(), 0.01)
for step in range(8):
    first.zero_grad()  #! gradient-accumulated body.weight
    if step > 4:
        second.zero_grad() if step > 5 else None
    batch().backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    first.step()
    if step > 4:
        second.step()
""",
    "a scale that is learned first": """\
scale = torch.ones(1, requires_grad=True)
alone = torch.optim.SGD([scale, *head.parameters()], 0.1)
for _ in range(3):
    for parameter in (scale, *head.parameters()):
        parameter.grad = None
    (batch() * scale).backward()  #! gradient-accumulated body.weight
    alone.step()
whole = torch.optim.SGD(body.parameters(), 0.1)
for _ in range(3):
    (batch() * scale).backward()
    whole.step()
    whole.zero_grad()
""",
}

CLEARED = {
    "the whole model is cleared": """\
for _ in range(4):
    net.zero_grad()
    batch().backward()
    first.step()
both = torch.optim.SGD(net.parameters(), 0.01)
for _ in range(4):
    net.zero_grad()
    batch().backward()
    both.step()
""",
    "the body is cleared once, before its first step": """\
for _ in range(4):
    batch().backward()
    first.step()
    first.zero_grad()
both = torch.optim.SGD(net.parameters(), 0.01)
for parameter in net.parameters():
    parameter.grad = None
for _ in range(4):
    batch().backward()
    both.step()
    both.zero_grad()
""",
    "the body needs no gradients until then": """\
body.requires_grad_(False)
for _ in range(4):
    batch().backward()
    first.step()
    first.zero_grad()
body.requires_grad_(True)
both = torch.optim.SGD(net.parameters(), 0.01)
for _ in range(4):
    batch().backward()
    both.step()
    both.zero_grad()
""",
    "the body steps on the sum of four batches, each of which trains the head": """\
second = torch.optim.SGD(body.parameters(), 0.01)
for step in range(12):
    batch().backward()
    first.step()
    first.zero_grad()
    if step % 4 == 3:
        second.step()
        second.zero_grad()
""",
    "rounds of tasks, each with a head, and a body that steps after a round": """\
heads = [torch.nn.Linear(4, 1) for _ in range(3)]
steps = [torch.optim.SGD(one.parameters(), 0.1) for one in heads]
second = torch.optim.SGD(body.parameters(), 0.01)
for tasks in (3, 1, 2, 3, 1, 1):
    second.zero_grad()
    for at in range(tasks):
        steps[at].zero_grad()
        heads[at](body(torch.randn(5, 3))).pow(2).mean().backward()
        steps[at].step()
    second.step()
""",
}


@pytest.mark.parametrize("name", PILED)
def test_gradients_that_piled_up_before_the_first_step(name, tmp_path):
    check_program(MODEL + PILED[name], tmp_path)


@pytest.mark.parametrize("name", CLEARED)
def test_gradients_that_are_cleared_or_meant_to_add_up(name, tmp_path):
    check_program(MODEL + CLEARED[name], tmp_path)


GAME = """\
import torch
from torch import nn

maker, judge = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
opt_m, opt_j = (torch.optim.Adam(one.parameters(), 0.01) for one in (maker, judge))


def made():
    return maker(torch.randn(5, 3))


def cut():
    with torch.no_grad():
        return made()


def own(fake):
    return judge(fake).mean() - judge(torch.randn(5, 2)).mean()


def step():
    for one in (opt_m, opt_j):
        one.step()
        one.zero_grad()


for n in range(12):
"""
TOGETHER = {
    "after each pair": """\
    (-judge(made())).mean().backward()  #! gradient-accumulated judge.0.weight (note)
    own(cut()).backward()
    step()
""",
    "after three pairs": """\
    (-judge(made())).mean().backward()  #! gradient-accumulated judge.0.weight (note)
    own(cut()).backward()
    if n % 3 == 2:
        step()
""",
    "detached, the judge stepping first": """\
    fake = made()
    (-judge(fake)).mean().backward()  #! gradient-accumulated judge.0.weight (note)
    own(fake.detach()).backward()
    for one in (opt_j, opt_m):
        one.step()
        one.zero_grad()
""",
}
APART = {
    "the judge is frozen for the maker's loss": """\
    judge.requires_grad_(False)
    (-judge(made())).mean().backward()
    judge.requires_grad_(True)
    own(cut()).backward()
    step()
""",
    "cleared in between": """\
    (-judge(made())).mean().backward()
    opt_j.zero_grad()
    own(cut()).backward()
    step()
""",
    "the maker's gradients alone are asked for": """\
    (-judge(made())).mean().backward(inputs=list(maker.parameters()))
    own(cut()).backward()
    step()
""",
    "two losses of all": """\
    judge(made()).pow(2).mean().backward()
    judge(made()).abs().mean().backward()
    step()
""",
    "a second loss of other data": """\
    judge(made()).pow(2).mean().backward()
    judge(torch.randn(5, 2)).abs().mean().backward()
    step()
""",
}


@pytest.mark.parametrize("name", TOGETHER)
def test_losses_of_two_parts_that_step_together(name, tmp_path):
    check_program(GAME + TOGETHER[name], tmp_path)


@pytest.mark.parametrize("name", APART)
def test_losses_that_are_kept_apart_or_meant_to_add_up(name, tmp_path):
    found = record_program(GAME + APART[name], tmp_path).findings
    assert [one.slug for one in found if one.slug == "gradient-accumulated"] == []
