"""How much cheaper the cheaper way is, measured here and now at the program's own sizes.

A factor that is recited is one of another machine. For each `slow-copy` finding both ways are run
in turn on tensors like those of the program; where the cheaper is not cheaper, the finding goes.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import pickle
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from tether.analysis.history import History
from tether.copying.snapshot import Snapshot
from tether.facts import PRETENDED, Operand
from tether.finding import Finding
from tether.measure.timing import Samples, Statement, interleaved
from tether.regions import extent
from tether.verdicts.slow_copy import NOT_TIMED, spec_of
from tether.verdicts.slow_copy.on_device import Spec

LEAST = 1.1
"""How many times slower a way must be to be told."""
EACH, ALL = 0.3, 3.0
"""Seconds for one finding, and for all of them; what is left over stays without a factor."""
SHARE, WORTH = 0.01, 0.1
"""Of the run's time, and seconds: what saves less than both nobody would notice, at any factor."""
CALL = 10e-6
"""Seconds that a call on one element takes at most, the next one's among them: an item() takes one
microsecond, an assignment to an index three to five, and a slower machine twice that."""
LARGEST = 256 << 20
"""Bytes of the tensors that are made for this."""


class _CannotTimeError(Exception):
    """There is no such device or dtype here, or not enough memory."""


class Speedup(NamedTuple):
    """How much cheaper a way is."""

    factor: float  # the lesser of what medians and minima say
    seconds: float  # that one run of the slow way takes longer


def measured(findings: Sequence[Finding], history: History, ran: float = 0.0) -> list[Finding]:
    """Return the findings, slow copies with their factor and without those that are not slow.

    The program took `ran` seconds, 0 where that is not known: what is nothing beside that is left
    out as well.
    """
    began, found = time.perf_counter(), []
    for one in findings:
        spec = spec_of(history, one) if one.slug == "slow-copy" else None
        if spec is None:
            found += [] if _is_nothing(_at_most(one, history), ran) else [one]
            continue
        if time.perf_counter() - began > ALL:
            found.append(_untimed(one, "it was not timed: others took all the time for that"))
            continue
        try:
            speedup = speedup_of(spec)
        except _CannotTimeError:
            found += [] if spec.runs else [_untimed(one, "it could not be timed on this machine")]
            continue
        saved = speedup.seconds * one.count / spec.calls
        if speedup.factor >= LEAST and not _is_nothing(saved, ran):
            found.append(_with_factor(one, spec, speedup.factor, saved))
    return found


def _is_nothing(saved: float, ran: float) -> bool:
    return saved < WORTH and saved < SHARE * ran


def _at_most(finding: Finding, history: History) -> float:
    """Return the seconds that the calls of a slow copy which is not timed can take.

    Only where it is these that cost: on the CPU, and not by the bytes that they copy.
    """
    storages, shown = history.trace.storages, map(history.operand_of, finding.tensors)
    devices = {storages[one.storage].device for one in shown if one and one.storage in storages}
    by_calls = finding.slug == "slow-copy" and not finding.bytes and devices == {"cpu"}
    return finding.count * CALL if by_calls else math.inf


def _untimed(finding: Finding, why: str) -> Finding:
    """Return a finding that says why it has no factor, where the program ran."""
    assumes = tuple(why if one == NOT_TIMED else one for one in finding.assumes)
    return replace(finding, assumes=assumes)


def _with_factor(finding: Finding, spec: Spec, factor: float, saved: float) -> Finding:
    many = len(spec.operands)
    size = "x".join(map(str, spec.operands[0].shape)) or "one element"
    of = f"{size} {spec.operands[0].dtype}" if many == 1 else f"the {many} tensors of this program"
    slow, fast = map(_as_told, (spec.slow, spec.fast))
    text = f" Measured here on {of}: {slow} is {factor:.1f}x slower than {fast}"
    text += f", {duration(saved)} in all." if saved > 0 else "."
    assumes = tuple(one for one in finding.assumes if one != NOT_TIMED)
    return replace(finding, message=finding.message + text, assumes=assumes)


def _as_told(way: str) -> str:
    """Return a way as people read it: its tensors are x, y and z."""
    for number, letter in enumerate("xyz"):
        way = way.replace(f"xs['{number}']", letter)
    return way


