"""Laws of `tether.copy`, over tensors and trees of every make."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import tether
from tether.copying.intent import Refused

LAW = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
    torch.int8, torch.int64, torch.uint8, torch.uint16, torch.bool, torch.float8_e4m3fn,
]  # fmt: skip
NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, NO_CUDA])]


class Tagged(torch.Tensor):
    """A subclass as users write them."""


def bits(x: torch.Tensor) -> list[int]:
    """The values of `x` bit for bit, NaNs and negative zeros included."""
    plain = x.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).tolist() if plain.numel() else []


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bits(a) == bits(b)


@st.composite
def tensors(draw: st.DrawFn, device: str = "cpu") -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    raw = draw(st.integers(0, 2**31))
    base = torch.arange(raw, raw + 240 * dtype.itemsize, device=device).to(torch.uint8)
    if dtype is torch.bool:
        base = base % 2
    x = base.view(dtype)
    kind = draw(st.sampled_from(["plain", "offset", "step", "t", "expand", "empty", "scalar"]))
    x = {
        "plain": lambda: x.view(4, 60),
        "offset": lambda: x[7:67].view(3, 20),
        "step": lambda: x.view(12, 20)[1::3, 2::5],
        "t": lambda: x.view(12, 20).t(),
        "expand": lambda: x[:5].view(5, 1).expand(5, 6),
        "empty": lambda: x[:0].view(0, 3),
        "scalar": lambda: x[11],
    }[kind]()
    floating = dtype.is_floating_point or dtype.is_complex
    grad = draw(st.sampled_from(["none", "leaf", "nonleaf"])) if floating else "none"
    if grad != "none":
        x = x.detach().requires_grad_()
    if grad == "nonleaf":
        x = x.view_as(x)
    if dtype.is_complex and draw(st.booleans()):
        x = x.conj()
        if draw(st.booleans()):
            x = x.imag
    if draw(st.integers(0, 5)) == 0:
        x = x.as_subclass(Tagged)
    return x


@pytest.mark.parametrize("device", DEVICES)
@LAW
@given(data=st.data(), memory=st.sampled_from(["own", "share"]),
       grad=st.sampled_from(["cut", "keep"]))  # fmt: skip
def test_the_ties_are_the_intent(device, data, memory, grad):
    x = data.draw(tensors(device))
    fired: list[str] = []
    if x.requires_grad:
        x.register_hook(lambda _: fired.append("hook"))
        if x.is_leaf:
            x.grad = torch.zeros_like(x)
    given = x.grad if x.is_leaf else None
    before, version, maker = bits(x), x._version, x.grad_fn
    y = tether.copy(x, memory=memory, grad=grad)
    relation = tether.relate(y, x)
    if x.numel():
        assert relation.memory == ("none" if memory == "own" else "same")
    if grad == "keep" and x.requires_grad:
        assert relation.gradient == "descendant"
    else:
        assert relation.gradient == ("cut" if x.requires_grad else "none")
    assert same_values(y, x)
    assert type(y) is type(x)
    assert (bits(x), x._version) == (before, version)
    assert fired == []
    assert x.grad_fn is maker
    assert not x.is_leaf or x.grad is given
    if x.requires_grad:
        torch.autograd.grad(x.view_as(x), x, torch.ones_like(x))
        assert fired == ["hook"]


@LAW
@given(x=tensors())
def test_a_copy_of_a_copy_is_the_copy(x):
    once = tether.copy(x)
    twice = tether.copy(once)
    assert same_values(once, twice)
    assert (once.stride(), once.requires_grad, type(once)) == (
        twice.stride(), twice.requires_grad, type(twice),
    )  # fmt: skip
    assert once._version == 0
    assert once.untyped_storage().nbytes() == once.numel() * once.element_size()


@LAW
@given(x=tensors())
def test_the_plan_is_what_pytorch_does(x):
    y = tether.copy(x)
    z = x.detach().clone()
    assert same_values(y, z)
    assert (y.stride(), y.is_conj(), y.is_neg()) == (z.stride(), z.is_conj(), z.is_neg())


@LAW
@given(x=tensors())
def test_numpy_owns_or_shares(x):
    try:
        array = tether.copy(x, to="numpy")
    except Refused:
        with pytest.raises(Refused, match="ml_dtypes"):
            tether.copy(x, to="numpy")
        assert x.dtype in {torch.bfloat16, torch.float8_e4m3fn}
        return
    assert tether.relate(array, x).memory == "none"
    assert same_values(tether.copy(array), tether.copy(x))
    if x.is_conj() or x.is_neg():
        with pytest.raises(Refused, match="bit set"):
            tether.copy(x, to="numpy", memory="share")
    elif x.numel():
        shared = tether.copy(x, to="numpy", memory="share")
        assert tether.relate(shared, x).memory == "same"


@st.composite
def trees(draw: st.DrawFn, device: str = "cpu"):
    """A tree whose tensors are views of a few storages, some met more than once."""
    bases = [torch.randn(24, device=device) for _ in range(draw(st.integers(1, 3)))]
    pool = []
    for _ in range(draw(st.integers(1, 6))):
        base = draw(st.sampled_from(bases))
        view = draw(st.sampled_from([
            lambda b: b, lambda b: b[3:9], lambda b: b[5:20], lambda b: b.view(4, 6).t(),
            lambda b: b[::2], lambda b: b[1::2], lambda b: b.view(torch.int32),
            nn.Parameter, lambda b: b.detach(), lambda b: torch.from_numpy(b.numpy())
            if b.device.type == "cpu" else b,
        ]))(base)  # fmt: skip
        pool.append(view)
    leaves = st.sampled_from(pool)
    shape = st.recursive(
        leaves | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            | st.tuples(inner, inner)
        ),
        max_leaves=8,
    )
    return [*draw(st.lists(leaves, min_size=2, max_size=4)), draw(shape)]


def leaves_of(tree) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    parts = (
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else []
    )
    return [leaf for part in parts for leaf in leaves_of(part)]


@pytest.mark.parametrize("device", DEVICES)
@LAW
@given(data=st.data())
def test_ties_in_are_ties_out(device, data):
    tree = data.draw(trees(device))
    old = leaves_of(tree)
    before = [bits(x) for x in old]
    try:
        new = leaves_of(tether.copy(tree))
    except Refused:
        with pytest.raises(Refused, match="foreign memory"):
            tether.copy(tree)
        return
    assert len(old) == len(new)
    for i, (x, y) in enumerate(zip(old, new, strict=True)):
        assert same_values(x, y)
        assert type(x) is type(y)
        assert x.requires_grad == y.requires_grad
        assert tether.relate(x, y).memory == "none"
        for a, b in zip(old[:i], new[:i], strict=True):
            assert (a is x) == (b is y)
            was, now = tether.relate(a, x), tether.relate(b, y)
            assert (was.memory in {"same", "overlaps"}, was.bytes) == (
                now.memory in {"same", "overlaps"}, now.bytes,
            )  # fmt: skip
    assert [bits(x) for x in old] == before


@LAW
@given(data=st.data())
def test_a_refreshed_copy_is_a_new_copy(data):
    tree = data.draw(trees())
    try:
        copied = tether.copy(tree)
    except Refused:
        return
    addresses = [x.data_ptr() for x in leaves_of(copied)]
    for x in leaves_of(tree):
        with torch.no_grad():
            x.add_(1)
    assert tether.copy(tree, out=copied) is copied
    assert [x.data_ptr() for x in leaves_of(copied)] == addresses
    for x, y in zip(leaves_of(tree), leaves_of(copied), strict=True):
        assert same_values(x, y)


@LAW
@given(
    size=st.integers(1, 12), offset=st.integers(0, 5), step=st.integers(1, 4),
    size2=st.integers(1, 12), offset2=st.integers(0, 5), step2=st.integers(1, 4),
    wide=st.booleans(),
)  # fmt: skip
def test_overlap_is_counted_to_the_byte(size, offset, step, size2, offset2, step2, wide):
    base = torch.zeros(128, dtype=torch.int16)
    a = base.as_strided((size,), (step,), offset)
    b = (base.view(torch.int32) if wide else base).as_strided((size2,), (step2,), offset2)
    own = {2 * (offset + i * step) + k for i in range(size) for k in range(2)}
    width = 4 if wide else 2
    other = {width * (offset2 + i * step2) + k for i in range(size2) for k in range(width)}
    relation = tether.relate(a, b)
    assert relation.bytes == len(own & other)
    expected = "disjoint" if not own & other else "same" if own == other else "overlaps"
    assert relation.memory == expected
    assert relation.storage


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(32 << 20, 40 << 20), min_size=1, max_size=4))
def test_pool_memory_all_comes_back(sizes):
    tether.pool.trim()
    before = tether.pool.stats().leased_blocks
    views = []
    for size in sizes:
        copied = tether.copy(torch.empty(size, dtype=torch.uint8))
        assert copied.untyped_storage().nbytes() == size
        views.append(copied[5:9])
    assert tether.pool.stats().leased_blocks == before + len(sizes)
    del copied, views
    assert tether.pool.stats().leased_blocks == before
    tether.pool.trim()
    assert tether.pool.stats().idle_bytes == 0
