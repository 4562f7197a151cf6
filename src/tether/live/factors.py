"""How much cheaper the cheaper way is, measured here and now at the program's own sizes.

A factor that is recited is one of another machine. For each `slow-copy` finding both ways are run
in turn on a tensor like the one that was copied; where the cheaper is not cheaper the finding goes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from tether.finding import Finding
from tether.history import History
from tether.live.timing import Statement, interleaved
from tether.verdicts.slow_copy import Spec, spec_of

LEAST = 1.1
"""How many times slower a way must be to be told."""
EACH, ALL = 0.25, 3.0
"""Seconds for one finding, and for all of them; what is left over is given without a factor."""
LARGEST = 256 << 20
"""Bytes of a tensor that is made for this."""


def measured(findings: Sequence[Finding], history: History) -> list[Finding]:
    """Return the findings, slow copies with their factor and without those that are not slow."""
    began, found = time.perf_counter(), []
    for one in findings:
        spec = spec_of(history, one) if one.slug == "slow-copy" else None
        if spec is None or time.perf_counter() - began > ALL:
            found.append(one)
            continue
        factor = _factor(spec)
        if factor is None:
            found.append(one)
        elif factor >= LEAST:
            size = " x ".join(map(str, spec.operand.shape)) or "one element"
            text = f" Measured here at {size} {spec.operand.dtype}: {factor:.1f}x slower."
            found.append(replace(one, message=one.message + text))
    return found


def _factor(spec: Spec) -> float | None:
    """Return how many times slower the slow way is; None where that cannot be tried."""
    try:
        names = _names(spec)
    except (RuntimeError, AssertionError, AttributeError, TypeError):  # no such device or dtype
        return None
    cuda = spec.device.startswith("cuda")
    ways = {way: Statement(way, names, cuda=cuda) for way in (spec.slow, spec.fast)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of torch.tensor(t) as well
        times = interleaved(ways, EACH)
    return times[spec.slow].median / times[spec.fast].median


def _names(spec: Spec) -> dict[str, object]:
    """Return what the ways speak of: a tensor like the program's, and what it was expanded from."""
    operand = spec.operand
    dtype = getattr(torch, operand.dtype)
    size = 1
    for one in operand.shape:
        size *= one
    if size * dtype.itemsize > LARGEST:
        raise RuntimeError("too large to try")
    shape = [n if stride else 1 for n, stride in zip(operand.shape, operand.strides, strict=True)]
    base = torch.zeros(shape, dtype=dtype, device=spec.device)
    base.requires_grad_(operand.requires_grad)
    x = base.expand(operand.shape) if list(operand.shape) != shape else base
    return {"torch": torch, "x": x, "base": base, "out": torch.empty_like(x.detach())}
