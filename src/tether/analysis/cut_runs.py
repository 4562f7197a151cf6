"""Lines that run several times for one loss, each run cut off from the one before.

The values of a run go on into the next one, and the graph does not: it was made, and no backward
pass goes through it. So of a recurrence the last run alone is trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.cuts import Cuts, Met
from tether.analysis.graph import Graph
from tether.analysis.history import History, latest

MOST_PASSES = 8
"""Later backward passes that are asked whether they go through a run."""


class CutRuns(NamedTuple):
    """A line whose runs are cut off from each other, for one loss."""

    cut: int  # the last call that cuts
    entered: int  # the run that goes on with its values
    loss: int  # the backward pass
    tensors: tuple[int, ...]  # that the runs use
    runs: int  # of that line since the pass before
    reached: int  # those that backward goes through


def cut_runs(history: History) -> Iterator[CutRuns]:
    """Yield the first case of each line that cuts."""
    seen = set[object]()
    for met in history.get(Cuts).met:
        site = history.events[met.cut].site
        found = None if site in seen else _between(history, met)
        if found is not None:
            seen.add(site)
            yield found


def _between(history: History, met: Met) -> CutRuns | None:
    graph, events = history.get(Graph), history.events
    since = latest(history.backwards, met.loss)
    runs = _alike(history, since + 1, met)
    before = [at for at in runs if at < met.cut]
    if not before or _passed(history, before):
        return None
    makers = {at for one in events[met.cut].reads for at in graph.makers_of(one, met.cut)}
    tensors = graph.leaves_behind(met.entered) & graph.leaves_behind(before[-1]) & history.held
    if not tensors or before[-1] not in makers.union(*map(graph.behind, makers)):
        return None
    reached = graph.behind(met.loss).intersection(runs)
    order = sorted(tensors, key=lambda one: history.order.get(one, 0))
    return CutRuns(met.cut, met.entered, met.loss, tuple(order), len(runs), len(reached))


def _passed(history: History, runs: list[int]) -> bool:
    """Whether some backward pass goes through one of the runs."""
    passes = [at for at in history.backwards if at > runs[-1]][:MOST_PASSES]
    return any(not history.get(Graph).behind(at).isdisjoint(runs) for at in passes)


def _alike(history: History, first: int, met: Met) -> list[int]:
    """Return the runs, up to the loss, of the line by which the values joined the graph."""
    kinds, *places = (
        history.events.column(name) for name in ("kind", "operation", "site", "inner")
    )
    alike = kinds[first : met.loss] >= 0
    for one in places:
        alike = alike & (one[first : met.loss] == one[met.entered])
    found: list[int] = (np.flatnonzero(alike) + first).tolist()
    return found
