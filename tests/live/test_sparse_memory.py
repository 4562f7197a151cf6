"""Sparse tensors show the memory of their values: who writes it, who copies it, who asks for it.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from programs import check_program
from test_recorder import Recorded

START = """\
import torch

torch.manual_seed(0)
torch.sparse.check_sparse_tensor_invariants.enable()
roads = torch.tensor([[0, 0, 1, 2, 3, 4, 4], [1, 2, 3, 3, 4, 0, 2]])
traffic = torch.sparse_coo_tensor(roads, torch.rand(7), (5, 5)).coalesce()
people = torch.rand(5, 2)

"""


FOUND = {
    "asked for by values": """\
def closed(network):
    flow = network.values()
    flow *= torch.rand(7) > 0.3
    return torch.sparse_coo_tensor(network.indices(), flow, network.shape, is_coalesced=True)

detour = torch.sparse.mm(closed(traffic), people)  #! alias-write traffic (note)
usual = torch.sparse.mm(traffic, people)
print((detour - usual).norm())
""",
    "of a CSR matrix, by a share of its sum": """\
def shares(table):
    amounts = table.values()
    amounts.div_(amounts.sum())
    return -(amounts * amounts.log()).sum()

table = torch.sparse_csr_tensor(
    torch.tensor([0, 2, 3, 5]), torch.tensor([0, 1, 1, 0, 2]), torch.rand(5) + 1, (3, 3)
)
print(shares(table))  #! alias-write table (note)
print(table @ torch.ones(3, 1))
""",
    "each time, behind a conversion that had nothing to do": """\
def closed(network, share):
    network = network.coalesce()
    flow = network.values()
    flow *= torch.rand(flow.shape) > share
    return torch.sparse_coo_tensor(network.indices(), flow, network.shape, is_coalesced=True)

for day in range(3):
    print(torch.sparse.mm(closed(traffic, 0.2), people).sum())  #! alias-write traffic (note)
print(traffic.to_dense().sum())
""",
    "built of values that are normalised afterwards": """\
def operators(roads, load):
    raw = torch.sparse_coo_tensor(roads, load, (5, 5))  #! alias-write raw
    load *= torch.zeros(5).index_add_(0, roads[0], load).rsqrt()[roads[0]]
    return raw, torch.sparse_coo_tensor(roads, load, (5, 5))

raw, normalised = operators(roads, torch.rand(7))
print(torch.sparse.mm(raw, people).sum() + torch.sparse.mm(normalised, people).sum())
""",
    "another layout of the same values": """\
rows = traffic.to_sparse_csr()  #! alias-write traffic
rows.values().mul_(2)
print((rows @ people).sum())
print(torch.sparse.mm(traffic, people).sum())
""",
    "a dense state that each call converts": """\
def centred(field):
    field = field.float()
    field -= field.mean()
    field *= 1.1
    return field.abs().sum()

field = torch.rand(4, 4)
for _ in range(3):
    print(centred(field))  #! alias-write field (note)
print(field.sum())
""",
}

RIGHT = {
    "values cloned before they are written": """\
def closed(network):
    flow = network.coalesce().values().clone()
    flow *= torch.rand(7) > 0.3
    return torch.sparse_coo_tensor(network.indices(), flow, network.shape, is_coalesced=True)

for day in range(3):
    print(torch.sparse.mm(closed(traffic), people).sum())
print(torch.sparse.mm(traffic, people).sum())
""",
    "normalised in place before its first use": """\
def network(roads, load):
    made = torch.sparse_coo_tensor(roads, load, (5, 5)).coalesce()
    out = torch.sparse.sum(made, 1).to_dense()
    made.values().div_(out[made.indices()[0]])
    return made

made = network(roads, torch.rand(7))
for day in range(3):
    people = torch.sparse.mm(made.t(), people)
print(people.sum(), made.to_dense().sum())
""",
    "built once the values are normalised": """\
def operator(roads, load):
    load *= torch.zeros(5).index_add_(0, roads[0], load).rsqrt()[roads[0]]
    return torch.sparse_coo_tensor(roads, load, (5, 5))

normalised = operator(roads, torch.rand(7))
for day in range(3):
    print(torch.sparse.mm(normalised, people).sum())
""",
    "bound to what the call gives": """\
def grown(network):
    network = network.coalesce()
    flow = network.values()
    flow *= 1.1
    return network

for day in range(3):
    traffic = grown(traffic)
    print(torch.sparse.mm(traffic, people).sum())
""",
    "called for what it writes": """\
def age(network):
    network.values().mul_(0.9)

