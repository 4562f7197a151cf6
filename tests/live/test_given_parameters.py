"""A parameter that a function writes on the way to its result, and that trains on."""

import pytest

from programs import check_program, says

START = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)


def fit(net, seen, times=8):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(times):
        opt.zero_grad()
        (net(torch.rand(4, 3)) - 1).pow(2).mean().backward()
        opt.step()
        if i % 3 == 1:
            seen(net, i)


"""

FOUND = {
    "a picture of the weights, by a helper of a helper": """
def norm_range(t, low, high):
    t.clamp_(min=low, max=high)
    t.sub_(low).div_(max(high - low, 1e-5))

def make_grid(tensor, normalize=False, pad=1):
    if normalize:
        norm_range(tensor, float(tensor.min()), float(tensor.max()))
    rows, width = tensor.shape
    grid = tensor.new_zeros(rows * (1 + pad), width)
    for k in range(rows):
        grid[k * (1 + pad)].copy_(tensor[k])
    return grid

class Watcher:
    def __init__(self, model):
        self.model, self.pictures = model, []

    def __call__(self, net, i):
        kernels = self.model.first.weight.data
        grid = make_grid(kernels, normalize=True)  #! alias-write net.first.weight (note)
        self.pictures.append(grid.mul(255).byte().numpy())

model = nn.Sequential()
model.first = nn.Linear(3, 4)
model.last = nn.Linear(4, 1)
fit(model, Watcher(model))
""",
    "the parameter itself, where no graph is made": """
def heat(w, ends=2):
    w -= w.min()
    w /= w.max()
    return torch.stack([w, ends - w])

seen = []

def look(net, i):
    with torch.no_grad():
        seen.append(heat(net.weight))  #! alias-write net.weight (note)
    print(seen[-1].mean())

fit(nn.Linear(3, 2), look)
""",
    "how alike the rows are, of rows that were brought to one length": """
def alike(rows):
    rows.div_(rows.norm(dim=1, keepdim=True))
    return rows @ rows.t()

def look(net, i):
    table = net[0].weight.data
    near = alike(table)  #! alias-write net.0.weight (note)
    print(near.fill_diagonal_(-1).max())

fit(nn.Sequential(nn.Linear(3, 9), nn.Linear(9, 1)), look)
""",
    "row by row, through views": """
def tile(row, times):
    row.sub_(row.mean()).div_(row.std() + 1e-6)
    return row.repeat(times, 1)

def show(net, i):
    tiles = []
    for row in net.weight.data:
        tiles.append(tile(row, 3))  #! alias-write net.weight (note)
    print(torch.cat(tiles).shape, torch.cat(tiles).mean())

fit(nn.Linear(3, 4), show)
""",
}

QUIET = {
    "a helper that returns nothing": """
def clip(w):
    w.clamp_(-0.1, 0.1)

fit(nn.Linear(3, 2), lambda net, i: clip(net.weight.data))
""",
    "a helper that returns the tensor itself": """
def clip(w):
    w.clamp_(-0.1, 0.1)
    return w

def bound(net, i):
    w = clip(net.weight.data)
    print(w.mean(), w.abs().max())

fit(nn.Linear(3, 2), bound)
""",
    "a result that nobody reads": """
def clip(w):
    w.mul_(0.9)
    return w.clone()

fit(nn.Linear(3, 2), lambda net, i: clip(net.weight.data))
""",
    "how many were clipped, and how long the rows are": """
def clip(w):
    over = (w.abs() > 0.1).sum()
    w.clamp_(-0.1, 0.1)
    return over, w.norm(dim=1), w == 0.1

def bound(net, i):
    over, long, at = clip(net.weight.data)
    print(over.item(), long.mean(), at.sum())

fit(nn.Linear(3, 2), bound)
""",
    "a name that says it": """
def normalized_(w):
    w.div_(w.norm(dim=1, keepdim=True))
    return w.clone()

fit(nn.Linear(3, 2), lambda net, i: print(normalized_(net.weight.data).mean()))
""",
    "a clone is handed in": """
def heat(w):
    w -= w.min()
    w /= w.max()
    return torch.stack([w, 1 - w])

fit(nn.Linear(3, 2), lambda net, i: print(heat(net.weight.data.clone()).mean()))
""",
    "a helper that copies": """
def heat(w):
    w = w.clone()
    w -= w.min()
    w /= w.max()
    return torch.stack([w, 1 - w])

fit(nn.Linear(3, 2), lambda net, i: print(heat(net.weight.data).mean()))
""",
    "before the first step": """
