"""`saved-overwritten`: backward raised, since a value that it needs was written in place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.saved_values import graph_of, perhaps_saved, saved
from tether.analysis.wording import evidence, place
from tether.facts import UNKNOWN, Operand
from tether.finding import Finding, Fix
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# saved-overwritten

## What it says
Backward raised "one of the variables needed for gradient computation has been modified by an
inplace operation". The finding names the call that saved the value, the line that wrote it
afterwards, and the tensor's name. A note says the same of a loss that nobody called backward on
yet, when it would fail.

## Why it matters
PyTorch's message gives a shape and two version numbers; anomaly detection adds the line that
saved the value, and none says who wrote it.

## Known problems
The saved value is found by the shape and the versions in the message. Where several tensors fit,
the one saved last before the write is named.

## Example
```python
probs = scores.softmax(dim=-1)
probs[:, :, future] = 0.0            # softmax saved probs for its backward
```

## Use instead
```python
probs = scores.softmax(dim=-1)
probs = probs.masked_fill(future, 0.0)
```

## Fix safety
A write that makes a new tensor instead needs memory for it: never applied by itself.
"""

_MESSAGE = re.compile(
    r"modified by an inplace operation: \[[\w.]+ \[(?P<shape>[\d, ]*)\]\]"
    r"(?:, which is output \d+ of (?P<node>\w+),)? is at version (?P<now>\d+);"
    r" expected version (?P<expected>\d+)"
)


class _Saved(NamedTuple):
    """A value that may be the one meant: where it was saved, and what wrote it then."""

    rank: tuple[int, ...]
    at: int
    operand: Operand
    write: int


def check(history: History) -> Iterator[Finding]:
    """Explain each backward that failed for this reason, once per place of the write."""
    told: set[tuple[int, int]] = set()
    for fact in history.trace.raised:
        found = _MESSAGE.search(fact.message)
        if found is None:
            continue
        backward = history.position(fact.at)
        if not 0 <= backward < len(history.events):
            continue
        best = _find(history, backward, found)
        if best is None:
            continue
        key = (history.events[best.write].site, history.events[best.at].site)
        if key not in told:
            told.add(key)
            yield _finding(history, backward, best)
    for at, best in _ahead(history):
        key = (history.events[best.write].site, history.events[best.at].site)
        if key not in told:
            told.add(key)
            yield _warning(history, at, best)


def _ahead(history: History) -> Iterator[tuple[int, _Saved]]:
    """Find losses that no backward has started from, and of which each would fail.

    A loss is a single value alive at the end. What is surely saved has to be written by the
    program's own line; parameters that an optimizer stepped are left out: a loss of an evaluation
    is not meant to be differentiated.
    """
    through = {at for backward in history.backwards for at in graph_of(history, backward)}
    for tensor, life in history.trace.tensors.items():
        operand, made = history.operand_of(tensor), history.made_at(tensor)
        if life.died != UNKNOWN or operand is None or made < 0 or made in through:
            continue
        alone = all(size == 1 for size in operand.shape)
        if not alone or operand.leaf or not operand.requires_grad or not history.names_of(tensor):
            continue
        for at in sorted({made, *graph_of(history, made)}):
            for kept in saved(history.events[at]):
                written = [
                    one
                    for one in history.writes_to(kept, at)
                    if history.events[one].operation != "step"
                    and _version_after(history, one, kept) > kept.version >= 0
                ]
                if written and kept.tensor not in history.held:
                    yield made, _Saved((), at, kept, written[0])


def _warning(history: History, loss: int, best: _Saved) -> Finding:
    """Say of a loss that backward through it would fail."""
    write, saver = history.events[best.write], history.events[best.at]
    name, kept = (
        history.name_of(write.writes[0].tensor).strip("`"),
        history.name_of(best.operand.tensor).strip("`"),
    )
    called = history.name_of(history.events[loss].results[0].tensor)
    return Finding(
        slug="saved-overwritten",
        severity="note",
        subject=name,
        site=history.site_of(write),
        operation=write.operation,
        message=(
            f"`{called}`.backward() would fail: {saver.operation} ({place(history.site_of(saver))})"
            f" saved `{kept}` for it, and {place(history.site_of(write))} wrote it."
        ),
        evidence=(
            evidence(history, "saved", saver, f"{saver.operation} saves `{kept}` for its backward"),
            evidence(history, "written", write, f"{_shown(write.operation)} changes it here"),
            evidence(history, "used", history.events[loss], f"`{called}` is made here"),
        ),
        fix=Fix(_repair(history, name, best)),
        tensors=(write.writes[0].tensor, best.operand.tensor),
    )


def _find(history: History, backward: int, message: re.Match[str]) -> _Saved | None:
    """Find the saved value that the message speaks of among those in the graph."""
    shape = tuple(int(n) for n in message["shape"].replace(" ", "").split(",") if n)
    now, expected = int(message["now"]), int(message["expected"])
    node = (message["node"] or "").removesuffix("0").removesuffix("Backward").lower()
    found = []
    for at in graph_of(history, backward):
        event = history.events[at]
        sure = list(saved(event))
        for operand in perhaps_saved(event):
            if operand.version != expected:
                continue
            if _sizes(operand.shape) != _sizes(shape):
                continue
            # The counter is the whole storage's: a write beside the saved part moves it as well.
            writes = [
                one
                for one in history.on_storage(operand)
                if at < one < backward and _version_after(history, one, operand) > expected
            ]
            if not writes or _version_after(history, writes[-1], operand) != now:
                continue
            exact = operand.shape == shape
            made = event.operation.replace("_", "") == node and operand in event.results
            found.append(_Saved((made, exact, operand in sure, at), at, operand, writes[0]))
    return max(found, default=None)


