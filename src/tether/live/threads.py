"""How many threads a copy uses: one, or as many as PyTorch would.

A copy that both cores share takes half the time while both are idle. When another process keeps
one of them busy, PyTorch's copy waits for its slowest thread, often for milliseconds where a
single thread takes a tenth of one. No fixed threshold is right for both, so it is measured as it
goes: per size class, the time of the last copies either way; the better way is used, and the other
is tried again every `RETRY` seconds.

`torch.set_num_threads` is a setting of the whole program and visible to it. What is set here is
OpenMP's number for the *calling thread* only, and it is put back before the call returns.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import time
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

THRESHOLD = 1 << 20
"""Below so many bytes PyTorch's own choice stands: measuring would cost more than it saves."""

RETRY = 0.1
"""Seconds after which the way that lost is tried again."""

OUTLIER = 4.0
"""A copy that takes more than so many times the average counts as so many times: one page fault
or one lost time slice says little about the next copy."""


@functools.cache
def _openmp() -> ctypes.PyDLL | None:
    """Return the OpenMP library that this torch uses, or None where it has none we can set."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    names = glob.glob(os.path.join(folder, "lib*omp*.so*"))
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            mapped = {line.split()[-1] for line in maps if "omp" in line and ".so" in line}
    except OSError:
        return None
    for name in [n for n in names if n in mapped] or sorted(mapped):
        try:
            library = ctypes.PyDLL(name)  # PyDLL: the calls take nanoseconds, keep the GIL
            if library.omp_get_max_threads() == torch.get_num_threads():
                return library
        except (OSError, AttributeError):
            continue
    return None


class _Class:
    """What was measured of copies of one size class: nanoseconds per byte, and when."""

    __slots__ = ("alone", "alone_at", "shared", "shared_at")

    def __init__(self) -> None:
        self.alone = self.shared = 0.0  # 0: not yet measured
        self.alone_at = self.shared_at = 0.0


_classes = [_Class() for _ in range(64)]


def single_threaded(function: Callable[[], T]) -> T:
    """Call `function` with one OpenMP thread, whatever PyTorch's number is."""
    library = _openmp()
    if library is None:
        return function()
    before = library.omp_get_max_threads()
    library.omp_set_num_threads(1)
    try:
        return function()
    finally:
        library.omp_set_num_threads(before)


def paced(function: Callable[[], T], nbytes: int) -> T:
    """Call `function`, which copies `nbytes`, on as many threads as did best lately."""
    if nbytes < THRESHOLD:
        return function()
    known = _classes[nbytes.bit_length()]
    start = time.perf_counter()
    alone = _choose_alone(known, start)
    result = single_threaded(function) if alone else function()
    end = time.perf_counter()
    spent = (end - start) / nbytes * 1e9
    # Threads race here at worst for a measurement; every value they leave is a true one.
    if alone:
        known.alone, known.alone_at = _averaged(known.alone, spent), end
    else:
        known.shared, known.shared_at = _averaged(known.shared, spent), end
    return result


def _averaged(before: float, spent: float) -> float:
    """Return the average with one more copy in it: quick to believe good news, slow for bad."""
    if not before:
        return spent
    if spent < before:
        return (before + spent) / 2
    return 0.75 * before + 0.25 * min(spent, OUTLIER * before)


def _choose_alone(known: _Class, now: float) -> bool:
    if not known.shared:
        return False
    if not known.alone:
        return True
    if known.alone < known.shared:
        return now - known.shared_at < RETRY
    return now - known.alone_at >= RETRY
