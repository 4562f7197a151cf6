"""Programs on memory, wider: pieces handed out, conversions that part, what keeps what.

Each program says in comments what must be found and where; see `programs.py`.
"""

import gc

import pytest

from programs import check_program, record_program

HEAD = """\
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
"""
NET = """
torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def train():
    opt.zero_grad()
    net(torch.ones(4, 3)).pow(2).mean().backward()
    opt.step()
"""
RATES = """
net = nn.Linear(3, 1)
rate = torch.tensor(0.1)
groups = [{"params": [net.weight]}, {"params": [net.bias]}]
"""
SCHEDULED = """
for _ in range(4):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
    schedule.step()
print(net.weight)
"""
TIED = """
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 2), nn.Linear(2, 3)

    def forward(self, x):
        return self.two(self.one(x))

    def tie(self):
        self.two.weight.data = self.one.weight.data.t()

net = Pair()
"""

STEPS = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
    opt.step()
"""
QUEUE = """
class Queue(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.randn(6, 3))

    def add(self, new):
        self.keys = torch.cat([new, self.keys[:4]])  #MARK

class Miner:
    def __init__(self, queue):
        self.bank = queue.keys
        self.queue = queue

    def __call__(self, x):
        return (x @ self.BANK.t()).max()

queue = Queue()
miner = Miner(queue)
for _ in range(40):
    x = torch.randn(2, 3)
    miner(x)
    queue.add(x)
"""
SCALER = """
class Scaler(nn.Module):
    def __init__(self):
        super().__init__()
        self.stats = {"mean": torch.zeros(3)}
        self.register_buffer("mean", self.stats["mean"])

    def forward(self, x):
        with torch.no_grad():
            STATS.lerp_(x.mean(0).to(STATS), 0.5)
        return x - self.mean

net = nn.Sequential(Scaler(), nn.Linear(3, 1))
net.double()  #MARK
"""
MAPPED = """
import os, tempfile
import numpy as np
path = os.path.join(tempfile.mkdtemp(), "rows.npy")
np.save(path, np.arange(12.0, dtype=np.float32).reshape(4, 3))

def opened():
    rows = np.load(path, mmap_mode="MODE")  #MARK
    rows *= 2
    END
    return torch.from_numpy(rows.copy())

print([opened().sum() for _ in range(3)])
"""
FAILING = """
import gc
gc.disable()  # what is in a ring stays until the end
net = nn.Linear(3, 4)

def score(x, n):
    y = net(x).tanh()
    if n % 2:
        raise ValueError("odd")
    return y.sum().item()

class Report:
    def __init__(self):
        self.failures = []

def run():
    report = Report()
    for n in range(8):
        try:
            score(torch.randn(400, 3), n)
        except ValueError as error:
            report.failures.append((n, KEPT))  #MARK
    return len(report.failures)

print(run())
"""

TASKS = """
net, x = nn.Linear(3, 1), torch.randn(4, 3)

def gradient(power):
    net.zero_grad(set_to_none=False)
    net(x).pow(power).mean().backward()
    return [KEPT for p in net.parameters()]  #MARK

for _ in range(3):
    ones, twos = gradient(1), gradient(2)
    print(sum((a * b).sum() for a, b in zip(ones, twos)))
    print(sum((a * a).sum() for a in ones))
