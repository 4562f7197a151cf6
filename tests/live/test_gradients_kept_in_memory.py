"""Memory of the program's own that `.grad` showed, let go of, and read on as if it still did."""

import textwrap

import pytest

from programs import check_program, record_program

HEAD = """\
import numpy as np
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
weights = list(net.parameters())
xs, ys = torch.randn(6, 8, 4), torch.randn(6, 8, 2)
count = sum(w.numel() for w in weights)

def loss_of(n):
    return functional.mse_loss(net(xs[n % 6]), ys[n % 6])

def windows(buffer):
    return [part.view_as(w) for part, w in zip(buffer.split([w.numel() for w in weights]), weights)]

def tie(parts):
    for w, part in zip(weights, parts):
        w.grad = part

def flat_gradient():
    return torch.cat([w.grad.flatten() for w in weights])

def move(parts, rate=0.1):
    with torch.no_grad():
        for w, part in zip(weights, parts):
            w.sub_(part, alpha=rate)

"""


FLAT = """\
class Store:
    def __init__(self):
        self.slab = torch.zeros(count)
        tie(windows(self.slab))

    def clear(self):
        CLEAR

    @torch.no_grad()
    def apply(self):
        start = 0
        for w in weights:
            end = start + w.numel()
            w -= 0.1 * self.slab[start:end].view_as(w)
            start = end

store = Store()
for n in range(5):
    ORDER
"""
FIRST = "store.clear(); loss_of(n).backward(); store.apply()"
LAST = "loss_of(n).backward(); store.apply(); store.clear()"
NAMED = "#! tie-lost net.0.weight"


def flat(clear: str, order: str) -> str:
    lines = textwrap.indent(textwrap.dedent(clear), " " * 8).strip()
    return FLAT.replace("CLEAR", lines).replace("ORDER", order)


