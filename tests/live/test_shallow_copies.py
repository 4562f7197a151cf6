"""Objects that work on after a shallow copy, each on the tensors of the other."""

import pytest

from programs import check_program, record_program

TRAIL = """\
import copy
import dataclasses

import torch

torch.manual_seed(0)


class Trail:
    \"\"\"Where a walker has been, in a tensor that is long enough.\"\"\"

    def __init__(self, room=8):
        self.path = torch.zeros(room, 2)
        self.steps = 0

    def go(self, move):
        here = self.path[self.steps - 1] if self.steps else torch.zeros(2)
        self.path[self.steps] = here + move
        self.steps += 1

    def length(self):
        walked = self.path[: self.steps]
        return (walked[1:] - walked[:-1]).norm(dim=1).sum()


start = Trail()
for _ in range(3):
    start.go(torch.randn(2))
"""

WALK = """\
for _ in range(3):
    for one in walkers:
        one.go(torch.randn(2))
        print(one.length().item())
"""

GRID = """\
import copy

import torch

torch.manual_seed(0)


class Brush:
    \"\"\"What paints into a picture that all brushes are to share.\"\"\"

    def __init__(self, picture, color):
        self.picture, self.color = picture, color

    def paint(self, row, column):
        self.picture[row, column] = self.color

    def seen(self):
        return (self.picture == self.color).sum().item()


red = Brush(torch.zeros(6, 6), 1.0)
blue = copy.copy(red)
blue.color = 2.0
"""

TALLY = """\
import copy

import torch


class Tally:
    def __init__(self):
        self.total, self.count = torch.zeros(3), torch.zeros(())

    def add(self, x):
        self.total += x.sum(0)
        self.count += len(x)

    def reset(self):
        self.total.zero_()
        self.count.zero_()

    def mean(self):
        return self.total / self.count


trained = Tally()
checked = copy.copy(trained)MARK
"""

WRONG = {
    "walkers that start from one trail": TRAIL
    + "walkers = [copy.copy(start) for _ in range(3)]  #! alias-write start.path\n"
    + WALK,
    "the original goes on beside its copy": TRAIL
    + """\
other = copy.copy(start)  #! alias-write start.path
walkers = [start, other]
"""
    + WALK,
    "a method that forks": TRAIL
    + """\
class Forking(Trail):
    def fork(self):
        return copy.copy(self)  #! alias-write first.path


first = Forking()
first.go(torch.randn(2))
walkers = [first.fork() for _ in range(2)]
"""
    + WALK,
    "walkers that have gone a step as they are made": TRAIL
    + """\
walkers = []
for _ in range(3):
    walkers.append(copy.copy(start))  #! alias-write start.path
    walkers[-1].go(torch.randn(2))
"""
    + WALK,
    "walkers whose best are copied at each step": TRAIL
    + """\
walkers = [start]
for _ in range(4):
    for one in walkers:
        one.go(torch.randn(2))
    lengths = [one.length().item() for one in walkers]
    best = sorted(range(len(walkers)), key=lengths.__getitem__)[:2]
    walkers = [copy.copy(walkers[one]) for one in best * 2]  #! alias-write start.path
print(lengths)
""",
    "a function that writes what it is given": TRAIL
    + """\
def push(trail, move):
    trail.path[trail.steps] = move
    trail.steps += 1


walkers = [start, copy.copy(start)]  #! alias-write start.path
for _ in range(3):
    for one in walkers:
        push(one, torch.randn(2))
        print(one.length().item())
""",
    "a data class with one field replaced": """\
import dataclasses

import torch


@dataclasses.dataclass(eq=False)
class Draft:
    words: torch.Tensor
    size: int = 0
    heat: float = 1.0

    def add(self, word):
        self.words[self.size] = word
        self.size += 1
        return self.words[: self.size].sum()


plain = Draft(torch.zeros(9))
plain.add(4.0)
wild = dataclasses.replace(plain, heat=2.0)  #! alias-write wild.words
for n in range(3):
    print(plain.add(1.0 + n), wild.add(7.0 + n))
""",
    "layers in a list": """\
import copy

import torch


class Layer:
    def __init__(self):
        self.seen = torch.zeros(8, 2)

    def put(self, at, x):
        self.seen[at] = x
        return self.seen[: at + 1].mean(0)


class Memory:
    def __init__(self):
        self.layers, self.at = [Layer() for _ in range(2)], 0

    def put(self, x):
        for layer in self.layers:
            x = layer.put(self.at, x)
        self.at += 1
        return x


torch.manual_seed(0)
one = Memory()
one.put(torch.randn(2))
two = copy.copy(one)  #! alias-write one.layers[0].seen
for _ in range(3):
    print(one.put(torch.randn(2)), two.put(torch.randn(2)))
""",
    "two tallies that add to one": TALLY.replace("MARK", "  #! alias-write trained.total (note)")
    + """\
for _ in range(3):
    trained.add(torch.rand(4, 3))
    checked.add(torch.rand(2, 3))
print(trained.mean(), checked.mean())
""",
}

