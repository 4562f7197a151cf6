"""Values that are taken from themselves: their difference is zero, for whatever values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.analysis.sharing.with_itself import kept
from tether.facts import Event, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.source.filling import Fill


def claims(history: History) -> Iterator[Claim]:
    """Find calls that take a value from itself: both ways lead to the same leaves, alike.

    Of a line of backward passes, in each that was followed: the first may begin with equal values.
    A call that was given one tensor may do so by its own formula, as a correlation with itself is
    1: that is told where the tensor came by two names, one of which was assigned the other.
    """
    graph = history.get(Graph)
    passes: dict[SiteId, list[dict[SiteId, tuple[int, int]]]] = defaultdict(list)
    for fact in history.trace.followed:
        loss = history.position(fact.event)
        if loss >= 0 and not _says_nothing(history.events[loss]):
            calls = [graph.call_of(fact.thread, node) for node in fact.undone]
            calls = [at for at in calls if at >= 0 and _takes_two(history.events[at])]
            lines = {history.events[at].site: (at, loss) for at in calls}
            passes[history.events[loss].site].append(lines)
    for found in passes.values():
        for line in sorted(set(found[0]).intersection(*found[1:])):
            at, loss = found[0][line]
            if len(_in_graph(history.events[at])) > 1:
                yield _from_itself(history, at, loss)
            elif (names := kept(history, history.events[at])) is not None:
                yield _by_two_names(history, at, loss, names)


def _says_nothing(backward: Event) -> bool:
    """Whether a pass failed, or is differentiated again: the next derivative need not be zero."""
    return backward.raised or backward.create_graph


def _takes_two(event: Event) -> bool:
    """Whether two of what a call was given have a graph, be it the same tensor."""
    return sum(one.requires_grad for one in event.reads) > 1


def _in_graph(event: Event) -> tuple[int, ...]:
    """Return the tensors of a call that require grad, each once."""
    return tuple(dict.fromkeys(int(one.tensor) for one in event.reads if one.requires_grad))


def _from_itself(history: History, at: int, backward: int) -> Claim:
    event, loss = history.events[at], history.events[backward].site
    tensors = _in_graph(event)
    makers = [history.made_at(one) for one in tensors]
    return Claim(
        tensors=tensors,
        cause=("from itself", event.site),
        site=event.site,
        operation=event.operation,
        severity="warning",
        message=say(
            "{call} at {line} takes {y} from {x}. The same calls computed both of the same values,"
            " each with a graph: what comes back from the loss of {loss} over one of them undoes"
            " what comes back over the other.",
            call=CallOf(at), line=At(event.site), loss=At(loss), x=Tensor(tensors[0]),
            y=Tensor(tensors[-1]),
        ),
        story=(
            *(Step("made", history.events[one].site, say("{x} is computed here",
              x=Tensor(tensor))) for tensor, one in zip(tensors, makers, strict=True) if one >= 0),
            Step("zero", event.site, say("{call} gives opposite gradients to both",
                 call=CallOf(at))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Compute the one that is to stay as it was under torch.no_grad(), or"
                          " detach it.")),
        count=history.times(at),
        calls=(at,),
    )  # fmt: skip


def _by_two_names(history: History, at: int, backward: int, names: tuple[str, str, Fill]) -> Claim:
    event, loss = history.events[at], history.events[backward].site
    tensor, made = event.reads[0].tensor, history.made_at(event.reads[0].tensor)
    name, other, fill = names
    parts = {
        "call": CallOf(at), "line": At(event.site), "loss": At(loss), "given": At(fill.site),
        "name": name, "other": other,
    }  # fmt: skip
    return Claim(
        tensors=(tensor,),
        cause=("by two names", event.site),
        site=event.site,
        calls=(at,),
        operation=event.operation,
        severity="warning",
        message=say(
            "{call} at {line} takes `{other}` from itself: `{name}` is the same tensor since"
            " {given}, with its graph. What comes back from the loss of {loss} to it adds up to"
            " zero.",
            **parts,
        ),
        story=(
            *([Step("made", history.events[made].site, say("{x} is computed here",
               x=Tensor(tensor)))] if made >= 0 else ()),
            Step("shared", fill.site, say("`{name}` is given `{other}` itself", **parts)),
            Step("zero", event.site, say("{call} gives it opposite gradients", **parts)),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Where `{name}` is to stay as it was, give it the values without their"
                          " graph at {given}: `{other}.detach()`.", **parts)),
        count=history.times(at),
    )  # fmt: skip
