"""Tensors that are given their own values, gradients that another's loss left, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

FOLLOWING = """\
import copy
import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
target = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def learn():
    x = torch.rand(8, 3)
    opt.zero_grad()
    (net(x) - 0.5 * target(x).detach() - 1).pow(2).mean().backward()
    opt.step()


"""

FOLLOWS_ITSELF = {
    "its own state": """\
for _ in range(4):
    learn()
    state = target.state_dict()
    target.load_state_dict(state)  #! values-lost target.weight
""",
    "its own state, once: nothing of what was saved bears one of its names": """\
saved = {f"module.{name}": one.clone() for name, one in net.state_dict().items()}
own = target.state_dict()
own.update({name: one for name, one in saved.items() if name in own})
target.load_state_dict(own)  #! values-lost target.weight (note)
for _ in range(4):
    learn()
""",
    "copied from itself by two names": """\
for _ in range(4):
    learn()
    for old, new in zip(target.parameters(), target.parameters()):
        old.data.copy_(new.data)  #! values-lost target.weight
""",
    "a sum of itself and itself": """\
def follow(one, other, tau=0.1):
    for a, b in zip(one.parameters(), other.parameters()):
        b.data.copy_(tau * a.data + (1 - tau) * b.data)  #! values-lost target.weight


for _ in range(4):
    learn()
    follow(target, target)
""",
    "a sum made as a dict, and loaded": """\
for _ in range(4):
    learn()
    mine, theirs = target.state_dict(), target.state_dict()
    mixed = {name: 0.1 * mine[name] + 0.9 * theirs[name] for name in mine}
    target.load_state_dict(mixed)  #! values-lost target.weight
""",
    "two that an assignment makes one": """\
class Agent:
    def __init__(self):
        self.net, self.target = net, target

    def follow(self):
        self.target.load_state_dict(self.net.state_dict())  #! values-lost net.weight
        self.target = self.net


agent = Agent()
for _ in range(5):
    learn()
    agent.follow()
""",
}

FOLLOWS = {
    "several that follow one, itself among them": """\
models = [copy.deepcopy(net) for _ in range(2)] + [net]
for _ in range(5):
    learn()
    for one in models:
        one.load_state_dict(net.state_dict())
""",
    "several that follow one, itself the first": """\
models = [net] + [copy.deepcopy(net) for _ in range(2)]
for _ in range(5):
    learn()
    for one in models:
        one.load_state_dict(net.state_dict())
""",
    "one that takes its turn": """\
models = [copy.deepcopy(net) for _ in range(2)] + [net]
for turn in range(6):
    learn()
    models[turn % 3].load_state_dict(net.state_dict())
""",
    "a state that is changed in place, or in part, before it is loaded": """\
for _ in range(4):
    learn()
    state = target.state_dict()
    for name, one in net.state_dict().items():
        state[name].lerp_(one, 0.1)
    target.load_state_dict(state)
    target.load_state_dict({**target.state_dict(), "bias": net.bias})
""",
    "what an earlier run kept over its own state: nothing, at the first start": """\
kept = {}
target.load_state_dict({**target.state_dict(), **kept.get("weights", {})})
target.load_state_dict(target.state_dict() | kept)
target.load_state_dict({name: kept.get(name, one) for name, one in target.state_dict().items()})
for _ in range(4):
    learn()
""",
    "a state of the beginning, loaded anew": """\
fresh = copy.deepcopy(net.state_dict())
for _ in range(4):
    net.load_state_dict(fresh)
    learn()
""",
    "one memory by the name of an attribute and a short one": """\
for _ in range(4):
    learn()
    with torch.no_grad():
        for one in net.parameters():
            values = one.data
            values.add_(one.data, alpha=-0.01)
            values.copy_(0.9 * values + 0.1 * one.data.clamp(-1, 1))
""",
    "blended with another one": """\
for _ in range(4):
    learn()
    for a, b in zip(net.parameters(), target.parameters()):
        b.data.copy_(0.1 * a.data + 0.9 * b.data)
        b.data.add_(0.1 * (a.data - b.data))
        b.data.mul_(0.9).add_(a.data, alpha=0.1)
""",
    "halved, and touched": """\
for _ in range(4):
    learn()
    with torch.no_grad():
        for one in target.parameters():
            one.copy_(one * 0.5 + one * 0.4)
            one.copy_(one)
""",
}

GAME = """\
import torch
from torch import nn

torch.manual_seed(0)
maker, judge = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
first, second = torch.optim.SGD(maker.parameters(), 0.1), torch.optim.SGD(judge.parameters(), 0.1)


def made():
    return maker(torch.randn(8, 3))


def judged(x):
    return judge(x).sigmoid().mean()


"""

LEFT_BEHIND = {
    "the judge's loss reaches the maker": """\
for _ in range(6):
    first.zero_grad()
    second.zero_grad()
    loss = judged(made()) - judged(torch.rand(8, 2))
    loss.backward()  #! gradient-accumulated maker.weight (note)
    second.step()
    (-judged(made())).backward()
    first.step()
""",
    "the maker steps first": """\
for _ in range(6):
    (-judged(made())).backward()  #! gradient-accumulated judge.0.weight (note)
    first.step()
    (judged(made()) - judged(torch.rand(8, 2))).backward()
    second.step()
    first.zero_grad()
    second.zero_grad()
""",
    "over many steps, of which few are walked": """\
