"""What a definition made once and several objects have: defaults, attributes of a class."""

import pytest

from programs import check_program

START = """\
import copy
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
    def __init__(self, *, norm=nn.LayerNorm(3)):  #! alias-write norm (note)
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
    def __init__(self, norm=nn.LayerNorm(3)):
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

QUIET = list(PROGRAMS)[5:]


@pytest.mark.parametrize("case", PROGRAMS)
def test_program(case, tmp_path):
    recording = check_program(START + PROGRAMS[case], tmp_path)
    if case in QUIET and case != QUIET[0]:
        assert not [one for one in recording.findings if "made once" in one.message]
