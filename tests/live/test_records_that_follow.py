"""Records that follow: a tensor kept itself and written in place by a later call; and look-alikes.

Each program says in comments what must be found and where; see `programs.py`. What is found must be
among the first ten ties as well.
"""

import pytest

from programs import check_program, record_program
from tether.analysis.ties import Ties
from tether.report.tables.ties import message

HEAD = """\
import collections
import dataclasses
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
"""

FOUND = {
    "how much each weight mattered, by its gradient": """
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Importance:
    def __init__(self):
        self.of = {}
    def note(self, x):
        net.zero_grad(set_to_none=False)
        net(x).pow(2).sum().backward()
        for name, one in net.named_parameters():
            self.of[name] = one.grad.square_().div_(len(x))  #! alias-write importance.of (note)
    def total(self):
        return sum((one.abs().sum() for one in self.of.values()), torch.zeros(()))
importance = Importance()
for task in range(3):
    for _ in range(4):
        opt.zero_grad(set_to_none=False)
        net(torch.randn(5, 3)).mean().backward()
        opt.step()
        opt.zero_grad(set_to_none=False)
        print(task, importance.total().item())
    importance.note(torch.randn(5, 3))
""",
    "hook on batch norm, a dictionary": """
acts = {}

def keep(name):
    def hook(module, inputs, output):
        acts[name] = output  #! alias-write acts (note)
    return hook

net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3))
net[1].register_forward_hook(keep("norm"))
for _ in range(3):
    out = net(torch.randn(2, 3, 8, 8))
    print(out.mean().item(), acts["norm"].min().item())
""",
    "linear, in a class": """
class Probe:
    def __init__(self, layer):
        layer.register_forward_hook(self.hook)
        self.seen = None
    def hook(self, module, args, out):
        self.seen = out  #! alias-write probe.seen (note)

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
probe = Probe(net[0])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.randn(5, 4)).pow(2).mean() + 0.1 * probe.seen.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "list in forward": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True)])
    def forward(self, x):
        feats = []
        for layer in self.layers:
            x = layer(x)
            if isinstance(layer, nn.Linear):
                feats.append(x)  #! alias-write feats (note)
        return x, feats

net = Net()
for _ in range(3):
    out, feats = net(torch.randn(5, 4))
    print(sum(f.pow(2).mean() for f in feats).item())
""",
    "attribute in forward, F.relu_": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last = None
    def forward(self, x):
        h = self.a(x)
        self.last = h  #! alias-write self.last (note)
        F.relu_(h)
        return self.b(h)

net = Net()
for _ in range(3):
    out = net(torch.randn(5, 4))
    penalty = net.last.abs().mean()
    (out.mean() + penalty).backward()
""",
    "dataclass": """
@dataclasses.dataclass
class Act:
    name: str
    value: torch.Tensor

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5, inplace=True)
        self.record = []
    def forward(self, x):
        h = torch.tanh(self.a(x))
        self.record.append(Act("a", h))  #! alias-write self.record (note)
        h = self.drop(h)
        return self.b(h)

net = Net()
for _ in range(3):
    net.record.clear()
    out = net(torch.randn(5, 4))
    for one in net.record:
        print(one.name, one.value.norm().item())
""",
    "dropout hook": """
taken = []
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3, inplace=True), nn.Linear(8, 2))
net[0].register_forward_hook(lambda m, i, o: taken.append(o))  #! alias-write taken (note)
for _ in range(4):
    taken.clear()
    net(torch.randn(3, 4))
    print(float(taken[0].std()))
