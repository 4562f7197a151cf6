"""Files that an array writes to, opened again by the same line: part of `alias-write`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import MappedFile, SiteId
from tether.finding import At, Claim, Repair, Step, say

MOST_LINES = 3
"""Lines that one finding names."""


def mapped_files(history: History) -> Iterator[Claim]:
    """Find a file that an array writes to, and nobody asked for that: a note.

    Either a line rewrites it whenever it opens it, or the array was opened without a mode: that of
    `numpy.memmap` is then "r+". A file that is filled part by part by a mode of the program's own,
    or whose array is told to be written (`flush`), is meant.
    """
    groups: dict[tuple[int, str], list[MappedFile]] = defaultdict(list)
    for fact in history.trace.mapped_files:
        groups[fact.site, fact.file].append(fact)
    for (site, file), found in groups.items():
        first, *later = found
        again = [one for one in later if set(one.changed) & set(first.changed)]
        if any(one.flushed for one in found):
            continue
        if again:
            yield _claim(history, site, file, 1 + len(again))
        elif not first.asked:
            yield _by_default(history, first)


def _claim(history: History, site: int, file: str, times: int) -> Claim:
    opened = history.site(site)
    return Claim(
        tensors=(),
        cause=("file", site, file),
        site=site,
        operation="memmap",
        severity="note",
        subject=opened.target or file,
        message=say(
            "The array that {line} opens is the file `{file}` itself: each of {times} times the"
            " same parts of it were written over, and the next array shows what was left.",
            line=At(site), file=file, times=str(times),
        ),
        story=(Step("shared", site, say("opened to be read and written (r+)")),),
        repair=Repair(say("Open it at {line} with mode 'c', which keeps what is written to itself,"
                          " or 'r', and write to a copy.", line=At(site))),
        count=times,
    )  # fmt: skip


def _by_default(history: History, fact: MappedFile) -> Claim:
    opened, at = history.site(fact.site), history.position(fact.at)
    writes = _writes_after(history, at)
    return Claim(
        tensors=(),
        cause=("file", fact.site, fact.file),
        site=fact.site,
        operation="memmap",
        severity="note",
        subject=opened.target or fact.file,
        message=say(
            "The array that {line} opens is the file `{file}` itself, which was there and has other"
            " values now: numpy.memmap opens a file to be written to (r+) unless a mode is given.",
            line=At(fact.site), file=fact.file,
        ),
        story=(
            Step("shared", fact.site, say("opened without a mode")),
            *(Step("written", one, say("this writes to the file")) for one in writes),
        ),
        repair=Repair(say("Open it at {line} with mode 'c', which keeps what is written to itself,"
                          " or 'r'; with mode 'r+', if the file is to change.",
                          line=At(fact.site))),
        count=1,
    )  # fmt: skip


def _writes_after(history: History, opened: int) -> list[SiteId]:
    """Return the first lines that write to memory which is mapped, after a file was opened."""
    mapped = {one.storage for one in history.trace.shared if one.way == "mapped"}
    found: dict[tuple[str, int], SiteId] = {}
    for at, event in history.events.having("writes"):
        if at >= opened and any(one.storage in mapped for one in event.writes):
            found.setdefault(history.site(event.site).position[:2], event.site)
    return list(found.values())[:MOST_LINES]
