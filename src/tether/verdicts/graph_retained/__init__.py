"""`graph-retained`: old graphs are kept alive, by a container, a name, or gradients."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tether.analysis.fillings import comprehended, growth_of
from tether.analysis.graph import Graph, graph_of
from tether.analysis.history import History, losses_of
from tether.analysis.idle import IdleMemory
from tether.analysis.kept_by import kept_by
from tether.analysis.on_ctx import results_on_ctx
from tether.analysis.wording import and_more
from tether.facts import CREATE_GRAPH, UNKNOWN, TensorId
from tether.finding import At, Bytes, Claim, Code, Repair, Step, say
from tether.store.columns import tensors_of
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.graph_retained.on_ctx import LARGE, on_ctx
from tether.verdicts.graph_retained.states import states
from tether.verdicts.graph_retained.summed import summed, summed_after_passes, summed_in_vain
from tether.verdicts.graph_retained.telling import handed_on_at, instead
from tether.verdicts.graph_retained.unused import unused
from tether.verdicts.graph_retained.viewed import held_by_views

PAGE = """
# graph-retained

## What it says
This container, attribute or variable holds tensors whose graphs were built in several steps, so all
the values saved for those graphs stay in memory. The finding names the line where it grows, how
many graphs it holds and how many bytes they keep. So do graphs that no backward pass ever goes
through, where run after run of a line leaves them: an evaluation with gradients on, a state that is
carried on. So do graphs of several steps that went at one moment: one thing, such as a list of
linked objects, held them until then. So does a row taken under no_grad: it has no graph and is a
view, and a view holds the tensor that it is a view of. So does the result of a custom Function that
is an attribute of its own ctx: the three hold one another until Python's garbage collector runs. So
does a sum of losses that no backward pass goes through, such as that of a validation. A note tells
of losses of many runs that are summed up before one backward pass, where the runs have only
parameters in common: a pass for each gives the same gradients and keeps one graph at a time. Notes
tell of losses that are added up after the backward pass of each, of what an object holds of runs
after which no backward pass is made, and of graphs in rings of objects (reference cycles), which
go only when Python's garbage collector runs.

## Why it matters
Memory grows with every step until it runs out, far from the line that causes it.

## Known problems
After a backward pass a graph's saved values are freed and its nodes stay: the bytes told are those
still alive. What is held by a closure, a hook, a cache, a grad_fn, a generator that waits or a
kept exception's traceback may bear no name: it is told by the line that made it, and by the one
line that hands it on. Graphs that no backward pass uses are told from eight runs and 1 MiB on, of a
program that finished, and from 64 KiB on as a note; losses that are summed up, from 1 MiB on. What
is in rings is told from 1 MiB on at one run of the collector; where it is switched off, as what is
kept.

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


def check(history: History) -> Iterator[Claim]:
    """Give the containers, the running totals and the gradients that keep graphs."""
    kept = [one for one in _named(history) if history.had_graph(one)]
    told: set[int] = set()
    for name, tensors in _containers(history, set(kept)).items():
        claim = _container(history, name, tensors)
        if claim is not None:
            told.update(claim.tensors)
            yield claim
    for claims in (
        _chains(history, kept, told), _nameless(history, told), _in_rings(history),
        _let_go(history, told),
    ):  # fmt: skip
        for claim in claims:
            told.update(claim.tensors)
            yield claim
    yield from _gradients(history)
    yield from on_ctx(history)
    idle = list(unused(history, told))
    yield from idle
    yield from states(history, kept, {claim.site for claim in idle})
    yield from summed(history)
    spoken = _spoken_of(history, told)
    yield from summed_in_vain(history, spoken)
    yield from summed_after_passes(history, spoken)


def _spoken_of(history: History, told: set[int]) -> set[int]:
    """Return the calls of graphs that were told of."""
    spoken = {at for one in history.get(IdleMemory).all if one.graph for at in one.made}
    makers = {at for at in map(history.made_at, told) if at >= 0}
    return spoken.union(makers, *(graph_of(history, one) for one in makers))


