"""More programs on memory: several places of one tensor, views of arrays, values overwritten.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program
from tether.record.arrays.watch import ArrayWatch
from tether.verdicts.alias_write import numpy_views

HEAD = """\
import torch
from torch import nn
import numpy as np
"""
TRAINED = """
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def step():
    opt.zero_grad()
    net(torch.ones(4, 3)).pow(2).mean().backward()
    opt.step()
"""

FOUND = {
    "a list of one name": """
zeros = torch.zeros(2)
hidden = [zeros for _ in range(3)]  #! alias-write hidden
for i in range(3):
    hidden[i] += i + 1
print(torch.stack(hidden))
""",
    "the same value for every key": """
totals = dict.fromkeys(["a", "b", "c"], torch.zeros(1))  #! alias-write totals
for name, value in [("a", 1.0), ("b", 2.0), ("a", 3.0)]:
    totals[name] += value
print({name: value.item() for name, value in totals.items()})
""",
    "arrays laid flat, which are views": TRAINED
    + """
path = []
for _ in range(3):
    path.append(net.weight.detach().numpy().ravel())  #! alias-write path
    step()
print(np.stack(path))
""",
    "gradients that are zeroed in place, kept": """
net, x = nn.Linear(3, 1), torch.randn(5, 3)
grads = []
for _ in range(3):
    net.zero_grad(set_to_none=False)
    net(x).sum().backward()
    grads.append(net.weight.grad)  #! alias-write grads
print(torch.stack(grads))
""",
    "rows of tables that a function leaves, told once": """
class Index:
    def __init__(self):
        self.queries = []

    def add(self, n):
        table = torch.randn(n, 256)
        self.queries.append(table[0])  #! storage-pinned index.queries

index = Index()
for _ in range(4):
    index.add(500)
""",
    "a score of before the step, differentiated after it": """
first, second = nn.Linear(2, 2), nn.Linear(2, 1)
opt = torch.optim.SGD(second.parameters(), lr=0.1)
score = second(first(torch.randn(4, 2)).tanh())
score.pow(2).mean().backward(retain_graph=True)
opt.step()  #! saved-overwritten second.weight
(score - 1).pow(2).mean().backward()
""",
    "rows of a state that later rows are made of": """
cell, state = nn.Linear(4, 4), torch.zeros(3, 4)
for t in range(3):
    state[t] = torch.tanh(cell(state[t - 1]))  #! saved-overwritten state
state.pow(2).sum().backward()
""",
    "a row of an array": TRAINED
    + """
start = net.weight.detach().numpy()[0]  #! alias-write start
step()
print(start)
""",
    "the gradient of the step before, which is the gradient itself": """
net, x = nn.Linear(3, 1), torch.randn(5, 3)
class Damped(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["before"] = torch.zeros_like(p)
            change = (state["before"] - p.grad).abs()
            state["before"] = p.grad  #! alias-write state['before']
            p.sub_(0.1 * p.grad * change)

opt = Damped(net.parameters())
for _ in range(4):
    opt.zero_grad(set_to_none=False)
    net(x).pow(2).mean().backward()
    opt.step()
print(net.weight)
""",
    "channels pruned in the copy that reshape makes": """
conv = nn.Conv2d(2, 4, 3)
def prune(keep):
    with torch.no_grad():
        rows = conv.weight.permute(1, 0, 2, 3).reshape(2, -1)
        order = rows.abs().sum(1).argsort(descending=True)
        rows[order[keep:]] = 0.0  #! alias-write conv.weight
        return order[keep:].tolist()
print(prune(1), (conv.weight == 0).float().mean())
""",
    "a vector whose parts become the parameters": """
from torch.nn.utils import parameters_to_vector, vector_to_parameters
net = nn.Linear(3, 1)
start = parameters_to_vector(net.parameters()).detach()
for rate in (0.1, 0.2):
    vector_to_parameters(start, net.parameters())  #! alias-write start
    opt = torch.optim.SGD(net.parameters(), lr=rate)
    opt.zero_grad()
    net(torch.ones(4, 3)).sum().backward()
    opt.step()
    print((parameters_to_vector(net.parameters()).detach() - start).norm())
""",
}

QUIET = {
    "tied weights that are loaded once, under both their names": """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(6, 3), nn.Linear(3, 6, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.words(ids))

net = Net()
best = {name: value.detach().clone() for name, value in net.state_dict().items()}
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.arange(6)).square().mean().backward()
    opt.step()