def _sizes(shape: tuple[int, ...]) -> list[int]:
    """Return what a view that a call makes of its operand, to save that, leaves of a shape."""
    return sorted(size for size in shape if size != 1)


def _version_after(history: History, at: int, operand: Operand) -> int:
    storage = operand.storage
    return max(
        (one.version for one in history.events[at].writes if one.storage == storage), default=-1
    )


def _finding(history: History, backward: int, best: _Saved) -> Finding:
    write, saver = history.events[best.write], history.events[best.at]
    written = next(one for one in write.writes if one.storage == best.operand.storage)
    kept = history.name_of(best.operand.tensor).strip("`")
    name = history.name_of(written.tensor).strip("`")
    carried = _carried(history, backward, best) if write.operation == "step" else None
    facts = [
        evidence(history, "saved", saver, f"{saver.operation} saves `{kept}` for its backward"),
        evidence(history, "written", write, f"{_shown(write.operation)} changes it here"),
    ]
    made = history.made_at(best.operand.tensor)
    if 0 <= made < best.at:
        facts.insert(0, evidence(history, "made", history.events[made], f"`{kept}` is made here"))
    facts.append(evidence(history, "loss", history.events[backward], "backward raises here"))
    subject = name
    if write.operation == "step":
        what = f"the optimizer's step at {place(history.site_of(write))} changed `{name}`"
        fix = (
            f"Run every backward that needs `{name}` before the step at"
            f" {place(history.site_of(write))}, or compute the loss again after it."
        )
        if carried is not None:
            subject = history.name_of(carried.tensor).strip("`")
            what += f", and `{subject}` still carries the graph from before that step"
            fix = f"Cut it between the steps: {subject} = {subject}.detach()."
            use = history.made_at(carried.tensor)
            if use >= 0:
                facts.insert(
                    1, evidence(history, "carried", history.events[use], "its graph begins here")
                )
    else:
        what = f"`{name}` was written at {place(history.site_of(write))}"
        fix = _repair(history, name, best)
    message = (
        f"backward failed: {saver.operation} ({place(history.site_of(saver))}) had saved"
        f" `{kept}` for it, and {what}."
    )
    return Finding(
        slug="saved-overwritten",
        severity="error",
        subject=subject,
        site=history.site_of(write),
        operation=write.operation,
        message=message,
        also=tuple(one for one in dict.fromkeys([name, kept]) if one != subject),
        evidence=tuple(facts),
        fix=Fix(fix),
        tensors=(written.tensor, best.operand.tensor),
    )


def _carried(history: History, backward: int, best: _Saved) -> Operand | None:
    """Find the tensor through which the graph reaches back over the write."""
    for at in sorted(graph_of(history, backward)):
        if at <= best.write:
            continue
        for one in history.events[at].reads:
            made = history.made_at(one.tensor)
            if one.requires_grad and not one.leaf and best.at <= made < best.write:
                return one if _goes_on(history, backward, best.write) else None
    return None


def _goes_on(history: History, backward: int, write: int) -> bool:
    """Whether a loss has leaves of its own after a write: cut there, it would have a gradient."""
    return any(
        one.leaf and one.requires_grad
        for at in graph_of(history, backward)
        if at > write
        for one in history.events[at].reads
    )


def _repair(history: History, name: str, best: _Saved) -> str:
    """Say how to write without changing what was saved."""
    write = history.events[best.write]
    at = place(history.site_of(write))
    if write.operation == "__setitem__":
        if history.times(best.write) > 1:
            return (
                f"Collect the parts in a list and join them once (torch.stack, torch.cat)"
                f" instead of assigning into `{name}` at {at}."
            )
        return (
            f"Make a new tensor at {at}: {name} = torch.where(...) or {name}.masked_fill(...),"
            f" or write into {name}.clone()."
        )
    plain = write.operation.strip("_")
    return f"Use the version that makes a new tensor at {at}: {name} = {name}.{plain}(...)."


def _shown(operation: str) -> str:
    return "an assignment to an index" if operation == "__setitem__" else operation


VERDICT = Verdict(
    slug="saved-overwritten",
    severity="error",
    summary="backward raised: saved here, overwritten there, by these names",
    page=PAGE,
    check=check,
    examples=(
        Example(
            "An assignment into what exp returned",
            """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
h[0] = 0.0
try:
    h.sum().backward()
except RuntimeError:
    print("failed")
""",
            (Expected("saved-overwritten", "h", 5),),
        ),
        Example(
            "An activation in place on a value that a product saved",
            """import torch

w = torch.ones(3, requires_grad=True)
a = w + 1
b = a * a
a.relu_()
try:
    b.sum().backward()
except RuntimeError:
    print("failed")
""",
            (Expected("saved-overwritten", "a", 6),),
        ),
        Example(
            "An addition saves nothing",
            """import torch

w = torch.ones(3, requires_grad=True)
h = w + 1
h[0] = 0.0
h.sum().backward()
""",
        ),
    ),
)