"""

FOUND = {
    "gradients of two losses, taken as the tensor that is written again": TASKS.replace(
        "KEPT", "p.grad"
    ).replace("#MARK", "#! alias-write ones[0] (note)"),
    "a file that is written whenever it is opened": MAPPED.replace("MODE", "r+")
    .replace("END", "")
    .replace("#MARK", "#! alias-write rows (note)"),
    "a buffer that is replaced, and who took the first one": QUEUE.replace(
        "#MARK", "#! tie-lost miner.bank (note)"
    ).replace("BANK", "bank"),
    "a second place of a buffer, and a conversion": SCALER.replace(
        "#MARK", "#! tie-lost net.0.stats['mean']"
    ).replace("STATS", 'self.stats["mean"]')
    + STEPS,
    "values that a pool keeps of what a network, called several times, gave": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2048, 2048)

    def forward(self, x):
        return self.inner(x).tanh()

net, pool = Net(), []
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(24):
    same, made = net(torch.randn(8, 2048)), net(torch.randn(8, 2048))
    back = net(made)
    pool.extend(one[None] for one in made.data)  #! storage-pinned pool (note)
    opt.zero_grad()
    (same.sum() + made.pow(2).mean() + back.sum()).backward()
    opt.step()
""",
    "exceptions that a function kept, in a ring with its own frame": FAILING.replace(
        "#MARK", "#! graph-retained report.failures"
    ).replace("KEPT", "error"),
    "a vector that the parameters are pieces of, read again after their steps": NET
    + """
center = parameters_to_vector(net.parameters()).detach() * 1.5
vector_to_parameters(center, net.parameters())  #! alias-write center
train()
print(center + 1)
""",
    "a vector that is handed out a second time, to restore what it was": NET
    + """
best = torch.randn(4)
for _ in range(2):
    vector_to_parameters(best, net.parameters())  #! alias-write best
    train()
""",
    "the pieces of a vector, assigned by a line of the program": NET
    + """
center = torch.randn(4)
net.weight.data = center[:3].view(1, 3)  #! alias-write center (note)
train()
print(center.norm())
""",
    "rates that a scheduler computes for each group, and one tensor to hold them": RATES
    + """
opt = torch.optim.SGD(groups, lr=rate)  #! alias-write SGD.param_groups
schedule = torch.optim.lr_scheduler.LambdaLR(opt, [lambda n: 0.0, lambda n: 1.0])
"""
    + SCHEDULED,
    "a tie by .data, and a conversion": TIED
    + """
net.tie()
net.double()  #! tie-lost net.two.weight (note)
"""
    + STEPS,
    "two Parameters made of one memory, and a conversion": TIED
    + """
net.two.weight = nn.Parameter(net.one.weight.data.t())
net.double()  #! tie-lost net.two.weight (note)
"""
    + STEPS,
    "a line that writes to a view of one weight, and to a copy of another": NET
    + """
conv = nn.Conv2d(2, 2, 2).to(memory_format=torch.channels_last)

@torch.no_grad()
def prune(module):
    flat = module.weight.flatten()
    flat[flat.abs() < 0.1] = 0.0  #! alias-write conv.weight

for _ in range(2):
    prune(net)
    prune(conv)
print(conv(torch.ones(1, 2, 3, 3)))
""",
    "rows of a copy, zeroed for the tensor that it was to be a view of": """
table = torch.randn(3, 4)
rows = table.t().reshape(6, 2)
for number in rows.abs().sum(1).argsort()[:2].tolist():
    rows[number].zero_()  #! alias-write table
del rows
print(table.sum())
""",
}

RIGHT = {
    "the square of a gradient that is read again each time": TASKS[: TASKS.index("for _")].replace(
        "KEPT", "p.grad"
    )
    + """
for _ in range(3):
    ones = gradient(2)
    print(sum((a * b).sum() for a, b in zip(ones, ones)))
""",
    "gradients of two losses, each a copy": TASKS.replace("KEPT", "p.grad.clone()"),
    "a state that begins with a buffer that stays": """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        start = torch.zeros(3)
        self.register_buffer("start", start)
        self.register_buffer("state", start)

    def forward(self, x):
        self.state = self.state * 0.5 + x
        return self.state - self.start

cell = Cell()
for _ in range(6):
    print(cell(torch.ones(3)))
    cell.state = cell.state if cell.state.sum() < 2 else cell.start
""",
    "a buffer that is replaced, and looked up each time": QUEUE.replace("BANK", "queue.keys"),
    "a buffer that is converted, and looked up each time": SCALER.replace("STATS", "self.mean")
    + STEPS,
    "exceptions that a function kept without their frames": FAILING.replace("KEPT", "str(error)"),
    "a vector that is only read, and copies of it": NET
    + """
best = torch.randn(4)
for _ in range(2):
    vector_to_parameters(best.clone(), net.parameters())
    train()
vector_to_parameters(best, net.parameters())
print(net(torch.ones(1, 3)), best)
""",
    "parameters that are laid out in one vector on purpose": NET
    + """
with torch.no_grad():
    flat = parameters_to_vector(net.parameters())
    vector_to_parameters(flat, net.parameters())
for _ in range(3):
    train()
    print(flat.norm())
""",
    "a vector that is stepped itself": NET
    + """
mean = torch.randn(4)
for _ in range(3):
    vector_to_parameters(mean, net.parameters())
    net.zero_grad()
    net(torch.ones(4, 3)).sum().backward()
    mean -= 0.1 * parameters_to_vector(p.grad for p in net.parameters())
""",
    "one rate for all groups, and a tensor for each": RATES
    + """
same = torch.optim.SGD(groups, lr=rate)
for group in groups:
    group["lr"] = rate.clone()
opt = torch.optim.SGD(groups)
both = torch.optim.lr_scheduler.ExponentialLR(same, 0.9)
same.step()
both.step()
schedule = torch.optim.lr_scheduler.LambdaLR(opt, [lambda n: 0.0, lambda n: 1.0])
"""
    + SCHEDULED,
    "a tie that is made after the conversion": TIED + "net.double()\nnet.tie()\n" + STEPS,
    "a copy that is written and read, and one that is handed on": """
table = torch.randn(3, 4)
rows = table.t().reshape(6, 2)
for number in range(2):
    rows[number].zero_()
print(rows.sum(), table.sum())
flat = table.t().flatten()
flat[0] = 1.0
print(flat)
""",
}


