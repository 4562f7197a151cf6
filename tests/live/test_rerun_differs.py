"""Checkpointed blocks whose second run computes something else and raises nothing, and look-alikes.

Each program says in comments what must be found and where (see `programs.py`), and behind ``#@`` the
role of each line that the finding must name.
"""

import re

import pytest

from programs import check_program, record_program

HEAD = """\
import random
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)
"""

BROKEN = {
    "dropout without its random state": """\
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def mix(self, x):
        return self.down(F.dropout(self.up(x).relu(), 0.2))  #@ drawn

    def forward(self, x):
        return x + checkpoint(self.mix, x, use_reentrant=False, preserve_rng_state=False)  #! rerun-differs loss

net = Encoder()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.randn(4, 8)).square().mean()
    opt.zero_grad()
    loss.backward()  #@ loss
    opt.step()
""",
    "noise without its random state, reentrant": """\
scale = nn.Parameter(torch.ones(6))

def block(x):
    noise = torch.randn_like(x)  #@ drawn
    return (x * scale + 0.1 * noise * x).tanh()

for _ in range(2):
    x = torch.randn(3, 6, requires_grad=True)
    out = checkpoint(block, x, use_reentrant=True, preserve_rng_state=False)  #! rerun-differs error
    error = out.square().sum()
    error.backward()
""",
    "weights decayed before the pass": """\
body = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh())
opt = torch.optim.SGD(body.parameters(), lr=0.1)
for _ in range(3):
    out = checkpoint(body, torch.randn(4, 6), use_reentrant=False)  #@ checkpoint
    loss = out.square().mean()
    with torch.no_grad():
        for weight in body.parameters():
            weight.mul_(0.99)  #! rerun-differs body.0.weight
    opt.zero_grad()
    loss.backward()  #@ loss
    opt.step()
""",
    "one optimizer steps before the other's pass": """\
critic, actor = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1), nn.Tanh()), nn.Linear(4, 4)
critics = torch.optim.SGD(critic.parameters(), lr=0.1)
actors = torch.optim.SGD(actor.parameters(), lr=0.1)
for _ in range(3):
    states = torch.randn(8, 4)
    policy_loss = -checkpoint(critic, actor(states), use_reentrant=False).mean()  #@ checkpoint
    value_loss = critic(states).square().mean()
    critics.zero_grad()
    value_loss.backward()
    critics.step()  #! rerun-differs critic.0.weight
    actors.zero_grad()
    policy_loss.backward()
    actors.step()
""",
    "a state that the block moves on": """\
class Filter(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(5, 5)
        self.register_buffer("level", torch.zeros(5))

    def forward(self, x):
        with torch.no_grad():
            self.level.mul_(0.9).add_(x.mean(0))  #! rerun-differs model.level
        return self.mix(x - self.level).tanh()

model = Filter()
for _ in range(2):
    loss = checkpoint(model, torch.randn(4, 5), use_reentrant=False).square().sum()  #@ checkpoint
    loss.backward()
""",
    "a mask of the closure is written before the pass": """\
layer = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 4), nn.Sigmoid())
mask = torch.zeros(2, 4)

def masked(x):
    return layer(x * mask).exp()

for step in range(4):
    mask[:] = (torch.rand(2, 4) < 0.5).float()
    loss = checkpoint(masked, torch.randn(2, 4), use_reentrant=False).sum()  #@ checkpoint
    mask.zero_()  #! rerun-differs mask
    loss.backward()
""",
    "another activation the second time": """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.map, self.smooth = nn.Linear(4, 4), True

    def forward(self, x):
        h = self.map(x)
        h = torch.tanh(h) if self.smooth else torch.sigmoid(h)
        return h.exp()

block = Block()
loss = checkpoint(block, torch.randn(3, 4), use_reentrant=False).sum()  #! rerun-differs loss
block.smooth = False
loss.backward()
""",
    "norm": """\
net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = checkpoint(net, torch.randn(8, 4), use_reentrant=False).square().mean()  #! rerun-differs net.1.running_mean (note)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}

RIGHT = {
    "dropout with its random state": """\
net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 6))
for _ in range(2):
    checkpoint(net, torch.randn(3, 6), use_reentrant=False).square().sum().backward()
