"""What programs of other people showed: each fault once, as small as it gets.

A program is run under the recorder and must give the findings that its comments name
(`programs`), and no other warning. What is to be said of it, or must not be said, stands
beside it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from programs import check_program, record_program
from tether.analysis.ties import Ties
from tether.verdicts import VERDICTS
from warm import fresh, python

WRITES = {
    "a value is thresholded element by element in its copy": """
import torch

w = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 4))
soft = torch.sigmoid(w)
soft.sum().backward()
hard = soft.clone().data
hard.apply_(lambda x: float(x > 0.5))
print((hard - soft).abs().sum().item())
""",
    "a view is mapped and the copy of its base is read": """
import torch

grid = torch.arange(6.0)
before = grid.clone()
grid.view(2, 3).map_(torch.full((2, 3), 2.0), lambda a, b: a * b)
print(before.tolist(), grid.tolist())
""",
    "two tensors are mapped into a third, of which a copy is kept": """
import torch

row = torch.arange(3.0)
before = row.clone()
row.map2_(torch.ones(3), torch.ones(3), lambda a, b, c: a + b + c)
print(before.tolist(), row.tolist())
""",
    "apply_ changes what a product saved": """
import torch

w = torch.nn.Parameter(torch.ones(3))
x = torch.tensor([1.0, 2.0, 3.0])
y = (w * x).sum()
x.apply_(lambda v: -v)  #! untracked-write x
y.backward()
""",
    "an index assignment into what a product saved": """
import torch

w = torch.nn.Parameter(torch.ones(3, 3))
column = w @ torch.ones(3, 1)
out = w @ column
column[1] = 0.0  #! saved-overwritten column
try:
    out.sum().backward()
except RuntimeError:
    pass
""",
    "rows are filled one after the other and read in between": """
import torch

w = torch.nn.Parameter(torch.ones(3, 3))
column = w @ torch.ones(3, 1)
total = 0
for i in range(3):
    column[i] = column[i] * 2  #! saved-overwritten column
    total = total + w @ column
try:
    total.sum().backward()
except RuntimeError:
    pass
""",
    "a mask is written into a sigmoid": """
import torch

w = torch.nn.Parameter(torch.ones(3))
gate = torch.sigmoid(w)
gate[gate > 0.5] = 0  #! saved-overwritten gate
try:
    gate.sum().backward()
except RuntimeError:
    pass
""",
    "part of a square's operand is increased": """
import torch

w = torch.nn.Parameter(torch.ones(3))
half = w * 2
square = half * half
half[:2] += 1  #! saved-overwritten half[:2]
try:
    square.sum().backward()
except RuntimeError:
    pass
""",
    "states of a cell are kept in one tensor": """
import torch

cell = torch.nn.GRUCell(2, 3)
states = torch.zeros(4, 5, 3)
for t in range(1, 4):
    states[t] = cell(torch.randn(5, 2), states[t - 1])  #! saved-overwritten states
try:
    states.sum().backward()
except RuntimeError:
    pass
""",
    "a default after text that is not ASCII": """
import torch


def add(größe="ééééé", total=torch.zeros(3)):  #! alias-write total
    total += 1
    return total


for _ in range(3):
    add()
""",
    "a list is filled by append; a function that never ran multiplies one of that name": """
import torch


def main():
    row = torch.zeros(3)
    rows = []
    for i in range(4):
        row.fill_(float(i))
        row.add_(1)
        rows.append(row)  #! alias-write rows
    return rows


rows = main()
print(torch.stack(rows).sum())


def never(n):
    rows = [torch.zeros(3)] * n
    return len(rows)
""",
    "a list is filled by append; a function that ran multiplies one of that name": """
import torch


def other(n):
    rows = [torch.zeros(3)] * n
    return len(rows)


def main():
    row = torch.zeros(3)
    rows = []
    for i in range(4):
        row.fill_(float(i))
        row.add_(1)
        rows.append(row)  #! alias-write rows
    return rows


rows = main()
other(2)
print(torch.stack(rows).sum())
""",
    "a key with a dot in it": """
import torch

