"""Copies of trained parameters that backward passes give gradients, which nothing uses.

A target network is given its values by the one that is trained. Where a loss goes back through it
as well, its parameters are given gradients that no optimizer holds, that nothing reads, and that
are added up from pass to pass: the graph and the gradients are made for nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.analysis.surroundings import WaysThere
from tether.analysis.training.following import Following
from tether.facts import SiteId, TensorId
from tether.finding import At, Claim, Repair, Step, Tensor, say


class GradedCopy(NamedTuple):
    """Tensors that are copies, used by one line in the graph of a loss; positions."""

    line: SiteId  # of the function that computes the loss: what lines of the model do is right
    tensors: tuple[int, ...]
    of: int  # a trained parameter that the first has its values from
    used: int
    write: int  # gives it those values, after a pass that had given it a gradient
    backward: int
    passes: int


def graded_copies(history: History) -> Iterator[GradedCopy]:
    """Yield them by the line that computes with them."""
    lines: dict[SiteId, list[GradedCopy]] = defaultdict(list)
    for tensor in sorted(history.had_gradient - history.held - history.asked.keys()):
        found = _copy(history, tensor) if not history.in_part else None
        if found is not None:
            lines[found.line].append(found)
    for cases in lines.values():
        yield cases[0]._replace(tensors=tuple(one.tensors[0] for one in cases))


def _copy(history: History, tensor: int) -> GradedCopy | None:
    operand = history.operand_of(tensor)
    if operand is None or not history.is_parameter(tensor):
        return None
    graded = _passes(history, TensorId(tensor))
    backward = next((at for at in history.backwards if _goes_to(history, at, tensor)), -1)
    used = _users(history, backward, tensor) if graded and backward >= 0 else []
    for write in history.writes_to(operand, backward) if used else ():
        source = history.get(Following).source(write, tensor)
        if source >= 0:
            line = history.get(WaysThere).seen_by(min(used), backward)
            return GradedCopy(line, (tensor,), source, min(used), write, backward, graded)
    return None


def _passes(history: History, tensor: TensorId) -> int:
    """Count the passes after which a tensor had a gradient."""
    return len(history.graded_after(tensor))


def _users(history: History, backward: int, tensor: int) -> list[int]:
    """Return the calls of a pass's graph that use a tensor."""
    events = history.events
    behind = history.get(Graph).behind(backward)
    return [at for at in behind if any(one.tensor == tensor for one in events[at].reads)]


def _goes_to(history: History, backward: int, tensor: int) -> bool:
    return tensor in (history.get(Graph).leaves(backward) or ())


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in graded_copies(history):
        yield _claim(history, found)


def _claim(history: History, found: GradedCopy) -> Claim:
    events = history.events
    used, write = found.line, events[found.write].site
    parts = {"source": Tensor(found.of), "write": At(write), "n": found.passes}
    return Claim(
        tensors=found.tensors,
        cause=("copy", used),
        site=used,
        operation=events[found.used].operation,
        severity="note",
        message=say(
            "Nothing uses the gradients that {subject} had after {n} backward passes, and no"
            " optimizer takes them: {write} gives it the values of {source}, as a copy.",
            **parts,
        ),
        story=(
            Step("used", used, say("the loss is computed with it here, with a graph")),
            Step("loss", events[found.backward].site, say("this pass goes back through it")),
            Step("written", write, say("it is given the values of {source}", **parts)),
        ),
        repair=Repair(say("Compute what the copy gives under torch.no_grad(), or freeze it:"
                          " requires_grad_(False).")),
        count=0,
        calls=(found.used,),
    )  # fmt: skip
