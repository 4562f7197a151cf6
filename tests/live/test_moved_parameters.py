"""Programs whose steps move what was to stay, and look-alikes that are right.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

MOVED = {
    "a module that is given the attribute of a tensor": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
net[0].requires_grad = False  #! parameter-moved net.0.weight
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
""",
    "an attribute of another spelling": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
for parameter in net[0].parameters():
    parameter.require_grad = False  #! parameter-moved net.0.weight
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
""",
    "a method that is replaced": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
for parameter in net[0].parameters():
    parameter.requires_grad_ = False  #! parameter-moved net.0.weight
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
""",
    "a freeze that another function undoes": """\
import torch


def groups(model):
    chosen = []
    for parameter in model.parameters():
        parameter.requires_grad = True  #! parameter-moved net.0.weight
        chosen.append(parameter)
    return chosen


net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
for name, parameter in net.named_parameters():
    if name.startswith("0."):
        parameter.requires_grad = False
opt = torch.optim.SGD(groups(net), 0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
""",
    "a frozen layer that decays": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
opt = torch.optim.AdamW(net.parameters(), 0.01, weight_decay=0.1)


def fit(steps):
    for _ in range(steps):
        opt.zero_grad(set_to_none=False)
        net(torch.randn(8, 4)).pow(2).mean().backward()
        opt.step()


fit(5)
for parameter in net[0].parameters():
    parameter.requires_grad = False  #! parameter-moved net.0.weight
fit(5)
""",
    "frozen long after the values were last compared": """\
import torch

body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.1, momentum=0.9)
for turn in range(23):
    if turn == 20:
        body.requires_grad_(False)  #! parameter-moved body.weight
    opt.zero_grad(set_to_none=False)
    head(body(torch.randn(8, 4))).pow(2).mean().backward()
    opt.step()
""",
    "a scheduler of the program's own, with one rate": """\
import torch


class Rising(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, top):
        self.top = top
        super().__init__(optimizer)  #! parameter-moved body.weight

    def get_lr(self):
        return [self.top * (self.last_epoch + 1) / 10 for _ in self.optimizer.param_groups]


body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
groups = [{"params": body.parameters(), "lr": 0.0}, {"params": head.parameters(), "lr": 0.1}]
opt = torch.optim.SGD(groups)
schedule = Rising(opt, 0.1)
for _ in range(5):
    opt.zero_grad()
    head(body(torch.randn(8, 4))).pow(2).mean().backward()
    opt.step()
    schedule.step()
""",
    "a lower rate for the body that is overridden": """\
import torch

body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
groups = [{"params": body.parameters(), "lr": 0.001}, {"params": head.parameters(), "lr": 0.1}]
opt = torch.optim.SGD(groups, momentum=0.9)
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=5)  #! parameter-moved body.weight (note)
for _ in range(5):
    opt.zero_grad()
    head(body(torch.randn(8, 4))).pow(2).mean().backward()
    opt.step()
    schedule.step()
""",
}

STAYS = {
    "a module that has the attribute beside what does it": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
net[0].requires_grad = False
for parameter in net[0].parameters():
    parameter.requires_grad = False
    parameter.frozen = True
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
""",
    "a class that has the attribute for itself": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
class Scaled(torch.nn.Linear):
    def __init__(self, size):
        super().__init__(size, 1)
        self.requires_grad = False

    def forward(self, x):
        return super().forward(x if self.requires_grad else x.detach())


