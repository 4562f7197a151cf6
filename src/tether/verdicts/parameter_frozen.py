"""`parameter-frozen`: asked to train, but it does not require grad."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator

from tether.analysis.gradients.chances import Chances
from tether.analysis.gradients.ungraded import Missing
from tether.analysis.history import History, common_module, latest
from tether.analysis.sharing.holding import Holding, first_word
from tether.analysis.surroundings import Surroundings, at_line
from tether.analysis.training.frozen import (
    FlaggedInVain,
    ended_frozen,
    flagged_in_vain,
    frozen_for_its_value,
    switches_of,
)
from tether.analysis.training.kept_frozen import KeptFrozen, kept_frozen
from tether.analysis.wording import listed
from tether.facts import UNKNOWN, TensorId
from tether.finding import At, Claim, Code, Repair, Sentence, Step, say
from tether.operations.table import operation
from tether.source.names import root_of
from tether.source.reading import looped_over
from tether.source.syntax import expression
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# parameter-frozen

## What it says
As a warning: an optimizer holds this tensor, but it never required grad, and no line says that it
should not; or `detach_()`, called for its value, took the tensor itself off the graph; or a line
gave its module a plain attribute, `module.requires_grad = True`, to let it train, which nothing
reads; or it trained until a line froze it, its optimizer goes on, and the freeze was not to last:
the line that is to switch it on again switched nothing on, nothing else that the optimizer holds
has a gradient, or the line freezes it in each round for another optimizer's loss. As a note:
parameters were frozen at this line, or made frozen, and an optimizer holds them all the same; or
nothing trains them. Of those that the program itself writes between its steps (the moving average
of a teacher, a target network) nothing is noted, nor of a parameter that the program's own line
makes so in so many words, `nn.Parameter(x, requires_grad=False)`. The modules are listed, so that
you see whether the line froze what you meant.

## Why it matters
A frozen parameter never changes, and neither backward nor the optimizer says so. A name prefix such
as `layer1` freezes `layer10` as well.

## Known problems
Freezing is often meant: the note is there to be read once, then ignored. Of what trained before it
was frozen nothing is said where only the freeze speaks: it may be part of a schedule. Frozen once,
for another optimizer's loss, it is a note.

## Example
```python
for name, p in model.named_parameters():
    if name.startswith("layer1"):
        p.requires_grad_(False)
```

## Use instead
Compare whole module names, or call `model.layer1.requires_grad_(False)`.

## Fix safety
It changes what is trained: never applied by itself.
"""


MOST_LINES = 3
"""Lines that one finding names."""


def check(history: History) -> Iterator[Claim]:
    """Give a warning for what an optimizer holds, and a note for each line that froze the rest."""
    frozen_at = ended_frozen(history)
    frozen = [int(one) for one in history.get(Missing).frozen]
    flagged = list(_flagged(history, {*frozen, *frozen_at}))
    yield from flagged
    told = {tensor for claim in flagged for tensor in claim.tensors}
    frozen_at = {tensor: at for tensor, at in frozen_at.items() if tensor not in told}
    later = [*_frozen_later(history, frozen_at), *_taken_off(history, frozen_at)]
    held = [one for one in [*frozen, *later] if one in history.held and one not in told]
    copies = set(_written_anew(history, {*held, *frozen_at}))
    yield from _all_held(history, held, _froze(history, held) | frozen_at, copies)
    told.update(held)
    yield from (_stays(history, one) for one in kept_frozen(history) if one.tensor not in told)
    yield from _notes(history, {one: at for one, at in frozen_at.items() if one not in copies})


def _froze(history: History, held: list[int]) -> dict[int, int]:
    """Return for what was frozen as its passes ran, and let go later, the call that froze it."""
    found: dict[int, int] = {}
    switches = switches_of(history) if held else {}
    for tensor in held:
        last = max(history.get(Chances).passes_of(tensor), default=UNKNOWN)
        before = latest(switches.get(TensorId(tensor), ()), last)
        if before >= 0 and not history.events[before].on:
            found[tensor] = before
    return found


