"""Which line makes something keep tensors that is no list or dictionary: a cache, a generator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tether.analysis.history import History
from tether.analysis.surroundings import WaysThere, at_line
from tether.facts import CACHE, WAITING
from tether.finding import Step, say


def kept_by(history: History, tensors: Iterable[int]) -> Iterator[Step]:
    """Yield the lines by which functions keep some tensors: a cache, a generator that waits."""
    for tensor in tensors:
        found = [*_cached(history, tensor), *_waiting(history, tensor)]
        if found:
            yield from found[:1]
            return


def _cached(history: History, tensor: int) -> Iterator[Step]:
    """Yield the definition of the function whose cache keeps a tensor."""
    made = history.made_at(tensor)
    if made < 0:
        return
    site = history.site_of(history.events[made])
    above = history.get(WaysThere).callers(history.events[made].site, (made,))
    for name in history.names_of(tensor):
        function, kept, _ = name.partition(f".{CACHE}")
        for one in (site, *above) if kept else ():
            if _last(one.function) == _last(function):
                first = at_line(one, one.first_line)
                yield Step("kept", first, say("the cache of this function keeps it"))
                return


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _waiting(history: History, tensor: int) -> Iterator[Step]:
    """Yield the line at which a generator waits that keeps a tensor as its variable."""
    waits = {one.name: history.site(one.site) for one in history.trace.suspended}
    for name in history.names_of(tensor) if waits else ():
        path, _, variable = name.partition(f".{WAITING}.")
        site = waits.get(f"{path}.{WAITING}")
        if variable and site is not None:
            text = say("a generator waits here and keeps `{name}`", name=variable)
            yield Step("kept", site, text)
            return
