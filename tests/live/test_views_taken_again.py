"""Views of one memory that a line takes again and again, to be several; and look-alikes."""

import pytest

from programs import record_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
"""

LOADER = """\
class Padding:
    def __init__(self):
        self.wave = torch.zeros(4, 6)

    def __call__(self, clips):
        self.wave.zero_()
        for row, clip in enumerate(clips):
            self.wave[row, : len(clip)] = clip
        return self.wave[: len(clips)]


net, pad, previous = nn.Linear(6, 2), Padding(), None
for _ in range(4):
    wave = pad([torch.randn(5), torch.randn(6)])
    mixed = wave if previous is None else 0.7 * wave + 0.3 * previous[0]
    print(net(mixed).square().mean())
    previous = (KEPT, "labels")
"""

TAKEN_AGAIN = {
    "a batch that is mixed with the one before": (LOADER.replace("KEPT", "wave"), 13),
    "frames of one screen": ("""\
screen, frames = torch.zeros(4, 4), []
for _ in range(5):
    screen.add_(torch.randn(4, 4))
    frames.append(screen.view(-1))
print(torch.stack(frames).std(0).sum())
""", 8),
    "kept, and moved on after it": ("""\
where, track = torch.zeros(3, 2), []
for _ in range(4):
    track.append(where[:, 0])
    where += torch.randn(3, 2)
print(sum((one * one).sum() for one in track))
""", 7),
    "the same rows, by a method": ("""\
class Pool:
    def __init__(self):
        self.levels = torch.rand(6, 2)

    def top(self):
        return self.levels[:3]

    def rain(self):
        self.levels.mul_(0.5).add_(torch.rand(6, 2))


pool, seen = Pool(), {}
for day in ("mon", "tue", "wed"):
    seen[day] = pool.top()
    pool.rain()
print(torch.cat(list(seen.values())).mean())
""", 10),
    "gradients of two losses, in two lists": ("""\
net = nn.Linear(3, 2)
x = torch.randn(8, 3)


def flat_gradients(loss):
    for p in net.parameters():
        if p.grad is not None:
            p.grad.zero_()
    loss.backward()
    return [p.grad.flatten() for p in net.parameters()]


for _ in range(2):
    net.zero_grad()
    both = [flat_gradients(net(x)[:, n].square().mean()) for n in range(2)]
    print([torch.cat(one).norm().item() for one in both])
""", 14),
    "results of one workspace": ("""\
class Upsampling:
    def __init__(self, most):
        self.space = torch.empty(most, 8)

    def __call__(self, signal):
        wide = self.space[: len(signal)]
        torch.mul(signal, 2.0, out=wide)
        return wide


upsample, parts = Upsampling(6), []
for signal in torch.randn(9, 8).split(3):
    parts.append(upsample(signal))
print(torch.cat(parts).std())
""", 10),
    "weights of each epoch": ("""\
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
weights = []
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(5, 3)).square().mean().backward()
    opt.step()
    weights.append(net.weight.t())
with torch.no_grad():
    print([(one @ torch.ones(3)).sum().item() for one in weights])
""", 12),
}  # fmt: skip

APART = {
    "copies": """\
screen, frames = torch.zeros(4, 4), []
for _ in range(5):
    screen.add_(torch.randn(4, 4))
    frames.append(screen.view(-1).clone())
print(torch.stack(frames).std(0).sum())
""",
    "read as it is taken": """\
screen, frames = torch.zeros(4, 4), []
for _ in range(5):
    screen.add_(torch.randn(4, 4))
    frames.append(screen.view(-1))
    print(frames[-1].sum())
""",
    "the earlier ones are gone": """\
screen = torch.zeros(4, 4)
for _ in range(5):
    screen.add_(torch.randn(4, 4))
    frame = screen.view(-1)
print(frame.sum())
""",
    "rows that differ": """\
steps, rows = torch.zeros(5, 3), []
for number in range(5):
    steps[number] = torch.randn(3)
    rows.append(steps[number])
print(torch.stack(rows).sum())
""",
    "chunks of one buffer": """\
