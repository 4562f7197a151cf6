"""What the machine itself can do: the memory's own speed, and what fresh memory costs.

`tether.copy` decides by such figures. Its pool lends mapped memory on huge pages because copies
into fresh memory are the slow ones (`pool.THRESHOLD`), and its thread count is measured as it goes
(`threads`), since which number is right changes with what else runs.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable
from typing import Any

import torch

from tether.copying import pool, threads
from tether.measure.cost import Limit
from tether.measure.timing import Statement, interleaved

SIZE = 1 << 28
"""Bytes copied: several times any last-level cache, so that memory is what is measured."""


def memory_ways(x: torch.Tensor) -> dict[str, Statement]:
    """Return the ways to copy `x` into memory of its kind that is already there."""
    held = _held(x).copy_(x.detach())
    names = {"x": x.detach(), "held": held.detach(), "alone": threads.single_threaded}
    cuda = x.device.type == "cuda"
    if cuda:
        return {"device memory": Statement("held.copy_(x)", names, cuda=True)}
    return {
        "mapped memory, PyTorch's threads": Statement("held.copy_(x)", names),
        "mapped memory, one thread": Statement("alone(lambda: held.copy_(x))", names),
    }


def _held(x: torch.Tensor) -> torch.Tensor:
    """Return memory for a copy of `x`: on huge pages where one fits and the kernel grants them.

    Without them the limit would be that of the page tables, and a pooled copy could exceed it.
    """
    if x.device.type == "cpu" and x.is_contiguous() and x.nbytes >= pool.HUGE_PAGE:
        with contextlib.suppress(NotImplementedError):
            return fresh(x.nbytes, huge=True).view(x.dtype).view(x.shape)
    return torch.empty_like(x.detach())


def fresh(nbytes: int, *, huge: bool) -> torch.Tensor:
    """Return bytes that no page lies under yet, on huge pages if asked and if the kernel grants."""
    mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    advice = getattr(mmap, "MADV_HUGEPAGE" if huge else "MADV_NOHUGEPAGE", None)
    if advice is not None:
        try:
            mapping.madvise(advice)
        except OSError as error:
            if huge:
                raise NotImplementedError("this kernel has no huge pages") from error
    elif huge:
        raise NotImplementedError("this system has no huge pages to ask for")
    return torch.frombuffer(mapping, dtype=torch.uint8)


def _host_ways(nbytes: int) -> dict[str, Statement]:
    x = torch.ones(nbytes, dtype=torch.uint8)
    ways = memory_ways(x)
    names: dict[str, Any] = {"x": x, "fresh": fresh, "n": nbytes}
    ways["fresh memory, small pages"] = Statement("fresh(n, huge=False).copy_(x)", names)
    try:
        fresh(1 << 21, huge=True)
    except NotImplementedError:
        return ways
    ways["fresh memory, huge pages"] = Statement("fresh(n, huge=True).copy_(x)", names)
    return ways


def _cuda_ways(nbytes: int) -> dict[str, Statement]:
    x = torch.ones(nbytes, dtype=torch.uint8, device="cuda")
    names: dict[str, Any] = {
        "x": x,
        "held": torch.empty_like(x),
        "pinned": torch.ones(nbytes, dtype=torch.uint8, pin_memory=True),
        "pageable": torch.ones(nbytes, dtype=torch.uint8),
    }
    expressions = {
        "device to device": "held.copy_(x)",
        "device to pinned": "pinned.copy_(x, non_blocking=True)",
        "pinned to device": "held.copy_(pinned, non_blocking=True)",
        "device to pageable": "pageable.copy_(x)",
        "pageable to device": "held.copy_(pageable)",
    }
    return {name: Statement(code, names, cuda=True) for name, code in expressions.items()}


def measure(
    nbytes: int = SIZE,
    seconds: float = 10.0,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[Limit, ...]:
    """Return what was measured, for the host and for CUDA when there is a device."""
    groups = [_host_ways]
    if torch.cuda.is_available():
        groups.append(_cuda_ways)
    found: list[Limit] = []
    for number, group in enumerate(groups):

        def within(part: float, number: int = number) -> None:
            progress((number + part) / len(groups))

        samples = interleaved(group(nbytes), seconds / len(groups), progress=within)
        for name, sample in samples.items():
            low, high = sample.quartiles
            found.append(Limit(name, nbytes, sample.median, low, high, sample.faults))
    return tuple(found)
