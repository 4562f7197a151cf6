"""States of objects whose graph grows run by run in a program that makes no backward pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.copies.idle import LEAST_RUNS
from tether.analysis.gradients.graph import graph_of
from tether.analysis.history import History
from tether.facts import UNKNOWN
from tether.finding import At, Claim, Repair, Step, say


def states(history: History, kept: list[int], told: set[object]) -> Iterator[Claim]:
    """Yield a note for each function that adds to the graph of what an object holds at the end.

    Such as keys and values of a decoder that runs with gradients on. What a variable holds is let
    go of with its function.
    """
    functions: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for tensor in kept if not history.backwards else ():
        operand, made = history.operand_of(tensor), history.made_at(tensor)
        if operand is None or made < 0 or not _is_of_an_object(history, tensor):
            continue
        at = max(history.writes_to(operand, made), default=made)
        number = history.events[at].site
        runs = sum(history.events[one].site == number for one in {at, *graph_of(history, at)})
        if runs >= LEAST_RUNS and history.trace.tensors[tensor].died == UNKNOWN:
            site = history.site(number)
            functions[site.scope].append((at, tensor, runs))
    for found in functions.values():
        if told.isdisjoint(history.events[at].site for at, _, _ in found):
            yield _claim(history, sorted(found))


def _claim(history: History, found: list[tuple[int, int, int]]) -> Claim:
    sites = list(dict.fromkeys(history.events[at].site for at, _, _ in found))
    return Claim(
        tensors=tuple(tensor for _, tensor, _ in found),
        cause=("state", sites[0]),
        site=sites[0],
        operation=history.events[found[0][0]].operation,
        severity="note",
        message=say(
            "The graph of {subject} goes back over {n} runs of {line}, each of which adds to it,"
            " and no backward pass is made: gradients are recorded for nothing.",
            n=found[0][2], line=At(sites[0]),
        ),
        story=tuple(
            Step("grows", one, say("each run adds to the graph of all runs before"))
            for one in sites
        ),
        repair=Repair(say("Run it under torch.no_grad() or torch.inference_mode(), or store values"
                          " without their graph: .detach().")),
        count=found[0][2],
    )  # fmt: skip


def _is_of_an_object(history: History, tensor: int) -> bool:
    """Whether an attribute of an object holds a tensor, and not a variable alone."""
    return any("." in name for name in history.names_of(tensor))
