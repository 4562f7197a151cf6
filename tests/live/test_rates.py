"""Learning rates that are spent, and schedulers that set none: found, and what looks alike.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

START = """\
import torch
from torch.optim import SGD, Adam, lr_scheduler

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)


def train(*optimizers):
    for one in optimizers:
        one.zero_grad()
    (net(torch.rand(8, 3)) - torch.rand(8, 1)).pow(2).mean().backward()
    for one in optimizers:
        one.step()


"""

FOUND = {
    "an exponential schedule stepped for each batch": """\
opt = Adam(net.parameters(), lr=0.01)
schedule = lr_scheduler.ExponentialLR(opt, 0.5)  #! parameter-unmoved net.weight
for _ in range(80):
    train(opt)
    schedule.step()
""",
    "one that is spent when a look still sees a last bit move": """\
turned = torch.nn.Parameter(torch.zeros(1))
opt = SGD([turned], lr=1.0)
schedule = lr_scheduler.StepLR(opt, 5, 0.5)  #! parameter-unmoved turned (note)
for k in range(300):
    opt.zero_grad()
    (turned * (0.01 if k % 2 else -0.01)).sum().backward()
    opt.step()
    schedule.step()
""",
    "a linear one that counts epochs and is given batches": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.LambdaLR(  #! parameter-unmoved net.weight
    opt, lambda epoch: max(0.0, 1 - epoch / 5)
)
for _ in range(40):
    train(opt)
    schedule.step()
""",
    "a rate that the program itself lowers, for less than half of the steps": """\
opt = SGD(net.parameters(), lr=0.1)  #! parameter-unmoved net.weight (note)
for step in range(100):
    for group in opt.param_groups:
        group["lr"] *= 0.1 if step > 40 else 1
    train(opt)
""",
    "a rate that falls between two looks, for a quarter of the steps": """\
opt = SGD(net.parameters(), lr=0.1)  #! parameter-unmoved net.weight (note)
for step in range(80):
    for group in opt.param_groups:
        group["lr"] *= 0.1 ** (step // 12)
    train(opt)
""",
    "rates of two groups of three that are multiplied at each step": """\
layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), net])
opt = Adam(  #! parameter-unmoved layers.0.weight (note)
    [{"params": one.parameters(), "depth": 2 - k} for k, one in enumerate(layers)], lr=0.01
)
for step in range(120):
    for group in opt.param_groups:
        group["lr"] *= 0.6 ** group["depth"]
    x = layers[1](layers[0](torch.rand(8, 3)).tanh()).tanh()
    opt.zero_grad()
    (net(x) - torch.rand(8, 1)).pow(2).mean().backward()
    opt.step()
""",
    "a rate of one group that the program sets to zero, and never back": """\
head = torch.nn.Linear(1, 1)
opt = SGD([{"params": net.parameters()}, {"params": head.parameters()}], lr=0.1)


def warm_up(epoch):
    if epoch == 0:
        for group in opt.param_groups[1:]:
            group["lr"] = 0.0  #! parameter-unmoved head.weight (note)


for epoch in range(4):
    opt.zero_grad()
    (head(net(torch.rand(8, 3))) - torch.rand(8, 1)).pow(2).mean().backward()
    warm_up(epoch)
    opt.step()
""",
    "a rate of zero that is to grow by a factor": """\
opt = SGD(net.parameters(), lr=0.1)
opt.param_groups[0].update(lr=0.0)  #! parameter-unmoved net.weight
for epoch in range(4):
    opt.param_groups[0]["lr"] *= 1.5
    train(opt)
""",
    "a rate that is an integer division, stored for each epoch": """\
opt = SGD(net.parameters(), lr=0.1)
for epoch in range(4):
    for group in opt.param_groups:
        group["lr"] = (epoch + 1) // 10  #! parameter-unmoved net.weight
    train(opt)
""",
    "a rate that one of two lines makes zero, of which the text alone does not tell": """\
opt = SGD(net.parameters(), lr=0.1)  #! parameter-unmoved net.weight
for epoch in range(4):
    if epoch % 2:
        opt.param_groups[0]["lr"] = epoch * 0
    else:
        opt.param_groups[0]["lr"] = 0 * epoch
    train(opt)
""",
    "an optimizer made with a rate of zero": """\
opt = SGD(net.parameters(), lr=0.0)  #! parameter-unmoved net.weight
for epoch in range(4):
    train(opt)
    opt.param_groups[0]["lr"] *= 2
""",
    "a scheduler that nothing steps": """\
opt = SGD(net.parameters(), lr=0.1)
lr_scheduler.CosineAnnealingLR(opt, 9)  #! values-lost CosineAnnealingLR (note)
for _ in range(9):
    train(opt)
""",
    "a scheduler of an optimizer that does not train": """\
opt = SGD(net.parameters(), lr=0.1)
other = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.StepLR(other, 2)  #! values-lost StepLR
for _ in range(9):
    train(opt)
    schedule.step()
""",
    "a scheduler for each epoch": """\
opt = SGD(net.parameters(), lr=0.1)
for _ in range(5):
    schedule = lr_scheduler.StepLR(opt, 2)  #! values-lost StepLR (note)
    for _ in range(3):
        train(opt)
    schedule.step()
""",
    "one cycle planned in batches and stepped once an epoch": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.OneCycleLR(opt, 0.2, total_steps=40)  #! values-lost OneCycleLR
