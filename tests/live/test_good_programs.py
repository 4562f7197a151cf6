"""Good programs of every kind give no finding of severity warning or error."""

import pytest

from programs import check_program

GOOD = {
    "a deep evaluation with gradients on, one line for all layers": """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[nn.Conv2d(8, 8, 3, padding=1) for _ in range(13)])

    def forward(self, x):
        return self.body(x)


def evaluate(net, data):
    total = 0.0
    for x in data:
        out = net(x)
        total += out.mean().item()
    return total


net = Net()
data = [torch.randn(8, 8, 32, 32) for _ in range(4)]
for epoch in range(3):
    print(evaluate(net, data))
""",
    "layers that share a parameter, evaluated with gradients on": """\
import torch
from torch import nn

torch.manual_seed(0)
weight = nn.Parameter(torch.ones(2))
layers = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(13))
for step in range(2):
    x = torch.randn(8, 8, 32, 32)
    for layer in layers:
        scale = weight.softmax(0)
        x = layer(x) * scale[0] + x * scale[1]
    print(x.mean().item())
""",
    "one prediction of a deep net at the end": """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[nn.Conv2d(8, 8, 3, padding=1) for _ in range(13)])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    net(torch.randn(8, 8, 32, 32)).mean().backward()
    opt.step()
print(net(torch.randn(8, 8, 32, 32)).mean().item())
""",
    "a sample is normalised and only its shape is asked for": """\
import torch
from torch import nn


def normalize_features(x):
    value = x - x.min()
    value.div_(value.sum(dim=-1, keepdim=True).clamp(min=1.0))
    return value


def normalize(x):
    x = x.clone()
    x.sub_(0.5).div_(0.25)
    return x


raw = torch.rand(8, 16)
width = normalize_features(raw).shape[-1]
width = normalize(raw).shape[-1]
net = nn.Linear(width, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(8):
    opt.zero_grad()
    net(raw[i]).sum().backward()
    opt.step()
""",
    "a gradient put in place and scaled in place": """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=1.0)


def step():
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    for p in net.parameters():
        p.grad /= 4
    opt.step()


for _ in range(4):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    before = net.bias.detach().clone()
    step()
    print("moved by", (before - net.bias.detach()).tolist())
""",
    "a mean of sums of a row and a column": """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters())
x, a = torch.randn(10, 4), torch.randint(0, 2, (10, 1))


def parts():
    q = net(x)
    return q.gather(1, a) ** 2, (q ** 2)


for _ in range(3):
    loss1, loss2 = parts()
    loss = loss1 + loss2.sum(1) + nn.functional.smooth_l1_loss(loss1, loss2[:, :1])
    opt.zero_grad()
    loss.mean().backward()
    crossed = net.weight.grad.clone()
    loss1, loss2 = parts()
    opt.zero_grad()
    (loss1.squeeze(1) + loss2.sum(1)).mean().backward()
    print("same gradient:", torch.allclose(crossed, net.weight.grad))
    opt.step()
""",
    "lstm": """\
import torch
from torch import nn

torch.manual_seed(0)

net = nn.LSTM(3, 4, batch_first=True)
out = nn.Linear(4, 1)
opt = torch.optim.Adam([*net.parameters(), *out.parameters()])
for i in range(3):
    y, _ = net(torch.randn(2, 5, 3))
    loss = out(y[:, -1]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "spectral norm": """\
import torch
from torch import nn

torch.manual_seed(0)

net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
net2 = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 1))
opt = torch.optim.SGD([*net.parameters(), *net2.parameters()], lr=0.1)
for i in range(3):
    loss = net2(net(torch.randn(2, 3))).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "autocast": """\
import torch
from torch import nn

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.randn(2, 8)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "vae": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Linear(6, 4)
        s.mu = nn.Linear(4, 2)
        s.lv = nn.Linear(4, 2)
        s.d = nn.Linear(2, 6)

    def forward(s, x):
        h = torch.relu(s.e(x))
        m, l = s.mu(h), s.lv(h)
        z = m + torch.randn_like(m) * (0.5 * l).exp()
        return s.d(z), m, l


v = VAE()
opt = torch.optim.Adam(v.parameters())
for i in range(3):
    x = torch.randn(4, 6)
    r, m, l = v(x)
    loss = F.mse_loss(r, x) - 0.5 * (1 + l - m**2 - l.exp()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    "reinforce": """\
import torch
from torch import nn

torch.manual_seed(0)

