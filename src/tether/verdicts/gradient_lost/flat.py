"""Values on the way to a loss that give only zeros back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import flat_inputs, operation
from tether.verdicts.gradient_lost.terms import passes, reads_trained


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each line that gives a value only zeros back."""
    for backward in passes(history):
        yield from _flat(history, backward)


def _flat(history: History, backward: int) -> Iterator[Claim]:
    """Find values that enter the graph of a loss only where the derivative is zero everywhere."""
    graph = history.get(Graph)
    calls: dict[int, list[tuple[int, bool]]] = defaultdict(list)  # of a value; gives it zeros
    for at in sorted(graph.behind(backward)):
        for tensor, flat in _entries(history, at):
            calls[tensor].append((at, flat))
    for tensor, given in calls.items():
        made = history.made_at(tensor)
        if made < 0 or not all(flat for _, flat in given) or graph.kind(made) is None:
            continue
        if reads_trained(history, made) and not _all_zero(history, made):
            yield _lost(history, tensor, given[0][0], backward)


def _entries(history: History, at: int) -> Iterator[tuple[int, bool]]:
    """Give the tensors that enter the graph at a call, and whether each gets zeros from it."""
    kind, event = history.get(Graph).kind(at), history.events[at]
    if kind is None:
        return
    keeps = not operation(event.operation).overwrites
    for node, place, target in kind.edges:
        if 0 <= -1 - target < len(event.reads):
            flat = place in flat_inputs(kind.nodes[node])
            yield event.reads[-1 - target].tensor, keeps and flat


def _all_zero(history: History, made: int) -> bool:
    """Whether leaves behind a value got nothing but zeros: then they are what is told."""
    trained = history.get(Graph).leaves_behind(made) & history.trained.keys()
    return any("some" not in history.trained[one] for one in trained)


def _lost(history: History, tensor: int, at: int, backward: int) -> Claim:
    site, loss = history.events[at].site, history.events[backward].site
    made = history.events[history.made_at(tensor)].site
    return Claim(
        tensors=(tensor,),
        cause=("flat", site),
        site=site,
        calls=(at,),
        operation=history.events[at].operation,
        severity="note",
        message=say(
            "{call} at {line} gives only zeros back to {subject}, and no other way leads from there"
            " to the loss of {loss}.",
            call=CallOf(at), line=At(site), loss=At(loss),
        ),
        story=(
            Step("made", made, say("{x} is computed here", x=Tensor(tensor))),
            Step("cut", site, say("the derivative of {call} is zero everywhere", call=CallOf(at))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Use a call whose derivative is not zero (for a sample of a normal"
                          " distribution: mean + std * torch.randn_like(std)), or detach what is"
                          " not to learn.")),
        count=0,
    )  # fmt: skip
