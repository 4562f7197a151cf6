"""The verdicts on memory, on small programs of every kind, and on programs that are right.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program
from tether.facts import Operand

HEAD = """\
import copy
import torch
from torch import nn
import torch.nn.functional as F
import numpy as np
"""
MODEL = """
model = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(2, 3)

def step():
    opt.zero_grad()
    loss = model(x).sum()
    loss.backward()
    opt.step()
    return loss
"""

FOUND = {
    "the state before, of which no copy was made": """
import numpy as np, torch
def play(state):
    before = torch.from_numpy(state)  #! alias-write before
    other = torch.tensor(np.ones(3, dtype=np.float32))
    before.sum()
    state += 1
    return (other - before).abs().sum()
print(play(np.zeros(3, dtype=np.float32)))
""",
    "best weights in an attribute": MODEL
    + """
class Keeper:
    def keep(self):
        self.best = model.state_dict()  #! alias-write keeper.best

keeper = Keeper()
keeper.keep()
step()
model.load_state_dict(keeper.best)
""",
    "a weight before training": MODEL
    + """
before = model.weight.detach()  #! alias-write before
step()
print((model.weight - before).abs().sum().item())
""",
    "a list of detached states": MODEL
    + """
history = []
for _ in range(3):
    history.append(model.weight.detach())  #! alias-write history
    step()
print(torch.stack(history).std(0))
""",
    "data kept": MODEL
    + """
before = model.weight.data  #! alias-write before
step()
print((model.weight - before).abs().sum().item())
""",
    "a write through a detached name": """
w = torch.ones(3, requires_grad=True)
snapshot = w.detach()  #! alias-write w
snapshot[0] = 100.0
print(w.tolist())
""",
    "a write on the array's side": """
t = torch.ones(3)
a = t.numpy()  #! alias-write t
a[0] = 5
print(t.sum())
""",
    "from_numpy, and the array written": """
a = np.ones(3)
t = torch.from_numpy(a)  #! alias-write t
a += 1
print(t.sum())
""",
    "expand written": """
m = torch.zeros(4).expand(3, 4)  #! alias-write m
m[0, 1] = 1
m[2, 1] = 2
print(m)
""",
    "one place of an expanded tensor written": """
m = torch.zeros(4).expand(3, 4)  #! alias-write m (note)
m[0, 1] = 1
print(m)
""",
    "one place of an expanded tensor written again and again": """
class Field:
    def __init__(self):
        self.everywhere = torch.zeros(()).expand(3, 4)  #! alias-write field.everywhere (note)
        self.inner = self.everywhere[1:]

field = Field()
for value in range(5):
    field.everywhere[0, 0] = float(value)
    print(field.inner.sum())
""",
    "rows of an expanded tensor, each by another line of a function": """
def fill(rows, number, values):
    rows[number] = values

m = torch.zeros(4).expand(3, 4)  #! alias-write m
for k in range(3):
    fill(m, k, torch.randn(4))
print(m)
""",
    "different elements of an expanded tensor": """
m = torch.zeros(4).expand(3, 4)  #! alias-write m (note)
m[0, 1] = 1
m[1, 2] = 2
m[-1, 3:] = 3
print(m)
""",
    "an element of an expanded tensor, counted from either end": """
m = torch.zeros(4).expand(3, 4)  #! alias-write m (note)
m[-1, 1] = 1
m[torch.tensor(2), 1:2] = 2
m[2, -3] = 2
print(m)
""",
    "places of an expanded tensor chosen by a mask": """
m = torch.zeros(4).expand(3, 4)  #! alias-write m
m[torch.randn(3, 4) > 0] = 1
print(m)
""",
    "views of an expanded tensor, each changed": """
def shaped(levels):
    grids = torch.ones(5, 5).unsqueeze(0).expand(len(levels), -1, -1)  #! alias-write grids
    for number, level in enumerate(levels):
        grids[number].tril_(level)
    return grids

print(shaped([2, 0, -1]).sum((1, 2)))
""",
    "views of views of a tensor that was broadcast": """