model = torch.nn.Sequential(torch.nn.Linear(2, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
best = model.state_dict()  #! alias-write best
for _ in range(3):
    opt.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    opt.step()
model.load_state_dict(best)
""",
}

GRADIENTS = {
    "one step of LBFGS": """
import torch

model = torch.nn.Linear(3, 1)
x, y = torch.randn(20, 3), torch.randn(20, 1)
opt = torch.optim.LBFGS(model.parameters(), lr=0.5)


def closure():
    opt.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    return loss


opt.step(closure)
""",
    "a detach inside the closure of a step": """
import torch

u = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([u, v], lr=0.1)


def closure():
    opt.zero_grad()
    loss = (u.detach() * v).sum()  #! gradient-cut u
    loss.backward()
    return loss


for _ in range(2):
    opt.step(closure)
""",
    "a detach after a step that raised and was swallowed": """
import torch

u = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([u, v], lr=0.1)


def fails():
    raise ValueError("no batch")


try:
    opt.step(fails)
except ValueError:
    pass
for _ in range(2):
    opt.zero_grad()
    loss = (u.detach() * v).sum()  #! gradient-cut u
    loss.backward()
    opt.step()
""",
    "a rounding mode given through a dictionary": """
import torch

w = torch.tensor([3.0, 5.0], requires_grad=True)
b = torch.ones(2, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
how = dict(rounding_mode="floor")
for _ in range(3):
    opt.zero_grad()
    y = torch.div(w, 2, **how)  #! gradient-zero w
    (y + b).sum().backward()
    opt.step()
""",
    "layers made anew in forward": """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        h = nn.Linear(4,4)(self.inner(x))  #! parameter-stale nn.Linear(4,4)
        return h + x


model = Block()
opt = torch.optim.Adam(model.parameters())
for _ in range(5):
    opt.zero_grad()
    model(torch.randn(2, 4)).pow(2).mean().backward()
    opt.step()
""",
    "a model made anew for each fold": """
import torch
from torch import nn

for fold in range(3):
    model = nn.Linear(3, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        opt.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        opt.step()
""",
    "an embedding that is frozen in so many words": """
import torch
from torch import nn

table = torch.randn(5, 4)
model = nn.Sequential(
    nn.Embedding.from_pretrained(table, freeze=True), nn.Linear(4, 2)
)
opt = torch.optim.Adam(model.parameters())  #! parameter-frozen model.0.weight (note)
for _ in range(3):
    opt.zero_grad()
    model(torch.tensor([0, 1, 2])).pow(2).mean().backward()
    opt.step()
""",
    "a buffer by which a loss is started": """
import torch
from torch import nn


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("nothing", torch.tensor(0.0), persistent=False)

    def forward(self, x):
        y = self.lin(x)
        return y, self.nothing.requires_grad_(self.training) + (y - x).pow(2).mean()


model = Coder()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(3):
    y, loss = model(torch.randn(3, 4))
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "layers that train themselves, each by its own method": """
import torch
from torch import nn


class Layer(nn.Linear):
    def __init__(self, n_in, n_out):
        super().__init__(n_in, n_out)
        self.opt = torch.optim.Adam(self.parameters(), lr=0.01)

    def learn(self, x):
        loss = torch.relu(x @ self.weight.T + self.bias).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return torch.relu(x @ self.weight.T + self.bias).detach()


class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = []
        for n_in, n_out in zip(sizes, sizes[1:]):
            self.layers = self.layers + [Layer(n_in, n_out)]

    def learn(self, x):
        for layer in self.layers:
            x = layer.learn(x)


net = Net([4, 3, 3])
for _ in range(3):
    net.learn(torch.randn(5, 4))
""",
    "a loss summed up over tasks beside an inner loop": """
import torch
import torch.nn.functional as F

theta = torch.nn.Parameter(torch.randn(3, 2))
opt = torch.optim.Adam([theta])
x, y = torch.randn(4, 5, 3), torch.randint(0, 2, (4, 5))


def outer(steps=5):
    losses = [0 for _ in range(steps)]
    for task in range(2):
        fast = theta
        for k in range(steps):
            grad = torch.autograd.grad(F.cross_entropy(x[task] @ fast, y[task]), fast)[0]
            fast = fast - 0.1 * grad
            losses[k] += F.cross_entropy(x[task + 2] @ fast, y[task + 2])
    opt.zero_grad()
    losses[-1].backward()
    opt.step()


for _ in range(2):
    outer()
""",
}


@pytest.mark.parametrize("program", [pytest.param(text, id=name) for name, text in WRITES.items()])
def test_a_write_is_told_by_the_call_that_made_it(program, tmp_path) -> None:
    check_program(program.lstrip(), tmp_path)


@pytest.mark.parametrize(
    "program", [pytest.param(text, id=name) for name, text in GRADIENTS.items()]
)
def test_training_is_judged_by_what_was_recorded(program, tmp_path) -> None:
    check_program(program.lstrip(), tmp_path)


def _findings(text: str, folder) -> list[str]:
    recording = record_program(text.lstrip(), folder)
    return [f"{one.slug} {one.subject}: {one.message}" for one in recording.findings]


def test_a_leaf_whose_name_was_taken_over_is_named_by_its_line(tmp_path) -> None:
    text = """
import torch

x = torch.rand(5).requires_grad_()
x = x.view((-1, 1))
x.sum().backward()
print(x.grad)
"""
    (found,) = _findings(text, tmp_path)
    assert "computed from the leaf that line 3 makes" in found
    assert "computed from `x`" not in found


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("self.spare = nn.Linear(3, 3)", "nothing ever used it"),
        ("self.spare = nn.Linear(3, 3, bias=False)", "nothing ever used it"),
    ],
)
def test_to_be_initialised_is_no_use(made, said, tmp_path) -> None:
    text = f"""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 1)
        {made}

    def forward(self, x):
        return self.a(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
"""
    (found,) = _findings(text, tmp_path)
    assert said in found


def test_what_is_used_beside_the_loss_is_said_to_be(tmp_path) -> None:
    text = """
import torch
from torch import nn

a, b = nn.Linear(3, 1), nn.Linear(3, 1, bias=False)
opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    seen = b(torch.ones(2, 3)).mean()
    a(torch.ones(2, 3)).sum().backward()
    opt.step()
print(seen.item())
"""
    (found,) = _findings(text, tmp_path)
    assert "its values were used, but not for the loss" in found


LOOPED = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))


