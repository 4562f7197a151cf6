"""One memory that a program takes for several values: sums, draws, stages, pieces and buffers.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

SUMS = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)
nets = [nn.Linear(3, 1) for _ in range(3)]
server, x = nn.Linear(3, 1), torch.randn(6, 3)
for net in nets:
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    net(x).pow(2).mean().backward()
    opt.step()

"""

SUMS_FOUND = {
    "of states": """\
kept = [net.state_dict() for net in nets]
mean = kept[0]
for name in mean:
    for one in kept[1:]:
        mean[name] += one[name]
    mean[name] /= len(kept)  #! alias-write nets.0.weight
server.load_state_dict(mean)
print([net(x).sum().item() for net in nets])
""",
    "of results": """\
with torch.no_grad():
    results = [net(x) for net in nets]
    mean = results[0]
    for one in results[1:]:
        mean.add_(one)
    mean.div_(len(results))  #! alias-write mean
    print([(one - mean).norm().item() for one in results])
""",
    "of samples, divided by a product": """\
drawn = [torch.randn(4) for _ in range(4)]
centre, *rest = drawn
for one in rest:
    centre += one
centre *= 0.25  #! alias-write centre
spread = sum((one - centre).square() for one in drawn)
print(spread.sum())
""",
}

SUMS_QUIET = {
    "of copies": """\
kept = [net.state_dict() for net in nets]
mean = copy.deepcopy(kept[0])
for name in mean:
    for one in kept[1:]:
        mean[name] += one[name]
    mean[name] /= len(kept)
server.load_state_dict(mean)
print([net(x).sum().item() for net in nets])
""",
    "given to all": """\
kept = [net.state_dict() for net in nets]
mean = kept[0]
for name in mean:
    for one in kept[1:]:
        mean[name] += one[name]
    mean[name] /= len(kept)
for net in nets[1:]:
    net.load_state_dict(mean)
print([net(x).sum().item() for net in nets])
""",
    "from one place to the next": """\
with torch.no_grad():
    levels = [net(x) for net in nets]
    for low, high in zip(levels[-2::-1], levels[:0:-1]):
        low += high
    print([one.sum().item() for one in levels])
""",
    "a total of its own": """\
with torch.no_grad():
    results = [net(x) for net in nets]
    total = torch.zeros(6, 1)
    for one in results:
        total += one
    total /= len(results)
    print([(one - total).norm().item() for one in results])
""",
    "the summands are not needed": """\
with torch.no_grad():
    results = [net(x) for net in nets]
    mean = results[0]
    for one in results[1:]:
        mean.add_(one)
    mean.div_(len(results))
    print(mean.sum().item())
""",
}

TWICE = """\
import copy
import io
import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self, tied=TIED):
        super().__init__()
        self.into, self.out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        if tied:
            self.out.weight = self.into.weight

    def forward(self, x):
        return self.out(self.into(x))


def loaded(net):
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    return torch.load(file)


torch.manual_seed(0)
net, x = Tied(), torch.arange(5)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def train():
    opt.zero_grad()
    nn.functional.cross_entropy(net(x), x).backward()
    opt.step()


"""

TWICE_BODIES = {
    "loaded files": """\
total = {}
for _ in range(3):
    train()
    for name, value in loaded(net).items():
        if name in total:
            total[name] += value  #! alias-write total['into.weight']
        else:
            total[name] = value
mean = {name: value / 3 for name, value in total.items()}
net.load_state_dict(mean)
print(net(x).sum())
""",
    "an average that follows": """\
average = copy.deepcopy(net.state_dict())
for _ in range(4):
    train()
    state = net.state_dict()
    for name in average:
        average[name].lerp_(state[name], 0.1)  #! alias-write average['into.weight']
net.load_state_dict(average)
print(net(x).sum())
""",
    "what changed, added again": """\
start, state = copy.deepcopy(net.state_dict()), copy.deepcopy(net.state_dict())
train()
with torch.no_grad():
    for name in start:
        start[name].add_(state[name])  #! alias-write start['into.weight']
print(sum(value.sum() for value in start.values()))
""",
}

TWICE_QUIET = {
    "one parameter, listed once": """\
average = copy.deepcopy(net)
for _ in range(4):
    train()
    with torch.no_grad():
        for one, other in zip(average.parameters(), net.parameters()):
            one.lerp_(other, 0.1)
print(average(x).sum())
""",
    "windows taken again": """\
place, pace = torch.zeros(4), torch.randn(4)
for _ in range(5):
    place[:2] += pace[:2]
    one, other = place[2:], pace[2:]
    one += other
print(place)
""",
    "steps of one size": """\
place, pace = [torch.zeros(2) for _ in range(3)], [torch.randn(2) for _ in range(3)]
for _ in range(4):
    for one, other in zip(place, pace):
        one += other
print(place)
""",
}

