"""What a definition made once and several objects have: defaults, attributes of a class."""

import pytest

from programs import check_program

START = """\
import copy
from dataclasses import dataclass
import torch
from torch import nn

torch.manual_seed(0)


def fit(net, target):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(6):
        opt.zero_grad()
        (net(torch.ones(2, 3)) - target).pow(2).mean().backward()
        opt.step()


"""

PROGRAMS = {
    "a module that two models have, each with an optimizer": """
class Net(nn.Module):
    def __init__(self, top=nn.Linear(3, 1)):  #! alias-write top
        super().__init__()
        self.body, self.top = nn.Linear(3, 3), nn.Sequential(top)
        self.last = top

    def forward(self, x):
        return self.last(self.body(x).tanh())

def main():
    one, two = Net(), Net()
    fit(one, 1.0)
    fit(two, -1.0)
    print(one(torch.ones(2, 3)))

main()
""",
    "a module with parameters in two blocks of one model": """
class Block(nn.Module):
    def __init__(self, *, norm=nn.LayerNorm(3)):  #! alias-write norm
        super().__init__()
        self.lift, self.norm = nn.Linear(3, 3), norm

    def forward(self, x):
        return self.norm(self.lift(x))

def main():
    fit(nn.Sequential(Block(), Block()), 1.0)

main()
""",
    "a list that each is to fill for itself": """
class Trace:
    def __init__(self, kept=[]):  #! alias-write kept (note)
        self.kept = kept

    def take(self, x):
        self.kept.append(x.detach())

def main():
    net, near, far = nn.Linear(3, 1), Trace(), Trace()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(6):
        out = net(torch.ones(2, 3))
        near.take(out + 1)
        far.take(out - 1)
        opt.zero_grad()
        out.mean().backward()
        opt.step()
    print(torch.stack(near.kept).mean(), torch.stack(far.kept).mean())

main()
""",
    "a dictionary of tensors that is an attribute of a class": """
class Centred(nn.Module):
    moments = {"mean": torch.zeros(3)}  #! alias-write Centred.moments (note)

    def forward(self, x):
        self.moments["mean"].mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.moments["mean"]

def main():
    first, second = Centred(), Centred()
    for _ in range(4):
        y = second(first(torch.randn(4, 3)) - 5)
    print(y.mean())

main()
""",
    "a state that a function has as its default": """
def follow(rows, state={"at": torch.zeros(3)}):  #! alias-write state['at'] (note)
    for row in rows:
        state["at"].mul_(0.5).add_(row)
    return state["at"].clone()

rows = torch.randn(4, 3)
print(follow(rows), follow(rows))
""",
    "one optimizer after another, of one model": """
class Block(nn.Module):
    def __init__(self, norm=nn.LayerNorm(3)):  #! alias-write norm
        super().__init__()
        self.lift, self.norm = nn.Linear(3, 3), norm

    def forward(self, x):
        return self.norm(self.lift(x))

def main():
    net = nn.Sequential(Block(), Block())
    fit(net, 1.0)
    fit(net, 2.0)

main()
""",
    "modules of a tuple, that each puts into a list of its own": """
class RGBHead(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Linear(width, 3)
    def forward(self, x):
        return self.net(x).sigmoid()

class Field(nn.Module):
    def __init__(self, freqs, heads=(RGBHead(32),)):  #! alias-write heads
        super().__init__()
        self.freqs = freqs
        self.trunk = nn.Linear(3 * 2 * freqs, 32)
        self.heads = nn.ModuleList(heads)

    def forward(self, x):
        enc = torch.cat([f(x * 2 ** i) for i in range(self.freqs) for f in (torch.sin, torch.cos)], -1)
        h = self.trunk(enc).relu()
        return torch.cat([head(h) for head in self.heads], -1)

def train():
    coarse, fine = Field(2), Field(5)
    params = {id(p): p for m in (coarse, fine) for p in m.parameters()}.values()
    opt = torch.optim.Adam(params, lr=1e-2)
    for step in range(8):
        x = torch.rand(16, 3)
        y = x.flip(1)
        loss = (coarse(x) - y).pow(2).mean() + (fine(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
train()
""",
    "modules of a list, of two parts of one model": """
class Field(nn.Module):
    def __init__(self, width, heads=[nn.Linear(8, 3)]):  #! alias-write heads
        super().__init__()
        self.lift = nn.Linear(3, width)
        self.down = nn.Linear(width, 8)
        self.heads = nn.ModuleList(heads)
    def forward(self, x):
        return self.heads[0](self.down(self.lift(x).relu()))
class Nerf(nn.Module):
    def __init__(self):
        super().__init__()
        self.coarse, self.fine = Field(4), Field(16)
    def forward(self, x):
        c = self.coarse(x)
        return c, self.fine(x + c.detach())
def main():
    nerf = Nerf()
    opt = torch.optim.SGD(nerf.parameters(), lr=.1)
    for _ in range(6):
        x = torch.rand(8, 3)
        c, f = nerf(x)
        loss = (c - x).pow(2).mean() + (f - x).pow(2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
    print(loss)
main()
""",
    "modules of a dictionary": """
class Policy(nn.Module):
    def __init__(self, n, *, parts={"value": nn.Linear(8, 1)}):  #! alias-write parts
        super().__init__()
        self.enc = nn.Linear(n, 8)
        self.parts = nn.ModuleDict(parts)
    def forward(self, x):
        return self.parts["value"](self.enc(x).tanh())

a = Policy(3); b = Policy(4)
oa = torch.optim.SGD(a.parameters(), lr=.1)
ob = torch.optim.SGD(b.parameters(), lr=.1)
for _ in range(5):
    oa.zero_grad(); (a(torch.rand(4, 3)) - 1).pow(2).mean().backward(); oa.step()
    ob.zero_grad(); (b(torch.rand(4, 4)) + 1).pow(2).mean().backward(); ob.step()
print(a(torch.ones(1, 3)))
""",
    "a layer that a function puts into what it makes": """
def build(width, embed=nn.Embedding(10, 8)):  #! alias-write embed
    return nn.Sequential(embed, nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))

small, big = build(4), build(16)
opts = [torch.optim.SGD(m.parameters(), lr=.1) for m in (small, big)]
x = torch.randint(0, 10, (6,))
for _ in range(5):
    for m, o in zip((small, big), opts):
        o.zero_grad(); m(x).pow(2).mean().backward(); o.step()
print(small(x).sum(), big(x).sum())
""",
    "a norm that begins each block": """
class Block(nn.Module):
    def __init__(self, d, norm=nn.LayerNorm(8)):  #! alias-write norm
        super().__init__()
        self.norm = norm
        self.ff = nn.Linear(d, d)
    def forward(self, x):
        return x + self.ff(self.norm(x))
net = nn.Sequential(*[Block(8) for _ in range(3)])
opt = torch.optim.SGD(net.parameters(), lr=.01)
for _ in range(6):
    x = torch.rand(8, 8)
    loss = (net(x) - 1).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "the head of a network that is to stand still": """
class Q(nn.Module):
    def __init__(self, n, head=nn.Linear(8, 2)):  #! alias-write head
        super().__init__()
        self.body = nn.Linear(n, 8)
        self.head = head
    def forward(self, x):
        return self.head(self.body(x).relu())
online, target = Q(4), Q(4)
target.body.load_state_dict(online.body.state_dict())
opt = torch.optim.SGD(online.parameters(), lr=.01)
for _ in range(6):
    x = torch.rand(8, 4)
    with torch.no_grad():
        y = target(x).max(1, keepdim=True)[0]
    loss = (online(x) - y - 1).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "a field of a dataclass": """
@dataclass(eq=False)
class Agent:
    n: int
    critic: nn.Module = nn.Linear(3, 1)  #! alias-write Agent.critic
    def __post_init__(self):
        self.actor = nn.Linear(3, self.n)
    def loss(self, x):
        return (self.actor(x).softmax(-1).max(-1)[0] * self.critic(x)[:, 0]).mean()
    def parameters(self):
        return [*self.actor.parameters(), *self.critic.parameters()]
agents = [Agent(2), Agent(3)]
opts = [torch.optim.SGD(a.parameters(), lr=.1) for a in agents]
for _ in range(6):
    x = torch.rand(5, 3)
    for a, o in zip(agents, opts):
        o.zero_grad(); a.loss(x).backward(); o.step()
print(agents[0].loss(x))
""",
    "a parameter of two models": """
class Scaled(nn.Module):
    def __init__(self, i, scale=nn.Parameter(torch.ones(1))):  #! alias-write scale
        super().__init__()
        self.fc = nn.Linear(i, 2)
        self.scale = scale
    def forward(self, x):
        return self.fc(x) * self.scale
text, image = Scaled(3), Scaled(5)
params = set(text.parameters()) | set(image.parameters())
opt = torch.optim.SGD(list(params), lr=.1)
for _ in range(6):
    a, b = torch.rand(4, 3), torch.rand(4, 5)
    loss = (text(a) - image(b)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "a layer of a base class": """
class Base(nn.Module):
    def __init__(self, proj=nn.Linear(4, 4)):  #! alias-write proj
        super().__init__()
        self.proj = nn.Sequential(proj, nn.ReLU())
class Text(Base):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(5, 4)
    def forward(self, x):
        return self.proj(self.emb(x))
class Image(Base):
    def __init__(self):
        super().__init__()
        self.conv = nn.Linear(6, 4)
    def forward(self, x):
        return self.proj(self.conv(x))
class Clip(nn.Module):
    def __init__(self, **parts):
        super().__init__()
        self.parts = nn.ModuleDict(parts)
clip = Clip(text=Text(), image=Image())
opt = torch.optim.SGD(clip.parameters(), lr=.1)
for _ in range(6):
    t, i = torch.randint(0, 5, (4,)), torch.rand(4, 6)
    loss = (clip.parts["text"](t) - clip.parts["image"](i)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "tensors of a tuple that two objects add to": """
class Meter:
    def __init__(self, name, sums=(torch.zeros(2), torch.zeros(1))):  #! alias-write sums (note)
        self.name = name
        self.total, self.count = sums
    def add(self, x):
        self.total += x.sum(0)
        self.count += len(x)
    def mean(self):
        return self.total / self.count
tr, va = Meter("train"), Meter("val")
for i in range(5):
    tr.add(torch.ones(4, 2))
    va.add(torch.zeros(2, 2))
print(tr.mean(), va.mean())
""",
    "modules that the caller hands to two": """
class Field(nn.Module):
    def __init__(self, freqs, heads=None):
        super().__init__()
        self.trunk = nn.Linear(3, 32)
        self.heads = nn.ModuleList(heads or [nn.Linear(32, 3)])
    def forward(self, x):
        h = self.trunk(x).relu()
        return torch.cat([head(h) for head in self.heads], -1)
shared = (nn.Linear(32, 3),)
coarse, fine = Field(2, shared), Field(5, shared)
opt = torch.optim.Adam({id(p): p for m in (coarse, fine) for p in m.parameters()}.values(), lr=1e-2)
for step in range(8):
    x = torch.rand(16, 3)
    loss = (coarse(x) - x).pow(2).mean() + (fine(x) - x).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "modules that a default names": """
trunk = nn.Linear(3, 8)
def tower(out, trunk=trunk):
    return nn.Sequential(trunk, nn.ReLU(), nn.Linear(8, out))
class Head(nn.Module):
    def __init__(self, out, bodies=(trunk,)):
        super().__init__()
        self.bodies = nn.ModuleList(bodies)
        self.out = nn.Linear(8, out)
    def forward(self, x):
        return self.out(self.bodies[0](x))
a, b, c, d = tower(1), tower(2), Head(1), Head(2)
ps = list({id(p): p for m in (a, b, c, d) for p in m.parameters()}.values())
opt = torch.optim.SGD(ps, lr=.1)
for _ in range(6):
    x = torch.rand(4, 3)
    loss = sum(m(x).pow(2).mean() for m in (a, b, c, d))
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "a module that a registry has, and a default asks it for": """
_made = {}
def encoder(name):
    if name not in _made:
        _made[name] = nn.Linear(3, 8)
    return _made[name]
encoder("a")
class Head(nn.Module):
    def __init__(self, out, body=encoder("a")):
        super().__init__()
        self.body = body
        self.out = nn.Linear(8, out)
    def forward(self, x):
        return self.out(self.body(x))
c, d = Head(1), Head(2)
ps = list({id(p): p for m in (c, d) for p in m.parameters()}.values())
opt = torch.optim.SGD(ps, lr=.1)
for _ in range(6):
    x = torch.rand(4, 3)
    loss = sum(m(x).pow(2).mean() for m in (c, d))
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "modules that stand still": """
class Loss(nn.Module):
    def __init__(self, w, nets=(nn.Linear(3, 8),)):
        super().__init__()
        self.w = w
        self.nets = nets
        for n in nets:
            n.requires_grad_(False)
    def forward(self, x, y):
        return self.w * sum((n(x) - n(y)).pow(2).mean() for n in self.nets)
net = nn.Linear(3, 3)
l1, l2 = Loss(1.), Loss(.5)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(8):
    x = torch.rand(16, 3)
    loss = l1(net(x), x) + l2(net(x), x.flip(0))
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "a default that one has, and the other one got another": """
class Field(nn.Module):
    def __init__(self, freqs, heads=(nn.Linear(32, 3),)):
        super().__init__()
        self.trunk = nn.Linear(3, 32)
        self.heads = nn.ModuleList(heads)
    def forward(self, x):
        return self.heads[0](self.trunk(x).relu())
coarse, fine = Field(2), Field(5, (nn.Linear(32, 3),))
opt = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=1e-2)
for step in range(8):
    x = torch.rand(16, 3)
    loss = (coarse(x) - x).pow(2).mean() + (fine(x) - x).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "modules that are copied into a list": """
class Field(nn.Module):
    def __init__(self, freqs, heads=(nn.Linear(32, 3),)):
        super().__init__()
        self.trunk = nn.Linear(3, 32)
        self.heads = nn.ModuleList(copy.deepcopy(h) for h in heads)
    def forward(self, x):
        return self.heads[0](self.trunk(x).relu())
coarse, fine = Field(2), Field(5)
opt = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=1e-2)
for step in range(8):
    x = torch.rand(16, 3)
    loss = (coarse(x) - x).pow(2).mean() + (fine(x) - x).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "a default in two places of one model": """
class Net(nn.Module):
    def __init__(self, n, head=nn.Linear(8, 1)):
        super().__init__()
        self.body = nn.Linear(n, 8)
        self.first = nn.Sequential(head)
        self.again = head
    def forward(self, x):
        h = self.body(x).relu()
        return self.first(h) + self.again(h * 2)
def build(n, act=nn.PReLU()):
    net = nn.Sequential(nn.Linear(n, 4), act, nn.Sequential(act, nn.Linear(4, 1)))
    net.act = act
    return net
net = Net(3); other = build(3); copied = copy.deepcopy(net); wrapped = nn.DataParallel(net, device_ids=[])
opt = torch.optim.SGD([*net.parameters(), *other.parameters(), *copied.parameters()], lr=.1)
for _ in range(6):
    x = torch.rand(4, 3)
    loss = sum(m(x).pow(2).mean() for m in (net, other, copied))
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "a list that each makes, beside what nobody writes": """
class Field(nn.Module):
    def __init__(self, freqs, heads=None, act=nn.ReLU(), drop=nn.Dropout(.1), scales=(1, 2), w=torch.ones(3)):
        super().__init__()
        self.trunk = nn.Linear(3, 8)
        self.heads = nn.ModuleList(heads if heads is not None else [nn.Linear(8, 3)])
        self.act, self.drop = act, drop
        self.register_buffer("w", w)
    def forward(self, x):
        return self.heads[0](self.drop(self.act(self.trunk(x * self.w))))
a, b = Field(1), Field(2)
opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=.1)
for _ in range(6):
    x = torch.rand(4, 3)
    loss = sum(m(x).pow(2).mean() for m in (a, b))
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "one inside another, which has a layer of its own": """
class Tree(nn.Module):
    def __init__(self, kids=(), leaf=nn.Linear(3, 3)):
        super().__init__()
        self.kids = nn.ModuleList(kids)
        self.leaf = leaf
        self.out = nn.Linear(3, 3)
    def forward(self, x):
        return self.out(self.leaf(x)) + sum(k(x) for k in self.kids)
net = Tree([Tree(leaf=nn.Linear(3, 3)), Tree()], nn.Linear(3, 3))
opt = torch.optim.SGD(net.parameters(), lr=.1)
for _ in range(6):
    x = torch.rand(4, 3)
    loss = net(x).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "a parameter of one model": """