RIGHT = {
    "deep copies": TRAIL + "walkers = [copy.deepcopy(start) for _ in range(3)]\n" + WALK,
    "a class that copies its tensors": TRAIL
    + """\
class Own(Trail):
    def __copy__(self):
        made = Own()
        made.path, made.steps = self.path.clone(), self.steps
        return made


first = Own()
first.go(torch.randn(2))
walkers = [copy.copy(first) for _ in range(2)]
"""
    + WALK,
    "copies whose tensors are replaced": TRAIL
    + """\
walkers = [copy.copy(start) for _ in range(2)]
for one in walkers:
    one.path = one.path.clone()
"""
    + WALK,
    "new values for an attribute, as transforms give them": """\
import copy

import torch


class Cloud:
    def __init__(self, points):
        self.points = points


def scaled(cloud, factor):
    cloud = copy.copy(cloud)
    cloud.points = cloud.points * factor
    return cloud


raw = Cloud(torch.rand(5, 3))
for factor in (2.0, 3.0, 4.0):
    print(scaled(raw, factor).points.sum(), raw.points.sum())
""",
    "copies that are read": TRAIL
    + """\
views = [copy.copy(start) for _ in range(3)]
for n, one in enumerate(views):
    one.steps = n + 1
    print(one.length(), start.length())
""",
    "walkers that go to their end, one after the other": TRAIL
    + """\
for _ in range(3):
    walker = copy.copy(start)
    for _ in range(4):
        walker.go(torch.randn(2))
        print(walker.length().item())
""",
    "a walker that goes on from where another is": TRAIL
    + """\
first = copy.copy(start)
for _ in range(3):
    first.go(torch.randn(2))
    second = copy.copy(first)
    second.go(torch.randn(2))
    print(first.length().item(), second.length().item())
""",
    "one walker of many, and copied at each step": TRAIL
    + """\
walker = start
for _ in range(5):
    tries = [copy.copy(walker) for _ in range(3)]
    walker = tries[int(torch.randint(3, ()))]
    walker.go(torch.randn(2))
    print(walker.length().item())
""",
    "an object that takes the place of the one before": TRAIL
    + """\
@dataclasses.dataclass(eq=False)
class Run:
    log: torch.Tensor
    at: int = 0

    def noted(self, value):
        self.log[self.at] = value
        return dataclasses.replace(self, at=self.at + 1)


run = Run(torch.zeros(9))
for n in range(6):
    run = run.noted(n * 0.5)
    print(run.log[: run.at].sum())
""",
    "a copy alone that goes on": TRAIL + "walkers = [copy.copy(start)]\n" + WALK,
    "scratch memory that each fills before it reads": """\
import copy

import torch


class Filter:
    def __init__(self, width):
        self.width, self.room, self.out = width, torch.zeros(2, 16), torch.zeros(2)

    def __call__(self, x):
        self.room[0] = x
        self.room[1] = x.roll(self.width)
        self.out[0] = self.room[0].dot(self.room[1])
        self.out[1] = self.room.sum()
        return self.out.tolist()


torch.manual_seed(0)
near = Filter(1)
far = copy.copy(near)
far.width = 5
for _ in range(4):
    x = torch.randn(16)
    print(near(x), far(x))
""",
    "a picture that both are to paint": GRID
    + """\
for n in range(5):
    red.paint(n, n)
    blue.paint(n, 5 - n)
    print(red.seen(), blue.seen())
""",
    "a picture in which one paints over the other": GRID
    + """\
for n in range(5):
    red.paint(n % 3, (2 * n) % 5)
    blue.paint((n + 1) % 3, n % 5)
    print(red.seen(), blue.seen())
""",
    "a tally that begins anew": TALLY.replace("MARK", "")
    + """\
for _ in range(3):
    for tally in (trained, checked):
        tally.reset()
        tally.add(torch.rand(4, 3))
        print(tally.mean())
""",
    "weights that two heads are to train by hand": """\
import copy

import torch


class Head:
    def __init__(self):
        self.body = torch.randn(3, 2, requires_grad=True)
        self.top = torch.randn(2, requires_grad=True)

    def learn(self, x):
        loss = (x @ self.body @ self.top).pow(2).mean()
        grads = torch.autograd.grad(loss, [self.body, self.top])
        with torch.no_grad():
            self.body -= 0.1 * grads[0]
            self.top -= 0.1 * grads[1]
        return loss.item()


torch.manual_seed(0)
first = Head()
second = copy.copy(first)
second.top = torch.randn(2, requires_grad=True)
for _ in range(4):
    print(first.learn(torch.rand(5, 3)), second.learn(torch.rand(5, 3)))
""",
}


