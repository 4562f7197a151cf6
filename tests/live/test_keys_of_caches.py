"""What the cache of a function keeps though no call can find it again.

A comment ``#!`` marks the line of the decorator, ``#.`` the call that fills the cache, ``#+`` the
decorator of another function whose cache has some of the same objects.
"""

import pytest

from programs import record_program

HEAD = """\
import functools
import torch
from torch import nn

torch.manual_seed(0)

"""

PROGRAMS = {
    "a method of a module": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 256)

    @functools.lru_cache(maxsize=None)  #!
    def scale(self, size):
        return float(self.layer.weight[:size].detach().norm())

    def forward(self, x):
        return self.layer(x) * self.scale(4)  #.

def trial():
    return Net()(torch.ones(2, 256)).sum().item()

print([trial() for _ in range(8)])
""",
    "a method of an object of one's own": """\
class Table:
    def __init__(self):
        self.rows = {"all": [torch.randn(256, 256)]}

    @functools.cache  #!
    def largest(self):
        return self.rows["all"][0].max().item()

def run():
    for _ in range(8):
        Table().largest()  #.

run()
""",
    "a function of tensors": """\
@functools.lru_cache(maxsize=64)  #!
def spread(values, *, power=2):
    return values.std().item() ** power

def run():
    for _ in range(8):
        spread(torch.randn(256, 256), power=3)  #.

run()
""",
    "a function of a model, by its keyword": """\
@functools.cache  #!
def size_of(model=None):
    return sum(one.numel() for one in model.parameters())

def run():
    for width in range(250, 260):
        model = nn.Linear(width, 256)
        model(torch.ones(1, width)).sum().backward()
        size_of(model=model)  #.

run()
""",
    "an object that is asked for twice": """\
class Table:
    def __init__(self):
        self.rows = torch.randn(256, 256)

    @functools.cache  #!
    def row(self, number):
        return self.rows[number].sum().item()

def run():
    for _ in range(8):
        table = Table()
        print(table.row(1) + table.row(2))  #.

run()
""",
    "two methods with a cache each, of modules": """\
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(256, 256)

    @functools.lru_cache(maxsize=32)  #!
    def mask(self, size):
        return torch.full((size, size), float("-inf")).triu(1)

    @functools.lru_cache(maxsize=32)  #+
    def offsets(self, size):
        return torch.arange(size)[:, None] - torch.arange(size)

    def forward(self, x):
        scores = self.mix(x) @ x.T + self.mask(len(x)) - 0.1 * self.offsets(len(x)).abs()  #.
        return scores.softmax(1) @ x

def trial():
    model = Attention()
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for size in (8, 12, 8):
        opt.zero_grad()
        model(torch.randn(size, 256)).sum().backward()
        opt.step()

for _ in range(6):
    trial()
""",
    "a method and a function that take the same objects": """\
class Table:
    def __init__(self):
        self.rows = torch.randn(256, 256)

    @functools.cache  #!
    def largest(self):
        return self.rows.max().item()

@functools.cache  #+
def spread(table):
    return table.rows.std().item()

def run():
    for number in range(8):
        table = Table()
        print(table.largest())  #.
        if number % 2:
            print(spread(table))

run()
""",
    "objects of two caches that a list has": """\
class Table:
    def __init__(self):
        self.rows = torch.randn(256, 256)

    @functools.cache
    def largest(self):
        return self.rows.max().item()

    @functools.cache
    def smallest(self):
        return self.rows.min().item()

tables = [Table() for _ in range(8)]
print([one.largest() - one.smallest() for one in tables])
""",
    "two caches, both cleared": """\
class Table:
    def __init__(self):
        self.rows = torch.randn(256, 256)

    @functools.cache
    def largest(self):
        return self.rows.max().item()

    @functools.cache
    def smallest(self):
        return self.rows.min().item()

def run():
    for _ in range(8):
        table = Table()
        print(table.largest() - table.smallest())
    Table.largest.cache_clear()
    Table.smallest.cache_clear()

run()
""",
    "two caches of a few calls": """\
class Table:
    def __init__(self):
        self.rows = torch.randn(256, 256)

    @functools.lru_cache(maxsize=2)
    def largest(self):
        return self.rows.max().item()

    @functools.lru_cache(maxsize=2)
    def smallest(self):
        return self.rows.min().item()

def run():
    for _ in range(8):
        table = Table()
        print(table.largest() - table.smallest())

run()
""",
    "results that plain values lead to": """\
@functools.cache
def table(size):
    return torch.randn(size, 256)

for _ in range(3):
    print(sum(table(size).sum() for size in range(250, 260)))
""",
    "objects that are there": """\
@functools.cache
def size_of(model):
    return sum(one.numel() for one in model.parameters())

models = [nn.Linear(256, 256) for _ in range(8)]
print([size_of(one) + one(torch.ones(256)).sum().item() for one in models])
""",
    "a value kept on the object": """\
class Table:
    def __init__(self):
        self.rows = torch.randn(256, 256)

    @functools.cached_property
    def largest(self):
        return self.rows.max().item()

print([Table().largest for _ in range(8)])
""",
    "objects that are equal by their names": """\
class Table:
    def __init__(self, name):
        self.name, self.rows = name, torch.randn(256, 256)

    def __eq__(self, other):
        return self.name == other.name

    def __hash__(self):
        return hash(self.name)

@functools.cache
def largest(table):
    return table.rows.max().item()

print([largest(Table(number % 4)) for number in range(8)])
""",
    "a cache that is cleared": """\
@functools.cache
def spread(values):
    return values.std().item()

def run():
    for _ in range(8):
        spread(torch.randn(256, 256))
    spread.cache_clear()

run()
""",
    "objects whose tensors others have": """\
shared = torch.randn(256, 256)

class Window:
    def __init__(self):
        self.rows = shared

    @functools.cache
    def largest(self):
        return self.rows.max().item()

print([Window().largest() for _ in range(8)])
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_caches_keep(name, tmp_path):
    text = HEAD + PROGRAMS[name]
    found = record_program(text, tmp_path).findings
    marked = {mark: [n for n, line in enumerate(text.splitlines(), 1) if mark in line]
              for mark in ("#!", "#.", "#+")}  # fmt: skip
    told = [one for one in found if one.slug == "storage-pinned"]
    assert [(one.site.line, one.severity) for one in told] == [(n, "warning") for n in marked["#!"]]
    assert [n for one in told for n in marked["#."]] == [
        each.site.line for one in told for each in one.evidence if each.role == "called"
    ]
    assert (
        marked["#+"]
        == [each.site.line for one in told for each in one.evidence if each.role == "kept"][1:]
    )
    assert all((" but the cache of " in one.message) == bool(marked["#+"]) for one in told)