rows = torch.broadcast_to(torch.zeros(2, 6), (4, 2, 6))  #! alias-write rows
for number in range(4):
    upper = rows[number][0]
    upper[number:] = -1.0
print(rows.sum())
""",
    "a loop over an expanded tensor": """
scales = torch.rand(5).expand(3, 5)  #! alias-write scales
for number, scale in enumerate(scales):
    scale.mul_(number + 1)
print(scales)
""",
    "rows of a grid of coordinates": """
down, across = torch.meshgrid(torch.arange(3.0), torch.arange(4.0), indexing="ij")  #! alias-write across
for number in range(3):
    across[number] += 0.1 * number
print(down, across)
""",
    "places of a tensor laid over another by strides": """
lanes = torch.randn(8).as_strided((3, 8), (0, 1))  #! alias-write lanes
for number in range(3):
    lanes.select(0, number).add_(number)
print(lanes)
""",
    "one view of an expanded tensor, changed again and again": """
m = torch.rand(4).expand(3, 4)  #! alias-write m (note)
for _ in range(3):
    m[1].mul_(2)
print(m)
""",
    "windows that overlap written": """
m = torch.zeros(6).unfold(0, 3, 1)  #! alias-write m
m[0, 2] = 1
m[1] = 2
print(m)
""",
    "windows of which one is written": """
m = torch.zeros(6).unfold(0, 3, 1)  #! alias-write m (note)
m[0, 2] = 1
m[3] = 3
print(m)
""",
    "an activation in place": """
w = torch.ones(3, requires_grad=True)
h = torch.sigmoid(w)
h.mul_(2)  #! saved-overwritten h
h.sum().backward()
""",
    "two losses, a step between": MODEL
    + """
a = model(x)
deep = nn.Linear(1, 1)
first, second = deep(a).sum(), deep(a).pow(2).sum()
first.backward(retain_graph=True)
torch.optim.SGD(deep.parameters(), lr=0.1).step()  #! saved-overwritten deep.weight
second.backward()
""",
    "a metric that keeps outputs": MODEL
    + """
class Metric:
    def __init__(self):
        self.seen = []

    def add(self, out):
        self.seen.append(out)  #! graph-retained metric.seen

metric = Metric()
for _ in range(4):
    metric.add(step())
""",
    "a running total in place": MODEL
    + """
total = torch.zeros(())
for _ in range(4):
    opt.zero_grad()
    loss = model(x).sum()
    loss.backward()
    opt.step()
    total += loss  #! graph-retained total
""",
    "numpy of a computed tensor": """
w = torch.ones(3, requires_grad=True)
y = w * 2
y.numpy()  #! tie-error y
""",
    "a leaf in place": """
w = torch.ones(3, requires_grad=True)
w.add_(1)  #! tie-error w
""",
    "a hidden state carried over, and several statements on one line": """
rnn, head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1)
hidden = torch.zeros(1, 2, 4)
for _ in range(2):
    out, hidden = rnn(torch.ones(2, 5, 3), hidden)
    loss = head(out).sum()
    rnn.zero_grad(); loss.backward(); print(loss.item())  #! tie-error hidden
""",
    "one model's gradients with a graph, beside another's without": MODEL
    + """
model(x).sum().backward()
w = torch.ones(3, requires_grad=True)
(w ** 3).sum().backward(create_graph=True)  #! graph-retained w.grad
opt.step()
""",
    "features of inference mode in training": """
encoder, head = nn.Linear(3, 4), nn.Linear(4, 2)
with torch.inference_mode():
    features = encoder(torch.ones(5, 3))
head(features)  #! tie-error features
""",
    "what is trained computed once, and no leaf": """
w = torch.ones(3, 1, requires_grad=True) * 0.01
for _ in range(2):
    (torch.ones(5, 3) @ w).sum().backward()  #! tie-error w
""",
    "the graph a second time": """
w = torch.ones(3, requires_grad=True)
loss = (w * w).sum()
loss.backward()
loss.backward()  #! tie-error loss
""",
    "dlpack into a saved value": """