net.load_state_dict(best)
with torch.no_grad():
    print(torch.cat([net(torch.arange(start, start + 3)) for start in (0, 3)]).sum())
""",
    "a list that is shuffled": """\
import random
import torch

random.seed(0)
particles = [torch.full((3,), float(i)) for i in range(4)]
for _ in range(6):
    random.shuffle(particles)
    for one in particles:
        one.add_(0.1)
    print(particles[0].sum().item(), sum(one.sum().item() for one in particles))
""",
    "a list that is turned": """\
import torch

queue = [torch.full((3,), float(i)) for i in range(3)]
for _ in range(6):
    first = queue[0]
    first.mul_(1.1)
    print((first + queue[1]).sum().item())
    queue = queue[1:] + [first]
""",
    "parameters that change groups": """\
import torch

layers = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)]
groups = [list(one.parameters()) for one in layers]
for stage in range(2):
    if stage:
        groups = [[], groups[0] + groups[1]]
    opt = torch.optim.SGD([{"params": one} for one in groups], lr=0.1)
    for _ in range(3):
        opt.zero_grad()
        layers[1](layers[0](torch.ones(4, 2))).sum().backward()
        opt.step()
""",
    "arrays of rows that are written before they are taken": """
rows, kept = torch.zeros(5, 8), []
for n in range(5):
    rows[n] += n
    kept.append(rows[n].numpy())
print(np.stack(kept).sum())
""",
    "a copy for each place, and places that are only read": """
shape = torch.zeros(2)
hidden = [shape.clone() for _ in range(3)]
for i in range(3):
    hidden[i] += i + 1
same = [shape for _ in range(3)]
print(torch.stack(hidden), torch.stack(same))
""",
    "values of keys that are replaced": """
totals = dict.fromkeys(["a", "b"], torch.zeros(1))
for name in ["a", "b", "a"]:
    totals[name] = totals[name] + 1
print(totals["a"] + totals["b"])
""",
    "numbers and copies that arrays give": TRAINED
    + """
path, means, wide = [], [], []
for _ in range(3):
    path.append(net.weight.detach().numpy().ravel().copy())
    means.append(net.weight.detach().numpy().mean())
    wide.append(net.weight.detach().numpy().astype(np.float64))
    step()
print(np.stack(path), means, wide)
""",
    "gradients that are new at each pass, and clones of them": """
net, x = nn.Linear(3, 1), torch.randn(5, 3)
grads, sums = [], []
for _ in range(3):
    net.zero_grad()
    net(x).sum().backward()
    grads.append(net.weight.grad)
    sums.append(net.bias.grad.clone())
print(torch.stack(grads), torch.stack(sums))
""",
    "two buffers of arrays, filled in turn": """
blocks = [np.zeros(4, dtype=np.float32) for _ in range(2)]
views = [torch.from_numpy(block) for block in blocks]
w = torch.ones(4, requires_grad=True)
for turn in range(12):
    blocks[turn % 2][:] = turn
    (views[turn % 2] * w).sum().backward()
print(w.grad)
""",
    "a frame that is written while nothing reads the tensor made of it": """
frame, waiting = np.zeros(4, dtype=np.float32), []
w = torch.ones(4, requires_grad=True)
for turn in range(3):
    frame[:] = turn
    batch = torch.from_numpy(frame)
    waiting.append(batch.clone())
    frame[:] = -1
    (waiting[-1] * w).sum().backward()
print(w.grad)
""",
    "a distance to itself, and the change of what is copied": """
w = torch.randn(4)
prev = w.clone()
for _ in range(4):
    w.mul_(0.9)
    print((w - prev).norm(), torch.cdist(w[None], w[None]), torch.dist(w, w))
    prev = w.clone()
""",
    "what reshape copied, changed and used": """
conv = nn.Conv2d(2, 4, 3)
with torch.no_grad():
    rows = conv.weight.permute(1, 0, 2, 3).reshape(2, -1)
    rows[0] = 0.0
    print(rows.sum())
