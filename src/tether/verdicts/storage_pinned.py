"""`storage-pinned`: a small view keeps a large storage alive, or writes it into a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.fillings import growth_of
from tether.analysis.history import History
from tether.analysis.holding import Holding
from tether.analysis.idle import IdleMemory
from tether.analysis.shared_memory import Sharing, container
from tether.analysis.wording import evidence, place
from tether.facts import UNKNOWN, Operand, Site
from tether.finding import At, Bytes, Claim, Evidence, Finding, Fix, Repair, Step, say
from tether.regions import element_size, extent
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# storage-pinned

## What it says
A small view is all that is left of a large storage, which stays in memory for it; or a small view
was given to `torch.save`, which writes the whole storage behind it. A note tells of memory that a
line makes run after run, that a container, a closure or an exception's traceback keeps, and that
nothing uses again.

## Why it matters
Ten rows of a table hold the table; a file of a few hundred bytes becomes a file of megabytes.

## Known problems
Only storages of at least 64 KiB, of which the view shows at most an eighth, are reported; of what
is kept unused, at least eight runs and 1 MiB of a program that finished. Which
other holders a storage has outside Python is not known.

## Example
```python
torch.save(table[:10], "rows.pt")    # writes the whole table
```

## Use instead
```python
torch.save(table[:10].clone(), "rows.pt")
```

## Fix safety
A clone has the same values and other memory: never applied by itself.
"""

LEAST_BYTES = 64 << 10
FACTOR = 8


class _Pinned(NamedTuple):
    """The views that are left of one storage, and its bytes."""

    operands: list[Operand]
    nbytes: int


def check(history: History) -> Iterator[Claim | Finding]:
    """Give views written by `torch.save` with more than themselves, and those that pin memory."""
    told: set[int] = set()
    for at, _ in history.events.where("save".__eq__):
        yield from _saved(history, at, told)
    yield from _pinning(history, told)
    yield from _unused(history, told)


def _unused(history: History, told: set[int]) -> Iterator[Claim]:
    """Give memory that a container, a closure or an exception keeps, run after run: a note."""
    for idle in history.get(IdleMemory).all:
        tensors = [int(one.tensor) for at in idle.made for one in history.events[at].results]
        named = [one for one in tensors if history.names_of(one) and one not in told]
        name = container([history.name_of(one) for one in named]) if len(named) > 1 else ""
        if idle.graph or not name:
            continue
        event = history.events[idle.made[-1]]
        yield Claim(
            tensors=tuple(named),
            cause=("unused", name),
            site=event.site,
            operation=event.operation,
            severity="note",
            subject=name,
            message=say(
                "{name} keeps {size} alive that {line} made and nothing uses again.",
                name=f"`{name}`", size=Bytes(idle.nbytes), line=At(event.site),
            ),
            story=(
                Step("made", event.site, say("made here, run after run")),
                *_keeping(history, name, named, history.site(idle.site)),
            ),
            repair=Repair(say("Keep only what is used later: numbers made of it, its last values,"
                              " the text of an exception.")),
            count=len(idle.made),
            bytes=idle.nbytes,
        )  # fmt: skip


def _keeping(history: History, name: str, tensors: list[int], made: Site) -> Iterator[Step]:
    """Yield the lines by which a container came to hold tensors that a line had made."""
    grows = growth_of(history, name, tensors)
    if grows is not None:
        yield Step("grows", grows, say("`{name}` takes another one here", name=name))
    if "__closure__" in history.name_of(tensors[0]):
        for one in history.get(Holding).fillings.of(made.file, made.function, made.target):
            if one.how == "closure":
                yield Step("kept", one.site, say("a function holds `{x}`", x=made.target))


def _bytes(operand: Operand) -> int:
    first, last = extent(operand)
    return (last - first) * element_size(operand.dtype)


def _large(history: History, operand: Operand, shown: int) -> int:
    """Return the bytes of the storage when it is large beside what is shown of it, else 0."""
    fact = history.trace.storages.get(operand.storage)
    if fact is None or fact.nbytes < LEAST_BYTES or shown * FACTOR > fact.nbytes:
        return 0
    return fact.nbytes


def _saved(history: History, at: int, told: set[int]) -> Iterator[Finding]:
    by_storage: dict[int, list[Operand]] = defaultdict(list)
    for one in history.events[at].reads:
        by_storage[one.storage].append(one)
    for operands in by_storage.values():
        nbytes = _large(history, operands[0], sum(map(_bytes, operands)))
        if nbytes:
            told.update(one.tensor for one in operands)
            yield _finding(history, operands, nbytes, at)