DRAWS = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)
net, x = nn.Linear(3, 1), torch.randn(6, 3)
means = [p.detach().clone() for p in net.parameters()]
states = [nn.Linear(3, 1).state_dict() for _ in range(4)]


@torch.no_grad()
def draw(into):
    for p, mean in zip(into.parameters(), means):
        p.copy_(mean + torch.randn_like(p))
    return into


def load(state):
    net.load_state_dict(state)
    return net


"""

DRAWS_FOUND = {
    "drawn": """\
members = [draw(net) for _ in range(4)]
with torch.no_grad():
    print(torch.stack([one(x) for one in members]).std(0))  #! alias-write net.weight
""",
    "loaded": """\
members = [load(state) for state in states]
with torch.no_grad():
    print(torch.cat([one(x) for one in members], 1).std(1))  #! alias-write net.weight
""",
    "in a dictionary": """\
members = {number: load(state) for number, state in enumerate(states)}
with torch.no_grad():
    shown = [one(x) for one in members.values()]
print(torch.stack(shown).mean(0))  #! alias-write net.weight
""",
}

DRAWS_QUIET = {
    "each a copy": """\
members = [draw(copy.deepcopy(net)) for _ in range(4)]
with torch.no_grad():
    print(torch.stack([one(x) for one in members]).std(0))
""",
    "computed with in turn": """\
with torch.no_grad():
    print(torch.stack([draw(net)(x) for _ in range(4)]).std(0))
""",
    "loaded twice, then tried on parts": """\
load(states[0])
load(states[1])
with torch.no_grad():
    print(torch.cat([net(part) for part in x.split(2)]))
""",
    "a copy of the state of each": """\
kept = [copy.deepcopy(draw(net).state_dict()) for _ in range(3)]
with torch.no_grad():
    print(torch.stack([load(state)(x) for state in kept]).std(0))
""",
}

STAGES = """\
import torch

torch.manual_seed(0)
before, after = [], []


def heat(values, by):
    values /= by
    return values


def step(place):
    place[:, 0] += place[:, 1]
    return place


"""

STAGES_FOUND = {
    "of results": """\
for _ in range(4):
    raw = torch.randn(3, 5)[:, -2:]
    before.append(raw)  #! alias-write before
    warm = heat(raw, 0.5)
    after.append(warm)
print((torch.stack(before) - torch.stack(after)).norm())
""",
    "of states": """\
for _ in range(4):
    place = torch.rand(3, 2)
    before.append(place)  #! alias-write before
    place = step(place)
    after.append(place)
pairs = torch.cat(before), torch.cat(after)
print((pairs[1] - pairs[0]).mean(0))
""",
    "written in the same function": """\
for _ in range(4):
    noisy = torch.randn(8)
    before.append(noisy)  #! alias-write before
    noisy -= noisy.mean()
    after.append(noisy)
print(torch.stack(before).mean(), torch.stack(after).mean())
""",
}

STAGES_QUIET = {
    "copied": """\
for _ in range(4):
    raw = torch.randn(3, 2)
    before.append(raw.clone())
    after.append(heat(raw, 0.5))
print((torch.stack(before) - torch.stack(after)).norm())
""",
    "written before both": """\
for _ in range(4):
    raw = heat(torch.randn(3, 2), 0.5)
    before.append(raw)
    after.append(raw)
print(torch.stack(before).mean(), torch.stack(after).std())
""",
    "not written": """\
for _ in range(4):
    raw = torch.randn(3, 2)
    before.append(raw)
    after.append(raw)
print(torch.stack(before).mean(), torch.stack(after).std())
""",
    "filled at last": """\
for _ in range(4):
    row = torch.zeros(3)
    before.append(row)
    row += torch.randn(3)
    after.append(row)
print(torch.stack(before).mean(), torch.stack(after).std())
""",
}

PIECES = """\
import torch
from torch import nn

torch.manual_seed(0)
net, mean, scale = nn.Conv2d(3, 2, 3), (0.5, 0.4, 0.3), (0.2, 0.2, 0.2)


def shown(batch):
    for image in batch:
        for channel, m, s in zip(image, mean, scale):
            channel.mul_(s).add_(m)
    return batch.clamp(0, 1)


def shown_of_new(batch):
    return shown(batch.clone())


def by_rows(rows):
    for number in range(len(rows)):
        rows[number] -= rows[number].mean()
    return rows.abs().sum()


for _ in range(3):
    x = torch.randn(2, 3, 8, 8) * 2
"""

PIECES_FOUND = {
    "of pictures": """\
    print(shown(x).mean())  #! alias-write x (note)
    print(net(x).sum())
