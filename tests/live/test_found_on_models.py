"""What public models showed that was false or told many times, each as its smallest program."""

import copy
import pickle

import pytest

from programs import record_program
from tether.report.document.text import render

STEPS = """
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
"""
HEAD = (
    "import contextlib\nimport copy\n\nimport torch\nfrom torch import nn\n\ntorch.manual_seed(0)\n"
)

TWICE_BEGUN = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        for _ in range(2):
            for layer in self.layers:
                nn.init.xavier_uniform_(layer.weight)

    def forward(self, x):
        xs = []
        for layer in self.layers:
            x = layer(x).relu()
            xs.append(x)
        READ

model = Net()
"""
    + STEPS
)

SETTER = (
    HEAD
    + """
def set_requires_grad(layer, flag):
    for parameter in layer.parameters():
        parameter.requires_grad_(flag)

class Tuned(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.base, self.active = layer, "default"
        self.copies = nn.ModuleDict({"default": copy.deepcopy(layer)})
        self.base.requires_grad_(False)
        set_requires_grad(self.copies["default"], True)
        self.set_adapter("default")

    def set_adapter(self, name):
        set_requires_grad(self.copies[self.active], False)
        self.active = name
        set_requires_grad(self.copies[name], True)

    def forward(self, x):
        return self.copies[self.active](x)

model = Tuned(nn.Linear(4, 1))
"""
    + STEPS
)

FROZEN_BESIDE = (
    HEAD
    + """
class Tuned(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.base = layer
        self.tuned = copy.deepcopy(layer)

    def forward(self, x):
        return self.tuned(x)

model = nn.Sequential(Tuned(nn.LayerNorm(4)), nn.Linear(4, 1))
for name, one in model.named_parameters():
    if "tuned" not in name:
        one.requires_grad = False
"""
    + STEPS
)

DECORATED = (
    HEAD
    + """
class Timer(contextlib.ContextDecorator):
    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass

class Indexer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(4, 4, bias=False)

    @torch.no_grad()
    @Timer()
    def forward(self, x):
        return (self.q(x) @ x.T).topk(2, dim=-1).indices

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.indexer, self.out = Indexer(), nn.Linear(4, 1)

    def forward(self, x):
        return self.out(x[self.indexer(x)].mean(1))

model = Net()
"""
    + STEPS
)

UNUSED_HALF = (
    HEAD
    + """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())

class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        return self.blocks[1](self.blocks[0](x))

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = Half()
        self.vision = Half()

    def forward(self, text, image=None):
        return self.text(text) if image is None else self.text(text) + self.vision(image)

model = Both()
"""
    + STEPS
)

DEEP = (
    HEAD
    + """
class Box(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.inner = Box(depth - 1) if depth else nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        return self.inner(x) if isinstance(self.inner, Box) else self.inner[0](x)

model = Box(14)
"""
    + STEPS
)

MADE_BEFORE_INIT = """\
import torch
from torch import nn

class Block(nn.Sequential):
    def __init__(self, count):
        layers = [nn.Linear(4, 4) for _ in range(count)]
        super().__init__(*layers)

model = Block(400)
print(model[0](torch.ones(1, 4)).sum())
"""

SPARSE_ROWS = """\
import torch

edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
graph = torch.sparse_coo_tensor(edges, torch.ones(4), (4, 4))
part = graph.index_select(1, torch.tensor([0, 2])).to_sparse_csr()
print((part.t().to_sparse_csr() @ torch.eye(4)).sum())
"""


def told(text, folder):
    recording = record_program(text, folder)
    assert recording.error is None
    return [one for one in recording.findings if one.severity != "note"]


def test_a_weight_that_is_begun_twice_is_no_list_of_draws(tmp_path):
    for read in ("return torch.cat(xs, -1)", "return torch.cat([self.layers[0](x) for x in xs])"):
        assert told(TWICE_BEGUN.replace("READ", read), tmp_path) == []


def test_a_setter_that_switches_one_off_and_one_on_freezes_nothing_in_vain(tmp_path):
    assert told(SETTER, tmp_path) == []


def test_what_is_frozen_beside_its_copy_was_not_cut_off_by_the_copy(tmp_path):
    assert told(FROZEN_BESIDE, tmp_path) == []


def test_the_line_of_a_decorator_is_named_above_another_decorator(tmp_path):
    (found,) = told(DECORATED, tmp_path)
    line = DECORATED[: DECORATED.index("@torch.no_grad()")].count("\n") + 1
    assert (found.slug, found.site.line) == ("gradient-cut", line)


def test_one_finding_speaks_for_an_unused_part_of_a_model(tmp_path):
    (found,) = told(UNUSED_HALF, tmp_path)
    line = UNUSED_HALF[: UNUSED_HALF.index("self.vision = Half()")].count("\n") + 1
    assert (found.slug, found.site.line) == ("gradient-unused", line)
    assert found.message.startswith("`model.vision` got no gradient")


def test_a_parameter_deep_in_a_network_has_its_name(tmp_path):
    found = record_program(DEEP, tmp_path).findings
    assert [one.subject for one in found] == ["model" + 15 * ".inner" + ".1.weight"]


def test_modules_and_tensors_of_other_kinds_leave_no_gap(tmp_path):
    for text in (MADE_BEFORE_INIT, SPARSE_ROWS):
        recording = record_program(text, tmp_path)
        assert recording.error is None
        assert {one.code for one in recording.trace.gaps} <= {"memory"}


def test_a_finding_can_be_copied_and_pickled(tmp_path):
    (found,) = told(UNUSED_HALF, tmp_path)
    for one in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert (one.message, one.site) == (found.message, found.site)
        assert one.message.segments == found.message.segments


GENERATED = (
    HEAD
    + """
class Hyper(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target, self.code = target, nn.Parameter(torch.randn(3))
        self.head = nn.Linear(3, target.weight.numel())

    def forward(self, x):
        flat = self.head(self.code)
        self.target._parameters.pop("weight", None)
        self.target.weight = WEIGHT
        return self.target(x)

model = Hyper(nn.Linear(4, 2))
"""
    + STEPS
)


def test_a_weight_that_a_network_computes_takes_the_place_of_one_that_an_optimizer_holds(tmp_path):
    weight = "flat.view(2, 4)"
    assert told(GENERATED.replace("WEIGHT", weight), tmp_path) == []
    cut = told(GENERATED.replace("WEIGHT", f"nn.Parameter({weight})"), tmp_path)
    assert {one.slug for one in cut} >= {"gradient-cut"}


LIBRARY = """\
import torch
from torch import nn

torch.manual_seed(0)


class Shelf(nn.Module):
    def __init__(self):
        super().__init__()
        self.index = nn.Linear(3, 3)
        self.covers = nn.Linear(3, 2)

    def forward(self, books, step=0):
        if books.dim() == 1:
            return self.index(books)
        found = self.index(books)
        if step > {first}:
            self.last = self.covers(found)
        return found


shelf = Shelf()
cabinet = nn.ModuleList([shelf])
optimizer = torch.optim.SGD(cabinet.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    shelf(torch.randn(4, 3), step).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("first", "told"), [(-1, []), (1, [14, 17])])
def test_a_condition_is_named_where_it_decided_something(first, told, tmp_path):
    recording = record_program(LIBRARY.format(first=first), tmp_path)
    (found,) = [one for one in recording.findings if one.slug == "gradient-unused"]
    decides = [one.site.line for one in found.evidence if "decides" in one.text]
    assert decides == told
    assert [one.text for one in found.evidence].count("the loss is computed here") == 1


def test_other_tensors_stand_apart_from_other_names(tmp_path):
    recording = record_program(LIBRARY.format(first=-1), tmp_path)
    (found,) = [one for one in recording.findings if one.slug == "gradient-unused"]
    assert set(found.also) - set(found.second) == {"shelf.covers.bias"}
    assert "cabinet.0.covers.weight" in found.second
    lines = [" ".join(one.split()) for one in render(recording.document()).splitlines()]
    assert "same shelf.covers.bias" in lines
    assert any(one.startswith("named ") and "cabinet" in one for one in lines)
