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
    "a file gets the model alone": (
        ("state of Adam", "note"),
        """\
fit(model, opt)
torch.save({"model": model.state_dict(), "step": 4}, "kept.pt")
model, opt = build()
model.load_state_dict(torch.load("kept.pt")["model"])
fit(model, opt)
""",
    ),
    "the model's file, and another of the optimizer that nobody loads": (
        ("state of Adam", "warning"),
        """\
fit(model, opt)
torch.save(model.state_dict(), "model.pt")
torch.save(opt.state_dict(), "opt.pt")
model, opt = build()
model.load_state_dict(torch.load("model.pt"))
fit(model, opt)
""",
    ),
    "parameters alone are saved, of momentum": (
        ("state of SGD", "note"),
        """\
def momentum(parameters, rate):
    return torch.optim.SGD(parameters, rate, momentum=0.9)


model, opt = build(kind=momentum)
fit(model, opt)
torch.save(list(model.parameters()), "kept.pt")
model, opt = build(kind=momentum)
with torch.no_grad():
    for parameter, value in zip(model.parameters(), torch.load("kept.pt")):
        parameter.copy_(value)
fit(model, opt)
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
    "a file of a model that goes on to other data": """\
fit(model, opt)
torch.save(model.state_dict(), "kept.pt")
model, opt = build()
model.load_state_dict(torch.load("kept.pt"))
fit(model, opt, data=(torch.randn(16, 4), torch.randn(16, 1)))
""",
    "files as it trains, and the best is loaded to be evaluated": """\
for _ in range(3):
    fit(model, opt)
    torch.save(model.state_dict(), "kept.pt")
best, _ = build()
best.load_state_dict(torch.load("kept.pt"))
with torch.no_grad():
    print(best(x).mean())
""",
    "a file of the model, and one of the optimizer's own state": """\
fit(model, opt)
torch.save({"model": model.state_dict(), "state": opt.state}, "kept.pt")
model, opt = build()
kept = torch.load("kept.pt", weights_only=False)
model.load_state_dict(kept["model"])
opt.state.update({new: kept["state"][old] for new, old in zip(model.parameters(), kept["state"])})
fit(model, opt)
""",
    "a file of a model before it is trained": """\
torch.save(model.state_dict(), "begun.pt")
for fold in range(2):
    model, opt = build()
    model.load_state_dict(torch.load("begun.pt"))
    fit(model, opt)
""",
    "a new optimizer for the next stage, right after the file": """\
fit(model, opt)
torch.save(model.state_dict(), "kept.pt")
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


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for the files


def lost(text, folder):
    found = record_program(START + text, folder).findings
    return [(one.subject, one.severity) for one in found if one.slug == "values-lost"]


@pytest.mark.parametrize(("wanted", "text"), LEFT.values(), ids=LEFT)
def test_a_state_that_is_not_loaded_is_told(wanted, text, tmp_path):
    assert lost(text, tmp_path) == [wanted]


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_an_optimizer_that_is_to_begin_anew_is_not(text, tmp_path):
    assert lost(text, tmp_path) == []


STAND_IN = "own = type(opt)(model.parameters(), **opt.defaults)\nfit(model, own)\n"
OF_NONE = {
    "the one that was made first is saved": STAND_IN + "state = saved(model=model, opt=opt)\n",
    "by a function, each epoch": "own = torch.optim.Adam(model.parameters(), 0.1)\n"
    "for _ in range(3):\n    fit(model, own)\n    saved(opt=opt)\n",
    "and loaded": STAND_IN + "state = saved(opt=opt)\nother, new = build()\n"
    "new.load_state_dict(state['opt'])\nfit(other, new)\n",
    "handed out by itself": STAND_IN + "torch.save(opt.state_dict(), 'opt.pt')\n",
    "of the parameters in two groups": "groups = [{'params': [one]} for one in model.parameters()]\n"
    "own = torch.optim.Adam(groups)\nfit(model, own)\nsaved(opt=opt)\n",
}
OF_BOTH = {
    "both are saved": STAND_IN + "saved(opt=opt, own=own)\n",
    "the other steps later": STAND_IN + "saved(opt=opt)\nfit(model, opt)\n",
    "the state is what the other begins with, and again": "own = torch.optim.Adam(model.parameters())"
    "\nfor _ in range(3):\n    own.load_state_dict(opt.state_dict())\n    fit(model, own)\n",
    "the other keeps nothing": "opt = torch.optim.SGD(model.parameters(), 0.1)\n"
    + STAND_IN
    + "saved(opt=opt)\n",
    "of another kind, for the next stage": "own = torch.optim.SGD(model.parameters(), 0.1, 0.9)\n"
    "fit(model, own)\nsaved(opt=opt)\n",
    "before anything steps": "own = torch.optim.Adam(model.parameters())\nsaved(opt=opt)\n"
    "fit(model, own)\n",
}


@pytest.mark.parametrize("text", OF_NONE.values(), ids=OF_NONE)
def test_the_state_of_an_optimizer_that_never_steps_is_told(text, tmp_path):
    assert lost(text, tmp_path) == [("state of Adam", "warning")]


@pytest.mark.parametrize("text", OF_BOTH.values(), ids=OF_BOTH)
def test_a_state_that_is_empty_for_a_reason_is_not(text, tmp_path):
    assert lost(text, tmp_path) == []