""",
    "of pictures, kept": """\
    strip = shown(x)  #! alias-write x (note)
    y = net(x)
    print(strip.mean(), y.sum())
""",
    "of rows": """\
    rows = x.flatten(1) * 2
    size = by_rows(rows)  #! alias-write rows (note)
    print(rows.sum(), size)
""",
}

PIECES_QUIET = {
    "of a copy": """\
    print(shown_of_new(x).mean())
    print(net(x).sum())
""",
    "shown at last": """\
    print(net(x).sum())
    print(shown(x).mean())
""",
    "made for what it writes": """\
    shown(x)
    print(net(x).sum())
""",
    "the result takes the name": """\
    x = shown(x)
    print(net(x).sum())
""",
}

TARGETS = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
target = copy.deepcopy(net).eval()
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def follow():
    SHARE
    for one, other in zip(target.parameters(), net.parameters()):
        one.data.copy_(other.data)


for turn in range(4):
    if turn % 2 == 0:
        follow()
    x = torch.randn(8, 3)
    with torch.no_grad():
        goal = target(x)
    opt.zero_grad()
    (net(x) - goal - 1).pow(2).mean().backward()
    opt.step()
"""

SHARES = {
    "the dictionary is copied": """\
for one, other in zip(target.modules(), net.modules()):
        one._buffers = other._buffers.copy()  #! alias-write target.1.running_mean
""",
    "one by one": """\
target[1].running_mean = net[1].running_mean  #! alias-write target.1.running_mean
""",
    "by its name": """\
for name, value in net[1].named_buffers():
        target[1]._buffers[name] = value  #! alias-write target.1.running_mean
""",
}

NOT_SHARED = {
    "copied": "target[1].running_mean.copy_(net[1].running_mean)",
    "loaded": "target.load_state_dict(net.state_dict())",
    "cloned": "target[1].running_mean = net[1].running_mean.clone()",
    "one module for both": "target[1] = net[1]",
}


CART = """\
import numpy as np
import torch

rng = np.random.default_rng(0)


class Cart:
    def __init__(self):
        self.place, self.seen = np.zeros(4), np.zeros((4, 2), dtype=np.float32)

    def _look(self):
        self.seen[:, 0] = self.place
        self.seen[:, 1] = np.cos(self.place)

    def begin(self):
        self._look()
        return self.seen

    def step(self, by):
        self.place = self.place + by
        self._look()
        return self.seen, -np.abs(self.place)


cart, rows, pairs = Cart(), [], []


def keep(seen, by):
    rows.append(torch.tensor(seen))


def keep_both(seen, new):
    pairs.append((torch.as_tensor(seen).clone(), torch.as_tensor(new).clone()))


def collect():
    last = cart.begin()
    for _ in range(12):
        by = rng.normal(size=4)
"""

CART_END = """

collect()
for one in rows:
    print(one.sum())
for old, new in pairs:
    print((new - old).norm())
"""

CART_BODIES = {
    "kept until the next is there": """\
        new, reward = cart.step(by)  #! alias-write last (note)
        keep(last, by)
        last = new
""",
    "both taken": """\
        new, reward = cart.step(by)  #! alias-write last
        keep_both(last, new)
        last = new
""",
    "read at once": """\
        keep(last, by)
        new, reward = cart.step(by)
        last = new
""",
    "a copy": """\
        old = last.copy()
        new, reward = cart.step(by)
        keep(old, by)
        last = new
""",
    "one name": """\
        last, reward = cart.step(by)
        keep(last, by)
""",
}

ROWS = """\
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)
net = torch.nn.Linear(6, 1)


def centred(row):
    WRITE
    return row


class Rows(Dataset):
    def __init__(self):
        self.rows = rng.normal(3, 1, (8, 6)).astype(np.float32)
        self.room = np.zeros((8, 6), dtype=np.float32)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        GET
        return torch.from_numpy(row)


kept = Rows()
for _ in range(3):
    for x in DataLoader(kept, batch_size=4):
        print(net(x).sum().item())
"""

ROWS_FOUND = {
    "in place": ("row -= 0.5  #! alias-write self.rows", "row = centred(self.rows[index])"),
    "by an index": (
        "row[:3] = row[:3] * 0.9  #! alias-write self.rows",
        "row = centred(self.rows[index])",
    ),
    "in the method": ("pass", "row = self.rows[index]; row *= 0.9  #! alias-write self.rows"),
}

ROWS_QUIET = {
    "of a copy": ("row -= 0.5", "row = centred(self.rows[index].copy())"),
    "a new array": ("row = row - 0.5", "row = centred(self.rows[index])"),
    "room that is filled": (
        "row -= 0.5",
        "row = self.room[index]; row[:] = rng.normal(size=6); row = centred(row)",
    ),
}


