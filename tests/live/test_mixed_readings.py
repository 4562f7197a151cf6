"""Gradients that are read after each of several passes that add up: found, and what looks alike.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

START = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def losses():
    out = net(torch.rand(8, 3))
    return [(out[:, 0] - 1).pow(2).mean(), out[:, 1].pow(2).mean()]


def descend(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


"""

FOUND = {
    "weights of losses by norms as numbers": """\
for _ in range(4):
    net.zero_grad()
    parts, norms = losses(), []
    for one in parts:
        one.backward(retain_graph=True)
        norms.append(net.weight.grad.norm().item())  #! gradient-accumulated net.weight (note)
    descend(sum(one * (sum(norms) / norm) for one, norm in zip(parts, norms)))
""",
    "weights as a tensor": """\
for _ in range(4):
    net.zero_grad()
    parts, norms = losses(), []
    for one in parts:
        one.backward(retain_graph=True)
        norms.append(net.weight.grad.norm())  #! gradient-accumulated net.weight (note)
    weights = torch.stack(norms).mean() / torch.stack(norms)
    descend((torch.stack(parts) * weights).sum())
""",
    "a function that measures": """\
def measure(loss):
    loss.backward(retain_graph=True)
    return torch.cat([p.grad.flatten() for p in net.parameters()]).norm()  #! gradient-accumulated net.weight (note)


for _ in range(4):
    opt.zero_grad()
    first, second = losses()
    ratio = measure(first) / measure(second)
    descend(first + ratio * second)
""",
    "an angle between what are taken for two gradients": """\
for _ in range(4):
    net.zero_grad()
    parts, seen = losses(), []
    for one in parts:
        one.backward(retain_graph=True)
        seen.append(net.weight.grad.flatten().clone())  #! gradient-accumulated net.weight (note)
    agree = torch.dot(seen[0], seen[1]) > 0
    descend(parts[0] + agree * parts[1])
""",
    "norms that are measured now and then": """\
weights = torch.ones(2)
for step in range(6):
    parts = losses()
    if step % 3 == 0:
        net.zero_grad()
        for n, one in enumerate(parts):
            one.backward(retain_graph=True)
            weights[n] = 1 / net.weight.grad.abs().max()  #! gradient-accumulated net.weight (note)
    descend((torch.stack(parts) * weights).sum())
""",
}

RIGHT = {
    "gradients that are cleared before each pass": """\
for _ in range(4):
    parts, norms = losses(), []
    for one in parts:
        net.zero_grad()
        one.backward(retain_graph=True)
        norms.append(net.weight.grad.norm().item())
    descend(sum(one * (sum(norms) / norm) for one, norm in zip(parts, norms)))
""",
    "gradients that are set to zero in place": """\
for _ in range(4):
    parts, norms = losses(), []
    for one in parts:
        if net.weight.grad is not None:
            net.weight.grad.zero_()
        one.backward(retain_graph=True)
        norms.append(net.weight.grad.norm())
    descend((torch.stack(parts) / torch.stack(norms)).sum())
""",
    "gradients that are asked for": """\
for _ in range(4):
    parts = losses()
    norms = [torch.autograd.grad(one, net.weight, retain_graph=True)[0].norm() for one in parts]
    descend((torch.stack(parts) / torch.stack(norms)).sum())
""",
    "norms of what adds up, that are printed": """\
for _ in range(4):
    opt.zero_grad()
    for one in losses():
        one.backward(retain_graph=True)
        print(net.weight.grad.norm().item())
    opt.step()
""",
    "the difference of two sums": """\
for _ in range(4):
    net.zero_grad()
    parts, before, norms = losses(), torch.zeros(2, 3), []
    for one in parts:
        one.backward(retain_graph=True)
        now = net.weight.grad.clone()
        norms.append((now - before).norm())
        before = now
    descend((torch.stack(parts) / torch.stack(norms)).sum())
""",
    "one reading of the sum, for the next loss": """\
scale = 1.0
for _ in range(4):
    opt.zero_grad()
    for one in losses():
        (one * scale).backward(retain_graph=True)
    scale = 1 / (1 + net.weight.grad.norm())
    opt.step()
""",
    "gradients of small batches that are clipped as they add up": """\
for _ in range(4):
    opt.zero_grad()
    for _ in range(3):
        sum(losses()).backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
""",
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_readings_of_sums_that_become_a_loss(body, tmp_path):
    check_program(START + body, tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_of_readings_of_one_pass_nothing_is_said(body, tmp_path):
    found = record_program(START + body, tmp_path).findings
    assert [one.message for one in found if "is read at" in one.message] == []