class Scaled(nn.Module):
    def __init__(self, i, scale=nn.Parameter(torch.ones(1))):
        super().__init__()
        self.fc = nn.Linear(i, 2)
        self.scale = scale
    def forward(self, x):
        return self.fc(x) * self.scale
text = Scaled(3)
opt = torch.optim.SGD(text.parameters(), lr=.1)
for _ in range(6):
    loss = (text(torch.rand(4, 3)) - 1).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "a parameter that a default names": """
SCALE = nn.Parameter(torch.ones(1))
class Scaled(nn.Module):
    def __init__(self, i, scale=SCALE):
        super().__init__()
        self.fc = nn.Linear(i, 2)
        self.scale = scale
    def forward(self, x):
        return self.fc(x) * self.scale
text, image = Scaled(3), Scaled(5)
params = set(text.parameters()) | set(image.parameters())
opt = torch.optim.SGD(list(params), lr=.1)
for _ in range(6):
    a, b = torch.rand(4, 3), torch.rand(4, 5)
    loss = (text(a) - image(b)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(loss)
""",
    "a default that is copied": """
class Net(nn.Module):
    def __init__(self, top=nn.Linear(3, 1)):
        super().__init__()
        self.body, self.top = nn.Linear(3, 3), copy.deepcopy(top)

    def forward(self, x):
        return self.top(self.body(x).tanh())

def main():
    one, two = Net(), Net()
    fit(one, 1.0)
    fit(two, -1.0)

main()
""",
    "defaults that are read only, and one without tensors": """
class Net(nn.Module):
    def __init__(self, act=nn.Tanh(), mask=torch.ones(3), sizes=[3, 1]):
        super().__init__()
        self.act, self.mask, self.sizes = act, mask, sizes
        self.body = nn.Linear(*sizes)

    def forward(self, x):
        return self.act(self.body(x * self.mask))

def main():
    one, two = Net(), Net()
    fit(one, 1.0)
    fit(two, -1.0)

main()
""",
    "a default that one object has": """
class Net(nn.Module):
    def __init__(self, top=nn.Linear(3, 1)):
        super().__init__()
        self.top = top

    def forward(self, x):
        return self.top(x)

def main():
    net = Net()
    fit(net, 1.0)

main()
""",
    "a module that the class is asked for": """
class Part(nn.Module):
    shared = nn.Linear(3, 3)

    def __init__(self):
        super().__init__()
        self.own = nn.Linear(3, 3)

    def forward(self, x):
        return Part.shared(self.own(x))

def main():
    net = nn.Sequential(Part(), Part())
    opt = torch.optim.SGD([*net.parameters(), *Part.shared.parameters()], lr=0.1)
    for _ in range(6):
        opt.zero_grad()
        net(torch.ones(2, 3)).pow(2).mean().backward()
        opt.step()

main()
""",
    "a table that a class keeps by key": """
class Places(nn.Module):
    known = {}

    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(3, 3)

    def forward(self, x):
        if len(x) not in self.known:
            self.known[len(x)] = torch.arange(len(x)).sin().unsqueeze(1)
        return self.lift(x) + self.known[len(x)]

def main():
    fit(nn.Sequential(Places(), Places()), 1.0)

main()
""",
}

QUIET = [case for case, text in PROGRAMS.items() if "#!" not in text]


@pytest.mark.parametrize("case", PROGRAMS)
def test_program(case, tmp_path):
    recording = check_program(START + PROGRAMS[case], tmp_path)
    if case in QUIET:
        assert not [one for one in recording.findings if "made once" in one.message]
