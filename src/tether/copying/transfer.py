"""Moves many tensors between host and a CUDA device: few transfers, pinned staging, safe waits.

A transfer of its own for each small tensor costs some ten microseconds, most of it waiting. So
small tensors are packed, those of one dtype one after another: a few launches lay them into one
piece, one transfer moves it, a few launches lay them out. Large tensors come to the host in chunks
through two pinned buffers: while one chunk is under way, the host empties the one before.
"""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from tether.copying import pool
from tether.copying.intent import Intent

PACKED = 256 << 10
"""Tensors of at most so many bytes are packed with others; larger ones fill the bus alone."""

ALIGNMENT = 64
"""Bytes to which the pieces within a staging buffer are aligned: enough for every vector load."""

STAGING = 16 << 20
"""Bytes of one staging buffer, and of what is packed at once: a third of a millisecond at 50 GB/s.

Long beside a launch's 10 us, and small enough that two of them stay in a server's last cache.
"""

_FOREACH_CLONE = getattr(torch, "_foreach_clone", None)  # torch >= 2.13


def worthwhile(tensors: Sequence[torch.Tensor], intent: Intent) -> bool:
    """Whether `moved` applies: all on one device, to another one, and CUDA takes part."""
    sources = {x.device for x in tensors}
    if not intent.device or len(sources) != 1 or intent.pinned:
        return False
    return _crosses(sources.pop(), torch.device(intent.device))


def _crosses(source: torch.device, target: torch.device) -> bool:
    return source != target and {source.type, target.type} in ({"cuda"}, {"cuda", "cpu"})


class Packing:
    """Tensors of one device, each with an element at least, to be laid end to end by dtype."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tensors
        self._by_dtype: dict[torch.dtype, list[int]] = collections.defaultdict(list)
        for index, x in enumerate(tensors):
            self._by_dtype[x.dtype].append(index)

    def flats(self) -> list[torch.Tensor]:
        """Return all elements, one tensor of one dimension for each dtype."""
        return [
            _flatten_dense_tensors(  # type: ignore[no-untyped-call]
                [self.tensors[index] for index in indices]
            )
            for indices in self._by_dtype.values()
        ]

    def views(self, flats: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return each tensor's place in what `flats` gave, wherever that lies now, contiguous."""
        found: list[torch.Tensor] = list(self.tensors)
        for flat, indices in zip(flats, self._by_dtype.values(), strict=True):
            parts = _unflatten_dense_tensors(  # type: ignore[no-untyped-call]
                flat, [self.tensors[index] for index in indices]
            )
            for index, part in zip(indices, parts, strict=True):
                found[index] = part
        return found


def fused_clones(
    tensors: Sequence[torch.Tensor], like: Sequence[torch.Tensor] | None = None
) -> list[torch.Tensor]:
    """Clone tensors of one device in as few launches as it takes.

    Each lies as its fellow in `like` lies (as itself, if that is left out), wherever that is.
    """
    like = tensors if like is None else like
    lazy = [x.is_conj() or x.is_neg() for x in tensors]
    made = [
        x.clone() if bits else torch.empty_like(model, device=x.device)
        for x, model, bits in zip(tensors, like, lazy, strict=True)
    ]
    rest = [index for index, bits in enumerate(lazy) if not bits]
    fused_copies([made[i] for i in rest], [tensors[i] for i in rest])
    return [x.data for x in made]  # the copy moved their version counters