def _all_held(
    history: History, held: list[int], frozen_at: dict[int, int], copies: set[int]
) -> Iterator[Claim]:
    """Tell by their lines of frozen tensors that an optimizer holds; of copies nothing is noted."""
    by_site: dict[int, list[int]] = defaultdict(list)
    for tensor in dict.fromkeys(held):
        position = frozen_at.get(tensor, UNKNOWN)
        if position < 0 and _says_so(history, tensor) and _trains_others(history, tensor):
            continue
        by_site[history.events[position].site if position >= 0 else UNKNOWN].append(tensor)
    for site, tensors in by_site.items():
        claim = _held(history, site, tensors, frozen_at)
        others = [one for one in tensors if one not in copies]
        if claim.severity == "note" and others != tensors:
            yield from [_held(history, site, others, frozen_at)] if others else ()
        else:
            yield claim


def _says_so(history: History, tensor: int) -> bool:
    """Whether the program's own line made a parameter, and says in so many words: no gradient.

    A flag that comes from elsewhere may be another one than was meant, and so may a default.
    """
    made = history.made_at(tensor)
    event = history.events[made] if made >= 0 else None
    if event is None or event.inner not in (UNKNOWN, event.site):
        return False
    call = expression(history.site_of(event).expression)
    if not isinstance(call, ast.Call) or not history.is_parameter(tensor):
        return False
    named = [one.value for one in call.keywords if one.arg == "requires_grad"]
    flags = [one for one in (*named, *call.args[1:]) if isinstance(one, ast.Constant)]
    return any(one.value is False for one in flags)


def _trains_others(history: History, tensor: int) -> bool:
    """Whether an optimizer that holds a tensor found gradients of others."""
    holders = set(history.holders_of(tensor))
    facts = (fact for fact in history.steps if fact.optimizer in holders)
    return any(status != "none" for fact in facts for status in fact.status.values())


FEWEST_WRITES = 2
"""Times, each after another step, that a program writes what it keeps as a copy of others: once it
fills it.
"""


def _written_anew(history: History, tensors: set[int]) -> Iterator[int]:
    """Yield those that the program gives values of other tensors, between step and step."""
    steps = [history.position(one.at) for one in history.steps] if tensors else []
    rebound: dict[int, list[int]] = defaultdict(list)
    for at, event in history.events.where(lambda name: operation(name).rebinds):
        if event.reads and event.reads[0].tensor in tensors:
            rebound[event.reads[0].tensor].append(at)
    for tensor in tensors:
        taken = [*_taken_from_others(history, tensor), *rebound[tensor]]
        if len({bisect_right(steps, at) for at in taken} - {0}) >= FEWEST_WRITES:
            yield tensor


def _taken_from_others(history: History, tensor: int) -> Iterator[int]:
    """Yield the calls, but those of optimizers, that write a tensor with what others hold."""
    operand = history.operand_of(tensor)
    for at in history.written(operand, history.by_steps) if operand is not None else ():
        event = history.events[at]
        if any(one.storage not in {this.storage for this in event.writes} for one in event.reads):
            yield at


def _flagged(history: History, frozen: set[int]) -> Iterator[Claim]:
    """Tell of tensors that stay frozen, though a line gave a plain attribute to let them train."""
    for found in flagged_in_vain(history, on=True):
        stay = tuple(one for one in found.tensors if one in frozen)
        if stay:
            yield _in_vain(found, stay)


def _in_vain(found: FlaggedInVain, stay: tuple[int, ...]) -> Claim:
    line = found.lines[0]
    of_module = found.name == "requires_grad"
    return Claim(
        tensors=stay,
        cause=("flagged", found.name),
        site=line,
        operation="requires_grad",
        message=say(
            f"{{subject}} stayed frozen, though `{found.name} = True` at {{line}} was to end that:"
            f" {found.owner} has no such switch, so that only makes a plain attribute, which"
            " nothing reads.",
            line=At(line),
        ),
        story=tuple(
            Step("mode", one, say(f"a plain attribute `{found.name}` is made"))
            for one in found.lines[:MOST_LINES]
        ),
        repair=Repair(
            say("Switch on what is in the module: module.requires_grad_(True).")
            if of_module
            else say("Spell it `requires_grad`.")
        ),
        count=0,
    )


