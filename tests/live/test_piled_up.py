"""Gradients of a part that does not step yet: they pile up until its first step, or are cleared.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

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