""",
    "plus equals": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(4, 4), nn.Linear(4, 4)
        self.branches = []
    def forward(self, x):
        out = self.f(x)
        self.branches.append(out)  #! alias-write self.branches (note)
        out += x
        return self.g(out)

block = Block()
with torch.no_grad():
    for _ in range(3):
        block.branches = []
        block(torch.randn(2, 4))
        norms = [b.norm() for b in block.branches]
print(norms)
""",
    "residual block, hook on bn2": """
class Basic(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)
        self.relu = nn.ReLU(inplace=True)
    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)

net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), Basic(4), Basic(4), nn.Flatten(), nn.Linear(4 * 64, 2))
store = {}
for name, module in net.named_modules():
    if name.endswith("bn2"):
        module.register_forward_hook(lambda m, i, o, name=name: store.__setitem__(name, o))  #! alias-write store (note)
net.eval()
with torch.no_grad():
    for _ in range(3):
        net(torch.randn(2, 3, 8, 8))
        for name, act in store.items():
            print(name, act.mean().item())
""",
    "grad cam": """
class Cam:
    def __init__(self, net, layer):
        self.net = net
        layer.register_forward_hook(self.forward_hook)
    def forward_hook(self, module, inputs, output):
        self.activation = output  #! alias-write self.activation (note)
    def __call__(self, x):
        scores = self.net(x)
        grads = torch.autograd.grad(scores[:, 0].sum(), self.activation)[0]
        return (grads.mean((2, 3), keepdim=True) * self.activation).sum(1)

net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
cam = Cam(net, net[2])
for _ in range(2):
    print(cam(torch.randn(1, 3, 10, 10)).sum().item())
""",
    "both hooked": """
acts = {}
net = nn.Sequential()
net.add_module("conv", nn.Conv2d(3, 4, 3))
net.add_module("act", nn.ReLU(inplace=True))
net.add_module("pool", nn.AvgPool2d(2))
for name, module in net.named_children():
    module.register_forward_hook(lambda m, i, o, name=name: acts.update({name: o}))  #! alias-write acts
with torch.no_grad():
    for _ in range(3):
        net(torch.randn(2, 3, 8, 8))
        print({name: one.mean().item() for name, one in acts.items()})
""",
    "mul_ in a loop over layers": """
def run(layers, x, gate):
    trail = []
    for layer in layers:
        x = layer(x)
        trail.append(x)  #! alias-write trail (note)
        x.mul_(gate)
    return x, trail

layers = [nn.Linear(3, 3) for _ in range(3)]
with torch.no_grad():
    for _ in range(2):
        y, trail = run(layers, torch.randn(2, 3), 0.5)
        print(torch.stack(trail).mean())
""",
    "vgg features by index": """
class Features(nn.Module):
    def __init__(self, wanted):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(True), nn.Conv2d(4, 4, 3), nn.ReLU(True), nn.MaxPool2d(2))
        self.wanted = wanted
    def forward(self, x):
        out = {}
        for i, layer in enumerate(self.body):
            x = layer(x)
            if i in self.wanted:
                out[i] = x  #! alias-write out (note)
        return out

net = Features({0, 2})
with torch.no_grad():
    ref = net(torch.rand(1, 3, 12, 12))
img = torch.rand(1, 3, 12, 12, requires_grad=True)
for _ in range(3):
    now = net(img)
    loss = sum(F.mse_loss(now[k], ref[k]) for k in ref)
    loss.backward()
""",
    "a view handed on, and a deque": """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 3, 3), nn.Conv1d(3, 3, 3)
        self.act = nn.LeakyReLU(0.1, inplace=True)
        self.trace = collections.deque(maxlen=2)
    def forward(self, signal):
        y = self.first(signal)
        self.trace.append(y)  #! alias-write self.trace (note)
        y = self.act(y)
        z = self.second(y)
        self.trace.append(z)
        return self.act(z).mean()
enc = Encoder()
for _ in range(3):
    enc(torch.randn(2, 2, 9))
    early, late = enc.trace
    print(early.min().item(), late.min().item())
""",
    "the last of many layers": """
class Watch:
    def __init__(self, module):
        self.value = None
        module.register_forward_hook(self.see)
    def see(self, module, given, made):
        self.value = made  #! alias-write watch.value (note)

blocks = [nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True)) for _ in range(7)]
deep = nn.Sequential(*blocks, nn.Linear(6, 2))
watch = Watch(deep[6][1])
for _ in range(2):
    deep(torch.randn(8, 6))
    print((watch.value < 0).float().mean().item())
""",
    "all layers hooked into a list": """
seen = []
model = nn.Sequential(nn.Linear(5, 5), nn.ELU(inplace=True), nn.Linear(5, 5), nn.ELU(inplace=True), nn.Linear(5, 1))
for part in model:
    part.register_forward_hook(lambda part, given, made: seen.append(made))  #! alias-write seen
with torch.no_grad():
    for _ in range(3):
        seen.clear()
        model(torch.randn(4, 5))
        print([one.std().item() for one in seen])
""",
}

