"""The lines that fill a tensor part by part within a gradient graph: part of `slow-copy`.

On the way back each such write takes a copy of the whole gradient, and zeroes its part of that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tether.analysis.copies.already_there import nbytes
from tether.analysis.gradients.graph import Graph
from tether.operations.table import operation
from tether.verdicts.slow_copy.again import PART
from tether.verdicts.slow_copy.on_device import LARGE, Lines, Slow


def filled_in_graph(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that fills tensors so, which a backward pass went through."""
    for (_, name), places in lines.by_line.items():
        if not operation(name).places or not operation(name).writes:
            continue
        filled = [some for some in _by_target(lines, places) if _is_costly(lines, some)]
        writes = sum(map(len, filled))
        if filled and 2 * writes > len(places):
            yield _slow(lines, filled)


def _by_target(lines: Lines, places: Sequence[int]) -> Iterator[list[int]]:
    """Yield the writes of one line to each tensor, as far as they are in a gradient graph."""
    found: dict[int, list[int]] = defaultdict(list)
    for at in places:
        event = lines.events[at]
        if event.kind >= 0 and event.reads and event.writes:
            found[event.reads[0].tensor].append(at)
    yield from found.values()


def _is_costly(lines: Lines, writes: Sequence[int]) -> bool:
    """Whether writes fill a tensor, all of it, with nothing in between, for one backward pass."""
    events = [lines.events[at] for at in writes]
    target = events[0].reads[0]
    given = [event.reads[-1] for event in events if len(event.reads) > 1]
    if len(given) < max(len(writes), PART) or sum(_copied(lines, at) for at in writes) < LARGE:
        return False
    touching = lines.history.on_storage(target)
    between = touching[bisect_right(touching, writes[0]) : bisect_right(touching, writes[-1])]
    if set(between) - set(writes) or sum(map(nbytes, given)) != nbytes(target):
        return False
    passes, graph = lines.history.backwards, lines.history.get(Graph)
    later = passes[bisect_right(passes, writes[-1]) :][:PART]
    return any(writes[0] in graph.behind(one) for one in later)


def _copied(lines: Lines, at: int) -> int:
    """Return the bytes that a write copies on the way back: of a first one it may be none."""
    target = lines.events[at].reads[0]
    return nbytes(target) if target.requires_grad else 0


def _slow(lines: Lines, filled: Sequence[Sequence[int]]) -> Slow:
    """Say what the writes of one line cost on the way back."""
    most = max(filled, key=len)
    at, target = most[0], lines.events[most[0]].reads[0]
    writes = [at for some in filled for at in some]
    total = sum(_copied(lines, at) for at in writes)
    what = f"a tensor of {nbytes(target):,} bytes is filled in {len(most):,} parts within the"
    what += " gradient graph, and on the way back each part takes a copy of the whole gradient, at"
    what += f" least {total:,} bytes for {len(writes):,} assignments"
    fix = "Put the parts in a list and join them once, by torch.stack; or compute them in one call."
    return Slow(at, target, len(writes), total, None, "written", what, fix)