def _stays(history: History, found: KeptFrozen) -> Claim:
    """Tell of a tensor that trained until a line froze it, and that its optimizer passes over."""
    events, optimizer = history.events, history.trace.optimizers[found.optimizer]
    frozen, step = events[found.frozen].site, events[found.step].site
    parts: dict[str, object] = {
        "kind": optimizer.kind, "frozen": At(frozen), "step": At(step), "n": found.since,
        "before": "1 step" if found.before == 1 else f"{found.before} steps",
        "back": At(found.undoing or frozen), "other": At(events[max(found.other, 0)].site),
    }  # fmt: skip
    return Claim(
        tensors=(found.tensor,),
        cause=("stays", frozen, found.optimizer),
        site=frozen,
        calls=(found.frozen,),
        operation="requires_grad_",
        severity="warning" if found.certain else "note",
        message=say(
            "{kind} no longer trains {subject}, frozen at {frozen}: {n} steps since then had no"
            " gradient, after {before} that had one." + _why(found),
            **parts,
        ),
        story=tuple(_told_of(history, found)),
        repair=Repair(_how_to_unfreeze(found, parts)),
        count=0,
    )  # fmt: skip


def _told_of(history: History, found: KeptFrozen) -> Iterator[Step]:
    """Yield the lines that trained it, froze it, were to let it go, and go on without."""
    events = history.events
    again = "; the line runs again later, where it is frozen already" if found.again else ""
    yield Step("frozen", events[found.frozen].site, say("it requires no grad from here on" + again))
    if found.undoing is not None:
        back = found.undoing
        yield Step("mode", back, say("this is to switch it on again, and switches nothing on"))
        for line in looped_over(history.get(Surroundings).source(back.file), back):
            said = say("what the two go over comes from here")
            yield Step("made", at_line(back, line), said)
    if found.other >= 0:
        yield Step("loss", events[found.other].site, say("it is frozen for this loss"))
    yield Step("step", events[found.step].site, say("the last step that had a gradient of it"))
    yield Step("loss", events[found.passed].site, say("this loss is still computed with it"))


def _why(found: KeptFrozen) -> str:
    """Say what shows that a freeze was not to last."""
    if found.undoing is not None:
        return " requires_grad was to be on again at {back}, where nothing was switched on."
    if found.alone:
        return " Nothing else that {kind} holds has a gradient, so that its steps do nothing."
    if found.again:
        return " The freeze is for the loss at {other}, and nothing switches it back."
    return ""


def _how_to_unfreeze(found: KeptFrozen, parts: dict[str, object]) -> Sentence:
    """Say how to let go again what was frozen."""
    if found.undoing is not None:
        return say("See that {back} comes to the same tensors as {frozen}: an iterator, such as"
                   " `parameters()` or a chain of them, gives its values only once; keep a list.",
                   **parts)  # fmt: skip
    if found.certain:
        return say("Switch requires_grad on again before the next loss that is to train it, or"
                   " leave it out of {kind}.", **parts)  # fmt: skip
    return say("Nothing, if it is to stay as it is; or switch requires_grad on again after"
               " {other}.", **parts)  # fmt: skip


def _frozen_later(history: History, frozen_at: dict[int, int]) -> Iterator[int]:
    """Yield tensors that trained, were frozen, and were then given to another optimizer.

    None of that optimizer's steps found a gradient of theirs.
    """
    found: dict[tuple[int, int], set[str]] = defaultdict(set)
    first: dict[int, int] = {}
    for fact in history.steps:
        first.setdefault(fact.optimizer, history.position(fact.at))
        for tensor, status in fact.status.items():
            if tensor in frozen_at:
                found[tensor, fact.optimizer].add(str(status))
    trained = {tensor for (tensor, _), seen in found.items() if seen != {"none"}}
    for (one, optimizer), seen in found.items():
        if one in trained and seen == {"none"} and frozen_at[one] < first[optimizer]:
            yield one


