"""The lines that serialise many small tensors one by one: part of `slow-copy`.

`torch.save` writes a header for each, and pickle an archive, with the whole storage behind the
tensor, however many others show the same one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tether.analysis.copies.already_there import nbytes
from tether.facts import Operand
from tether.verdicts.slow_copy.on_device import LARGE, NODE, Lines, Slow, Spec

MANY = 1000
"""Tensors of one shape that a line serialises, from which it is told: each takes about 40 us."""

TIMED = 128
"""Of them that are timed."""

FACTOR = 4
"""How many times their bytes are written for it to be told of views."""

Saved = tuple[int, Operand]
"""A call that serialised, and a tensor that it did."""


def saved_apart(lines: Lines) -> Iterator[Slow]:
    """Give each line that serialised many tensors of one shape."""
    for some in _by_shape(lines).values():
        if len(some) >= MANY:
            alone = not lines.events[some[0][0]].reads  # by pickle
            slow = _with_all(lines, some) if alone else None
            if slow is None and len({one.storage for _, one in some}) == len(some):
                slow = _one_by_one(lines, some, alone=alone)
            if slow is not None:
                yield slow


def _by_shape(lines: Lines) -> dict[tuple[object, ...], list[Saved]]:
    """Return the small tensors without a gradient that lines serialised, by line and shape."""
    found: dict[tuple[object, ...], list[Saved]] = defaultdict(list)
    for at, event in lines.events.where("save".__eq__):
        given = {(one.storage, one.offset): one for one in lines.history.saved(at)}
        for one in given.values():
            if not one.requires_grad and 0 < nbytes(one) <= NODE:
                found[event.site, one.shape, one.dtype].append((at, one))
    return found


def _one_by_one(lines: Lines, some: Sequence[Saved], *, alone: bool) -> Slow:
    at, first = some[0]
    total = sum(nbytes(one) for _, one in some)
    every = "[*xs.values()]"
    if alone:
        slow, fast = f"pickle.dumps({every})", f"pickle.dumps(torch.stack({every}))"
    else:
        slow = f"torch.save({every}, io.BytesIO())"
        fast = f"torch.save(torch.stack({every}), io.BytesIO())"
    spec = Spec(slow, fast, tuple(one for _, one in some[:TIMED]), lines.device(first))
    what = f"{len(some):,} tensors of one shape are serialised one by one, each with a header of"
    what += f" its own, for {total:,} bytes of elements"
    fix = "Keep and save them as one tensor, joined, and take its rows after it is loaded."
    return Slow(at, first, len(some), total, spec, "written", what, fix)


def _with_all(lines: Lines, some: Sequence[Saved]) -> Slow | None:
    """Find views of a few storages, each of which pickle writes with all of its storage."""
    at, first = some[0]
    storages = lines.history.trace.storages
    total = sum(nbytes(one) for _, one in some)
    times = Counter(one.storage for _, one in some)
    written = sum(storages[one].nbytes * count for one, count in times.items())
    if written < max(LARGE, FACTOR * total):
        return None
    what = f"pickle writes with each of {len(some):,} views the whole storage behind it,"
    what += f" {written:,} bytes for {total:,}"
    fix = "Save the tensor that they are parts of, once, and take its rows after it is loaded."
    return Slow(at, first, len(some), written, None, "written", what, fix)
