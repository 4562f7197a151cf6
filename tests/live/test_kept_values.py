"""The law of kept values, on small programs: what acted is listed, what cannot be meant is told.

A line marked ``#! slug subject`` must have that finding; a line marked ``#~`` must be named by one
of the first ten ties listed. A program of `RIGHT` gives no finding of severity warning or error.
"""

import io
import json
import re
from collections import Counter

import jsonschema
import pytest

from programs import check_program, expected_in, found_in, record_program
from tether.analysis.ties import Ties
from tether.record.names import holders
from tether.report.formats.json import schema

HEAD = """\
import copy, functools, os, tempfile
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
"""
LOOP = """
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = torch.arange(12.).reshape(4, 3) / 12

def train():
    opt.zero_grad()
    loss = model(data).pow(2).mean()
    loss.backward()
    opt.step()
    return loss
"""

BESIDE = """
class Cart:
    def __init__(self):
        self.at = np.zeros(3, dtype=np.float32)

    def push(self):
        self.at += 0.5
        return self.at

"""

ACTED = {
    "an array that moves, with a copy of where it was beside it": BESIDE
    + """
def drift(cart):
    now = torch.as_tensor(cart.at)  #! alias-write now (note)
    first = now.detach().clone()
    for _ in range(4):
        cart.push()
    return torch.dist(first, now)

print(drift(Cart()))
""",
    "weights that move, with a copy of where they began beside them": LOOP
    + """
def distance():
    live = model[0].weight.detach()  #! alias-write live (note)
    start = live.clone()
    for _ in range(3):
        train()
    return (live - start).norm()

print(distance())
""",
    "a copy that another function made of it": BESIDE
    + """
def louder(x):
    y = x.clone()
    return y.mul_(2)

def run(cart):
    first = torch.from_numpy(cart.at)  #! alias-write first
    loud = louder(first)
    cart.push()
    return (loud - first).sum()

print(run(Cart()))
""",
    "a copy made after the write": BESIDE
    + """
def run(cart):
    first = torch.from_numpy(cart.at)  #! alias-write first
    cart.push()
    now = first.clone()
    return (now - first).sum()

print(run(Cart()))
""",
    "a copy of the last one, and a record that follows": LOOP
    + """
def distance():
    best = model.state_dict()  #! alias-write best
    start = model[0].weight.detach().clone()
    for _ in range(3):
        train()
    print((start - model[0].weight.detach()).norm())
    model.load_state_dict(best)

distance()
""",
    "a model loaded with its own values, and two nets that share a trunk": LOOP
    + """
class Heads:
    def __init__(self, trunk):
        self.live = nn.Sequential(trunk, nn.Linear(1, 1))
        self.slow = nn.Sequential(trunk, nn.Linear(1, 1))

heads = Heads(model)
for _ in range(3):
    train()
    model.load_state_dict(model.state_dict())
    heads.slow.load_state_dict(heads.live.state_dict())
print(heads.slow(data) - heads.live(data))
""",
    "an output layer that has nothing but the weight of the input layer": """
class Back(nn.Module):
    def __init__(self, into):
        super().__init__()
        self.weight = into.weight

    def forward(self, x):
        return x @ self.weight

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(3, 2, bias=False)
        self.back = Back(self.into)

    def forward(self, x):
        return self.back(self.into(x))

net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.ones(1, 3)).sum().backward()
    opt.step()
""",
    "weights that change places, and a tie made again after loading": """
def tied():
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False), nn.Linear(5, 5))
    net[1].weight = net[0].weight
    return net

model = tied()
state = {name: value.double().float() for name, value in model.state_dict().items()}
model.load_state_dict(state, assign=True)
model[1].weight = model[0].weight
other = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
other[0].weight, other[1].weight = other[1].weight, other[0].weight
opt = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = model(torch.tensor([0, 1])).pow(2).sum()
    (loss + other[0](other[1](torch.ones(1, 3))).sum()).backward()
    opt.step()
""",
    "a second name for a model that is copied onto itself": LOOP
    + """
class Pair:
    def __init__(self, live):
        self.live = live
        self.slow = live  #! alias-write pair.slow

    def sync(self):
        self.slow.load_state_dict(self.live.state_dict())

pair = Pair(model)
for _ in range(4):
    train()
    pair.sync()
print((pair.live(data) - pair.slow(data)).abs().max())
""",
    "a model of its own that gives way to the other after the first copy": LOOP
    + """
class Pair:
    def __init__(self, live):
        self.live = live
        self.slow = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.sync()

    def sync(self):
        self.slow.load_state_dict(self.live.state_dict())
        self.slow = self.live  #! alias-write pair.slow

pair = Pair(model)
for _ in range(4):
    train()
    pair.sync()
print((pair.live(data) - pair.slow(data)).abs().max())
""",
    "a shallow copy kept as an attribute": LOOP
    + """
class Judge:
    def __init__(self, net):
        self.net = net
        self.before = copy.copy(self.net)  #! alias-write judge.before

judge = Judge(model)
for _ in range(3):
    train()
print((judge.net(data) - judge.before(data)).abs().max())
""",
    "a tie that loading with assign=True takes away before anything is trained": """
def tied():
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    net[1].weight = net[0].weight
    return net

model = tied()
state = {name: value.double().float() for name, value in model.state_dict().items()}
model.load_state_dict(state, assign=True)  #! tie-lost model.1.weight
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    model(torch.tensor([0, 1])).pow(2).sum().backward()
    opt.step()
""",
    "a tie that loading with assign=True takes away from the second model of a function": """
def tied():
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    net[1].weight = net[0].weight
    return net

def fit(net):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(40):
        opt.zero_grad()
        net(torch.tensor([0, 1])).pow(2).mean().backward()
        opt.step()
    return net

def both():
    first = fit(tied())
    second = tied()
    state = {"0.weight": first[0].weight.detach().clone()}
    second.load_state_dict(state, strict=False, assign=True)  #! tie-lost net.1.weight
    fit(second)

both()
""",
    "a default of a class's first method": """
class Drift:
    def __init__(self, at=torch.zeros(2)):  #! alias-write at
        self.at = at

    def move(self, step):
        self.at += step
        return self.at.sum()

left, right = Drift(), Drift()
print([left.move(1.0).item() + right.move(-2.0).item() for _ in range(3)])
""",
    "rows that change places": """
board = torch.arange(6.).reshape(3, 2)
board[0], board[2] = board[2], board[0]  #! alias-write `board[0]`
print(board)
""",
    "a product written onto its factor": """
spread, state = torch.rand(3, 3), torch.ones(1, 3)
for _ in range(3):
    torch.mm(state, spread, out=state)  #! alias-write state (note)
print(state)
""",
    "a result that is given another name": """
def gated(x):
    gate = x.sigmoid_()  #~
    return x * gate  #~
print(gated(torch.ones(3)))
""",
    "a teacher that is its student": LOOP
    + """
teacher = model  #~
before = teacher(data).mean()
for _ in range(3):
    train()
print(before, teacher(data).mean(), model(data).mean())
""",
    "one accumulator in every slot": """
def main():
    zero = torch.zeros(4)
    sums = [zero] * 3  #~
    for k in range(6):
        sums[k % 3].add_(float(k))  #~
    print([s.sum().item() for s in sums])
main()
""",
    "a workspace that is returned and kept": """
class Kernel:
    def __init__(self, n):
        self.work = torch.empty(n)

    def row(self, x):
        torch.mul(x, 2, out=self.work)  #~
        return self.work

kernel, rows = Kernel(3), []
for k in range(4):
    rows.append(kernel.row(torch.full((3,), float(k))))
print(torch.stack(rows))
""",
    "an environment's own state": """
class Env:
    def __init__(self):
        self.state = np.zeros(3, dtype=np.float32)

    def step(self):
        self.state += 1
        return self.state

def main():
    env, seen = Env(), []
    for _ in range(4):
        seen.append(torch.as_tensor(env.step()))  #! alias-write seen[0]
    print(torch.stack(seen).sum(1))
main()
""",
    "one head for all tasks": """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict(dict.fromkeys(["a", "b"], nn.Linear(3, 1)))  #~

    def forward(self, x):
        return sum(head(x).pow(2).mean() for head in self.heads.values())

def main():
    net = Heads()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        opt.zero_grad()
        net(torch.ones(4, 3)).backward()
        opt.step()
main()
""",
    "an object under another name": """
class State:
    def __init__(self):
        self.place = torch.zeros(2)

def main():
    state, track = State(), []
    for step in range(3):
        before = state  #~
        state.place += step
        track.append((state.place - before.place).sum().item())
    print(track)
main()
""",
    "gradients kept by reference": LOOP
    + """
def gradients():
    kept = []
    for power in (1, 2, 3):
        opt.zero_grad(set_to_none=False)  #~
        model(data).pow(power).mean().backward()
        kept.append([p.grad for p in model.parameters()])
    return kept
train()
found = gradients()
print((found[0][0] - found[1][0]).norm())
""",
    "NumPy's view of a parameter written": LOOP
    + """
def prune(layer):
    w = layer.weight.detach().numpy()  #~
    w[np.abs(w) < 0.3] = 0

with torch.no_grad():
    before = model(data).sum()
prune(model[0])
print(before - model(data).sum())
""",
    "a conversion that copied nothing": """
def centred(x):
    y = x.to(torch.float32)  #~
    y -= y.mean()
    return y

def main():
    x = torch.arange(6.)
    y = centred(x)
    print(x.sum(), y.std())
main()
""",
    "a bytearray that is read into again": """
import io
stream, buffer, frames = io.BytesIO(bytes(range(64))), bytearray(16), []
while stream.readinto(buffer):
    frames.append(torch.frombuffer(buffer, dtype=torch.uint8))  #! alias-write frames
print(torch.stack(frames).sum(1))
""",
    "a mapped file normalised in place": """
path = os.path.join(tempfile.mkdtemp(), "x.bin")
np.arange(8, dtype=np.float32).tofile(path)
mapped = np.memmap(path, dtype=np.float32, mode="r+")

def load():
    x = torch.from_numpy(mapped)  #~
    x.sub_(x.mean()).div_(x.std())
    return x

for epoch in range(2):
    print(load().sum())
""",
    "a copy that a function made, written later and never read": """
def grid(x):
    return x.view(2, 2, 2).permute(1, 0, 2).reshape(2, 4)

def corrupt(x):
    patches = grid(x)
    mask = (torch.rand(2) > 0.5).logical_not().logical_not()
    patches[mask] = 0.0  #! alias-write x.view(2, 2, 2).permute(1, 0, 2)
    return x, mask

for _ in range(3):
    print(*corrupt(torch.ones(2, 4)))
""",
    "rows of an array normalised in place, never the first": """
rows = np.ones((4, 3), np.float32)

def load(i):
    x = torch.from_numpy(rows[i])  #~
    x.sub_(0.5).div_(2)
    return x

for epoch in range(2):
    print(load(3).sum() + load(2).sum())
""",
    "a cached tensor edited by its caller": """
@functools.lru_cache(maxsize=None)
def positions(n):
    return torch.arange(float(n))

def encode(n, shift):
    p = positions(n)
    p += shift  #! alias-write p
    return p.sum()

print(encode(4, 1), encode(4, 1))
""",
    "a helper that edits its argument": """
def whiten(x):
    x -= x.mean(0)  #! alias-write batch
    x /= x.std(0)
    return x

def main():
    batch = torch.arange(12.).reshape(4, 3)
    white = whiten(batch)
    print(batch.mean(), white.mean())
main()
""",
    "two slices swapped": """
def main():
    grid = torch.arange(8.).reshape(2, 4)
    grid[0], grid[1] = grid[1], grid[0]  #~
    print(grid)
main()
""",
    "shifted within itself": """
def main():
    table = torch.arange(20.).reshape(4, 5)
    table[:, 1:4].copy_(table[:, 0:3])  #! alias-write `table[:,
    print(table)
main()
""",
    "vector_to_parameters": LOOP
    + """
def main():
    theta = nn.utils.parameters_to_vector(model.parameters()).detach()
    nn.utils.vector_to_parameters(theta, model.parameters())  #~
    first = model(data).sum().item()
    theta += 0.5  #~
    print(first, model(data).sum().item())
main()
""",
    "prefixes of a reused cache": """
class Cache:
    def __init__(self, n):
        self.keys = torch.zeros(n, 2)
        self.used = 0

    def append(self, k):
        self.keys[self.used] = k  #~
        self.used += 1
        return self.keys[:self.used]  #~

    def reset(self):
        self.used = 0

cache, stored = Cache(4), []
for prompt in range(2):
    cache.reset()
    for k in range(3):
        prefix = cache.append(torch.full((2,), prompt * 10. + k))
    stored.append(prefix)
print(stored[0].sum(), stored[1].sum())
""",
    "running statistics kept": """
bn, history = nn.BatchNorm1d(2), []
for k in range(4):
    bn(torch.randn(8, 2) + k)  #~
    history.append(bn.running_mean)
print(torch.stack(history))
""",
    "the previous iterate is a view": """
def solve():
    x = torch.ones(4)
    for _ in range(5):
        last = x.view(-1)  #! alias-write last
        x *= 0.5
        if torch.norm(x - last) < 1e-3:
            break
    return x
print(solve())
""",
    "the previous iterate is the same object": """
def solve():
    x = torch.ones(4)
    for _ in range(5):
        last = x  #~
        x *= 0.5
        if torch.dist(x, last) < 1e-3:
            break
    return x
print(solve())
""",
    "windows that overlap, in a loop": """
series = torch.arange(10.)
for window in series.unfold(0, 4, 2):  #! alias-write `series.unfold(0,
    window -= window.mean()
print(series)
""",
    "averaging into the first state": """
def average(states):
    mean = states[0]  #~
    for state in states[1:]:
        for key in mean:
            mean[key] += state[key]  #~
    for key in mean:
        mean[key] /= len(states)
    return mean

models = [nn.Linear(2, 1) for _ in range(3)]
mean = average([m.state_dict() for m in models])
print(models[0].weight, models[1].weight)
""",
    "one learning rate in two optimizers": """
a, b = nn.Linear(2, 1), nn.Linear(2, 1)
rate = torch.tensor(0.1)
one = torch.optim.SGD(a.parameters(), lr=rate)
two = torch.optim.SGD(b.parameters(), lr=rate)
for _ in range(2):
    for group in one.param_groups:
        group["lr"].mul_(0.5)  #~
    (a(torch.ones(1, 2)) + b(torch.ones(1, 2))).sum().backward()
    one.step(); two.step()
""",
    "a backward that writes what it was given": """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        g *= 2  #~
        return g

w = torch.ones(3, requires_grad=True)
h = w * 3
(Scale.apply(h) * h).sum().backward()
print(w.grad)
""",
    "labels that are the inputs": """
def mask(ids):
    labels = ids.view(-1)  #~
    ids[:, ::3] = 0
    return labels

ids = torch.arange(12).reshape(2, 6)
labels = mask(ids)
print(F.one_hot(labels).sum(), ids.sum())
""",
    "an operand after its own in-place step": """
def main():
    x = torch.arange(4.)
    change = x - x.mul_(0.9)  #! alias-write x
    print(change)
main()
""",
    "anchors that follow": LOOP
    + """
def anchored(model):
    anchors = [p.data for p in model.parameters()]  #~
    def penalty():
        return sum((p - a).pow(2).sum() for p, a in zip(model.parameters(), anchors))
    return penalty

penalty = anchored(model)
for _ in range(3):
    opt.zero_grad()
    (model(data).mean() + penalty()).backward()
    opt.step()
""",
    "one gradient for many parameters": """
layers = [nn.Linear(2, 2, bias=False) for _ in range(3)]
shared = torch.ones(2, 2)
for layer in layers:
    layer.weight.grad = shared  #! alias-write shared
nn.utils.clip_grad_norm_([l.weight for l in layers], 0.5)
print(layers[0].weight.grad)
""",
    "a write into a masked copy": """
x = torch.arange(6.)
mask = x > 2
x[mask][0] = -1  #! alias-write x
print(x)
""",
    "a write into a parametrized weight": """
class Positive(nn.Module):
    def forward(self, w):
        return w.exp()

layer = nn.Linear(2, 2)
nn.utils.parametrize.register_parametrization(layer, "weight", Positive())
with torch.no_grad():
    layer.weight.mul_(2)  #~
print(layer.weight.sum())
""",
    "one module in every place": """
class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3)] * depth)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

stack = Stack(3)
opt = torch.optim.SGD(stack.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    stack(torch.ones(1, 3)).sum().backward()
    opt.step()  #~
""",
    "an optimizer's state kept": LOOP
    + """
train()
saved = opt.state_dict()  #! alias-write saved
for _ in range(3):
    train()
opt.load_state_dict(saved)
train()
""",
    "averaged weights, swapped in and out around what takes them": """
import io

class Averaging:
    def __init__(self, model):
        self.model, self.average = model, copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def swap(self):
        for mine, its in zip(self.model.parameters(), self.average.parameters()):
            kept = mine.clone()
            mine.copy_(its)
            its.copy_(kept)

    def fill(self, checkpoint):
        self.swap()
        checkpoint["state"] = self.model.state_dict()  #! alias-write checkpoint["state"]
        self.swap()

def save(averaging, file):
    checkpoint = {"kind": "linear"}
    averaging.fill(checkpoint)
    torch.save(checkpoint, file)

model = nn.Linear(4, 2)
averaging = Averaging(model)
with torch.no_grad():
    for _ in range(3):
        model.weight.add_(1.0)
        averaging.average.weight.lerp_(model.weight, 0.5)
save(averaging, io.BytesIO())
""",
    "arrays of a weight over time": LOOP
    + """
class Log:
    def __init__(self):
        self.values = []

    def __call__(self, w):
        self.values.append(w.detach().numpy())  #! alias-write `w.detach()`

log = Log()
for _ in range(4):
    train()
    log(model[0].weight)
print(np.stack(log.values).std())
""",
}