for _ in range(8):
    for _ in range(5):
        train(opt)
    schedule.step()
""",
    "a cosine planned in passes of which four make a step": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.CosineAnnealingLR(opt, 48)  #! values-lost CosineAnnealingLR
for batch in range(48):
    net(torch.rand(8, 3)).pow(2).mean().backward()
    if batch % 4 == 3:
        opt.step()
        opt.zero_grad()
        schedule.step()
""",
    "a polynomial one in a sequence": """\
opt = SGD(net.parameters(), lr=0.1)
parts = [lr_scheduler.ConstantLR(opt, 0.5), lr_scheduler.PolynomialLR(opt, 60)]  #! values-lost PolynomialLR
schedule = lr_scheduler.SequentialLR(opt, parts, [3])
for _ in range(12):
    for _ in range(5):
        train(opt)
    schedule.step()
""",
    "a cosine planned in epochs and stepped for each batch": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.CosineAnnealingLR(opt, 6)  #! values-lost CosineAnnealingLR (note)
for _ in range(6):
    for _ in range(9):
        train(opt)
        schedule.step()
""",
    "such a one with a warm-up, of the program's own": """\
opt = SGD(net.parameters(), lr=0.1)
course = [0.5, 1.0, 0.75, 0.5, 0.25, 0.0, 0.25, 0.5, 0.75]
schedule = lr_scheduler.LambdaLR(opt, lambda n: course[n % 9])  #! values-lost LambdaLR (note)
for _ in range(40):
    train(opt)
    schedule.step()
""",
}

RIGHT = {
    "one of an optimizer that shows the groups of the one inside": """\
class Wrapped(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner = inner

    @property
    def param_groups(self):
        return self.inner.param_groups

    @property
    def state(self):
        return self.inner.state

    def step(self, closure=None):
        return self.inner.step(closure)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)


opt = Wrapped(Adam(net.parameters(), lr=0.01))
schedule = lr_scheduler.LambdaLR(opt, lambda epoch: 1 / (1 + epoch))
for _ in range(8):
    train(opt)
    schedule.step()
""",
    "one of an optimizer that looks around and lets another step": """\
class Around(torch.optim.Optimizer):
    def __init__(self, parameters, kind, **settings):
        super().__init__(parameters, settings)
        self.base = kind(self.param_groups, **settings)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def away(self):
        for p in (p for group in self.param_groups for p in group["params"]):
            self.state[p]["before"] = p.clone()
            p.add_(p.grad, alpha=0.05)
        self.zero_grad()

    @torch.no_grad()
    def back(self):
        for p in (p for group in self.param_groups for p in group["params"]):
            p.copy_(self.state[p]["before"])
        self.base.step()
        self.zero_grad()