@pytest.mark.parametrize("name", CART_BODIES)
def test_arrays_that_a_producer_hands_out(name, tmp_path):
    check_program(CART + CART_BODIES[name] + CART_END, tmp_path)


@pytest.mark.parametrize("name", [*ROWS_FOUND, *ROWS_QUIET])
def test_items_of_arrays_that_a_data_set_changes(name, tmp_path):
    write, get = (ROWS_FOUND | ROWS_QUIET)[name]
    text = ROWS.replace("WRITE", write).replace("GET", get)
    check_program(text, tmp_path)


def _check(head, bodies, name, folder):
    check_program(head + bodies[name], folder)


@pytest.mark.parametrize("name", [*SUMS_FOUND, *SUMS_QUIET])
def test_a_sum_that_lies_in_a_summand(name, tmp_path):
    _check(SUMS, SUMS_FOUND | SUMS_QUIET, name, tmp_path)


@pytest.mark.parametrize("name", TWICE_BODIES)
def test_one_memory_that_is_added_to_twice(name, tmp_path):
    _check(TWICE.replace("TIED", "True"), TWICE_BODIES, name, tmp_path)


@pytest.mark.parametrize("name", [*TWICE_BODIES, *TWICE_QUIET])
def test_two_memories_and_windows_are_not(name, tmp_path):
    bodies = {one: text.split("#!")[0] + "\n" + text.partition("#!")[2].partition("\n")[2]
              for one, text in TWICE_BODIES.items()}  # fmt: skip
    tied = "True" if name in TWICE_QUIET else "False"
    _check(TWICE.replace("TIED", tied), bodies | TWICE_QUIET, name, tmp_path)


@pytest.mark.parametrize("name", [*DRAWS_FOUND, *DRAWS_QUIET])
def test_draws_that_are_all_the_last_one(name, tmp_path):
    _check(DRAWS, DRAWS_FOUND | DRAWS_QUIET, name, tmp_path)


@pytest.mark.parametrize("name", [*STAGES_FOUND, *STAGES_QUIET])
def test_lists_of_before_and_after(name, tmp_path):
    _check(STAGES, STAGES_FOUND | STAGES_QUIET, name, tmp_path)


@pytest.mark.parametrize("name", [*PIECES_FOUND, *PIECES_QUIET])
def test_what_a_function_writes_piece_by_piece(name, tmp_path):
    _check(PIECES, PIECES_FOUND | PIECES_QUIET, name, tmp_path)


@pytest.mark.parametrize("share", SHARES.values(), ids=list(SHARES))
def test_buffers_that_two_modules_have(share, tmp_path):
    check_program(TARGETS.replace("SHARE", share.rstrip()), tmp_path)


@pytest.mark.parametrize("share", NOT_SHARED.values(), ids=list(NOT_SHARED))
def test_buffers_of_their_own(share, tmp_path):
    check_program(TARGETS.replace("SHARE", share), tmp_path)


TOTALS = """\
import torch

total = {}  #MARK

def add(values):
    done = set()
    for name, one in values.items():
        if name in total:
            WHERE: total[name] += one
        else:
            total[name] = next(iter(total.values()), torch.zeros(3))

for n in range(4):
    add({"tied": torch.full((3,), float(n)), "same": torch.full((3,), float(n))})
print(total["tied"].tolist(), total["same"].tolist())
"""


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("if one is not None", True),
        ("if total[name].data_ptr() not in done and not done.add(total[name].data_ptr())", False),
    ],
)
def test_who_asks_for_the_address_tells_places_apart(where, told, tmp_path):
    mark = "! alias-write total" if told else ""
    check_program(TOTALS.replace("WHERE", where).replace("#MARK", f"#{mark}"), tmp_path)


LISTS = """\
import torch
from torch import nn

net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
goal = [p.dataCOPY for p in net.parameters()]
for _ in range(4):
    x = torch.randn(6, 3)
    wanted = x @ goal[0].t() + goal[1]
    opt.zero_grad()
    (net(x) - wanted - 1).pow(2).mean().backward()
    opt.step()
    torch._foreach_lerp_(goal, [p.data for p in net.parameters()], 0.05)
"""


def test_two_lists_of_one_memory_that_one_call_joins(tmp_path):
    (found,) = record_program(LISTS.replace("COPY", ""), tmp_path).findings
    assert (found.slug, found.severity, found.site.line) == ("alias-write", "warning", 6)
    assert "line 13 uses both" in found.message


def test_a_list_of_copies_that_follows_another_one(tmp_path):
    check_program(LISTS.replace("COPY", ".clone()"), tmp_path)
