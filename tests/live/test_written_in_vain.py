"""Entries written into the dict that `state_dict()` has just made, and look-alikes that are right.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
pretrained = {"0.weight": torch.ones(4, 4), "0.bias": torch.zeros(4)}


"""

LOST = {
    "entry by entry": """\
for name, value in pretrained.items():
    if name in model.state_dict():
        model.state_dict()[name] = value  #! values-lost model.state_dict()
""",
    "all at once": """\
model.state_dict().update(pretrained)  #! values-lost model.state_dict()
""",
    "by a variable that is let go": """\
def load(model):
    own = model.state_dict()
    for name, value in pretrained.items():
        if name in own and own[name].shape == value.shape:
            own[name] = value  #! values-lost model.state_dict()
    return model


load(model)
""",
    "by a variable whose names are counted afterwards": """\
def load(model):
    own = model.state_dict()
    loaded = 0
    for name in own:
        if name not in pretrained:
            continue
        own[name] = torch.as_tensor(pretrained[name])  #! values-lost model.state_dict()
        loaded += 1
    print(f"{loaded} of {len(own)}, {list(own.keys())}")
    for name in own:
        print(name in pretrained)


load(model)
""",
    "an average": """\
def follow(average, decay=0.9):
    target = average.state_dict()
    for name, value in model.state_dict().items():
        target[name] = decay * target[name] + (1 - decay) * value  #! values-lost average.state_dict()


average = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
average.load_state_dict(model.state_dict())
for _ in range(3):
    follow(average)
""",
    "the rate of an optimizer": """\
opt = torch.optim.Adam(model.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
opt.state_dict()["param_groups"][0]["lr"] = 0.01  #! values-lost opt.state_dict()
""",
}

RIGHT = {
    "into the tensors": """\
for name, value in pretrained.items():
    model.state_dict()[name].copy_(value)
    model.state_dict()[name] += 1
    model.state_dict()[name][...] = value
""",
    "looked into afterwards": """\
own = model.state_dict()
for name, value in pretrained.items():
    own[name] = value
print(sum(one.sum().item() for one in own.values()))
""",
    "loaded once it is changed": """\
own = model.state_dict()
own.update(pretrained)
own["2.bias"] = torch.ones(1)
model.load_state_dict(own)
""",
    "returned, kept, or looked at": """\
def changed(model):
    own = model.state_dict()
    own["0.bias"] = torch.ones(4)
    return own


def total(model):
    own = model.state_dict()
    own["0.bias"] = own["0.bias"] * 2
    return sum(one.sum() for one in own.values())


class Kept:
    def __init__(self, model):
        self.best = model.state_dict()
        self.best["0.bias"] = torch.ones(4)


states = [changed(model), Kept(model), total(model)]
""",
    "a dict that the program's own method keeps": """\
class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = {"a": torch.zeros(2)}

    def state_dict(self):
        return self.rows


table = Table()
table.state_dict()["a"] = torch.ones(2)
print(table.rows)
""",
    "what the optimizer's state itself keeps": """\
opt = torch.optim.Adam(model.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
opt.state_dict()["state"][0]["exp_avg"].zero_()
opt.state_dict()["state"][1]["exp_avg"] = torch.zeros(4)
opt.param_groups[0]["lr"] = 0.01
""",
}


@pytest.mark.parametrize("text", LOST.values(), ids=LOST)
def test_entries_that_nothing_gets_to_see_are_told(text, tmp_path):
    check_program(MODEL + text, tmp_path)


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_entries_that_are_used_are_not(text, tmp_path):
    check_program(MODEL + text, tmp_path)
