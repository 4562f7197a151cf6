"""What is said of who keeps a graph: how a tensor got there, and what to keep instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tether.analysis.history import History
from tether.analysis.sharing.fillings import handed_on
from tether.facts import CACHE, WAITING
from tether.finding import Sentence, Step, say

_INSTEAD = {
    "__traceback__": "Keep the text of the exception {where}: its traceback holds the variables of"
    " the functions that it passed through.",
    "__closure__": "Give the function values without their graph {where}: .detach(), or .item().",
    CACHE: "Compute it once and hand it on, or cache what plain numbers decide: a cache finds"
    " nothing by a new tensor, and keeps it and its result.",
    WAITING: "Close a generator that is not run to its end, with .close(), or let go of it: while"
    " it waits, its variables live.",
}
"""What to do instead, by the word in a name that says what holds a tensor."""


def handed_on_at(history: History, tensor: int) -> Iterator[Step]:
    """Yield the line that hands a tensor to a call that may be the one that keeps it."""
    site = handed_on(history, tensor)
    if site is not None:
        text = say(
            "`{name}` itself is handed on here, with its graph",
            name=history.site_of(history.events[history.made_at(tensor)]).target,
        )
        yield Step("grows", site, text)


def instead(history: History, tensors: Sequence[int], where: Sentence) -> Sentence:
    """Return what to keep instead, by what holds some tensors now."""
    for name in map(history.name_of, tensors):
        for word, sentence in _INSTEAD.items():
            if word in name:
                return say(sentence, where=where)
    return say(
        "Keep values without their graph {where}: .detach() (or .item() for a number), or compute"
        " them under torch.no_grad().",
        where=where,
    )
