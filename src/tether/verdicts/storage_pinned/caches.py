"""What the cache of a function keeps though no call can find it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tether.analysis.copies.idle import LEAST_BYTES
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.analysis.wording import listed
from tether.facts import SiteId
from tether.finding import At, Bytes, Claim, Repair, Step, say
from tether.verdicts.storage_pinned.cut_off import LARGE

LEAST_ENTRIES = 3
"""Objects that a cache keeps alone: fewer are what the last calls have left."""


def claims(history: History) -> Iterator[Claim]:
    """Find what the cache of a function keeps though no call can find it again."""
    for fact in history.trace.cache_kept:
        if fact.entries < LEAST_ENTRIES or fact.nbytes < LARGE:
            continue
        site = history.site(fact.site)
        inside = next((o for o in history.trace.sites if o.definition == site.definition), site)
        but, others = _other_caches(history, fact.also)
        yield Claim(
            tensors=fact.tensors,
            cause=("cache", fact.site),
            site=fact.site,
            operation="",
            severity=None if fact.nbytes >= LEAST_BYTES else "note",
            subject=fact.name,
            message=say(
                "The cache of `{name}` ({line}) keeps {n} objects that it was called with, and"
                " {size} of tensors with them: nothing else"
                + (f" but the cache of {but} has any of" if but else " has")
                + " them, so no call can find what was cached for them.",
                name=fact.name, line=At(fact.site), n=fact.entries, size=Bytes(fact.nbytes),
                **others,
            ),
            story=(
                *(
                    Step("kept", one, say("the cache of this function keeps what it is given"))
                    for one in (fact.site, *fact.also)
                ),
                *history.get(Surroundings).calls(inside),
            ),
            repair=Repair(say("Keep the value on the object itself (functools.cached_property), or"
                              " let the cache be asked by plain values; "
                              + ("cache_clear() of each" if but else "{name}.cache_clear()")
                              + " lets all go.", name=fact.name)),
            count=fact.entries,
            bytes=fact.nbytes,
        )  # fmt: skip


def _other_caches(history: History, also: Sequence[SiteId]) -> tuple[str, dict[str, Any]]:
    """Return the functions of some definitions as a piece of a sentence, and its parts."""
    names = {f"other{at}": history.site(one).function for at, one in enumerate(also)}
    lines = {f"at{at}": At(one) for at, one in enumerate(also)}
    said = [f"`{{other{at}}}` ({{at{at}}})" for at in range(len(also))]
    return listed(said) if said else "", {**names, **lines}
