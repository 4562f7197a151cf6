"""`tether.copy` between host and device."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch

import tether
from tether.copying import transfer
from tether.copying.intent import Intent

CUDA = torch.cuda.is_available()
cuda = pytest.mark.cuda
needs_cuda = pytest.mark.skipif(not CUDA, reason="no CUDA device")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[cuda, needs_cuda])])
def test_packing_brings_every_tensor_back(device):
    tensors = [
        torch.randn(5, device=device),
        torch.arange(7, dtype=torch.uint8, device=device),
        torch.randn(3, 4, dtype=torch.float64, device=device).t(),
        torch.tensor(True, device=device),
        torch.randn(2, 3, device=device),
        torch.randn(2, 2, dtype=torch.complex64, device=device)[:, ::2],
    ]
    packing = transfer.Packing(tensors)
    flats = packing.flats()
    assert len(flats) == len({x.dtype for x in tensors})
    views = packing.views(flats)
    for old, view, new in zip(tensors, views, transfer._laid_out(views, tensors), strict=True):
        assert torch.equal(old, new)
        assert old.dtype is new.dtype
        assert new.stride() == torch.empty_like(old).stride()
        assert tether.relate(new, view).memory == "none"
        assert (new.untyped_storage().nbytes(), new._version) == (new.nbytes, 0)


class Immediate:
    """A stream or an event of a device that does at once what it is told."""

    def __init__(self, *_: object) -> None: ...

    def __getattr__(self, name: str):
        return lambda *_: self


@pytest.fixture
def immediate(monkeypatch):
    """Let a transfer within the host go the way of one from a device, in chunks of 4096 bytes."""
    for name in ("Stream", "Event", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Immediate)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(transfer, "_buffers", lambda nbytes: [
        torch.empty(nbytes, dtype=torch.uint8) for _ in range(2)])  # fmt: skip
    monkeypatch.setattr(transfer, "_crosses", lambda *_: True)
    monkeypatch.setattr(transfer, "STAGING", 4096)
    monkeypatch.setattr(transfer, "PACKED", 1024)


class Tagged(torch.Tensor):
    """A subclass as users write them."""


def mixed_tensors() -> list[torch.Tensor]:
    """Tensors of every way to be moved: packed, in chunks, singly."""
    tensors = [torch.randn(n) for n in (5, 0, 3000, 40, 2000, 1)]
    tensors += [
        torch.randn(40, 50).t(),
        torch.randn(3, 4).t(),
        torch.arange(900).as_subclass(Tagged),
    ]
    tensors += [
        torch.randn(900, dtype=torch.complex64).conj(),
        torch.randn(2, 3, requires_grad=True),
    ]
    return tensors + [torch.arange(7, dtype=torch.uint8), torch.randn(9, dtype=torch.bfloat16)] * 20


def test_every_tensor_arrives_in_its_place(immediate):
    tensors = mixed_tensors()
    found = transfer.moved(tensors, [Intent(device="cpu")] * len(tensors))
    for old, new in zip(tensors, found, strict=True):
        assert torch.equal(old, new)
        assert (new.dtype, new.stride()) == (old.dtype, torch.empty_like(old).stride())
        assert tether.relate(new, old).memory == "none"
        assert (new.untyped_storage().nbytes(), new._version) == (new.nbytes, 0)
        assert not new.requires_grad
    image = torch.randn(2, 3, 4, 5)
    plans = [
        Intent(device="cpu", memory_format="channels_last"),
        Intent(device="cpu", dtype="int32"),
    ]
    laid, converted = transfer.moved([image, torch.tensor([1.7])], plans)
    assert torch.equal(laid, image)
    assert laid.is_contiguous(memory_format=torch.channels_last)
    assert converted.tolist() == [1]


def test_every_tensor_is_written_into_its_place(immediate):
    sources = mixed_tensors()
    targets = [torch.zeros_like(x, requires_grad=x.requires_grad) for x in sources]
    versions = [y._version for y in targets]
    with torch.no_grad():
        transfer.into(targets, sources)
    for x, y, version in zip(sources, targets, versions, strict=True):
        assert torch.equal(x, y)
        assert y._version > version or not y.numel()  # autograd sees the write


def test_a_storage_may_be_watched_as_long_as_a_tensor_lies_on_it():
    buffer = torch.frombuffer(bytearray(64), dtype=torch.uint8)
    ended = []
    weakref.finalize(buffer.untyped_storage(), ended.append, True)
    view = buffer[3:]
    del buffer
    gc.collect()
    assert ended == []
    del view
    assert ended == [True]


def test_what_is_packed_at_once_fits_the_staging_buffer():
    tensors = [torch.empty(200 << 10, dtype=torch.uint8) for _ in range(200)]
    batches = list(transfer._batches(tensors, list(range(200))))
    assert [i for batch in batches for i in batch] == list(range(200))
    sizes = [sum(tensors[i].nbytes for i in batch) for batch in batches]
    assert max(sizes) <= transfer.STAGING < sizes[0] + (200 << 10)


def test_the_chunks_are_all_bytes_in_order(monkeypatch):
    monkeypatch.setattr(transfer, "STAGING", 16)
    sources = [torch.randn(11), torch.arange(3), torch.randn(4, dtype=torch.complex64)]
    targets = [torch.empty_like(x) for x in sources]
    for here, there in transfer._chunks(sources, targets):
        assert here.numel() <= 16
        there.copy_(here)
    assert all(torch.equal(x, y) for x, y in zip(sources, targets, strict=True))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[cuda, needs_cuda])])
def test_fused_clones_are_clones(device):
    z = torch.randn(3, dtype=torch.complex64, device=device)
    tensors = [torch.randn(4, 5, device=device).t(), torch.arange(3, device=device), z.conj(), z]
    tensors += [torch.randn(5, device=device).expand(2, 5), torch.ones(0, device=device)]
    for old, new in zip(tensors, transfer.fused_clones(tensors), strict=True):
        plain = old.clone()
        assert torch.equal(new, plain)
        assert (new.stride(), new._version) == (plain.stride(), 0)
        assert tether.relate(new, old).memory == "none"


def test_fused_clones_of_conjugate_views_alone():
    z = torch.tensor([1 + 2j])
    (copied,) = transfer.fused_clones([z.conj()])
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
def test_ties_are_kept_on_the_way_to_numpy():
    w = torch.arange(4.0, device="cuda")
    arrays = tether.copy({"w": w, "v": w[1:]}, to="numpy")
    arrays["v"][:] = 9
    assert arrays["w"].tolist() == [0, 9, 9, 9]


@cuda
@needs_cuda
def test_a_snapshot_on_the_host_is_refreshed_from_the_device():
    tree = {f"k{i}": torch.randn(64, device="cuda") for i in range(100)}
    tree |= {"large": torch.randn(40 << 20, device="cuda"), "n": torch.arange(5, device="cuda")}
    snapshot = tether.Snapshot(tree, device="cpu")
    for x in tree.values():
        x.add_(1)
    snapshot.update()
    assert all(torch.equal(snapshot.value[name], x.cpu()) for name, x in tree.items())
    before = {name: x.clone() for name, x in tree.items()}
    for x in tree.values():
        x.zero_()
    snapshot.restore()
    assert all(torch.equal(before[name], x) for name, x in tree.items())


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
