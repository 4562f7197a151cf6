"""A part that a network has in common with the one that it follows by copies, and look-alikes.

A comment ``#! alias-write subject`` is on the line that the finding must name.
"""

import pytest

from programs import check_program

HEAD = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(16, 4), torch.randn(16, 2)


class Net(nn.Module):
    def __init__(self, body, out=2):
        super().__init__()
        self.body = body
        self.last = nn.Linear(6, out)

    def forward(self, x):
        return self.last(torch.tanh(self.body(x)))


def follow(model, learner, every=3, steps=9, sync=None):
    opt = torch.optim.Adam(learner.parameters(), lr=0.01)
    for step in range(steps):
        with torch.no_grad():
            goal = y + 0.9 * model(x)
        loss = (learner(x) - goal).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % every == every - 1:
            sync(model, learner)


def load(model, learner):
    model.load_state_dict(learner.state_dict())


"""

SHARED = {
    "one body handed to both": """\
body = nn.Linear(4, 6)
learner = Net(body)
slow = Net(body)  #! alias-write slow
load(slow, learner)
follow(slow, learner, sync=load)
""",
    "a body put back after a deep copy": """\
learner = Net(nn.Linear(4, 6))
slow = copy.deepcopy(learner)
slow.body = learner.body  #! alias-write slow (note)
follow(slow, learner, sync=load)
""",
    "a method that ties one to the other": """\
class Tying(Net):
    def tie(self, other):
        self.body = other.body  #! alias-write slow (note)

learner = Tying(nn.Linear(4, 6))
slow = copy.deepcopy(learner)
slow.tie(learner)
follow(slow, learner, sync=load)
""",
    "copied by hand, in a dict of networks": """\
def sync(model, learner):
    for old, new in zip(model.parameters(), learner.parameters()):
        old.data.copy_(new.data)

trunk = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
nets = {"fast": nn.Sequential(trunk, nn.Linear(6, 2))}
nets["slow"] = nn.Sequential(trunk, nn.Linear(6, 2))  #! alias-write nets['slow']
follow(nets["slow"], nets["fast"], sync=sync)
""",
    "blended at each step": """\
def blend(model, learner, tau=0.05):
    with torch.no_grad():
        for old, new in zip(model.parameters(), learner.parameters()):
            old.copy_(tau * new + (1 - tau) * old)

body = nn.Linear(4, 6)
learner = Net(body)
slow = Net(body)  #! alias-write slow
follow(slow, learner, every=1, sync=blend)
""",
    "scaled and added to": """\
def blend(model, learner, keep=0.95):
    for old, new in zip(model.parameters(), learner.parameters()):
        old.data.mul_(keep)
        old.data.add_((1 - keep) * new.data)

body = nn.Linear(4, 6)
learner = Net(body)
slow = Net(body)  #! alias-write slow
follow(slow, learner, every=1, sync=blend)
""",
    "the last layer in common": """\
