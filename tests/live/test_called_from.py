"""The lines above a finding are those of the calls that it is about.

They are marked ``#: called`` in the programs; no other line of theirs is told as one.
"""

import pytest

from programs import record_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, wide=4):
        super().__init__()
        self.one = nn.Linear(4, wide)
        self.two = nn.Linear(wide, 1)

    def forward(self, x):
        x = torch.relu(self.one(x))
        return self.two(x)


def fit(net, opt, n, x):
    for _ in range(n):
        opt.zero_grad()
        net(x).sum().backward()
        opt.step()


net = Net()
opt = torch.optim.SGD(net.parameters(), 0.01)
"""

# Of several ways to a line, the one that the finding is about.
TOLD = {
    "outputs joined with their graphs, after hundreds of steps": (
        "graph-retained",
        """\
def judge(net):
    kept = None
    for _ in range(12):
        out = net(torch.randn(256, 4))  #: called
        kept = out if kept is None else torch.cat((kept, out))
    return kept

net = Net(256)
opt = torch.optim.SGD(net.parameters(), 0.01)
fit(net, opt, 300, torch.randn(2, 4))
print(judge(net).mean().item())  #: called
""",
    ),
    "a loss summed with its graph, from a function that trains as well": (
        "graph-retained",
        """\
net = Net(256)

def look():
    x, total = torch.randn(256, 4), 0
    for _ in range(9):
        fit(net, opt, 2, x[:2])
        total = total + net(x).mean()
    return total

opt = torch.optim.SGD(net.parameters(), 0.01)
print(look().item())  #: called
""",
    ),
    "a copy of a network in the loss, asked for an action before": (
        "gradient-discarded",
        """\
target = Net()
target.load_state_dict(net.state_dict())

def act(x):
    with torch.no_grad():
        return target(x)

def learn():
    for _ in range(3):
        x = torch.randn(5, 4)
        goal = 1 + target(x)
        opt.zero_grad()
        (net(x) - goal).pow(2).mean().backward()
        opt.step()
        target.load_state_dict(net.state_dict())

act(torch.randn(1, 4))
learn()  #: called
""",
    ),
    "a cut in a helper that shows values as well": (
        "gradient-cut",
        """\
def plain(value):
    return value.detach() * 2

def show():
    print(plain(torch.randn(3)))

def train():
    for _ in range(3):
        opt.zero_grad()
        loss = plain(net(torch.randn(5, 4))).sum()  #: called
        loss = loss + (loss.new_ones(1, requires_grad=True)).sum()
        loss.backward()
        opt.step()

show()
train()  #: called
""",
    ),
    "gradients cleared by a helper that is used elsewhere first": (
        "gradient-discarded",
        """\
other = Net()

def clear(model):
    for one in model.parameters():
        one.grad = None

def warm():
    clear(other)

def train():
    for _ in range(3):
        net(torch.randn(5, 4)).sum().backward()
        clear(net)  #: called
        opt.step()

warm()
train()  #: called
""",
    ),
    "the only way there": (
        "gradient-cut",
        """\
def plain(value):
    return value.detach() * 2

def train():
    for _ in range(3):
        opt.zero_grad()
        loss = plain(net(torch.randn(5, 4))).sum()  #: called
        loss = loss + (loss.new_ones(1, requires_grad=True)).sum()
        loss.backward()
        opt.step()

train()  #: called
""",
    ),
}


def called(finding):
    return [one.site.line for one in finding.evidence if one.role == "called"]


@pytest.mark.parametrize("case", TOLD)
def test_the_way_of_the_calls_that_it_is_about_is_told(case, tmp_path):
    slug, text = TOLD[case]
    recording = record_program(HEAD + text, tmp_path)
    (finding,) = [one for one in recording.findings if one.slug == slug]
    lines = (HEAD + text).splitlines()
    marked = [number for number, line in enumerate(lines, 1) if line.endswith("#: called")]
    assert sorted(called(finding)) == marked


# What is told where a helper is asked twice: never the line that has nothing to do with it.
UNTOLD = {
    "a network that is only looked at is not what is discarded": """\
target = Net()
target.load_state_dict(net.state_dict())

def act():
    with torch.no_grad():
        return target(torch.randn(1, 4))

def learn():
    for _ in range(3):
        x = torch.randn(5, 4)
        with torch.no_grad():
            goal = 1 + target(x)
        opt.zero_grad()
        (net(x) - goal).pow(2).mean().backward()
        opt.step()
        target.load_state_dict(net.state_dict())

act()
learn()
""",
    "outputs joined without their graphs": """\
net = Net(256)
opt = torch.optim.SGD(net.parameters(), 0.01)

def judge(net):
    with torch.no_grad():
        return torch.cat([net(torch.randn(256, 4)) for _ in range(12)])

fit(net, opt, 3, torch.randn(2, 4))
print(judge(net).mean().item())
""",
}


@pytest.mark.parametrize("case", UNTOLD)
def test_right_programs_are_quiet(case, tmp_path):
    findings = record_program(HEAD + UNTOLD[case], tmp_path).findings
    assert [one.slug for one in findings if one.slug[0] == "g"] == []


def test_runs_that_are_trained_by_the_same_lines_are_not_to_go_without_a_graph(tmp_path):
    text = """\
net = Net(256)
opt = torch.optim.SGD(net.parameters(), 0.01)

def look(x, sums):
    for k in range(2):
        loss = net(x).mean()
        sums[k] = sums[k] + loss
    return loss

sums = [0, 0]
for _ in range(12):
    opt.zero_grad()
    look(torch.randn(256, 4), sums).backward()
    opt.step()
    sums[1] = 0
print(sums[0].item())
"""
    found = record_program(HEAD + text, tmp_path).findings
    (one,) = [one for one in found if one.slug == "graph-retained"]
    assert "no_grad" not in one.fix.text