w = torch.ones(3, requires_grad=True)
h = w.tanh()
alias = torch.from_dlpack(h.detach())
alias.fill_(0)  #! untracked-write h
h.sum().backward()
""",
    "one buffer appended at every step": """
buffer, history = torch.zeros(3), []
for step in range(4):
    buffer.copy_(torch.full((3,), float(step)))
    history.append(buffer)  #! alias-write history
print(torch.stack(history))
""",
    "a list multiplied": """
counts = [torch.zeros(3)] * 4  #! alias-write counts
for place in range(4):
    counts[place] += place
print(torch.stack(counts))
""",
    "a shallow copy of a model as the target network": """
model = torch.nn.Linear(2, 1)
target = copy.copy(model)  #! alias-write target
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4, 2)
for _ in range(2):
    optimizer.zero_grad()
    with torch.no_grad():
        wanted = target(x) - 1
    (model(x) - wanted).pow(2).sum().backward()
    optimizer.step()
""",
    "arrays appended while the optimizer steps": MODEL
    + """
history = []
for _ in range(3):
    step()
    history.append(model.weight.detach().numpy())  #! alias-write history
print(np.stack(history))
""",
    "an array kept beside training": MODEL
    + """
def main():
    before = model.weight.detach().numpy()  #! alias-write before
    step()
    print(np.abs(before).sum())

main()
""",
    "arrays of a state_dict, restored": MODEL
    + """
best = {name: value.numpy() for name, value in model.state_dict().items()}  #! alias-write best
step()
model.load_state_dict({name: torch.from_numpy(value) for name, value in best.items()})
""",
    "an array of a running total, by asarray": """
total, curve = torch.zeros(2), []
for k in range(3):
    total += k
    curve.append(np.asarray(total))  #! alias-write curve
print(np.stack(curve))
""",
    "assign=True puts two models on one memory": MODEL
    + """
other = nn.Linear(3, 1)
other.load_state_dict(model.state_dict(), assign=True)  #! alias-write other
step()
print(other(x))
""",
    "a replica that serves the weights in training, normalized": """
def net():
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))

model, serving = net(), net().eval()
state = model.state_dict()  #! alias-write state (note)
serving.load_state_dict(state, assign=True)  #! alias-write serving (note)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for _ in range(3):
        opt.zero_grad()
        model(torch.randn(8, 3)).sum().backward()
        opt.step()
    with torch.no_grad():
        print(serving(torch.ones(2, 3)))
""",
    "a model that is put on another's memory again and again": MODEL
    + """
best = nn.Linear(3, 1)
for epoch in range(4):
    best.load_state_dict(model.state_dict(), assign=True)  #! alias-write best
    step()
    print(best(x))
""",
    "weights put on another's memory and read twice": MODEL
    + """
best = nn.Linear(3, 1)
best.load_state_dict(model.state_dict(), assign=True)  #! alias-write best
for epoch in range(2):
    step(), step()
    print(best(x))
""",
    "a record that is a buffer, and follows": MODEL
    + """
class Anchored(nn.Module):
    def __init__(self, at):
        super().__init__()
        self.register_buffer("at", at)

    def forward(self, weight):
        return (weight - self.at).pow(2).sum()

anchored = Anchored(model.weight.detach())  #! alias-write anchored.at
for epoch in range(4):
    step()
    print(anchored(model.weight))
""",
    "a shallow copy of layers in a row": """
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
frozen = copy.copy(model)  #! alias-write frozen
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4, 2)
for _ in range(2):
    optimizer.zero_grad()
    with torch.no_grad():
        wanted = frozen(x) - 1
    (model(x) - wanted).pow(2).sum().backward()
    optimizer.step()
""",
    "a dataclass default, written through one instance": """
from dataclasses import dataclass, field

@dataclass
class State:
    h: torch.Tensor = field(default=torch.zeros(3))  #! alias-write second.h

first, second = State(), State()
first.h += 1
print(second.h)
""",
    "a class attribute as each instance's buffer": """
class Meter:
    total = torch.zeros(())  #! alias-write Meter.total

    def add(self, value):
        self.total += value