class Two(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.first, self.out = nn.Linear(4, 6), out

    def forward(self, x):
        return self.out(self.first(x).relu())

class Agent:
    def __init__(self):
        self.out = nn.Linear(6, 2)
        self.online = Two(self.out)
        self.target = Two(self.out)  #! alias-write agent.target

agent = Agent()
follow(agent.target, agent.online, sync=load)
""",
    "loaded once, before the training": """\
body = nn.Linear(4, 6)
learner = Net(body)
slow = Net(body)  #! alias-write slow (note)
load(slow, learner)
follow(slow, learner, sync=lambda *_: None)
""",
}

RIGHT = {
    "a deep copy": """\
learner = Net(nn.Linear(4, 6))
slow = copy.deepcopy(learner)
follow(slow, learner, sync=load)
""",
    "a body that no step moves": """\
body = nn.Linear(4, 6).requires_grad_(False)
learner = Net(body)
slow = Net(body)
load(slow, learner)
follow(slow, learner, sync=load)
""",
    "only the rest is copied": """\
body = nn.Linear(4, 6)
learner, slow = Net(body), Net(body)
follow(slow, learner, sync=lambda one, other: load(one.last, other.last))
""",
    "two heads of one body that both train, begun alike": """\
body = nn.Linear(4, 6)
one, other = Net(body), Net(body)
load(one, other)
opt = torch.optim.SGD([*body.parameters(), *one.last.parameters(), *other.last.parameters()], 0.1)
for _ in range(6):
    opt.zero_grad()
    ((one(x) - y).pow(2).mean() + (other(x) - 2 * y).pow(2).mean()).backward()
    opt.step()
    print(one(x).mean().item(), other(x).mean().item())
""",
    "an actor and a critic with one encoder, each with a target of its own": """\
encoder = nn.Linear(4, 6)
actor, critic = Net(encoder), Net(encoder, 1)
goals = copy.deepcopy(nn.ModuleList([actor, critic]))
every = [*encoder.parameters(), *actor.last.parameters(), *critic.last.parameters()]
opt = torch.optim.Adam(every, lr=0.01)
for step in range(9):
    with torch.no_grad():
        goal = goals[1](x) + goals[0](x).mean()
    opt.zero_grad()
    ((critic(x) - goal).pow(2).mean() - actor(x).mean()).backward()
    opt.step()
    if step % 3 == 2:
        load(goals[0], actor)
        load(goals[1], critic)
""",
    "weights that are tied within each": """\
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.out = nn.Linear(4, 4), nn.Linear(4, 2)
        self.again = self.inside

    def forward(self, x):
        return self.out(self.again(self.inside(x)))

learner = Tied()
slow = copy.deepcopy(learner)
follow(slow, learner, sync=load)
""",
    "an average with the buffers of the other one": """\
class Normed(Net):
    def __init__(self, body):
        super().__init__(body)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.mean(0), 0.1)
        return super().forward(x - self.mean)

learner = Normed(nn.Linear(4, 6))
slow = copy.deepcopy(learner)
slow.mean = learner.mean
def blend(model, learner):
    with torch.no_grad():
        for old, new in zip(model.state_dict().values(), learner.state_dict().values()):
            old.lerp_(new, 0.1)
follow(slow.eval(), learner, every=1, sync=blend)
""",
    "an old policy that is used only right after it was loaded": """\
body = nn.Linear(4, 6)
learner, old = Net(body), Net(body)
opt = torch.optim.SGD(learner.parameters(), lr=0.01)
for _ in range(4):
    load(old, learner)
    with torch.no_grad():
        before = old(x)
    for _ in range(3):
        opt.zero_grad()
        ((learner(x) - y).pow(2).mean() + (learner(x) - before).pow(2).mean()).backward()
        opt.step()
""",
    "begun alike, then trained by optimizers of their own": """\
table = nn.Linear(4, 6)
one, other = Net(table), Net(table)
load(other, one)
first = torch.optim.SGD(one.parameters(), lr=0.01)
second = torch.optim.SGD(other.last.parameters(), lr=0.01)
for _ in range(5):
    for net, opt in ((one, first), (other, second)):
        one.zero_grad()
        other.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        opt.step()
""",
    "what a learner gives comes to the target through the world": """\
learner = Net(nn.Linear(4, 6), 4)
slow = copy.deepcopy(learner)
opt = torch.optim.Adam(learner.parameters(), lr=0.01)
state = torch.randn(16, 4)
for step in range(9):
    after = (state + 0.1 * learner(state)).detach()
    with torch.no_grad():
        goal = 0.9 * slow(after) + after
    opt.zero_grad()
    (learner(state) - goal).pow(2).mean().backward()
    opt.step()
    state = after
    if step % 3 == 2:
        load(slow, learner)
""",
}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_to_stand_still_moves(name, tmp_path):
    recording = check_program(HEAD + SHARED[name], tmp_path)
    found = [one for one in recording.findings if one.slug == "alias-write"]
    assert len(found) == 1
    assert {"written", "read", "copied"} <= {one.role for one in found[0].evidence}


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_be_shared(name, tmp_path):
    recording = check_program(HEAD + RIGHT[name], tmp_path)
    assert not [one for one in recording.findings if one.operation == "step"]