def spread(w):
    w.div_(w.norm(dim=1, keepdim=True))
    return torch.stack([w, w * 2])

net = nn.Linear(3, 2)
print(spread(net.weight.data).mean())
fit(net, lambda net, i: None)
""",
    "after the last step": """
def heat(w):
    w -= w.min()
    w /= w.max()
    return torch.stack([w, 1 - w])

net = nn.Linear(3, 2)
fit(net, lambda net, i: None)
print(heat(net.weight.data).mean())
""",
    "the caller puts the values back": """
def heat(w):
    w -= w.min()
    w /= w.max()
    return torch.stack([w, 1 - w])

def look(net, i):
    before = net.weight.detach().clone()
    picture = heat(net.weight.data)
    net.weight.data.copy_(before)
    print(picture.mean())

fit(nn.Linear(3, 2), look)
""",
    "the parameter is given another memory": """
def heat(w):
    w -= w.min()
    w /= w.max()
    return torch.stack([w, 1 - w])

def look(net, i):
    before = net.weight.detach().clone()
    picture = heat(net.weight.data)
    net.weight.data = before
    print(picture.mean())

fit(nn.Linear(3, 2), look)
""",
    "the result is written back": """
def smooth(w):
    w.mul_(0.9)
    return w + w.mean()

def look(net, i):
    better = smooth(net.weight.data)
    print(better.mean())
    net.weight.data.copy_(better)

fit(nn.Linear(3, 2), look)
""",
    "pruning that returns its mask": """
def prune(w, amount):
    keep = (w.abs() > w.abs().mean() * amount).float()
    w.mul_(keep)
    return keep

kept = []

def look(net, i):
    kept.append(prune(net.weight.data, 0.5))
    print(kept[-1].mean())

fit(nn.Linear(3, 2), look)
""",
    "values that are handed in beside it": """
def blend(w, other):
    w.lerp_(other, 0.1)
    return w * 1.0

slow = torch.ones(2, 3)

def look(net, i):
    print(blend(net.weight.data, slow).mean())

fit(nn.Linear(3, 2), look)
""",
    "a method of what has the parameter": """
class Unit(nn.Linear):
    def bounded(self, w):
        w.div_(w.norm(dim=1, keepdim=True))
        return w.clone()

    def bound(self):
        return self.bounded(self.weight.data)

fit(Unit(3, 2), lambda net, i: print(net.bound().mean()))
""",
    "weights that are quantized for each pass": """
def quantized(w):
    w.data.clamp_(-1, 1)
    return w + ((w.data * 7).round() / 7 - w.data)

class Quantized(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, quantized(self.weight), self.bias)

fit(Quantized(3, 2), lambda net, i: None)
""",
    "weights that are binary in each pass, with a scale that trains": """
def signs(w):
    w.clamp_(-1, 1)
    return w.sign()

class Binary(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, signs(self.weight.data), self.bias)

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Binary(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.b(self.a(x)) + nn.functional.linear(x, self.a.weight).sum()

fit(Both(), lambda net, i: None)
""",
    "a round of training that gives a picture": """
def round_of(image, opt):
    opt.zero_grad()
    (image - 2).pow(2).mean().backward()
    opt.step()
    image.data.clamp_(0, 1)
    return image.detach().clone()

image = torch.rand(3, 4, requires_grad=True)
opt = torch.optim.SGD([image], lr=0.5)
frames = [round_of(image, opt) for _ in range(6)]
print(torch.stack(frames).mean())
""",
    "an average that no optimizer steps": """
def follow(slow, fast):
    slow.mul_(0.9).add_(fast, alpha=0.1)
    return slow.clone()

net = nn.Linear(3, 2)
slow = copy.deepcopy(net)
fit(net, lambda net, i: print(follow(slow.weight.data, net.weight.data).mean()))
""",
    "weights that are drawn anew": """
def redraw(w):
    w.normal_()
    return w * 2

fit(nn.Linear(3, 2), lambda net, i: print(redraw(net.weight.data).mean()))
""",
    "a buffer that a helper counts in": """
def heat(w):
    w += 1
    return w * 2

net = nn.Linear(3, 2)
net.register_buffer("times", torch.zeros(3))
fit(net, lambda net, i: print(heat(net.times).mean()))
""",
}


@pytest.mark.parametrize("case", FOUND)
def test_found(case, tmp_path):
    recording = check_program(START + FOUND[case], tmp_path)
    assert says(recording, "while it trains")


@pytest.mark.parametrize("case", QUIET)
def test_quiet(case, tmp_path):
    recording = check_program(START + QUIET[case], tmp_path)
    assert not says(recording, "while it trains")
