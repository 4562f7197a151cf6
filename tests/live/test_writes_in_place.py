"""Every call that changes the bytes of its first argument is recorded as a write to it.

Whatever the version counter says: `apply_` moves none. The calls are all methods of `torch.Tensor`
whose names end in an underscore, on small arguments; whether bytes changed is asked of PyTorch.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from programs import record_program
from tether.record.session import Session

METHODS = sorted(
    name
    for name in dir(torch.Tensor)
    if name.endswith("_") and not name.startswith("_") and not name.endswith("__")
)
OF_SHAPE = {  # nothing is written: the tensor is shown otherwise, or has another size
    "as_strided_", "detach_", "rename_", "requires_grad_", "resize_", "resize_as_", "resize_as_sparse_",
    "set_", "share_memory_", "sparse_resize_", "sparse_resize_and_clear_", "squeeze_", "swapaxes_",
    "swapdims_", "t_", "transpose_", "unsqueeze_",
}  # fmt: skip

FLOATS = torch.tensor([[0.3, -1.7], [2.6, 0.9]])
INTS = torch.tensor([[3, -2], [6, 9]])
BOOLS = torch.tensor([[True, False], [True, True]])
OTHER = torch.tensor([[1.5, 0.5], [2.5, 3.0]])
PLACES = torch.tensor([[1, 0], [0, 1]])
ARGUMENTS = [
    (),
    (0.4,),
    (2,),
    (0.25, 0.5),
    (OTHER,),
    (INTS + 1,),
    (~BOOLS,),
    (OTHER, 0.5),
    (OTHER, OTHER),
    (OTHER, OTHER, 0.5),
    (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0])),
    (BOOLS, 7.0),
    (BOOLS, OTHER),
    (0, torch.tensor([0]), OTHER[:1]),
    (0, torch.tensor([0]), 5.0),
    (0, torch.tensor([0]), OTHER[:1], "prod"),
    (0, PLACES, OTHER),
    (0, PLACES, OTHER, "sum"),
    (PLACES, OTHER),
    ((torch.tensor([0]),), torch.tensor([9.0, 8.0])),
    (1, 0, 0.1),
    (lambda one: one + 1,),
    (OTHER, lambda one, two: one + two),
    (OTHER, OTHER, lambda one, two, three: one + two + three),
    (torch.ones(3, 2, 4), torch.ones(3, 4, 2)),
    (OTHER, torch.tensor([1.0, 2.0])),
]
SELVES = [
    FLOATS,
    FLOATS.abs() / 3 + 0.01,
    INTS,
    BOOLS,
    torch.tensor([0.3, 0.7]),
    torch.full((3, 2, 2), 0.5),
    FLOATS.double(),
    torch.complex(FLOATS, OTHER),
    torch.tensor([float("inf"), 1.0]),
]


def _changing(name: str):
    """Find arguments with which a method changes its tensor."""
    for own, given in itertools.product(SELVES, ARGUMENTS):
        one = own.clone()
        try:
            torch.manual_seed(0)
            getattr(one, name)(*given)
        except Exception:
            continue
        if one.dtype == own.dtype and one.shape == own.shape and not torch.equal(one, own):
            return own, given
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", METHODS)
def test_a_call_in_place_is_a_write(name) -> None:
    found = _changing(name)
    if name in OF_SHAPE:
        return
    assert found is not None, "no arguments here change anything: add some that do"
    own, given = found
    one = own.clone()
    session = Session()
    session.start()
    try:
        getattr(one, name)(*given)
    finally:
        session.mute()
    trace = session.recorder.trace()
    events = [event for event in trace.events if event.operation == name]
    assert events, [event.operation for event in trace.events]
    assert any(
        event.reads[0].tensor in {operand.tensor for operand in event.writes} for event in events
    )


def test_what_writes_nothing_is_no_write() -> None:
    """The test above can fail: a call that changes nothing has no writes."""
    session = Session()
    session.start()
    try:
        FLOATS.clone().sum()
    finally:
        session.mute()
    assert all(not event.writes for event in session.recorder.trace().events)


OWN_BUFFERS = """\
import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        of_a, of_b = grad * b, grad * a
        a.data.copy_(of_a)
        b.data.copy_(of_b)
        return a.data, b.data


left, right = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
opt = torch.optim.SGD([*left.parameters(), *right.parameters()], 0.1)
for _ in range(3):
    x = torch.randn(4, 3)
    opt.zero_grad()
    Product.apply({a}, right(x)).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize(("a", "lines"), [("left(x)", []), ("left(x).exp()", [14])])