def _pinning(history: History, told: set[int]) -> Iterator[Finding]:
    """Find storages alive at the end on which only small views are left."""
    alive: dict[int, list[Operand]] = defaultdict(list)
    for tensor, life in history.trace.tensors.items():
        operand = history.operand_of(tensor)
        if life.died == UNKNOWN and operand is not None and operand.storage != UNKNOWN:
            alive[operand.storage].append(operand)
    groups: dict[int, list[_Pinned]] = defaultdict(list)
    for operands in alive.values():
        named = [one for one in operands if history.names_of(one.tensor)]
        if not named or any(one.tensor in told for one in operands):
            continue
        # A view holds its base, whose object lives on by that alone: it is no other holder.
        bases = {
            link.source for one in named for link in history.get(Sharing).chain(one.tensor)
        } - {one.tensor for one in named}
        holders = [one for one in operands if one.tensor not in bases]
        nbytes = _large(history, operands[0], sum(map(_bytes, holders)))
        cut = _view_of(history, named[0].tensor)
        if nbytes and cut != UNKNOWN:
            groups[history.events[cut].site].append(_Pinned(named, nbytes))
    for found in groups.values():
        operands = [operand for one in found for operand in one.operands]
        yield _finding(history, operands, sum(one.nbytes for one in found), UNKNOWN, len(found))


def _view_of(history: History, tensor: int) -> int:
    """Position of the call that narrowed the tensor to what it shows, or -1."""
    for link in history.get(Sharing).chain(tensor):
        event = history.events[link.at]
        before = next(one for one in event.reads if one.tensor == link.source)
        after = event.results[0]
        if _bytes(before) > _bytes(after):
            return link.at
    return UNKNOWN


def _finding(
    history: History, operands: list[Operand], nbytes: int, save: int, storages: int = 1
) -> Finding:
    names = [history.name_of(one.tensor) for one in operands]
    subject = (container(names) if storages > 1 else "") or names[0]
    cut = _view_of(history, operands[0].tensor)
    shown = sum(map(_bytes, operands))
    maker = history.events[cut if cut != UNKNOWN else max(save, 0)]
    site = history.site_of(maker)
    whole = f"a storage of {nbytes:,}"
    if storages > 1:
        whole = f"{storages:,} storages of {nbytes:,} together"
    facts = [evidence(history, "made", maker, f"`{subject}` shows {shown:,} bytes of {whole}")]
    if save != UNKNOWN:
        saving = history.events[save]
        where = history.site_of(saving)
        facts.append(Evidence("saved", where, f"torch.save writes all {nbytes:,} bytes of it"))
        what = f"torch.save ({place(where)}) writes the whole storage behind it"
    else:
        what = f"nothing else is left of {'it' if storages == 1 else 'them'}"
    return Finding(
        slug="storage-pinned",
        severity="warning",
        subject=subject,
        site=site,
        operation=maker.operation,
        message=(f"`{subject}` shows {shown:,} bytes of {whole} since {place(site)}, and {what}."),
        also=tuple(one for one in dict.fromkeys(names) if one != subject)[:50],
        evidence=tuple(facts),
        fix=Fix(
            f"Give it memory of its own at {place(site)}: {site.expression or subject}.clone()."
        ),
        count=storages,
        bytes=nbytes,
        tensors=tuple(one.tensor for one in operands),
    )


VERDICT = Verdict(
    slug="storage-pinned",
    severity="warning",
    summary="a small view keeps a large storage alive, or is saved with all of it",
    page=PAGE,
    check=check,
    past="some",
    damage="leak",
    examples=(
        Example(
            "Ten rows saved with their table",
            """import io
import torch

table = torch.randn(20_000, 4)
rows = table[:10]
torch.save(rows, io.BytesIO())
""",
            (Expected("storage-pinned", "rows", 5),),
        ),
        Example(
            "The first token of a large batch",
            """import torch


def first(n):
    x = torch.randn(n, 64)
    return x[0]


kept = first(4096)
""",
            (Expected("storage-pinned", "kept", 6),),
        ),
        Example(
            "A copy, and a view beside its base",
            """import io
import torch

table = torch.randn(20_000, 4)
rows = table[:10].clone()
window = table[:10]
torch.save(rows, io.BytesIO())
""",
        ),
    ),
)
