"""Blocks under activation checkpointing whose second run goes another way, and look-alikes.

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
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

"""

BROKEN = {
    "history stacked": """\
class Averaging(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.map = torch.nn.Linear(6, 6)
        self.seen = []

    def forward(self, x):
        h = self.map(x).tanh()
        self.seen.append(h)  #@ written
        return torch.stack(self.seen).exp().mean(0)  #@ read

net = Averaging()
out = checkpoint(net, torch.randn(4, 6), use_reentrant=False)  #@ checkpoint
loss = out.sum()
loss.backward()  #! tie-error loss
""",
    "warm up counter": """\
class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5)
        self.calls = 0

    def forward(self, x):
        self.calls += 1  #@ written
        y = self.first(x).sigmoid()
        if self.calls > 1:
            y = self.second(y).sigmoid()  #@ read
        return y * x.exp()

def train():
    gate = Gate()
    for _ in range(2):
        x = torch.randn(3, 5, requires_grad=True)
        total = checkpoint(gate, x, use_reentrant=False).sum()  #@ checkpoint
        total.backward()  #! tie-error total
        gate.calls = 0

train()
""",
    "global switched between": """\
SETTINGS = {"residual": True}
weight = torch.randn(4, 4, requires_grad=True)

def block(x):
    y = (x @ weight).tanh()
    if SETTINGS["residual"]:
        y = (y + x).sigmoid()  #@ read
    return y.exp()

x = torch.randn(2, 4)
objective = checkpoint(block, x, use_reentrant=False).mean()  #@ checkpoint
SETTINGS["residual"] = False  #@ written
objective.backward()  #! tie-error objective
""",
    "eval before the pass": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        x = checkpoint(self.body, x, use_reentrant=False)  #@ checkpoint
        return self.head(x)

net = Net()
out = net(torch.randn(3, 8)).mean()
net.eval()  #@ written
out.backward()  #! tie-error out
""",
    "frozen before the pass": """\
encoder, head = nn.Linear(8, 8), nn.Linear(8, 2)

def encode(x):
    return encoder(x).relu()  #@ read

def run():
    feats = checkpoint(encode, torch.randn(3, 8), use_reentrant=False)  #@ checkpoint
    loss = head(feats).square().mean()
    for p in encoder.parameters():
        p.requires_grad_(False)  #@ written
    loss.backward()  #! tie-error loss

run()
""",
    "layer drop by chance": """\
torch.manual_seed(3)

class Drop(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        keep = torch.rand(())  #@ written
        if keep < 0.5:  #@ read
            x = x + self.inner(x).tanh()
        return x.exp()

block = Drop()
for _ in range(20):
    x = torch.randn(2, 4, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)  #@ checkpoint
    y = y.sum()
    y.backward()  #! tie-error y
""",
    "python's own chance": """\
random.seed(0)
mix = torch.nn.Linear(4, 4)

def block(x):
    if random.random() < 0.5:
        x = mix(x).tanh()  #@ read
    return x.exp()

for _ in range(20):
    x = torch.randn(2, 4, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False).sum()  #@ checkpoint
    y.backward()  #! tie-error y
""",
    "a queue that fills, reentrant": """\
class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.past = None

    def forward(self, x):
        h = self.proj(x)
        if self.past is not None:
            h = torch.cat([self.past, h])  #@ read
        self.past = h.detach()  #@ written
        return h.relu()

memory = Memory()
x = torch.randn(3, 4, requires_grad=True)
y = checkpoint(memory, x, use_reentrant=True)  #@ checkpoint
loss = y.square().sum()
loss.backward()  #! tie-error loss
""",
    "fails inside, reentrant": """\
class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, 4))
        self.start = 0

    def forward(self, x):
        here = self.table[self.start : self.start + len(x)]  #@ read
        self.start += len(x)  #@ written
        return (x + here).tanh()  #! tie-error loss

positions = Positions()
x = torch.randn(10, 4, requires_grad=True)
y = checkpoint(positions, x, use_reentrant=True)  #@ checkpoint
loss = y.sum()
loss.backward()
""",
    "the second of three": """\