buffer, parts = torch.zeros(6, 2), []
for number, part in enumerate(buffer.chunk(3)):
    part.fill_(number)
    parts.append(part.view(-1))
print(torch.cat(parts).sum())
""",
    "places of a ring": """\
ring, last = torch.zeros(3, 2), []
for number in range(9):
    ring[number % 3] = torch.randn(2)
    last = [*last[-2:], ring[number % 3]]
    if len(last) == 3:
        print(torch.stack(last).mean())
""",
    "a batch that is mixed with a copy of the one before": LOADER.replace("KEPT", "wave.clone()"),
    "windows that are read after each write": """\
class Gauge:
    def __init__(self, levels):
        levels.mul_(0.5)
        self.shown = levels[:2]

    def read(self):
        return self.shown.sum()


levels = torch.ones(4)
gauges = [Gauge(levels) for _ in range(3)]
for _ in range(3):
    print([one.read().item() for one in gauges])
    levels.add_(torch.rand(4))
""",
    "handed out, and filled by another line": """\
class Board:
    def __init__(self):
        self.cells = torch.empty(4, 2)

    def seat(self):
        self.cells.zero_()
        return self.cells[:2]


board = Board()
seats = [board.seat() for _ in range(3)]
board.cells.copy_(torch.randn(4, 2))
print([one.sum().item() for one in seats])
""",
    "one workspace, and copies of it": """\
space, parts = torch.empty(6, 8), []
for signal in torch.randn(9, 8).split(3):
    wide = space[: len(signal)]
    torch.mul(signal, 2.0, out=wide)
    parts.append(wide.clone())
print(torch.cat(parts).std())
""",
    "one workspace, used up each time": """\
space, total, last = torch.empty(6, 8), 0.0, None
for signal in torch.randn(9, 8).split(3):
    wide = space[: len(signal)]
    torch.mul(signal, 2.0, out=wide)
    total = total + wide.std()
    last = wide
print(total, last.sum())
""",
    "written by the view itself": """\
store, parts = torch.zeros(4), []
for number in range(3):
    part = store.view(2, 2)
    parts.append(part)
    part.add_(number)
print(parts[-1].sum())
""",
    "gradients that are new each time": """\
net = nn.Linear(3, 2)
x = torch.randn(8, 3)


def flat_gradients(loss):
    net.zero_grad(set_to_none=True)
    loss.backward()
    return [p.grad.flatten() for p in net.parameters()]


both = [flat_gradients(net(x)[:, n].square().mean()) for n in range(2)]
print([torch.cat(one).norm().item() for one in both])
""",
    "parameters of one vector": """\
net = nn.Linear(3, 3)
flat = nn.utils.parameters_to_vector(net.parameters()).detach()
for _ in range(3):
    flat = flat * 0.9
    nn.utils.vector_to_parameters(flat, net.parameters())
    pieces = [flat[:9].view(3, 3), flat[9:]]
    print(net(torch.randn(2, 3)).sum(), pieces[0].sum() + pieces[1].sum())
""",
    "a tied weight": """\
table = nn.Embedding(5, 3)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        nn.init.normal_(table.weight)
        self.across = [table.weight.t()]

    def forward(self, x):
        return x @ self.across[0]


heads = [Head(), Head()]
opt = torch.optim.SGD(table.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    x = table(torch.arange(4))
    sum(head(x).square().mean() for head in heads).backward()
    opt.step()
""",
}


def _told(recording):
    return [one for one in recording.findings if "shows the same memory each time" in one.message]


@pytest.mark.parametrize("name", TAKEN_AGAIN)
def test_views_that_were_to_be_several(name, tmp_path):
    text, line = TAKEN_AGAIN[name]
    (found,) = _told(record_program(HEAD + text, tmp_path))
    assert (found.site.line, found.severity) == (line, "warning")


@pytest.mark.parametrize("name", APART)
def test_views_that_may_be_taken(name, tmp_path):
    assert not _told(record_program(HEAD + APART[name], tmp_path))
