"""Gradients that go missing in reinforcement, averaging and functional code, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MISSING = {
    "a teacher's score as the target that a loss has no formula for": """\
import torch
from torch import nn
from torch.nn import functional as F

enc, teacher = nn.Linear(5, 5), nn.Linear(5, 1)
opt = torch.optim.SGD([*enc.parameters(), *teacher.parameters()], 0.1)
for _ in range(3):
    x = torch.randn(4, 5)
    labels = torch.tanh(teacher(x)).squeeze(1)
    loss = F.cosine_embedding_loss(enc(x), x + 1, labels)  #! gradient-cut teacher.weight
    opt.zero_grad()
    (loss + enc(x).pow(2).mean()).backward()
    opt.step()
""",
    "one line that goes back for two optimizers in turn, each with a cut of its own": """\
import torch
from torch import nn

torch.manual_seed(0)
maker, judge = nn.Linear(4, 2), nn.Linear(2, 1)
optimizers = [torch.optim.Adam(one.parameters(), 0.01) for one in (maker, judge)]

def loss_of(turn):
    made = maker(torch.randn(8, 4))
    if turn == 0:
        return (judge(made.detach()) - 1).pow(2).mean()  #! gradient-cut maker.weight
    return judge(made.detach()).pow(2).mean()

for _ in range(4):
    for turn, optimizer in enumerate(optimizers):
        optimizer.zero_grad()
        loss_of(turn).backward()
        optimizer.step()
""",
    "a learned sign that only chooses the branch of a loss": """\
import torch

torch.manual_seed(0)
distance, sign = (torch.nn.Parameter(torch.randn(5)) for _ in range(2))
opt = torch.optim.SGD([distance, sign], 0.1)
for _ in range(3):
    opt.zero_grad()
    torch.nn.functional.hinge_embedding_loss(distance, sign).backward()  #! gradient-cut sign
    opt.step()
""",
    "a learned mask of whole places": """\
import torch

torch.manual_seed(0)
scores, length = torch.nn.Parameter(torch.randn(4, 6)), torch.nn.Parameter(torch.tensor(3.0))
opt = torch.optim.SGD([scores, length], 0.1)
for _ in range(3):
    opt.zero_grad()
    mask = torch.arange(6) < length  #! gradient-cut length
    scores.masked_fill(mask, 0).sum().backward()
    opt.step()
""",
    "a detach before a call that gives two results of all its operands": """\
import torch
from torch import nn

embed, rnn, head = nn.Linear(2, 3), nn.GRU(3, 3, batch_first=True), nn.Linear(3, 1)
opt = torch.optim.SGD([*embed.parameters(), *rnn.parameters(), *head.parameters()], 0.1)
for _ in range(3):
    values = embed(torch.randn(2, 4, 2)).detach()  #! gradient-cut embed.weight
    opt.zero_grad()
    head(rnn(values)[1][0]).sum().backward()
    opt.step()
""",
    "a parametrization after the optimizer was made": """\
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
weight_norm(net[0])  #! parameter-stale net.0.parametrizations.weight.original0
for _ in range(3):
    opt.zero_grad()
    net(torch.ones(4, 3)).sum().backward()
    opt.step()
""",
    "a trainer that copies the model and not its optimizer": """\
import copy

import torch
from torch import nn


class Trainer:
    def __init__(self, model, opt):
        self.model = copy.deepcopy(model)
        self.opt = opt

    def step(self, x):
        loss = self.model(x).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


net = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 1, bias=False))
opt = torch.optim.SGD(net.parameters(), 0.1)  #! parameter-stale net.0.weight
trainer = Trainer(net, opt)
for _ in range(3):
    trainer.step(torch.ones(4, 3))
""",
    "a buffer that requires grad": """\