""",
    "nothing drawn, so no random state is needed": """\
net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 6)).eval()
for _ in range(2):
    x = torch.randn(3, 6)
    checkpoint(net, x, use_reentrant=False, preserve_rng_state=False).square().sum().backward()
""",
    "the block sets its own seed": """\
w = torch.randn(5, 5, requires_grad=True)

def block(x, seed):
    torch.manual_seed(seed)
    return (F.dropout(x, 0.3) @ w).tanh()

for step in range(3):
    out = checkpoint(block, torch.randn(2, 5), step, use_reentrant=False, preserve_rng_state=False)
    out.sum().backward()
""",
    "a generator of its own, put back": """\
w = torch.randn(5, 5, requires_grad=True)

def block(x, seed):
    drawn = torch.Generator().manual_seed(seed)
    return ((x + torch.randn(x.shape, generator=drawn)) @ w).tanh()

for step in range(3):
    out = checkpoint(block, torch.randn(2, 5), step, use_reentrant=False, preserve_rng_state=False)
    out.sum().backward()
""",
    "a scratch buffer that each run fills": """\
class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(6, 4)
        self.register_buffer("room", torch.zeros(3, 6))

    def forward(self, x):
        self.room.zero_()
        self.room[:, 1:5] = x
        return self.map(self.room.clone()).tanh()

net = Padded()
for _ in range(3):
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum().backward()
""",
    "a step after each pass, and averages of weights": """\
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
average = [one.detach().clone() for one in net.parameters()]
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    x = torch.randn(3, 4)
    loss = checkpoint(net, x, use_reentrant=False).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for kept, one in zip(average, net.parameters()):
            kept.lerp_(one, 0.1)
""",
    "several batches before their passes": """\
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    losses = [checkpoint(net, torch.randn(3, 4), use_reentrant=False).mean() for _ in range(3)]
    opt.zero_grad()
    for loss in losses:
        loss.backward()
    opt.step()
""",
    "a table made at the first run, and a look at the values": """\
class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.map, self.table, self.calls = nn.Linear(4, 4), None, 0

    def forward(self, x):
        if self.table is None:
            self.table = torch.linspace(0, 1, 4).cos()
        h = self.map(x) * self.table
        self.calls += 1
        if self.calls % 2:
            print(h.detach().norm().item() > 0)
        return h.tanh()

net = Turned()
for reentrant in (True, False):
    x = torch.randn(2, 4, requires_grad=True)
    checkpoint(net, x, use_reentrant=reentrant).sum().backward()
""",
    "nested blocks": """\
inner, outer = nn.Linear(4, 4), nn.Linear(4, 4)

def inside(x):
    return inner(x).tanh()

def around(x):
    return outer(checkpoint(inside, x, use_reentrant=False)).tanh()

for _ in range(2):
    checkpoint(around, torch.randn(2, 4), use_reentrant=False).sum().backward()
parts = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)))
for _ in range(2):
    x = torch.randn(2, 4, requires_grad=True)
    checkpoint_sequential(parts, 2, x, use_reentrant=True).sum().backward()
""",
    "norm in evaluation mode": """\
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4)).eval()
for _ in range(2):
    checkpoint(net, torch.randn(8, 4), use_reentrant=False).square().mean().backward()
""",
}


_ROLE = re.compile(r"#@ (\w+)$")


@pytest.mark.parametrize("name", BROKEN)
def test_a_block_that_computes_something_else(name, tmp_path):
    text = HEAD + BROKEN[name]
    found = check_program(text, tmp_path).findings
    told = {(step.role, step.site.line) for one in found for step in one.evidence}
    wanted = {
        (match[1], number)
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _ROLE.search(line))
    }
    assert wanted <= told


@pytest.mark.parametrize("name", RIGHT)
def test_a_block_that_computes_the_same(name, tmp_path):
    recording = record_program(HEAD + RIGHT[name], tmp_path)
    assert not [one for one in recording.findings if one.slug == "rerun-differs"]