@pytest.fixture(autouse=True)
def _collecting():
    yield
    gc.enable()


@pytest.mark.parametrize("name", FOUND)
def test_found(name, tmp_path):
    check_program(HEAD + FOUND[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_right(name, tmp_path):
    check_program(HEAD + RIGHT[name], tmp_path)


LOGGED = """
import logging.handlers
kept = logging.handlers.MemoryHandler(1000, logging.CRITICAL)
log = logging.getLogger("kept records")
log.propagate = False
log.addHandler(kept)
net = nn.Linear(3, 400)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for n in range(6):
    loss = net(torch.ones(2, 3)).pow(2).mean()
    if n % 2:
        log.warning("run %d: %s", n, loss)
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_the_line_is_named_that_hands_on_what_a_library_keeps(tmp_path):
    found = record_program(HEAD + LOGGED, tmp_path).findings
    retained = next(one for one in found if one.slug == "graph-retained")
    lines = (HEAD + LOGGED).splitlines()
    assert any("log.warning" in lines[one.site.line - 1] for one in retained.evidence)


@pytest.mark.parametrize(("mode", "end"), [("c", ""), ("r+", "rows.flush()")])
def test_a_file_that_keeps_its_bytes_or_is_told_to_take_others(mode, end, tmp_path):
    program = HEAD + MAPPED.replace("MODE", mode).replace("END", end)
    assert not record_program(program, tmp_path).findings


def test_a_file_that_was_cut_off_while_an_array_shows_it(tmp_path):
    cut = HEAD + MAPPED.replace("MODE", "r+").replace("END", "os.truncate(path, 0)")
    cut = cut.replace("range(3)", "range(1)").replace("return torch.from_numpy(rows.copy())", "")
    record_program(cut.replace("opened().sum()", "opened()"), tmp_path)


QUIET = {
    "a Function that keeps the tensor whose memory its result shows": """\
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_(True)
            ctx.y = ctx.x * 2
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            return torch.autograd.grad(ctx.y, ctx.x, gradient)[0]

w = torch.randn(200, 200, requires_grad=True)
for _ in range(8):
    Doubled.apply(w * 3).sum().backward()
""",
    "passes that a Function makes for itself in each layer": """\
class Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, linear, *parameters):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_(True)
            ctx.y = linear(linear(ctx.x).tanh())
            along = torch.randn_like(x)
            for _ in range(3):
                (along,) = torch.autograd.grad(ctx.y, ctx.x, along, retain_graph=True)
            slope = along.sum(1)
        ctx.linear = linear
        return ctx.y.detach(), slope.detach()

    @staticmethod
    def backward(ctx, gradient, _):
        asked = [ctx.x, *ctx.linear.parameters()]
        with torch.enable_grad():
            x, *parameters = torch.autograd.grad(ctx.y, asked, gradient)
        return x, None, *parameters

layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])
opt = torch.optim.Adam(layers.parameters(), lr=0.001)

def step(h):
    total = 0
    for layer in layers:
        made, slope = Layer.apply(h, layer, *layer.parameters())
        h, total = h + made, total + slope
    loss = (h.pow(2).sum(1) - total).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return h, loss

for _ in range(6):
    h, loss = step(torch.randn(64, 16))
    print(loss.item())
""",
    "a copy that is written in each turn, and of which the last ones are not read": """\
import torch

kept = [torch.zeros(9, dtype=torch.long)]
for step in range(8):
    candidates = []
    for one in kept:
        for token in torch.randint(1, 5, (3,)):
            tokens = one.clone()
            tokens[step + 1] = token
            candidates.append(tokens)
    kept = candidates[:1]
print(kept[0].tolist())
""",
    "the last piece of what was taken apart, as the program ends": """\
import torch

def stream():
    return torch.randn(960, 32).split(4)

total = 0.0
for number, chunk in enumerate(stream()):
    total += chunk[:1].sum().item()
print(total)
""",
}


@pytest.mark.parametrize("name", QUIET)
def test_what_the_last_turn_of_a_loop_leaves_is_no_mistake(name, tmp_path):
    recording = record_program(QUIET[name], tmp_path)
    assert [one.slug for one in recording.findings if one.severity != "note"] == []


def test_thousands_of_tensors_of_one_buffer_that_is_filled_anew_are_judged_in_time(tmp_path):
    text = """\
import torch

chunk, held = bytearray(40), []
for number in range(1500):
    chunk[:4] = number.to_bytes(4, "little")
    held.append(torch.frombuffer(chunk, dtype=torch.int32))
    if len(held) == 500:
        print(sum(int(one[0]) for one in held))
        held.clear()
"""
    found = {(one.slug, one.site.line) for one in record_program(text, tmp_path).findings}
    assert ("alias-write", 6) in found