def fused_copies(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copy each source into its target, in one call for all that are copied alike.

    PyTorch's fused kernels take a list only when all in it are of one dtype on one device and lie
    as their targets do; one tensor that does not would send the whole list through single copies.
    """
    alike: dict[Any, tuple[list[torch.Tensor], list[torch.Tensor]]]
    alike = collections.defaultdict(lambda: ([], []))
    for y, x in zip(targets, sources, strict=True):
        key = (x.device, y.device, x.dtype, y.dtype, x.stride() == y.stride()) if x.is_cuda else 0
        ys, xs = alike[key]
        ys.append(y)
        xs.append(x)
    for ys, xs in alike.values():
        torch._foreach_copy_(ys, xs)


def pinned_buffer(nbytes: int) -> torch.Tensor:
    """Return a pinned uint8 host tensor from the pool. The pages stay pinned while it lives.

    Raises `RuntimeError` when the driver refuses; the caller then stages in pageable memory.
    """
    buffer = torch.frombuffer(pool.lease(nbytes).view, dtype=torch.uint8)
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = buffer.data_ptr()
    code = runtime.cudaHostRegister(address, nbytes, 0)
    if int(code) != 0:
        raise RuntimeError(f"cudaHostRegister: {code}")
    # The finaliser runs before the storage, and with it the lease, is gone.
    weakref.finalize(buffer.untyped_storage(), runtime.cudaHostUnregister, address)
    return buffer


def staging(nbytes: int) -> torch.Tensor:
    """Return a host buffer for a transfer, pinned where that is possible."""
    try:
        return (
            pinned_buffer(nbytes)
            if pool.enabled
            else torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        )
    except (OSError, RuntimeError):
        return torch.empty(nbytes, dtype=torch.uint8)


_kept_buffers = threading.local()


def _buffers(nbytes: int) -> list[torch.Tensor]:
    """Return this thread's two staging buffers: pinning costs more than a transfer.

    Whoever uses them waits for the device before it returns, so that the next one finds them free.
    """
    known = getattr(_kept_buffers, "pair", None)
    if known is None or known[0].numel() < nbytes:
        _kept_buffers.pair = None  # free the old pair first
        known = _kept_buffers.pair = [staging(max(nbytes, pool.HUGE_PAGE)) for _ in range(2)]
    return list(known)


def moved(tensors: Sequence[torch.Tensor], plans: Sequence[Intent]) -> list[torch.Tensor]:
    """Move tensors as their plans say; the results are complete when this returns on the host.

    On a device they are complete for every kernel that the current stream runs afterwards.
    """
    target = torch.device(plans[0].device)
    made: dict[int, torch.Tensor] = {}
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():  # bytes are moved, no subclass
        bare = [x.detach() for x in tensors]
        whole = [
            i for i, plan in enumerate(plans) if not plan.dtype and plan.memory_format == "preserve"
        ]
        _move_small(bare, whole, target, made)
        if target.type == "cpu":
            _move_large(bare, [i for i in whole if i not in made], made)
        for index, (x, plan) in enumerate(zip(bare, plans, strict=True)):
            if index not in made:
                made[index] = _moved_alone(x, target, plan)
    return [made[index] for index in range(len(tensors))]


def _move_small(
    bare: list[torch.Tensor], at: list[int], target: torch.device, made: dict[int, torch.Tensor]
) -> None:
    """Move small tensors in batches, each as one transfer."""
    for batch in _batches(bare, [i for i in at if _is_packable(bare[i])]):
        models = [bare[i] for i in batch]
        made.update(zip(batch, _laid_out(_arrived(models, target), models), strict=True))


def _move_large(bare: list[torch.Tensor], at: list[int], made: dict[int, torch.Tensor]) -> None:
    """Move large tensors to the host through page-locked memory."""
    large = [i for i in at if _is_staged(bare[i])]
    total = sum(bare[i].nbytes for i in large)
    places = [_host_memory(bare[i], total) for i in large]
    _staged([bare[i] for i in large], places)
    # `.data` is the same tensor with a version counter that has not moved.
    made.update(zip(large, (place.data for place in places), strict=True))


def _moved_alone(x: torch.Tensor, target: torch.device, plan: Intent) -> torch.Tensor:
    from tether.copying import steps

    dtype = getattr(torch, plan.dtype) if plan.dtype else x.dtype
    order = steps.FORMATS[plan.memory_format]
    return x.to(target, dtype, copy=True, memory_format=order)


def into(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Write each source into its target of the same shape and dtype, whatever their devices.

    All that the host reads afterwards is complete when this returns.
    """
    ways: dict[Any, list[int]] = collections.defaultdict(list)
    for index, (y, x) in enumerate(zip(targets, sources, strict=True)):
        strided = x.layout is torch.strided and y.layout is torch.strided
        ways[(x.device, y.device) if strided else None].append(index)
    for way, indices in ways.items():
        if way is None or not _crosses(*way):
            fused_copies([targets[i] for i in indices], [sources[i] for i in indices])
            continue
        ys, xs = [targets[i].detach() for i in indices], [sources[i].detach() for i in indices]
        _into_other_device(ys, xs, way[1])


def _into_other_device(
    targets: list[torch.Tensor], sources: list[torch.Tensor], device: torch.device
) -> None:
    """Write sources, all of one device, into targets, all on another."""
    small = [i for i, x in enumerate(sources) if _is_packable(x)]
    rest = set(range(len(sources))).difference(small)
    for batch in _batches(sources, small):
        arrived = _arrived([sources[i] for i in batch], device)
        fused_copies([targets[i] for i in batch], arrived)
    large = [
        i
        for i in sorted(rest)
        if device.type == "cpu" and _is_staged(sources[i]) and targets[i].is_contiguous()
    ]
    _staged([sources[i] for i in large], [targets[i] for i in large])
    for index in rest.difference(large):
        targets[index].copy_(sources[index])


def _is_packable(x: torch.Tensor) -> bool:
    return 0 < x.nbytes <= PACKED and not x.is_conj() and not x.is_neg()


def _is_staged(x: torch.Tensor) -> bool:
    """Whether the bytes of `x` can be brought to the host as they lie, and there are any."""
    return x.nbytes > 0 and x.is_contiguous() and not x.is_conj() and not x.is_neg()


def _batches(tensors: Sequence[torch.Tensor], indices: list[int]) -> Iterator[list[int]]:
    """Yield `indices` in runs whose tensors fit one staging buffer together."""
    run: list[int] = []
    held = 0
    for index in indices:
        nbytes = tensors[index].nbytes
        if run and held + nbytes > STAGING:
            yield run
            run, held = [], 0
        run.append(index)
        held += nbytes
    if run:
        yield run


def _arrived(tensors: Sequence[torch.Tensor], target: torch.device) -> list[torch.Tensor]:
    """Return the tensors packed and moved, contiguous; on the host until the next transfer only."""
    packing = Packing(tensors)
    return packing.views(_crossed(packing.flats(), target))


def _crossed(flats: list[torch.Tensor], target: torch.device) -> list[torch.Tensor]:
    """Return `flats`, contiguous tensors of one device, on the device `target`."""
    source = flats[0].device
    if source.type == target.type:
        return [flat.to(target) for flat in flats]  # PyTorch makes both streams wait
    hosts = _regions(flats)
    if source.type == "cpu":
        arrived = []
        for flat, host in zip(flats, hosts, strict=True):
            host.copy_(flat)
            arrived.append(host.to(target, non_blocking=True))
        torch.cuda.current_stream(target).synchronize()  # the buffers are used again
        return arrived
    for flat, host in zip(flats, hosts, strict=True):
        host.copy_(flat, non_blocking=True)
    torch.cuda.current_stream(source).synchronize()
    return hosts


def _regions(flats: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return a place for each of `flats` in a staging buffer of this thread."""
    starts = []
    end = 0
    for flat in flats:
        starts.append(end)
        end += -(-flat.nbytes // ALIGNMENT) * ALIGNMENT
    buffer = _buffers(end)[0]
    return [
        buffer[start : start + flat.nbytes].view(flat.dtype)
        for flat, start in zip(flats, starts, strict=True)
    ]


def _laid_out(arrived: list[torch.Tensor], models: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return what has arrived on memory of its own, each tensor's strides as its model has them."""
    if _FOREACH_CLONE is None or arrived[0].is_cuda or not all(x.is_contiguous() for x in models):
        return fused_clones(arrived, models)
    return list(_FOREACH_CLONE(arrived))


def _host_memory(x: torch.Tensor, total: int) -> torch.Tensor:
    """Return an uninitialised contiguous host tensor for `x`, one of tensors of `total` bytes."""
    from tether.copying import steps

    smallest = pool.SMALLEST if total >= pool.THRESHOLD else pool.THRESHOLD
    if x.nbytes < smallest or not pool.enabled:
        return torch.empty(x.shape, dtype=x.dtype, device="cpu")
    like = torch.empty(x.shape, dtype=x.dtype, device="meta")
    try:
        return steps.pooled_like(like, torch.contiguous_format)[0]
    except OSError:  # no memory to map: let PyTorch try, and say so in its own words
        pool.trim()
        return torch.empty(x.shape, dtype=x.dtype, device="cpu")


def _staged(sources: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
    """Copy contiguous tensors of one CUDA device into contiguous host tensors, in chunks.

    A side stream brings the chunks into two pinned buffers in turn, and the host empties one while
    the other is filled, also from the end of one tensor to the beginning of the next.
    """
    if not sources:
        return
    device = sources[0].device
    chunks = list(_chunks(sources, targets))
    buffers = _buffers(max(part.numel() for part, _ in chunks))
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    events: list[Any] = [torch.cuda.Event() for _ in buffers]  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        for number in range(len(chunks) + 1):
            if number < len(chunks):  # its buffer was emptied in the round before
                part = chunks[number][0]
                with torch.cuda.stream(stream):
                    buffers[number % 2][: part.numel()].copy_(part, non_blocking=True)
                events[number % 2].record(stream)
            if number:
                place = chunks[number - 1][1]
                events[(number - 1) % 2].synchronize()
                place.copy_(buffers[(number - 1) % 2][: place.numel()])
    finally:
        # Interrupted, it must not leave a transfer under way: neither from memory that the source
        # may give back nor into a buffer that is used again.
        stream.synchronize()


def _chunks(
    sources: list[torch.Tensor], targets: list[torch.Tensor]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the bytes of each pair of contiguous tensors in pieces of at most `STAGING`."""
    for x, y in zip(sources, targets, strict=True):
        here, there = x.reshape(-1).view(torch.uint8), y.reshape(-1).view(torch.uint8)
        for first in range(0, here.numel(), STAGING):
            yield here[first : first + STAGING], there[first : first + STAGING]
