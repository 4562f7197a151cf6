"""More ways to lose a gradient, written as people write them.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

CUT = {
    "hard argmax loss with requires_grad_": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    p = head(net(x)).argmax(1).float()  #! gradient-cut net.0.weight
    return F.mse_loss(p, y.float()).requires_grad_()


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "np.stack": """\
import torch
import numpy as np
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    rows = [net(r).detach().numpy() for r in x]  #! gradient-cut net.0.weight
    return F.cross_entropy(head(torch.from_numpy(np.stack(rows))), y)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "cached features": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))

cache = {}


def features():
    if "f" not in cache:
        with torch.no_grad():  #! gradient-cut net.0.weight
            cache["f"] = net(x)
    return cache["f"]


def forward():
    return F.cross_entropy(head(features()), y)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "decorated forward": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 2, bias=False)

    @torch.no_grad()  #! gradient-cut enc.l.weight
    def forward(self, x):
        return self.l(x)


enc = Enc()
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*enc.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    return F.cross_entropy(head(enc(x)), y)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "set_grad_enabled(phase)": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))

phase = "Train"


def forward():
    with torch.set_grad_enabled(phase == "train"):  #! gradient-cut net.0.weight
        f = net(x)
    return F.cross_entropy(head(f), y)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "deepcopy in forward": """\
import torch
import copy
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    return F.cross_entropy(head(copy.deepcopy(net)(x)), y)  #! gradient-cut net.0.weight


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "parameter rewrapped in forward": """\
import torch
from torch import nn

torch.manual_seed(0)


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.randn(3))
        self.out = nn.Linear(3, 1, bias=False)

    def forward(self, x):
        self.w = nn.Parameter(torch.sigmoid(self.raw))  #! gradient-cut m.raw
        return self.out(x * self.w)


m = M()
opt = torch.optim.SGD(m.parameters(), lr=0.1)
x = torch.randn(5, 3)


def forward():
    return m(x).pow(2).mean()


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "weight.data lookup": """\
import torch
from torch import nn

torch.manual_seed(0)

emb = nn.Embedding(5, 3)
out = nn.Linear(3, 1, bias=False)
opt = torch.optim.SGD([*emb.parameters(), *out.parameters()], lr=0.1)


def forward():
    return out(emb.weight.data[torch.tensor([0, 1])]).sum()  #! gradient-cut emb.weight


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "LongTensor": """\
import torch
from torch import nn

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    return (
        head(net(x).type(torch.LongTensor).float()).pow(2).mean()  #! gradient-cut net.0.weight
    )


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "sampling": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    a = torch.distributions.Categorical(
        logits=net(x)
    ).sample()  #! gradient-cut net.0.weight
    return head(F.one_hot(a, 2).float()).pow(2).mean()


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "loss re-made": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    loss = F.cross_entropy(head(net(x)), y)
    loss = torch.autograd.Variable(
        loss.data, requires_grad=True  #! gradient-cut net.0.weight
    )
    return loss


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "dict of modules": """\
import torch
from torch import nn

torch.manual_seed(0)


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.heads = {
            "a": nn.Linear(3, 1, bias=False)  #! parameter-stale m.heads['a'].weight
        }

    def forward(self, x):
        return self.heads["a"](self.body(x))


m = M()
opt = torch.optim.SGD(m.parameters(), lr=0.1)
x = torch.randn(5, 3)


def forward():
    return m(x).pow(2).mean()


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "detached in a helper file style": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def to_np(t):
    return t.detach().cpu().numpy()  #! gradient-cut net.0.weight


def normalise(a):
    return (a - a.mean()) / (a.std() + 1e-6)


def forward():
    f = torch.tensor(normalise(to_np(net(x))))
    return F.cross_entropy(head(f), y)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "python list of floats mean": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    losses = []
    for r, t in zip(x, y):
        losses.append(
            F.cross_entropy(head(net(r))[None], t[None]).item()  #! gradient-cut net.0.weight
        )
    return torch.tensor(sum(losses) / len(losses), requires_grad=True)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "backward only part: hook returns detached": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))

feats = {}


def grab(mod, inp, out):
    feats["f"] = out.detach()  #! gradient-cut net.0.weight


net.register_forward_hook(grab)


def forward():
    net(x)
    return F.cross_entropy(head(feats["f"]), y)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "two ways with a cut each, one of whole numbers": """\
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(3, 2)
opt = torch.optim.SGD(policy.parameters(), lr=0.1)
kept, rewards = [], []

