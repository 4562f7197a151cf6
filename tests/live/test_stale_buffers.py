"""Modules that follow another one by their parameters: what becomes of their buffers.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import copy
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)


def train(*beside):
    for _ in range(4):
        x = torch.randn(8, 3) + 2
        with torch.no_grad():
            target = sum(one(x) for one in beside)
        opt.zero_grad()
        (net(x) - target).pow(2).mean().backward()
        opt.step()
        follow(*beside)


"""

BEHIND = {
    "an average that is assigned to .data": """\
def follow(ema):
    for p, q in zip(ema.parameters(), net.parameters()):
        p.data = p.data * 0.9 + q.data * 0.1  #! buffer-stale ema.1.running_mean


ema = copy.deepcopy(net).eval()
train(ema)
""",
    "a network of its own, filled by the lists of a foreach": """\
def follow(ema):
    with torch.no_grad():
        torch._foreach_lerp_(  #! buffer-stale ema.1.running_mean
            list(ema.parameters()), list(net.parameters()), 0.1
        )


ema = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
train(ema)
""",
    "a target network that was loaded, statistics and all": """\
@torch.no_grad()
def follow(target):
    for p, q in zip(target.parameters(), net.parameters()):
        p.copy_(q)  #! buffer-stale target.1.running_mean (note)


net(torch.randn(8, 3))
target = copy.deepcopy(net)
target.load_state_dict(net.state_dict())
target.eval()
train(target)
""",
    "statistics of a module of one's own": """\
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.linear = nn.Linear(3, 1)

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.mean(0), 0.1)
        return self.linear(x - self.mean)


@torch.no_grad()
def follow(ema):
    for p, q in zip(ema.parameters(), net.parameters()):
        p.mul_(0.9).add_(q, alpha=0.1)  #! buffer-stale ema.mean


net = Scaled()
opt = torch.optim.SGD(net.parameters(), 0.1)
ema = copy.deepcopy(net).eval()
train(ema)
""",
}

QUIET = {
    "statistics that nobody writes": """\
@torch.no_grad()
def follow(ema):
    for p, q in zip(ema.parameters(), net.parameters()):
        p.lerp_(q, 0.1)


net.eval()
ema = copy.deepcopy(net)
train(ema)
""",
    "a state that is loaded, and the averages that come after it": """\
@torch.no_grad()
def follow(ema):
    kept = [p.clone() for p in ema.parameters()]
    ema.load_state_dict(net.state_dict())
    for p, old in zip(ema.parameters(), kept):
        p.lerp_(old, 0.9)


ema = copy.deepcopy(net).eval()
train(ema)
""",
    "an average whose statistics are computed at the end, before it is used": """\
from torch.optim.swa_utils import update_bn


@torch.no_grad()
def follow():
    for p, q in zip(ema.parameters(), net.parameters()):
        p.lerp_(q, 0.1)


ema = copy.deepcopy(net)
train()
update_bn([torch.randn(8, 3) for _ in range(3)], ema)
ema.eval()
for _ in range(3):
    print(ema(torch.randn(8, 3)))
""",
    "PyTorch's own average, which keeps the buffers in step": """\
from torch.optim.swa_utils import AveragedModel


def follow(ema):
    ema.update_parameters(net)


ema = AveragedModel(net).eval()
train(ema)
""",
    "an average that only saves its state": """\
@torch.no_grad()
def follow():
    for p, q in zip(ema.parameters(), net.parameters()):
        p.lerp_(q, 0.1)


ema = copy.deepcopy(net).eval()
train()
saved = [copy.deepcopy(ema.state_dict()) for _ in range(3)]
print([(one - other).abs().sum() for one, other in zip(ema.buffers(), net.buffers())])
""",
    "weights that are taken once": """\
def follow(other):
    pass


other = copy.deepcopy(net).eval()
with torch.no_grad():
    for p, q in zip(other.parameters(), net.parameters()):
        p.copy_(q)
train(other)
""",
    "a frozen model beside the one that is trained": """\
def follow(*models):
    pass


frozen = copy.deepcopy(net).eval().requires_grad_(False)
train(frozen)
""",
}


@pytest.mark.parametrize("text", BEHIND.values(), ids=BEHIND)
def test_buffers_that_stay_behind_are_told(text, tmp_path):
    check_program(MODEL + text, tmp_path)


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_buffers_that_follow_or_are_not_used_are_not(text, tmp_path):
    recording = check_program(MODEL + text, tmp_path)
    assert not [one for one in recording.findings if one.slug == "buffer-stale"]
