"""Writes to what is computed of a parameter for each pass, and writes to parameters.

A comment ``#!`` marks the line that the warning must name; a program without one is right.
"""

import pytest

from programs import record_program

HEAD = """\
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

torch.manual_seed(0)
x, y = torch.randn(32, 6), torch.randn(32, 3)

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.randn(3, 6))
        self.gain = nn.Parameter(torch.ones(()))

    def refresh(self):
        self.weight = self.raw * self.gain

    def forward(self, x):
        self.refresh()
        return x @ self.weight.t()

class Positive(nn.Module):
    def forward(self, w):
        return w.abs()

def fit(net, steps=4):
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(steps):
        loss = (net(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()

net = nn.Linear(6, 3)
"""

PROGRAMS = {
    "a pruned weight that is set back": """
prune.l1_unstructured(net, "weight", amount=0.5)
start = net.weight.detach().clone()
for _ in range(2):
    fit(net)
    with torch.no_grad():
        net.weight.copy_(start)  #!
print(fit(net))
""",
    "the parameter of a pruned weight, set back": """
start = net.weight.detach().clone()
prune.l1_unstructured(net, "weight", amount=0.5)
for _ in range(2):
    fit(net)
    with torch.no_grad():
        net.weight_orig.copy_(start)
print(fit(net))
""",
    "a parametrized weight that is clipped": """
parametrize.register_parametrization(net, "weight", Positive())
for _ in range(3):
    fit(net)
    with torch.no_grad():
        net.weight.clamp_(max=0.1)  #!
print(fit(net))
""",
    "a parametrized weight that is assigned": """
parametrizations.orthogonal(net)
for _ in range(3):
    fit(net)
    with torch.no_grad():
        net.weight = torch.eye(3, 6)
print(fit(net))
""",
    "a weight that the module computes itself": """
net = Scaled()
for _ in range(3):
    fit(net)
    with torch.no_grad():
        net.weight[0].zero_()  #!
print(fit(net))
""",
    "such a weight, written and looked at": """
net = Scaled()
for _ in range(3):
    fit(net)
    with torch.no_grad():
        net.weight[0].zero_()
        print((x @ net.weight.t()).norm())
print(fit(net))
""",
    "a part of the data, computed with a parameter": """
for _ in range(3):
    fit(net)
    with torch.no_grad():
        out = net(torch.randn(4, 6)) * net.bias
        out.clamp_(min=0)
print(fit(net))
""",
    "results of a warm-up, of which nobody reads any": """
late, data = nn.Linear(3, 6), torch.rand(4, 6)
with torch.no_grad():
    for _ in range(6):
        out = late(torch.tanh(net(data)))
        out += data
print(fit(net))
""",
    "results of draws, of which nobody reads any": """
with torch.no_grad():
    for _ in range(6):
        out = net(torch.tanh(torch.rand(4, 6)))
        out.clamp_(min=0)
print(fit(net))
""",
    "gradients that are changed, and cleared": """
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(4):
    net.zero_grad()
    (net(x) - y).pow(2).mean().backward()
    for one in net.parameters():
        one.grad.clamp_(-1, 1)
print(net.weight.norm())
""",
    "written once it is made permanent": """
prune.l1_unstructured(net, "weight", amount=0.5)
fit(net)
prune.remove(net, "weight")
with torch.no_grad():
    net.weight.mul_(0.5)
print(fit(net))
""",
    "masked for an evaluation": """
prune.l1_unstructured(net, "weight", amount=0.5)
for _ in range(3):
    fit(net)
    with torch.no_grad():
        net.weight.mul_(2)
        print(nn.functional.linear(x, net.weight).norm())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_to_what_is_computed_anew(name, tmp_path):
    text = HEAD + PROGRAMS[name]
    told = [one for one in record_program(text, tmp_path).findings if one.slug == "values-lost"]
    marked = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    assert [(one.site.line, one.severity) for one in told] == [(n, "warning") for n in marked]
