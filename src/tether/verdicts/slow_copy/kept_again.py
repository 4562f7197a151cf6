"""The lines by which the same elements are kept several times over: part of `slow-copy`.

The figures are those of `record.values.kept_again`. What was seen only once must have been there
for a while. Of tensors it is asked as well that nothing wrote them meanwhile, unless they are parts
of one: written, and the same all the while.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.analysis.sharing.fillings import growth_of
from tether.analysis.sharing.holding import Holding
from tether.analysis.surroundings import WaysThere
from tether.analysis.wording import and_more
from tether.facts import UNKNOWN, KeptAgain, Operand
from tether.finding import At, Bytes, Claim, Repair, Segment, Sentence, Step, Where, say
from tether.source.array_writes import array_writes, may_have_run
from tether.source.names import last_word
from tether.verdicts.slow_copy.on_device import Lines

AWHILE = 64
"""Calls after which a tensor that was seen once counts as kept."""

GOES_ON = "go on from the one before, with its elements moved along"
EQUAL = "have the same elements as others"
APART = "Keep it once and let all refer to it; copy it where it is to be written."
JOIN = (
    "Keep each part once, and join or slice the parts as they are read: the frames, stacked for"
    " what is sampled; the series, and `unfold` or a slice of it for each window."
)
SHARE = (
    "Keep it as it was before it was repeated, and let what reads it share it: broadcasting,"
    " `expand`, or `enable_gqa=True` of scaled_dot_product_attention for heads."
)


class _Keeping(NamedTuple):
    """Where something came to be kept: the line to name, and the steps to it."""

    site: Where
    steps: tuple[Step, ...]


def kept_again(lines: Lines) -> Iterator[Claim]:
    """Give what was kept so at two looks, by the line that keeps it or made it."""
    groups: dict[object, list[tuple[KeptAgain, _Keeping]]] = defaultdict(list)
    for fact in lines.history.trace.kept_again:
        found = _lines_of(lines, fact)
        if found is not None and _was_left_alone(lines.history, fact):
            groups[found.site, fact.axis, fact.moves, fact.single].append((fact, found))
    for some in groups.values():
        yield _claim([one for one, _ in some], [one for _, one in some])


def _claim(facts: list[KeptAgain], found: list[_Keeping]) -> Claim:
    first, site = facts[0], found[0].site
    kept, distinct = sum(one.kept for one in facts), sum(one.distinct for one in facts)
    return Claim(
        tensors=tuple(tensor for one in facts for tensor in one.tensors),
        cause=("kept again", site, first.axis, first.moves, first.single),
        site=site,
        operation="",
        message=say(
            "{names} ({line}) {keep} {kept} in {items}, of which about {distinct} are distinct:"
            " most of them {how}.",
            names=Segment(and_more([one.name for one in facts]), "name"), line=At(site),
            keep="keeps" if len(facts) == 1 else "keep", kept=Bytes(kept),
            items=_items(facts), distinct=Bytes(distinct), how=GOES_ON if first.moves else EQUAL,
        ),
        story=tuple(step for one in found for step in one.steps),
        repair=Repair(_repair(first)),
        subject=first.name,
        bytes=kept - distinct,
    )  # fmt: skip


def _items(facts: list[KeptAgain]) -> str:
    count = sum(one.items for one in facts)
    if facts[0].single:
        of = f" of {facts[0].slices:,}" if len(facts) == 1 and facts[0].slices > count else ""
        return f"{count:,}{of} slices along dimension {facts[0].axis}"
    return f"{count:,} {'tensors' if facts[0].tensors else 'arrays'}"


def _repair(fact: KeptAgain) -> Sentence:
    return say("{fix}", fix=JOIN if fact.moves else SHARE if fact.single else APART)


def _lines_of(lines: Lines, fact: KeptAgain) -> _Keeping | None:
    """Return where it came to be kept; None where the facts and the text do not say it."""
    history = lines.history
    made = history.made_at(fact.tensors[-1]) if fact.tensors else UNKNOWN
    write = _last_write(history, fact) if fact.single and made >= 0 else UNKNOWN
    if write >= 0:
        return _written(lines, write)
    if made >= 0:
        if lines.needless(made):
            return None
        return _made(history, fact, made)
    if fact.single:
        return _array_of(history, fact)
    kept = _in_text(history, fact)
    return None if kept is None else _Keeping(kept, (_keeps(kept),))


def _made(history: History, fact: KeptAgain, made: int) -> _Keeping:
    site = history.events[made].site
    kept = None if fact.single else growth_of(history, fact.name, fact.tensors)
    return _Keeping(
        site, (*_making(history, site, made), *([] if kept is None else [_keeps(kept)]))
    )


def _making(history: History, site: int, made: int) -> Iterator[Step]:
    """Yield the line that made it, and the one that called the function which that is in."""
    yield Step("made", site, say("made here, in memory of its own"))
    yield from history.get(WaysThere).asked_from(site, (made,))


def _written(lines: Lines, write: int) -> _Keeping:
    """Return the line that made what is written into the memory, and the one that writes it."""
    history, event = lines.history, lines.events[write]
    into = {one.storage for one in event.writes}
    given = [one for one in event.reads if one.storage not in into]
    made = history.made_at(given[-1].tensor) if given else UNKNOWN
    kept = Step("kept", event.site, say("written here into what is kept"))
    if made < 0 or lines.events[made].site == event.site:
        return _Keeping(event.site, (kept,))
    site = lines.events[made].site
    return _Keeping(site, (*_making(history, site, made), kept))


def _keeps(site: Where) -> Step:
    return Step("kept", site, say("each of them is kept by this line"))


def _in_text(history: History, fact: KeptAgain) -> Where | None:
    """Return the line of the text that puts arrays where they are, if it is one line."""
    grows = growth_of(history, fact.name, ())
    if grows is not None:
        return grows
    found = history.get(Holding).fillings.anywhere(fact.name)
    return found[0].site if len(found) == 1 else None


def _array_of(history: History, fact: KeptAgain) -> _Keeping | None:
    """Return the line that fills an array, if no other can have done so; else what makes it.

    No call tells when NumPy writes, so a line is named that is the only one in the text.
    """
    sources, fillings = history.trace.sources, history.get(Holding).fillings
    fills, name = fillings.anywhere(fact.name), last_word(fact.name)
    names = [("", fact.name), *((one, name) for one in fillings.functions_of(name))]
    writes = array_writes(sources, names)
    ran = [one for one in writes if may_have_run(sources, one)]
    if len(ran) == 1:
        return _Keeping(ran[0], (Step("kept", ran[0], say("written here into what is kept")),))
    if len(fills) != 1:
        return None
    site = fills[0].site
    return _Keeping(site, (Step("made", site, say("made here, in memory of its own")),))


# -- writes -------------------------------------------------------------------------------------


def _shown(history: History, fact: KeptAgain) -> list[Operand]:
    found = [history.operand_of(one) for one in fact.tensors]
    return [one for one in found if one is not None]


def _last_write(history: History, fact: KeptAgain) -> int:
    """Return the call that wrote one tensor last, but for those that fill it with one value."""
    until = history.position(fact.at)
    writes = [
        at for one in _shown(history, fact)[:1] for at in history.writes_to(one)
        if at < until and len(history.events[at].reads) > 1
    ]  # fmt: skip
    return writes[-1] if writes else UNKNOWN


def _was_left_alone(history: History, fact: KeptAgain) -> bool:
    """Whether something was there for a while, and tensors of a container were not written."""
    made = max((history.made_at(one) for one in fact.tensors), default=UNKNOWN)
    at, since = history.position(fact.at), history.position(fact.since)
    if since < 0 and (made < 0 or at - made < AWHILE):
        return False
    if fact.single:
        return True
    others = history.get(OtherProcesses)
    return not any(others.written(one, max(made, since)) for one in _shown(history, fact))