class Layer(nn.Module):
    def __init__(self, keeps):
        super().__init__()
        self.lin, self.keeps, self.store = nn.Linear(4, 4), keeps, {}

    def forward(self, x):
        h = self.lin(x).tanh()
        if self.keeps:
            old = self.store.get("h")
            if old is not None:
                h = torch.cat([h, old])  #@ read
            self.store["h"] = h.detach()  #@ written
        return h.exp()

layers = nn.ModuleList([Layer(False), Layer(True), Layer(False)])
x = torch.randn(2, 4)
for layer in layers:
    x = checkpoint(layer, x, use_reentrant=False)  #@ checkpoint
loss = x.sum()
loss.backward()  #! tie-error loss
""",
    "no early stop": """\
done = []
w = torch.randn(4, 4, requires_grad=True)

def block(x):
    x = (x @ w).sigmoid()
    for _ in done:
        x = (x @ w).sigmoid()  #! tie-error loss
    done.append(1)  #@ written
    return x

y = checkpoint(block, torch.randn(2, 4), use_reentrant=False, early_stop=False)  #@ checkpoint
loss = y.sum()
loss.backward()
""",
    "one of two nested": """\
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.first = True

    def forward(self, x):
        if self.first:
            x = x.sigmoid()  #@ read
        self.first = False  #@ written
        return self.lin(x).exp()

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), Inner()

    def forward(self, x):
        x = self.a(x).tanh()
        return checkpoint(self.b, x, use_reentrant=False).tanh()  #@ checkpoint

outer = Outer()
x = torch.randn(2, 4)
loss = checkpoint(outer, x, use_reentrant=False).mean()
loss.backward()  #! tie-error loss
""",
    "autocast by a flag": """\
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.half = nn.Linear(8, 8), True

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.half):
            return self.lin(x).exp()  #@ read

model = Mixed()
y = checkpoint(model, torch.randn(4, 8), use_reentrant=False)  #@ checkpoint
loss = y.float().mean()
model.half = False  #@ written
loss.backward()  #! tie-error loss
""",
    "gradients off by a flag": """\
class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.trains = nn.Linear(8, 8), True

    def forward(self, x):
        with torch.set_grad_enabled(self.trains):  #@ read
            h = self.lin(x).tanh()
        self.trains = not self.trains  #@ written
        return h * x

model = Teacher()
x = torch.randn(4, 8, requires_grad=True)
loss = checkpoint(model, x, use_reentrant=False).mean()  #@ checkpoint
loss.backward()  #! tie-error loss
""",
    "sequential": """\
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = iter(range(100))

    def forward(self, x):
        if next(self.turn) % 2 == 0:  #@ written
            x = x.tanh()  #@ read
        return x.exp()

