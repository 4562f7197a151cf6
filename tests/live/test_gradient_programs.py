"""The verdicts on gradients, on small programs of every kind of cut, and on good programs.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F
"""
LOOP = """
for _ in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
"""
TWO = """
import types
w = torch.ones(3, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
"""

CUT = {
    "detach": TWO
    + """
def forward():
    return ((w * 2).detach() + b).sum()  #! gradient-cut w
""",
    "number in a list beside a tensor that is iterated over": TWO
    + """
kept = types.SimpleNamespace(values=[])
weights = torch.tensor([0.5, 1.0, 2.0])

def forward():
    kept.values = []
    for one in range(3):
        kept.values.append((w[one] * 2).item())  #! gradient-cut w
    parts = [b.sum()]
    for value, weight in zip(kept.values, weights):
        parts.append(-value * weight)
    return torch.stack(parts).sum()
""",
    "detach in place": TWO
    + """
def forward():
    y = w * 2
    y.detach_()  #! gradient-cut w
    return (y + b).sum()
""",
    "data": TWO
    + """
def forward():
    return (w.data * 2 + b).sum()  #! gradient-cut w
""",
    "no_grad": TWO
    + """
def forward():
    with torch.no_grad():  #! gradient-cut w
        y = w * 2
    return (y + b).sum()
""",
    "inference mode": TWO
    + """
def forward():
    with torch.inference_mode():  #! gradient-cut w
        y = w * 2
    return (y.clone() + b).sum()
""",
    "decorator": TWO
    + """
@torch.no_grad()  #! gradient-cut w
def scaled():
    return w * 2

def forward():
    return (scaled() + b).sum()
""",
    "set_grad_enabled as a call": TWO
    + """
def forward():
    torch.set_grad_enabled(False)  #! gradient-cut w
    y = w * 2
    torch.set_grad_enabled(True)
    return (y + b).sum()
""",
    "item": TWO
    + """
def forward():
    scale = w.sum().item()  #! gradient-cut w
    return (torch.tensor(scale) * 2 + b).sum()
""",
    "float through arithmetic": TWO
    + """
def forward():
    scale = 2.0 * float(w.sum()) + 1.0  #! gradient-cut w
    return (torch.full((3,), scale) + b).sum()
""",
    "tolist": TWO
    + """
def forward():
    numbers = [2 * n for n in w.tolist()]  #! gradient-cut w
    return (torch.tensor(numbers) + b).sum()
""",
    "numpy round trip": TWO
    + """
import numpy as np
def forward():
    a = np.tanh((w * 2).detach().numpy())  #! gradient-cut w
    return (torch.from_numpy(a) + b).sum()
""",
    "torch.tensor": TWO
    + """
def forward():
    return (torch.tensor(w * 2) + b).sum()  #! gradient-cut w
""",
    "new_tensor": TWO
    + """
def forward():
    return (b.new_tensor(w * 2) + b).sum()  #! gradient-cut w
""",
    "Parameter of a computed value": TWO
    + """
def forward():
    y = nn.Parameter(w * 2)  #! gradient-cut w
    return (y + b).sum()
""",
    "integer cast": TWO
    + """
def forward():
    return ((w * 2).long() + b).sum()  #! gradient-cut w
""",
    "comparison": TWO
    + """
def forward():
    return ((w > 0.5) * 1.0 + b).sum()  #! gradient-cut w
""",
    "argmax": TWO
    + """
def forward():
    return ((w * 2).argmax() + b).sum()  #! gradient-cut w
""",
    "topk indices": TWO
    + """
def forward():
    return ((w * 2).topk(2).indices.float().sum() + b).sum()  #! gradient-cut w
""",
    "new leaf": TWO
    + """
def forward():
    y = (w * 2).detach().requires_grad_()  #! gradient-cut w
    return (y + b).sum()
""",
    "a Function that returns None": TWO
    + """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return None

def forward():
    return (Double.apply(w) + b).sum()  #! gradient-cut w
""",
    "a Function marked non-differentiable": TWO
    + """
class Mark(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.mark_non_differentiable(y)
        return y
    @staticmethod
    def backward(ctx, g):
        return g

def forward():
    return (Mark.apply(w) + b).sum()  #! gradient-cut w
""",
    "a hook that replaces the output": """
net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1, bias=False))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net[0].register_forward_hook(lambda m, i, o: o.detach())  #! gradient-cut net.0.weight
def forward():
    return net(torch.ones(2, 3)).sum()
""",
    "state_dict": """
net = nn.Linear(3, 1, bias=False)
b = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([*net.parameters(), b], lr=0.1)
def forward():
    state = net.state_dict()  #! gradient-cut net.weight
    return (F.linear(torch.ones(2, 3), state["weight"]) + b).sum()
""",
    "features made once before the loop": """
enc, head = nn.Linear(3, 3, bias=False), nn.Linear(3, 1)
opt = torch.optim.SGD([*enc.parameters(), *head.parameters()], lr=0.1)
features = enc(torch.ones(2, 3)).detach()  #! gradient-cut enc.weight
def forward():
    return head(features).sum()
""",
    "two cuts, the nearest to the parameter first": """
a, m, z = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.Linear(3, 1)
opt = torch.optim.SGD([*a.parameters(), *m.parameters(), *z.parameters()], lr=0.1)
def forward():
    h = a(torch.ones(2, 3)).detach()  #! gradient-cut a.weight
    h = m(h).detach()  #! gradient-cut m.weight
    return z(h).sum()
""",
    "rounding": TWO
    + """
def forward():
    return ((w.round() + b) ** 2 + b).sum()  #! gradient-zero w
""",
    "sign": TWO
    + """
def forward():
    return ((torch.sign(w * 2) + b) ** 2 + b).sum()  #! gradient-zero w
""",
    "an argument whose derivative is zero everywhere": TWO
    + """
def forward():
    return (torch.copysign(b, w) + b).sum()  #! gradient-zero w
""",
    "a hook that zeroes the gradient": TWO
    + """
w.register_hook(lambda g: torch.zeros_like(g))  #! gradient-zero w
def forward():
    return (w * 2 + b).sum()
""",
    "a derivative without create_graph": TWO
    + """
def forward():
    y = (w ** 3).sum()
    (g,) = torch.autograd.grad(y, [w])  #! gradient-cut w
    return (g * b + b).sum()
""",
    "a slice of a shared buffer": """
buffer = torch.zeros(2, 3)
w = torch.ones(3, requires_grad=True)  #! gradient-unused w
b = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
def forward():
    buffer[0].copy_((w * 2).detach())
    buffer[1].fill_(1.0)
    return (buffer[1] + b).sum()
""",
    "an output that the loss ignores": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 1, bias=False)
        self.b = nn.Linear(3, 1, bias=False)  #! gradient-unused net.b.weight
    def forward(self, x):
        return self.a(x), self.b(x)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def forward():
    x, y = net(torch.ones(2, 3))
    return x.sum()
