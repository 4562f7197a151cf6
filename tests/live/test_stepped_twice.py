"""Parameters that two optimizers step by one gradient, and programs with two optimizers that do not.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
trunk, left, right = nn.Linear(4, 3), nn.Linear(3, 1), nn.Linear(3, 1)
data = torch.randn(5, 8, 4)
"""

TOLD = {
    "the trunk is among the parameters of both": """\
one = torch.optim.Adam([*trunk.parameters(), *left.parameters()])
two = torch.optim.SGD([*trunk.parameters(), *right.parameters()], lr=0.1)
for x in data:
    h = trunk(x)
    loss = left(h).pow(2).mean() + (right(h) - 1).pow(2).mean()
    one.zero_grad()
    two.zero_grad()
    loss.backward()
    one.step()
    two.step()  #! gradient-stale trunk.weight (note)
""",
    "a method of each, of an object that has both": """\
class Both:
    def __init__(self):
        self.one = torch.optim.SGD(trunk.parameters(), lr=0.1)
        self.all = torch.optim.SGD(
            [p for m in (trunk, left) for p in m.parameters()], lr=0.1, momentum=0.9
        )

    def step(self):
        for opt in (self.one, self.all):
            self.take(opt)
        for opt in (self.one, self.all):
            opt.zero_grad()

    def take(self, opt):
        opt.step()  #! gradient-stale trunk.weight (note)


both = Both()
for x in data:
    left(trunk(x)).pow(2).mean().backward()
    both.step()
""",
}

QUIET = {
    "a pass for each": """\
one = torch.optim.Adam([*trunk.parameters(), *left.parameters()])
two = torch.optim.SGD([*trunk.parameters(), *right.parameters()], lr=0.1)
for x in data:
    one.zero_grad()
    left(trunk(x)).pow(2).mean().backward()
    one.step()
    two.zero_grad()
    right(trunk(x)).pow(2).mean().backward()
    two.step()
""",
    "each has its own": """\
one = torch.optim.Adam([*trunk.parameters(), *left.parameters()])
two = torch.optim.SGD(right.parameters(), lr=0.1)
for x in data:
    h = trunk(x)
    one.zero_grad()
    two.zero_grad()
    (left(h).pow(2).mean() + right(h).pow(2).mean()).backward()
    one.step()
    two.step()
""",
    "one takes over from the other": """\
one = torch.optim.Adam(trunk.parameters())
two = torch.optim.SGD(trunk.parameters(), lr=0.1)
for n, x in enumerate(data):
    trunk.zero_grad()
    trunk(x).pow(2).mean().backward()
    (one if n < 2 else two).step()
""",
    "one that calls the other": """\
class Slow(torch.optim.Optimizer):
    def __init__(self, fast):
        self.fast = fast
        super().__init__(fast.param_groups, {})

    @torch.no_grad()
    def step(self, closure=None):
        self.fast.step()
        for group in self.param_groups:
            for p in group["params"]:
                slow = self.state[p].setdefault("slow", p.clone())
                p.copy_(slow.lerp_(p, 0.5))


opt = Slow(torch.optim.SGD(trunk.parameters(), lr=0.1))
for x in data:
    opt.zero_grad()
    trunk(x).pow(2).mean().backward()
    opt.step()
""",
    "gradients that are given anew in between": """\
one = torch.optim.SGD(trunk.parameters(), lr=0.1)
two = torch.optim.SGD(trunk.parameters(), lr=0.1)
for x in data:
    trunk.zero_grad()
    trunk(x).pow(2).mean().backward()
    one.step()
    for p in trunk.parameters():
        p.grad = torch.randn_like(p) * 0.01
    two.step()
""",
}


@pytest.mark.parametrize("text", TOLD.values(), ids=TOLD)
def test_two_steps_by_one_gradient_are_noted(text, tmp_path):
    check_program(HEAD + text, tmp_path)


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_of_two_optimizers_that_do_not_nothing_is_said(text, tmp_path):
    recording = check_program(HEAD + text, tmp_path)
    assert "gradient-stale" not in {one.slug for one in recording.findings}
