"""Entries written into the dict that ``state_dict()`` has just made, which nothing gets to see.

It is made anew by each call: the module and the optimizer keep what they have. Who made it is told
by what was recorded: the tensors in it were handed out by PyTorch's own line, or by its optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, at_line
from tether.facts import SiteId
from tether.finding import At, Claim, Code, Repair, Segment, Step, say
from tether.source.vain_stores import stores_in_vain

STATE = "state_dict"
_HANDS_OUT = "Module._save_to_state_dict"


MOST_LINES = 3
"""Lines that write an entry, of those that are told."""


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


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in written_in_vain(history):
        yield _claim(history, found)


def _claim(history: History, found: WrittenInVain) -> Claim:
    made = history.site(found.made)
    lines = [at_line(made, line) for line in found.lines]
    load = "the result" if made.target == "" else f"`{made.target}`"
    return Claim(
        tensors=(),
        subject=made.expression,
        cause=("written", found.made),
        site=lines[0],
        operation="state_dict",
        message=say(
            "What {line} writes into the dict that {call} made reaches nothing: each call makes a"
            f" dict of its own, and the {found.owner} keeps what it has.",
            line=At(lines[0]), call=Code(found.made),
        ),
        story=(
            Step("made", found.made, say("{call} makes a new dict", call=Code(found.made))),
            *(Step("written", one, say("an entry of this dict is written, and nothing takes it"))
              for one in lines[:MOST_LINES]),
        ),
        repair=Repair(
            say(f"Write into the tensors ({{call}}[name].copy_(value)), or hand {load} to"
                " load_state_dict() once it is changed.", call=Segment(made.expression, "code"))
            if found.owner == "module"
            else say("Write into the optimizer's own param_groups, or hand the changed dict to"
                     " load_state_dict().")
        ),
        count=0,
    )  # fmt: skip