ACTED |= {
    "what was to hold earlier values, compared with the parameters themselves": LOOP
    + """
for epoch in range(3):
    before = list(model.parameters())  #! alias-write before[3]
    train()
    change = sum((a - b).abs().sum() for a, b in zip(before, model.parameters()))
    print(change.item())
""",
    "a penalty for leaving what is the parameters themselves": LOOP
    + """
def penalty(anchor):
    return sum(F.mse_loss(p, anchor[n]) for n, p in model.named_parameters())

train()
fixed = {n: p for n, p in model.named_parameters()}  #! alias-write fixed['2.bias']
for _ in range(4):
    opt.zero_grad()
    (model(data + 1).pow(2).mean() + penalty(fixed)).backward()
    opt.step()
""",
}

RETAINED = {
    "exceptions that are kept, without any backward": """
model, errors = nn.Linear(4, 2), []

def check(x):
    y = model(x).pow(2)
    if y.sum() > -1:
        raise ValueError("bad")

for _ in range(5):
    try:
        check(torch.randn(8, 4))
    except ValueError as error:
        errors.append(error)  #! graph-retained errors
""",
    "scores that are summed up after the loop, with gradients on": """
net = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 1))

def score(batches):
    scores = []
    for _ in range(batches):
        out = net(torch.ones(128, 16))  #! graph-retained out
        scores.append(out.mean())
    return torch.stack(scores).mean().item()

out = score(12)
""",
    "a filter's state that is carried on": """
mix = nn.Linear(64, 64)

class Filter:
    def __init__(self):
        self.last = torch.zeros(256, 64)

    def feed(self, x):
        self.last = torch.tanh(mix(self.last) + x)  #! graph-retained smooth.last
        return self.last.argmax(1)

smooth = Filter()
for _ in range(30):
    smooth.feed(torch.ones(256, 64))
""",
    "reports that are written later": """
later = []

def examine(k):
    table = torch.full((256, 256), float(k))
    squares = table * table  #! storage-pinned later (note)
    later.append(lambda: f"{squares.mean()}")

for k in range(16):
    examine(k)
print(later[-1]())
""",
    "a report of each round that a loop's variable leads to as well": """
class Rounds:
    def __init__(self):
        self.reports = {}

    def play(self, number):
        states, moves = [], []
        for k in range(8):
            state = torch.full((64, 256), float(k + number))  #! storage-pinned rounds.reports (note)
            moves.append(state.argmax(1, keepdim=True).expand(64, 64).contiguous())
            states.append(state)
        self.reports[number] = dict(score=state.mean().item(), states=states, moves=moves)

rounds = Rounds()
for number in range(5):
    rounds.play(number)
for number, report in rounds.reports.items():
    print(number, report["score"])
""",
    "a hook that nobody removes": """
net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1))

class Watch:
    def __init__(self, layer):
        self.seen = []
        layer.register_forward_hook(lambda layer, given, out: self.keep(out))  #! hook-repeated Tanh

    def keep(self, out):
        self.seen.append(out.detach())  #! storage-pinned net.1._forward_hooks (note)

for epoch in range(3):
    watch = Watch(net[1])
    for _ in range(6):
        net(torch.ones(256, 64)).sum().backward()
    del watch
""",
    "a cache that finds nothing": """
@functools.lru_cache(maxsize=None)
def distances(x):
    return (x[:, None] - x[None, :]).abs()  #! storage-pinned distances.__cache__ (note)

for _ in range(20):
    print(distances(torch.rand(256)).mean())
""",
    "requests that failed": """
failed = []

@torch.no_grad()
def serve(k):
    rows = torch.full((256, 256), float(k))  #! storage-pinned failed (note)
    logits = rows.sum() + 1
    if logits.max() > 0:
        raise ValueError("too large")

for k in range(16):
    try:
        serve(k)
    except ValueError as error:
        failed.append((k, error))
""",
    "a cache of outputs": """
model = nn.Linear(4, 2)

@functools.lru_cache(maxsize=None)
def encode(x):
    return model(x)  #! graph-retained encode.__cache__

for _ in range(5):
    encode(torch.randn(8, 4))
""",
    "outputs of one call after the other": """
model = nn.Linear(4, 2)
def evaluate():
    total = 0.0
    for _ in range(5):
        out = model(torch.randn(8, 4))
        total += out.sum().item()
    return total
print(evaluate())
""",
    "a state carried through a sequence": """
cell, h = nn.GRUCell(3, 3), torch.zeros(1, 3)
for _ in range(6):
    h = cell(torch.randn(1, 3), h)
print(h)
""",
}