TRAINERS = """\
import copy

import torch
from torch import nn


class Trainer:
    def __init__(self, noise):
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.noise = noise

    def learn(self, x):
        self.opt.zero_grad()
        self.net(x + self.noise * torch.randn_like(x)).pow(2).mean().backward()
        self.opt.step()


torch.manual_seed(0)
plain = Trainer(0.0)
rough = copy.copy(plain)
rough.noise = 0.5
for _ in range(4):
    plain.learn(torch.rand(6, 3))
    rough.learn(torch.rand(6, 3))
"""


@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
def test_objects_that_write_over_each_other_are_told(program, tmp_path):
    check_program(program, tmp_path)


@pytest.mark.parametrize("program", RIGHT.values(), ids=RIGHT)
def test_copies_that_do_no_harm_are_quiet(program, tmp_path):
    recording = record_program(program, tmp_path)
    assert recording.error is None
    assert [one for one in recording.findings if one.slug == "alias-write"] == []


def test_the_copy_the_write_and_the_reader_are_named(tmp_path):
    recording = record_program(WRONG["walkers that start from one trail"], tmp_path)
    (found,) = (one for one in recording.findings if one.slug == "alias-write")
    assert found.message == (
        "`copy.copy(start)` (line 29) copies the `Trail` and none of its tensors:"
        " `start.path` is one tensor for both. At line 18 an assignment to an index"
        " overwrites through one of them what was written through another, which goes on, and"
        " line 23 reads it."
    )


def test_copying_is_as_it_was(tmp_path):
    recording = record_program(
        """\
        import copy, pickle, torch

        class Plain:
            __slots__ = ("x", "__dict__")

        one = Plain()
        one.x = torch.ones(2)
        two = copy.copy(one)
        assert two.x is one.x and type(two) is Plain
        assert copy.copy([1]) == [1] and pickle.loads(pickle.dumps(copy.copy)) is copy.copy
        try:
            copy.copy(x for x in "ab")
        except TypeError as error:
            assert "pickle" in str(error)
        else:
            raise AssertionError
        """,
        tmp_path,
    )
    assert recording.error is None


def test_of_a_module_that_both_train_nothing_is_said_here(tmp_path):
    recording = record_program(TRAINERS, tmp_path)
    assert recording.error is None
    assert recording.trace.shallow_copies == []
    assert not any("none of its tensors" in one.message for one in recording.findings)