""",
    "averaged weights that are lent to a model, and taken back": TRAINED
    + """
averages = {name: one.detach().clone() for name, one in net.named_parameters()}
for _ in range(4):
    step()
    for name, one in net.named_parameters():
        averages[name].lerp_(one.detach(), 0.5)
    kept = {name: one.data for name, one in net.named_parameters()}
    for name, one in net.named_parameters():
        one.data = averages[name]
    with torch.no_grad():
        print(net(torch.ones(1, 3)))
    for name, one in net.named_parameters():
        one.data = kept[name]
""",
    "a mean that is written, and then put into the parameters": """
from torch.nn.utils import parameters_to_vector, vector_to_parameters
net = nn.Linear(3, 1)
mean = parameters_to_vector(net.parameters()).detach()
for turn in range(4):
    noise = torch.randn_like(mean)
    with torch.no_grad():
        vector_to_parameters(mean + noise, net.parameters())
        up = net(torch.ones(1, 3)).item()
        mean -= 0.1 * up * noise
        vector_to_parameters(mean, net.parameters())
        print(net(torch.ones(1, 3)))
""",
    "an array taken again before it is read": TRAINED
    + """
for _ in range(4):
    weight = net.weight.detach().numpy()
    print(weight.mean())
    step()
weight = net.weight.detach().numpy()
print(weight.mean())
""",
}

REUSED = """
observed, memory = np.zeros(4, dtype=np.float32), []
for t in range(4):
    observed[:] = t
    memory.append(torch.from_numpy(observed).clone())
print(torch.stack(memory).std(0))
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_it_is_found_where_it_is(program, tmp_path):
    check_program(HEAD + program, tmp_path)


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_a_good_program_is_left_in_peace(program, tmp_path):
    check_program(HEAD + program, tmp_path)


def test_a_copy_of_an_array_that_its_owner_fills_again_is_not_called_needless(tmp_path):
    found = check_program(HEAD + REUSED, tmp_path).findings
    assert not [one for one in found if one.slug == "needless-copy"]


ROWS = """
rows, kept = torch.zeros({count}, 8), []
for n in range({count}):
    rows[n] += n
    kept.append(rows[n].numpy())
print(np.stack(kept).sum())
"""


def _compared(count, folder, monkeypatch):
    """Return how many pairs of stretches are compared where each row becomes an array."""
    pairs, may_overlap = [], numpy_views.may_overlap
    with monkeypatch.context() as patch:
        patch.setattr(numpy_views, "may_overlap", lambda *two: pairs.append(1) or may_overlap(*two))
        assert not record_program(HEAD + ROWS.format(count=count), folder).findings
    return len(pairs)


def test_what_arrays_of_rows_cost_grows_with_the_rows(tmp_path, monkeypatch):
    once, twice = (_compared(count, tmp_path, monkeypatch) for count in (200, 400))
    assert once > 0
    assert twice <= 2.1 * once


def test_a_memory_is_summed_no_more_once_that_has_taken_its_time(tmp_path, monkeypatch):
    sums, sum_of = [], ArrayWatch._sum
    monkeypatch.setattr(ArrayWatch, "_sum", lambda *two: sums.append(1) or sum_of(*two))
    monkeypatch.setattr(ArrayWatch, "_late", lambda _: True)
    record_program(HEAD + ROWS.format(count=50), tmp_path)
    assert len(sums) < 60  # the memory is let go with its first write, and met by the next array
    sums.clear()
    record_program(HEAD + ROWS.format(count=50).replace("    rows[n] += n\n", ""), tmp_path)
    assert len(sums) == 1


READ_BY_NUMPY = """
conv = nn.Conv2d(2, 4, 3)
def rows(keep):
    with torch.no_grad():
        found = conv.weight.permute(1, 0, 2, 3).reshape(2, -1)
        shown = found.numpy()
        order = found.abs().sum(1).argsort(descending=True)
        found[order[keep:]] = 0.0
    return shown.sum()
print(rows(1))
"""


def test_what_an_array_shows_is_not_said_to_be_read_by_nothing(tmp_path):
    (found,) = record_program(HEAD + READ_BY_NUMPY, tmp_path).findings
    assert found.subject == "shown"
    assert "nothing read" not in found.message