def _named(history: History) -> list[int]:
    """Return the tensors that some name led to: alive at the end, or they outlived a step."""
    return list(dict.fromkeys(fact.tensor for fact in history.trace.names))


def _steps(history: History, calls: Iterable[int], passes: Iterable[int] | None = None) -> int:
    """Count the steps in which these calls were made; 0 where the program has no step.

    Backward passes part them, those of one line at a time: a step may hold passes of several lines
    (two networks' losses). After `autograd.grad` with ``create_graph`` the graph is to go on.
    """
    lines = history.get(_PassesByLine).lines if passes is None else _by_line(history, passes)
    found = list(calls)
    return max((len({bisect_left(one, at) for at in found}) for one in lines.values()), default=0)


class _PassesByLine:
    """All backward passes that part steps, by their lines."""

    def __init__(self, history: History) -> None:
        self.lines = _by_line(history, history.backwards)


def _by_line(history: History, passes: Iterable[int]) -> dict[int, list[int]]:
    lines: dict[int, list[int]] = defaultdict(list)
    for at in passes:
        event = history.events[at]
        ends = event.operation == "backward" or not event.create_graph
        # One that a custom Function runs for itself is a part of the call that it is made for.
        if ends and history.inside(event, "function", "backward", "hook") < 0:
            lines[event.site].append(at)
    return lines


def _passes(
    history: History, calls: set[int], used: Callable[[frozenset[int]], bool]
) -> list[int] | None:
    """Return the backward passes that part steps for the graphs of some calls; None: all do.

    Where a pass is to use them (by `used`, asked of its graph), those are the ones that went
    through a part of them: passes of other things may run while a loss is summed up, as those of
    the inner loop of meta-learning do. What no pass ever uses is kept over all of them.
    """
    passes = history.backwards
    if not any(used(graph_of(history, one)) for one in passes):
        return None
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


def _death(history: History, tensor: int) -> int:
    died = history.trace.tensors[tensor].died
    return len(history.events) if died == UNKNOWN else history.position(died)


def _containers(history: History, kept: set[int]) -> dict[str, list[int]]:
    """Group the kept tensors by their container: that of ``agent.memory[0][1]`` is the first.

    A place holds one tensor at a time, the latest that was found there; of a set no place is known.
    """
    groups: dict[str, dict[int, None]] = defaultdict(dict)
    latest = {fact.name: fact.tensor for fact in sorted(history.trace.names, key=lambda n: n.at)}
    for fact in history.trace.names:
        there = latest[fact.name] == fact.tensor or "[...]" in fact.name
        if fact.tensor in kept and there and "[" in fact.name:
            groups[fact.name.partition("[")[0]].setdefault(fact.tensor)
    return {name: list(tensors) for name, tensors in _apart_from(history, groups).items()}


def _apart_from(history: History, groups: dict[str, dict[int, None]]) -> dict[str, dict[int, None]]:
    """Join the containers that hold a tensor in common and that no search found side by side.

    A search names what is in a container once: two names of one were found by different searches.
    """
    moments: dict[str, set[int]] = defaultdict(set)
    for fact in history.trace.names:
        moments[fact.name.partition("[")[0]].add(fact.at)
    found: dict[str, dict[int, None]] = {}
    for name in sorted(groups, key=lambda one: -len(groups[one])):
        same = (
            one for one in found
            if groups[name].keys() & found[one].keys() and moments[one].isdisjoint(moments[name])
        )  # fmt: skip
        found.setdefault(next(same, name), {}).update(groups[name])
    return found


def _together(history: History, tensors: list[int]) -> list[int]:
    """Return what a container held at one time: at the latest moment at which it held most."""
    known = {one: history.made_at(one) for one in tensors}
    latest = max(known.values())
    found = [one for one in tensors if known[one] >= 0 and _death(history, one) > latest]
    return _with_siblings(history, found) if found else []


