"""Runs of a recurrence that are cut off from each other before one loss, and how they are counted.

What goes through Python on its way may be another value by then, so nothing is said of it.
"""

import pytest

from programs import record_program

START = """\
import random
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
cell, gain = nn.RNNCell(4, 4), nn.Parameter(torch.rand(4))
opt = torch.optim.Adam([*body.parameters(), *cell.parameters(), gain], lr=0.01)


def descend(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


"""

FOUND = {
    "three layers in each run": (
        """\
for _ in range(3):
    level = torch.rand(2, 4)
    for _ in range(7):
        level = body(level.detach())
    descend(level.pow(2).mean())
""",
        "only the last one of the 7 runs of",
    ),
    "two states in each run": (
        """\
for _ in range(3):
    one, two = torch.rand(2, 4), torch.rand(2, 4)
    for _ in range(5):
        one, two = body(one.detach()), body(two.detach())
    descend((one * two).mean())
""",
        "only the last one of the 5 runs of",
    ),
    "a cut every third run": (
        """\
for _ in range(3):
    level = torch.rand(2, 4)
    for step in range(9):
        level = cell(torch.rand(2, 4), level if step % 3 else level.detach())
    descend(level.pow(2).mean())
""",
        "only the last 3 of the 9 runs of rnn_tanh_cell at",
    ),
    "nothing but a product": (
        """\
for _ in range(3):
    level = torch.rand(2, 4)
    for _ in range(6):
        level = (level.detach() * gain).sin()
    descend(level.pow(2).mean())
""",
        "only the last one of the 6 runs of",
    ),
    "through an array that is the memory itself": (
        """\
for _ in range(3):
    level = torch.rand(2, 4)
    for _ in range(6):
        level = body(torch.from_numpy(level.detach().numpy()))
    descend(level.pow(2).mean())
""",
        "only the last one of the 6 runs of",
    ),
}

PLANT = """\
class Plant:
    def __init__(self):
        self.wet = 0.5

    def see(self):
        return [self.wet, random.random(), random.random(), 1.0]

    def water(self, choice):
        self.wet = random.random()
        return self.see(), 1.0 - self.wet


def watered(seen):
    values = body(torch.tensor([seen]))
    return int(values.argmax(1)), values


plant, notes = Plant(), []
"""

RIGHT = {
    "a plant that does not look at what is done": PLANT
    + """\
seen = plant.see()
for step in range(40):
    choice, _ = watered(seen)
    after, price = plant.water(choice)
    notes.append((seen, choice, price))
    seen = after
    if step % 8 == 7:
        some = random.sample(notes, 6)
        values = body(torch.tensor([one for one, _, _ in some]))
        picked = values[torch.arange(6), torch.tensor([one for _, one, _ in some])]
        descend((picked - torch.tensor([one for _, _, one in some])).pow(2).mean())
""",
    "a plant whose arrays are kept": PLANT
    + """\
store = np.zeros((64, 4), dtype=np.float32)
store[0] = plant.see()
for step in range(40):
    choice = body(torch.from_numpy(store[step].copy())[None]).argmax(1).numpy()
    store[step + 1] = plant.water(choice)[0]
    if step % 8 == 7:
        at = np.random.randint(0, step, 6)
        descend(body(torch.tensor(store[at])).pow(2).mean())
""",
    "a plant that goes its own way, and a store that is drawn from": """\
from types import SimpleNamespace


class Plant:
    def __init__(self):
        self.random, self.level = np.random.RandomState(0), np.zeros((1, 4))

    def water(self, choice):
        self.level = 0.9 * self.level + self.random.randn(1, 4)
        return self.level.astype(np.float32), -np.abs(self.level).sum(1)


class Store:
    def __init__(self):
        self.seen, self.choices = np.zeros((64, 4), np.float32), np.zeros((64, 1), np.int64)
        self.prices, self.size = np.zeros((64, 1), np.float32), 0

    def add(self, seen, choice, price):
        self.seen[self.size], self.choices[self.size] = seen[0], choice[0]
        self.prices[self.size] = price[0]
        self.size += 1

    def draw(self, count):
        at = np.random.randint(0, self.size, count)
        parts = (torch.from_numpy(one[at]) for one in (self.seen, self.choices, self.prices))
        return SimpleNamespace(**dict(zip(("seen", "choices", "prices"), parts)))


class Chooser(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = body

    def choose(self, x, choice=None):
        values = self.body(x)
        if choice is None:
            choice = torch.argmax(values, 1)
        return choice, values[torch.arange(len(x)), choice]


plant, store, chooser = Plant(), Store(), Chooser()
seen = plant.level
for step in range(40):
    choice, _ = chooser.choose(torch.Tensor(seen))
    choice = choice.cpu().numpy()
    after, price = plant.water(choice)
    store.add(seen, choice, price)
    seen = after
    if step > 20 and step % 5 == 0:
        some = store.draw(6)
        _, picked = chooser.choose(some.seen, some.choices.flatten())
        descend((picked - some.prices.flatten()).pow(2).mean())
""",
    "numbers that come back as other ones": """\
for _ in range(3):
    level = torch.rand(2, 4)
    for _ in range(6):
        mean = body(level).mean().item()
        level = torch.full((2, 4), round(mean) + random.random())
    descend(body(level).pow(2).mean())
""",
    "three layers, each run in the graph": """\
for _ in range(3):
    level = torch.rand(2, 4)
    for _ in range(7):
        level = body(level)
    descend(level.pow(2).mean())
""",
    "a warm-up that is left out": """\
for _ in range(3):
    level = torch.rand(2, 4)
    with torch.no_grad():
        for _ in range(7):
            level = body(level)
    descend(body(level).pow(2).mean())
""",
}


def told(text, folder):
    recording = record_program(START + text, folder)
    assert recording.error is None
    return [one.message for one in recording.findings if one.slug == "gradient-lost"]


@pytest.mark.parametrize("name", FOUND)
def test_runs_are_counted_as_what_they_are(name, tmp_path):
    text, said = FOUND[name]
    found = told(text, tmp_path)
    assert found
    assert all(said in one for one in found)


@pytest.mark.parametrize("name", RIGHT)
def test_of_what_may_be_another_value_nothing_is_said(name, tmp_path):
    assert told(RIGHT[name], tmp_path) == []
