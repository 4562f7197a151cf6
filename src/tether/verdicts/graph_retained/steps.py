"""How many steps the graphs lie apart that something keeps, and how much memory they are.

Backward passes part steps, those of one line at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable

from tether.analysis.gradients.graph import Graph, graph_of
from tether.analysis.history import History, losses_of
from tether.facts import UNKNOWN

LEAST = 3  # graphs of different steps that a name must hold before it is told


def steps_of(history: History, calls: Iterable[int], passes: Iterable[int] | None = None) -> int:
    """Count the steps in which these calls were made; 0 where the program has no step.

    Backward passes part them, those of one line at a time: a step may hold passes of several lines
    (two networks' losses). After `autograd.grad` with ``create_graph`` the graph is to go on.
    """
    lines = history.get(_PassesByLine).lines if passes is None else _by_line(history, passes)
    found = list(calls)
    return max((len({bisect_left(one, at) for at in found}) for one in lines.values()), default=0)


class _PassesByLine:
    """All backward passes that part steps, by their lines."""

    def __init__(self, history: History) -> None:
        self.lines = _by_line(history, history.backwards)


def _by_line(history: History, passes: Iterable[int]) -> dict[int, list[int]]:
    lines: dict[int, list[int]] = defaultdict(list)
    for at in passes:
        event = history.events[at]
        ends = event.operation == "backward" or not event.create_graph
        # One that a custom Function runs for itself is a part of the call that it is made for.
        if ends and history.inside(event, "function", "backward", "hook") < 0:
            lines[event.site].append(at)
    return lines


def _passes(
    history: History, calls: set[int], used: Callable[[frozenset[int]], bool]
) -> list[int] | None:
    """Return the backward passes that part steps for the graphs of some calls; None: all do.

    Where a pass is to use them (by `used`, asked of its graph), those are the ones that went
    through a part of them: passes of other things may run while a loss is summed up, as those of
    the inner loop of meta-learning do. What no pass ever uses is kept over all of them.
    """
    passes = history.backwards
    if not any(used(graph_of(history, one)) for one in passes):
        return None
    whole = calls.union(*(graph_of(history, one) for one in calls))
    return [one for one in passes if whole & _ran(history, one)]


def _ran(history: History, backward: int) -> frozenset[int]:
    """Return the calls that a backward pass went through: not those behind what it stopped at."""
    event = history.events[backward]
    found = graph_of(history, backward)
    for operand in event.reads[len(losses_of(event)) :]:
        for maker in history.get(Graph).makers_of(operand, backward):
            found -= graph_of(history, maker) | {maker}
    return found


def death_of(history: History, tensor: int) -> int:
    """Return the position at which a tensor went; behind the last call where it did not."""
    died = history.trace.tensors[tensor].died
    return len(history.events) if died == UNKNOWN else history.position(died)


def graphs_apart(history: History, calls: list[int]) -> int:
    """Count the graphs of different steps that some calls have."""
    graphs = steps_of(history, calls) if history.backwards else runs_apart(history, calls)
    if graphs >= LEAST and history.backwards:
        made = set(calls)
        graphs = steps_of(history, calls, _passes(history, made, lambda graph: bool(graph & made)))
    return graphs


def key_of(history: History, tensor: int) -> tuple[str, int, int] | None:
    """Return what tensors have in common that one line made: the operation, the line, PyTorch's."""
    at = history.made_at(tensor)
    event = history.events[at] if at >= 0 else None
    return (event.operation, event.site, event.inner) if event is not None else None


def runs_apart(history: History, made: list[int]) -> int:
    """Count the graphs that have no call in common with those before them."""
    seen: set[int] = set()
    count = 0
    for at in made:
        graph = {at, *graph_of(history, at)}
        if not graph & seen:
            count += 1
        seen |= graph
    return count


def bytes_kept(history: History, tensors: list[int], made: list[int]) -> int:
    """Bytes that these graphs made and that live as long as the tensors, parameters left out."""
    moment = min(death_of(history, one) for one in tensors)
    held = {
        operand.storage
        for tensor in history.held
        if (operand := history.operand_of(tensor)) is not None
    }
    storages: set[int] = set()
    for at in made:
        for one in (at, *graph_of(history, at)):
            storages.update(result.storage for result in history.events[one].results)
    alive = 0
    for serial in storages - held:
        fact = history.trace.storages.get(serial)
        if fact is not None and (fact.freed == UNKNOWN or history.position(fact.freed) >= moment):
            alive += fact.nbytes
    return alive