import torch
from torch import nn
torch.manual_seed(0)
class Gate(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("alpha", torch.ones(n, requires_grad=True))  #! parameter-stale net.0.alpha
        self.lin = nn.Linear(n, n)
    def forward(self, x): return self.lin(x) * self.alpha
net = nn.Sequential(Gate(3), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    loss = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "a plain tensor as an attribute": """\
import torch
from torch import nn
torch.manual_seed(0)
class Att(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.q = nn.Linear(n, n)
        self.query = torch.randn(n, requires_grad=True)  #! parameter-stale att.query
    def forward(self, x):
        w = (self.q(x) @ self.query).softmax(0)
        return (w[:, None] * x).sum(0)
att = Att(4)
opt = torch.optim.SGD(att.parameters(), 0.1)
for _ in range(3):
    loss = att(torch.randn(5, 4)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "parameters in a plain list": """\
import torch
from torch import nn
torch.manual_seed(0)
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)
        self.ws = [nn.Parameter(torch.ones(3)) for _ in range(2)]  #! parameter-stale m.ws[0]
    def forward(self, x):
        x = self.l(x)
        for w in self.ws: x = x * w
        return x
m = M(); opt = torch.optim.SGD(m.parameters(), .1)
for _ in range(3):
    loss = m(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "a state dict assigned after the optimizer was made": """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
state = {k: v.clone() for k, v in net.state_dict().items()}
opt = torch.optim.SGD(net.parameters(), 0.1)
net.load_state_dict(state, assign=True)  #! parameter-stale net.0.weight
for _ in range(3):
    loss = net(torch.randn(5, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "averaged weights set as new parameters": """\
import torch
from torch import nn

torch.manual_seed(0)


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    def apply_to(self, model):
        for n, p in model.named_parameters():
            owner = model.get_submodule(n.rpartition(".")[0])
            setattr(owner, n.rpartition(".")[2], nn.Parameter(self.shadow[n].clone()))  #! parameter-stale net.0.weight


net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
ema = EMA(net, 0.9)
ema.apply_to(net)
for _ in range(3):
    loss = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a step before backward": """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    loss = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()  #! gradient-discarded net.weight
    opt.step()
    loss.backward()
""",
    "experts chosen by the indices of topk": """\
import torch
from torch import nn

torch.manual_seed(0)
gate = nn.Linear(4, 4, bias=False)
experts = nn.ModuleList(nn.Linear(4, 1) for _ in range(4))
opt = torch.optim.SGD([*gate.parameters(), *experts.parameters()], 0.1)
for _ in range(4):
    x = torch.randn(6, 4)
    idx = gate(x).topk(2, dim=-1).indices  #! gradient-cut gate.weight
    mask = torch.zeros(6, 4).scatter(1, idx, 1.0)
    outs = torch.cat([e(x) for e in experts], 1)
    loss = (outs * mask).sum(1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "the value that is chosen inside the block of the target": """\
import torch
from torch import nn

torch.manual_seed(0)
q = nn.Linear(4, 2)
opt = torch.optim.Adam(q.parameters(), 1e-2)
for _ in range(3):
    s, s2 = torch.randn(8, 4), torch.randn(8, 4)
    a = torch.randint(0, 2, (8, 1))
    with torch.no_grad():  #! gradient-cut q.weight
        chosen = q(s).gather(1, a).squeeze(1)
        target = torch.ones(8) + 0.9 * q(s2).max(1).values
    loss = nn.functional.mse_loss(chosen, target)
    loss.requires_grad = True
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "Python complex numbers": """\
import torch
from torch import nn

torch.manual_seed(0)
phase = nn.Parameter(torch.randn(4))
gain = nn.Parameter(torch.ones(4))
opt = torch.optim.SGD([phase, gain], 0.1)
for _ in range(3):
    import cmath

    field = torch.tensor([cmath.exp(1j * p.item()) for p in phase])  #! gradient-cut phase
    loss = (field * gain).sum().abs()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "weights written by a hypernetwork": """\
import torch
from torch import nn

torch.manual_seed(0)
hyper = nn.Linear(2, 6, bias=False)
target = nn.Linear(3, 2, bias=False)
opt = torch.optim.Adam(hyper.parameters(), 1e-2)
bias = nn.Parameter(torch.zeros(2))
opt.add_param_group({"params": [bias]})
for _ in range(3):
    w = hyper(torch.randn(2)).view(2, 3)
    target.weight.data.copy_(w)  #! gradient-cut hyper.weight
    y = target(torch.randn(5, 3)) + bias
    loss = y.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a parameter made anew of itself in forward": """\
import torch
from torch import nn

torch.manual_seed(0)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
        self.out = nn.Linear(3, 1)

    def forward(self, x):
        self.w = nn.Parameter(self.w.clamp(0, 1))  #! gradient-cut scale.w
        return self.out(x * self.w)


scale = Scale()
opt = torch.optim.SGD(scale.parameters(), 0.1)
for _ in range(3):
    loss = scale(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}

QUIET = {
    "a weight whose values train as another Parameter on its memory": """\
import torch
from torch import nn

class Normed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        module.register_parameter("weight_bar", nn.Parameter(module.weight.data))

    def forward(self, x):
        bar = self.module.weight_bar
        del self.module.weight
        self.module.weight = bar / bar.norm()
        return self.module(x)

net = Normed(nn.Linear(4, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for _ in range(5):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
""",
    "a target that another loss trains": """\
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
enc, teacher = nn.Linear(5, 5), nn.Linear(5, 1)
opt = torch.optim.SGD([*enc.parameters(), *teacher.parameters()], 0.1)
for _ in range(3):
    x = torch.randn(4, 5)
    labels = torch.tanh(teacher(x)).squeeze(1)
    loss = F.cosine_embedding_loss(enc(x), x + 1, labels) + (labels - x.sum(1)).pow(2).mean()
    opt.zero_grad()
    (loss + enc(x).pow(2).mean()).backward()
    opt.step()
""",
    "three results of one call go into one call": """\
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
qkv, out = nn.Linear(4, 12), nn.Linear(4, 1)
opt = torch.optim.SGD([*qkv.parameters(), *out.parameters()], 0.1)
for _ in range(3):
    q, k, v = qkv(torch.randn(2, 3, 4)).chunk(3, -1)
    loss = out(F.scaled_dot_product_attention(q, k, v)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "collocation points kept by the module": """\
import torch
from torch import nn
torch.manual_seed(0)
class P(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        self.x = torch.linspace(0, 1, 10)[:, None].requires_grad_()
    def loss(self):
        u = self.net(self.x)
        (du,) = torch.autograd.grad(u.sum(), self.x, create_graph=True)
        return (du + u).pow(2).mean()
p = P(); opt = torch.optim.Adam(p.parameters())
for _ in range(3):
    loss = p.loss(); opt.zero_grad(); loss.backward(); opt.step()
""",
    "an input that is attacked, remembered by the module": """\
import torch
from torch import nn
torch.manual_seed(0)
class A(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(3, 2); self.last = None
    def forward(self, x):
        self.last = x
        return self.l(x)
a = A(); opt = torch.optim.SGD(a.parameters(), .1)
for _ in range(3):
    x = torch.randn(4, 3).requires_grad_()
    loss = a(x).pow(2).sum(); loss.backward()
    adv = (x + .1 * x.grad.sign()).detach()
    opt.zero_grad(); a(adv).pow(2).sum().backward(); opt.step()
""",
    "a teacher that follows": """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
ema = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
ema.load_state_dict(net.state_dict())
ema.requires_grad_(False)
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(4):
    x = torch.randn(4, 3)
    loss = (net(x) - ema(x)).pow(2).mean() + net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), net.parameters()):
            a.lerp_(b, 0.1)
""",
    "parametrizations": """\
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

torch.manual_seed(0)


class Sym(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


a = parametrizations.weight_norm(nn.Linear(4, 4))
b = nn.Linear(4, 4)
parametrize.register_parametrization(b, "weight", Sym())
net = nn.Sequential(a, nn.ReLU(), b)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    with parametrize.cached():
        loss = net(torch.randn(5, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "gradients of each sample": """\
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)


def loss_of(params, x, y):
    return (functional_call(net, params, (x[None],)) - y).pow(2).mean()


for _ in range(3):
    params = {k: v.detach() for k, v in net.named_parameters()}
    per = vmap(grad(loss_of), (None, 0, 0))(params, torch.randn(5, 3), torch.randn(5))
    opt.zero_grad()
    for k, p in net.named_parameters():
        p.grad = per[k].clamp(-1, 1).mean(0)
    opt.step()
""",
    "derivatives in the loss": """\
import torch
from torch import nn

torch.manual_seed(0)
u = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(u.parameters(), 1e-2)
for _ in range(3):
    t = torch.linspace(0, 1, 8)[:, None].requires_grad_()
    y = u(t)
    du = torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]
    d2 = torch.autograd.grad(du, t, torch.ones_like(du), create_graph=True)[0]
    loss = (d2 + y).pow(2).mean() + (u(torch.zeros(1, 1)) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "complex numbers": """\
import torch
from torch import nn

torch.manual_seed(0)
phase = nn.Parameter(torch.randn(4))
w = nn.Parameter(torch.randn(4, dtype=torch.complex64))
opt = torch.optim.SGD([phase, w], 0.1)
for _ in range(3):
    field = torch.polar(torch.ones(4), phase) * w
    loss = torch.fft.fft(field).abs().pow(2).sum() + torch.view_as_real(field)[:, 0].sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a body that thaws later": """\
import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(3, 3), nn.Linear(3, 1)
body.requires_grad_(False)
opt = torch.optim.SGD(head.parameters(), 0.1)
for epoch in range(4):
    if epoch == 2:
        body.requires_grad_(True)
        opt.add_param_group({"params": body.parameters(), "lr": 0.01})
    loss = head(body(torch.randn(4, 3))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "tied weights, filled through .data": """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(5, 3, padding_idx=0), nn.Linear(3, 5, bias=False))
net[1].weight = net[0].weight
net[0].weight.data = torch.randn(5, 3)
net[0].weight.data[0] = 0
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    ids = torch.randint(0, 5, (6,))
    loss = nn.functional.cross_entropy(net(ids), ids)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a Function that computes in NumPy": """\
import numpy as np
import torch
from torch import nn


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.from_numpy(np.exp(x.detach().numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return torch.from_numpy(grad.numpy() * y.numpy())


torch.manual_seed(0)
lin, out = nn.Linear(3, 3), nn.Linear(3, 1)
opt = torch.optim.SGD([*lin.parameters(), *out.parameters()], 0.1)
for _ in range(3):
    loss = out(Exp.apply(lin(torch.randn(4, 3)))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a hypernetwork through functional_call": """\
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
hyper = nn.Linear(2, 6, bias=False)
target = nn.Linear(3, 2, bias=False).requires_grad_(False)
opt = torch.optim.Adam(hyper.parameters(), 1e-2)
for _ in range(3):
    w = hyper(torch.randn(2)).view(2, 3)
    y = functional_call(target, {"weight": w}, (torch.randn(5, 3),))
    loss = y.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MISSING)
def test_a_missing_gradient_is_explained(name, tmp_path):
    check_program(MISSING[name], tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUIET)
def test_a_look_alike_stays_quiet(name, tmp_path):
    check_program(QUIET[name], tmp_path)
