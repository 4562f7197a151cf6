"""One tensor as the learning rate of several optimizers, or of several groups of one."""

import pytest

from programs import check_program, record_program

PARTS = """\
import torch
from torch import nn
from torch.optim import SGD, Adam, lr_scheduler

torch.manual_seed(0)
encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)


def compress(*optimizers, batches=3):
    for _ in range(batches):
        x = torch.randn(8, 4)
        for opt in optimizers:
            opt.zero_grad()
        (decoder(encoder(x).tanh()) - x).pow(2).mean().backward()
        for opt in optimizers:
            opt.step()


"""

BOTH = """\
first = SGD(encoder.parameters(), lr=rate)
second = SGD(decoder.parameters(), lr=rate)
"""

WRONG = {
    "a schedule of one of two optimizers": """\
rate = torch.tensor(0.1)  #! alias-write rate
first = SGD(encoder.parameters(), lr=rate)
second = Adam(decoder.parameters(), lr=rate)
warm = lr_scheduler.LinearLR(first, 0.1, total_iters=4)
for _ in range(4):
    compress(first, second)
    warm.step()
""",
    "optimizers of one line": """\
class Team:
    def __init__(self, rate):
        self.speed = torch.tensor(rate)  #! alias-write team.speed
        self.all = [SGD(one.parameters(), lr=self.speed) for one in (encoder, decoder)]
        self.plan = lr_scheduler.StepLR(self.all[0], 2, 0.5)


team = Team(0.1)
for _ in range(5):
    compress(*team.all)
    team.plan.step()
""",
    "a scheduler for each, on one tensor": "rate = torch.tensor(0.1)  #! alias-write rate\n"
    + BOTH
    + """\
plans = [lr_scheduler.ExponentialLR(one, 0.5) for one in (first, second)]
for _ in range(3):
    compress(first, second)
    for plan in plans:
        plan.step()
""",
    "a scheduler for each, right behind its step": "rate = torch.tensor(0.1)  #! alias-write rate\n"
    + BOTH
    + """\
fast, slow = lr_scheduler.ExponentialLR(first, 0.5), lr_scheduler.ExponentialLR(second, 0.9)
for _ in range(4):
    compress(first)
    fast.step()
    compress(second)
    slow.step()
""",
    "a rate that the program writes as well": """\
rate = torch.tensor(0.0)  #! alias-write rate (note)
"""
    + BOTH
    + """\
for n in range(3):
    rate.fill_(0.03 * (n + 1))
    compress(first, second)
decay = lr_scheduler.ExponentialLR(first, 0.9)
for n in range(3):
    compress(first, second)
    decay.step()
""",
    "a plateau that is met by each of two groups": """\
rate = torch.tensor(0.1)
opt = SGD(  #! alias-write SGD.param_groups
    [{"params": encoder.parameters()}, {"params": decoder.parameters()}], lr=rate
)
plan = lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0)
for _ in range(3):
    compress(opt)
    plan.step(1.0)
""",
}