RIGHT = {
    "weights that no optimizer has": """
class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(5, 3)
        self.shift = nn.Parameter(torch.ones(3))

    def forward(self, at):
        return self.rows.weight[at] + self.shift

table = Table()
with torch.no_grad():
    for one in table.parameters():
        one.mul_(2.0)
    print(table(torch.tensor([1, 2])).sum(), table.rows.weight.sum())
""",
    "hook on the in-place module": """
acts = {}

def keep(name):
    def hook(module, inputs, output):
        acts[name] = output
    return hook

net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3))
net[2].register_forward_hook(keep("norm"))
for _ in range(3):
    out = net(torch.randn(2, 3, 8, 8))
    print(out.mean().item(), acts["norm"].min().item())
""",
    "relu features by index": """
class Features(nn.Module):
    def __init__(self, wanted):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(True), nn.Conv2d(4, 4, 3), nn.ReLU(True), nn.MaxPool2d(2))
        self.wanted = wanted
    def forward(self, x):
        out = {}
        for i, layer in enumerate(self.body):
            x = layer(x)
            if i in self.wanted:
                out[i] = x
        return out

net = Features({1, 3})
with torch.no_grad():
    ref = net(torch.rand(1, 3, 12, 12))
img = torch.rand(1, 3, 12, 12, requires_grad=True)
for _ in range(3):
    now = net(img)
    loss = sum(F.mse_loss(now[k], ref[k]) for k in ref)
    loss.backward()
""",
    "kept after": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(inplace=True)
    def forward(self, x):
        outs = []
        x = self.act(self.a(x))
        outs.append(x)
        x = self.act(self.b(x))
        outs.append(x)
        return outs
net = Net()
for _ in range(3):
    print(sum(o.mean() for o in net(torch.randn(2, 4))))
""",
    "gradients that are looked at after each pass": """
class Watch:
    def __init__(self, net):
        net(torch.ones(1, 3)).sum().backward()
        self.gradients = [one.grad for one in net.parameters()]
    def norm(self):
        return torch.stack([one.norm() for one in self.gradients]).norm().item()
net = nn.Linear(3, 2)
watch, opt = Watch(net), torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad(set_to_none=False)
    net(torch.randn(5, 3)).pow(2).mean().backward()
    print(watch.norm())
    opt.step()
""",
    "gradients that are added up by hand": """
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Sums:
    def __init__(self):
        self.of = {}
    def take(self):
        for name, one in net.named_parameters():
            self.of[name] = one.grad.clone() if name not in self.of else self.of[name] + one.grad
sums = Sums()
for _ in range(4):
    opt.zero_grad(set_to_none=False)
    net(torch.randn(5, 3)).pow(2).mean().backward()
    sums.take()
    opt.step()
opt.zero_grad(set_to_none=False)
print([one.norm().item() for one in sums.of.values()])
""",
    "relu that makes a new one": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Linear(4, 4)
    def forward(self, x):
        h = self.conv(x)
        self.cache = h
        h = h.relu()
        return h
net = Net()
for _ in range(3):
    print((net(torch.randn(2, 4)) - net.cache).mean())
""",
    "state of its own": """
class Cell:
    def __init__(self):
        self.w = torch.randn(4, 4)
        self.h = torch.zeros(1, 4)
    def start(self, x):
        self.h = x @ self.w
    def step(self, x):
        self.h.mul_(0.9)
        self.h += x
        return self.h
cell = Cell()
cell.start(torch.randn(1, 4))
for _ in range(4):
    cell.step(torch.randn(1, 4))
    print(cell.h.norm())
""",
    "state by a second name": """
class Cell:
    def __init__(self, x, w):
        self.h = x @ w
    def step(self, x):
        h = self.h
        h.mul_(0.9)
        h += x
cell = Cell(torch.randn(1, 4), torch.randn(4, 4))
for _ in range(4):
    cell.step(torch.randn(1, 4))
    print(cell.h.norm())
""",
    "items of a list written on purpose": """
grads = [torch.randn(3) @ torch.randn(3, 3) for _ in range(3)]
def clip(some, most):
    for one in some:
        one.mul_(most / one.norm())
class Box: pass
box = Box()
box.grads = grads
clip(box.grads, 1.0)
print(sum(g.norm() for g in box.grads))
""",
    "copy kept": """
taken = []
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3, inplace=True), nn.Linear(8, 2))
net[0].register_forward_hook(lambda m, i, o: taken.append(o.detach().clone()))
for _ in range(4):
    taken.clear()
    net(torch.randn(3, 4))
    print(float(taken[0].std()))
""",
    "never read": """
taken = []
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3, inplace=True), nn.Linear(8, 2))
net[0].register_forward_hook(lambda m, i, o: taken.append(o))
for _ in range(4):
    taken.clear()
    net(torch.randn(3, 4))
    print(len(taken))
""",
    "shape only": """
taken = []
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3, inplace=True), nn.Linear(8, 2))
net[0].register_forward_hook(lambda m, i, o: taken.append(o))
for _ in range(4):
    taken.clear()
    net(torch.randn(3, 4))
    print(taken[0].shape)
""",
    "dropout in eval": """
taken = []
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3, inplace=True), nn.Linear(8, 2))
net[0].register_forward_hook(lambda m, i, o: taken.append(o))
net.eval()
for _ in range(4):
    taken.clear()
    net(torch.randn(3, 4))
    print(float(taken[0].std()))
""",
    "result of the whole": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)
    def forward(self, x):
        self.pre = self.a(x)
        return self.act(self.pre)
