"""`graph-retained`: old graphs are kept alive, by a container, a name, or gradients."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from tether.analysis.fillings import growth_of
from tether.analysis.graph import Graph, graph_of
from tether.analysis.history import History, losses_of
from tether.analysis.wording import and_more, evidence, place
from tether.facts import UNKNOWN, Operand
from tether.finding import Claim, Evidence, Finding, Fix
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.graph_retained.unused import unused

PAGE = """
# graph-retained

## What it says
This container, attribute or variable holds tensors whose graphs were built in several steps, so
all the values saved for those graphs stay in memory. The finding names the line where it grows,
how many graphs it holds and how many bytes they keep. So do graphs that no backward pass ever goes
through, where run after run of a line leaves them: an evaluation with gradients on, a state that is
carried on.

## Why it matters
Memory grows with every step until it runs out, far from the line that causes it.

## Known problems
After a backward pass a graph's saved values are freed and its nodes stay: the bytes told are those
still alive. What is held by a closure, a hook, a cache, a grad_fn or a kept exception's traceback
may bear no name: it is told by the line that made it. Graphs that no backward pass uses are told
from eight runs and 1 MiB on, of a program that finished.

## Example
```python
losses.append(loss)                  # keeps the graph of every step
```

## Use instead
```python
losses.append(loss.detach())         # or loss.item()
```

