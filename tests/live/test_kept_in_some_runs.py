"""A line that writes a tensor of its own in some runs, and what is kept in others; look-alikes."""

import pytest

from programs import record_program

STEP = """\
import torch
from torch import nn

torch.manual_seed(0)


class Damped(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p]
                if "velocity" not in kept:
                    kept["velocity"] = torch.zeros_like(p)
                velocity = kept["velocity"]
                velocity.lerp_(p.grad, 0.2)
                if p.ndim > 1:
                    move = MADE
                else:
                    move = velocity
                WRITTEN
                p.sub_(move)


net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = Damped(net.parameters())
for _ in range(5):
    opt.zero_grad()
    (net(torch.randn(6, 3)) - 1).square().mean().backward()
    opt.step()
"""

SPEECH = """\
import torch

torch.manual_seed(0)


class Voices:
    def __init__(self):
        self.known = {name: torch.randn(8) for name in ("ada", "bea")}
        self.room = torch.full((8,), 0.1)

    def computed(self, name):
        return torch.randn(8) * len(name)

    def of(self, name):
        TAKEN
        voice += self.room
        RETURNED


voices = Voices()
for turn in range(9):
    print(voices.of(("ada", "bea", "cleo")[turn % 3]).sum())
"""

NOISE = """\
import torch

torch.manual_seed(0)


class Sampler:
    def __init__(self, shape):
        self.fixed = torch.randn(shape)

    def draw(self, sigma, again):
        noise = CHOSEN
        noise.mul_(sigma)
        return noise.abs().sum()


sampler = Sampler((4, 4))
for turn in range(6):
    print(sampler.draw(0.5, turn % 2 == 0))
"""

LOOP = """\
import torch

torch.manual_seed(0)
rows = [torch.randn(3) for _ in range(4)]


def total(rows, shift):
    out = 0.0
    for number, row in enumerate(rows):
        if number % 2:
            row = row + shift
        row.exp_()
        out += row.sum().item()
    return out


print(total(rows, 1.0), total(rows, 2.0), READ)
"""

KEPT = {
    "an optimizer's state": (
        STEP.replace("MADE", "velocity * 2").replace("WRITTEN", "move.mul_(group['lr'])"), 24),
    "an optimizer's state, in several calls": (
        STEP.replace("MADE", "(velocity / p.grad.norm()).neg().neg_()")
        .replace("WRITTEN", "move.div_(move.norm() + 1).mul_(group['lr'])"), 24),
    "what a cache has": (
        SPEECH.replace("TAKEN", "voice = self.known.get(name)\n        if voice is None:\n"
                       "            voice = self.computed(name)")
        .replace("RETURNED", "return voice"), 15),
    "what a cache has, by a condition": (
        SPEECH.replace("TAKEN", "voice = self.known[name] if name in self.known else"
                       " self.computed(name)").replace("RETURNED", "return voice"), 15),
    "noise that is to stay": (
        NOISE.replace("CHOSEN", "self.fixed if again else torch.randn(4, 4)"), 11),
    "elements of a list": (LOOP.replace("READ", "rows[0].sum()"), 9),
}  # fmt: skip

