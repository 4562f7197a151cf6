"""Modules that are made anew in each forward pass: forgotten, or a random change of the data."""

import pytest

from programs import check_program, record_program

START = """\
import torch
import torch.nn.functional as F
from torch import nn


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = nn.Linear(size, size)

    def forward(self, x):
        return torch.tanh(self.inner(x))


class Twice(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.both = nn.ModuleList(Scale(size) for _ in range(2))

    def forward(self, x):
        return self.both[0](x) + self.both[1](x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.head = Scale(4), nn.Linear(4, 1)

    def forward(self, x):
        {}


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(4):
    net.train()
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
"""
EVALUATED = """\
    net.eval()
    with torch.no_grad():
        net(torch.randn(8, 4))
"""

FORGOTTEN = {
    "of a class whose constructor also made what trains": """\
return self.head(Scale(4)(self.scale(x)))  #! parameter-stale Scale(4)""",
    "of a class that is made of others": """\
return self.head(Twice(4)(self.scale(x)))  #! parameter-stale Twice(4)""",
    "before all that trains, in evaluation as well": """\
return self.head(self.scale(nn.Linear(4,4)(x)))  #! parameter-stale nn.Linear(4,4)""",
    "before what runs several times in each pass": """\
x = Scale(4)(x)  #! parameter-stale Scale(4)
        return self.head(self.scale(self.scale(self.scale(x))))""",
    "after what trains, in training alone": """\
x = self.scale(x)
        if self.training:
            x = Scale(4)(x)  #! parameter-stale Scale(4)
        return self.head(x)""",
    "given values, after what trains": """\
layer = Scale(4)  #! parameter-stale Scale(4)
        nn.init.orthogonal_(layer.inner.weight)
        return self.head(layer(self.scale(x)))""",
}

MEANT = {
    "of the data, in training alone": """\
if self.training:
            x = Scale(4)(x)  #! parameter-stale Scale(4) (note)
        return self.head(self.scale(x))""",
    "of the data, with values that are drawn": """\
layer = nn.Linear(4,4)  #! parameter-stale nn.Linear(4,4) (note)
        nn.init.normal_(layer.weight, std=0.5)
        return self.head(self.scale(layer(x)))""",
    "of each second batch": """\
self.turn = not getattr(self, "turn", False)
        if self.turn:
            x = Scale(4)(x)  #! parameter-stale Scale(4) (note)
        return self.head(self.scale(x))""",
    "of one of two views": """\
view = self.scale(Twice(4)(x))  #! parameter-stale Twice(4) (note)
        return self.head(view) + self.head(self.scale(x))""",
    "without gradients": """\
with torch.no_grad():
            x = nn.Linear(4, 4)(x)
        return self.head(self.scale(x))""",
    "of plain tensors": """\
return self.head(self.scale(F.linear(x, torch.randn(4, 4))))""",
}


@pytest.mark.parametrize("text", FORGOTTEN.values(), ids=FORGOTTEN)
def test_a_layer_that_was_forgotten_is_told_where_the_program_makes_it(text, tmp_path):
    check_program(START.replace("{}", text) + EVALUATED, tmp_path)


@pytest.mark.parametrize("text", MEANT.values(), ids=MEANT)
def test_a_random_change_of_the_data_is_no_warning(text, tmp_path):
    check_program(START.replace("{}", text) + EVALUATED, tmp_path)


TRAINED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.last = nn.Linear(4, 4), None

    def forward(self, x):
        {}


net = Net()
opt = torch.optim.Adam(net.body.parameters())
for turn in range({}):
    opt.zero_grad()
    loss = net(torch.ones(2, 4)).pow(2).sum()
    loss.backward()
    opt.step()
print(loss.item())
"""
OF_ONE_CALL = {
    "without a name": "return nn.Linear(4, 4)(self.body(x))",
    "under a name of the function": """head = nn.Linear(4, 4)
        return head(self.body(x))""",
    "under a name of the module": """self.last = nn.Linear(4, 4)
        return self.last(self.body(x))""",
    "in a list of its own": """layers = [nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)]
        return nn.Sequential(*layers)(self.body(x))""",
}


@pytest.mark.parametrize("text", OF_ONE_CALL.values(), ids=OF_ONE_CALL)
def test_of_a_layer_that_is_there_for_one_call_no_more_is_said(text, tmp_path):
    recording = record_program(TRAINED.format(text, 6), tmp_path)
    assert recording.error is None
    assert {one.slug for one in recording.findings} == {"parameter-stale"}
    assert all("makes new parameters before each of 6" in one.message for one in recording.findings)


@pytest.mark.parametrize("text", OF_ONE_CALL.values(), ids=OF_ONE_CALL)
def test_nor_that_it_never_changed_after_two_calls(text, tmp_path):
    recording = record_program(TRAINED.format(text, 2), tmp_path)
    assert "parameter-unmoved" not in {one.slug for one in recording.findings}


def test_a_layer_that_is_made_when_it_is_first_needed_is_told_as_ever(tmp_path):
    text = """if self.last is None:
            self.last = nn.Linear(4, 4)  #! parameter-stale net.last.weight
        return self.last(self.body(x))"""
    check_program(TRAINED.format(text, 6), tmp_path)


def test_layers_of_models_that_are_trained_one_after_the_other_are_told_as_ever(tmp_path):
    check_program(
        """
        import torch
        from torch import nn

        for fold in range(3):
            body = nn.Linear(4, 4)
            head = nn.Linear(4, 4)  #! parameter-unmoved head.weight (note)
            opt = torch.optim.Adam(body.parameters())
            for turn in range(6):
                opt.zero_grad()
                head(body(torch.ones(2, 4))).pow(2).sum().backward()
                opt.step()
        """,
        tmp_path,
    )
