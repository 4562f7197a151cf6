"""Differences that weigh another loss and are trained by it, while a loss of their own closes them.

An estimate is drawn towards a target by one loss. What it still lacks, the difference of the two,
multiplies what other parameters computed. With its graph that product moves the estimate as well:
wherever the product gets smaller, whatever the target is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import Operand, SiteId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation

LEAST = 2
"""Passes of a line that must show it."""

MOST_VIEWS = 4
"""Views between a difference and its product."""


class Weighing(NamedTuple):
    """A difference of an estimate and its target that a product lets gradients into; positions."""

    difference: int
    product: int
    own: int  # the call that draws the estimate towards the target
    backward: int  # of the product
    estimate: int  # tensors
    weighed: int
    tensors: tuple[int, ...]  # that the estimate is computed of, and what it weighs is not


def weighing(history: History) -> Iterator[Weighing]:
    """Yield each such line of a difference once, where several passes show it."""
    if history.in_part or not history.steps:
        return
    found: dict[SiteId, list[Weighing]] = defaultdict(list)
    graph = history.get(Graph)
    for walk in history.trace.walks:
        backward = history.position(walk.event)
        for at in sorted(graph.behind(backward)):
            for one in _weighed_by(history, at, backward):
                found[history.events[one.difference].site].append(one)
    for cases in found.values():
        if len({one.backward for one in cases}) >= LEAST:
            yield cases[0]


def _weighed_by(history: History, product: int, backward: int) -> Iterator[Weighing]:
    """Yield what a product in the graph of a pass multiplies by such a difference."""
    graph, event = history.get(Graph), history.events[product]
    saved = {one.tensor for one in graph.saved(product)}
    factors = [one for one in event.reads if one.requires_grad and one.tensor in saved]
    if len(factors) != 2 or not operation(event.operation).pointwise:
        return
    for weight, weighed in (factors, factors[::-1]):
        difference = _difference(history, weight, product)
        tensors = () if difference < 0 else _moved(history, difference, weighed, product, backward)
        own = _own_loss(history, difference, product, tensors) if tensors else -1
        if own >= 0:
            estimate, _ = _sides(history, difference)
            yield Weighing(
                difference, product, own, backward, estimate.tensor, weighed.tensor, tensors
            )


def _difference(history: History, weight: Operand, before: int) -> int:
    """Return the call that subtracts, of an estimate and what has no graph; -1 for none."""
    graph, events = history.get(Graph), history.events
    for _ in range(MOST_VIEWS):
        makers = list(graph.makers_of(weight, before))
        if len(makers) != 1:
            break
        before = makers[0]
        event, row = events[before], operation(events[before].operation)
        reads = [one for one in event.reads if one.requires_grad]
        if len(reads) != 1 or any(True for _ in graph.saved(before)):
            break
        if row.compares and row.pointwise and len(event.reads) == 2:
            return before
        if not row.view:
            break
        weight = reads[0]
    return -1


def _sides(history: History, difference: int) -> tuple[Operand, Operand]:
    """Return the estimate and its target."""
    one, other = history.events[difference].reads
    return (one, other) if one.requires_grad else (other, one)


def _moved(
    history: History, difference: int, weighed: Operand, product: int, backward: int
) -> tuple[int, ...]:
    """Return the stepped parameters of an estimate alone, whose gradient has a part of the product.

    None of them where no parameters are those of one alone, or what the product gives is cleared.
    """
    graph = history.get(Graph)
    estimate = graph.leaves_behind(difference) & history.held
    others = {
        leaf
        for at in graph.makers_of(weighed, product)
        for leaf in graph.leaves_behind(at) & history.held
    }
    reached = graph.asked(backward) or graph.leaves(backward) or frozenset()
    alone = estimate - others
    if not others - estimate or not alone or not alone <= reached:
        return ()
    kept = (one for one in sorted(alone) if _is_stepped(history, one, backward))
    return tuple(kept)


def _is_stepped(history: History, tensor: int, backward: int) -> bool:
    """Whether the next step uses what a pass gave a parameter: nothing looked at it in between."""
    steps, operand = history.steps_of(tensor), history.operand_of(tensor)
    after = bisect_right(steps, backward)
    if after == len(steps) or operand is None:
        return False
    return not any(
        backward < at < steps[after] and history.events[at].operation == "zero_grad"
        for at in history.on_storage(operand)
    )


def _own_loss(history: History, difference: int, product: int, tensors: tuple[int, ...]) -> int:
    """Return the call by which a loss of its own compares an estimate with its target; or -1.

    Either another comparison of the two, or what uses the very difference and not the product.
    """
    graph, events = history.get(Graph), history.events
    estimate, target = _sides(history, difference)
    made = events[difference].results[0]
    steps = history.steps_of(tensors[0])
    until = steps[bisect_right(steps, product)]
    graphs = set().union(*(graph.behind(at) for at in history.backwards if product < at < until))
    for at in sorted(graphs):
        reads = {one.tensor for one in events[at].reads}
        compares = operation(events[at].operation).compares and at != difference
        if compares and {estimate.tensor, target.tensor} <= reads:
            return at
        alone = graph.leaves_behind(at) <= graph.leaves_behind(difference)
        if made.tensor in reads and alone and at != product and any(graph.saved(at)):
            return at
    return -1


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in weighing(history):
        yield _claim(history, found)


def _claim(history: History, found: Weighing) -> Claim:
    events = history.events
    difference, product, own, loss = (
        events[at].site for at in (found.difference, found.product, found.own, found.backward)
    )
    names = {"estimate": Tensor(found.estimate), "weighed": Tensor(found.weighed)}
    return Claim(
        tensors=found.tensors,
        cause=("weighed", difference),
        site=difference,
        operation=events[found.difference].operation,
        severity="note",
        message=say(
            "Two parts of the loss move {subject}: {own} draws {estimate} towards its target, and"
            " what it lacks, the difference at {line}, multiplies {weighed} at {product} with its"
            " graph.",
            own=At(own), line=At(difference), product=At(product), **names,
        ),
        story=(
            Step("made", difference, say("the difference of {estimate} and its target", **names)),
            Step("used", product, say("it multiplies {weighed}, of other parameters", **names)),
            Step("used", own, say("{estimate} is trained to be its target here", **names)),
            Step("loss", loss, say("backward goes through both factors of the product")),
        ),
        repair=Repair(say("Detach the difference where it multiplies {weighed!s}: with .detach().",
                          **names)),
        count=0,
        calls=(found.difference,),
    )  # fmt: skip
