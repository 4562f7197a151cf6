"""`tie-error`: PyTorch's own errors about graphs, memory and devices, explained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tether.analysis.graph import graph_of
from tether.analysis.history import History
from tether.analysis.wording import evidence, place
from tether.facts import UNKNOWN, Event, Operand, Raised
from tether.finding import Evidence, Finding, Fix
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# tie-error

## What it says
PyTorch refused a call because of how tensors are tied: to a graph, to memory, to a device. The
finding names the tensor and gives the call that works.

## Why it matters
PyTorch's messages say the rule and neither the tensor's name nor which of several ways out fits.

## Known problems
An error that the program catches and expects is explained as well.

## Example
```python
weight -= lr * grad                  # a leaf that requires grad, in place
```

## Use instead
```python
with torch.no_grad():
    weight -= lr * grad
```

## Fix safety
Which way out is meant cannot be known: never applied by itself.
"""


class Told(NamedTuple):
    """What is said of one error: the tensor concerned, why, how to repair it, and where from."""

    tensor: Operand | None
    what: str
    fix: str
    facts: tuple[Evidence, ...] = ()


def check(history: History) -> Iterator[Finding]:
    """Explain each error of the table, once per line and message."""
    told: set[tuple[int, str]] = set()
    for fact in history.trace.raised:
        for pattern, explain in ERRORS:
            if re.search(pattern, fact.message) is None or (fact.site, pattern) in told:
                continue
            told.add((fact.site, pattern))
            yield _finding(history, fact, explain)
            break


def _finding(history: History, fact: Raised, explain: _Explain) -> Finding:
    event = _event(history, fact)
    said = explain(history, event)
    site = history.site(fact.site)
    subject = history.name_of(said.tensor.tensor) if said.tensor is not None else "the call"
    name = f"`{subject}`" if said.tensor is not None else "it"
    first = fact.message.split("\n", 1)[0]
    raised = Evidence("raised", site, first if len(first) <= 120 else first[:119] + "…")
    return Finding(
        slug="tie-error",
        severity="error",
        subject=subject,
        site=site,
        operation=event.operation if event is not None else "call",
        message=said.what.format(name=name, line=place(site)),
        evidence=(raised, *said.facts),
        fix=Fix(said.fix.format(name=subject)),
        tensors=(said.tensor.tensor,) if said.tensor is not None else (),
    )


def _event(history: History, fact: Raised) -> Event | None:
    """Return the call that raised: the last one noted so at that line, near that time."""
    at = history.position(fact.at)
    for number in range(min(at + 1, len(history.events) - 1), max(at - 4, -1), -1):
        event = history.events[number]
        if event.raised and event.site == fact.site:
            return event
    return None


_Explain = Callable[[History, Event | None], Told]


def _first(event: Event | None, *, grad: bool = False) -> Operand | None:
    if event is None:
        return None
    fitting = [one for one in event.reads if one.requires_grad] if grad else list(event.reads)
    return fitting[0] if fitting else None


def _made(history: History, operand: Operand | None, role: str = "made") -> tuple[Evidence, ...]:
    at = history.made_at(operand.tensor) if operand is not None else -1
    if operand is None or at < 0:
        return ()
    name = history.name_of(operand.tensor)
    return (evidence(history, role, history.events[at], f"`{name}` is made here"),)


def _leaf_in_place(history: History, event: Event | None) -> Told:
    leaf = _first(event)
    return Told(
        leaf,
        "{name} is a leaf that requires grad: a write in place ({line}) would change what its"
        " gradient is taken of.",
        "To update it outside the graph, write inside `with torch.no_grad():`; to compute with a"
        " changed value, write into a copy ({name}.clone()), which keeps the gradient. {name}.data"
        " is seen by nobody: a gradient computed from the old value would be silently wrong.",
        _made(history, leaf),
    )