train, test = Meter(), Meter()
train.add(1.0)
test.add(2.0)
print(train.total.item())
""",
    "closures that hold what they were made with": """
net, hooks = nn.Linear(4, 4), []
def hook_for(t):
    return lambda grad: grad + t.sum().detach() * 0
for i in range(5):
    hidden = net(torch.ones(2, 4))
    hidden.pow(2).mean().backward()
    hooks.append(hook_for(hidden))  #! graph-retained hooks
""",
    "exceptions that are kept with their tracebacks": """
net, errors = nn.Linear(4, 4), []
def attempt():
    hidden = net(torch.ones(2, 4))
    hidden.pow(2).mean().backward()
    raise ValueError("bad batch")
for i in range(5):
    try:
        attempt()
    except ValueError as error:
        errors.append(error)  #! graph-retained errors
""",
    "a loss whose backward would fail, and was not tried": """
w = torch.ones(3, requires_grad=True)
x = w.exp()
x.add_(1)  #! saved-overwritten x (note)
loss = x.sum()
print(loss.item())
""",
}

QUIET = {
    "what was imagined from a copy, beside the array as it is by then": """
import numpy as np, torch
def play(state):
    imagined = torch.tensor(state)
    real = torch.from_numpy(state)
    for _ in range(3):
        imagined = imagined * 0.9 + 1
        state += 1
    return (imagined - real).abs().sum()
print(play(np.zeros(3, dtype=np.float32)))
""",
    "a copy of the array from before, and how far it has come": """
import numpy as np, torch
def play(state):
    start = torch.tensor(state)
    now = torch.as_tensor(state)
    now.sum()
    state += 2
    return torch.dist(now, start)
print(play(np.zeros(3, dtype=np.float32)))
""",
    "columns of a scratch, each written through data before it is used": """
class Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scratch, value, column):
        ctx.column = column
        scratch.data[:, column] = value
        return scratch

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient[:, ctx.column], None

w, scratch = torch.ones(4, requires_grad=True), torch.zeros(4, 3)
y = w * 1
scratch = Put.apply(scratch, y, 0)
for i in range(2):
    y = y + (scratch[:, : i + 1] * w[:, None]).sum(1)
    scratch = Put.apply(scratch, y, i + 1)
y.sum().backward()
""",
    "the sum of two losses, each gone through before its targets are filled anew": """
w, target = torch.zeros(3, requires_grad=True), torch.ones(3)
loss = nn.BCEWithLogitsLoss()
real = loss(w * 2, target)
real.backward()
target.fill_(0.0)
fake = loss(w * 3, target)
fake.backward()
target.fill_(1.0)
both = real + fake
print(both.item())
""",
    "a loss of several tasks, each with a differentiated inner step": """
w, x = torch.ones(3, requires_grad=True), torch.ones(3)
for _ in range(3):
    total = 0
    for _ in range(3):
        (slope,) = torch.autograd.grad((w * x).sum(), w, create_graph=True)
        total = total + ((w - slope) * x).square().sum()
    w.grad = None
    total.backward()
""",
    "three losses of one forward pass, each with a pass of its own": MODEL
    + """
for _ in range(4):
    opt.zero_grad()
    a = model(x).tanh()
    a.sum().backward(retain_graph=True)
    b = a.exp()
    b.sum().backward(retain_graph=True)
    c = b.sin()
    c.sum().backward()
    opt.step()
""",
    "a state_dict loaded back into the tied model that it shows": """
net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
net[1].weight = net[0].weight
state = net.state_dict()
net.load_state_dict(state)
print(net(torch.arange(3)).sum(), state["0.weight"].sum())
""",
    "copies of arrays, and arrays used at once": MODEL
    + """
history, made = [], []
for _ in range(3):
    step()
    now = model.weight.detach().numpy()
    print(now.sum())
    history.append(now.copy())
    made.append(np.array(model.weight.detach()))
print(np.stack(history), np.stack(made))
""",
    "an array as a window on what is filled anew": """
buffer = torch.empty(4)
view = buffer.numpy()
for k in range(3):
    buffer.copy_(torch.full((4,), float(k)))
    print(view.sum())