opt = Around(net.parameters(), SGD, lr=0.1)
schedule = lr_scheduler.CosineAnnealingLR(opt, 8)
for _ in range(8):
    x = torch.rand(8, 3)
    net(x).pow(2).mean().backward()
    opt.away()
    net(x).pow(2).mean().backward()
    opt.back()
    schedule.step()
""",
    "rates of three groups that each step computes from the first ones": """\
layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), net])
opt = Adam(
    [{"params": one.parameters(), "depth": 2 - k} for k, one in enumerate(layers)], lr=0.01
)
for step in range(120):
    for group in opt.param_groups:
        group["lr"] = 0.01 * 0.6 ** group["depth"] * 0.99**step
    x = layers[1](layers[0](torch.rand(8, 3)).tanh()).tanh()
    opt.zero_grad()
    (net(x) - torch.rand(8, 1)).pow(2).mean().backward()
    opt.step()
""",
    "a rate of zero for the first epoch, which is set back": """\
opt = SGD(net.parameters(), lr=0.1)
for epoch in range(6):
    for group in opt.param_groups:
        group["lr"] = 0.0 if epoch < 2 else 0.1
    train(opt)
""",
    "a warm-up by hand that begins at zero": """\
opt = SGD(net.parameters(), lr=0.1)
for step in range(6):
    opt.param_groups[0]["lr"] = 0.1 * step / 6
    train(opt)
""",
    "a rate of zero that is stored before one that counts": """\
opt = SGD(net.parameters(), lr=0.1)
opt.param_groups[0]["lr"] = 0.0
opt.param_groups[0].update(lr=0.05)
for step in range(6):
    train(opt)
""",
    "a schedule that ends at zero with the training": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.LambdaLR(opt, lambda step: max(0.0, 1 - step / 31))
for _ in range(32):
    train(opt)
    schedule.step()
""",
    "warm restarts that come through zero": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.LambdaLR(opt, lambda step: 1 - step % 16 / 15)
for _ in range(40):
    train(opt)
    schedule.step()
""",
    "a plateau, a sequence and a chain of schedulers, and one with a step of its own": """\
class Own(lr_scheduler.LRScheduler):
    def get_lr(self):
        return self.base_lrs

    def step(self, epoch=None):
        self.last_epoch += 1


def parts(opt):
    return [lr_scheduler.ConstantLR(opt, 0.5), lr_scheduler.StepLR(opt, 50)]


for make in (
    lambda opt: lr_scheduler.ReduceLROnPlateau(opt),
    lambda opt: lr_scheduler.SequentialLR(opt, parts(opt), [90]),
    lambda opt: lr_scheduler.ChainedScheduler(parts(opt)),
    Own,
):
    net = torch.nn.Linear(3, 1)
    opt = SGD(net.parameters(), lr=0.1)
    schedule = make(opt)
    for _ in range(6):
        train(opt)
        schedule.step(*([1.0] if isinstance(schedule, lr_scheduler.ReduceLROnPlateau) else []))
""",
    "a scheduler made anew that goes on from the rate it finds": """\
opt = SGD(net.parameters(), lr=0.1)
for _ in range(5):
    schedule = lr_scheduler.ExponentialLR(opt, 0.9)
    train(opt)
    schedule.step()
""",
    "a rate of zero before a warm-up, and a phase of each of two optimizers": """\
first, second = SGD(net.parameters(), lr=0.1), Adam(net.parameters(), lr=0.1)
schedules = [lr_scheduler.LambdaLR(one, lambda step: min(1.0, step / 4)) for one in (first, second)]
for opt, schedule in zip((first, second), schedules):
    for _ in range(9):
        train(opt)
        schedule.step()
""",
    "one cycle that is stepped as often as planned, but for its last": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.OneCycleLR(opt, 0.2, epochs=8, steps_per_epoch=5)
for _ in range(39):
    train(opt)
    schedule.step()
""",
    "one that is planned for four passes a step": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.OneCycleLR(opt, 0.2, total_steps=12)