""",
    "frozen by assignment": """
net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1))
net[0].weight.requires_grad = False  #! parameter-frozen net.0.weight (note)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def forward():
    return net(torch.ones(2, 3)).sum()
""",
    "never required grad": """
w = torch.ones(3)
b = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)  #! parameter-frozen w
def forward():
    return (w * b).sum()
""",
    "replaced after the optimizer was made": """
net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1, bias=False))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net[1].weight = nn.Parameter(torch.ones(1, 3))  #! parameter-stale net.1.weight
def forward():
    return net(torch.ones(2, 3)).sum()
""",
    "made after the optimizer": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
    def grow(self):
        self.b = nn.Linear(3, 1, bias=False)  #! parameter-stale net.b.weight
    def forward(self, x):
        return self.b(self.a(x))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net.grow()
def forward():
    return net(torch.ones(2, 3)).sum()
""",
}

OTHER = {
    "a second derivative without create_graph, a term of the loss": """
import torch
w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    x = torch.rand(3, requires_grad=True)
    (first,) = torch.autograd.grad((w * x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)  #! gradient-lost inner (note)
    inner = (second - 1).pow(2).mean()
    loss = inner + w.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "zeroed between backward and step": HEAD
    + TWO
    + """
for _ in range(3):
    loss = (w * b + b).sum()
    loss.backward()
    for p in (w, b):
        p.grad = None  #! gradient-discarded w
    opt.step()
""",
    "zero_grad that keeps zeros": HEAD
    + TWO
    + """
for _ in range(3):
    loss = (w * 2 + b).sum()
    loss.backward()
    opt.zero_grad(set_to_none=False)  #! gradient-discarded w
    opt.step()
""",
    "no backward at all": HEAD
    + TWO
    + """
for _ in range(3):
    loss = (w * 2 + b).sum()
    opt.step()  #! gradient-unused w
""",
    "a gradient asked for without an optimizer": HEAD
    + """
w = torch.ones(3, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
loss = (w.detach() + b).sum()  #! gradient-cut w
loss.backward()
print(w.grad, b.grad)
""",
    "autograd.grad of a detached tensor": HEAD
    + """
w = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
loss = (w.detach() * v).sum()  #! gradient-cut w
torch.autograd.grad(loss, [w, v], allow_unused=True)
""",
    "the gradient of a computed tensor": HEAD
    + """
w = torch.ones(3, requires_grad=True)
y = w * 2
y.sum().backward()
print(y.grad)  #! gradient-on-non-leaf y
""",
}

CLEAN = {
    "a custom backward that asks for what may be unused": """
class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, w):
        ctx.save_for_backward(y, w)
        return y @ w

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            y, w, time = (one.detach().requires_grad_() for one in (*ctx.saved_tensors, torch.ones(1)))
            shown = time * 2
            found = torch.autograd.grad(y @ w, (y, w, time), gradient, allow_unused=True)
        return found[:2]

w = torch.ones(3, 3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    Adjoint.apply(torch.ones(2, 3), w).sum().backward()
    opt.step()
""",
    "target network and EMA": """
import copy
net = nn.Linear(3, 1)
target, ema = copy.deepcopy(net), copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    with torch.no_grad():
        goal = target(torch.ones(2, 3))
    loss = (net(torch.ones(2, 3)) - goal - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), net.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)
    if step % 2:
        target.load_state_dict(net.state_dict())
""",
    "straight-through estimator": """
w = torch.tensor([1.3, 2.6], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (w + (w.round() - w).detach()).pow(2).sum().backward()
    opt.step()
""",
    "evaluation between epochs": """
net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 2))
opt = torch.optim.Adam(net.parameters())
for epoch in range(2):
    net.train()
    loss = F.cross_entropy(net(torch.randn(8, 3)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    net.eval()
    with torch.no_grad():
        accuracy = (net(torch.randn(8, 3)).argmax(1) == 0).float().mean().item()
""",
    "GAN": """
G, D = nn.Linear(2, 3), nn.Linear(3, 1)
g, d = torch.optim.SGD(G.parameters(), lr=0.1), torch.optim.SGD(D.parameters(), lr=0.1)
for _ in range(3):
    fake = G(torch.randn(4, 2))
    d.zero_grad()
    (D(fake.detach()).mean() - D(torch.randn(4, 3)).mean()).backward()
    d.step()
    g.zero_grad()
    (-D(fake).mean()).backward()
    g.step()
""",
    "fine-tuning a head": """
body, head = nn.Linear(3, 3), nn.Linear(3, 1)
body.requires_grad_(False)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    head(body(torch.ones(2, 3))).sum().backward()
    opt.step()
""",
    "two optimizers in turns": """
a, b = nn.Linear(3, 3), nn.Linear(3, 1)
first = torch.optim.SGD(a.parameters(), lr=0.1)
second = torch.optim.SGD(b.parameters(), lr=0.1)
for step in range(4):
    loss = b(a(torch.ones(2, 3))).sum()
    first.zero_grad(); second.zero_grad()
    loss.backward()
    (first if step % 2 else second).step()
""",
    "gradient accumulation and clipping": """
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    (net(torch.randn(2, 3)).pow(2).mean() / 2).backward()
    if step % 2:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
""",
    "LBFGS with a closure": """
net = nn.Linear(3, 1)
opt = torch.optim.LBFGS(net.parameters(), max_iter=3)
def closure():
    opt.zero_grad()
    loss = net(torch.ones(2, 3)).pow(2).sum()
    loss.backward()
    return loss
for _ in range(2):
    opt.step(closure)
""",
    "detached hidden state": """
cell = nn.GRUCell(2, 4)
out = nn.Linear(4, 1)
opt = torch.optim.SGD([*cell.parameters(), *out.parameters()], lr=0.1)
h = torch.zeros(1, 4)
for _ in range(4):
    h = cell(torch.ones(1, 2), h.detach())
    opt.zero_grad()
    out(h).sum().backward()
    opt.step()
""",
    "checkpoint": """
from torch.utils.checkpoint import checkpoint
a, b = nn.Linear(3, 3), nn.Linear(3, 1)
opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
for reentrant in (False, True, False):
    x = torch.ones(2, 3, requires_grad=True)
    opt.zero_grad()
    b(checkpoint(a, x, use_reentrant=reentrant)).sum().backward()
    opt.step()
""",
    "a hook that only looks": """
w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
w.register_hook(lambda g: print(g.norm()))
for _ in range(3):
    opt.zero_grad()
    torch.relu(-w).sum().backward()
    opt.step()
""",
    "zero-initialised residual branch": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.zeros(1))
    def forward(self, x):
        return x + self.scale * self.f(x)
net = Block()
opt = torch.optim.SGD([net.f.weight, net.f.bias], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
}


@pytest.mark.parametrize("name", CUT)
def test_a_cut_is_found_where_it_is(name, tmp_path):
    check_program(HEAD + CUT[name] + LOOP, tmp_path)


@pytest.mark.parametrize("name", OTHER)
def test_other_reasons_are_found(name, tmp_path):
    check_program(OTHER[name], tmp_path)


@pytest.mark.parametrize("name", CLEAN)
def test_good_programs_stay_quiet(name, tmp_path):
    check_program(HEAD + CLEAN[name], tmp_path)
