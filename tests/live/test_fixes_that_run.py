"""A fix is code that runs: of the call that is meant, and by facts, whatever the text looks like."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest
import torch

from programs import check_program, record_program
from tether.operations.rows import SAME_AS
from tether.operations.table import makes_anew, schema
from tether.source.edits import apply, mended
from tether.source.syntax import Source

DRAWN = """\
import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal

torch.manual_seed(0)


class Station:
    def __init__(self):
        self.readings = torch.randn(60, 3)

    def sample(self, count):
        return self.readings[torch.randint(0, 60, (count,))]


station, forecast, score = Station(), nn.Linear(3, 2), nn.Linear(2, 1)
parameters = [*forecast.parameters(), *score.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
for _ in range(3):
    {draw}
    loss = score(rain).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def fix_of(recording, slug):
    return next(one.fix.text for one in recording.findings if one.slug == slug)


@pytest.mark.parametrize(
    ("draw", "typed"),
    [
        (
            "rain = Normal(forecast(station.sample(8)), 1.0).sample()",
            "Normal(forecast(station.sample(8)), 1.0).rsample()",
        ),
        (
            "rain = Independent(Normal(forecast(station.sample(4)), 1.0), 1).sample((2,))",
            "Independent(Normal(forecast(station.sample(4)), 1.0), 1).rsample((2,))",
        ),
        (
            "rain = MultivariateNormal(forecast(station.sample(4)), torch.eye(2)).sample()",
            "",  # too long to be shown whole
        ),
        ("draw = Normal(forecast(station.sample(8)), 1.0).sample; rain = draw()", ""),
    ],
)
def test_of_several_calls_of_a_name_the_one_that_drew_is_changed(draw, typed, tmp_path):
    text = DRAWN.format(draw=draw)
    fix = fix_of(record_program(text, tmp_path), "gradient-cut")
    assert "station.rsample" not in fix
    shown = f"Draw with `{typed}` at" if typed and len(typed) <= 60 else "Draw with `rsample` in"
    assert fix.startswith(shown)
    if typed:  # what it says to write gives the gradient
        recording = record_program(DRAWN.format(draw=f"rain = {typed}"), tmp_path)
        assert not [one for one in recording.findings if one.slug == "gradient-cut"]


STATE = """\
import torch
from torch import nn

torch.manual_seed(0)
coder, reader = nn.Linear(3, 2), nn.Linear(2, 1)
{how}
optimizer = torch.optim.SGD([*coder.parameters(), *reader.parameters()], lr=0.1)
for _ in range(3):
    weight = {call}["weight"]
    loss = reader(torch.randn(4, 3) @ weight.t()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("how", "call"),
    [
        ("", "coder.state_dict()"),
        ("snapshot = coder.state_dict", "snapshot()"),
        ('snapshot = getattr(coder, "state_" + "dict")', "snapshot()"),
    ],
)
def test_a_state_is_known_by_the_code_that_ran(how, call, tmp_path):
    recording = record_program(STATE.format(how=how, call=call), tmp_path)
    (cut,) = [one for one in recording.findings if one.slug == "gradient-cut"]
    assert f"`{call}` returns detached tensors" in cut.message
    assert "`module.state_dict(keep_vars=True)`" in cut.fix.text


OWN_STATE = """\
import torch
from torch import nn

torch.manual_seed(0)


class Wave(nn.Module):
    def __init__(self):
        super().__init__()
        self.height = nn.Parameter(torch.ones(3))

    def my_state_dict(self):
        return {"height": self.height.detach()}


wave, reader = Wave(), nn.Linear(3, 1)
optimizer = torch.optim.SGD([*wave.parameters(), *reader.parameters()], lr=0.1)
for _ in range(3):
    loss = reader(wave.my_state_dict()["height"]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_method_that_is_only_called_alike_is_the_programs_own(tmp_path):
    fix = fix_of(record_program(OWN_STATE, tmp_path), "gradient-cut")
    assert fix.startswith("Drop the detach at line 13")


KEPT = """\
import torch
from torch import nn

torch.manual_seed(0)
pump = nn.Linear(3, 2)
snapshot = pump.state_dict
optimizer = torch.optim.SGD(pump.parameters(), lr=0.1)
best = snapshot()  #! alias-write best['weight']
for _ in range(3):
    optimizer.zero_grad()
    pump(torch.randn(4, 3)).pow(2).mean().backward()
    optimizer.step()
print(best["weight"].sum())
"""


def test_a_copy_of_a_state_is_one_of_all_that_it_holds(tmp_path):
    recording = check_program(KEPT, tmp_path)
    (finding,) = [one for one in recording.findings if one.slug == "alias-write"]
    assert "`copy.deepcopy(snapshot())`" in finding.fix.text
    repaired = apply(KEPT, mended(finding, Source(KEPT)).fix.edits)
    assert "best = copy.deepcopy(snapshot())" in repaired
    subprocess.run([sys.executable, "-c", repaired], check=True, capture_output=True)
    assert not [
        one for one in record_program(repaired, tmp_path).findings if one.slug == "alias-write"
    ]


CHANGED = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
pitch = torch.randn(4, 4, requires_grad=True)
layer = nn.Hardswish(inplace=True)


class Louder(torch.autograd.Function):
    @staticmethod
    def forward(ctx, sound):
        ctx.mark_dirty(sound)
        return sound.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


sound = torch.exp(pitch)
{change}
try:
    sound.sum().backward()
except RuntimeError:
    print("failed")
"""


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ("F.silu(sound, inplace=True)", "new tensor that `F.silu(sound)` returns"),
        ("F.dropout(sound, 0.5, inplace=True)", "new tensor that `F.dropout(sound, 0.5)` returns"),
        ("F.elu(sound, 1.0, True)", "`sound = torch.nn.functional.elu(sound, ...)`"),
        ("F.hardtanh_(sound)", "`sound = torch.nn.functional.hardtanh(sound, ...)`"),
        ("torch.relu_(sound)", "`sound = sound.relu(...)`"),
        ("sound.add_(1)", "`sound = sound.add(...)`"),
        ("sound += 1", "`sound = sound.add(...)`"),
        ("sound[0].add_(1)", "`x = sound[0].add(...)`"),
        ("layer(sound)", "Make the `Hardswish` that runs at line 22 with `inplace=False`."),
        ("F.normalize(sound.detach(), out=sound.detach())", "Leave `out=` out at line 22"),
    ],
)
def test_what_makes_a_new_tensor_is_a_call_that_pytorch_has(change, fix, tmp_path):
    text = CHANGED.format(change=change)
    assert fix in fix_of(record_program(text, tmp_path), "saved-overwritten")


def test_of_each_write_the_call_that_makes_a_new_tensor_is_there():
    begun = {name: makes_anew(name) for name in (*schema()["operations"], *SAME_AS)}
    begun = {name: call for name, call in begun.items() if name in SAME_AS or name[0] != "_"}
    calls = {one.replace("{x}", "torch.Tensor").partition("(")[0] for one in begun.values() if one}
    assert {"torch.Tensor.add", "torch.nn.functional.elu"} < calls
    for one in calls:
        functools.reduce(getattr, one.split(".")[1:], torch)
    assert not begun["uniform_"]
    assert not makes_anew("normalize")
