"""`parameter-moved`: the optimizer moves a parameter that was to stay as it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from tether.analysis.history import History
from tether.analysis.training.frozen import (
    FlaggedInVain,
    FrozenInVain,
    MovedFrozen,
    MovedInPart,
    flagged_in_vain,
    frozen_in_vain,
    moved_frozen,
    moved_in_part,
)
from tether.analysis.training.unmoved import Training
from tether.facts import NONE, Schedule
from tether.finding import At, Claim, Repair, Step, say
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.parameter_moved import unfrozen

PAGE = """
# parameter-moved

## What it says
The program said that a parameter is to stay as it is, and the optimizer moves it. Either it was
frozen (`requires_grad` off) after it had trained: its gradient is a tensor of zeros from then on
and not `None`, so each step goes on with what the optimizer keeps of earlier gradients (momentum),
or with weight decay. Or a line froze it, and another line let all that was frozen there train again
before anything used it. Or the line that was to freeze it made a plain attribute: a module has no
`requires_grad`, and a tensor has none of another spelling. Or its parameter group had a learning
rate of 0 when a scheduler was made, which gave all groups one rate.

A note tells of a line that ends the freeze of another line, which was for a while, and lets more go
than that line had frozen: what had been frozen before is trained from then on. Another note tells
of parts of a parameter: a line, or a hook, sets the gradients of some elements to zero, and the
step moves these elements all the same.

## Why it matters
Nothing raises. What a head was trained on drifts away below it, and a backbone that was to be kept
is changed, at times by much.

## Known problems
Values are compared at the first, second, fourth, eighth... step of each optimizer, and when more is
frozen than before. A scheduler that gives one rate to groups that had several, none of them 0, or
that is made when the optimizer has stepped already, is a note. A freeze that was to end at
such a line looks the same; nothing is said where yet another line ends it, or where the line had
left it in place before.

## Example
```python
backbone.requires_grad_(False)
optimizer.zero_grad(set_to_none=False)      # its gradient is zeros: the momentum goes on
```

## Use instead
```python
backbone.requires_grad_(False)
optimizer.zero_grad()                       # None: the optimizer passes over it
```

## Fix safety
It changes what is trained: never applied by itself.
"""


MOST_LINES = 3
"""Lines that one finding names."""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that froze what moved, or that overrode the rates."""
    for found in moved_frozen(history):
        yield _frozen(history, found)
    parts: dict[tuple[object, ...], list[MovedInPart]] = defaultdict(list)
    for part in moved_in_part(history):
        parts[history.events[part.zeroed].site, part.optimizer].append(part)
    yield from (_in_part(history, some) for some in parts.values())
    yield from _undone_freezes(history)
    for schedule in history.trace.schedules:
        if len(set(schedule.after)) == 1 < len(set(schedule.before)):
            yield from _overridden(history, schedule)


def _undone_freezes(history: History) -> Iterator[Claim]:
    """Give what a line froze, or was to freeze, and that trains since it is not frozen any more."""
    for vain in frozen_in_vain(history):
        moved = [one for one in vain.tensors if history.get(Training).moved(one)]
        if moved:
            yield _in_vain(history, vain, moved)
    yield from unfrozen.claims(history)
    for flag in flagged_in_vain(history, on=False):
        moved = [one for one in flag.tensors if history.get(Training).moved(one)]
        if moved:
            yield _flagged(flag, moved)


def _frozen(history: History, found: MovedFrozen) -> Claim:
    frozen = history.events[found.frozen].site
    optimizer = history.trace.optimizers[found.optimizer]
    parts = {"kind": optimizer.kind, "frozen": At(frozen)}
    return Claim(
        tensors=(found.tensor,),
        cause=("frozen", frozen),
        site=frozen,
        operation="requires_grad_",
        message=say(
            "{kind} still moves {subject}, frozen at {frozen}: the gradient is zeros and not None,"
            " so the step goes on with earlier gradients (momentum) or with weight decay.",
            **parts,
        ),
        story=(
            Step("held", optimizer.site, say("{kind} takes it here", **parts)),
            Step("frozen", frozen, say("requires_grad is switched off here")),
            *_zeroed(history, found),
            Step("step", found.step, say("this step changes its values")),
        ),
        repair=Repair(
            say("Clear its gradient to None (`zero_grad()`, which does so unless it is told"
                " otherwise), or leave it out of the optimizer.")
        ),
        count=0,
        calls=(found.frozen,),
    )  # fmt: skip


def _in_part(history: History, found: list[MovedInPart]) -> Claim:
    one = found[0]
    zeroed, optimizer = history.events[one.zeroed].site, history.trace.optimizers[one.optimizer]
    elements = sum(part.elements for part in found)
    parts = {"kind": optimizer.kind, "zeroed": At(zeroed), "n": f"{elements:,}"}
    return Claim(
        tensors=tuple(part.tensor for part in found),
        cause=("in part", zeroed),
        site=zeroed,
        operation=history.events[one.zeroed].operation,
        severity="note",
        message=say(
            "{kind} moves {n} elements of {subject} whose gradients are zero after {zeroed}: a step"
            " goes on with earlier gradients (momentum) or with weight decay.",
            **parts,
        ),
        story=(
            Step("held", optimizer.site, say("{kind} takes it here", **parts)),
            Step("zero", zeroed, say("parts of its gradient become zero here")),
            Step("step", one.step, say("this step moves the elements all the same")),
        ),
        repair=Repair(
            say("To keep the elements as they are, write their values again after the step"
                " (p.mul_(mask) under no_grad), or make the optimizer anew when the mask is made,"
                " without weight decay.")
        ),
        count=0,
        calls=(one.zeroed,),
    )  # fmt: skip