BROKEN = {
    "a module clears before the pass": flat(f"net.zero_grad()  {NAMED}", FIRST),
    "a module clears after the step": flat(f"net.zero_grad()  {NAMED}", LAST),
    "None is assigned": flat(
        f"""\
        for w in weights:
            w.grad = None  {NAMED}
        """,
        FIRST,
    ),
    "the attribute is deleted": flat(
        f"""\
        for w in weights:
            del w.grad  {NAMED}
        """,
        LAST,
    ).replace("range(5)", "range(3)"),
    "None is assigned where there is one, and the memory is zeroed": flat(
        f"""\
        self.slab.zero_()
        for w in weights:
            if w.grad is not None:
                w.grad = None  {NAMED}
        """,
        FIRST,
    ),
    "the weights alone, not the biases": flat(
        """\
        for w in weights:
            if w.dim() == 2:
                w.grad = None  #! tie-lost net.0.weight
            else:
                w.grad.zero_()
        """,
        FIRST,
    ),
    "a list of tensors, cleared by an optimizer that is there for that": """\
kept = [torch.zeros_like(w) for w in weights]
tie(kept)
optimizer = torch.optim.SGD(weights, lr=0.1)
for n in range(4):
    (loss_of(n) / 2).backward()
    (loss_of(n + 1) / 2).backward()
    torch._foreach_mul_(kept, 0.5)
    move(kept)
    optimizer.zero_grad()  #! tie-lost net.0.weight
""",
    "rows of one matrix": """\
heads = nn.ModuleList(nn.Linear(4, 1, bias=False) for _ in range(3))
rows = torch.zeros(3, 4)
for row, head in zip(rows, heads):
    head.weight.grad = row[None]
for n in range(4):
    for head in heads:
        sum(one(xs[n]) for one in heads).square().mean().backward()
        break
    rate = 0.1 / rows.norm().clamp(min=1)
    with torch.no_grad():
        for row, head in zip(rows, heads):
            head.weight.sub_(rate * row)
    heads.zero_grad()  #! tie-lost heads.0.weight
""",
    "the weights decay into the memory, which is clipped": """\
slab = torch.zeros(count)
tie(windows(slab))
values = torch.cat([w.detach().flatten() for w in weights])
for w, part in zip(weights, windows(values)):
    w.data = part
for n in range(4):
    net.zero_grad()  #! tie-lost net.0.weight
    loss_of(n).backward()
    slab.add_(values, alpha=0.01)
    slab.mul_((1 / (slab.norm() + 1e-6)).clamp(max=1))
    values.sub_(slab, alpha=0.1)
""",
    "an optimizer of one flat parameter": """\
whole = nn.Parameter(torch.cat([w.detach().flatten() for w in weights]))
whole.grad = torch.zeros_like(whole)
for w, part in zip(weights, windows(whole.data)):
    w.data = part
tie(windows(whole.grad))
optimizer = torch.optim.SGD([whole], lr=0.1, momentum=0.9)
for n in range(4):
    loss_of(n).backward()
    optimizer.step()
    net.zero_grad()  #! tie-lost net.0.weight
""",
    "an optimizer written by hand": """\
class Flat(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})
        self.store = torch.zeros(count)
        tie(windows(self.store))

    @torch.no_grad()
    def step(self):
        move(windows(self.store * 0.1))

optimizer = Flat(net.parameters())
for n in range(4):
    loss_of(n).backward()
    optimizer.step()
    optimizer.zero_grad()  #! tie-lost net.0.weight
""",
    "a bucket that goes to the other processes": """\
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
bucket = torch.zeros(count)
tie(windows(bucket))
optimizer = torch.optim.Adam(weights)
for n in range(4):
    optimizer.zero_grad()  #! tie-lost net.0.weight
    loss_of(n).backward()
    dist.all_reduce(bucket)
    bucket.div_(dist.get_world_size())
    optimizer.step()
dist.destroy_process_group()
""",
    "a bucket that was filled once": """\
bucket = torch.zeros(count)
tie(windows(bucket))
optimizer = torch.optim.Adam(weights)
for n in range(4):
    loss_of(n).backward()
    bucket.clamp_(-1, 1)
    optimizer.step()
    optimizer.zero_grad()  #! tie-lost net.0.weight (note)
""",
    "only for the steps of an epoch": """\
slab = torch.zeros(count)
for epoch in range(2):
    slab.zero_()
    tie(windows(slab))
    for n in range(4):
        loss_of(n).backward()
        move(windows(slab / 2))
        net.zero_grad()  #! tie-lost net.0.weight (note)
""",
    "memory of an array": """\
array = np.zeros(count, dtype=np.float32)
tie(windows(torch.from_numpy(array)))
for n in range(4):
    loss_of(n).backward()
    move(windows(0.1 * torch.from_numpy(array)))
    net.zero_grad()  #! tie-lost net.0.weight
""",
    "divided out of place": flat(
        """\
        self.slab.zero_()
        """,
        FIRST,
    ).replace(
        "store.apply()",
        """
    for w in weights:
        w.grad = w.grad / 2  #! tie-lost net.0.weight
    store.apply()""",
    ).replace("; \n", "\n"),
    "converted": """\
slab = torch.zeros(count)
tie(windows(slab))
for n in range(6):
    functional.mse_loss(net(xs[n].to(weights[0])), ys[n].to(weights[0])).backward()
    move(windows(0.1 * slab))
    if n == 1:
        net.double()  #! tie-lost net.0.weight
    for w in weights:
        w.grad.zero_()
""",
    "one step": """\
slab = torch.zeros(count)
tie(windows(slab))
net.zero_grad()  #! tie-lost net.0.weight (note)
loss_of(0).backward()
move(windows(0.1 * slab))
""",
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_memory_that_gradients_left(name, tmp_path):
    check_program(HEAD + BROKEN[name], tmp_path)


GRAPHS = """\
slab = torch.zeros(count)
tie(windows(slab))
for n in range(4):
    loss_of(n).backward(create_graph=True)
    move(windows(0.1 * slab))
    slab.zero_()
"""


def test_a_pass_that_makes_a_graph_adds_out_of_place(tmp_path):
    findings = record_program(HEAD + GRAPHS, tmp_path).findings
    (found,) = [one for one in findings if one.slug == "tie-lost"]
    assert (found.subject, found.site.line) == ("net.0.weight", HEAD.count("\n") + 4)
    assert "backward(create_graph=True) at line 33 added to it out of place" in found.message


RIGHT = {
    "zeros are written": flat("net.zero_grad(set_to_none=False)", FIRST),
    "tied again before each pass": flat("net.zero_grad(); tie(windows(self.slab.zero_()))", FIRST),
    "tied again after each pass and filled": flat("net.zero_grad()", FIRST).replace(
        "store.apply()",
        "[p.copy_(w.grad) for p, w in zip(windows(store.slab), weights)]; store.apply()",
    ),
    "filled by cat": flat("net.zero_grad()", LAST).replace(
        "store.apply()", "store.slab[:] = flat_gradient(); store.apply()"
    ),
    "filled into an out argument": flat("net.zero_grad()", LAST).replace(
        "store.apply()",
        "torch.cat([w.grad.flatten() for w in weights], out=store.slab); store.apply()",
    ),
    "filled by several at once": flat("net.zero_grad()", FIRST).replace(
        "store.apply()",
        "torch._foreach_copy_(windows(store.slab), [w.grad for w in weights]); store.apply()",
    ),
    "nobody reads it any more": flat("net.zero_grad()", FIRST).replace(
        "store.apply()", "move([w.grad for w in weights])"
    ),
    "zeroed, and read by nobody": flat("self.slab.zero_(); net.zero_grad()", FIRST).replace(
        "store.apply()", "move([w.grad for w in weights])"
    ),
    "filled through an array": """\
array = np.zeros(count, dtype=np.float32)
slab = torch.from_numpy(array)
tie(windows(slab))
for n in range(4):
    net.zero_grad()
    loss_of(n).backward()
    array[:] = flat_gradient().numpy()
    move(windows(0.1 * slab))
""",
    "the gradient of a snapshot, compared in an inner loop": """\
mean = torch.zeros(count)
for epoch in range(2):
    mean.zero_()
    old = [w.detach().clone() for w in weights]
    tie(windows(mean))
    for n in range(6):
        (loss_of(n) / 6).backward()
    print(mean.norm())
    for n in range(3):
        net.zero_grad()
        now = [w.detach().clone() for w in weights]
        loss_of(n).backward()
        here = flat_gradient()
        for w, value in zip(weights, old):
            w.data.copy_(value)
        net.zero_grad()
        loss_of(n).backward()
        there = flat_gradient()
        for w, value in zip(weights, now):
            w.data.copy_(value)
        move(windows(here - there + mean))
    net.zero_grad()
""",
    "squares kept for a penalty": """\
fisher = torch.zeros(count)
tie(windows(fisher))
for n in range(6):
    loss_of(n).backward()
fisher.square_()
anchor = torch.cat([w.detach().flatten() for w in weights])
optimizer = torch.optim.SGD(weights, lr=0.1)
for n in range(4):
    optimizer.zero_grad()
    values = torch.cat([w.flatten() for w in weights])
    (loss_of(n) + (fisher * (values - anchor).square()).sum()).backward()
    optimizer.step()
""",
    "momentum that is the gradient of a step": """\
speed = torch.zeros(count)
optimizer = torch.optim.SGD(weights, lr=0.1)
for n in range(5):
    optimizer.zero_grad()
    loss_of(n).backward()
    speed.mul_(0.9).add_(flat_gradient())
    tie(windows(speed))
    optimizer.step()
""",
    "momentum out of place": """\
speed = torch.zeros(count)
tie(windows(speed))
optimizer = torch.optim.SGD(weights, lr=0.1)
for n in range(5):
    optimizer.zero_grad()
    loss_of(n).backward()
    speed = 0.9 * speed + flat_gradient()
    tie(windows(speed))
    optimizer.step()
""",
    "gradients put together, and their length asked for later": """\
optimizer = torch.optim.SGD(weights, lr=0.1)
merged = None
for n in range(5):
    both = []
    for m in (n, n + 1):
        optimizer.zero_grad()
        loss_of(m).backward()
        both.append(flat_gradient())
    if merged is not None:
        print(merged.norm(), torch.dot(merged, both[0]))
    merged = both[0] + both[1]
    tie(windows(merged))
    optimizer.step()
""",
    "the first gradient, to compare with": """\
first = torch.zeros(count)
tie(windows(first))
optimizer = torch.optim.SGD(weights, lr=0.1)
for n in range(5):
    if n:
        optimizer.zero_grad()
    loss_of(n).backward()
    print(torch.dot(first, flat_gradient()) / first.norm())
    optimizer.step()
""",
    "two memories in turn": """\
this, last = torch.zeros(count), torch.zeros(count)
for n in range(6):
    this, last = last, this
    this.zero_()
    tie(windows(this))
    loss_of(n).backward()
    print(torch.dot(this, last))
    move(windows(0.1 * this))
""",
    "zeros in place of gradients that are missing": """\
zeros = [torch.zeros_like(w) for w in weights]
optimizer = torch.optim.SGD(weights, lr=0.1, weight_decay=0.1)
tie(zeros)
optimizer.step()
for n in range(4):
    optimizer.zero_grad()
    net[2](torch.ones(2, 6)).sum().backward()
    print(sum((w.grad if w.grad is not None else z).norm() for w, z in zip(weights, zeros)))
    for w, zero in zip(weights, zeros):
        if w.grad is None:
            w.grad = zero
    optimizer.step()
""",
    "frozen from then on": """\
slab = torch.zeros(count)
tie(windows(slab))
for n in range(3):
    loss_of(n).backward()
    move(windows(0.1 * slab))
    slab.zero_()
loss_of(0).backward()
net.zero_grad()
net.requires_grad_(False)
scale = torch.ones((), requires_grad=True)
for n in range(3):
    (loss_of(n) * scale).backward()
    move(windows(0.1 * slab))
""",
    "a force that is the gradient of each step": """\
force = torch.randn(count)
optimizer = torch.optim.SGD(weights, lr=0.1)
for n in range(4):
    optimizer.zero_grad()
    loss_of(n).backward()
    print(force.norm())
    tie(windows(force))
    optimizer.step()
""",
    "filled by gradients that are asked for": """\
slab = torch.zeros(count)
tie(windows(slab))
for n in range(4):
    net.zero_grad()
    loss_of(n).backward()
    for part, found in zip(windows(slab), torch.autograd.grad(loss_of(n), weights)):
        part.copy_(found)
    move(windows(0.1 * slab))
""",
    "a part of it that is no gradient": """\
slab = torch.zeros(count + 3)
tie(windows(slab[:count]))
for n in range(4):
    net.zero_grad()
    loss_of(n).backward()
    slab[count:].add_(1)
    print(slab[count:].sum())
    move([w.grad for w in weights])
""",
    "other parameters have the memory": """\
slab = torch.zeros(count)
tie(windows(slab))
loss_of(0).backward()
move(windows(0.1 * slab))
net.zero_grad()
slab.zero_()
other = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
for w, part in zip(other.parameters(), windows(slab)):
    w.grad = part
for n in range(4):
    (functional.mse_loss(other(xs[n]), ys[n]) + loss_of(n)).backward()
    move(windows(0.1 * slab))
    slab.zero_()
""",
    "another process fills it": """\
import torch.multiprocessing as mp
slab = torch.zeros(count).share_memory_()
tie(windows(slab))

def fill(slab, n):
    slab.fill_(n / 100)

for n in range(3):
    net.zero_grad()
    loss_of(n).backward()
    child = mp.get_context("fork").Process(target=fill, args=(slab, n))
    child.start()
    child.join()
    move(windows(0.1 * slab))
""",
    "the players take turns, and each has its own": """\
other = nn.Linear(4, 2)
theirs = torch.zeros(8 + 2)
for n in range(5):
    slab = torch.zeros(count)
    tie(windows(slab))
    loss_of(n).backward()
    move(windows(0.1 * slab))
    net.zero_grad()
    (net(xs[n] + other(xs[n]).repeat(1, 2)).square().mean()).backward()
    with torch.no_grad():
        other.weight.sub_(other.weight.grad, alpha=0.1)
    other.zero_grad()
    print(slab.norm())
""",
    "checked to be what it was": """\
slab = torch.zeros(count)
tie(windows(slab))
for n in range(4):
    loss_of(n).backward()
    before = slab.clone() if n == 0 else before
    assert torch.equal(slab, before)
    net.zero_grad()
""",
    "no pass comes after": """\
slab = torch.zeros(count)
tie(windows(slab))
for n in range(4):
    loss_of(n).backward()
net.zero_grad()
for n in range(4):
    move(windows(0.1 * slab))
""",
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_memory_that_looks_as_if_gradients_had_left(name, tmp_path):
    findings = record_program(HEAD + RIGHT[name], tmp_path).findings
    assert [one.message for one in findings if one.slug == "tie-lost"] == []
