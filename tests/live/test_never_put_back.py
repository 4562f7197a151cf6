"""Trained values that are copied before an evaluation with others, and right look-alikes."""

import pytest

from programs import record_program

START = """\
import copy

import torch
from torch import nn

x, y = torch.randn(32, 4), torch.randn(32, 1)
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
average = [p.detach().clone() for p in model.parameters()]


def fit():
    for _ in range(2):
        opt.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        opt.step()
        with torch.no_grad():
            for mean, p in zip(average, model.parameters()):
                mean.lerp_(p, 0.1)


@torch.no_grad()
def evaluate():
    return (model(x) - y).pow(2).mean().item()


@torch.no_grad()
def put(values):
    for p, value in zip(model.parameters(), values):
        p.copy_(value)


"""

LOST = {
    "an average is put in the place of what was not even copied": (
        "note",
        """\
for _ in range(4):
    fit()
    put(average)
    print(evaluate())
""",
    ),
    "an average is evaluated and trained on from": (
        "warning",
        """\
for _ in range(4):
    fit()
    kept = [p.detach().clone() for p in model.parameters()]
    put(average)
    print(evaluate())
""",
    ),
    "as a state that is loaded": (
        "warning",
        """\
for _ in range(4):
    fit()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(dict(zip(kept.keys(), average)))
    print(evaluate())
""",
    ),
    "through data, with half of the values": (
        "warning",
        """\
for _ in range(4):
    fit()
    kept = [p.data.clone() for p in model.parameters()]
    for p, value in zip(model.parameters(), average):
        p.data.copy_((p.data + value) / 2)
    print(evaluate())
""",
    ),
    "once, which may be meant": (
        "note",
        """\
fit()
kept = [p.detach().clone() for p in model.parameters()]
put(average)
print(evaluate())
fit()
""",
    ),
}

RIGHT = {
    "put back after each evaluation": """\
for _ in range(4):
    fit()
    kept = [p.detach().clone() for p in model.parameters()]
    put(average)
    print(evaluate())
    put(kept)
""",
    "put back if the average does worse": """\
for _ in range(4):
    fit()
    kept, before = [p.detach().clone() for p in model.parameters()], evaluate()
    put(average)
    if evaluate() > before - 1e-4:
        put(kept)
fit()
""",
    "evaluated in a copy": """\
for _ in range(4):
    fit()
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p, value in zip(other.parameters(), average):
            p.copy_(value)
        print(other(x).mean())
""",
    "kept for the end": """\
trail = []
for _ in range(4):
    fit()
    trail.append([p.detach().clone() for p in model.parameters()])
    print(evaluate())
""",
    "the average at the end": """\
fit()
kept = [p.detach().clone() for p in model.parameters()]
put(average)
print(evaluate())
""",
    "averages that take up what they are put in the place of, each time": """\
slow = [p.detach().clone() for p in model.parameters()]
for _ in range(4):
    for _ in range(2):
        opt.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        opt.step()
    with torch.no_grad():
        for mean, p in zip(slow, model.parameters()):
            mean.lerp_(p, 0.5)
    put(slow)
    print(evaluate())
""",
    "the trained values are saved first": """\
import io
for _ in range(4):
    fit()
    torch.save(model.state_dict(), io.BytesIO())
    put(average)
    print(evaluate())
""",
    "an average is evaluated in a model of its own": """\
other = copy.deepcopy(model)
for _ in range(4):
    fit()
    with torch.no_grad():
        for p, value in zip(other.parameters(), average):
            p.copy_(value)
        print((other(x) - y).pow(2).mean().item())
""",
    "once, before the training is finished with": """\
fit()
put(average)
print(evaluate())
fit()
""",
}


def told(text, folder):
    found = record_program(START + text, folder).findings
    return [one.severity for one in found if one.slug == "values-lost"]


@pytest.mark.parametrize(("severity", "text"), LOST.values(), ids=LOST)
def test_values_that_are_never_put_back_are_told(severity, text, tmp_path):
    assert told(text, tmp_path) == [severity]


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_those_that_are_put_back_or_not_wanted_are_not(text, tmp_path):
    assert told(text, tmp_path) == []