for batch in range(48):
    net(torch.rand(8, 3)).pow(2).mean().backward()
    if batch % 4 == 3:
        opt.step()
        opt.zero_grad()
        if batch < 44:
            schedule.step()
""",
    "a cosine in epochs that is stepped once an epoch, and a run that stops early": """\
for epochs in (8, 4):
    opt = SGD(net.parameters(), lr=0.1)
    schedule = lr_scheduler.CosineAnnealingLR(opt, 8)
    for _ in range(epochs):
        for _ in range(5):
            train(opt)
        schedule.step()
""",
    "a cosine that ends a little after its course": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.CosineAnnealingLR(opt, 30)
for _ in range(36):
    train(opt)
    schedule.step()
""",
    "restarts that are asked for": """\
opt = SGD(net.parameters(), lr=0.1)
schedule = lr_scheduler.CosineAnnealingWarmRestarts(opt, 5)
for _ in range(30):
    train(opt)
    schedule.step()
""",
}


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_rates_that_are_spent_or_not_set(body, tmp_path):
    check_program(START + body, tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_of_schedules_that_are_meant_nothing_is_said(body, tmp_path):
    found = check_program(START + body, tmp_path).findings
    assert [one.slug for one in found if one.slug in ("values-lost", "parameter-unmoved")] == []


def test_a_rate_of_zero_is_told_of_the_line_that_added_the_group(tmp_path):
    program = """\
body = torch.nn.Linear(3, 3)
opt = SGD(net.parameters(), lr=0.1)
train(opt)
opt.param_groups[0]["lr"] = 0.0
opt.add_param_group({"params": body.parameters(), "lr": opt.param_groups[0]["lr"]})
opt.param_groups[0]["lr"] = 0.1
for _ in range(3):
    opt.zero_grad()
    net(body(torch.rand(8, 3))).pow(2).mean().backward()
    opt.step()
"""
    found = check_program(START + program.replace("SGD(net", "SGD(net"), tmp_path).findings
    unmoved = next(one for one in found if one.slug == "parameter-unmoved")
    assert unmoved.site.expression.startswith("opt.add_param_group")


GROUPS = """\
body = torch.nn.Linear(3, 3)
opt = Adam([{{"params": body.parameters(), "lr": 0.0}}, {{"params": net.parameters()}}], lr=0.01)
group = opt.param_groups[0]
{make}


def train():
    opt.zero_grad()
    (net(body(torch.rand(8, 3))) - 1).pow(2).mean().backward()
    opt.step()


for epoch in range(6):
    {epoch}
    for batch in range(3):
        {batch}
        train()
        {after}
    {end}
"""

UNDONE = {
    "for one batch": {
        "make": "schedule = lr_scheduler.LambdaLR(opt, lambda n: 1 - n / 20)",
        "epoch": "group['lr'] = 0.001 if epoch == 2 else group['lr']",
        "after": "schedule.step()  #! values-lost body.weight",
    },
    "for one epoch": {
        "make": "schedule = lr_scheduler.LambdaLR(opt, lambda n: 0.9 ** n)",
        "epoch": "if epoch == 3: group.update(lr=0.001)",
        "end": "schedule.step()  #! values-lost body.weight",
    },
    "by a schedule with restarts": {
        "make": "schedule = lr_scheduler.CosineAnnealingWarmRestarts(opt, 9)",
        "batch": "if (epoch, batch) == (1, 1): opt.param_groups[0]['lr'] = 0.001",
        "after": "schedule.step()  #! values-lost body.weight",
    },
    "by the second one of a sequence": {
        "make": "two = [lr_scheduler.LambdaLR(opt, lambda n: 1 / (n + 1)) for _ in range(2)]\n"
        "schedule = lr_scheduler.SequentialLR(opt, two, [4])",
        "batch": "if (epoch, batch) == (2, 0): group['lr'] = 0.001",
        "after": "schedule.step()  #! values-lost body.weight",
    },
}

KEPT = {
    "a schedule that goes on from the rate it finds": {
        "make": "schedule = lr_scheduler.StepLR(opt, 9, 0.5)",
        "epoch": "group['lr'] = 0.001 if epoch == 2 else group['lr']",
        "after": "schedule.step()",
    },
    "the base of the schedule is set as well": {
        "make": "schedule = lr_scheduler.LambdaLR(opt, lambda n: 1 - n / 20)",
        "epoch": "if epoch == 2: group['lr'] = schedule.base_lrs[0] = 0.001",
        "after": "schedule.step()",
    },
    "set anew for each epoch": {
        "make": "schedule = lr_scheduler.LambdaLR(opt, lambda n: 1 - n / 20)",
        "epoch": "group['lr'] = 0.001 if epoch > 1 else 0.0",
        "end": "schedule.step()",
    },
    "set anew for some batches": {
        "make": "schedule = lr_scheduler.LambdaLR(opt, lambda n: 1 - n / 20)",
        "batch": "group['lr'] = 0.001 if (epoch, batch) in ((1, 0), (1, 1)) else 0.0",
        "after": "schedule.step()",
    },
    "set back by the program itself": {
        "make": "schedule = lr_scheduler.LambdaLR(opt, lambda n: 1 - n / 20)",
        "epoch": "group['lr'] = 0.001 if epoch == 2 else 0.0",
        "end": "group['lr'] = 0.0; schedule.step()",
    },
    "set for the end": {
        "make": "schedule = lr_scheduler.LambdaLR(opt, lambda n: 1 - n / 20)",
        "batch": "if (epoch, batch) == (5, 1): group['lr'] = 0.001",
        "after": "schedule.step()",
    },
    "a group that the schedule itself lets go": {
        "make": "parts = [lambda n: float(n > 6), lambda n: 1.0]\ngroup['lr'] = 0.01\n"
        "schedule = lr_scheduler.LambdaLR(opt, parts)",
        "after": "schedule.step()",
    },
    "a schedule that comes to zero, and a step by hand after it": {
        "make": "group['lr'] = 0.01\nschedule = lr_scheduler.LambdaLR(opt, lambda n: max(0, 1 - n / 14))",
        "after": "schedule.step()",
        "epoch": "if epoch == 5: group['lr'] = 0.001",
    },
    "nothing sets it": {
        "make": "schedule = lr_scheduler.LambdaLR(opt, lambda n: 1 - n / 20)",
        "after": "schedule.step()",
    },
}


def _grouped(parts):
    blank = dict.fromkeys(("epoch", "batch", "after", "end"), "pass")
    return START + GROUPS.format(**(blank | parts))


@pytest.mark.parametrize("parts", UNDONE.values(), ids=UNDONE)
def test_a_rate_that_a_scheduler_puts_back_to_zero(parts, tmp_path):
    check_program(_grouped(parts), tmp_path)


@pytest.mark.parametrize("parts", KEPT.values(), ids=KEPT)
def test_of_a_rate_that_lasts_or_is_set_again_nothing_is_said(parts, tmp_path):
    found = check_program(_grouped(parts), tmp_path).findings
    assert [one.slug for one in found if one.slug == "values-lost"] == []


def test_a_loaded_state_is_named_that_puts_a_schedule_past_its_end(tmp_path):
    text = (
        START
        + """\
def schedule_of(opt, steps):
    return lr_scheduler.LambdaLR(opt, lambda step: max(0.0, 1 - step / steps))


first = SGD(net.parameters(), lr=0.1)
long = schedule_of(first, 40)
for _ in range(30):
    train(first)
    long.step()
net = torch.nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
short = schedule_of(opt, 12)
short.load_state_dict(long.state_dict())
opt.param_groups[0]["lr"] = short.get_last_lr()[0] * 0
for _ in range(8):
    train(opt)
    short.step()
"""
    )
    line = text[: text.index("short.load_state")].count("\n") + 1
    (found,) = [one for one in record_program(text, tmp_path).findings if "zero at" in one.message]
    assert line in [one.site.line for one in found.evidence if one.role == "rate"]
