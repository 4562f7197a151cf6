"""Attributes by which a module is to be frozen, or to train again, and which nothing reads."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x))

net = Net()
START
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(6):
    if epoch == 2:
        THEN
    optimizer.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""

FREEZE = "net.body.requires_grad_(False)"
CASES = {
    "a module's, to thaw it": (
        FREEZE, "net.body.requires_grad = True", [("parameter-frozen", "warning", 20)],
    ),
    "each module's, in a loop": (
        FREEZE, "for part in net.body: part.requires_grad = bool(epoch)",
        [("parameter-frozen", "warning", 20)],
    ),
    "a parameter's, spelt wrong": (
        FREEZE, "for one in net.body.parameters(): one.require_grad = True",
        [("parameter-frozen", "warning", 20)],
    ),
    "a module's, to freeze it": (
        "net.body.requires_grad = False", "pass", [("parameter-moved", "warning", 16)],
    ),
    "one that is right beside it": (
        FREEZE, "net.body.requires_grad = True; net.body.requires_grad_(True)", [],
    ),
    "each parameter's own": (FREEZE, "for one in net.parameters(): one.requires_grad = True", []),
    "one that says what is so": ("net.body.requires_grad = True", "pass", []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_a_plain_attribute_was_to_switch_is_told(name, tmp_path):
    start, then, expected = CASES[name]
    text = PROGRAM.replace("START", start).replace("THEN", then)
    found = record_program(text, tmp_path).findings
    assert [(one.slug, one.severity, one.site.line) for one in found] == expected


BACKWARD = """\
import torch
from torch import nn

torch.manual_seed(0)

class Flipped(nn.Module):
    def forward(self, x):
        self.x = x
        return x * 1.0

    def backward(self, grad):
        return BODY

flipped, net = Flipped(), nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = flipped(net(torch.randn(8, 4))).square().mean()
    loss.backward()
    CALL
    optimizer.step()
"""

METHODS = {
    "one that nothing calls": ("-grad", "pass", [("gradient-lost", "note", 11)]),
    "one that the program calls": ("-grad", "flipped.backward(torch.ones(1))", []),
    "one that begins a pass": ("grad.sum().backward()", "pass", []),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_a_module_that_is_to_be_its_backward(name, tmp_path):
    body, call, expected = METHODS[name]
    text = BACKWARD.replace("BODY", body).replace("CALL", call)
    found = record_program(text, tmp_path).findings
    assert [(one.slug, one.severity, one.site.line) for one in found] == expected