for _ in range(3):
    for _ in range(4):
        chances = torch.distributions.Categorical(logits=policy(torch.randn(3)))
        action = chances.sample()
        kept.append(chances.log_prob(action).item())  #! gradient-cut policy.weight
        rewards.append(float(action.item()))
    terms = [-one * reward for one, reward in zip(kept, torch.tensor(rewards))]
    loss = torch.stack(terms).sum().requires_grad_()
    opt.zero_grad()
    loss.backward()
    opt.step()
    kept.clear()
    rewards.clear()
""",
    "floor quantise": """\
import torch
from torch import nn

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    return (
        head(torch.floor(net(x) * 10) / 10).pow(2).mean()  #! gradient-zero net.0.weight
    )


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "requires_grad False all": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))

net.requires_grad_(False)  #! parameter-frozen net.0.weight (note)


def forward():
    return F.cross_entropy(head(net(x)), y)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "functional params via dict of clones": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))

from torch.func import functional_call


def forward():
    params = {
        k: v.clone().detach() for k, v in net.named_parameters()  #! gradient-cut net.0.weight
    }
    return F.cross_entropy(head(functional_call(net, params, (x,))), y)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "gumbel hard no st": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    p = net(x).softmax(-1)
    hard = F.one_hot(p.max(-1)[1], 2).float()  #! gradient-cut net.0.weight
    return head(hard).pow(2).mean()


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "where constants": """\
import torch
from torch import nn

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    return (
        head(torch.where(net(x) > 0, 1.0, 0.0)).pow(2).mean()  #! gradient-cut net.0.weight
    )


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "overwritten with no grad inplace": """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
head = nn.Linear(2, 2, bias=False)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 3)
y = torch.randint(0, 2, (5,))


def forward():
    f = net(x)
    out = torch.zeros(5, 2)
    with torch.no_grad():  #! gradient-cut net.0.weight
        out.copy_(f)
    return F.cross_entropy(head(out), y)


for i in range(3):
    opt.zero_grad()
    loss = forward()
    loss.backward()
    opt.step()
""",
    "a sampled action beside the log-probability that is made a number": """\
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy, value = nn.Linear(4, 2, bias=False), nn.Linear(4, 1, bias=False)
opt = torch.optim.Adam([*policy.parameters(), *value.parameters()], 1e-2)
for episode in range(4):
    logps, values = [], []
    for t in range(5):
        state = torch.randn(4)
        chances = Categorical(logits=policy(state))
        action = chances.sample()
        logps.append(chances.log_prob(action).item())  #! gradient-cut policy.weight
        values.append(value(state))
    gain = torch.ones(5) - torch.stack(values).squeeze(1)
    loss = -(torch.tensor(logps) * gain.detach()).sum() + gain.pow(2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "the optimizer of the model that a deepcopy was made of": """\
import copy

import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1, bias=False))
model = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), 0.1)  #! parameter-stale net.0.weight
for _ in range(3):
    loss = model(torch.ones(4, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "main() function": """\
import torch
from torch import nn

torch.manual_seed(0)


def main():
    net = nn.Linear(3, 2, bias=False)
    head = nn.Linear(2, 2, bias=False)
    opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    x = torch.randn(5, 3)
    for i in range(3):
        opt.zero_grad()
        f = net(x).detach()  #! gradient-cut net.weight
        head(f).sum().backward()
        opt.step()


if __name__ == "__main__":
    main()
""",
}


SAMPLED = """\
import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)
enc, dec = nn.Linear(3, 2), nn.Linear(2, 3)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
for i in range(3):
    x = torch.randn(4, 3)
    z = Normal(enc(x), 1.0).sample()  #! gradient-cut enc.weight
    opt.zero_grad()
    (dec(z) - x).pow(2).mean().backward()
    opt.step()
"""


def test_a_library_that_switches_gradients_off_inside_is_named(tmp_path):
    recording = check_program(SAMPLED, tmp_path)
    (finding,) = [one for one in recording.findings if one.slug == "gradient-cut"]
    assert "the library switches off inside it" in finding.message
    (inside,) = [one.site for one in finding.evidence if one.role == "inside"]
    assert inside.file.replace("\\", "/").endswith("torch/distributions/normal.py")
    assert "Normal(enc(x), 1.0).rsample()" in finding.fix.text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CUT)
def test_a_cut_is_found_where_it_is(name, tmp_path):
    check_program(CUT[name], tmp_path)