def train():
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(5, 3)).pow(2).mean().backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.1)


train()
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
"""

BEHIND = """
import torch

replay = [(1.0, 2.0, k) for k in range(60_000)]
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
"""

WRAPPED = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
for part in model:
    part.requires_grad_(True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
opt.zero_grad()
model(torch.ones(2, 3)).sum().backward()
opt.step()
"""


@pytest.mark.parametrize("program", [LOOPED, BEHIND, WRAPPED], ids=["loop", "buffer", "parts"])
def test_a_parameter_bears_its_model_s_name(program, tmp_path) -> None:
    """Not a loop variable's, and not that of its call because a large container came first."""
    recording = record_program(program.lstrip(), tmp_path)
    names = {row.name for row in recording.gradients}
    assert {"model.0.weight", "model.0.bias", "model.1.weight", "model.1.bias"} <= names
    assert not any(name.startswith(("p", "part")) for name in names)


KEPT = """
import torch


def main():
    w = torch.ones(3, requires_grad=True)
    opt = torch.optim.SGD([w], lr=0.1)
    losses = []
    for _ in range(30):
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        opt.step()
        losses.append(loss)


main()
"""


def test_all_that_a_local_list_keeps_is_counted(tmp_path) -> None:
    """Names are looked for now and then; the list and its last items are gone at the end."""
    (found,) = record_program(KEPT.lstrip(), tmp_path).findings
    assert (found.slug, found.subject, found.count, found.bytes) == (
        "graph-retained", "losses", 30, 120,
    )  # fmt: skip
    assert "holds 30 tensors with the graphs of 30 steps, 120 B" in found.message