net = Net()
for _ in range(3):
    y = net(torch.randn(2, 4))
    print(y.mean())
""",
    "result of the whole, hooked": """
class Tap:
    def __init__(self, layer):
        layer.register_forward_hook(self.hook)
    def hook(self, m, i, o):
        self.out = o
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
tap = Tap(net[0])
for _ in range(3):
    y = net(torch.randn(2, 4))
    print(y.mean(), tap.out.shape)
""",
    "skips of a u-net": """
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Sequential(nn.Conv2d(c, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)) for c in (3, 4)])
        self.up = nn.ModuleList([nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.ReLU(inplace=True)) for _ in range(2)])
        self.pool = nn.MaxPool2d(2)
    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2)
            x = block(torch.cat([x, skips.pop()], 1))
        return x
net = UNet()
for _ in range(3):
    net(torch.randn(1, 3, 8, 8)).mean().backward()
""",
    "dense net": """
class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.BatchNorm1d(4 * (i + 1)), nn.ReLU(inplace=True), nn.Linear(4 * (i + 1), 4)) for i in range(3)])
    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)
net = Dense()
for _ in range(3):
    net(torch.randn(5, 4)).mean().backward()
""",
    "buffer filled anew": """
class Loader:
    def __init__(self):
        self.batch = torch.arange(6.) * 2
    def next(self):
        out = self.batch
        out.copy_(torch.randn(6))
        return out
loader = Loader()
for _ in range(4):
    print(loader.next().mean(), loader.batch.sum())
""",
    "totals": """
totals = {"loss": torch.zeros(1), "hits": torch.zeros(1)}
def add(total, value):
    total += value
for _ in range(4):
    add(totals["loss"], torch.rand(1))
    add(totals["hits"], torch.rand(1))
print(totals["loss"] / totals["hits"])
""",
    "particles": """
class World:
    def __init__(self):
        self.position = torch.randn(5, 2) * 3
        self.speed = torch.randn(5, 2)
def advance(world, dt):
    p = world.position
    p.add_(world.speed, alpha=dt)
world = World()
for _ in range(5):
    advance(world, 0.1)
print(world.position.norm())
""",
    "relu of relu": """
