"""Which backward passes add to gradients, and which calls meet gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.libraries import package_of
from tether.facts import Event


def gradients_met(history: History) -> Iterator[tuple[int, Event]]:
    """Yield the calls that clear, set or look at gradients, but for a clipping's own looks."""
    for at, event in history.events.where(meets_gradients):
        if not _looked_by_torch(history, event):
            yield at, event


def _looked_by_torch(history: History, event: Event) -> bool:
    """Whether PyTorch's own line read a gradient: a clipping, which leaves something of it."""
    return event.operation == "grad.__get__" and package_of(history, event) == "torch"


def passes_that_add(history: History) -> list[int]:
    """Return the passes that add to gradients: `backward`, where it did not fail."""
    return [
        at
        for at in history.backwards
        if history.events[at].operation == "backward" and not history.events[at].raised
    ]


def meets_gradients(name: str) -> bool:
    """Whether an operation clears, sets or reads gradients."""
    return name == "zero_grad" or name.startswith("grad.")