OF_TWO = """
import torch


class Seen:
    def __init__(self):
        self.losses = []

    def add(self, x):
        self.losses.append(x.item())


class Kept:
    def __init__(self):
        self.losses = []

    def add(self, x):
        self.losses.append(x)


w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
kept, seen = Kept(), Seen()
for _ in range(5):
    opt.zero_grad()
    loss = (w * w).sum()
    loss.backward()
    opt.step()
    kept.add(loss)
    seen.add(loss)
"""


def test_the_line_that_keeps_a_graph_is_the_one_of_its_own_class(tmp_path) -> None:
    (found,) = record_program(OF_TWO.lstrip(), tmp_path).findings
    assert (found.subject, found.site.line) == ("kept.losses", 17)


def test_a_caret_counts_characters(tmp_path) -> None:
    text = """
import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
losses = []
for _ in range(5):
    opt.zero_grad()
    loss = (w * w).sum()
    loss.backward()
    opt.step()
    größe = "ééééé"; losses.append(loss)
"""
    (found,) = record_program(text.lstrip(), tmp_path).findings
    line = text.lstrip().splitlines()[found.site.line - 1]
    assert line[found.site.column - 1 : found.site.end_column - 1] == "losses.append(loss)"


SHARDED = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank=0, world_size=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.a(x).detach())  #! gradient-cut net.a.weight


net, mesh = Net(), init_device_mesh("cpu", (1,))
for part in (net.a, net.head, net):
    fully_shard(part, mesh=mesh)