for day in range(3):
    age(traffic)
    print(torch.sparse.mm(traffic, people).sum())
""",
    "sparse gradients, scaled by their owner": """\
words = torch.nn.Embedding(30, 4, sparse=True)
opt = torch.optim.SparseAdam(words.parameters())
for step in range(4):
    loss = words(torch.randint(0, 30, (9,))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    words.weight.grad._values().mul_(0.5)
    opt.step()
print(loss.item())
""",
    "sparse gradients, clipped by a helper that says by how much": """\
def clip(parameters, most):
    parts = [p.grad._values() if p.grad.is_sparse else p.grad for p in parameters]
    total = sum(one.norm() ** 2 for one in parts) ** 0.5
    for one in parts:
        one.mul_((most / (total + 1e-6)).clamp(max=1))
    return total

bag, head = torch.nn.EmbeddingBag(30, 4, mode="sum", sparse=True), torch.nn.Linear(4, 1)
held = [*bag.parameters(), *head.parameters()]
opt = torch.optim.SGD(held, lr=0.1)
for step in range(4):
    loss = (head(bag(torch.randint(0, 30, (6, 3)))) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    for one in held:
        one.grad = one.grad.coalesce() if one.grad.is_sparse else one.grad
    norm = clip(held, 0.5)
    opt.step()
    print(norm.item())
""",
    "a buffer of a network of layers": """\
class Layers(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self.register_buffer("network", network)
        self.one, self.two = torch.nn.Linear(2, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        x = torch.relu(torch.sparse.mm(self.network, self.one(x)))
        return self.network @ self.two(x)

model = Layers(traffic)
opt = torch.optim.Adam(model.parameters())
for step in range(3):
    loss = model(people).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), traffic.to_dense().sum())
""",
    "a copy that gets other memory as it is written": """\
busy = traffic.clone()
busy.add_(traffic)
print(busy.to_dense().sum(), traffic.to_dense().sum())
""",
    "a copy of what is given other memory": """\
before = traffic.clone()
traffic.mul_(2)
print(before.to_dense().sum(), traffic.to_dense().sum())
""",
    "a copy whose indices are written": """\
moved = traffic.clone()
moved.indices().copy_(moved.indices().flip(1))
print(moved.to_dense()[0], traffic.to_dense()[0])
""",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_a_write_to_the_values_reaches_the_sparse_tensor(body, tmp_path):
    check_program(START + body, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_is_meant_so_is_not_told(body, tmp_path):
    found = check_program(START + body, tmp_path).findings
    assert not found


def test_a_conversion_that_gave_back_the_tensor_is_named(tmp_path):
    body = FOUND["each time, behind a conversion that had nothing to do"]
    (found,) = check_program(START + body, tmp_path).findings
    assert "had nothing to convert" in str(found)


LAYOUTS = {
    "coo": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "csc": lambda: torch.eye(3).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "bsc": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_its_memory_is_that_of_its_values(make):
    with Recorded() as r:
        x = make()
        values = x.values() if x.layout is not torch.sparse_coo else x._values()
        y = x.clone()
    (asked,) = r.events("values") or r.events("_values")
    (copied,) = r.events("clone")
    assert asked.reads[0].storage == asked.results[0].storage == copied.reads[0].storage
    assert asked.reads[0].shape == tuple(values.shape)
    assert r.trace.storages[asked.reads[0].storage].nbytes == values.untyped_storage().nbytes()
    assert copied.results[0].storage != copied.reads[0].storage
    assert y.layout is x.layout


class _Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.heard.append(func)
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.heard.append(func)
        return func(*args, **(kwargs or {}))


def _heard(mode):
    with mode:
        x = torch.eye(3).to_sparse().requires_grad_()
        c = torch.eye(3).to_sparse_csr()
        torch.sparse.mm(x, torch.ones(3, 1)).sum().backward()
        (c @ torch.ones(3, 1)).sum()
        x.detach().mul_(2)
    return mode.heard


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", [_Functions, _Operators])
def test_no_mode_of_the_programs_hears_that_it_is_asked_for(mode):
    plain = _heard(mode())
    with Recorded():
        recorded = _heard(mode())
    assert recorded == plain


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_asking_for_it_makes_no_node(make):
    x = make().requires_grad_()

    def number():
        return (torch.ones(1, requires_grad=True) * 2).grad_fn._sequence_nr()

    with Recorded():
        before = number()
        x.dense_dim()
        y = x.detach()
        after = number()
    assert after == before + 1
    assert x._version == 0
    assert y.layout is x.layout
