"""Terms of a loss that have no graph, though they were computed from what trains.

Of a term that is one number; of one that is many, as each sample's worth by a critic, only where
values were drawn at random without a graph on the way: whoever takes values off the graph for each
element (a straight-through estimator) means it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.gradients.cut_words import described
from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.leaving import left_the_graph
from tether.analysis.history import History, losses_of
from tether.analysis.sharing.holding import Holding
from tether.analysis.training.frozen import taken_off
from tether.facts import Operand, SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, named, say
from tether.source.filling import Fill
from tether.source.names import steps_in
from tether.verdicts.gradient_lost.drawn_apart import is_draw

MOST_BETWEEN = 4
"""Lines between a cut and a term that are told."""


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each line of a lost term."""
    for backward in passes(history):
        yield from _terms(history, backward)


def _terms(history: History, backward: int) -> Iterator[Claim]:
    """Find numbers without a graph that joined a loss, and were computed from what is trained."""
    for term, at in _terms_of(history, backward):
        made = history.made_at(term.tensor)
        left = left_the_graph(history, made) if made >= 0 and _is_real(term) else set()
        left = {one for one in left if reads_trained(history, one)}
        left = {one for one in left if not term.shape or is_draw(history, one)}
        if left:
            # A tensor that was taken off the graph itself says more than values that were taken.
            cut = max(left, key=lambda one: (taken_off(history.events[one]) is not None, one))
            yield _term(history, term, at, cut, backward)


def _terms_of(history: History, backward: int) -> Iterator[tuple[Operand, int]]:
    """Yield the numbers without a graph that are terms of a loss, each with the call that took it.

    A term is what backward needs nothing of: of a factor or an exponent something is saved. So the
    way from the loss leads back through calls that saved none of their operands.
    """
    graph, events = history.get(Graph), history.events
    waiting = [(one, backward) for one in losses_of(events[backward])]
    seen: set[int] = set()
    while waiting:
        number, before = waiting.pop()
        for at in graph.makers_of(number, before):
            kind, reads = graph.kind(at), events[at].reads
            if at in seen or kind is None or not kind.known or [*graph.saved(at, unchecked=True)]:
                continue
            seen.add(at)
            own = events[at].inner == events[at].site  # what a library adds up has no name
            yield from ((one, at) for one in reads if not one.requires_grad
                        and (own or not one.shape))  # fmt: skip
            waiting += [(one, at) for one in reads if one.requires_grad]


def passes(history: History) -> Iterator[int]:
    """Yield the backward passes that were walked to leaves, and went through."""
    graph = history.get(Graph)
    return (
        one for one in history.backwards if graph.leaves(one) and not history.events[one].raised
    )


def _is_real(operand: Operand) -> bool:
    return "float" in operand.dtype


def reads_trained(history: History, at: int) -> bool:
    """Whether a leaf that is trained is behind a call."""
    return not history.get(Graph).leaves_behind(at).isdisjoint(history.held)


def _term(history: History, term: Operand, at: int, cut: int, backward: int) -> Claim:
    site, loss = history.events[cut].site, history.events[backward].site
    name, way = Tensor(term.tensor), _between(history, cut, term)
    own = history.events[cut].inner == site
    call = CallOf(cut) if own else Code(site)
    fix = say("Keep the graph at {cut} (for autograd.grad: create_graph=True)", cut=At(site))
    fix = described(history, cut).fix if is_draw(history, cut) else fix
    return Claim(
        tensors=(term.tensor,),
        cause=("term", site, history.events[at].site),
        site=site,
        calls=(cut,),
        operation=history.events[cut].operation,
        severity="note",
        message=say(
            "{subject} is a term of the loss of {loss} and gives no gradient back: what {call}"
            " returns at {cut} has no graph.",
            loss=At(loss), call=call, cut=At(site),
        ),
        story=(
            Step("cut", site, say("{call} gives values without a graph", call=call)),
            *_kept(history, way, backward),
            *(Step("through", one, say("the value goes through this line"))
              for one in _lines_between(history, way)),
            Step("used", history.events[at].site, say("{x} becomes a term of the loss", x=name)),
            Step("loss", loss, say("backward starts from that loss")),
        ),
        repair=Repair(say("{fix}; or leave {x} out of the loss.", fix=fix, x=name)),
        count=0,
    )  # fmt: skip


def _kept(history: History, way: list[int], backward: int) -> Iterator[Step]:
    """Yield the line that kept what a call gave, where an earlier pass came after the call.

    `way`: the calls from that one on to the term.
    """
    if not any(way[0] < one < backward for one in history.backwards):
        return
    for at in way:
        for one in history.events[at].results:
            names = [name for name in history.names_of(one.tensor) if not name.isidentifier()]
            lines = _keeping(history, at, names[0]) if names else []
            if len(lines) == 1:
                said = say("{name} keeps these values, also for later losses", name=named(names[0]))
                yield Step("kept", lines[0].site, said)
                return


def _keeping(history: History, at: int, name: str) -> list[Fill]:
    """Return what fills a place, or what it lies in, in the function of a call."""
    site = history.site_of(history.events[at])
    place = next(step for step in reversed(steps_in(name)) if not step.startswith("["))
    filled = history.get(Holding).fillings.of_function(*site.scope)
    return [one for one in filled if steps_in(one.target)[-1:] == [place]]


def _between(history: History, cut: int, term: Operand) -> list[int]:
    """Return the calls that lead from a call to a number, in order, with the call itself."""
    edges = history.flow.edges
    waiting = [history.made_at(term.tensor)]
    behind = set(waiting)
    while waiting:
        fresh = {one for one in edges.sources(waiting.pop()) if one > cut} - behind
        behind |= fresh
        waiting += fresh
    reached = {cut}
    for at in sorted(behind):
        if not reached.isdisjoint(edges.sources(at)):
            reached.add(at)
    return sorted(reached)


def _lines_between(history: History, way: list[int]) -> list[SiteId]:
    """Return the lines of a way of calls, the last ones, without those of its ends."""
    ends = {history.events[at].site for at in (way[0], way[-1])}
    sites = dict.fromkeys(history.events[at].site for at in way)
    return [one for one in sites if one not in ends][-MOST_BETWEEN:]
