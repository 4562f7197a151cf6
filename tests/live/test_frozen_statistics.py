"""Statistics of frozen norms that move while something else is trained, and right look-alikes."""

import pytest

from programs import record_program

START = """\
import copy

import torch
from torch import nn


def fit(model, opt, turns=3):
    for _ in range(turns):
        model.train()
        loss = model(torch.randn(16, 4)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


@torch.no_grad()
def evaluate(model):
    model.eval()
    print(model(torch.randn(16, 4)).mean())


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
model = nn.Sequential(body, nn.Linear(6, 1))
"""

MOVED = {
    "a head on the body of a model that goes on to be used": (
        "warning",
        """\
fit(model, sgd(model))
body.requires_grad_(False)
head = nn.Linear(6, 2)
fit(nn.Sequential(body, head), sgd(head))
evaluate(model)
""",
    ),
    "frozen one by one, and both models are used": (
        "warning",
        """\
fit(model, sgd(model))
for one in body.parameters():
    one.requires_grad = False
probe = nn.Sequential(body, nn.Linear(6, 3))
fit(probe, sgd(probe[1]))
evaluate(probe)
evaluate(model)
""",
    ),
    "a second head, after the first": (
        "warning",
        """\
body.requires_grad_(False)
first, second = (nn.Sequential(body, nn.Linear(6, 1)) for _ in range(2))
fit(first, sgd(first[1]))
evaluate(first)
fit(second, sgd(second[1]))
evaluate(second)
evaluate(first)
""",
    ),
    "an expert that a module around it takes along, without gradients": (
        "note",
        """\
class Guided(nn.Module):
    def __init__(self, expert):
        super().__init__()
        self.expert, self.pupil = expert.requires_grad_(False).eval(), nn.Linear(4, 6)

    def forward(self, x):
        with torch.no_grad():
            wanted = self.expert(x)
        return self.pupil(x) - wanted


fit(model, sgd(model))
guided = Guided(body)
for _ in range(2):
    fit(guided, sgd(guided.pupil))
    evaluate(guided)
""",
    ),
    "only the model that is trained is used": (
        "note",
        """\
fit(model, sgd(model))
body.requires_grad_(False)
model[1] = nn.Linear(6, 2)
fit(model, sgd(model[1]))
evaluate(model)
""",
    ),
}

RIGHT = {
    "the body is held still": """\
fit(model, sgd(model))
body.requires_grad_(False)
head = nn.Linear(6, 2)
opt = sgd(head)
for _ in range(3):
    body.eval()
    opt.zero_grad()
    head(body(torch.randn(16, 4))).pow(2).mean().backward()
    opt.step()
evaluate(model)
""",
    "a copy of the body moves": """\
fit(model, sgd(model))
mine = copy.deepcopy(body)
head = nn.Linear(6, 2)
probe = nn.Sequential(mine, head)
fit(probe, sgd(probe))
evaluate(model)
""",
    "frozen in turn, and trained again": """\
head = nn.Linear(6, 2)
for _ in range(2):
    body.requires_grad_(False)
    fit(nn.Sequential(body, head), sgd(head))
    body.requires_grad_(True)
    fit(model, sgd(model))
evaluate(model)
""",
    "an expert that goes along in training mode on purpose": """\
class Guided(nn.Module):
    def __init__(self, expert):
        super().__init__()
        self.expert, self.pupil = expert.requires_grad_(False), nn.Linear(4, 6)

    def forward(self, x):
        with torch.no_grad():
            wanted = self.expert.train()(x)
        return self.pupil(x) - wanted


fit(model, sgd(model))
evaluate(body)
guided = Guided(body)
fit(guided, sgd(guided.pupil))
""",
    "an expert that stays in evaluation mode": """\
class Guided(nn.Module):
    def __init__(self, expert):
        super().__init__()
        self.expert, self.pupil = expert.requires_grad_(False), nn.Linear(4, 6)

    def train(self, mode=True):
        super().train(mode)
        self.expert.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            wanted = self.expert(x)
        return self.pupil(x) - wanted


fit(model, sgd(model))
guided = Guided(body)
fit(guided, sgd(guided.pupil))
""",
    "a network that follows another": """\
slow = copy.deepcopy(model).requires_grad_(False)
opt = sgd(model)
for _ in range(4):
    x = torch.randn(16, 4)
    opt.zero_grad()
    (model(x) - slow(x)).pow(2).mean().backward()
    opt.step()
    with torch.no_grad():
        for old, new in zip(slow.parameters(), model.parameters()):
            old.lerp_(new, 0.1)
evaluate(slow)
evaluate(model)
""",
    "a norm without statistics": """\
body[1] = nn.LayerNorm(6)
fit(model, sgd(model))
body.requires_grad_(False)
head = nn.Linear(6, 2)
fit(nn.Sequential(body, head), sgd(head))
evaluate(model)
""",
}


def told(text, folder):
    found = record_program(START + text, folder).findings
    return [one.severity for one in found if one.slug == "mode-kept"]


@pytest.mark.parametrize(("severity", "text"), MOVED.values(), ids=MOVED)
def test_statistics_of_what_is_frozen_are_told(severity, text, tmp_path):
    assert told(text, tmp_path) == [severity]


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_those_that_are_held_or_meant_to_move_are_not(text, tmp_path):
    assert told(text, tmp_path) == []
