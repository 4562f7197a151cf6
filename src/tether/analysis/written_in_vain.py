"""Entries written into the dict that ``state_dict()`` has just made, which nothing gets to see.

It is made anew by each call: the module and the optimizer keep what they have. Who made it is told
by what was recorded: the tensors in it were handed out by PyTorch's own line, or by its optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.facts import SiteId
from tether.source.vain_stores import stores_in_vain

STATE = "state_dict"
_HANDS_OUT = "Module._save_to_state_dict"


class WrittenInVain(NamedTuple):
    """A line that made a dict, and those that write into it alone."""

    made: SiteId
    owner: str  # "module", "optimizer"
    lines: tuple[int, ...]
    tensors: tuple[int, ...]  # the first few that the dict holds


def written_in_vain(history: History) -> Iterator[WrittenInVain]:
    """Yield the lines that made such a dict."""
    seen = set[SiteId]()
    for _, event in history.events.where({"detach", STATE}.__contains__):
        of_module = event.operation != STATE
        handed = not of_module or history.site(event.inner).function == _HANDS_OUT
        if event.site in seen or not handed:
            continue
        seen.add(event.site)
        site = history.site(event.site)
        source = history.get(Surroundings).source(site.file)
        lines = tuple(stores_in_vain(source, site, STATE))
        if lines:
            owner = "module" if of_module else "optimizer"
            shown = tuple(int(one.tensor) for one in event.reads[:1])
            yield WrittenInVain(event.site, owner, lines, shown)