def _graphs(history: History, calls: list[int]) -> int:
    """Count the graphs of different steps that some calls have."""
    graphs = _steps(history, calls) if history.backwards else _apart(history, calls)
    if graphs >= LEAST and history.backwards:
        made = set(calls)
        graphs = _steps(history, calls, _passes(history, made, lambda graph: bool(graph & made)))
    return graphs


def _container(history: History, name: str, tensors: list[int]) -> Claim | None:
    together = _together(history, tensors)
    calls = [history.made_at(one) for one in together]
    graphs = _graphs(history, calls)
    if graphs < LEAST:
        return None
    grows, made = growth_of(history, name, together), history.events[calls[0]].site
    nbytes = _bytes(history, together, calls)
    where = say("where it grows") if grows is None else say("at {line}", line=At(grows))
    story = [Step("made", made, say("{code} has a graph", code=Code(made)))]
    if grows is not None:
        text = say("`{name}` takes another tensor with its graph here", name=name)
        story.insert(0, Step("grows", grows, text))
    else:
        story += handed_on_at(history, together[0])
    story += kept_by(history, together)
    story += _totals(history, calls[-1])
    if history.backwards:
        loss = history.events[history.backwards[-1]].site
        story.append(Step("loss", loss, say("each call of `backward()` here counts as one step")))
    return Claim(
        tensors=tuple(together),
        cause=("container", name),
        site=made if grows is None else grows,
        operation="append",
        subject=name,
        message=say(
            "`{name}` holds {count} tensors with the graphs of {graphs} steps, {size} that nothing"
            " else needs{growing}.",
            name=name, count=len(together), graphs=graphs, size=Bytes(nbytes),
            growing="" if grows is None else say("; it grows {where}", where=where),
        ),
        story=tuple(story),
        repair=Repair(instead(history, together, where)),
        count=graphs,
        bytes=nbytes,
    )  # fmt: skip


def _totals(history: History, made: int) -> Iterator[Step]:
    """Yield the lines by which the graph of a call goes back over steps: each adds to a total."""
    lines: dict[int, list[int]] = defaultdict(list)
    for at in sorted(graph_of(history, made)):
        lines[history.events[at].site].append(at)
    for site, runs in lines.items():
        given = {one.tensor for at in runs[1:] for one in history.events[at].reads}
        carried = sum(one.tensor in given for at in runs for one in history.events[at].results)
        if carried >= LEAST - 1 and _steps(history, runs) >= LEAST:
            text = say("{code} adds the graph of each step to what came before", code=Code(site))
            yield Step("grows", site, text)


def _with_siblings(history: History, named: list[int]) -> list[int]:
    """Add what the same calls made and that died together with what bears the container's name.

    Names are looked for now and then, so the last things put there may bear none.
    """
    deaths = {history.trace.tensors[one].died for one in named}
    last = max(deaths)
    if UNKNOWN in deaths:
        return named  # the container was there at the end, when all was named
    keys = {_key(history, one) for one in named}
    lives = tensors_of(history.trace.tensors)
    plain = [number for number, word in lives.names.words.items() if word == "Tensor"]
    alike = (lives.column("died") == last) & np.isin(lives.column("kind"), plain)
    found = dict.fromkeys(named)
    for tensor in lives.column("serial")[alike].tolist():
        if history.had_graph(tensor) and _key(history, tensor) in keys:
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


# -- a running total, a state carried on -------------------------------------------------------


