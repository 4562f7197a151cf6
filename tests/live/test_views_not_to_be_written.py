"""Writes in place into views that autograd forbids: which line made the view such a one.

Each broken program marks lines that the finding must name, at its site or in its evidence.
"""

import textwrap

import pytest

from programs import record_program

FULL = """
import torch
from torch import nn


class Unit(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)
        self.gate = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.gate(self.mix(x))  #! line


def watch(layer, kept):
    layer.register_full_backward_hook(lambda *given: kept.append(given[2]))  #! line


def main():
    trunk = nn.Sequential(Unit(), Unit())
    kept = []
    watch(trunk[1].mix, kept)
    trunk(torch.ones(2, 4)).sum().backward()


main()
"""
PRE = """
import torch
from torch import nn

head = nn.Linear(3, 2)
handle = head.register_full_backward_pre_hook(lambda module, grads: None)  #! line
scores = head(torch.ones(1, 3))
scores += 1  #! line
"""
FOR_ALL = """
import torch
from torch import nn

layers = nn.Sequential(nn.Linear(3, 3), nn.ELU(inplace=True))
seen = []
nn.modules.module.register_module_full_backward_hook(lambda *given: seen.append(1))  #! line
try:
    layers(torch.ones(2, 3))  #! line
except RuntimeError as error:
    print(error)
"""
INPUT = """
import torch
from torch import nn


class Shift(nn.Module):
    def forward(self, x):
        x += 1  #! line
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.shift = Shift()

    def forward(self, x):
        return self.shift(self.first(x))


class Probe:
    def __init__(self, module):
        self.handle = module.register_full_backward_hook(self.note)  #! line

    def note(self, module, given, got):
        self.got = got


model = Model()
probe = Probe(model.shift)
model(torch.ones(3, 2))
"""
SEQUENTIAL = """
import torch
from torch import nn

block = nn.Sequential(nn.Conv1d(1, 2, 1), nn.BatchNorm1d(2))
for name, part in block.named_children():
    part.register_full_backward_hook(lambda *given: None)  #! line
net = nn.Sequential(block, nn.Hardtanh(inplace=True))
net(torch.ones(2, 1, 4))  #! line
"""
VIEWED = """
import torch
from torch import nn

stem = nn.Linear(4, 6)
stem.register_full_backward_hook(lambda *given: None)  #! line
features = stem(torch.ones(2, 4))
half = features[:, :3]
half.mul_(2)  #! line
"""
HOOKED = [
    (FULL, "trunk.1.mix"), (PRE, "head"), (FOR_ALL, "every module"), (INPUT, "model.shift"),
    (SEQUENTIAL, "net.0.1"), (VIEWED, "stem"),
]  # fmt: skip

RETURNED = """
import torch


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


encoder = torch.nn.Linear(3, 3)
code = encoder(torch.ones(2, 3))
turned = Reverse.apply(code)  #! line
turned.clamp_(min=0)  #! line
"""
ITSELF = """
import torch


class Count(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value

    @staticmethod
    def backward(ctx, grad):
        return grad


def counted(value):
    return Count.apply(value)  #! line


w = torch.ones(3, requires_grad=True)
total = counted(w * 3)
total -= 1  #! line
"""
OFF = """
import torch

bias = torch.zeros(6, requires_grad=True)
state = bias * 2
with torch.no_grad():  #! line
    front = state.narrow(0, 0, 3)  #! line
front.add_(1)  #! line
"""
OFF_DECORATED = """
import torch


@torch.no_grad()  #! line
def window(track):
    return track.unfold(0, 2, 2)  #! line


gain = torch.ones(4, requires_grad=True)
parts = window(gain.exp())
parts.mul_(0.5)  #! line
"""
SPLIT = """
import torch

lin = torch.nn.Linear(4, 8)
keys, values = lin(torch.ones(2, 4)).split(4, dim=1)  #! line
values.div_(2)  #! line
"""
UNBOUND = """
import torch

lin = torch.nn.Linear(4, 8)
out = lin(torch.ones(2, 4))
for row in out:  #! line
    row.sub_(row.mean().detach())  #! line
"""
VIEWS = [RETURNED, ITSELF, OFF, OFF_DECORATED, SPLIT, UNBOUND]


def marked(text):
    lines = textwrap.dedent(text).splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("#! line")}


def told(recording):
    return [one for one in recording.findings if one.slug == "tie-error"]


def the_one(program, folder):
    [one] = told(record_program(program, folder))
    lines = {one.site.line} | {each.site.line for each in one.evidence}
    assert marked(program) <= lines, (marked(program), sorted(lines))
    return one


@pytest.fixture(autouse=True)
def no_hooks_are_left():
    yield
    from torch.nn.modules import module

    module._global_backward_hooks.clear()


@pytest.mark.parametrize(("program", "module"), HOOKED)
def test_the_line_that_registered_the_hook_is_named(program, module, tmp_path):
    one = the_one(program, tmp_path)
    assert "backward hook" in one.message
    assert module in one.message
    assert "register_hook" in one.fix.text


@pytest.mark.parametrize("program", VIEWS)
def test_the_line_that_made_the_view_is_named(program, tmp_path):
    assert "hook" not in the_one(program, tmp_path).message


REMOVED = FULL.replace("    layer.register", "    handle = layer.register").replace(
    "given[2]))  #! line", "given[2]))\n    handle.remove()"
)
QUIET = [
    REMOVED,
    FULL.replace("inplace=True", "inplace=False"),
    FULL.replace("register_full_backward_hook(lambda *given: kept.append(given[2]))",
                 "register_forward_hook(lambda *given: kept.append(given[2].detach()))"),
    PRE.replace("scores += 1", "scores = scores + 1"),
    PRE.replace("scores = head(torch.ones(1, 3))", "scores = head(torch.ones(1, 3)).clone()"),
    FOR_ALL.replace("nn.ELU(inplace=True)", "nn.ELU()"),
    RETURNED.replace("x.view_as(x)", "x.clone()"),
    ITSELF.replace("total -= 1", "total = total - 1"),
    OFF.replace("front.add_(1)", "with torch.no_grad():\n    front.add_(1)"),
    SPLIT.replace("values.div_(2)", "values = values.div(2)"),
    UNBOUND.replace("for row in out:", "for row in (out[i] for i in range(len(out))):"),
]  # fmt: skip


@pytest.mark.parametrize("program", QUIET)
def test_what_may_be_written_is_no_error(program, tmp_path):
    assert told(record_program(program, tmp_path)) == []


def test_of_two_hooked_modules_the_one_whose_output_is_written_is_named(tmp_path):
    text = """
    import torch
    from torch import nn

    wide = nn.Linear(3, 3)
    narrow = nn.Linear(3, 2)
    wide.register_full_backward_hook(lambda *given: None)
    narrow.register_full_backward_hook(lambda *given: None)  #! line
    hidden = wide(torch.ones(1, 3))
    logits = narrow(hidden.relu())
    logits.mul_(2)  #! line
    """
    one = the_one(text, tmp_path)
    assert "`narrow`" in one.message
    assert not any(each.site.line == 7 for each in one.evidence)
