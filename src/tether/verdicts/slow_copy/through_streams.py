"""The lines that copy a state by saving it to memory and reading it back: part of `slow-copy`."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.memory_lives import MemoryLives
from tether.facts import UNKNOWN, Operand
from tether.verdicts.slow_copy.on_device import STEPS, Lines, Slow, Spec

BOTH = "(lambda f: (torch.save(xs, f), f.seek(0), torch.load(f)))(io.BytesIO())"


def through_streams(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that reads back what was saved and nothing wrote meanwhile.

    A state that is read when another has taken its place, or seldom, may stand for a file; one that
    lies there as bytes beside others, for what is sent or stored.
    """
    pairs = _pairs(lines)
    history = lines.history
    memories = {history.flow.memory(one) for pair in pairs for one in _given(lines, pair[0])}
    lives = MemoryLives(history, memories) if pairs else None
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    others: set[int] = _stored(lines, pairs)
    for saved, read in pairs:
        given, site = _given(lines, saved), int(lines.events[read].site)
        if lives is None or any(True for one in given for _ in lives.written(one, saved, read)):
            others.add(site)
        else:
            found[site].append((saved, read))
    for site, runs in found.items():
        if len(runs) >= STEPS and site not in others:
            yield _slow(lines, runs)


def _stored(lines: Lines, pairs: Sequence[tuple[int, int]]) -> set[int]:
    """Return the lines that read a state back after the line that saved it had saved others."""
    saves: dict[int, list[int]] = defaultdict(list)
    for at in sorted({saved for saved, _ in pairs}):
        saves[lines.events[at].site].append(at)
    return {
        int(lines.events[read].site)
        for saved, read in pairs
        if (line := saves[lines.events[saved].site])
        and bisect_right(line, saved) < bisect_right(line, read)
    }


def _pairs(lines: Lines) -> list[tuple[int, int]]:
    """Return the positions of the calls that saved tensors, each with what read them back."""
    position = lines.history.position
    pairs = [(position(one.since), position(one.event)) for one in lines.history.trace.read_back]
    return [one for one in pairs if one[0] >= 0 and _given(lines, one[0])]


def _given(lines: Lines, saved: int) -> tuple[Operand, ...]:
    """Return what a call saved, each memory once."""
    return tuple({one.storage: one for one in lines.events[saved].reads}.values())


def _slow(lines: Lines, runs: Sequence[tuple[int, int]]) -> Slow:
    """Say what is copied so."""
    saved, read = runs[0]
    given = _given(lines, saved)
    total = sum(nbytes(one) for at, _ in runs for one in _given(lines, at))
    spec = Spec(BOTH, "copy.deepcopy(xs)", given, lines.device(given[0]))
    what = "save writes it to a stream in memory, and load reads it back before anything wrote it,"
    what += f" {total:,} bytes of tensors in {len(runs):,} runs"
    fix = "Copy it: copy.deepcopy(...), or tether.Snapshot for a state that is taken again and"
    fix += " again; load_state_dict() copies what it is given, so that needs no copy of its own."
    also = read if lines.events[read].site != lines.events[saved].site else UNKNOWN
    return Slow(saved, max(given, key=nbytes), len(runs), total, spec, "copied", what, fix, also)
