"""Whether two operands have elements in common: never denied where they have."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengths import programs
from tether.facts import Operand
from tether.regions import element_size, may_overlap


def operand(offset, shape, strides, dtype="float32"):
    return Operand(1, 1, 0, offset, shape, strides, dtype, requires_grad=False, leaf=True)


def elements(one):
    ranges = [range(size) for size in one.shape]
    return {
        one.offset + sum(i * s for i, s in zip(at, one.strides, strict=True))
        for at in itertools.product(*ranges)
    }


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 4), ("bfloat16", 2), ("bool", 1), ("complex64", 8), ("float8_e5m2", 1), ("uint4", 1),
     ("quint4x2", 1), ("float4_e2m1fn_x2", 1), ("bits1x8", 1), ("bits16", 2), ("qint32", 4)],
)  # fmt: skip
def test_the_size_of_an_element_is_pytorchs(dtype, size):
    assert element_size(dtype) == size


dimensions = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), max_size=3)
operands = st.builds(
    lambda offset, dims: operand(offset, tuple(n for n, _ in dims), tuple(s for _, s in dims)),
    st.integers(0, 20),
    dimensions,
)


@given(operands, operands)
@pytest.mark.long
@settings(max_examples=programs(short=500, long=2000))
def test_what_is_called_apart_is_apart(a, b):
    if not may_overlap(a, b):
        assert not elements(a) & elements(b)
        assert not may_overlap(b, a)


MATRIX = (5, 7)  # rows and columns
APART = {
    "two columns": (operand(2, (5,), (7,)), operand(4, (5,), (7,))),
    "a column and those before it": (operand(3, (5,), (7,)), operand(0, (5, 3), (7, 1))),
    "even and odd": (operand(0, (8,), (2,)), operand(1, (8,), (2,))),
    "two rows": (operand(0, (7,), (1,)), operand(7, (7,), (1,))),
    "channels of a batch": (operand(0, (2, 3), (12, 1)), operand(6, (2, 3), (12, 1))),
}


@pytest.mark.parametrize("name", APART)
def test_what_is_apart_is_known_to_be(name):
    a, b = APART[name]
    assert not elements(a) & elements(b)
    assert not may_overlap(a, b)


def test_what_cannot_be_told_overlaps():
    a, b = APART["two columns"]
    assert may_overlap(a, b._replace(storage=2))
    assert may_overlap(a, b._replace(dtype="float64"))
    assert may_overlap(operand(0, (5000,), (2,)), operand(1, (5000,), (3,)))
