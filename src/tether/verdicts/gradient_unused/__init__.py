"""`gradient-unused`: a parameter that an optimizer holds and no loss ever saw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

import numpy as np

from tether.analysis.gradients.ungraded import Missing, in_how_many, without_backward
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, WaysThere
from tether.analysis.training.misplaced import Misplaced
from tether.analysis.training.no_longer import NoLonger, OutOfUse
from tether.facts import UNKNOWN, Site, SiteId
from tether.finding import At, CallOf, Claim, Repair, Sentence, Step, named, say
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.gradient_unused.left_out import LeftOut, left_out
from tether.verdicts.gradient_unused.uses import MOST_LINES, Uses, last_use

PAGE = """
# gradient-unused

## What it says
An optimizer holds this parameter, and its value never took part in the loss: not in any of the
steps recorded. One finding speaks for a whole module. Or it took part until its module was put into
evaluation mode, and not since: nothing puts it back into training mode.

## Why it matters
It never trains. Often a layer that was made and then forgotten in `forward`, an output that the
loss ignores, or a backward pass that never ran.

## Known problems
Many models have such parameters by design: a pooler that a head does not use, dropped layers,
experts that were not chosen in these steps. A module of a library that was never called is
therefore only a note, and so are several modules of a list of which others trained. So is one that
a switch to evaluation mode took out of the loss, unless the model was evaluated without a graph,
and without the parameter, and the same line switches again after more steps: then the program takes
it to be in training mode there.

## Example
```python
self.norm = nn.LayerNorm(8)      # never used in forward
```