def test_a_function_may_write_into_what_it_alone_had_saved(tmp_path, a, lines):
    found = record_program(OWN_BUFFERS.replace("{a}", a), tmp_path).findings
    assert [one.site.line for one in found if one.slug == "untracked-write"] == lines


SAVED_VALUES = """\
import torch

torch.manual_seed(0)
w = (torch.randn(6, 6) * 8).requires_grad_()
x = w * 1
{call}
y.data.add_(1)
(y * torch.rand(y.shape)).sum().backward()
"""


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        # The gradient needs the saved values, some of them smaller by many orders than others.
        ("y = torch.special.erfcx(x)", True),
        ("y = torch.exp(x)", True),
        # Values that are saved for the gradients of the vectors, which nobody has.
        ("y = torch.linalg.svdvals(x)", False),
        ("y = torch.linalg.svd(x)[1]", False),
        ("u, y, v = torch.linalg.svd(x)", True),
    ],
)
def test_an_unseen_write_is_told_where_the_gradient_needs_the_values(tmp_path, call, wrong):
    found = record_program(SAVED_VALUES.format(call=call), tmp_path).findings
    assert bool([one for one in found if one.slug == "untracked-write"]) == wrong


SHIFTED = """\
import torch
import torch.nn.functional as F

torch.manual_seed(0)
w = torch.randn(4, 3, requires_grad=True)
v = torch.randn(5, 3, requires_grad=True)
k = torch.randn(4, 5, requires_grad=True)
h, c, b = w * 1, v * 1, k * 1
target = torch.tensor([0, 1, 2, 3])
{call}
{write}
(y * torch.rand(y.shape)).sum().backward()
"""


@pytest.mark.parametrize(
    ("call", "write", "wrong"),
    [
        # A shift of all classes changes what the product gives back, and the rows that come from a
        # cross entropy add up to zero.
        ("y = F.cross_entropy(h @ c.T, target, reduction='none')", "c.data.add_(1)", False),
        ("y = F.cross_entropy(h @ c.T, target, reduction='none')", "c.data.mul_(2)", True),
        ("y = F.softmax(h @ c.T, 1)", "c.data.add_(1)", False),
        ("y = h @ c.T", "c.data.add_(1)", True),
        # Weights of a softmax add up to one: one number more in all that they weigh moves nothing
        # behind them, and what stands beside them does not take it out.
        ("y = torch.softmax(b, 1) @ c", "c.data.add_(1)", False),
        ("y = torch.sigmoid(b) @ c", "c.data.add_(1)", True),
        # Not a number before and after, in each sum over the columns that the result enters.
        ("y = (w[:, :1] * -1) ** (k[:1] * 1)", "y.data.add_(1)", False),
        ("y = (w[:, :1].abs() + 1) ** (k[:1] * 1)", "y.data.add_(1)", True),
        # A hidden tensor that is alive, and that the outermost was computed from.
        ("m = h @ c.T; y = F.log_softmax(m, 1)", "c.data.add_(1)", False),
        ("m = h @ c.T; y = F.log_softmax(m, 1) * b", "b.data.add_(1)", True),
    ],
)
def test_an_unseen_write_that_a_later_node_takes_out_is_not_told(tmp_path, call, write, wrong):
    found = record_program(SHIFTED.format(call=call, write=write), tmp_path).findings
    assert bool([one for one in found if one.slug == "untracked-write"]) == wrong


STOPS = """\
import torch

ran = []


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ran.append("the Function")
        return grad


@torch.library.custom_op("tether_tests::same", mutates_args=())
def same(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@same.register_autograd
def same_backward(ctx, grad):
    ran.append("the formula")
    return grad


torch.manual_seed(0)
w = torch.randn(4, 5, requires_grad=True)
c = torch.randn(5, 3)
w.register_hook(lambda grad: ran.append("the hook"))
y = torch.softmax(same(Same.apply(w)), 1) @ c
c.data.add_(1)
(y * torch.rand(y.shape)).sum().backward()
if ran != ["the formula", "the Function", "the hook"]:
    raise RuntimeError(ran)
"""


def test_nothing_of_the_programs_own_runs_when_a_graph_is_asked(tmp_path):
    """What comes to a Function counts as what a leaf gets: no hook, formula or Function is called."""
    made = record_program(STOPS, tmp_path)
    assert made.trace.outcome == "finished"
    assert not [one for one in made.findings if one.slug == "untracked-write"]