MEANT = {
    "the state is to be what was made of it": STEP.replace("MADE", "velocity * 2").replace(
        "WRITTEN", "move.mul_(group['lr']); kept['velocity'] = move"),
    "a new tensor is made of it": STEP.replace("MADE", "velocity * 2").replace(
        "WRITTEN", "move = move * group['lr']"),
    "always a tensor of its own": STEP.replace("MADE", "velocity * 2").replace(
        "move = velocity\n", "move = velocity + 0\n").replace("WRITTEN", "move.mul_(0.1)"),
    "filled anew before it is read": STEP.replace("MADE", "velocity * 2").replace(
        "WRITTEN", "move.mul_(0.1)").replace("velocity.lerp_(p.grad, 0.2)", "velocity.copy_(p.grad)"),
    "a copy of it in the runs that may not change it": STEP.replace(
        "MADE", "velocity.clone()").replace("WRITTEN", "move.mul_(0.1)"),
    "what is computed goes into the cache": SPEECH.replace(
        "TAKEN", "voice = self.known.get(name)\n        if voice is None:\n"
        "            voice = self.computed(name)").replace(
        "RETURNED", "self.known[name] = voice\n        return voice"),
    "a place that another method fills": SPEECH.replace(
        "TAKEN", "voice = self.known.get(name)\n        if voice is None:\n"
        "            voice = self.computed(name)").replace(
        "RETURNED", "self.keep(name, voice)\n        return voice").replace(
        "    def computed", "    def keep(self, name, voice):\n        if name == 'cleo':\n"
        "            self.known[name] = voice\n\n    def computed").replace(
        "torch.randn(8) for name", "self.computed(name) for name"),
    "taken out of the cache": SPEECH.replace(
        "TAKEN", "voice = self.known.pop(name, None)\n        if voice is None:\n"
        "            voice = self.computed(name)").replace("RETURNED", "return voice"),
    "noise of its own each time": NOISE.replace("CHOSEN", "self.fixed * 1 if again else"
                                                " torch.randn(4, 4)"),
    "elements that nobody reads again": LOOP.replace("total(rows, 2.0), READ", "0"),
    "a total that a caller may hand in": """\
import torch

torch.manual_seed(0)


def add_up(parts, total=None):
    if total is None:
        total = parts[0] * 1.0
    for part in parts[1:]:
        total += part
    return total


class Meter:
    def __init__(self):
        self.total = torch.zeros(3)

    def see(self, parts):
        add_up(parts, self.total)
        return self.total.sum() + add_up(parts).sum()


meter = Meter()
for _ in range(4):
    print(meter.see([torch.randn(3) for _ in range(3)]))
""",
    "a mean that moves while it learns": """\
import torch

torch.manual_seed(0)


class Centre:
    def __init__(self):
        self.mean, self.learns = torch.zeros(4), True

    def __call__(self, x):
        mean = self.mean if self.learns else self.mean.clone()
        mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x - mean).sum()


centre = Centre()
for turn in range(6):
    centre.learns = turn % 2 == 0
    print(centre(torch.randn(5, 4)), centre.mean)
""",
    "a hidden state that begins with what is computed": """\
import torch

torch.manual_seed(0)


class Leaky:
    def __init__(self):
        self.charge = None

    def __call__(self, x):
        charge = self.charge if self.charge is not None else x.mean(0)
        charge.mul_(0.9).add_(x.sum(0))
        self.charge = charge
        return charge.sum()


cell = Leaky()
for turn in range(9):
    if turn % 4 == 0:
        cell.charge = None
    print(cell(torch.randn(2, 3)))
""",
    "a scratch buffer where it fits": """\
import torch

torch.manual_seed(0)


class Scorer:
    def __init__(self):
        self.scratch = torch.empty(4, 3)

    def __call__(self, x, y):
        if x.shape == self.scratch.shape:
            out = self.scratch
            torch.mul(x, y, out=out)
        else:
            out = x * y
        out.add_(1.0)
        return out.sum()


scorer = Scorer()
for turn in range(8):
    rows = 4 if turn % 2 else 2
    print(scorer(torch.randn(rows, 3), torch.randn(rows, 3)))
""",
}  # fmt: skip


def _notes(recording):
    return [one for one in recording.findings if "a tensor of its own in some runs" in one.message]


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_written_in_some_runs(name, tmp_path):
    text, line = KEPT[name]
    (found,) = _notes(record_program(text, tmp_path))
    assert found.severity == "note"
    assert line in {one.site.line for one in found.evidence}


@pytest.mark.parametrize("name", MEANT)
def test_what_may_be_written_in_all_runs(name, tmp_path):
    assert not _notes(record_program(MEANT[name], tmp_path))
