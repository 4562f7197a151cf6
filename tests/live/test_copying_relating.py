"""`tether.relate` and `tether.describe`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tether


def test_two_columns_share_a_storage_and_no_byte():
    table = torch.zeros(5, 4)
    relation = tether.relate(table[:, 0], table[:, 1])
    assert (relation.memory, relation.bytes, relation.storage) == ("disjoint", 0, True)
    assert tether.relate(table, table[:, 1])[:2] == ("overlaps", 20)
    assert tether.relate(table, table.t())[:2] == ("same", 80)
    assert tether.relate(table, table.clone()).memory == "none"


def test_arrays_and_tensors_on_the_same_bytes():
    array = np.arange(6.0)
    one, two = torch.from_numpy(array), torch.from_numpy(array[4:])
    relation = tether.relate(one, two)
    assert (relation.memory, relation.bytes, relation.storage) == ("overlaps", 16, False)
    assert tether.relate(one, array).memory == "same"
    assert tether.relate(array[::2], array[1::2]).memory == "none"
    with pytest.raises(TypeError, match="list"):
        tether.relate([1], one)


def test_every_gradient_tie():
    a = torch.ones(3, requires_grad=True)
    b = a * 2
    c = a.exp()
    other = torch.ones(3, requires_grad=True)
    assert tether.relate(a, b).gradient == "ancestor"
    assert tether.relate(b, a).gradient == "descendant"
    assert tether.relate(b, c).gradient == "common"
    assert tether.relate(a, other).gradient == "cut"
    assert tether.relate(a, a.detach()).gradient == "cut"
    assert tether.relate(a, a).gradient == "same"
    assert tether.relate(torch.ones(1), torch.ones(1)).gradient == "none"
    left, right = (b + other).split([1, 2])
    assert tether.relate(left, right).gradient == "common"
    assert tether.relate(other, right).gradient == "ancestor"


def test_a_deep_graph_is_walked_without_recursion():
    a = torch.ones(1, requires_grad=True)
    b = a
    for _ in range(20_000):
        b = b + 1
    assert tether.relate(a, b).gradient == "ancestor"


def test_relations_read_as_sentences():
    a = torch.ones(4, requires_grad=True)
    text = str(tether.relate(a[1:], a))
    assert (
        text
        == "overlapping memory (12 bytes in common); gradients of the first flow into the second"
    )
    assert "cannot be compared" in str(tether.relate(a, torch.eye(2).to_sparse()))


def test_what_is_too_large_is_not_claimed(monkeypatch):
    monkeypatch.setattr("tether.copying.relation._MARKS_LIMIT", 10)
    table = torch.zeros(50, 4)
    relation = tether.relate(table[:, 0], table[:, 1])
    assert (relation.memory, relation.bytes) == ("unknown", None)
    assert "too large" in str(relation)
    assert tether.relate(table[3:], table[:5]).bytes == 32


def test_nothing_is_touched():
    a = torch.ones(4, requires_grad=True) * 2
    before = a._version
    tether.relate(a, a[1:])
    tether.describe(a)
    assert a._version == before


def test_describe():
    large = torch.zeros(100, 10)
    found = tether.describe(large[:, 3])
    assert (found.bytes_used, found.bytes_kept) == (400, 4000)
    assert (found.strides, found.offset, found.contiguous) == ((10,), 3, False)
    assert "3600 bytes alive" in str(found)
    w = torch.nn.Parameter(torch.ones(2))
    assert tether.describe(w).kind == "Parameter"
    assert tether.describe(w * 2).grad_fn == "MulBackward0"
    assert tether.describe(torch.ones(1).expand(1000)).bytes_used == 4
    assert not tether.describe(torch.from_numpy(np.ones(3))).resizable
    assert tether.describe(np.ones(3)).kind == "ndarray"
    with torch.inference_mode():
        assert tether.describe(torch.ones(1)).version is None
    assert "sparse" in str(tether.describe(torch.eye(2).to_sparse()))
    assert "a view of a tensor [100, 10]" in str(tether.describe(large[:, 3]))
    assert "conj bit set" in str(tether.describe(torch.ones(2, dtype=torch.complex64).conj()))
    assert tether.describe(torch.ones(2, dtype=torch.complex64).conj().imag).bits == ("neg",)


def test_a_view_that_pytorch_refuses_to_ask_is_described_as_it_stands():
    made = torch.ones(3, requires_grad=True) * 1
    with torch.no_grad():
        view = made[:2]
    made.mul_(2)
    with pytest.raises(RuntimeError, match="view was created in no_grad"):
        view.grad_fn  # noqa: B018 -- asking is what raises
    assert tether.describe(view).grad_fn == ""
    with pytest.raises(RuntimeError, match="view was created in no_grad"):
        view.grad_fn  # noqa: B018 -- and describing has not changed that
