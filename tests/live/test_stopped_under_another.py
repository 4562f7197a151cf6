"""Parameters that moved under one optimizer and do not under the next, and windows of a vector."""

import pytest

from programs import check_program, record_program

TRAINING = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))


def train(rate, dtype, steps=40):
    net.to(dtype)
    opt = torch.optim.SGD(net.parameters(), lr=rate)
    for _ in range(steps):
        x = torch.randn(32, 4)
        loss = (net(x.to(dtype)).float()[:, 0] - x.sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


train(0.01, torch.float32)
"""

SECOND = {
    "steps below what bfloat16 holds": ("train(1e-5, torch.bfloat16)", "warning"),
    "steps of float32 that are too small": ("train(1e-14, torch.float32)", "note"),
    "steps that it holds": ("train(0.05, torch.bfloat16)", ""),
    "the same again": ("train(0.01, torch.float32)", ""),
    "a rate of zero": ("train(0.0, torch.float32)", ""),
    "two steps": ("train(1e-5, torch.bfloat16, 2)", ""),
}


@pytest.mark.parametrize(("second", "severity"), SECOND.values(), ids=SECOND)
def test_what_moved_and_does_not_any_longer(second, severity, tmp_path):
    found = record_program(TRAINING + second, tmp_path).findings
    told = [one for one in found if "no longer change" in str(one.message)]
    assert {one.severity for one in told} == ({severity} if severity else set())


WINDOWS = """\
import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2).requires_grad_(False)
shown = [first.weight, second.weight]
flat = torch.zeros(sum(one.numel() for one in shown))
start = 0
for one in shown:
    window = flat[start : start + one.numel()].view_as(one)
    window.copy_(one)
    one.data = window
    start += one.numel()


def score():
    return second(first(torch.ones(3, 4))).sum().item()


"""
LOOP = """
for step in range(4):
    center = flat.clone()
    flat.copy_(center + torch.randn_like(center))
    print(score())
"""


def test_a_window_that_is_left_while_others_stay_is_told(tmp_path):
    lost = "second.weight.data = torch.ones(2, 4)  #! tie-lost second.weight\n"
    check_program(WINDOWS + lost + LOOP, tmp_path)


@pytest.mark.parametrize(
    "lost", ["second.weight.data.fill_(1)\n", "second.weight.copy_(torch.ones(2, 4))\n"]
)
def test_one_that_is_written_is_not(lost, tmp_path):
    check_program(WINDOWS + lost + LOOP, tmp_path)


def test_nor_are_all_of_them(tmp_path):
    lost = "for one in shown:\n    one.data = one.data.clone()\n"
    check_program(WINDOWS + lost + LOOP, tmp_path)
