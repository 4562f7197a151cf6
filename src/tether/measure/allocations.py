"""What one call of an expression allocates, how its result is tied to `x`, where it waits.

PyTorch's allocators report every allocation to the profiler, NumPy reports its own to
`tracemalloc`, and the pool knows what it lent. Nothing else is asked: process memory moves by whole
pages and cannot see a small tensor.
"""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tether.copying import numpy_bridge, pool
from tether.copying.relation import relate

NUMPY_DOMAIN = 389047
"""The `tracemalloc` domain of array data: `numpy.lib.tracemalloc_domain`."""


class Account(NamedTuple):
    """What one call does to memory."""

    allocated: int | None  # bytes newly allocated
    peak: int | None  # bytes held at most at once, beside its arguments
    waits: int | None  # for the device
    memory: str  # tie of the result
    gradient: str
    note: str = ""


def account(call: Callable[[], Any], x: torch.Tensor) -> Account:
    """Call `call` a few times and return what it does. Raises what the call raises."""
    result = call()
    memory, gradient, note = _ties(result, x)
    del result
    allocated, peak, reason = _allocations(call)
    waits = _waits(call) if x.device.type == "cuda" else 0
    return Account(allocated, peak, waits, memory, gradient, note or reason)


def _ties(result: Any, x: torch.Tensor) -> tuple[str, str, str]:
    if not isinstance(result, torch.Tensor) and not numpy_bridge.is_plain_array(result):
        return "", "", f"the result is no tensor but {type(result).__name__}"
    relation = relate(result, x)
    return relation.memory, relation.gradient, relation.note


def recorded(call: Callable[[], Any]) -> tuple[Any, list[int]] | None:
    """Return a call's result and the bytes of each block it took (or gave back: below 0) in turn.

    By the record of autograd's old profiler, which prints nothing: the new one writes two lines to
    the terminal for each use (torch 2.13). None where this PyTorch has it no more.
    """
    enable = getattr(torch.autograd, "_enable_profiler_legacy", None)
    disable = getattr(torch.autograd, "_disable_profiler_legacy", None)
    if enable is None or disable is None:
        return None
    enable(_profiler_config())
    try:
        result = call()
    finally:
        threads = disable()
    return result, [
        event.cpu_memory_usage() + event.cuda_memory_usage()
        for thread in threads
        for event in thread
        if event.kind() == "memory_alloc"
    ]


def _allocations(call: Callable[[], Any]) -> tuple[int | None, int | None, str]:
    """Return bytes newly allocated by one call, bytes held at its peak, and why not if not."""
    before = pool.stats()
    seen = recorded(call)
    if seen is None:
        return None, None, "this PyTorch has no silent allocation record"
    result, steps = seen
    after = pool.stats()
    lent = after.leased_bytes - before.leased_bytes
    mapped = lent if after.misses > before.misses else 0
    del result, seen
    arrays = _array_bytes(call)
    held = peak = 0
    for step in steps:
        held += step
        peak = max(peak, held)
    return sum(step for step in steps if step > 0) + arrays + mapped, peak + arrays + lent, ""


def _profiler_config() -> Any:
    """Return the profiler's setting that records allocations and nothing that costs or prints."""
    autograd: Any = torch.autograd
    experimental: Any = torch._C._profiler._ExperimentalConfig()
    state = autograd.ProfilerState.CPU
    # shapes, memory, stacks, flops, modules
    return autograd.ProfilerConfig(state, False, True, False, False, False, experimental)


def _array_bytes(call: Callable[[], Any]) -> int:
    """Return the bytes of NumPy's own memory that one call leaves in its result."""
    ours = not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start()
    try:
        before = _traced()
        result = call()
        grown = _traced() - before
        del result
    finally:
        if ours:
            tracemalloc.stop()
    return grown


def _traced() -> int:
    only = tracemalloc.DomainFilter(inclusive=True, domain=NUMPY_DOMAIN)
    snapshot = tracemalloc.take_snapshot().filter_traces([only])
    return sum(trace.size for trace in snapshot.traces)


def _waits(call: Callable[[], Any]) -> int:
    """Return how often one call makes the program wait for the device."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return sum("synchroniz" in str(warning.message) for warning in caught)