for _ in range(60):
    (-judged(made())).backward()  #! gradient-accumulated judge.0.weight (note)
    first.step()
    (judged(made()) - judged(torch.rand(8, 2))).backward()
    second.step()
    first.zero_grad()
    second.zero_grad()
""",
}

CLEARED = {
    "cleared right before": """\
for _ in range(6):
    second.zero_grad()
    (judged(made()) - judged(torch.rand(8, 2))).backward()
    second.step()
    first.zero_grad()
    (-judged(made())).backward()
    first.step()
""",
    "detached": """\
for _ in range(6):
    first.zero_grad()
    second.zero_grad()
    (judged(made().detach()) - judged(torch.rand(8, 2))).backward()
    second.step()
    (-judged(made())).backward()
    first.step()
""",
    "two heads of one body, each with an optimizer": """\
heads = nn.Linear(2, 1), nn.Linear(2, 1)
of = [torch.optim.SGD(one.parameters(), 0.1) for one in heads]
for _ in range(6):
    for one in (first, *of):
        one.zero_grad()
    for head, one in zip(heads, of):
        (head(made()) - 1).pow(2).mean().backward()
        one.step()
    first.step()
""",
    "one pass, and two optimizers that step on it": """\
for _ in range(6):
    first.zero_grad()
    second.zero_grad()
    judged(made()).backward()
    first.step()
    second.step()
""",
    "what the second loss adds to the judge is used as well": """\
for _ in range(6):
    judged(made()).backward()
    second.step()
    second.zero_grad()
    (-judged(made())).backward()
    first.step()
    first.zero_grad()
    second.step()
    second.zero_grad()
""",
}

ADAPTED = """\
import torch
from torch.func import functional_call

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)


def loss_of(weights):
    return (functional_call(net, weights, torch.rand(8, 3)) - 1).pow(2).mean()


def adapted(steps=3):
    weights = dict(net.named_parameters())
    for _ in range(steps):
        wanted = list(weights.values())
        found = torch.autograd.grad(loss_of(weights), wanted)  #! gradient-lost net.weight (note)
        weights = {name: one - 0.1 * g for (name, one), g in zip(weights.items(), found)}
    return weights


for _ in range(10):
    print(loss_of(adapted()).item())
for _ in range(3):
    opt.zero_grad()
    loss_of(adapted()).backward()
    opt.step()
"""


@pytest.mark.parametrize("body", FOLLOWS_ITSELF.values(), ids=FOLLOWS_ITSELF)
def test_what_is_given_its_own_values(body, tmp_path):
    check_program(FOLLOWING + body, tmp_path)


def test_a_state_to_which_nothing_was_added_may_be_meant_to_get_something(tmp_path):
    body = """\
for kept in ({}, {"old.weight": 1}, {}):
    state = net.state_dict()
    state.update({name: one for name, one in kept.items() if name in state})
    net.load_state_dict(state)
    learn()
"""
    found = record_program(FOLLOWING + body, tmp_path).findings
    (lost,) = [one for one in found if one.slug == "values-lost"]
    assert lost.count == 3
    assert "if it is to load other values" in lost.fix.text


@pytest.mark.parametrize("body", FOLLOWS.values(), ids=FOLLOWS)
def test_what_is_given_others(body, tmp_path):
    found = check_program(FOLLOWING + body, tmp_path).findings
    assert not [one for one in found if one.slug == "values-lost"]


@pytest.mark.parametrize("body", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_a_step_on_what_the_loss_of_another_left(body, tmp_path):
    check_program(GAME + body, tmp_path)


@pytest.mark.parametrize("body", CLEARED.values(), ids=CLEARED)
def test_a_step_on_gradients_that_are_its_own(body, tmp_path):
    found = check_program(GAME + body, tmp_path).findings
    assert not [one for one in found if one.slug == "gradient-accumulated"]


def test_a_constant_update_is_found_after_an_evaluation_of_many(tmp_path):
    check_program(ADAPTED, tmp_path)


BEST = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.rand(8, 3)
lowest, kept = float("inf"), None
for epoch in range(4):
    opt.zero_grad()
    loss = (net(x) - 1).square().mean()
    loss.backward()
    opt.step()
    if loss.item() < lowest:
        lowest, kept = loss.item(), KEPT
AFTER
net.load_state_dict(kept)
"""


def test_a_state_that_was_kept_as_the_best_is_to_be_copied(tmp_path):
    text = BEST.replace("lowest, kept = loss.item(), KEPT", "kept = net.state_dict()")
    text = text.replace("AFTER", "print(net(x).sum().item())")
    (one,) = [one for one in record_program(text, tmp_path).findings if one.slug == "values-lost"]
    assert one.fix.text.startswith("`kept` holds the model's own memory")
    assert "keep `copy.deepcopy(net.state_dict())` at line 16" in one.fix.text
    right = text.replace("kept = net.state_dict()", "kept = copy.deepcopy(net.state_dict())")
    found = record_program(right, tmp_path, "right.py").findings
    assert not [one for one in found if one.slug == "values-lost"]


OWN_COPY = """\
def remember(weight):
    weight.kept = weight.data.clone()


for _ in range(4):
    for one in net.parameters():
        remember(one)
    for one in net.parameters():
        one.data.copy_(one.kept)
    learn()
"""


def test_a_copy_of_its_own_copy_is_to_be_left_out(tmp_path):
    found = record_program(FOLLOWING + OWN_COPY, tmp_path).findings
    (one,) = [one for one in found if one.slug == "values-lost"]
    assert one.fix.text == "Leave `one.data.copy_(one.kept)` out: nothing changes by it."