def _in_vain(history: History, found: FrozenInVain, moved: list[int]) -> Claim:
    frozen, undone = (history.events[at].site for at in (found.frozen, found.undone))
    return Claim(
        tensors=tuple(moved),
        cause=("in vain", frozen),
        site=undone,
        operation="requires_grad_",
        message=say(
            "{subject} trains, though it was frozen at {frozen}: {undone} switches requires_grad on"
            " again for all that was frozen there, before anything used it.",
            frozen=At(frozen), undone=At(undone),
        ),
        story=(
            Step("frozen", frozen, say("requires_grad is switched off here")),
            Step("let go", undone, say("and on again here")),
        ),
        repair=Repair(say("Leave what is frozen as it is at {undone}, or do not freeze it.",
                          undone=At(undone))),
        count=0,
        calls=(found.undone,),
    )  # fmt: skip


def _flagged(found: FlaggedInVain, moved: list[int]) -> Claim:
    lines = found.lines[:MOST_LINES]
    of_module = found.name == "requires_grad"
    parts = {"line": At(lines[0])}
    return Claim(
        tensors=tuple(moved),
        cause=("flagged", found.name),
        site=lines[0],
        operation="requires_grad",
        message=say(
            f"Steps move {{subject}}, though `{found.name} = False` at {{line}} was to freeze it:"
            f" {found.owner} has no such switch, so that only makes a plain attribute, which"
            " nothing reads.",
            **parts,
        ),
        story=tuple(
            Step("frozen", one, say(f"a plain attribute `{found.name}` is made")) for one in lines
        ),
        repair=Repair(
            say("Freeze what is in the module: module.requires_grad_(False).")
            if of_module
            else say("Spell it `requires_grad`.")
        ),
        count=0,
    )  # fmt: skip


def _zeroed(history: History, found: MovedFrozen) -> Iterator[Step]:
    """Yield the line that last cleared its gradient to zeros."""
    clears = [
        at
        for at, event in history.events.where("zero_grad".__eq__)
        if not event.flags & NONE and any(one.tensor == found.tensor for one in event.reads)
    ]
    if clears:
        after = next((at for at in clears if at > found.frozen), clears[-1])
        said = say("its gradient becomes zeros here, and not None")
        yield Step("zero", history.events[after].site, said)


def _overridden(history: History, schedule: Schedule) -> Iterator[Claim]:
    """Give what trains at the one rate that a scheduler gave to groups with several."""
    optimizer, training = history.trace.optimizers[schedule.optimizer], history.get(Training)
    rate, ends = schedule.after[0], [0, *accumulate(optimizer.groups)]
    for group, before in enumerate(schedule.before[: len(optimizer.groups)]):
        held = optimizer.tensors[ends[group] : ends[group + 1]]
        moved = [one for one in held if training.moved(one)]
        if not moved or not rate or before == max(schedule.before):
            continue
        parts = {
            "kind": schedule.kind, "n": group, "before": f"{before:.3g}", "rate": f"{rate:.3g}"
        }  # fmt: skip
        yield Claim(
            tensors=tuple(moved),
            cause=("rate", schedule.site, group, before),
            site=schedule.site,
            operation=schedule.kind,
            severity="note" if before or _stepped(history, moved[0], schedule) else "warning",
            message=say(
                "{kind} gives all parameter groups one learning rate: {subject}, whose group {n}"
                " had the rate {before}, starts with {rate} and moves.",
                **parts,
            ),
            story=(
                Step("held", optimizer.site, say("parameter group {n} has the learning rate"
                     " {before} here", **parts)),
                Step("rate", schedule.site, say("{kind} sets the rate of all groups", **parts)),
            ),
            repair=Repair(say("Give {kind} a rate for each group, as a list.", **parts)),
            count=0,
        )  # fmt: skip


def _stepped(history: History, tensor: int, schedule: Schedule) -> bool:
    """Whether its optimizer had stepped before: the rates may be those of a stage that is over."""
    made = history.position(schedule.at)
    return any(at < made for at in history.steps_of(tensor)[:1])


VERDICT = Verdict(
    slug="parameter-moved",
    severity="warning",
    summary="the optimizer moves a parameter that was to stay as it is",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "Frozen after it had trained, with a gradient of zeros",
            """import torch

body, head = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 1)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
for step in range(6):
    if step == 3:
        body.requires_grad_(False)
    opt.zero_grad(set_to_none=False)
    head(body(torch.rand(4, 3))).pow(2).mean().backward()
    opt.step()
""",
            (Expected("parameter-moved", "body.weight", 7),),
        ),
        Example(
            "Frozen with a gradient that becomes None, and a rate for each group",
            """import torch

body, head = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 1)
groups = [{"params": body.parameters(), "lr": 0.05}, {"params": head.parameters()}]
opt = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=[0.05, 0.1], total_steps=6)
for step in range(6):
    if step == 3:
        body.requires_grad_(False)
    opt.zero_grad()
    head(body(torch.rand(4, 3))).pow(2).mean().backward()
    opt.step()
    schedule.step()
""",
        ),
    ),
)