def _taken_off(history: History, frozen_at: dict[int, int]) -> Iterator[int]:
    """Yield tensors that trained, until a call made for its value took them off the graph.

    No step after it found a gradient of theirs that says something.
    """
    for tensor, at in frozen_at.items():
        if tensor in history.held and frozen_for_its_value(history, at):
            later = [one for one in history.steps if history.position(one.at) > at]
            seen = {status for one in later for by, status in one.status.items() if by == tensor}
            if seen and seen <= {"none", "zero"}:
                yield tensor


_ONE = {"it": "it", "they": "it", "are": "it is"}
_MANY = {"it": "them", "they": "they", "are": "they are"}
_TRAIN = "Let {it} train with requires_grad_(True), or leave {it} out of the optimizer at {held}."
_FROZEN = (", but {frozen} froze {it}: {kind} does not train {it}.", _TRAIN)
_NEVER = (", but {they} never required grad: {kind} does not train {it}.", _TRAIN)
_TOO_LATE = (
    ", but {they} did not require grad when the loss was computed: {kind} does not train {it}.",
    "Call requires_grad_(True) on {it} before the loss is computed.",
)
_TAKEN_OFF = (
    ", but {code} at {frozen} takes the tensor itself off the graph, and not only its result.",
    "Use detach() at {frozen}: it leaves the tensor that it is called on as it is.",
)
"""What became of a tensor that an optimizer holds, and what to do about it."""


def _held(history: History, site: int, tensors: list[int], frozen_at: dict[int, int]) -> Claim:
    """Tell of frozen tensors that an optimizer holds; `site` froze them, or none did."""
    holder = [one for one in history.trace.optimizers if tensors[0] in one.tensors][-1]
    taken = site != UNKNOWN and frozen_for_its_value(history, frozen_at[tensors[0]])
    meant = not taken and _is_meant(history, site, tensors)
    parts: dict[str, object] = {"kind": holder.kind, "held": At(holder.site), "frozen": At(site)}
    parts |= _MANY if len(tensors) > 1 else _ONE
    parts["code"] = Code(site)
    why, fix = _never(history, tensors) if site == UNKNOWN else _TAKEN_OFF if taken else _FROZEN
    if meant:
        fix = "Nothing, if {are} meant to stay frozen; else call requires_grad_(True) on {it}."
    where = site if site != UNKNOWN else holder.site
    return Claim(
        tensors=tuple(tensors),
        cause=("held", site),
        site=where,
        operation="detach_" if taken else "requires_grad_",
        severity="note" if meant else "warning",
        message=say("{kind} holds {subject}" + why, **parts),
        story=(
            *_before(history, site, tensors[0]),
            *_second_names(history, site, tensors[0]),
            Step("held", holder.site, say("{kind} is asked to train it here", **parts)),
            *_calling(history, site),
        ),
        repair=Repair(say(fix, **parts)),
        count=0,
    )


def _never(history: History, tensors: list[int]) -> tuple[str, str]:
    """Return what to say of tensors that no line froze."""
    required = any(map(history.get(Chances).ever_required, tensors))
    return _TOO_LATE if required else _NEVER


def _is_meant(history: History, site: int, tensors: list[int]) -> bool:
    """Whether a line froze some tensors, or the calls that made them say that they do not train."""
    return site != UNKNOWN or all(_made_frozen(history, tensor) for tensor in tensors)


def _calling(history: History, site: int) -> Iterator[Step]:
    """Yield the lines that call the function that froze a tensor, where a line did."""
    if site != UNKNOWN:
        yield from history.get(Surroundings).calls(history.site(site))


def _before(history: History, site: int, tensor: int) -> Iterator[Step]:
    """Yield the line that froze a tensor, or that made it so."""
    if site != UNKNOWN:
        yield Step("frozen", site, say("it requires no grad from here on"))
    elif history.made_at(tensor) >= 0:
        made = history.events[history.made_at(tensor)]
        if not any(one.requires_grad for one in made.results if one.tensor == tensor):
            yield Step("made", made.site, say("it is made here, and does not require grad"))


