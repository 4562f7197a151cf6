"""The facts of a recording as text, for who writes a verdict or looks for one.

``python -m tether.store.listing run.tether`` prints each event: its number, its line, the name that
it is recorded under, and its operands. Names of tables behind it (``names gradients``) print their
rows instead; the last line says which tables have any.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import PurePath

from tether.facts import GRAD_ON, Event, Operand, TensorId, Trace
from tether.store.file import RecordingError, load
from tether.store.layout import TABLES


def lines(trace: Trace, *tables: str) -> Iterator[str]:
    """Yield the rows of some tables; of none: the events, and how many rows the tables have."""
    for name in tables:
        yield from (f"{name} {number}: {fact}" for number, fact in enumerate(getattr(trace, name)))
    if tables:
        return
    names = {one.tensor: one.name for one in reversed(trace.names)}
    for position, event in enumerate(trace.events):
        yield f"{trace.event_id(position)} {_head(trace, event)}"
        for part in ("reads", "results", "writes"):
            yield from (f"    {part} {_operand(one, names)}" for one in getattr(event, part))
    filled = [f"{name} ({len(getattr(trace, name))})" for name in TABLES if getattr(trace, name)]
    yield f"tables: {', '.join(filled)}"


def _head(trace: Trace, event: Event) -> str:
    found = [_place(trace, event.site), event.operation, event.detail]
    if event.inner != event.site:
        found.append(f"(made at {_place(trace, event.inner)})")
    if event.raised:
        found.append("raised")
    if event.grad_mode != GRAD_ON:
        found.append("gradients off")
    return " ".join(filter(None, found))


def _place(trace: Trace, number: int) -> str:
    if number < 0:
        return "nowhere"
    site = trace.sites[number]
    return f"{PurePath(site.file).name}:{site.line}"


def _operand(one: Operand, names: dict[TensorId, str]) -> str:
    """Return an operand as a line: tensor, storage and version by their numbers."""
    marks = " leaf" * one.leaf + " requires_grad" * one.requires_grad
    name = f" {names[one.tensor]}" if one.tensor in names else ""
    lies = f"storage {one.storage} version {one.version}"
    return f"tensor {one.tensor}{name}, {lies}, {one.dtype} {one.shape}{marks}"


def main(path: str, *tables: str) -> str:
    """Print the lines; return what keeps it from that, "" for nothing."""
    unknown = [name for name in tables if name not in TABLES]
    if unknown:
        return f"there is no table {unknown[0]}; there are {', '.join(TABLES)}"
    try:
        sys.stdout.writelines(f"{line}\n" for line in lines(load(path), *tables))
    except RecordingError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if sys.argv[1:] else __doc__)
