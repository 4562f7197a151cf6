"""Files that an array writes to, opened again by the same line: part of `alias-write`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import MappedFile
from tether.finding import At, Claim, Repair, Step, say


def mapped_files(history: History) -> Iterator[Claim]:
    """Find a file that is rewritten whenever a line opens it, and nobody asked for that: a note.

    A file that is filled part by part, or whose array is told to be written (`flush`), is meant.
    """
    groups: dict[tuple[int, str], list[MappedFile]] = defaultdict(list)
    for fact in history.trace.mapped_files:
        groups[fact.site, fact.file].append(fact)
    for (site, file), found in groups.items():
        first, *later = found
        again = [one for one in later if set(one.changed) & set(first.changed)]
        if again and not any(one.flushed for one in found):
            yield _claim(history, site, file, 1 + len(again))


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
