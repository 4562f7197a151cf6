"""How many threads a copy uses: one, or as many as PyTorch would.

A copy that both cores share takes half the time while both are idle. When another process keeps
one of them busy, PyTorch's copy waits now and then for its slowest thread, for milliseconds where
a single thread takes a tenth of one. No fixed threshold is right for both, so it is measured as it
goes: per size class, the times of the last copies either way. The way with the better median is
used, and the other is tried again now and then.

`torch.set_num_threads` is a setting of the whole program and visible to it. What is set here is
OpenMP's number for the *calling thread* only, and it is put back before the call returns.
"""

from __future__ import annotations

import collections
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

THRESHOLD = 1 << 20
"""Below so many bytes PyTorch's own choice stands.

By benchmarks/copying.py: timing a copy adds 1 to 3 us, a tenth of a copy of 1 MB while all cores
are idle; beside busy ones PyTorch's copy of 1 MB was seen to wait for 8 ms, 300 times its length.
"""

SAMPLES = 5
"""Copies whose median time stands for a way: a lost time slice says little about the next copy."""

BURST = 3
"""Copies made in a row when the other way is tried: enough to outvote what was measured before."""

PATIENCE, RETRY = 4, 32
"""Timed copies after which the way that lost is tried again, at first and at most.

The number doubles each time: one early measurement may have been spoilt by page faults. The other
way is tried for the first time after one copy, so that a program that makes few has a choice.
"""

SETTLED, UNTIMED = 16, 7
"""Once the other way has lost for so many timed copies in a row, only each eighth copy is timed."""

STALLED = 4.0
"""Times of the median from which on a copy is worth a closer look: all are timed again.

A busy neighbour makes itself felt all at once: a copy on all threads waits 8 ms for the one that is
not running. One such copy in fifty is no reason to take twice as long for all the others.
"""

CLEARLY = 0.9
"""Share of the other way's median below which a way is the better one: neither way wins for noise.
"""


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
    """What was measured of copies of one size class, in seconds per byte."""

    __slots__ = ("alone", "burst", "patience", "since", "times", "untimed")

    def __init__(self) -> None:
        # The last times on all threads, and those alone.
        self.times = (
            collections.deque[float](maxlen=SAMPLES),
            collections.deque[float](maxlen=SAMPLES),
        )
        self.alone = False  # copying alone is the better way so far
        self.since = 0  # timed copies since the other way was tried
        self.patience = 1  # copies after which it is tried again: the first time at once
        self.burst = 0  # copies that are still to be made the other way
        self.untimed = 0  # copies that are not to be timed, since nothing has changed for long

    def turn(self) -> bool:
        """Choose for the next timed copy; return whether it is made alone."""
        if not self.burst:
            self.since += 1
            if self.since <= self.patience:
                return self.alone
            self.since, self.burst = 0, BURST
            self.patience = min(max(2 * self.patience, PATIENCE), RETRY)
        self.burst -= 1
        return not self.alone

    def learn(self, spent: float, alone: bool) -> None:
        """Take in the time of one copy, in seconds per byte, and choose the better way."""
        self.times[alone].append(spent)
        if self.burst and alone and self.times[0] and spent > _median(self.times[0]):
            self.burst = 0  # a slow copy says enough, unless it had to wake other threads
        if self.burst or not all(self.times):
            return
        medians = tuple(map(_median, self.times))
        if medians[not self.alone] < CLEARLY * medians[self.alone]:
            self.alone, self.since, self.patience = not self.alone, 0, PATIENCE
        settled = self.patience >= SETTLED and spent <= STALLED * medians[alone]
        self.untimed = UNTIMED if settled else 0


_classes = [_Class() for _ in range(64)]


def _guess(index: int) -> None:
    """Let a size class that was never measured begin with what was learnt next to it."""
    for near in (index - 1, index + 1, index - 2, index + 2):
        if 0 <= near < len(_classes) and all(_classes[near].times):
            _classes[index].alone = _classes[near].alone
            _classes[index].patience = PATIENCE
            return


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
    index = nbytes.bit_length()
    known = _classes[index]
    if known.untimed:
        known.untimed -= 1
        return single_threaded(function) if known.alone else function()
    if torch.get_num_threads() < 2:
        return function()
    # Threads race here at worst for a measurement; every value they leave is a true one.
    if not known.times[0] and not known.times[1]:
        _guess(index)
    alone = known.turn()
    start = _clock()
    result = single_threaded(function) if alone else function()
    known.learn((_clock() - start) / nbytes, alone)
    return result


def _median(times: collections.deque[float]) -> float:
    return sorted(times)[len(times) // 2]
