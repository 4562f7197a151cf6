"""A view that a write to what it is of changed before it was read; and views that are windows."""

import pytest

from programs import record_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
"""

FOLLOWED = {
    "ends of a curve that is moved by them": ("""\
def stretched(curve):
    low, high = curve[0], curve[-1]
    curve.sub_(curve.min().item())
    return curve / (high - low) + low


print(stretched(torch.linspace(2, 5, 8) ** 2).sum())
""", 6, "`low` and `curve`"),
    "a column that a method gives, masked by its caller": ("""\
class Table:
    def __init__(self, cells):
        self.cells = cells

    def newest(self):
        return self.cells[:, -1]

    def grown(self, column):
        self.cells = torch.cat([self.cells, column[:, None]], 1)


table = Table(torch.randn(5, 2))
for _ in range(3):
    column = table.newest()
    column[column < 0] = 0
    table.grown(column * 2 - 1)
print(table.cells.sum())
""", 10, "`table.cells` and `column`"),
    "an image that a Variable optimizes in its place": ("""\
image = torch.rand(3, 8, 8)
print(image.mean())
drawn = torch.autograd.Variable(image, requires_grad=True)
opt = torch.optim.Adam([drawn], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (drawn.mean(0) - 1).pow(2).sum().backward()
    opt.step()
print(drawn.mean(), image.std())
""", 7, "`image` and `drawn`"),
    "a start that is optimized, detached": ("""\
start = torch.randn(5)
print(start.norm())
point = start.detach().requires_grad_()
opt = torch.optim.SGD([point], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (point**2).sum().backward()
    opt.step()
print(point.norm(), start.norm())
""", 7, "`start` and `point`"),
    "what was left of a series before it was scaled": ("""\
class Series:
    def __init__(self, values):
        self.values = values

    def scale(self, by):
        self.values *= by


series = Series(torch.randn(20))
print(series.values.sum())
start = series.values[:5]
series.scale(3)
print((series.values[-5:] - start).abs().mean())
""", 15, "`start` and"),
}  # fmt: skip

WINDOWS = {
    "a copy of the ends": """\
def stretched(curve):
    low, high = curve[0].clone(), curve[-1].clone()
    curve.sub_(curve.min().item())
    return curve / (high - low) + low


print(stretched(torch.linspace(2, 5, 8) ** 2).sum())
""",
    "halves of a frame that an object keeps, to fill it by them": """\
class Frames:
    def __init__(self):
        self.frame = torch.zeros(8)
        self.older, self.newer = self.frame[:4], self.frame[4:]

    def push(self, block):
        self.older.copy_(self.newer)
        self.newer.copy_(block)
        return self.frame.norm()


frames = Frames()
for block in torch.randn(3, 4):
    print(frames.push(block))
""",
    "columns of a weight that is trained, to look at": """\
class Watch:
    def __init__(self, layer):
        self.columns = layer.weight.detach().t()

    def norms(self):
        return self.columns.norm(dim=1)


layer = nn.Linear(4, 3)
watch, opt = Watch(layer), torch.optim.SGD(layer.parameters(), lr=0.1)
print(watch.norms())
for x in torch.randn(3, 5, 4):
    opt.zero_grad()
    layer(x).pow(2).sum().backward()
    opt.step()
    print(watch.norms())
""",
    "a start of which a copy is optimized": """\
start = torch.randn(5)
point = torch.autograd.Variable(start.clone(), requires_grad=True)
opt = torch.optim.SGD([point], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (point**2).sum().backward()
    opt.step()
print((point - start).norm())
""",
    "a start that nothing reads again": """\
start = torch.randn(5)
print(start.norm())
point = torch.autograd.Variable(start, requires_grad=True)
opt = torch.optim.SGD([point], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (point**2).sum().backward()
    opt.step()
print(point.norm())
""",
    "places of a cache, written through a view and read as a whole": """\
class Cache:
    def __init__(self):
        self.space = torch.zeros(2, 6, 4)
        self.keys, self.values = self.space.unbind(0)
        self.length = 0

    def add(self, key, value):
        self.keys[self.length] = key
        self.values[self.length] = value
        self.length += 1

    def reorder(self, order):
        self.space[:, : self.length] = self.space[:, : self.length][:, order]


cache = Cache()
for step in range(4):
    cache.add(torch.randn(4), torch.randn(4))
    cache.reorder(torch.randperm(cache.length))
    print((cache.keys[: cache.length] @ torch.ones(4)).sum() + cache.values.sum())
""",
    "rows by their names, and all of them": """\
words = torch.randn(3, 4)
rows = dict(zip("abc", words.unbind(0)))
for _ in range(2):
    words /= words.norm(dim=1, keepdim=True)
    rows["b"].lerp_(torch.ones(4), 0.1)
    print(words.sum(), rows["a"].sum())
""",
    "half of what nobody has seen, filled by its view": """\
both = torch.empty(2, 4)
first, second = both
first.normal_()
second.copy_(first * 2)
print(both.sum())
""",
    "a piece that the function itself took and wrote": """\
class Board:
    def __init__(self):
        self.cells = torch.ones(4, 4)

    def fall(self):
        low = self.cells[1:]
        low -= 0.5
        return self.cells.sum()


board = Board()
print(board.fall(), board.fall())
""",
}


def _told(recording):
    return [one for one in recording.findings if "share memory from" in one.message]


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_view_that_shows_what_was_written_is_noted(name, tmp_path):
    text, line, names = FOLLOWED[name]
    found = _told(record_program(HEAD + text, tmp_path))
    assert {(one.site.line, one.severity) for one in found} == {(line, "note")}
    assert any(one.message.startswith(names) for one in found)


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_is_not_noted(name, tmp_path):
    assert not _told(record_program(HEAD + WINDOWS[name], tmp_path))
