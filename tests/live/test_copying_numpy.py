"""`tether.copy(to="numpy")` and DLPack, in both directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tether
from tether.copying.intent import Refused


def test_a_shared_array_shows_writes_and_can_be_read_only():
    w = torch.ones(3, requires_grad=True)
    shared = tether.copy(w, to="numpy", memory="share")
    shared[0] = 5
    assert w.tolist() == [5, 1, 1]
    fixed = tether.copy(w, to="numpy", memory="share", readonly=True)
    with pytest.raises(ValueError, match="read-only"):
        fixed[0] = 1
    owned = tether.copy(w, to="numpy")
    owned[0] = 7
    assert w.tolist() == [5, 1, 1]
    assert owned.flags.writeable


def test_the_types_numpy_lacks(monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    array = tether.copy(x, to="numpy", memory="share")
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(float).tolist() == [1.5, -2.0]
    assert tether.relate(array, x).memory == "same"
    assert tether.copy(array).dtype is torch.bfloat16
    tiny = tether.copy(torch.tensor([1.0], dtype=torch.float8_e5m2), to="numpy")
    assert tiny.dtype == ml_dtypes.float8_e5m2
    monkeypatch.setattr("tether.copying.steps._ml_dtypes", lambda: False)
    with pytest.raises(Refused, match="install ml_dtypes"):
        tether.copy(x, to="numpy")
    assert tether.copy(x, to="numpy", dtype="float32").tolist() == [1.5, -2.0]


def test_bits_sparse_and_empty():
    z = torch.tensor([1 + 2j])
    assert tether.copy(z.conj(), to="numpy").tolist() == [1 - 2j]
    assert tether.copy(z.conj().imag, to="numpy").tolist() == [-2]
    assert tether.copy({"z": z.conj()}, to="numpy")["z"].tolist() == [1 - 2j]
    assert tether.copy(torch.eye(2).to_sparse(), to="numpy", dense=True).trace() == 2
    assert tether.copy(torch.ones(0, 3), to="numpy").shape == (0, 3)
    assert tether.copy(torch.ones(3, 2).t(), to="numpy").shape == (2, 3)


def test_arrays_are_sources_too():
    array = np.arange(3.0)
    array.flags.writeable = False
    copied = tether.copy(array)
    assert isinstance(copied, torch.Tensor)
    assert tether.relate(copied, array).memory == "none"


def test_a_large_array_lies_on_pooled_memory():
    before = tether.pool.stats().leased_blocks
    array = tether.copy(torch.ones(9 << 20), to="numpy")
    assert tether.pool.stats().leased_blocks == before + 1
    del array
    assert tether.pool.stats().leased_blocks == before


def test_dlpack():
    w = torch.ones(3, requires_grad=True)
    shared = torch.from_dlpack(tether.copy(w, to="dlpack", memory="share"))
    owned = torch.from_dlpack(tether.copy(w, to="dlpack"))
    assert tether.relate(shared, w).bytes == 12
    assert tether.relate(owned, w).memory == "none"


def test_arrays_that_no_tensor_can_lie_on():
    array = np.arange(6.0)
    for odd in (array[::-1], array.astype(">f8")):
        assert tether.copy(odd).tolist() == odd.tolist()
        assert tether.copy(odd, to="numpy").tolist() == odd.tolist()
        assert tether.relate(tether.copy(odd), odd).memory == "none"
        with pytest.raises(Refused, match="torch"):
            tether.copy(odd, memory="share")
        with pytest.raises(Refused, match="torch"):
            tether.copy(torch.ones(6), out=odd)
    assert tether.relate(array[::-1], array).memory == "same"
    assert tether.relate(array[3::-1], torch.from_numpy(array)[2:]).bytes == 16


def test_a_read_only_array_is_not_shared_with_what_could_write():
    array = np.arange(3.0)
    array.flags.writeable = False
    assert tether.copy(array).tolist() == [0, 1, 2]
    with pytest.raises(Refused, match="refuses writes"):
        tether.copy(array, memory="share")
    with pytest.raises(Refused, match="readonly=True"):
        tether.copy(array, memory="share", to="numpy")
    shared = tether.copy(array, memory="share", to="numpy", readonly=True)
    assert not shared.flags.writeable
    assert tether.relate(shared, array).memory == "same"


def test_what_has_no_array_says_why():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    jagged = torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged)
    for x in (nested, jagged):
        with pytest.raises(Refused, match="unbind"):
            tether.copy(x, to="numpy", dense=True)
    with pytest.raises(Refused, match="no values"):
        tether.copy(torch.ones(2, device="meta"), to="numpy")
    with pytest.raises(Refused, match="no values"):
        tether.copy(torch.ones(2, device="meta"), device="cpu")
