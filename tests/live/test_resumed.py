"""Trainings that go on without the state of the optimizer, and look-alikes that are right."""

import pytest

from programs import record_program

START = """\
import copy
import io

import torch
from torch import nn

x, y = torch.randn(32, 4), torch.randn(32, 1)


def build(rate=0.01, kind=torch.optim.Adam):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    return model, kind(model.parameters(), rate)


def fit(model, opt, schedule=None, data=(x, y)):
    for _ in range(4):
        opt.zero_grad()
        (model(data[0]) - data[1]).pow(2).mean().backward()
        opt.step()
        if schedule is not None:
            schedule.step()


def saved(**parts):
    file = io.BytesIO()
    torch.save({name: part.state_dict() for name, part in parts.items()}, file)
    file.seek(0)
    return torch.load(file)


model, opt = build()
"""

LEFT = {
    "only the model is loaded": (
        ("state of Adam", "warning"),
        """\
fit(model, opt)
kept = saved(model=model, opt=opt)
model, opt = build()
model.load_state_dict(kept["model"])
fit(model, opt)
""",
    ),
    "the parameters are put back, the optimizer is new": (
        ("state of Adam", "warning"),
        """\
fit(model, opt)
kept = copy.deepcopy({"model": model.state_dict(), "opt": opt.state_dict()})
fit(model, opt)
model.load_state_dict(kept["model"])
opt = torch.optim.Adam(model.parameters(), 0.01)
fit(model, opt)
""",
    ),
    "the schedule begins again": (
        ("state of StepLR", "warning"),
        """\
schedule = torch.optim.lr_scheduler.StepLR(opt, 3)
fit(model, opt, schedule)
kept = saved(model=model, opt=opt, schedule=schedule)
model, opt = build()
schedule = torch.optim.lr_scheduler.StepLR(opt, 3)
model.load_state_dict(kept["model"])
opt.load_state_dict(kept["opt"])
fit(model, opt, schedule)
""",
    ),
    "trained on other data from then on": (
        ("state of Adam", "note"),
        """\
fit(model, opt)
kept = saved(model=model, opt=opt)
model, _ = build()
model.load_state_dict(kept["model"])
opt = torch.optim.Adam(model.parameters(), 0.01)
fit(model, opt, data=(torch.randn(16, 4), torch.randn(16, 1)))
""",
    ),
    "several rates are tried from one saved point": (
        ("state of Adam", "note"),
        """\
fit(model, opt)
kept = saved(model=model, opt=opt)
for rate in (0.001, 0.01):
    model, opt = build(rate)
    model.load_state_dict(kept["model"])
    fit(model, opt)
""",
    ),
}

RIGHT = {
    "all is loaded": """\
schedule = torch.optim.lr_scheduler.StepLR(opt, 3)
fit(model, opt, schedule)
kept = saved(model=model, opt=opt, schedule=schedule)
model, opt = build()
schedule = torch.optim.lr_scheduler.StepLR(opt, 3)
model.load_state_dict(kept["model"])
opt.load_state_dict(kept["opt"])
schedule.load_state_dict(kept["schedule"])
fit(model, opt, schedule)
""",
    "tuned with another rate": """\
fit(model, opt)
kept = saved(model=model, opt=opt)
model, opt = build(0.001)
model.load_state_dict(kept["model"])
fit(model, opt)
""",
    "nothing is kept by the optimizer": """\
model, opt = build(kind=torch.optim.SGD)
fit(model, opt)
kept = saved(model=model, opt=opt)
model, opt = build(kind=torch.optim.SGD)
model.load_state_dict(kept["model"])
fit(model, opt)
""",
    "saved, and trained anew from the beginning": """\
begun = copy.deepcopy(model.state_dict())
for fold in range(2):
    model, opt = build()
    model.load_state_dict(begun)
    fit(model, opt)
    kept = saved(model=model, opt=opt)
""",
    "a new optimizer for the next stage, right after saving": """\
fit(model, opt)
kept = saved(model=model, opt=opt)
opt = torch.optim.Adam(model.parameters(), 0.01)
fit(model, opt)
""",
    "loaded to be evaluated": """\
fit(model, opt)
kept = saved(model=model, opt=opt)
best, _ = build()
best.load_state_dict(kept["model"])
with torch.no_grad():
    print(best(x).mean())
""",
}


def lost(text, folder):
    found = record_program(START + text, folder).findings
    return [(one.subject, one.severity) for one in found if one.slug == "values-lost"]


@pytest.mark.parametrize(("wanted", "text"), LEFT.values(), ids=LEFT)
def test_a_state_that_is_not_loaded_is_told(wanted, text, tmp_path):
    assert lost(text, tmp_path) == [wanted]


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_an_optimizer_that_is_to_begin_anew_is_not(text, tmp_path):
    assert lost(text, tmp_path) == []