""",
    "an array that nobody reads after the write": MODEL
    + """
before = model.weight.detach().numpy()
print(before.sum())
step()
""",
    "a copy loaded with assign=True": MODEL
    + """
other = nn.Linear(3, 1)
other.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
step()
print(other(x))
""",
    "class attributes that are meant for all": """
class Meter:
    scale = torch.ones(())
    count = torch.zeros(())

    def __init__(self):
        Meter.count += 1

    @classmethod
    def more(cls):
        cls.count += 1

first, second = Meter(), Meter()
Meter.more()
print(first.scale * 2, second.count)
""",
    "closures that hold a detached tensor, and an exception's message": """
net, hooks, errors = nn.Linear(4, 4), [], []
def hook_for(t):
    return lambda grad: grad + t.sum() * 0
def attempt():
    hidden = net(torch.ones(2, 4))
    hidden.pow(2).mean().backward()
    hooks.append(hook_for(hidden.detach()))
    raise ValueError("bad batch")
for i in range(5):
    try:
        attempt()
    except ValueError as error:
        errors.append(str(error))
""",
    "a copy of the buffer appended at every step": """
buffer, history = torch.zeros(3), []
for step in range(4):
    buffer.copy_(torch.full((3,), float(step)))
    history.append(buffer.clone())
print(torch.stack(history))
""",
    "a list multiplied, its places replaced": """
past = [torch.zeros(3)] * 4
for place in range(4):
    past[place] = past[place] + 1
print(torch.stack(past))
""",
    "one tensor stacked with itself": """
x = torch.zeros(3)
x += 1
both = [x, x]
print(torch.stack(both), torch.cat([x, x]))
""",
    "a deep copy of a model, and a shallow one that is never trained": """
model = torch.nn.Linear(2, 1)
target, same = copy.deepcopy(model), copy.copy(model)
optimizer = torch.optim.SGD(target.parameters(), lr=0.1)
target(torch.ones(4, 2)).sum().backward()
optimizer.step()
print(same(torch.ones(2)))
""",
    "what is appended was made in the loop": """
losses = []
for step in range(4):
    value = torch.ones(2) * step
    value += 1
    losses.append(value)
print(torch.stack(losses))
""",
    "a copy of the best weights": MODEL
    + """
best = copy.deepcopy(model.state_dict())
step()
model.load_state_dict(best)
""",
    "a target network": MODEL
    + """
target = copy.deepcopy(model)
for _ in range(3):
    step()
    with torch.no_grad():
        for old, new in zip(target.parameters(), model.parameters()):
            old.data.mul_(0.9).add_(new.data, alpha=0.1)
print(target(x))
""",
    "weights written through a state_dict": MODEL
    + """
state = model.state_dict()
with torch.no_grad():
    for value in state.values():
        value.copy_(torch.zeros_like(value))
print(model(x))
""",
    "a buffer filled through its array": """
buffer = torch.empty(4)
view = buffer.numpy()
for k in range(5):
    view[:] = k
    print(buffer.sum().item())
""",
    "a cache written and read by windows": """
cache = torch.zeros(5, 3)
for t in range(5):
    cache[t] = torch.randn(3)
    past = cache[: t + 1]
    print(past.mean().item())
""",
    "tied weights": """