def _numpy_of_grad(history: History, event: Event | None) -> Told:
    return Told(
        _first(event, grad=True),
        "{name} requires grad, and an array has no graph ({line}).",
        "{name}.detach().numpy() shares its memory; {name}.detach().numpy().copy(), or"
        ' tether.copy({name}, to="numpy"), is independent.',
        _made(history, _first(event, grad=True)),
    )


def _numpy_of_device(history: History, event: Event | None) -> Told:
    return Told(
        _first(event),
        "{name} is on a device whose memory NumPy cannot reach ({line}).",
        "{name}.detach().cpu().numpy(): the copy to the CPU is one already, no clone is needed.",
        _made(history, _first(event)),
    )


def _devices(history: History, event: Event | None) -> Told:
    operands = event.reads if event is not None else ()
    storages = history.trace.storages
    places = {
        one.tensor: storages[one.storage].device for one in operands if one.storage in storages
    }
    scalar = [one for one in operands if one.shape]
    here = next((one for one in scalar if places.get(one.tensor) == "cpu"), None)
    there = next((places[one.tensor] for one in operands if places.get(one.tensor) != "cpu"
                  and one.tensor in places), "the other device")  # fmt: skip
    facts = tuple(
        Evidence(one.role, one.site, f"{one.text}, on {places.get(operand.tensor, 'a device')}")
        for operand in operands
        for one in _made(history, operand)
    )
    return Told(
        here or _first(event),
        "{name} and the other operands are on different devices (" + ", ".join(
            f"`{history.name_of(tensor)}` on {device}" for tensor, device in places.items()
        ) + ") at {line}.",
        "Move it once, where it is made: {name} = {name}.to('" + there + "').",
        facts,
    )  # fmt: skip


def _second_backward(history: History, event: Event | None) -> Told:
    loss = _first(event)
    backward = history.events.index(event) if event is not None else UNKNOWN
    joined = _joined(history, backward) if event is not None else None
    facts: tuple[Evidence, ...] = ()
    if joined is not None and event is not None and loss is not None:
        first, at = history.events[joined[0]], joined[1]
        node = history.events[at]
        facts = (
            evidence(history, "loss", first, "backward freed it here"),
            evidence(history, "shared", node, "both passes go through this value"),
        )
        shared = _carried(history, node, graph_of(history, backward))
        if shared is not None and shared.tensor != loss.tensor:
            # One line asks for both passes, and made this value before the first: it is no state.
            if first.site == event.site and history.times(at) == 1:
                return Told(
                    shared,
                    "{name} was computed once, and the first backward pass freed what its graph had"
                    " saved ({line}).",
                    "Compute {name} anew before each backward pass; or, if it is what you train,"
                    " make it a leaf: {name} = {name}.detach().requires_grad_().",
                    facts,
                )
            return Told(
                shared,
                "Two backward passes go through {name}, and the first one freed what it had saved"
                " ({line}).",
                "If it is carried over from an earlier step, cut it there:"
                " {name} = {name}.detach(). If both losses belong to one step, add them and call"
                " backward once.",
                facts,
            )
    return Told(
        loss,
        "backward ran through the graph of {name} before, and freed what it had saved ({line}).",
        "Call backward once (add the losses), compute {name} again, or pass retain_graph=True to"
        " the first call.",
        facts,
    )


def _joined(history: History, at: int) -> tuple[int, int] | None:
    """Return the first backward pass through the graph of another, and the last call they share."""
    graph = graph_of(history, at)
    for earlier in history.backwards:
        common = graph & graph_of(history, earlier) if earlier < at else frozenset()
        if common:
            return earlier, max(common)
    return None


def _carried(history: History, node: Event, graph: frozenset[int]) -> Operand | None:
    """Return the result of a call that later calls of a graph read, or else its first."""
    read = {one.tensor for at in graph for one in history.events[at].reads}
    made = node.results or node.writes
    return next((one for one in made if one.tensor in read), made[0] if made else None)