pi = nn.Linear(4, 2)
opt = torch.optim.Adam(pi.parameters())
for i in range(3):
    d = torch.distributions.Categorical(logits=pi(torch.randn(8, 4)))
    a = d.sample()
    r = (a == 0).float()
    loss = -(d.log_prob(a) * (r - r.mean())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "actor critic shared": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

body = nn.Linear(4, 8)
actor = nn.Linear(8, 2)
critic = nn.Linear(8, 1)
opt = torch.optim.Adam([*body.parameters(), *actor.parameters(), *critic.parameters()])
for i in range(3):
    h = torch.tanh(body(torch.randn(8, 4)))
    v = critic(h).squeeze(1)
    lp = F.log_softmax(actor(h), 1)[:, 0]
    adv = (torch.rand(8) - v).detach()
    loss = -(lp * adv).mean() + (torch.rand(8) - v).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "moe experts not chosen": """\
import torch
from torch import nn

torch.manual_seed(0)


class MoE(nn.Module):
    def __init__(s):
        super().__init__()
        s.gate = nn.Linear(4, 3)
        s.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(s, x):
        p = s.gate(x).softmax(-1)
        i = p.argmax(-1)
        return torch.stack(
            [s.experts[int(k)](xx) * pp[k] for k, xx, pp in zip(i, x, p)]
        )


m = MoE()
opt = torch.optim.SGD(m.parameters(), lr=0.1)
for i in range(4):
    loss = m(torch.randn(16, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "byol": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

import copy

online = nn.Linear(4, 4)
pred = nn.Linear(4, 4)
target = copy.deepcopy(online)
for p in target.parameters():
    p.requires_grad_(False)
opt = torch.optim.SGD([*online.parameters(), *pred.parameters()], lr=0.1)
for i in range(3):
    a, b = torch.randn(8, 4), torch.randn(8, 4)
    loss = (
        2 - 2 * F.cosine_similarity(pred(online(a)), target(b).detach(), dim=-1).mean()
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    for t, o in zip(target.parameters(), online.parameters()):
        t.data = t.data * 0.99 + o.data * 0.01
""",
    "maml": """\
import torch
from torch import nn

torch.manual_seed(0)

w = nn.Parameter(torch.randn(3))
opt = torch.optim.Adam([w], lr=0.01)
for i in range(3):
    x = torch.randn(8, 3)
    inner = (x @ w).pow(2).mean()
    (g,) = torch.autograd.grad(inner, [w], create_graph=True)
    outer = (x @ (w - 0.1 * g) - 1).pow(2).mean()
    opt.zero_grad()
    outer.backward()
    opt.step()
""",
    "gradient penalty": """\
import torch
from torch import nn

torch.manual_seed(0)

D = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 1))
opt = torch.optim.Adam(D.parameters())
for i in range(3):
    x = torch.randn(8, 3, requires_grad=True)
    y = D(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    loss = y.mean() + (g.norm(dim=1) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "manual sgd": """\
import torch
from torch import nn

torch.manual_seed(0)

w = torch.zeros(3, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
x = torch.randn(20, 3)
y = x.sum(1)
for i in range(5):
    loss = ((x @ w + b) - y).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for p in (w, b):
            p -= 0.1 * p.grad
            p.grad.zero_()
print(w, b)
""",
    "scheduler + dataloader + clip": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

from torch.utils.data import DataLoader, TensorDataset

net = nn.Sequential(
    nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 3)
)
opt = torch.optim.AdamW(net.parameters())
sch = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=12)
best = None
for ep in range(3):
    for x, y in DataLoader(
        TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,))),
        batch_size=8,
        shuffle=True,
    ):
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sch.step()
    net.eval()
    with torch.inference_mode():
        acc = (net(torch.randn(8, 4)).argmax(1) == 0).float().mean().item()
    net.train()
""",
    "lora ok": """\
import torch
from torch import nn

torch.manual_seed(0)


class L(nn.Module):
    def __init__(s, base):
        super().__init__()
        s.base = base
        base.requires_grad_(False)
        s.A = nn.Parameter(torch.randn(2, 4))
        s.B = nn.Parameter(torch.zeros(4, 2))

    def forward(s, x):
        return s.base(x) + x @ s.A.T @ s.B.T


net = nn.Sequential(L(nn.Linear(4, 4)), nn.ReLU(), L(nn.Linear(4, 4)))
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad])
for i in range(3):
    loss = net(torch.randn(4, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "vq-vae": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

enc, dec = nn.Linear(4, 3), nn.Linear(3, 4)
code = nn.Embedding(8, 3)
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *code.parameters()])
for i in range(3):
    x = torch.randn(6, 4)
    z = enc(x)
    idx = torch.cdist(z, code.weight).argmin(1)
    q = code(idx)
    loss = (
        F.mse_loss(dec(z + (q - z).detach()), x)
        + F.mse_loss(q, z.detach())
        + 0.25 * F.mse_loss(z, q.detach())
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "swa ema averaged model": """\
import torch
from torch import nn

torch.manual_seed(0)

from torch.optim.swa_utils import AveragedModel, update_bn

net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
avg = AveragedModel(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(4):
    loss = net(torch.randn(8, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    avg.update_parameters(net)
update_bn([torch.randn(8, 4)], avg)
""",
    "checkpoint save resume": """\
import torch
from torch import nn

torch.manual_seed(0)

import io

net = nn.Linear(3, 1)
opt = torch.optim.Adam(net.parameters())


def step():
    loss = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


step()
f = io.BytesIO()
torch.save({"m": net.state_dict(), "o": opt.state_dict()}, f)
f.seek(0)
s = torch.load(f)
net.load_state_dict(s["m"])
opt.load_state_dict(s["o"])
step()
""",
    "multihead transformer": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
head = nn.Linear(8, 2)
opt = torch.optim.Adam([*enc.parameters(), *head.parameters()])
for i in range(2):
    loss = F.cross_entropy(
        head(enc(torch.randn(2, 5, 8)).mean(1)), torch.tensor([0, 1])
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
enc.eval()
with torch.no_grad():
    enc(torch.randn(2, 5, 8))
""",
    "threads": """\
import torch
from torch import nn

torch.manual_seed(0)

import threading

net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def train():
    for i in range(3):
        loss = net(torch.randn(4, 3)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


t = threading.Thread(target=train)
t.start()
t.join()
""",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GOOD)
def test_a_good_program_is_left_in_peace(name, tmp_path):
    recording = check_program(GOOD[name], tmp_path)
    assert recording.error is None