class Tap:
    def __init__(self, layer):
        layer.register_forward_hook(self.hook)
    def hook(self, m, i, o):
        self.out = o
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.ReLU(inplace=True), nn.Linear(4, 2))
tap = Tap(net[1])
for _ in range(3):
    net(torch.randn(2, 4))
    print(tap.out.mean())
""",
    "read before the write": """
norms = []
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        h = self.a(x)
        self.h = h
        norms.append(self.h.norm().item())
        return self.b(F.relu(h, inplace=True))
net = Net()
for _ in range(3):
    net(torch.randn(2, 4)).sum().backward()
""",
    "a part of the result": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        h = self.a(x)
        self.h = h
        F.relu_(h)
        return self.b(h), h
net = Net()
for _ in range(3):
    y, mid = net(torch.randn(2, 4))
    (y.mean() + mid.mean()).backward()
""",
    "all hooked, one of them read": """
acts = {}
net = nn.Sequential()
net.add_module("conv", nn.Conv2d(3, 4, 3))
net.add_module("act", nn.ReLU(inplace=True))
net.add_module("pool", nn.AvgPool2d(2))
for name, module in net.named_children():
    module.register_forward_hook(lambda m, i, o, name=name: acts.update({name: o}))
with torch.no_grad():
    for _ in range(3):
        net(torch.randn(2, 3, 8, 8))
        print(acts["pool"].mean().item())
""",
    "an average": """
class Average:
    def __init__(self, first):
        self.value = first * 1.0
    def update(self, new):
        value = self.value
        value.mul_(0.9).add_(new, alpha=0.1)
average = Average(torch.randn(3))
for _ in range(5):
    average.update(torch.randn(3))
print(average.value)
""",
    "gradients scaled on their way": """
class Trainer:
    def __init__(self, w):
        self.w, self.grads = w, []
    def collect(self, loss):
        self.grads = list(torch.autograd.grad(loss, [self.w]))
    def clip(self, most):
        for g in self.grads:
            g.mul_(most / (g.norm() + 1e-6))
t = Trainer(torch.randn(3, requires_grad=True))
for _ in range(3):
    t.collect((t.w ** 3).sum())
    t.clip(1.0)
    with torch.no_grad():
        t.w.sub_(0.1 * t.grads[0])
""",
    "a cell that hands its state to a helper": """
def decay(state, rate):
    state.mul_(rate)
    return state
class Cell:
    def __init__(self, x):
        self.state = x * 2
    def tick(self):
        decay(self.state, 0.5)
        return self.state.sum()
cell = Cell(torch.randn(4))
for _ in range(4):
    print(cell.tick())
""",
    "a list filled after the loop of layers": """
layers = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)) for _ in range(3)])
def run(x):
    outs = {}
    for name, layer in layers.named_children():
        x = layer(x)
        outs[name] = x
    return outs
for _ in range(3):
    print(sum(one.mean() for one in run(torch.randn(2, 3)).values()))
""",
    "written, kept, and copied before the next write": """
kept = []
net = nn.Sequential(nn.Linear(3, 3), nn.Hardtanh(inplace=True), nn.Linear(3, 3))
def keep(module, given, out):
    kept.append(out.detach().clone())
net[0].register_forward_hook(keep)
for _ in range(3):
    net(torch.randn(2, 3))
print(torch.stack(kept).mean())
""",
    "read inside the hook": """
class Tap:
    def hook(self, module, given, out):
        self.out = out
        self.mean = self.out.mean().item()
tap = Tap()
net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3))
net[0].register_forward_hook(tap.hook)
for _ in range(3):
    net(torch.randn(2, 3))
    print(tap.mean)
""",
}