opt = torch.optim.AdamW(net.parameters(), 0.1)
for _ in range(3):
    loss = net(torch.ones(2, 8)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
"""


def _free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.filterwarnings("ignore")
def test_a_cut_is_found_behind_parameters_that_are_gathered_for_forward(tmp_path) -> None:
    pytest.importorskip("torch.distributed.fsdp")
    recording = check_program(SHARDED.lstrip().replace("{port}", str(_free_port())), tmp_path)
    # What the library keeps in the hooks that it hangs on modules is its own: no name, no row.
    assert [one.name for one in recording.trace.names if "_hooks" in one.name] == []
    assert recording.history.get(Ties).found == []


SWAPPED = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank=0, world_size=1)
with torch.device("meta"):
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
mesh = init_device_mesh("cpu", (1,))
for part in (*net, net):
    fully_shard(part, mesh=mesh)
net.to_empty(device="cpu")
for p in net.parameters():
    nn.init.ones_(p)
opt = torch.optim.AdamW(net.parameters(), 0.1)
loss = net(torch.ones(2, 8)).sum()
loss.backward()
opt.step()
net.to(torch.float64)
dist.destroy_process_group()
torch.__future__.set_swap_module_params_on_conversion(True)
lin = nn.Linear(4, 4).to(torch.bfloat16)
lin.load_state_dict(nn.Linear(4, 4).state_dict())
torch.__future__.set_swap_module_params_on_conversion(False)
a, b = torch.ones(2), torch.zeros(3)
torch.utils.swap_tensors(a, b)
assert a.shape == (3,)
"""


@pytest.mark.filterwarnings("ignore")
def test_tensors_change_places_under_the_recorder(tmp_path) -> None:
    pytest.importorskip("torch.distributed.fsdp")
    text = SWAPPED.lstrip().replace("{port}", str(_free_port()))
    recording = record_program(text, tmp_path)
    assert recording.error is None
    assert [one.slug for one in recording.findings if one.severity != "note"] == []


# -- what is shared without its source -------------------------------------------------------------

LEAKS = """
import torch


def recipe(alpha):
    return torch.zeros(3) + alpha


rows = [recipe(alpha=0.1234)] * 4
rows[0].add_(1)
print(torch.stack(rows).sum())
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
best = model.state_dict(prefix="our_"   +   "own.")
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
print(best["our_own.weight"].sum().item())


def g(x, acc=torch.zeros(len("a secret text"))):
    acc += 1
    return acc


for _ in range(3):
    g(1)
"""
QUOTES = ["alpha=0.1234", "0.1234", 'prefix="our_"', "prefix='our_'", "a secret text"]


def test_a_shared_report_holds_no_piece_of_an_expression(tmp_path) -> None:
    recording = record_program(LEAKS.lstrip(), tmp_path)
    assert len(recording.findings) == 3
    whole = recording.json()
    assert all(quote in whole for quote in ("alpha=0.1234", "a secret text"))
    for form in (recording.json, recording.html, recording.sarif):
        shared = form(source=False)
        assert [quote for quote in QUOTES if quote in shared] == []


_CALL = re.compile(r"\w+\([^()]*[\d'\"][^()]*\)")  # one with a number or a text in it


@pytest.mark.parametrize("verdict", VERDICTS, ids=[one.slug for one in VERDICTS])
def test_no_call_of_an_example_is_in_its_shared_report(verdict, tmp_path) -> None:
    example = next(one for one in verdict.examples if one.expected)
    if example.needs:
        pytest.skip(f"needs a {example.needs} device")
    recording = record_program(example.program, tmp_path)
    calls = set(_CALL.findall(example.program))
    shared = recording.json(source=False)
    assert [call for call in calls if call in shared or call.replace('"', '\\"') in shared] == []


# -- what was not recorded -------------------------------------------------------------------------

BEST = """
import sys

import torch

model = torch.nn.Linear(4, 4)
best = model.state_dict()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 4)).sum().backward()
opt.step()
x = torch.ones(4)
for _ in range(3000):
    x.mul_(1)
model.load_state_dict(best)
"""

CHILD = """
import torch
import torch.multiprocessing as mp


def train(model):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 3)).pow(2).mean().backward()
    opt.step()


if __name__ == "__main__":
    model = torch.nn.Linear(3, 1)
    model.share_memory()
    process = mp.get_context("spawn").Process(target=train, args=(model,))
    process.start()
    process.join()
"""

LOADED = """
import torch


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((3,), float(index))


model = torch.nn.Linear(3, 1)
with torch.no_grad():
    for batch in torch.utils.data.DataLoader(Numbers(), 2, num_workers=1):
        model(batch)
"""


def _run(folder, text: str, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(text.lstrip())
    command = ("-m", "tether", "run", *options, "program.py")
    env = {**os.environ, **settings}  # which an interpreter reads as it starts
    return (fresh if settings else python)(*command, folder=folder, env=env, timeout=300)


def test_what_living_memory_hangs_on_is_kept_whatever_its_age(tmp_path) -> None:
    done = _run(tmp_path, BEST, "--limit", "500", "--fail-on", "warning")
    assert done.returncode == 3, done.stderr
    assert "alias-write  best" in done.stderr
    words = " ".join(done.stderr.split())
    assert "calls were forgotten (--limit)" in words
    assert "needless-copy is off" in words


@pytest.mark.parametrize(
    ("program", "code", "first"),
    [
        pytest.param("print('no tensor')", 4, "no PyTorch call was recorded", id="nothing"),
        pytest.param(CHILD, 4, "1 child process ran and was not recorded", id="in a child"),
        pytest.param(LOADED, 0, "1 child process ran and was not recorded", id="data loader"),
    ],
)
def test_a_gate_does_not_pass_what_was_not_recorded(program, code, first, tmp_path) -> None:
    done = _run(tmp_path, program, "--fail-on", "warning")
    assert done.returncode == code, done.stderr
    assert first in " ".join(done.stderr.split()[:30])
    assert "got a gradient" not in done.stderr, "nothing trained here, so no table says none did"


# -- what a library does ---------------------------------------------------------------------------


def test_what_a_library_does_is_one_line_with_a_count(tmp_path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "base" / "lib" / version / "site-packages"
    (packages / "heavy").mkdir(parents=True)
    (packages / "heavy" / "__init__.py").write_text(
        "def prepare(x):\n    y = x.clone()\n    return (y * 2).sum()\n"
    )
    program = """
import torch
from heavy import prepare

for size in (1500, 2100):
    x = torch.ones(size, size)
    prepare(x)
x = torch.ones(2100, 2100)
prepare(x)
"""
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    done = _run(tmp_path, program, PYTHONPATH=path, PYTHONUSERBASE=str(tmp_path / "base"))
    words = " ".join(done.stderr.split())
    assert "2 notes on the code of heavy (2 needless-copy); --show-all lists them" in words
    assert "#1" not in words