## Use instead
Use the module, or do not make it; to keep it without training it, leave it out of the optimizer.

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each module whose parameters no loss saw."""
    found = history.get(Missing)
    yield from _no_backward(history)
    unused = [
        tensor
        for tensor in (found.none if history.backwards else ())
        if not (without_backward(history, tensor) or _left(history, tensor))
        and not found.reaching(tensor)
        and _had_a_chance(history, tensor)
    ]
    chosen = list(left_out(history, unused))
    yield from (_not_chosen(history, one) for one in chosen)
    told = {tensor for one in chosen for tensor in one.tensors}
    rest = [tensor for tensor in unused if tensor not in told]
    for modules in _by_cause(history, _by_module(history, rest)):
        yield _claim(history, modules)
    for ceased in history.get(OutOfUse).found:
        yield _ceased(history, ceased)


def _by_module(history: History, unused: list[int]) -> dict[str, list[int]]:
    """Return the tensors by the largest module of which an optimizer trains none; or by name.

    Of those whose values were used somewhere each module is told by itself: they end at lines of
    their own.
    """
    never = {one for one in unused if not history.get(Uses).any(one)}
    held: dict[str, set[int]] = defaultdict(set)
    for name in history.trace.names:
        if name.module and name.tensor in history.held:
            for path in _around_module(name.module):
                held[path].add(int(name.tensor))
    groups: dict[str, list[int]] = defaultdict(list)
    for tensor in unused:
        fact = history.facts_of_name(tensor)
        own = fact.module if fact is not None and fact.module else history.name_of(tensor)
        paths = _around_module(own) if tensor in never else [own]
        groups[next((one for one in paths if held[one] and held[one] <= never), own)].append(tensor)
    return groups


def _by_cause(history: History, modules: dict[str, list[int]]) -> Iterator[dict[str, list[int]]]:
    """Yield together the modules that one line makes, if the same lines use them all, or none.

    They are one part of a block that the model has several times.
    """
    uses = history.get(Uses)
    groups: dict[object, dict[str, list[int]]] = defaultdict(dict)
    for module, tensors in modules.items():
        made = _made(history, tensors)
        lines = tuple(line for tensor in tensors for line in uses.lines(tensor))
        when = in_how_many(history, tensors[0])
        own = "" if made >= 0 and lines else module
        groups[made, lines, when, own][module] = tensors
    yield from groups.values()


def _around_module(path: str) -> list[str]:
    """Return the modules around one, the outermost first, and it itself."""
    parts = path.split(".")
    return [".".join(parts[: number + 1]) for number in range(len(parts))]


def _left(history: History, tensor: int) -> bool:
    """Whether another tensor took the place of one that the optimizer still holds, and trains.

    So it is where weights are tied after the optimizer was made: what it steps in vain is dead. Or
    what took the place is computed of what trains, as a hypernetwork computes weights.
    """
    bearers: dict[str, int] = {}
    for fact in history.trace.names:
        bearers[fact.name] = fact.tensor
    names = history.names_of(tensor)
    now = {bearers[name] for name in names}
    if any(map(history.get(Misplaced).is_generated, now - {tensor})):
        return True
    return bool(now) and tensor not in now and now <= history.held & history.had_gradient


def _had_a_chance(history: History, tensor: int) -> bool:
    """Whether the absence of a gradient says anything: a step that held the tensor has finished.

    A program that died on its way there, or whose steps raised, says nothing of what it would have
    used. Where the program itself asked for the gradient after a backward pass, it expected one.
    """
    return bool(history.steps_of(tensor)) or tensor in history.asked


def _claim(history: History, modules: dict[str, list[int]]) -> Claim:
    module, tensors = next(iter(modules)), [one for some in modules.values() for one in some]
    facts = [one for one in map(history.facts_of_name, tensors) if one is not None]
    by_library = bool(facts) and not any(one.owner_user for one in facts)
    site, made = _held_at(history, tensors[0]), _made(history, modules[module])
    where, when = _names(history, modules, made), in_how_many(history, tensors[0])
    how = _how(history, tensors, several=len(modules) > 1)
    return Claim(
        tensors=tuple(tensors),
        cause=module,
        site=made if made != UNKNOWN else site,
        operation=facts[0].owner if facts else "",
        severity="note" if by_library else "warning",  # by design?
        message=say("{where} got no gradient {when}: {how}.", where=where, when=when, how=how),
        story=(
            *([Step("made", made, say("it is made here"))] if made != UNKNOWN else []),
            Step("held", site, say("the optimizer is made here and holds it")),
            *_around(history, module, modules[module], history.site(made)),
        ),
        repair=Repair(
            say("Use {where} on the way to the loss, or leave {it} out of the optimizer ({held}).",
                where=where, it="them" if len(modules) > 1 else "it", held=At(site))
        ),
        count=0,
    )  # fmt: skip


def _not_chosen(history: History, found: LeftOut) -> Claim:
    """Tell of a list of modules of which the steps used some: which ones may well be a choice."""
    tensors, parts = found.tensors, {"n": found.modules, "all": found.of, "of": named(found.name)}
    made, held = _made(history, tensors), _held_at(history, tensors[0])
    return Claim(
        tensors=tuple(tensors),
        cause=("not chosen", found.name),
        site=made if made != UNKNOWN else held,
        operation="getitem",
        severity="note",
        message=say("{n} of the {all} modules in {of} got no gradient {when}: {how}.",
                    when=in_how_many(history, tensors[0]),
                    how=_how(history, tensors, several=True), **parts),
        story=(
            *([Step("made", made, say("they are made here"))] if made != UNKNOWN else []),
            Step("held", held, say("the optimizer is made here and holds them")),
            Step("loss", history.events[history.backwards[-1]].site,
                 say("this loss does not depend on them")),
            *_used_at(history, tensors),
        ),
        repair=Repair(say("Nothing, if other steps choose them; else use them on the way to the"
                          " loss, or leave them out of the optimizer ({held}).", held=At(held))),
        count=0,
    )  # fmt: skip


def _held_at(history: History, tensor: int) -> SiteId:
    """Return the line that made an optimizer which holds a tensor; UNKNOWN: none does."""
    holders = (one.site for one in history.trace.optimizers if tensor in one.tensors)
    return next(holders, SiteId(UNKNOWN))


def _made(history: History, tensors: list[int]) -> SiteId:
    """Return the innermost line by which all of some tensors were made; UNKNOWN: not seen."""
    calls = [history.made_at(one) for one in tensors]
    if min(calls) < 0:
        return SiteId(UNKNOWN if calls[0] < 0 else history.events[calls[0]].site)
    above = history.get(WaysThere).above
    ways = [(history.events[at].site, *above(at)) for at in calls]
    common = set(ways[0]).intersection(*ways[1:])
    return next((one for one in ways[0] if one in common), ways[0][0])


def _names(history: History, modules: dict[str, list[int]], made: int) -> Sentence:
    """Return what the modules are called; of many the first, and the line that makes them all."""
    names = [
        history.name_of(some[0]) if len(some) == 1 else module for module, some in modules.items()
    ]
    first, *others = (named(one.strip("`")) for one in names)
    if not others:
        return say("{first}", first=first)
    if len(others) == 1:
        return say("{first} and {second}", first=first, second=others[0])
    return say("{first} and {n} more that {made} makes", first=first, n=len(others), made=At(made))


def _how(history: History, tensors: list[int], *, several: bool) -> Sentence:
    uses = history.get(Uses)
    it, its = ("them", "their") if several else ("it", "its")
    recorded = "in the calls that were recorded" if history.in_part else ""
    if any(map(uses.any, tensors)):
        return say("{its} values were used, but not for the loss", its=its)
    kept = next((line for line in map(uses.kept, tensors) if line != UNKNOWN), None)
    if kept is None:
        return say("nothing {ever} used {it}", ever=recorded or "ever", it=it)
    return say(
        "no call{recorded} computes with {it}; {line} only copies, moves or saves {it}",
        recorded=recorded and f" {recorded}", line=At(kept), it=it,
    )  # fmt: skip


def _around(history: History, module: str, tensors: list[int], made: Site) -> Iterator[Step]:
    """Yield where the values were used, what decides about that, and what made up the loss."""
    around, uses = history.get(Surroundings), history.get(Uses)
    backward = history.backwards[-1]
    yield Step("loss", history.events[backward].site, say("this loss does not depend on it"))
    used = list(_used_at(history, tensors))
    yield from used
    yield from _ended(history, tensors[0])
    kept = uses.kept(tensors[0])
    if not used and kept != UNKNOWN:
        yield Step("read", kept, say("it is only copied, moved or saved here"))
    if not used and history.facts_of_name(tensors[0]) is not None:
        yield from around.mentioned(made, module)
    yield from islice(around.loss(backward), 1 if used else None)


def _used_at(history: History, tensors: list[int]) -> Iterator[Step]:
    """Yield the first lines that compute with some tensors, and what decides whether they run."""
    uses = history.get(Uses)
    used = dict.fromkeys(line for tensor in tensors for line in uses.lines(tensor))
    for line in list(used)[:MOST_LINES]:
        yield Step("read", line, say("its values are used here"))
        if _calls_of(history, line) < len(history.backwards):  # nothing decides what always runs
            yield from history.get(Surroundings).deciding(line)


def _calls_of(history: History, line: Site) -> int:
    """Return how many calls a line of the text made."""
    sites = enumerate(history.trace.sites)
    chosen = [number for number, one in sites if one.row == line.row]
    return int(np.isin(history.events.column("site"), chosen).sum())


def _ended(history: History, tensor: int) -> Iterator[Step]:
    """Yield the last call that its values came to, and who called the function around it."""
    last = last_use(history, tensor)
    if last >= 0:
        site = history.site_of(history.events[last])
        yield Step("read", site, say("its values come as far as {call}", call=CallOf(last)))
        for one in history.get(WaysThere).callers(history.events[last].site, (last,))[:1]:
            yield Step("called", one, say("what gives them is called here"))


def _no_backward(history: History) -> Iterator[Claim]:
    if history.in_part:
        return  # the pass may be among what was not recorded
    ran = "no backward pass ran"
    if history.backwards:
        ran += " after its optimizer was made and before its steps"
    for tensor in history.without_gradient:
        if not without_backward(history, tensor):
            continue
        site = next(fact.site for fact in history.steps if tensor in fact.status)
        yield Claim(
            tensors=(tensor,),
            cause=("no backward", site),
            site=site,
            operation="step",
            message=say("{subject} got no gradient {when}: {ran}.", ran=ran,
                        when=in_how_many(history, tensor)),
            story=(
                Step("step", site, say("the optimizer steps without any gradient")),
                *_closure(history, site),
            ),
            repair=Repair(say("Call loss.backward() before the optimizer steps.")),
            count=0,
        )  # fmt: skip


def _closure(history: History, step: int) -> Iterator[Step]:
    """Yield what the closure of a step computed last: where its backward pass is missing."""
    for number, span in enumerate(history.trace.spans):
        above = history.trace.spans[span.parent] if span.parent >= 0 else None
        if span.kind == "closure" and above is not None and above.site == step:
            inside = [one for one in history.events if one.span == number and one.site >= 0]
            if inside:
                said = say("the closure computes this and calls no backward")
                yield Step("loss", inside[-1].site, said)
            return


def _ceased(history: History, found: NoLonger) -> Claim:
    site, trained = found.switch.site, found.trained
    return Claim(
        tensors=(found.tensor,),
        cause=("ceased", site, found.with_gradient),
        site=site,
        operation="eval",
        severity="warning" if found.sure else "note",
        message=say(
            "{subject} had a gradient at {n} steps and none at the {m} steps since {line} put its"
            " module into evaluation mode: nothing puts it back into training mode.",
            n=found.with_gradient, m=found.without, line=At(site),
        ),
        story=(
            *([Step("mode", trained, say("it is put into training mode here, before all of this"))]
              if trained != UNKNOWN else []),
            Step("mode", site, say("it is put into evaluation mode here")),
            Step("loss", history.events[history.backwards[-1]].site,
                 say("this loss does not depend on it any more")),
        ),
        repair=Repair(say("Call train() on the model before each stretch of training, or after"
                          " each evaluation.")),
        count=0,
    )  # fmt: skip


VERDICT = Verdict(
    slug="gradient-unused",
    severity="warning",
    summary="a parameter never took part in the loss, in none of the steps",
    page=PAGE,
    check=check,
    damage="lost training",
    after=("parameter-stale",),
    examples=(
        Example(
            "A layer that forward forgot",
            """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(3, 1)
        self.forgotten = nn.Linear(3, 3, bias=False)

    def forward(self, x):
        return self.used(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
            (Expected("gradient-unused", "net.forgotten.weight", 9),),
        ),
        Example(
            "Everything is used",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
w.sum().backward()
opt.step()
""",
        ),
    ),
)