net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
net[1].weight = net[0].weight
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
    "outputs of one rollout": MODEL
    + """
for _ in range(3):
    outs = []
    for _ in range(5):
        outs.append(model(x))
    opt.zero_grad()
    torch.stack(outs).sum().backward()
    opt.step()
""",
    "a slice beside its base": """
table = torch.randn(20_000, 8)
head = table[:4]
print(head.sum(), table.sum())
""",
    "batch statistics": """
net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(4, 3)).sum().backward()
    opt.step()
""",
    "an update by hand": """
w = torch.ones(3, requires_grad=True)
for _ in range(3):
    loss = (w * w).sum()
    loss.backward()
    w.data -= 0.1 * w.grad
    w.grad.zero_()
""",
    "frames added up where they overlap": """
signal, parts = torch.zeros(20), torch.randn(4, 8)
frames = signal.unfold(0, 8, 4)
for number in range(4):
    frames[number].add_(parts[number])
    frames[number] += parts[number]
print(signal)
""",
    "copies of an expanded tensor, each changed": """
shared = torch.ones(5, 5).expand(3, -1, -1)
grids = shared.clone()
for number in range(3):
    grids[number].tril_(number)
print(shared.sum(), grids.sum())
""",
    "what was expanded is written, and read through the expansion": """
level = torch.zeros(6)
table = level.expand(3, 6)
for number in range(6):
    level[number] = number
    print(table.sum())
""",
    "a view of an expansion that is gone": """
level = torch.rand(6)
row = level.expand(3, 6)[0]
row.mul_(2)
print(row.sum())
""",
    "repeated rows, each changed": """
rows = torch.rand(6).repeat(3, 1)
for number, row in enumerate(rows):
    row.mul_(number)
print(rows.sum())
""",
    "an expanded mask that is only read": """
mask = torch.ones(4).expand(3, 4)
print((torch.randn(3, 4) * mask).sum())
""",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_it_is_found_where_it_is(program, tmp_path):
    check_program(HEAD + program, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_a_good_program_is_left_in_peace(program, tmp_path):
    check_program(HEAD + program, tmp_path)


def _operand(number, tensor):
    return Operand(
        number, tensor.untyped_storage().data_ptr(), 0, 0, tuple(tensor.shape), tensor.stride(),
        "float32", tensor.requires_grad, tensor.is_leaf,
    )  # fmt: skip


def _chain(recording, name):
    """Links of the chain from which a name shares, as ``line words``; [] where it owns."""
    blocks = recording.why(name).document.blocks
    for number, block in enumerate(blocks):
        if getattr(block, "text", "") == "why it shares memory":
            return [f"{link.line} {link.role}" for link in blocks[number + 1].links]
    return []


BEST = (
    MODEL
    + """
best = {}
for epoch in range(2):
    step()
    if epoch == 0:
        best = model.state_dict()
step()
model.load_state_dict(best)
mine = copy.deepcopy(model.state_dict())
kept = model.weight.detach().numpy()
again = torch.from_numpy(kept)[:1]
with torch.no_grad():
    model.weight += 1
print(again.sum())
"""
)


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    return record_program(HEAD + BEST, tmp_path_factory.mktemp("best"))


def test_why_tells_the_calls_from_which_a_state_dict_shares(best):
    lines = (HEAD + BEST).splitlines()
    at = {text.strip(): number for number, text in enumerate(lines, 1)}
    made, shared = at["model = nn.Linear(3, 1)"], at["best = model.state_dict()"]
    written, read = at["opt.step()"], at["model.load_state_dict(best)"]
    assert _chain(best, "best")[:3] == [
        f"{made} `model.weight` and `model.bias` made here by Parameter",
        (
            f"{shared} `best['weight']` and `best['bias']` made of `model.weight` and `model.bias`"
            " by detach (shares its memory and cuts the gradient)"
        ),
        f"{written} `model.weight` and `model.bias` written by the step of SGD, 2 times",
    ]
    assert f"{read} `best['weight']` and `best['bias']` read by copy_" in _chain(best, "best")


def test_why_follows_memory_through_an_array(best):
    words = [link.partition(" ")[2] for link in _chain(best, "again")]
    assert words[0] == "`model.weight` made here by Parameter"
    assert words[2].endswith("handed out by numpy")
    assert "by from_numpy" in words[3]
    assert words[-2:] == ["`model.weight` written by add_", "`again` read by sum"]


def test_why_has_no_chain_for_what_owns_its_memory(best):
    assert _chain(best, "mine") == []
    assert _chain(best, "model.weight") == []


def test_why_of_an_owner_tells_who_shares(best):
    blocks = best.why("model.weight").document.blocks
    titles = [getattr(block, "text", "") for block in blocks]
    sharers = [link.role for link in blocks[titles.index("what shares its memory") + 1].links]
    assert sharers[0] == "`best['weight']` by detach"
    assert not any("mine" in role for role in sharers)
