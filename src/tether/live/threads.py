"""How many threads a copy uses: one, or as many as PyTorch would.

A copy that both cores share takes half the time while both are idle. When another process keeps
one of them busy, PyTorch's copy waits for its slowest thread, often for milliseconds where a
single thread takes a tenth of one. No fixed threshold is right for both, so it is measured as it
goes: per size class, the time of the last copies either way; the better way is used, and the other
is tried again now and then.

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
_clock = time.perf_counter

THRESHOLD = 4 << 20
"""Below so many bytes PyTorch's own choice stands.

By benchmarks/copying.py: measuring adds 1 to 3 us, a fifth of a copy of 1 MB and a twentieth of
one of 4 MB; stalls beside a busy core appeared from 8 MB on.
"""

RETRY = 64
"""Copies of one size class after which the way that lost is tried again, at most.

The first times it is tried sooner, after 1, 2, 4, ... copies: one early measurement may have been
spoilt by page faults.
"""

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
    """What was measured of copies of one size class, in seconds per byte; 0: nothing yet."""

    __slots__ = ("alone", "patience", "shared", "since")

    def __init__(self) -> None:
        self.alone = self.shared = 0.0
        self.since = 0  # copies since the way that lost was tried
        self.patience = 1  # copies after which it is tried again


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
    led = known.alone < known.shared
    alone = led
    known.since += 1
    if known.since > known.patience or not known.alone:
        alone = _try_the_other(known)
    start = _clock()
    result = single_threaded(function) if alone else function()
    spent = (_clock() - start) / nbytes
    # Threads race here at worst for a measurement; every value they leave is a true one.
    if alone:
        known.alone = _averaged(known.alone, spent)
    else:
        known.shared = _averaged(known.shared, spent)
    if led != (known.alone < known.shared):
        known.since, known.patience = 0, 1
    return result


def _try_the_other(known: _Class) -> bool:
    """Return whether to copy alone now, as the way that lost or was never tried."""
    known.since = 0
    if not known.shared:
        return False
    if not known.alone:
        return True
    known.patience = min(2 * known.patience, RETRY)
    return known.alone >= known.shared


def _averaged(before: float, spent: float) -> float:
    """Return the average with one more copy in it: quick to believe good news, slow for bad."""
    if not before:
        return spent
    if spent < before:
        return (before + spent) / 2
    return 0.75 * before + 0.25 * min(spent, OUTLIER * before)