def _chains(history: History, kept: list[int], told: set[int]) -> Iterator[Claim]:
    """Find a named tensor whose one graph reaches back over several steps.

    The graph that can reach furthest is followed first: those that cannot reach as far as what
    was found at their line are not, as a graph is as long as the program has run.
    """
    places: dict[int, tuple[int, int, int]] = {}
    ends = [(tensor, at, _reach(history, at)) for tensor, at in _ends(history, kept, told)]
    for tensor, at, most in sorted(ends, key=lambda one: -one[2]):
        number = history.events[at].site
        if most < LEAST or (number in places and most <= places[number][2]):
            continue
        steps = _steps_behind(history, at)
        if steps >= LEAST and (number not in places or steps > places[number][2]):
            places[number] = (tensor, at, steps)
    graphs: set[int] = set()
    for tensor, at, steps in sorted(places.values(), key=lambda one: one[1]):
        graph = graph_of(history, at)
        if at in graphs:
            continue
        graphs |= graph
        yield _chain(history, tensor, at, steps)


def _ends(history: History, kept: list[int], told: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the tensors that are there at the end, with the call that last added to each."""
    for tensor in kept:
        made, operand = history.made_at(tensor), history.operand_of(tensor)
        if tensor not in told and made >= 0 and _death(history, tensor) >= len(history.events):
            writes = history.writes_to(operand, made) if operand else ()
            yield tensor, max(writes, default=made)


def _reach(history: History, at: int) -> int:
    """Return how many steps the graph behind a call can be of, at most."""
    passes, first = history.backwards, history.get(Graph).first_behind(at)
    return bisect_left(passes, at) - bisect_left(passes, first) + 1


def _steps_behind(history: History, at: int) -> int:
    """Return over how many steps the graph behind a call reaches, if its own line made it grow."""
    reached = {at, *graph_of(history, at)}
    if _steps(history, reached) < LEAST or not _grows(history, at):
        return 0
    return _steps(history, reached, _summed(history, at))


def _grows(history: History, at: int) -> bool:
    """Whether earlier runs of a call's own line are in its graph: each run added to it."""
    site = history.events[at].site
    runs = sum(history.events[one].site == site for one in graph_of(history, at))
    return runs >= LEAST - 1


def _summed(history: History, at: int) -> list[int] | None:
    """Return the passes that part steps for a graph that grows at the line of a call."""
    site = history.events[at].site

    def used(graph: frozenset[int]) -> bool:
        return len([one for one in graph if history.events[one].site == site]) > 1

    return _passes(history, {at}, used)


def _chain(history: History, tensor: int, at: int, steps: int) -> Claim:
    event, name = history.events[at], history.name_of(tensor)
    nbytes, line = _bytes(history, [tensor], [at]), At(event.site)
    return Claim(
        tensors=(tensor,),
        cause=("chain", event.site),
        site=event.site,
        operation=event.operation,
        subject=name,
        message=say(
            "The graph of `{name}` reaches back over {steps} steps, {size}: each step at {line}"
            " adds to it.",
            name=name, steps=steps, size=Bytes(nbytes), line=line,
        ),
        story=(Step("grows", event.site, say("`{name}` takes on another step's graph here",
                    name=name)),),
        repair=Repair(
            say("Add values without their graph at {line}: .item() or .detach() (or {name} ="
                " {name}.detach() once a step).", line=line, name=name),
            "detach",
        ),
        count=steps,
        bytes=nbytes,
    )  # fmt: skip


# -- held by nothing that has a name -----------------------------------------------------------


def _nameless(history: History, told: set[int]) -> Iterator[Claim]:
    """Find what a line made in several steps, alive at the end though no variable holds it.

    A closure, a hook's closure or an exception's traceback holds it then.
    """
    if not history.backwards and history.trace.outcome != "finished":
        return  # the traceback of what ended it holds all that was being worked on
    unheld = _unheld(history, told)
    groups: dict[int, list[int]] = defaultdict(list)
    for at in sorted(unheld):
        if history.inside(history.events[at], "backward", "function") < 0:
            groups[history.events[at].site].append(at)
    for places in groups.values():
        steps = _steps(history, places) if history.backwards else _apart(history, places)
        if steps >= LEAST:
            tensors = [unheld[at] for at in places]
            yield held_by_views(history, _held(history, tensors, places, steps))


def _unheld(history: History, told: set[int]) -> dict[int, int]:
    """Return what is alive at the end with a graph and in no other's graph: maker -> tensor.

    What a graph holds lives as well; so nothing is in the graph of what is named, or of one told.
    """
    # A variable holds one tensor at a time: the latest that bore its name.
    latest = {fact.name: fact.tensor for fact in sorted(history.trace.names, key=lambda n: n.at)}
    held = {*latest.values(), *told}
    alive: dict[int, int] = {}
    graph, within = history.get(Graph), set[int]()
    for tensor in history.left:
        made = history.made_at(tensor)
        if made < 0 or not history.had_graph(tensor):
            continue
        if tensor in held:
            graph.add_behind(made, within)
            within.add(made)
        elif history.trace.tensors[TensorId(tensor)].kind == "Tensor":
            alive[made] = tensor
    for at in sorted(alive, reverse=True):
        if at not in within:
            graph.add_behind(at, within)
    return {at: tensor for at, tensor in alive.items() if at not in within}


def _in_rings(history: History) -> Iterator[Claim]:
    """Find what a line made in several steps, and what only rings of objects had after each.

    The ring of a Function's ctx and its own result is told as that.
    """
    rings = _by_moment(history, ringed=True) if history.trace.in_rings else ()
    on_its_ctx = {one.tensor for calls in results_on_ctx(history).values() for _, one in calls}
    for tensors in rings:
        for together in _made_alike(history, [one for one in tensors if one not in on_its_ctx]):
            places = [history.made_at(one) for one in together]
            steps = _graphs(history, places)
            if steps >= LEAST and (nbytes := _bytes(history, together, places)) >= LARGE:
                yield _ring(history, together, steps, nbytes)


def _ring(history: History, tensors: list[int], steps: int, nbytes: int) -> Claim:
    event = history.events[history.made_at(tensors[0])]
    name = history.site_of(event).target or history.name_of(tensors[0]).strip("`")
    return Claim(
        tensors=tuple(tensors),
        cause=("ring", event.site),
        site=event.site,
        operation=event.operation,
        severity="note",
        subject=name,
        message=say(
            "`{name}` of {steps} steps lived on with its graphs until Python's garbage collector"
            " ran, {size} in all: each was in a ring of objects that hold each other (a reference"
            " cycle), which goes only then.",
            name=name, steps=steps, size=Bytes(nbytes),
        ),
        story=(Step("made", event.site, say("`{name}` is made with its graph here", name=name)),),
        repair=Repair(
            say("Break the ring when the step is over: let an object not keep what leads back to"
                " it (no cache of results, a weakref.ref, .detach() of what is kept).")),
        count=len(tensors),
        bytes=nbytes,
    )  # fmt: skip


def _let_go(history: History, told: set[int]) -> Iterator[Claim]:
    """Find what a line made in several steps, and what went at one moment after: one thing had it.

    What a graph has saved, or the graph of another holds, goes with that.
    """
    for tensors in _by_moment(history, ringed=False) if history.backwards else ():
        if not _over_steps(history, tensors):
            continue
        within = set(map(history.made_at, told.intersection(tensors)))
        for together in _made_alike(history, tensors):
            places = [history.made_at(one) for one in together]
            by_graphs = not within.isdisjoint(places) or _is_saved(history, together[0])
            if not by_graphs and (steps := _graphs(history, places)) >= LEAST:
                yield _held(history, together, places, steps)
            for at in places:
                history.get(Graph).add_behind(at, within)


def _over_steps(history: History, tensors: list[int]) -> bool:
    """Whether enough backward passes lie between the calls that made some tensors."""
    made = [*map(history.made_at, tensors)]
    first, last = (bisect_left(history.backwards, one) for one in (min(made), max(made)))
    return last - first + 1 >= LEAST


def _by_moment(history: History, *, ringed: bool) -> Iterable[list[int]]:
    """Return the tensors that calls made and that are gone, by the moment when they went.

    `ringed`: those that Python's collector found in rings, or else all others. Not what went in
    twos or alone.
    """
    found = [(one.tensor, history.made_at(one.tensor)) for one in history.trace.in_rings]
    named = {history.events[at].site for one, at in found if _had_a_name(history, one, at)}
    rings = [one for one, at in found if at < 0 or history.events[at].site not in named]
    lives = tensors_of(history.trace.tensors)
    plain = [number for number, word in lives.names.words.items() if word == "Tensor"]
    serials, died = lives.column("serial"), lives.column("died")
    chosen = (died != UNKNOWN) & np.isin(lives.column("kind"), plain)
    chosen &= np.isin(serials, rings) == ringed
    _, which, counts = np.unique(died[chosen], return_inverse=True, return_counts=True)
    several = counts[which] >= LEAST
    moments: dict[int, list[int]] = defaultdict(list)
    for tensor, at in zip(serials[chosen][several].tolist(), which[several].tolist(), strict=True):
        if history.made_at(tensor) >= 0:
            moments[at].append(tensor)
    return moments.values()


def _had_a_name(history: History, tensor: int, made: int) -> bool:
    """Whether a variable led to a tensor still when the line that made it had run again.

    It lay in a ring by then or not: the variable kept it.
    """
    named = max((history.position(one.at) for one in history.facts_of_names(tensor)), default=made)
    line = history.events[made].site if made >= 0 else UNKNOWN
    return any(history.events[at].site == line for at in range(made + 1, max(named, 0)))


def _is_saved(history: History, tensor: int) -> bool:
    """Whether a call has kept a tensor for its backward: its graph may be what holds it."""
    operand, graph = history.operand_of(tensor), history.get(Graph)
    return operand is None or any(
        one.tensor == tensor
        for at in history.on_storage(operand)
        for one in graph.saved(at, unchecked=True)
    )


def _made_alike(history: History, tensors: list[int]) -> list[list[int]]:
    """Return those of some tensors with a graph that each line made, what ran last first."""
    groups: dict[tuple[str, int, int] | None, list[int]] = defaultdict(list)
    for tensor in sorted(tensors, key=history.made_at) if len(tensors) >= LEAST else ():
        if history.had_graph(tensor):
            groups[_key(history, tensor)].append(tensor)
    found = [some for some in groups.values() if len(some) >= LEAST]
    return sorted(found, key=lambda some: -history.made_at(some[-1]))


def _held(history: History, tensors: list[int], places: list[int], steps: int) -> Claim:
    event = history.events[places[0]]
    name = history.site_of(event).target or history.name_of(tensors[0]).strip("`")
    nbytes = _bytes(history, tensors, places)
    died = history.trace.tensors[tensors[0]].died != UNKNOWN
    return Claim(
        tensors=tuple(tensors),
        cause=("held", event.site),
        site=event.site,
        operation=event.operation,
        subject=name,
        message=say(
            "`{name}` of {steps} steps lived on with its graphs, {size} or {each} more each step,"
            " and all of them went at one moment: one thing held them until then."
            if died
            else "`{name}` of {steps} {times} is still alive with its graphs, {size} or {each} more"
            " each time, and no variable holds the tensor itself: a closure, a hook, a cache, a"
            " grad_fn or the traceback of an exception that is kept does.",
            name=name, steps=steps, times="steps" if history.backwards else "calls",
            size=Bytes(nbytes), each=Bytes(nbytes // steps),
        ),
        story=(
            Step("made", event.site, say("`{name}` is made with its graph here", name=name)),
            *_put_together(history, tensors),
            *_hooked(history, tensors, name),
        ),
        repair=Repair(
            say("Keep values without their graph: {name}.detach(), or {name}.item() for a number.",
                name=name)
            if died
            else say("Give the closure, hook or cache what it needs of `{name}` and no graph:"
                " {name}.detach(); of an exception keep the message, not the object.", name=name)
        ),
        count=len(tensors),
        bytes=nbytes,
    )  # fmt: skip


def _put_together(history: History, tensors: list[int]) -> Iterator[Step]:
    """Yield the line that may keep what a line made in each step."""
    where = comprehended(history, tensors)
    if where is None:
        yield from handed_on_at(history, tensors[0])
    else:
        yield Step("grows", where, say("each step's is kept here, with its graph"))


def _hooked(history: History, tensors: list[int], name: str) -> Iterator[Step]:
    """Yield the line that puts hooks on tensors which hold the very tensor that they are on."""
    for fact in history.trace.hooks:
        if fact.own and fact.tensor in tensors:
            text = say(
                "this hook reads the very `{name}` that it is on: each keeps the other, and"
                " Python's collector cannot see it", name=name,
            )  # fmt: skip
            yield Step("kept", fact.site, text)
            return


# -- gradients with a graph --------------------------------------------------------------------


def _gradients(history: History) -> Iterator[Claim]:
    """Find leaves whose .grad was made by backward(create_graph=True) and never let go."""
    stored = _stored(history)
    left: dict[int, list[int]] = defaultdict(list)
    for tensor, backwards in stored.items():
        if history.trace.tensors[tensor].died == UNKNOWN:
            left[history.events[backwards[-1]].site].append(tensor)
    for site, tensors in left.items():
        names = [f"{history.name_of(one)}.grad" for one in tensors]
        yield Claim(
            tensors=tuple(tensors),
            cause=("gradients", site),
            site=site,
            operation="backward",
            subject=names[0],
            also=tuple(names[1:]),
            message=say(
                "backward(create_graph=True) at {line} leaves {names} with the graph they were made"
                " by: parameter, gradient and graph hold each other, and none is freed.",
                line=At(site), names=and_more(names),
            ),
            story=(Step("grows", site, say("each gradient made here has a graph")),),
            repair=Repair(
                say("Ask for gradients that are not stored: torch.autograd.grad(loss, parameters,"
                    " create_graph=True); or set .grad to None when the step is done.")
            ),
            count=len(stored[tensors[0]]),
        )  # fmt: skip


def _stored(history: History) -> dict[int, list[int]]:
    """Return the backward passes that gave each leaf a gradient with a graph, never let go."""
    made: dict[int, list[int]] = defaultdict(list)
    cleared: dict[int, int] = {}  # tensor -> the last time that its gradient was let go
    clears = ("zero_grad", "grad.__set__")
    passes = history.events.called("backward".__eq__)
    if not (passes & history.events.flagged(CREATE_GRAPH)).any():
        return {}
    for at, event in history.events.where(lambda name: name == "backward" or name in clears):
        if event.operation == "backward" and event.create_graph:
            for tensor in _leaves(history, at):
                made[tensor].append(at)
        elif event.operation != "backward" and event.none:
            cleared.update((one.tensor, at) for one in event.reads)
    return {one: passes for one, passes in made.items() if cleared.get(one, UNKNOWN) < passes[-1]}


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
            "A result that its Function keeps on the ctx",
            """import torch

class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.y

w = torch.ones(600, 600, requires_grad=True)
for _ in range(3):
    Power.apply(w).sum().backward()
""",
            (Expected("graph-retained", "y", 7),),
        ),
        Example(
            "A result that its Function saves for backward, and an argument on the ctx",
            """import torch

class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, size):
        y = x.exp()
        ctx.save_for_backward(y)
        ctx.size = size
        return y * size

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * y * ctx.size, None

w, size = torch.ones(600, 600, requires_grad=True), torch.tensor(2.0)
for _ in range(3):
    Power.apply(w, size).sum().backward()
""",
        ),
    ),
)