net = nn.Sequential(nn.Linear(4, 4), Noisy(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
x = torch.randn(2, 4, requires_grad=True)
loss = checkpoint_sequential(net, 2, x, use_reentrant=False).sum()  #@ checkpoint
loss.backward()  #! tie-error loss
""",
    "a mask made lazily as well": """\
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.mask, self.extra = nn.Linear(8, 24), None, None

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.mask is None:
            self.mask = torch.ones(len(x), len(x)).tril()
        if self.extra is not None:
            v = v * self.extra  #@ read
        self.extra = v.sigmoid()  #@ written
        return (q @ k.T * self.mask).softmax(-1) @ v

attention = Attention()
loss = checkpoint(attention, torch.randn(5, 8), use_reentrant=False).sum()  #@ checkpoint
loss.backward()  #! tie-error loss
""",
    "running statistics in evaluation": """\
class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
    def forward(self, x):
        return self.norm(self.conv(x)).relu()  #@ read
conv = Conv()
loss = checkpoint(conv, torch.randn(2, 3, 8, 8), use_reentrant=False).mean()  #@ checkpoint
conv.train(False)  #@ written
loss.backward()  #! tie-error loss
""",
    "a branch by the mode, left by a function": """\
class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        x = self.a(x).tanh()
        if self.training:
            x = self.b(x).tanh()  #@ read
        return x.exp()
def validate(net):
    net.eval()  #@ written
    with torch.no_grad():
        net(torch.ones(1, 4))
net = Conv()
loss = checkpoint(net, torch.randn(2, 4), use_reentrant=False).mean()  #@ checkpoint
validate(net)
loss.backward()  #! tie-error loss
""",
    "rows chosen by chance": """\
w = torch.randn(4, 4, requires_grad=True)
def block(x):
    h = x @ w
    rows = torch.rand(len(h)) > 0.5  #@ written
    return h[rows].exp()  #@ read
loss = checkpoint(block, torch.randn(40, 4), use_reentrant=False, preserve_rng_state=False).sum()  #@ checkpoint
loss.backward()  #! tie-error loss
""",
    "a state handed over": """\
class State:
    def __init__(self): self.slots = {}
    def get(self, k): return self.slots.get(k)
    def put(self, k, v): self.slots[k] = v
class B(nn.Module):
    def __init__(self):
        super().__init__(); self.lin = nn.Linear(4, 4)
    def forward(self, x, state):
        k = self.lin(x)
        past = state.get("k")
        if past is not None:
            k = torch.cat((past, k), 0)  #@ read
        state.put("k", k)  #@ written
        return k.tanh()
b = B()
y = checkpoint(b, torch.randn(2, 4), State(), use_reentrant=False)  #@ checkpoint
loss = y.sum()
loss.backward()  #! tie-error loss
""",
    "caught by the program": """\
seen = {}
w = torch.randn(4, 4, requires_grad=True)
def block(x):
    h = x @ w
    if "h" in seen:
        h = torch.cat([seen["h"], h])  #@ read
    seen["h"] = h  #@ written
    return h.exp()
loss = checkpoint(block, torch.randn(2, 4), use_reentrant=False).sum()  #@ checkpoint
try:
    loss.backward()  #! tie-error loss (note)
except Exception as e:
    print(type(e))
""",
}

RIGHT = {
    "caches idempotently": """\
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.mask = nn.Linear(8, 24), None

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.mask is None:
            self.mask = torch.ones(len(x), len(x)).tril()
        return (q @ k.T * self.mask).softmax(-1) @ v

attention = Attention()
optimizer = torch.optim.SGD(attention.parameters(), lr=0.1)
for reentrant in (True, False):
    for _ in range(2):
        x = torch.randn(5, 8, requires_grad=True)
        loss = checkpoint(attention, x, use_reentrant=reentrant).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
    "dropout, restored": """\
net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.3))
head = nn.Linear(8, 1)
optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()])
for _ in range(3):
    x = torch.randn(4, 8, requires_grad=True)
    y = checkpoint(net, x, use_reentrant=False)
    y = checkpoint_sequential(net, 2, y, use_reentrant=True)
    loss = head(y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    net.eval()
    with torch.no_grad():
        print(checkpoint(net, x, use_reentrant=False).sum())
    net.train()
""",
    "counts its calls": """\
class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.calls, self.norms = nn.Linear(4, 4), 0, []

    def forward(self, x):
        self.calls += 1
        h = self.lin(x).tanh()
        self.norms.append(h.detach().norm().item())
        return h.exp()

net = Counted()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = checkpoint(net, torch.randn(2, 4), use_reentrant=False).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(net.calls, net.norms)
""",
    "a cache made outside": """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x, past):
        h = self.lin(x)
        if past is not None:
            h = h + past
        return h.tanh().exp()

block = Block()
optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
past = None
for _ in range(3):
    y = checkpoint(block, torch.randn(2, 4), past, use_reentrant=False)
    past = y.detach()
    loss = y.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "arguments by keyword": """\
weight = torch.randn(4, 4, requires_grad=True)

def block(x, *, preserve, log=None):
    h = x @ weight
    return torch.where(preserve, h.sigmoid(), h.exp())

x = torch.randn(2, 4)
keep = x > 0
loss = checkpoint(block, x, use_reentrant=False, preserve=keep, preserve_rng_state=False).sum()
loss.backward()
print(weight.grad)
""",
    "gradients twice, kept": """\
a, b = nn.Linear(4, 4), nn.Linear(4, 4)

def inner(x):
    return b(x).tanh()

def outer(x):
    return checkpoint(inner, a(x).tanh(), use_reentrant=False).exp()

optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
for _ in range(2):
    loss = checkpoint(outer, torch.randn(2, 4), use_reentrant=False).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
""",
}

OTHER_ERRORS = {
    "second backward": """\
class M(nn.Module):
    def __init__(self):
        super().__init__(); self.lin = nn.Linear(4, 4); self.mask = None
    def forward(self, x):
        x = self.lin(x)
        if self.mask is None:
            self.mask = torch.ones(4).cumsum(0)
        return (x * self.mask).tanh()
m = M()
loss = checkpoint(m, torch.randn(2, 4), use_reentrant=False).exp().sum()
loss.backward()
try:
    loss.backward()
except RuntimeError as e:
    print("E", str(e)[:80])
for r in (True, False):
    m.mask = None
    y = checkpoint(m, torch.randn(2, 4, requires_grad=True), use_reentrant=r)
    y.register_hook(lambda g: g)
    h = torch.randn(2, 4, requires_grad=True)
    z = h.exp()
    out = (y * 2).sum() + z.sum()
    z.add_(1)
    try:
        out.backward()
    except RuntimeError as e:
        print("E", str(e)[:80])
""",
    "own error": """\
class M(nn.Module):
    def __init__(self):
        super().__init__(); self.lin = nn.Linear(4, 4); self.mask = None; self.n = 0
    def forward(self, x):
        x = self.lin(x)
        self.n += 1
        if self.mask is None:
            self.mask = torch.ones(4).cumsum(0)
        if self.n == 2:
            raise ValueError("no more")
        return (x * self.mask).tanh()
for r in (True, False):
    m = M()
    y = checkpoint(m, torch.randn(2, 4, requires_grad=True), use_reentrant=r).sum()
    try:
        y.backward()
    except ValueError as e:
        print("E", str(e)[:80])
""",
    "forward fails": """\
w = torch.randn(3, 3, requires_grad=True)
def f(x):
    return x @ w
for r in (True, False):
    try:
        checkpoint(f, torch.randn(2, 4), use_reentrant=r)
    except RuntimeError as e:
        print("E", e)
    checkpoint(f, torch.randn(2, 3, requires_grad=True), use_reentrant=r).sum().backward()
""",
}

_ROLE = re.compile(r"#@ (\w+)$")


@pytest.mark.parametrize("name", BROKEN)
def test_lines_of_a_block_that_parts(name, tmp_path):
    text = HEAD + BROKEN[name]
    (found,) = check_program(text, tmp_path).findings
    wanted = {
        (match[1], number)
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _ROLE.search(line))
    }
    assert wanted <= {(one.role, one.site.line) for one in found.evidence}
    assert "checkpoints runs again in this pass" in found.message


@pytest.mark.parametrize("name", RIGHT)
def test_blocks_that_may_run_twice(name, tmp_path):
    check_program(HEAD + RIGHT[name], tmp_path)


@pytest.mark.parametrize("name", OTHER_ERRORS)
def test_errors_that_are_none_of_a_block(name, tmp_path):
    recording = record_program(HEAD + OTHER_ERRORS[name], tmp_path)
    assert recording.error is None
    assert not any("checkpoint" in one.message for one in recording.findings)


UNHEARD = """\
seen = []

def block(x):
    with torch._C.DisableTorchFunction():
        x = x.tanh() if seen else x.sum(-1).exp()
    seen.append(1)
    return x

loss = checkpoint(block, torch.ones(2, 3, requires_grad=True), use_reentrant=False).sum()
loss.backward()  #! tie-error loss
"""


def test_where_no_call_differs_the_checkpoint_alone_is_named(tmp_path):
    (found,) = check_program(HEAD + UNHEARD, tmp_path).findings
    assert 'runs again in this pass: PyTorch says "' in found.message
    assert [one.role for one in found.evidence] == ["checkpoint", "raised"]


def test_sentences(tmp_path):
    program = HEAD + BROKEN["global switched between"]
    (found,) = check_program(program, tmp_path).findings
    assert found.message == (
        "backward failed at line 18: the block that line 16 checkpoints runs again in this pass, and"
        " goes another way at line 12: the forward ran `y + x`, which the recomputation does not"
        " run; line 17 changes `SETTINGS`, between the two runs."
    )
    assert found.fix.text == (
        "Do what line 17 does only after the backward pass: the block runs again in it."
    )


def test_draws_are_named_where_their_state_is_not_put_back(tmp_path):
    (found,) = check_program(HEAD + BROKEN["layer drop by chance"], tmp_path).findings
    assert "draws other numbers the second time" in found.message
    assert found.fix.text.startswith("Omit preserve_rng_state=False")