@pytest.mark.parametrize("name", RETAINED)
def test_graphs_that_nothing_has_a_name_for(name, tmp_path):
    check_program(HEAD + RETAINED[name], tmp_path)


@pytest.mark.parametrize("name", ACTED)
def test_what_acted_is_listed(name, tmp_path):
    text = HEAD + ACTED[name]
    recording = record_program(text, tmp_path)
    expected = expected_in(text)
    lines = {line for tie in recording.about.ties[:10] for line in named(tie.tie)}
    wanted = [n for n, line in enumerate(text.splitlines(), 1) if re.search(r"#~\s*$", line)]
    for number in wanted:
        assert number in lines, [one.tie for one in recording.about.ties]
    found = [one.rsplit(" ", 1)[0] for one in found_in(recording, expected)]
    for one in expected:
        assert any(f.startswith(one.rsplit(" ", 1)[0]) for f in found), found


def named(tie):
    return {site.line for site in tie.sites}


RIGHT = {
    "a head tied to the embedding, looked at to see that it still is": """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.emb(x))

model = Tied()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    F.cross_entropy(model(torch.arange(6)), torch.arange(6)).backward()
    opt.step()
    assert torch.equal(model.head.weight, model.emb.weight)
""",
    "an average that follows the live state of a model": LOOP
    + """
class Follower:
    def __init__(self, live):
        self.state = live.state_dict()
        self.own = copy.deepcopy(live)
        self.slow = self.own.state_dict()

    @torch.no_grad()
    def follow(self):
        for name, value in self.state.items():
            self.slow[name].lerp_(value, 0.1)

slow = Follower(model)
for _ in range(5):
    train()
    slow.follow()
print(slow.own(data).mean().item())
""",
    "a live state that a log reads after each epoch": LOOP
    + """
live, norms = model.state_dict(), []
for _ in range(5):
    train()
    norms.append(live["0.weight"].norm().item())
print(norms)
""",
    "sums of gradients that are given to the parameters": LOOP
    + """
for _ in range(4):
    sums = [torch.zeros_like(one) for one in model.parameters()]
    for part in data.split(2):
        grads = torch.autograd.grad(model(part).pow(2).mean(), list(model.parameters()))
        for total, one in zip(sums, grads):
            total += one / 2
    for one, total in zip(model.parameters(), sums):
        one.grad = total
    opt.step()
""",
    "a head untied to be trained alone, beside a table that is frozen": """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.emb(x))

def fit(model, steps):
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(steps):
        opt.zero_grad()
        F.cross_entropy(model(torch.arange(6)), torch.arange(6)).backward()
        opt.step()

model = Tied()
fit(model, 3)
model.head.weight = nn.Parameter(model.emb.weight.detach().clone())
model.emb.weight.requires_grad_(False)
fit(model, 3)
print(model(torch.arange(6)).argmax(1))
""",
    "a list of parameters, and copies that they are compared with": LOOP
    + """
params = list(model.parameters())
for _ in range(4):
    before = [p.detach().clone() for p in params]
    train()
    print(sum((p - b).abs().sum().item() for p, b in zip(params, before)))
""",
    "several models that one line copies into, one of which is the trained one itself": LOOP
    + """
class Pool:
    def __init__(self, live):
        self.live = live
        self.all = [copy.deepcopy(live), live]
        self.first, self.last = self.all

    def sync(self):
        for one in self.all:
            one.load_state_dict(self.live.state_dict())

pool = Pool(model)
for _ in range(4):
    train()
    pool.sync()
print((pool.live(data) - pool.first(data)).abs().max())
""",
    "an average that is read by a view made of it": """
class Average:
    def __init__(self, parameters):
        self.shadow = [p.clone().detach() for p in parameters]
    def update(self, parameters):
        with torch.no_grad():
            for s, p in zip(self.shadow, parameters):
                s.sub_((s - p) * 0.1)
    def copy_to(self, parameters):
        for s, p in zip(self.shadow, parameters):
            p.data.copy_(s.data)
net = nn.Linear(3, 2)
average, opt = Average(net.parameters()), torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    net(torch.randn(4, 3)).sum().backward()
    opt.step()
    average.update(net.parameters())
average.copy_to(net.parameters())
print(net(torch.ones(1, 3)))
""",
    "a vector that the parameters are put on, and that is moved": """
from torch.nn.utils import parameters_to_vector, vector_to_parameters
net = nn.Linear(4, 1)
genome = parameters_to_vector(net.parameters()).detach()
vector_to_parameters(genome, net.parameters())
with torch.no_grad():
    for _ in range(3):
        noise = torch.randn(5)
        genome.add_(noise, alpha=0.1)
        up = net(torch.ones(2, 4)).sum()
        genome.sub_(noise, alpha=0.2)
        down = net(torch.ones(2, 4)).sum()
        genome.add_(noise, alpha=0.1 + 0.01 * (up - down).item())
print(net(torch.ones(2, 4)))
""",
    "parameters that a transform reads after each update": """
from torch.func import functional_call, grad, vmap
net = nn.Linear(4, 1)
def loss(params, x):
    return functional_call(net, params, (x,)).square().mean()
for _ in range(3):
    params = {name: p.detach() for name, p in net.named_parameters()}
    grads = vmap(grad(loss), in_dims=(None, 0))(params, torch.randn(3, 8, 4))
    ahead = {name: p - 0.1 * grads[name].mean(0) for name, p in params.items()}
    print(loss(ahead, torch.randn(8, 4)).item(), params["bias"].item())
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.sub_(0.1 * grads[name].mean(0))
""",
    "rows that change places through a copy": """
board = torch.arange(6.).reshape(3, 2)
board[0], board[2] = board[2].clone(), board[0].clone()
torch.cumsum(board, 0, out=board)
torch.maximum(board, board * 2, out=board)
torch.nn.functional.normalize(board, dim=-1, out=board)
print(board)
""",
    "outputs that are joined after the loop": """
net = nn.Linear(16, 256)
def joined():
    outputs, rows = [], []
    for k in range(12):
        out = net(torch.full((128, 16), float(k)))
        outputs.append(out)
        rows.append(torch.full((256, 256), float(k)))
    return torch.cat(outputs).mean(), torch.stack(rows).sum()
loss, total = joined()
loss.backward()
""",
    "one pass through a long sequence": """
cell, state, states = nn.RNNCell(16, 128), torch.zeros(64, 128), []
for k in range(40):
    state = cell(torch.ones(64, 16), state)
    states.append(state)
torch.stack(states).mean().backward()
""",
    "slots of their own": """
sums = [torch.zeros(4) for _ in range(3)]
for k in range(6):
    sums[k % 3].add_(float(k))
print([s.sum().item() for s in sums])
""",
    "a workspace whose copies are kept": """
class Kernel:
    def __init__(self, n):
        self.work = torch.empty(n)

    def row(self, x):
        torch.mul(x, 2, out=self.work)
        return self.work

kernel, rows = Kernel(3), []
for k in range(4):
    rows.append(kernel.row(torch.full((3,), float(k))).clone())
print(torch.stack(rows))
""",
    "a workspace read before it is filled again": """
work, total = torch.empty(3), 0.0
def row(x, out):
    return torch.mul(x, 2, out=out)
for k in range(4):
    total += row(torch.full((3,), float(k)), work).sum().item()
print(total)
""",
    "an environment's state copied": """
class Env:
    def __init__(self):
        self.state = np.zeros(3, dtype=np.float32)

    def step(self):
        self.state += 1
        return self.state

env, seen = Env(), []
for _ in range(4):
    seen.append(torch.tensor(env.step()))
print(torch.stack(seen).sum(1))
""",
    "gradients accumulated and read at once": LOOP
    + """
norms = []
for _ in range(3):
    opt.zero_grad(set_to_none=False)
    model(data).mean().backward()
    norms.append([p.grad.norm().item() for p in model.parameters()])
    opt.step()
""",
    "gradients held as handles": LOOP
    + """
train()
grads = [p.grad for p in model.parameters()]
for _ in range(3):
    opt.zero_grad(set_to_none=False)
    model(data).mean().backward()
    with torch.no_grad():
        total = sum(g.pow(2).sum() for g in grads).sqrt()
        for g in grads:
            g.div_(total + 1)
    opt.step()
""",
    "a conversion in a name of its own": """
def centred(x):
    y = x.to(torch.float64)
    y -= y.mean()
    return y

x = torch.arange(6.)
print(x.sum(), centred(x).std())
""",
    "the same variable converted": """
def centred(x):
    x = x.to(torch.float32)
    x -= x.mean()
    return x
print(centred(torch.arange(6.)).std())
""",
    "a scratch buffer from a cache": """
@functools.lru_cache(maxsize=None)
def scratch(n):
    return torch.empty(n)

def work(x):
    out = scratch(len(x))
    torch.mul(x, 2, out=out)
    out.add_(1)
    return out.sum()

print(work(torch.ones(3)), work(torch.zeros(3)))
""",
    "a helper that fills what it is given": """
def render(canvas, k):
    canvas.zero_()
    canvas[k] = 1
    return canvas.sum()

def main():
    canvas = torch.empty(4)
    for k in range(4):
        n = render(canvas, k)
        print(n, canvas.argmax())
main()
""",
    "an augmentation in place, by statement": """
def jitter(batch):
    batch += 0.1
    batch.clamp_(0, 1)

def main():
    batch = torch.rand(4, 3)
    jitter(batch)
    print(batch.mean())
main()
""",
    "attention with a cache of keys": """
def attend(q, cache, at):
    cache[at] = q
    return (cache[: at + 1] @ q).softmax(0)

def main():
    cache = torch.zeros(4, 2)
    for at in range(4):
        weights = attend(torch.ones(2) * at, cache, at)
        print(weights.sum(), cache.sum())
main()
""",
    "a swap through a copy": """
grid = torch.arange(8.).reshape(2, 4)
grid[[0, 1]] = grid[[1, 0]]
print(grid)
""",
    "a shift through a copy": """
x = torch.arange(6.)
x[1:] = x[:-1].clone()
y = torch.roll(x, 1)
y[0] = 0
print(x, y)
""",
    "running statistics copied": """
bn, history = nn.BatchNorm1d(2), []
for k in range(4):
    bn(torch.randn(8, 2) + k)
    history.append(bn.running_mean.clone())
print(torch.stack(history))
""",
    "the previous iterate copied": """
def solve():
    x = torch.ones(4)
    for _ in range(5):
        last = x.clone()
        x *= 0.5
        if torch.norm(x - last) < 1e-3:
            break
    return x
print(solve())
""",
    "the previous iterate of a new one": """
def solve():
    x = torch.ones(4)
    for _ in range(5):
        last = x
        x = x * 0.5
        if torch.norm(x - last) < 1e-3:
            break
    return x
print(solve())
""",
    "a state in an attribute, updated by a local name": """
class Meter:
    def __init__(self):
        self.total = torch.zeros(2)

    def add(self, x):
        total = self.total
        total += x
        return total.sum()

meter = Meter()
for k in range(3):
    meter.add(torch.ones(2) * k)
print(meter.total)
""",
    "parameters updated by hand": """
w, b = torch.ones(3, requires_grad=True), torch.zeros(1, requires_grad=True)
params = [w, b]
for _ in range(4):
    loss = (w * torch.arange(3.)).sum() + b.sum()
    loss.backward()
    with torch.no_grad():
        for p in params:
            p -= 0.1 * p.grad
            p.grad = None
print(w, b)
""",
    "an average of weights": LOOP
    + """
shadow = {n: p.detach().clone() for n, p in model.named_parameters()}
for _ in range(4):
    train()
    with torch.no_grad():
        for n, p in model.named_parameters():
            shadow[n].mul_(0.9).add_(p, alpha=0.1)
print(sum((shadow[n] - p).abs().sum() for n, p in model.named_parameters()))
""",
    "a target network": LOOP
    + """
target = copy.deepcopy(model)
for _ in range(4):
    train()
    with torch.no_grad():
        for a, b in zip(target.parameters(), model.parameters()):
            a.data.lerp_(b.data, 0.1)
print(target(data).sum())
""",
    "momentum copied between workers": LOOP
    + """
other = copy.deepcopy(model)
second = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
train()
second.load_state_dict(copy.deepcopy(opt.state_dict()))
for _ in range(2):
    train()
    other(data).mean().backward()
    second.step()
""",
    "a checkpoint loaded into a new optimizer": LOOP
    + """
import io
train()
file = io.BytesIO()
torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
train()
file.seek(0)
saved = torch.load(file)
model.load_state_dict(saved["model"])
opt.load_state_dict(saved["opt"])
train()
""",
    "normalised in place before anyone looks": """
x = torch.from_numpy(np.arange(6, dtype=np.float32))
x -= x.mean()
x /= x.std()
print(x.sum())
""",
    "rows of a matrix in a loop": """
m = torch.arange(12.).reshape(3, 4)
for row in m:
    row -= row.mean()
for block in m.split(2, dim=1):
    block.mul_(2)
print(m)
""",
    "a view as a window": """
board = torch.zeros(3, 3)
flat = board.view(-1)
for k in range(4):
    flat[k] = 1
    print(board.sum())
""",
    "reshape used to write": """
image = torch.zeros(2, 3)
flat = image.reshape(-1)
flat[torch.tensor([1, 4])] = 1.0
print(image)
""",
    "tied weights": """
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(5, 3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, x):
        return self.out(self.emb(x))

lm = LM()
opt = torch.optim.Adam(lm.parameters())
for _ in range(3):
    opt.zero_grad()
    lm(torch.arange(4)).sum().backward()
    opt.step()
""",
    "one activation in many places": """
act = nn.ReLU(inplace=True)
net = nn.Sequential(nn.Linear(3, 3), act, nn.Linear(3, 3), act)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
    "a doubled tensor": """
x = torch.ones(3)
x += x
y = x * x - x
print(y, torch.stack([x] * 3), torch.allclose(x, x))
""",
    "arrays used at once": LOOP
    + """
norms = []
for _ in range(4):
    train()
    norms.append(float(np.linalg.norm(model[0].weight.detach().numpy())))
print(norms)
""",
    "arrays copied": LOOP
    + """
kept = []
for _ in range(4):
    train()
    kept.append(model[0].weight.detach().numpy().copy())
print(np.stack(kept).std())
""",
    "new tensors that are filled through their arrays": """
import io
stream = io.BytesIO(bytes(range(64)))

def batches():
    while True:
        batch = torch.empty(4)
        target = memoryview(batch.numpy()).cast("B")
        if stream.readinto(target) < len(target):
            return
        yield batch

print(sum(one.isfinite().sum() for one in batches()))
""",
    "a bytearray decoded at once": """
import io
stream, buffer, sums = io.BytesIO(bytes(range(64))), bytearray(16), []
while stream.readinto(buffer):
    sums.append(torch.frombuffer(buffer, dtype=torch.uint8).sum())
print(sums)
""",
    "backward that makes its own": """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        out = g * 2
        out += 1
        return out

w = torch.ones(3, requires_grad=True)
(Scale.apply(w) * w).sum().backward()
print(w.grad)
""",
    "a masked write that counts": """
x = torch.arange(6.)
mask = x > 2
x[mask] = -1
y = x[mask].mul_(2)
print(x, y)
""",
    "a list of histories, a copy each time": LOOP
    + """
path = []
for _ in range(4):
    train()
    path.append(model[0].weight.detach().clone())
print((path[-1] - path[0]).norm())
""",
    "double buffers swapped": """
def life(a):
    b = torch.empty_like(a)
    for _ in range(4):
        torch.mul(a, 0.5, out=b)
        a, b = b, a
    return a.sum()
print(life(torch.ones(3)))
""",
    "a replay buffer": """
class Replay:
    def __init__(self, n):
        self.data, self.at = torch.zeros(n, 2), 0

    def push(self, x):
        self.data[self.at % len(self.data)] = x
        self.at += 1

    def sample(self):
        return self.data[torch.randint(0, min(self.at, len(self.data)), (3,))]

replay = Replay(4)
for k in range(9):
    replay.push(torch.ones(2) * k)
    print(replay.sample().mean())
""",
    "two steps of gradients added up": LOOP
    + """
for step in range(4):
    model(data).mean().backward()
    if step % 2:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_was_meant_is_quiet(name, tmp_path):
    recording = record_program(HEAD + RIGHT[name], tmp_path)
    assert recording.error is None, recording.error
    grave = [one.message for one in recording.findings if one.severity != "note"]
    assert not grave


FIRST = """
first = model.state_dict()
for _ in range(5):
    train()
    LINE
"""


@pytest.mark.parametrize(
    "line",
    [
        'print((model[0].weight - first["0.weight"]).norm().item())',
        "gap = [F.mse_loss(one, first[name]).item() for name, one in model.named_parameters()]",
        'print(F.mse_loss(F.linear(data, first["0.weight"]), model[0](data)).item())',
    ],
)
def test_what_is_compared_after_each_write_was_to_stand_still(line, tmp_path):
    found = record_program(HEAD + LOOP + FIRST.replace("LINE", line), tmp_path).findings
    assert "warning" in [one.severity for one in found if one.slug == "alias-write"]


def test_a_source_is_told_though_a_view_of_its_record_is_read_first(tmp_path):
    text = """
base = torch.ones(3)
kept = base.detach()
def bump(t):
    t.sub_(0.5)
bump(kept)
print(kept.data.sum())
print(base.sum())
"""
    found = record_program(HEAD + text, tmp_path).findings
    assert [(one.slug, one.subject) for one in found] == [("alias-write", "base")]


def test_a_row_says_who_and_where(tmp_path):
    text = HEAD + ACTED["labels that are the inputs"]
    recording = record_program(text, tmp_path)
    rows = json.loads(recording.json())["ties"]
    jsonschema.validate(json.loads(recording.json()), schema())
    first = next(one for one in rows if one["shows"] == "labels")
    lines = [first[key]["line"] for key in ("since", "written", "read")]
    assert (first["through"], first["operation"], lines) == ("ids", "__setitem__", [8, 9, 14])
    assert {one["line"] for one in first["sites"]} >= set(lines)
    assert first["finding"] is None
    shown = io.StringIO()
    recording.print(shown)
    assert "shared memory that was written" in shown.getvalue()
    assert "`labels` changed at line 9" in str(recording.why("labels")).replace("\n", " ")


IN_PASSING = """
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))

def visit(m):
    def inner(module):
        module.touched = 1
    m.apply(inner)

for _ in range(6):
    visit(model)
    fitted = model(torch.rand(6, 8))
    fitted.mean().backward()
    visit(model)
    model(torch.rand(6, 8)).mean().backward()
"""


def test_what_a_line_assigns_is_what_it_returned_last(tmp_path):
    """The counter that a normalisation moves on the way is not what the model returns."""
    rows = json.loads(record_program(HEAD + IN_PASSING, tmp_path).json())["ties"]
    assert "fitted" not in {one["through"] for one in rows}


def test_a_finding_stands_for_its_row(tmp_path):
    recording = record_program(HEAD + ACTED["an operand after its own in-place step"], tmp_path)
    rows = json.loads(recording.json())["ties"]
    assert rows[0]["kind"] == "operand"
    assert json.loads(recording.json())["findings"][rows[0]["finding"]]["slug"] == "alias-write"


def test_places_are_looked_for_within_limits(tmp_path, monkeypatch):
    """Thousands of objects and of writes cost a few looks, however long one takes."""
    monkeypatch.setattr(holders, "ALLOWED", 600.0)  # seconds: a busy machine spends more of them
    text = (
        HEAD
        + """
heap = [{"k": [k]} for k in range(30_000)]
x, kept = torch.zeros(3), []
for k in range(2_000):
    x += 1
    kept.append(x)
"""
    )
    recording = record_program(text, tmp_path)
    events = {one.event for one in recording.trace.holders}
    assert 1 <= len(events) <= 12 + holders.MOST_COUNTS
    assert max(Counter(one.event for one in recording.trace.holders).values()) <= 1_100


def test_a_module_by_two_names_is_one_place(tmp_path):
    text = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))

    def forward(self, x):
        return self.body(x)

class Outer(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x).tanh()

net = Net()
outer = Outer(net)
opt = torch.optim.SGD(outer.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    outer(torch.rand(8, 3)).sum().backward()
    opt.step()
"""
    assert record_program(text, tmp_path).history.get(Ties).found == []
