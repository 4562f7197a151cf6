"""`storage-pinned`: a small view keeps a large storage alive, or writes it into a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from tether.analysis.history import History
from tether.analysis.sharing.fillings import put_at
from tether.analysis.sharing.shared_memory import Sharing
from tether.finding import Claim, Code, Step, say
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.storage_pinned import arrays, caches, cut_off, left_over, small_views

PAGE = """
# storage-pinned

## What it says
A small view is all that is left of a large storage, which stays in memory for it; or a small view
was given to `torch.save`, which writes the whole storage behind it. So it is with NumPy arrays that
show a part of what `numpy()` gave, and with objects that only the caches of functions
(`functools.lru_cache`) still have, as keys. A note tells of memory that a
line makes run after run, that a container, a closure or an exception's traceback keeps, and that
nothing uses again; and of memory of which a line took a small view, run after run, that is kept
while no call uses more of it.

## Why it matters
Ten rows of a table hold the table; a file of a few hundred bytes becomes a file of megabytes.

## Known problems
Only storages of at least 64 KiB, of which the view shows at most an eighth, are reported; from 4
KiB on where a container or an object keeps the view. Less than 1 MiB in all is a note, unless it
was saved to a file. Of what is kept unused, at least eight runs and 1 MiB of a program that
finished, more than its line had had before. Which other holders a storage has outside Python is not
known. Of arrays only those are told of that hold all references to the memory, at the end or while
as many again were made.

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


def check(history: History) -> Iterator[Claim]:
    """Give views written by `torch.save` with more than themselves, and those that pin memory."""
    for claim in _all(history):
        yield replace(claim, story=(*claim.story, *_way(history, claim)))


def _way(history: History, claim: Claim) -> Iterator[Step]:
    """Yield the lines by which what is kept came of the memory, and the one that puts it away."""
    tensor = claim.tensors[-1]
    told = {one.site for one in claim.story}
    for link in history.get(Sharing).chain(tensor):
        event = history.events[link.at]
        if event.site not in told:
            told.add(event.site)
            yield Step("shared", event.site, say("{code} is a view of it", code=Code(event.site)))
    put = put_at(history, tensor)
    if put is not None and all(step.role != "grows" for step in claim.story):
        yield Step("grows", put, say("kept in a container from here on"))


def _all(history: History) -> Iterator[Claim]:
    told: set[int] = set()
    for claim in chain(small_views.saved(history), caches.claims(history)):
        told.update(claim.tensors)
        yield claim
    yield from arrays.claims(history)
    for claim in (*small_views.pinned(history, told), *left_over.claims(history, told)):
        told.update(claim.tensors)
        yield claim
    yield from cut_off.claims(history, told)


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