RIGHT = {
    "a tensor for each optimizer": """\
rates = [torch.tensor(0.1) for _ in range(2)]
first, second = SGD(encoder.parameters(), lr=rates[0]), SGD(decoder.parameters(), lr=rates[1])
plans = [lr_scheduler.ExponentialLR(one, 0.9) for one in (first, second)]
for _ in range(3):
    compress(first, second)
    for plan in plans:
        plan.step()
""",
    "a clone for the second optimizer": """\
rate = torch.tensor(0.1)
first, second = SGD(encoder.parameters(), lr=rate), SGD(decoder.parameters(), lr=rate.clone())
plan = lr_scheduler.ExponentialLR(first, 0.9)
for _ in range(3):
    compress(first, second)
    plan.step()
""",
    "a number for both": """\
rate = 0.1
first, second = SGD(encoder.parameters(), lr=rate), SGD(decoder.parameters(), lr=rate)
plan = lr_scheduler.ExponentialLR(first, 0.9)
for _ in range(3):
    compress(first, second)
    plan.step()
""",
    "one tensor that nothing writes": "rate = torch.tensor(0.1)\n"
    + BOTH
    + "for _ in range(3):\n    compress(first, second)\n",
    "one tensor that the program writes for both": "rate = torch.tensor(0.1)\n"
    + BOTH
    + """\
for _ in range(3):
    compress(first, second)
    rate.mul_(0.9)
""",
    "schedulers for both that follow one plan": "rate = torch.tensor(0.1)\n"
    + BOTH
    + """\
plans = [lr_scheduler.LambdaLR(one, lambda n: 0.9**n) for one in (first, second)]
for _ in range(3):
    compress(first, second)
    for plan in plans:
        plan.step()
""",
    "schedulers for both, each right behind its step": "rate = torch.tensor(0.1)\n"
    + BOTH
    + """\
mine, theirs = (lr_scheduler.LambdaLR(one, lambda n: 0.9**n) for one in (first, second))
for _ in range(4):
    compress(first)
    mine.step()
    compress(second)
    theirs.step()
""",
    "a schedule that begins when the other has ended": "rate = torch.tensor(0.1)\n"
    + BOTH
    + """\
compress(second)
plan = lr_scheduler.ExponentialLR(first, 0.9)
for _ in range(3):
    compress(first)
    plan.step()
""",
    "groups of one optimizer": """\
rate = torch.tensor(0.1)
opt = SGD([{"params": encoder.parameters()}, {"params": decoder.parameters()}], lr=rate)
plan = lr_scheduler.ExponentialLR(opt, 0.9)
for _ in range(3):
    compress(opt)
    plan.step()
""",
    "an optimizer within another": """\
class Careful(torch.optim.Optimizer):
    def __init__(self, params, base, **settings):
        super().__init__(params, settings)
        self.base = base(self.param_groups, **settings)
        self.param_groups = self.base.param_groups

    def step(self, closure=None):
        self.base.step(closure)


both = [*encoder.parameters(), *decoder.parameters()]
opt = Careful(both, SGD, lr=torch.tensor(0.1))
plan = lr_scheduler.ExponentialLR(opt, 0.9)
for _ in range(3):
    compress(opt)
    plan.step()
""",
    "an optimizer that takes the place of another": """\
rate = torch.tensor(0.1)
opt = SGD(encoder.parameters(), lr=rate)
plan = lr_scheduler.ExponentialLR(opt, 0.9)
for _ in range(2):
    compress(opt)
    plan.step()
later = Adam([*encoder.parameters(), *decoder.parameters()], lr=rate)
for _ in range(2):
    compress(later)
    plan.step()
""",
    "one tensor for groups, each of which is set once on a plateau": """\
opt = SGD(
    [{"params": one.parameters(), "lr": torch.tensor(0.1)} for one in (encoder, decoder)], lr=0.1
)
plan = lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0)
for _ in range(3):
    compress(opt)
    plan.step(1.0)
""",
}


@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
def test_a_rate_that_another_scheduler_writes_is_told(program, tmp_path):
    check_program(PARTS + program, tmp_path)


@pytest.mark.parametrize("program", RIGHT.values(), ids=RIGHT)
def test_rates_that_are_meant_are_quiet(program, tmp_path):
    recording = record_program(PARTS + program, tmp_path)
    assert recording.error is None
    assert [one for one in recording.findings if one.slug == "alias-write"] == []


def test_both_lines_and_the_rates_are_named(tmp_path):
    recording = record_program(PARTS + WRONG["a schedule of one of two optimizers"], tmp_path)
    (found,) = (one for one in recording.findings if one.slug == "alias-write")
    assert found.message == (
        "`rate` (line 19) is the learning rate of SGD (line 20) and of Adam (line 21), one tensor"
        " for both: the scheduler of the first writes it at line 22, and the second steps with"
        " 0.01 instead of 0.1, at last with 0.0775."
    )
    assert [(one.role, one.site.line) for one in found.evidence][:4] == [
        ("made", 19), ("shared", 20), ("shared", 21), ("written", 22),
    ]  # fmt: skip


def test_a_rate_that_falls_once_for_each_group_is_told_so(tmp_path):
    recording = record_program(
        PARTS + WRONG["a plateau that is met by each of two groups"], tmp_path
    )
    (found,) = (one for one in recording.findings if one.slug == "alias-write")
    assert "multiplies it by 0.5" in found.message
    assert "from 0.1 to 0.025" in found.message
