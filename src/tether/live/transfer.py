"""Moves many tensors between host and a CUDA device: few transfers, pinned staging, safe waits.

A transfer of its own for each small tensor costs some ten microseconds, most of it waiting. So
small tensors are packed: one fused launch lays them into one buffer, one transfer moves it, one
fused launch lays them out. On the host the buffer is pinned memory from the pool.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from tether.intent import Intent
from tether.live import pool

PACKED = 256 << 10
"""Tensors of at most so many bytes are packed with others; larger ones fill the bus alone."""

ALIGNMENT = 64
"""Bytes to which tensors are aligned within a packed buffer: enough for every vector load."""

STAGING = 64 << 20
"""Bytes of one staging buffer at most: two of them keep the bus busy."""


def worthwhile(tensors: Sequence[torch.Tensor], intent: Intent) -> bool:
    """Whether `moved` applies: all on one device, to another one, and CUDA takes part."""
    sources = {x.device for x in tensors}
    if not intent.device or len(sources) != 1:
        return False
    source, target = sources.pop(), torch.device(intent.device)
    return source != target and "cuda" in {source.type, target.type} and not intent.pinned


class Packing:
    """Where tensors lie in one packed buffer."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = list(tensors)
        self.offsets: list[int] = []
        end = 0
        for x in tensors:
            self.offsets.append(end)
            end += -(-x.nbytes // ALIGNMENT) * ALIGNMENT
        self.nbytes = end

    def views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """Return each tensor's place in `buffer` (uint8, at least `nbytes` long), contiguous."""
        return [
            buffer[offset : offset + x.nbytes].view(x.dtype).view(x.shape)
            for x, offset in zip(self.tensors, self.offsets, strict=True)
        ]

    def pack(self, buffer: torch.Tensor) -> None:
        """Lay all tensors into `buffer`, which is on their device."""
        torch._foreach_copy_(self.views(buffer), self.tensors)

    def unpack(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """Return new tensors, each on memory of its own, with what lies in `buffer`."""
        made = [torch.empty_like(x, device=buffer.device) for x in self.tensors]
        torch._foreach_copy_(made, self.views(buffer))
        return made


_registered: dict[int, weakref.finalize[Any, Any]] = {}
_register_lock = threading.Lock()


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
    if nbytes < 1:
        return torch.empty(0, dtype=torch.uint8)
    try:
        return (
            pinned_buffer(nbytes)
            if pool.enabled
            else torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        )
    except RuntimeError:
        return torch.empty(nbytes, dtype=torch.uint8)


def moved(tensors: Sequence[torch.Tensor], plans: Sequence[Intent]) -> list[torch.Tensor]:
    """Move tensors as their plans say; the results are complete when this returns on the host.

    On a device they are complete for every kernel that the current stream runs afterwards.
    """
    target = torch.device(plans[0].device)
    made: list[torch.Tensor | None] = [None] * len(tensors)
    small: list[int] = []
    with torch.no_grad():
        for index, (x, plan) in enumerate(zip(tensors, plans, strict=True)):
            packs = not plan.dtype and plan.memory_format == "preserve"
            if packs and x.nbytes <= PACKED and not x.is_conj() and not x.is_neg():
                small.append(index)
        if len(small) > 1:
            packed = _moved_packed([tensors[index].detach() for index in small], target)
            for index, new in zip(small, packed, strict=True):
                made[index] = new
        rest = [index for index, new in enumerate(made) if new is None]
        for index, new in zip(
            rest, _moved_singly([tensors[i] for i in rest], [plans[i] for i in rest]), strict=True
        ):
            made[index] = new
    return [x for x in made if x is not None]


def _moved_packed(tensors: list[torch.Tensor], target: torch.device) -> list[torch.Tensor]:
    packing = Packing(tensors)
    source = tensors[0].device
    if source.type == "cpu":
        host = staging(packing.nbytes)
        packing.pack(host)
        arrived = host.to(target, non_blocking=True)
        result = packing.unpack(arrived)
        torch.cuda.current_stream(target).synchronize()  # `host` may go back to the pool
        return result
    device = torch.empty(packing.nbytes, dtype=torch.uint8, device=source)
    packing.pack(device)
    if target.type == "cpu":
        host = staging(packing.nbytes)
        host.copy_(device, non_blocking=True)
        torch.cuda.current_stream(source).synchronize()
        return packing.unpack(host)
    return packing.unpack(device.to(target))


def _moved_singly(tensors: list[torch.Tensor], plans: list[Intent]) -> list[torch.Tensor]:
    """Move large tensors one by one, through two pinned buffers in turn when going to the host."""
    made = []
    for x, plan in zip(tensors, plans, strict=True):
        to_host = torch.device(plan.device).type == "cpu" and x.device.type == "cuda"
        plain = not plan.dtype and plan.memory_format == "preserve" and x.is_contiguous()
        if to_host and plain and not x.is_conj() and not x.is_neg() and pool.enabled:
            made.append(_to_host(x.detach()))
            continue
        dtype = getattr(torch, plan.dtype) if plan.dtype else x.dtype
        made.append(x.detach().to(torch.device(plan.device), dtype, copy=True))
    return made


def _to_host(x: torch.Tensor) -> torch.Tensor:
    """Return a host copy of a contiguous CUDA tensor, the transfer overlapped with the unloading.

    A side stream brings chunks into two pinned buffers in turn while the host empties the other.
    """
    from tether.live import applying

    if x.nbytes < pool.THRESHOLD:
        result = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    else:
        like = torch.empty(x.shape, dtype=x.dtype, device="meta")
        result, _ = applying.pooled_like(like, torch.contiguous_format)
    if x.nbytes == 0:
        return result
    source = x.reshape(-1).view(torch.uint8)
    target = result.reshape(-1).view(torch.uint8)
    stream: Any = torch.cuda.Stream(x.device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(x.device))
    chunk = min(STAGING, x.nbytes)
    buffers = _buffers(chunk)
    events: list[Any] = [torch.cuda.Event() for _ in buffers]  # type: ignore[no-untyped-call]
    starts = list(range(0, x.nbytes, chunk))
    for number in range(len(starts) + 1):
        if number < len(starts):
            part = source[starts[number] : starts[number] + chunk]
            with torch.cuda.stream(stream):
                buffers[number % 2][: part.numel()].copy_(part, non_blocking=True)
                events[number % 2].record(stream)
        if number:
            events[(number - 1) % 2].synchronize()
            place = target[starts[number - 1] : starts[number - 1] + chunk]
            ctypes.memmove(place.data_ptr(), buffers[(number - 1) % 2].data_ptr(), place.numel())
    x.record_stream(stream)
    return result.data


_kept_buffers = threading.local()


def _buffers(nbytes: int) -> list[torch.Tensor]:
    """Return this thread's two staging buffers: pinning costs more than a transfer."""
    known = getattr(_kept_buffers, "pair", None)
    if known is None or known[0].numel() < nbytes:
        known = _kept_buffers.pair = [staging(nbytes), staging(nbytes)]
    return list(known)