net[1] = Scaled(4)
net[0].requires_grad_(False)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
""",
    "all is frozen, and the head let go": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
for parameter in net.parameters():
    parameter.requires_grad = False
for parameter in net[1].parameters():
    parameter.requires_grad = True
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
""",
    "let go after an optimizer was made of the rest": """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
net[0].requires_grad_(False)
opt = torch.optim.SGD([one for one in net.parameters() if one.requires_grad], 0.1)
net[0].requires_grad_(True)
opt.add_param_group({"params": net[0].parameters(), "lr": 0.01})
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
""",
    "frozen for a part of the work, each time": """\
import torch

net, judge = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
opt = torch.optim.SGD([*net.parameters(), *judge.parameters()], 0.1)
for _ in range(3):
    opt.zero_grad()
    judge.requires_grad_(False)
    judge(net(torch.randn(8, 4))).mean().backward()
    judge.requires_grad_(True)
    judge(net(torch.randn(8, 4)).detach()).pow(2).mean().backward()
    opt.step()
""",
    "frozen, with zeros, and nothing to go on with": """\
import torch

body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.1)
for turn in range(8):
    if turn == 3:
        body.requires_grad_(False)
    opt.zero_grad(set_to_none=False)
    head(body(torch.randn(8, 4))).pow(2).mean().backward()
    opt.step()
""",
    "gradients that the program estimates itself": """\
import torch

net = torch.nn.Linear(4, 1).requires_grad_(False)
probe = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for _ in range(6):
    probe(torch.randn(8, 4)).pow(2).mean().backward()
    net.weight.grad = torch.randn_like(net.weight)
    net.bias.grad = torch.randn_like(net.bias)
    opt.step()
print(probe.weight.grad)
""",
    "a critic that is frozen while the actor learns": """\
import torch

actor, critic = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
of_actor = torch.optim.SGD(actor.parameters(), 0.1, momentum=0.9)
of_critic = torch.optim.SGD(critic.parameters(), 0.1, momentum=0.9)
for _ in range(8):
    x = torch.randn(8, 4)
    critic.requires_grad_(True)
    of_critic.zero_grad(set_to_none=False)
    critic(actor(x).detach()).pow(2).mean().backward()
    of_critic.step()
    critic.requires_grad_(False)
    of_actor.zero_grad(set_to_none=False)
    critic(actor(x)).mean().backward()
    of_actor.step()
""",
    "frozen for a look between the pass and the step": """\
import torch

net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for _ in range(8):
    opt.zero_grad(set_to_none=False)
    net(torch.randn(8, 4)).pow(2).mean().backward()
    net.requires_grad_(False)
    print(net(torch.randn(2, 4)).sum().item())
    opt.step()
    net.requires_grad_(True)
""",
    "one rate, at which all begin": """\
import torch

body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
groups = [{"params": body.parameters(), "weight_decay": 0.0}, {"params": head.parameters()}]
opt = torch.optim.SGD(groups, 0.0)
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=5, cycle_momentum=False)
for _ in range(5):
    opt.zero_grad()
    head(body(torch.randn(8, 4))).pow(2).mean().backward()
    opt.step()
    schedule.step()
""",
    "a rate of 0 that the program raises itself": """\
import torch

body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
groups = [{"params": body.parameters(), "lr": 0.0}, {"params": head.parameters(), "lr": 0.1}]
opt = torch.optim.SGD(groups)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
for turn in range(6):
    if turn == 3:
        opt.param_groups[0]["lr"] = 0.01
    opt.zero_grad()
    head(body(torch.randn(8, 4))).pow(2).mean().backward()
    opt.step()
    schedule.step()
""",
}


@pytest.mark.parametrize("text", MOVED.values(), ids=MOVED)
def test_what_moves_though_it_was_to_stay_is_told(text, tmp_path):
    check_program(text, tmp_path)


@pytest.mark.parametrize("text", STAYS.values(), ids=STAYS)
def test_what_stays_or_is_meant_to_move_is_not(text, tmp_path):
    check_program(text, tmp_path)


MASKED = """
import torch
from torch import nn

torch.manual_seed(0)
net, words = nn.Linear(6, 4), nn.Embedding(9, 6)
opt = torch.optim.OPTIMIZER
x, y = torch.randint(0, 9, (32,)), torch.randn(32, 4)
mask = torch.zeros(4, 6)
mask[::2] = 1
HOOK
for turn in range(9):
    opt.zero_grad()
    loss = (net(words(x)) - y).pow(2).mean()
    loss.backward()
    if turn > 5:
        pass
        BODY
    opt.step()
    AFTER
print(net.weight.sum())
"""
ADAM = "Adam([*net.parameters(), *words.parameters()], lr=0.01)"
DECAYING = "AdamW(net.parameters(), lr=0.01, weight_decay=0.1)"
PLAIN = "SGD(net.parameters(), lr=0.01)"
IN_PART = {
    "a mask, and momentum": (ADAM, "", "net.weight.grad.mul_(mask)", "", True),
    "rows set to zero": (ADAM, "", "net.weight.grad[1] = 0", "", True),
    "rows cleared": (ADAM, "", "net.weight.grad[:2].zero_()", "", True),
    "weight decay": (DECAYING, "", "net.weight.grad.masked_fill_(mask == 0, 0.0)", "", True),
    "a hook, and weight decay": (
        DECAYING, "net.weight.register_hook(lambda grad: grad * mask)", "", "", True
    ),
    "a mask without momentum": (PLAIN, "", "net.weight.grad.mul_(mask)", "", False),
    "a mask from the first step on": (
        ADAM, "net.weight.register_hook(lambda grad: grad * mask)", "", "", False
    ),
    "rows of words that the batch lacks": (ADAM, "", "", "", False),
    "values that are written again": (
        ADAM, "kept = net.weight.detach().clone()", "net.weight.grad.mul_(mask)",
        "with torch.no_grad(): net.weight.copy_(torch.where(mask > 0, net.weight, kept))", False,
    ),
    "gradients that are only scaled": (
        DECAYING, "", "net.weight.grad.mul_(0.5); torch.nn.utils.clip_grad_norm_(net.weight, 0.1)",
        "", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PART)
def test_elements_that_move_without_a_gradient(name, tmp_path):
    optimizer, hook, body, after, told = IN_PART[name]
    text = MASKED.replace("OPTIMIZER", optimizer).replace("HOOK", hook)
    text = text.replace("BODY", body).replace("AFTER", after)
    found = [
        one for one in record_program(text, tmp_path).findings if one.slug == "parameter-moved"
    ]
    assert [one.severity for one in found] == ["note"] * told
    wanted = hook if not body and told else body
    assert all(text.splitlines()[one.site.line - 1].strip() == wanted for one in found)
