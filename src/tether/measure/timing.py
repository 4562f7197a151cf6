"""A careful timer: ways run in turn, round after round, and what disturbed them is said.

Whatever else the machine does falls on all ways alike, since each round runs every way once, in
an order that rotates. A sample is a block of calls long enough for the clock; the result of a call
dies before the next call, as in a loop that overwrites its variable, so the time to give memory
back is part of a call's cost. Python's garbage collector is off within a sample.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch

Key = TypeVar("Key")

BLOCK = 5e-4
"""Seconds that one sample should last at least; the clock itself is good to about 1e-7."""

ROUNDS = 25
"""Rounds after which more samples tell little new about a median and its quartiles."""

LEAST = 3
"""Rounds that are run even when they overdraw the time."""

SPREAD, DRIFT = 0.25, 0.2
"""From here on a machine counts as noisy: quartile distance, and second half against first half,
as parts of the median. On an idle machine both stay below a tenth for copies over 100 us."""


class Samples(NamedTuple):
    """What was measured of one way."""

    times: tuple[float, ...]  # seconds of one call, one per round
    calls: int  # in each sample
    faults: float  # page faults per call, over all samples

    @property
    def median(self) -> float:
        """Seconds of one call."""
        return statistics.median(self.times)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper, in seconds."""
        if len(self.times) < 2:
            return self.times[0], self.times[0]
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return low, high


class Statement:
    """An expression, compiled into a loop, over names that are given."""

    def __init__(self, expression: str, names: Mapping[str, Any], *, cuda: bool = False) -> None:
        self.once = eval_of(expression, names)
        self._loop = timeit.Timer(expression.strip(), globals=dict(names))
        self._settle: Callable[[], object] = torch.cuda.synchronize if cuda else _nothing

    def run(self, calls: int) -> float:
        """Return the seconds that `calls` calls take, until the device is done with them."""
        self._settle()
        start = time.perf_counter()
        self._loop.timeit(calls)
        self._settle()
        return time.perf_counter() - start


def eval_of(expression: str, names: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a function that evaluates `expression` once. Raises `SyntaxError`."""
    code = compile(expression.strip(), "<expression>", "eval")
    scope = dict(names)
    return lambda: eval(code, scope)  # noqa: S307 -- the user's own expression, on their machine


def _nothing() -> None:
    return None


def page_faults() -> int:
    """Return the page faults of this process so far, all threads; 0 where the system has no count.

    They are the kernel's figures `ru_minflt` and `ru_majflt`.
    """
    try:
        import resource
    except ImportError:  # Windows
        return 0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def interleaved(
    ways: Mapping[Key, Statement],
    seconds: float,
    *,
    rounds: int = ROUNDS,
    progress: Callable[[float], None] = lambda _: None,
) -> dict[Key, Samples]:
    """Run every way in turn until `rounds` rounds are done, or `seconds` are over.

    At least `LEAST` rounds are run. `progress` hears the part that is done, from 0 to 1.
    """
    start = time.perf_counter()
    calls = {name: _calls_for(way) for name, way in ways.items()}
    times: dict[Key, list[float]] = {name: [] for name in ways}
    faults = dict.fromkeys(ways, 0)
    names = list(ways)
    for number in range(rounds):
        spent = time.perf_counter() - start
        if number >= LEAST and spent > seconds:
            break
        shift = number % len(names) if names else 0
        for name in names[shift:] + names[:shift]:
            before = page_faults()
            times[name].append(ways[name].run(calls[name]) / calls[name])
            faults[name] += page_faults() - before
        progress(max((number + 1) / rounds, min(1.0, spent / seconds) if seconds else 1.0))
    return {
        name: Samples(tuple(found), calls[name], faults[name] / (len(found) * calls[name]))
        for name, found in times.items()
    }


def _calls_for(way: Statement) -> int:
    """Return how many calls fill one sample; runs the way a few times, which also warms it up."""
    way.run(1)
    calls = 1
    while (spent := way.run(calls)) < BLOCK:
        calls = max(2 * calls, min(10 * calls, int(calls * BLOCK / max(spent, 1e-7)) + 1))
    return calls


def noise(samples: Samples) -> str:
    """Return in words what was uneven about the samples of one way; "" when they were quiet."""
    if len(samples.times) < 2:
        return "one sample alone: its spread is not known"
    middle = samples.median
    low, high = samples.quartiles
    half = len(samples.times) // 2
    first = statistics.median(samples.times[:half])
    second = statistics.median(samples.times[-half:])
    if max(first, second) > (1 + DRIFT) * min(first, second) and half >= LEAST:
        turn = "slower" if second > first else "faster"
        part = max(first, second) / min(first, second)
        return f"the machine became {turn} during the run, {part:.1f} times between its halves"
    if high - low > SPREAD * middle:
        return f"half of the samples lie more than {(high - low) / middle:.0%} apart"
    return ""
