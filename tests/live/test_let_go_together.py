"""Graphs of many steps that one thing holds and lets go, whatever name leads to them."""

import pytest

from programs import record_program

START = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def fit(x):
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss


"""

TOLD = {
    "a list of linked objects": """
class Link:
    def __init__(self, value, before):
        self.value, self.before = value, before

def main():
    last = None
    for _ in range(9):
        loss = net(torch.randn(4, 8)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        last = Link(loss, last)  #+
    print(last.value.item())

main()
""",
    "a comprehension that is returned": """
def several():
    return [fit(torch.randn(4, 8)) for _ in range(9)]  #+

def main():
    losses = several()
    for _ in range(3):
        fit(torch.randn(4, 8))
    print(torch.stack(losses).mean().item())

main()
""",
    "a comprehension by key that a variable holds": """
losses = {k: fit(torch.randn(4, 8)) for k in range(9)}  #+
print(sum(one.item() for one in losses.values()))
""",
    "a log made from another": """
class Log:
    def __init__(self):
        self.items = []

    def add(self, item):
        self.items.append(item)  #+

class Words:
    def __init__(self):
        self.items = []

    def add(self, item):
        self.items.append(item)

class Losses(Log):
    pass

def main():
    losses, words = Losses(), Words()
    for k in range(9):
        loss = fit(torch.randn(4, 8))
        losses.add(loss)
        words.add(str(k))
    print(len(words.items), losses.items[-1].item())

main()
""",
    "a state that follows, and what its graph has saved": """
class Centre(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(8, 8)
        self.at = torch.zeros(8)

    def forward(self, x):
        y = self.lift(x)
        self.at = 0.9 * self.at + 0.1 * y.var(0)  #+
        return y - y.mean(0)

part = Centre()
for _ in range(9):
    fit(part(torch.randn(4, 8)))
print(part.at.sum().item())
""",
    "one container with two names": """
class Watch:
    def __init__(self):
        self.seen = []

    def run(self):
        for _ in range(9):
            loss = fit(torch.randn(4, 8))
            self.seen.append(loss)  #+
        return self

def main():
    watch = Watch().run()
    for _ in range(40):
        fit(torch.randn(4, 8))
    print(len(watch.seen))

main()
""",
}

RIGHT = {
    "numbers": """
def main():
    losses = [fit(torch.randn(4, 8)).item() for _ in range(9)]
    print(sum(losses))

main()
""",
    "losses that one pass goes through": """
def main():
    losses = [net(torch.randn(4, 8)).mean() for _ in range(9)]
    opt.zero_grad()
    torch.stack(losses).mean().backward()
    opt.step()
    print(losses[0].item())

main()
""",
    "values without a graph": """
def main():
    kept = [fit(torch.randn(4, 8)).detach() for _ in range(9)]
    print(torch.stack(kept).mean())

main()
""",
    "the states of a sequence": """
def main():
    state = torch.zeros(1, 8)
    for _ in range(4):
        states = [state]
        for _ in range(5):
            states.append(states[-1] + net(states[-1]))
        opt.zero_grad()
        torch.cat(states).pow(2).mean().backward()
        opt.step()
    print(states[-1].sum().item())

main()
""",
    "steps inside a step": """
def main():
    for _ in range(4):
        weights = [p.detach().clone().requires_grad_() for p in net.parameters()]
        path, losses = [weights], []
        for _ in range(4):
            out = torch.tanh(torch.randn(4, 8) @ path[-1][0].T + path[-1][1])
            losses.append(out.pow(2).mean())
            found = torch.autograd.grad(losses[-1], path[-1][:2], create_graph=True)
            path.append([w - 0.1 * g for w, g in zip(path[-1][:2], found)])
        opt.zero_grad()
        (torch.stack(losses).mean() + net(torch.randn(4, 8)).mean()).backward()
        opt.step()

main()
""",
}


def _kept(recording):
    return [one for one in recording.findings if one.slug == "graph-retained"]


@pytest.mark.parametrize("name", TOLD)
def test_is_told_once_with_the_line(name, tmp_path):
    text = START + TOLD[name]
    (found,) = _kept(record_program(text, tmp_path))
    wanted = {n for n, line in enumerate(text.splitlines(), 1) if "#+" in line}
    assert found.severity == "warning"
    assert wanted <= {one.site.line for one in (*found.evidence, found)}


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs(name, tmp_path):
    assert not [one for one in _kept(record_program(START + RIGHT[name], tmp_path))
                if one.severity != "note"]  # fmt: skip
