"""`tether.copy` between host and device."""

from __future__ import annotations

import pytest
import torch

import tether
from tether.intent import Intent
from tether.live import storages, transfer

CUDA = torch.cuda.is_available()
cuda = pytest.mark.cuda
needs_cuda = pytest.mark.skipif(not CUDA, reason="no CUDA device")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[cuda, needs_cuda])])
def test_packing_brings_every_tensor_back(device):
    tensors = [
        torch.randn(5, device=device),
        torch.arange(7, dtype=torch.uint8, device=device),
        torch.randn(3, 4, dtype=torch.float64, device=device).t(),
        torch.ones(0, device=device),
        torch.tensor(True, device=device),
        torch.randn(2, 2, dtype=torch.complex64, device=device)[:, ::2],
    ]
    packing = transfer.Packing(tensors)
    buffer = torch.empty(packing.nbytes, dtype=torch.uint8, device=device)
    packing.pack(buffer)
    for old, new in zip(tensors, packing.unpack(buffer), strict=True):
        assert torch.equal(old, new)
        assert old.dtype is new.dtype
        assert tether.relate(new, buffer).memory == "none"
        assert new.untyped_storage().nbytes() == new.nbytes


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[cuda, needs_cuda])])
def test_fused_clones_are_clones(device):
    z = torch.randn(3, dtype=torch.complex64, device=device)
    tensors = [torch.randn(4, 5, device=device).t(), torch.arange(3, device=device), z.conj(), z]
    tensors += [torch.randn(5, device=device).expand(2, 5), torch.ones(0, device=device)]
    for old, new in zip(tensors, storages.fused_clones(tensors), strict=True):
        plain = old.clone()
        assert torch.equal(new, plain)
        assert (new.stride(), new._version) == (plain.stride(), 0)
        assert tether.relate(new, old).memory == "none"


def test_fused_clones_of_conjugate_views_alone():
    z = torch.tensor([1 + 2j])
    (copied,) = storages.fused_clones([z.conj()])
    assert copied.tolist() == [1 - 2j]


@cuda
@needs_cuda
def test_a_tree_on_a_device_is_copied_there():
    tree = [torch.randn(64, device="cuda", requires_grad=True) for _ in range(50)]
    for old, new in zip(tree, tether.copy(tree), strict=True):
        assert torch.equal(old, new)
        assert new.requires_grad
        assert new.is_leaf


def test_transfers_are_for_devices_only():
    assert not transfer.worthwhile([torch.ones(1)], Intent())
    assert not transfer.worthwhile([torch.ones(1)], Intent(device="cpu"))
    assert not transfer.worthwhile([torch.ones(1)], Intent(device="meta"))


@cuda
@needs_cuda
@pytest.mark.parametrize("there", ["cuda", "cpu"])
def test_a_tree_crosses_with_its_ties(there):
    here = "cpu" if there == "cuda" else "cuda"
    w = torch.arange(1000.0, device=here)
    tree = {"w": w, "v": w[10:20], "large": torch.randn(40 << 20, device=here)}
    tree |= {f"k{i}": torch.randn(64, device=here) for i in range(100)}
    copied = tether.copy(tree, device=there)
    for name, x in tree.items():
        assert copied[name].device.type == there
        assert torch.equal(copied[name].cpu(), x.cpu())
    assert tether.relate(copied["w"], copied["v"]).bytes == 40


@cuda
@needs_cuda
def test_a_host_copy_is_complete_when_it_is_returned():
    x = torch.zeros(64 << 20, device="cuda")
    for number in range(5):
        x.fill_(number)
        host = tether.copy({"x": x}, device="cpu")["x"]
        assert bool((host == number).all())


@cuda
@needs_cuda
def test_a_pending_copy_waits():
    x = torch.full((32 << 20,), 3.0, device="cuda")
    pending = tether.copy(x, device="cpu", pinned=True, non_blocking=True)
    assert bool((pending.wait() == 3).all())
    assert pending.done()


@cuda
@needs_cuda
def test_gradients_flow_back_across_devices():
    x = torch.ones(3, device="cuda", requires_grad=True)
    tether.copy(x, device="cpu", grad="keep").sum().backward()
    assert x.grad.tolist() == [1, 1, 1]
    assert tether.copy(x, to="numpy").tolist() == [1, 1, 1]
    assert tether.copy({"x": x}, to="numpy")["x"].tolist() == [1, 1, 1]


@cuda
@needs_cuda
def test_staging_memory_is_pinned():
    assert transfer.pinned_buffer(1 << 20).is_pinned()