## Fix safety
What is detached gives no gradient any more: never applied by itself.
"""

LEAST = 3  # graphs of different steps that a name must hold before it is told
_INDEX = re.compile(r"\[[^\[\]]*\]")


def check(history: History) -> Iterator[Claim | Finding]:
    """Give the containers, the running totals and the gradients that keep graphs."""
    kept = _kept(history)
    told: set[int] = set()
    for name, tensors in _containers(history, kept).items():
        finding = _container(history, name, tensors)
        if finding is not None:
            told.update(tensors)
            yield finding
    for finding in (*_chains(history, kept, told), *_nameless(history, told)):
        told.update(finding.tensors)
        yield finding
    yield from _gradients(history)
    yield from unused(history, told)


def _steps(history: History, calls: Iterable[int], passes: Iterable[int] | None = None) -> int:
    """Count the steps in which these calls were made; 0 where the program has no step.

    Backward passes part them, those of one line at a time: a step may hold passes of several lines
    (two networks' losses). After `autograd.grad` with ``create_graph`` the graph is to go on.
    """
    lines: dict[int, list[int]] = defaultdict(list)
    for at in history.backwards if passes is None else passes:
        event = history.events[at]
        if event.operation == "backward" or not event.create_graph:
            lines[event.site].append(at)
    found = list(calls)
    return max((len({bisect_left(one, at) for at in found}) for one in lines.values()), default=0)


def _passes(history: History, calls: set[int], used: Callable[[frozenset[int]], bool]) -> list[int]:
    """Return the backward passes that part steps for the graphs of some calls.

    Where a pass is to use them (by `used`, asked of its graph), those are the ones that went
    through a part of them: passes of other things may run while a loss is summed up, as those of
    the inner loop of meta-learning do. What no pass ever uses is kept over all of them.
    """
    passes = history.backwards
    if not any(used(graph_of(history, one)) for one in passes):
        return passes
    whole = calls.union(*(graph_of(history, one) for one in calls))
    return [one for one in passes if whole & _ran(history, one)]


def _ran(history: History, backward: int) -> frozenset[int]:
    """Return the calls that a backward pass went through: not those behind what it stopped at."""
    event = history.events[backward]
    found = graph_of(history, backward)
    for operand in event.reads[len(losses_of(event)) :]:
        for maker in history.get(Graph).makers_of(operand, backward):
            found -= graph_of(history, maker) | {maker}
    return found


def _kept(history: History) -> dict[int, Operand]:
    """Return the tensors that hold a graph and are alive at the end, or outlived a step."""
    kept: dict[int, Operand] = {}
    for fact in history.trace.names:
        life = history.trace.tensors.get(fact.tensor)
        operand = history.operand_of(fact.tensor)
        if life is None or operand is None or operand.leaf or not operand.requires_grad:
            continue
        kept[fact.tensor] = operand
    return kept


def _death(history: History, tensor: int) -> int:
    died = history.trace.tensors[tensor].died
    return len(history.events) if died == UNKNOWN else history.position(died)


def _containers(history: History, kept: dict[int, Operand]) -> dict[str, list[int]]:
    """Group the kept tensors by their container: that of ``agent.memory[0][1]`` is the first."""
    groups: dict[str, dict[int, None]] = defaultdict(dict)
    for fact in history.trace.names:
        if fact.tensor in kept and "[" in fact.name:
            groups[_INDEX.split(fact.name, maxsplit=1)[0]].setdefault(fact.tensor)
    return {name: list(tensors) for name, tensors in groups.items()}


def _container(history: History, name: str, tensors: list[int]) -> Finding | None:
    known = {one: history.made_at(one) for one in tensors}
    # Only what lives at one time is held at one time: the latest moment at which most do.
    latest = max(known.values())
    together = [one for one in tensors if known[one] >= 0 and _death(history, one) > latest]
    if not together:
        return None
    together = _with_siblings(history, together)
    calls = [history.made_at(one) for one in together]
    graphs = _steps(history, calls) if history.backwards else _apart(history, calls)
    if graphs >= LEAST and history.backwards:
        made = set(calls)
        graphs = _steps(history, calls, _passes(history, made, lambda graph: bool(graph & made)))
    if graphs < LEAST:
        return None
    first = history.events[calls[0]]
    grows = growth_of(history, name, together)
    called = history.site_of(first)
    site = grows or called
    nbytes = _bytes(history, together, calls)
    facts = [
        evidence(history, "made", first, f"`{called.expression or first.operation}` has a graph"),
    ]
    where = "where it grows"
    if grows is not None:
        where = f"at {place(grows)}"
        facts.insert(
            0, Evidence("grows", site, f"`{name}` takes another tensor with its graph here")
        )
    if history.backwards:
        last = history.events[history.backwards[-1]]
        facts.append(
            evidence(history, "loss", last, "each call of `backward()` here counts as one step")
        )
    return Finding(
        slug="graph-retained",
        severity="warning",
        subject=name,
        site=site,
        operation="append",
        message=(
            f"`{name}` holds {len(together)} tensors with the graphs of {graphs} steps,"
            f" {_size(nbytes)} that nothing else needs"
            + (f"; it grows {where}." if grows is not None else ".")
        ),
        evidence=tuple(facts),
        fix=Fix(_instead(history, together[0], where)),
        count=graphs,
        bytes=nbytes,
        tensors=tuple(together),
    )


def _instead(history: History, tensor: int, where: str) -> str:
    """Return what to keep instead, by what holds it now."""
    name = history.name_of(tensor)
    if "__traceback__" in name:
        return (
            f"Keep the text of the exception {where}: its traceback holds the variables of the"
            " functions that it passed through."
        )
    if "__closure__" in name:
        return f"Give the function values without their graph {where}: .detach(), or .item()."
    return (
        f"Keep values without their graph {where}: .detach() (or .item() for a number), or compute"
        " them under torch.no_grad()."
    )


def _with_siblings(history: History, named: list[int]) -> list[int]:
    """Add what the same calls made and that died together with what bears the container's name.

    Names are looked for now and then, so the last things put there may bear none.
    """
    deaths = {history.trace.tensors[one].died for one in named}
    last = max(deaths)
    if UNKNOWN in deaths:
        return named  # the container was there at the end, when all was named
    keys = {_key(history, one) for one in named}
    found = dict.fromkeys(named)
    for tensor, life in history.trace.tensors.items():
        if life.died == last and life.kind == "Tensor" and _key(history, tensor) in keys:
            operand = history.operand_of(tensor)
            if operand is not None and operand.requires_grad and not operand.leaf:
                found[tensor] = None
    return sorted(found, key=history.made_at)


def _key(history: History, tensor: int) -> tuple[str, int, int] | None:
    at = history.made_at(tensor)
    event = history.events[at] if at >= 0 else None
    return (event.operation, event.site, event.inner) if event is not None else None


def _apart(history: History, made: list[int]) -> int:
    """Count the graphs that have no call in common with those before them."""
    seen: set[int] = set()
    count = 0
    for at in made:
        graph = {at, *graph_of(history, at)}
        if not graph & seen:
            count += 1
        seen |= graph
    return count


def _bytes(history: History, tensors: list[int], made: list[int]) -> int:
    """Bytes that these graphs made and that live as long as the tensors, parameters left out."""
    moment = min(_death(history, one) for one in tensors)
    held = {
        operand.storage
        for tensor in history.held
        if (operand := history.operand_of(tensor)) is not None
    }
    storages: set[int] = set()
    for at in made:
        for one in (at, *graph_of(history, at)):
            storages.update(result.storage for result in history.events[one].results)
    alive = 0
    for serial in storages - held:
        fact = history.trace.storages.get(serial)
        if fact is not None and (fact.freed == UNKNOWN or history.position(fact.freed) >= moment):
            alive += fact.nbytes
    return alive


def _size(nbytes: int) -> str:
    if nbytes >= 1 << 20:
        return f"{nbytes / (1 << 20):.1f} MiB"
    return f"{nbytes / 1024:.1f} KiB" if nbytes >= 1024 else f"{nbytes} bytes"


# -- a running total, a state carried on -------------------------------------------------------


def _chains(history: History, kept: dict[int, Operand], told: set[int]) -> Iterator[Finding]:
    """Find a named tensor whose one graph reaches back over several steps."""
    places: dict[int, tuple[int, int, int]] = {}
    for tensor, operand in kept.items():
        made = history.made_at(tensor)
        if tensor in told or made < 0 or _death(history, tensor) < len(history.events):
            continue
        writes = list(history.writes_to(operand, made))
        at = writes[-1] if writes else made
        reached = {at, *graph_of(history, at)}
        steps = _steps(history, reached)
        if steps >= LEAST:
            steps = _steps(history, reached, _summed(history, at))
        if steps >= LEAST:
            number = history.events[at].site
            if number not in places or steps > places[number][2]:
                places[number] = (tensor, at, steps)
    graphs: set[int] = set()
    for tensor, at, steps in sorted(places.values(), key=lambda one: one[1]):
        graph = graph_of(history, at)
        if at in graphs:
            continue
        graphs |= graph
        yield _chain(history, tensor, at, steps)


def _summed(history: History, at: int) -> list[int]:
    """Return the passes that part steps for a graph that grows at the line of a call."""
    site = history.events[at].site

    def used(graph: frozenset[int]) -> bool:
        return len([one for one in graph if history.events[one].site == site]) > 1

    return _passes(history, {at}, used)


def _chain(history: History, tensor: int, at: int, steps: int) -> Finding:
    event = history.events[at]
    name = history.name_of(tensor)
    site = history.site_of(event)
    nbytes = _bytes(history, [tensor], [at])
    return Finding(
        slug="graph-retained",
        severity="warning",
        subject=name,
        site=site,
        operation=event.operation,
        message=(
            f"The graph of `{name}` reaches back over {steps} steps, {_size(nbytes)}: each"
            f" step at {place(site)} adds to it."
        ),
        evidence=(
            evidence(history, "grows", event, f"`{name}` takes on another step's graph here"),
        ),
        fix=Fix(
            f"Add values without their graph at {place(site)}: .item() or .detach()"
            f" (or {name} = {name}.detach() once a step)."
        ),
        count=steps,
        bytes=nbytes,
        tensors=(tensor,),
    )


# -- held by nothing that has a name -----------------------------------------------------------


def _nameless(history: History, told: set[int]) -> Iterator[Finding]:
    """Find what a line made in several steps, alive at the end though no variable holds it.

    A closure, a hook's closure or an exception's traceback holds it then. What a graph holds lives
    as well: only tensors that lie in no other's graph count, and none in the graph of one told.
    """
    if not history.backwards and history.trace.outcome != "finished":
        return  # the traceback of what ended it holds all that was being worked on
    # A variable holds one tensor at a time: the latest that bore its name.
    latest = {fact.name: fact.tensor for fact in sorted(history.trace.names, key=lambda n: n.at)}
    held = {*latest.values(), *told}
    alive: dict[int, int] = {}  # position of the maker -> tensor
    within: set[int] = set()  # makers in the graph of what is named: held by that
    for tensor, life in history.trace.tensors.items():
        operand, made = history.operand_of(tensor), history.made_at(tensor)
        if life.died != UNKNOWN or operand is None or made < 0 or not operand.requires_grad:
            continue
        if tensor in held:
            within |= {made} | graph_of(history, made)
        elif not operand.leaf and life.kind == "Tensor":
            alive[made] = tensor
    for at in sorted(alive, reverse=True):
        if at not in within:
            within |= graph_of(history, at)
    groups: dict[int, list[int]] = defaultdict(list)
    for at in sorted(alive):
        if at not in within and history.inside(history.events[at], "backward", "function") < 0:
            groups[history.events[at].site].append(at)
    for places in groups.values():
        steps = _steps(history, places) if history.backwards else _apart(history, places)
        if steps >= LEAST:
            yield _held(history, [alive[at] for at in places], places, steps)


def _held(history: History, tensors: list[int], places: list[int], steps: int) -> Finding:
    event = history.events[places[0]]
    site = history.site_of(event)
    name = site.target or history.name_of(tensors[0]).strip("`")
    nbytes = _bytes(history, tensors, places)
    return Finding(
        slug="graph-retained",
        severity="warning",
        subject=name,
        site=site,
        operation=event.operation,
        message=(
            f"`{name}` of {steps} {'steps' if history.backwards else 'calls'} is still alive with"
            f" its graphs, {_size(nbytes)} or {_size(nbytes // steps)} more each time, and no"
            " variable holds the tensor itself: a closure, a hook, a cache, a grad_fn or the"
            " traceback of an exception that is kept does."
        ),
        evidence=(evidence(history, "made", event, f"`{name}` is made with its graph here"),),
        fix=Fix(
            f"Give the closure, hook or cache what it needs of `{name}` and no graph:"
            f" {name}.detach(); of an exception keep the message, not the object."
        ),
        count=len(tensors),
        bytes=nbytes,
        tensors=tuple(tensors),
    )


# -- gradients with a graph --------------------------------------------------------------------


def _gradients(history: History) -> Iterator[Finding]:
    """Find leaves whose .grad was made by backward(create_graph=True) and never let go."""
    made: dict[int, list[int]] = defaultdict(list)
    cleared: dict[int, int] = {}  # tensor -> the last time that its gradient was let go
    cleans = ("zero_grad", "grad.__set__")
    for at, event in history.events.where(lambda name: name == "backward" or name in cleans):
        if event.operation == "backward" and event.create_graph:
            for tensor in _leaves(history, at):
                made[tensor].append(at)
        elif event.operation != "backward" and event.none:
            cleared.update((one.tensor, at) for one in event.reads)
    left: dict[int, list[int]] = defaultdict(list)
    for tensor, backwards in made.items():
        alive = history.trace.tensors[tensor].died == UNKNOWN
        if alive and cleared.get(tensor, UNKNOWN) < backwards[-1]:
            left[history.events[backwards[-1]].site].append(tensor)
    for tensors in left.values():
        event = history.events[made[tensors[0]][-1]]
        names = [f"{history.name_of(one)}.grad" for one in tensors]
        site = history.site_of(event)
        yield Finding(
            slug="graph-retained",
            severity="warning",
            subject=names[0],
            site=site,
            operation="backward",
            message=(
                f"backward(create_graph=True) at {place(site)} leaves {and_more(names)} with the"
                " graph they were made by: parameter, gradient and graph hold each other, and none"
                " is freed."
            ),
            also=tuple(dict.fromkeys(names[1:])),
            evidence=(evidence(history, "grows", event, "each gradient made here has a graph"),),
            fix=Fix(
                "Ask for gradients that are not stored: torch.autograd.grad(loss, parameters,"
                " create_graph=True); or set .grad to None when the step is done."
            ),
            count=len(made[tensors[0]]),
            tensors=tuple(tensors),
        )


def _leaves(history: History, backward: int) -> list[int]:
    """Return the leaves to which a backward pass leads, in the order in which they were used."""
    reads = (one for at in sorted(graph_of(history, backward)) for one in history.events[at].reads)
    return list(dict.fromkeys(one.tensor for one in reads if one.leaf and one.requires_grad))


VERDICT = Verdict(
    slug="graph-retained",
    severity="warning",
    summary="this container or attribute keeps old graphs alive; it grows here",
    page=PAGE,
    check=check,
    past="some",
    damage="leak",
    examples=(
        Example(
            "Losses kept for a plot",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
losses = []
for _ in range(5):
    opt.zero_grad()
    loss = (w * w).sum()
    loss.backward()
    opt.step()
    losses.append(loss)
""",
            (Expected("graph-retained", "losses", 11),),
        ),
        Example(
            "A running total",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
total = 0
for _ in range(5):
    opt.zero_grad()
    loss = (w * w).sum()
    loss.backward()
    opt.step()
    total = total + loss
""",
            (Expected("graph-retained", "total", 11),),
        ),
        Example(
            "Numbers kept, and the parts of one step's loss",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
losses = []
for _ in range(5):
    opt.zero_grad()
    parts = [(w * k).sum() for k in range(4)]
    loss = torch.stack(parts).sum()
    loss.backward()
    opt.step()
    losses.append(loss.item())
""",
        ),
    ),
)