def duration(seconds: float) -> str:
    """Return a time as people read it: 30 us, 4.1 ms, 2.5 s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 1e-6:.0f} us"


def factor_of(spec: Spec) -> float:
    """Return how many times slower the slow way is."""
    return speedup_of(spec).factor


def speedup_of(spec: Spec) -> Speedup:
    """Return how much slower the slow way is.

    Other work on the machine can make a way seem slow, and seldom in both. On a busy one a call
    that several threads share waits for the last of them: where that decides, each way counts as
    it is on as many threads as suit it.
    """
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(spec.grad)
        names = names_of(spec)
        cuda = "cuda" in spec.device + spec.there
        both = {way: Statement(way, names, cuda=cuda) for way in (spec.slow, spec.fast)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of torch.tensor(t) as well
            times = [_pair(interleaved(both, EACH), spec)]
            if _factor(times) < LEAST and torch.get_num_threads() > 1:
                with _one_thread():
                    times.append(_pair(interleaved(both, EACH), spec))
    except (
        RuntimeError,
        AssertionError,
        AttributeError,
        TypeError,
        ValueError,
        MemoryError,
    ) as error:
        raise _CannotTimeError(str(error)) from error  # what is not there differs by the build
    finally:
        torch.set_grad_enabled(before)
    slow, fast = (min(one.median for one in some) for some in zip(*times, strict=True))
    return Speedup(_factor(times), slow - fast)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _pair(times: dict[str, Samples], spec: Spec) -> tuple[Samples, Samples]:
    return times[spec.slow], times[spec.fast]


def _factor(times: Sequence[tuple[Samples, Samples]]) -> float:
    """Return the factor between the slow way and the fast one, each of them at its best."""
    slow, fast = [slow for slow, _ in times], [fast for _, fast in times]
    medians = min(one.median for one in slow) / min(one.median for one in fast)
    return min(medians, min(map(_least, slow)) / min(map(_least, fast)))


def _least(samples: Samples) -> float:
    return min(samples.times)


def names_of(spec: Spec) -> dict[str, Any]:
    """Return what the ways speak of; only what they name is made."""
    if sum(map(_room, spec.operands)) > LARGEST:
        raise _CannotTimeError("too large to try")
    if any(word in spec.device + spec.there for word in ("meta", PRETENDED)):
        raise _CannotTimeError("it has no memory")
    first = _base(spec.operands[0], spec.device)
    x = first.expand(spec.operands[0].shape)

    def all_of_them() -> dict[str, torch.Tensor]:
        return {str(n): _base(one, spec.device).expand(one.shape).detach()
                for n, one in enumerate(spec.operands)}  # fmt: skip

    makers: dict[str, Callable[[], Any]] = {
        "torch": lambda: torch,
        "copy": lambda: copy,
        "numpy": lambda: np,
        "io": lambda: io,
        "pickle": lambda: pickle,
        "x": lambda: x,
        "array": lambda: x.detach().numpy(),
        "base": lambda: first,
        "out": lambda: torch.ones_like(x.detach()),
        "pinned": lambda: x.detach().pin_memory(),
        "there": lambda: torch.device(spec.there),
        "dtype": lambda: getattr(torch, spec.dtype),
        "xs": all_of_them,
        "rows": lambda: [row.clone() for row in x.detach()],
        "snapshot": lambda: Snapshot(all_of_them()),
    }
    named = set(re.findall(r"\w+", f"{spec.slow} {spec.fast}"))
    return {name: make() for name, make in makers.items() if name in named}


def _base(operand: Operand, device: str) -> torch.Tensor:
    """Return a tensor like an operand before it was expanded, written once so that it is there."""
    pairs = zip(operand.shape, operand.strides, strict=True)
    shape = [n if stride else 1 for n, stride in pairs]
    made = torch.empty_strided(
        shape, operand.strides, dtype=getattr(torch, operand.dtype), device=device
    ).zero_()
    return made.requires_grad_(operand.requires_grad)


def _room(operand: Operand) -> int:
    """Return the bytes that an operand and a copy of it take."""
    first, last = extent(operand)
    dtype = getattr(torch, operand.dtype, torch.float64)
    return (last - first + math.prod(operand.shape)) * dtype.itemsize
