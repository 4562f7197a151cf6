"""Iterators of parameters that an optimizer has gone through, and that the program reads again.

An iterator gives its elements once: what goes through it again finds nothing, and says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.facts import IteratorTaken
from tether.source.gone_through import read_again

MOST_LINES = 3


class GoneThrough(NamedTuple):
    """An iterator that gives nothing any more."""

    fact: IteratorTaken
    lines: tuple[int, ...]  # of the file of the optimizer, that read it again


def gone_through(history: History) -> Iterator[GoneThrough]:
    """Yield each line that makes an optimizer of such an iterator once."""
    seen = set[object]()
    for fact in history.trace.iterators_taken:
        site = history.site(fact.site)
        lines = read_again(history.get(Surroundings).source(site.file), site, fact.name)
        if lines and fact.site not in seen:
            seen.add(fact.site)
            yield GoneThrough(fact, tuple(lines[:MOST_LINES]))