def _inference(history: History, event: Event | None) -> Told:
    made = [one for one in event.reads if one.version == UNKNOWN] if event is not None else []
    tensor = made[0] if made else None
    return Told(
        tensor,
        "{name} was made in inference mode, and autograd cannot use it outside ({line}).",
        "Make it under torch.no_grad() instead of inference_mode(), or take {name}.clone() here.",
        _made(history, tensor),
    )


def _deepcopy(history: History, event: Event | None) -> Told:
    tensor = _first(event)
    return Told(
        tensor,
        "{name} was computed, and copy.deepcopy copies no graph ({line}).",
        "{name}.detach().clone() copies its values, tether.copy(...) the object that holds it.",
        _made(history, tensor),
    )


def _ddp(history: History, event: Event | None) -> Told:  # noqa: ARG001
    return Told(
        None,
        "Some parameters of the module took no part in the loss, so DDP still waits for their"
        " gradients ({line}).",
        "See gradient-unused and gradient-cut for which ones and why; where that is meant, pass"
        " find_unused_parameters=True to DistributedDataParallel.",
    )


ERRORS: tuple[tuple[str, _Explain], ...] = (
    (r"leaf Variable that requires grad is being used in an in-place operation", _leaf_in_place),
    (r"leaf variable that requires grad", _leaf_in_place),
    (r"Can't call numpy\(\) on Tensor that requires grad", _numpy_of_grad),
    (r"can't convert \S+ device type tensor to numpy", _numpy_of_device),
    (r"Expected all tensors to be on the same device", _devices),
    (r"Tensor on device \S+ is not on the expected device", _devices),
    (r"Input type \(torch\.cuda\.\w+\) and weight type \(torch\.(?!cuda)", _devices),
    (r"Input type \(torch\.(?!cuda)\w+\) and weight type \(torch\.cuda\.", _devices),
    (r"backward through the graph a second time", _second_backward),
    (r"Inference tensors cannot be saved for backward", _inference),
    (r"Inplace update to inference tensor outside InferenceMode", _inference),
    (r"Setting requires_grad=True on inference tensor", _inference),
    (r"Only Tensors created explicitly by the user", _deepcopy),
    (r"Expected to have finished reduction in the prior iteration", _ddp),
)
"""Messages of PyTorch 2.9 to 2.13, and what is said of each."""


VERDICT = Verdict(
    slug="tie-error",
    severity="error",
    summary="PyTorch refused a call because of how tensors are tied: the name, and what works",
    page=PAGE,
    check=check,
    examples=(
        Example(
            "A leaf written in place",
            """import torch

weight = torch.ones(3, requires_grad=True)
try:
    weight += 1
except RuntimeError as error:
    print(error)
""",
            (Expected("tie-error", "weight", 5),),
        ),
        Example(
            "An array of a tensor that requires grad",
            """import torch

w = torch.ones(3, requires_grad=True)
y = w * 2
try:
    y.numpy()
except RuntimeError as error:
    print(error)
""",
            (Expected("tie-error", "y", 6),),
        ),
        Example(
            "A state carried over two backward passes",
            """import torch

w = torch.ones(3, requires_grad=True)
h = torch.zeros(3)
try:
    for _ in range(2):
        h = torch.tanh(h * w)
        h.sum().backward()
except RuntimeError as error:
    print(error)
""",
            (Expected("tie-error", "h", 8),),
        ),
        Example(
            "A deep copy of a computed tensor",
            """import copy
import torch

w = torch.ones(3, requires_grad=True)
y = w * 2
try:
    copy.deepcopy(y)
except RuntimeError as error:
    print(error)
""",
            (Expected("tie-error", "y", 7),),
        ),
        Example(
            "The calls that work",
            """import copy
import torch

w = torch.ones(3, requires_grad=True)
with torch.no_grad():
    w += 1
(w * 2).detach().numpy()
copy.deepcopy(w)
""",
        ),
    ),
)