def _second_names(history: History, site: int, tensor: int) -> Iterator[Step]:
    """Yield the lines that gave a frozen tensor's module another name: ``target = online``."""
    frozen = history.site(site)
    roots = {first_word(name.strip("`")) for name in history.names_of(tensor)}
    for name in sorted(roots) if site != UNKNOWN and len(roots) > 1 else ():
        for fill in history.get(Holding).fillings.of(*frozen.scope, name):
            first = fill.site.expression
            if fill.how == "assigned" and fill.target == name and first in roots - {name}:
                text = say(
                    "`{name}` is `{first}` from here on, and no copy", name=name, first=first
                )
                yield Step("shared", fill.site, text)


def _made_frozen(history: History, tensor: int) -> bool:
    """Whether a parameter was made so: a Parameter requires grad unless its call says otherwise."""
    return history.is_parameter(tensor)


def _notes(history: History, frozen_at: dict[int, int]) -> Iterator[Claim]:
    roots = {history.name_of(tensor).split(".")[0] for tensor in history.held}
    by_site: dict[int, list[int]] = defaultdict(list)
    for tensor, position in frozen_at.items():
        free = tensor not in history.held and _of_models(history, tensor, roots)
        if free and _by_the_user(history, position):
            by_site[history.events[position].site].append(tensor)
    for site, tensors in by_site.items():
        root, shown = _modules(_names_alike(history, tensors))
        said, many = say("frozen here: {modules}", modules=listed(shown, 12)), len(tensors) > 1
        yield Claim(
            tensors=tuple(tensors),
            cause=("frozen", site),
            site=site,
            operation="requires_grad_",
            severity="note",
            message=say(
                "{parameters}{of} {were} frozen here and nothing trains {them}: {modules}.",
                parameters=f"{len(tensors):,} parameters" if many else "1 parameter",
                of=f" of `{root}`" if root else "",
                were="were" if many else "was", them="them" if many else "it",
                modules=listed(shown, 6),
            ),
            story=(
                Step("frozen", site, said),
                *history.get(Surroundings).leading(history.site(site)),
            ),
            repair=Repair(say("Nothing, if these are the modules you meant to freeze.")),
            count=0,
        )  # fmt: skip


def _names_alike(history: History, tensors: list[int]) -> list[str]:
    """Return a name of each tensor: of a module that most of them are in, where it is in that."""
    names = [history.names_of(tensor) or [history.name_of(tensor)] for tensor in tensors]
    roots = Counter(root for some in names for root in {root_of(name) for name in some})
    return [max(some, key=lambda name: roots[root_of(name)]) for some in names]


def _modules(names: list[str]) -> tuple[str, list[str]]:
    """Return the model that parameters belong to, "" for several, and its modules that have them.

    What is no module's has its own name.
    """
    modules = list(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
    root = common_module(modules)
    cut = len(root) + 1 if root and len(modules) > 1 else 0
    return root.split(".")[0], [module[cut:] or module for module in modules]


def _of_models(history: History, tensor: int, roots: set[str]) -> bool:
    """Whether a tensor is a parameter of a model that is trained: a buffer never trains."""
    fact, life = history.facts_of_name(tensor), history.trace.tensors.get(tensor)
    if fact is None or not fact.module or fact.name.split(".")[0] not in roots:
        return False
    return life is None or life.kind not in ("Tensor", "Buffer")


def _by_the_user(history: History, position: int) -> bool:
    """Whether the user's own line freezes, not a library that was asked for something else."""
    event = history.events[position]
    written = history.site_of(event).expression
    return history.site(event.inner).user or "requires_grad_" in written


VERDICT = Verdict(
    slug="parameter-frozen",
    severity="warning",
    summary="an optimizer holds a parameter that is frozen",
    page=PAGE,
    check=check,
    damage="lost training",
    examples=(
        Example(
            "Layers that a second model shares, frozen with the first",
            """import torch

body = torch.nn.Linear(3, 3)
teacher = torch.nn.Sequential(body, torch.nn.Linear(3, 2))
student = torch.nn.Sequential(body, torch.nn.Linear(3, 2))
x = torch.ones(4, 3)
def fit(model):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()
fit(teacher)
teacher.requires_grad_(False)
fit(student)
""",
            (Expected("parameter-frozen", "body.weight", 14),),
        ),
        Example(
            "Nothing is frozen",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
w.sum().backward()
opt.step()
""",
        ),
    ),
)