STYLE = """
class Tap:
    def __init__(self, net):
        self.net, self.features = net, []
        for module in net:
            if isinstance(module, nn.Conv2d):
                module.register_forward_hook(self.save)

    def save(self, module, inputs, output):
        self.features.append(output)

    def __call__(self, x):
        self.features = []
        self.net(x)
        return list(self.features)

net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.ReLU(True))
net.eval().requires_grad_(False)
tap = Tap(net)
image = torch.rand(1, 3, 12, 12, requires_grad=True)
with torch.no_grad():
    target = tap(torch.rand(1, 3, 12, 12))
opt = torch.optim.Adam([image], lr=0.01)
for _ in range(4):
    loss = sum((a - b).pow(2).mean() for a, b in zip(tap(image), target))
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("name", FOUND)
def test_a_record_that_a_later_call_wrote_is_told(name, tmp_path):
    recording = check_program(HEAD + FOUND[name], tmp_path)
    assert recording.error is None, recording.error
    marked = next(at for at, one in enumerate((HEAD + FOUND[name]).splitlines(), 1) if "#!" in one)
    ties = [one for one in recording.history.get(Ties).found[:10] if one.kind == "kept"]
    assert marked in {site.line for one in ties for site in one.sites}


@pytest.mark.parametrize("name", RIGHT)
def test_what_was_kept_as_it_is_read_is_quiet(name, tmp_path):
    recording = record_program(HEAD + RIGHT[name], tmp_path)
    assert recording.error is None, recording.error
    assert [one for one in recording.findings if one.slug == "alias-write"] == []
    assert [one for one in recording.history.get(Ties).found if one.kind == "kept"] == []


def test_the_tie_names_the_line_that_kept_the_one_that_wrote_and_the_one_that_read(tmp_path):
    recording = record_program(HEAD + STYLE, tmp_path)
    lines = (HEAD + STYLE).splitlines()
    kept, wrote, read = (
        next(at for at, one in enumerate(lines, 1) if text in one)
        for text in ("features.append", "self.net(x)", "(a - b)")
    )
    first = recording.history.get(Ties).found[0]
    assert "self.features[0]" in first.shows
    assert message(first) == (
        f"`self.features[0]` changed at line {wrote} by `relu`, after line {kept} had kept it;"
        f" read at line {read}."
    )
    finding = next(one for one in recording.findings if one.slug == "alias-write")
    assert (finding.subject, finding.severity, finding.site.line) == ("self.features", "note", kept)


def test_why_tells_of_a_record(tmp_path):
    said = record_program(HEAD + STYLE, tmp_path).why("tap.features[0]")
    assert "kept here" in str(said)


BESIDE = """
kept = KEPT

def listen(module, given, heard):
    STORE
    heard.register_hook(lambda slope: SLOPE)

net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.ELU(inplace=True), nn.Linear(6, 1))
net[2].register_forward_hook(listen)
for _ in range(2):
    net(torch.randn(3, 4)).sum().backward()
    print((READ).mean().item())
"""

SLOPES = {
    "under another key": (
        "{}", 'kept["wave"] = heard', 'kept.__setitem__("slope", slope)',
        'kept["wave"] * kept["slope"]', 1,
    ),
    "under another key, by setdefault": (
        "{}", 'kept["wave"] = heard', 'kept.setdefault("slope", slope)',
        'kept["wave"] * kept["slope"]', 1,
    ),
    "in a dictionary of lists": (
        '{"wave": [], "slope": []}', 'kept["wave"].append(heard)', 'kept["slope"].append(slope)',
        'kept["wave"][-1] * kept["slope"][-1]', 1,
    ),
    "under a key that is worked out": (
        "{}", 'kept["wave"] = heard', 'kept.__setitem__("sl" + "ope", slope)',
        'kept["wave"] * kept["slope"]', 2,
    ),
    "in the same list": (
        "[]", "kept.append(heard)", "kept.append(slope)", "kept[-2] * kept[-1]", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOPES)
def test_only_a_line_that_is_known_to_keep_it_is_said_to(name, tmp_path):
    kept, store, slope, read, lines = SLOPES[name]
    text = BESIDE.replace("KEPT", kept).replace("STORE", store)
    text = HEAD + text.replace("SLOPE", slope).replace("READ", read)
    found = record_program(text, tmp_path).findings
    (one,) = [one for one in found if one.slug == "alias-write"]
    told = [step.text for step in one.evidence if step.role == "kept"]
    sure = ["kept here, the tensor itself"]
    assert told == (
        sure if lines == 1 else ["it may be this line that keeps the tensor itself"] * 2
    )
    assert ("where `kept` is filled" in one.fix.text) == (lines == 2)
