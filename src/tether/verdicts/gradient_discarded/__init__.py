"""`gradient-discarded`: a gradient was there, and was gone when the optimizer stepped."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.asked_in_vain import AskedInVain, asked_in_vain
from tether.analysis.begun_anew import BegunAnew, begun_anew
from tether.analysis.bounded_early import BoundedEarly, bounded_early
from tether.analysis.graded_copies import GradedCopy, graded_copies
from tether.analysis.history import History, shortened
from tether.analysis.lost_changes import LostChange, lost_changes
from tether.analysis.lost_passes import (
    LeftOverPasses,
    LostPasses,
    OtherPasses,
    SkippedPart,
    left_over_passes,
    lost_passes,
    replaced_passes,
    skipped_parts,
)
from tether.analysis.scaled_changes import ScaledChange, VainClip, scaled_changes, vain_clips
from tether.facts import UNKNOWN, Event, Gradients, SiteId, TensorId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.gradient_discarded.iterators import of_iterators

PAGE = """
# gradient-discarded

## What it says
After backward this parameter had a gradient; when the optimizer stepped it was None or zero, since
the line named cleared or overwrote it in between. So it was at every step. Or several passes of one
line come before each step, and the line named clears all but the last; or it clears what one
backward pass gave, and the step uses what another gave. Or each step takes several passes, and the
line clears those that an epoch has left over, and the count for the next step may go on over that
(a note). Or the line changed the gradient in place (a clipping, a scaling), and each time it was
cleared and made anew before a step used it. Or the line clips gradients and never found any: there
were none yet, or it was given an iterator that had been gone through. Or it clips gradients that
still hold the scale of a gradient scaler, which divides them, and with them the limit, before the
step. Or the program goes through an iterator of parameters, or of batches, a second time, where it
gives nothing any more: what is done there is done once, or never (a note where nothing says that
the program came there again). Or the line makes a new optimizer for each step, of a kind that goes
by the gradients of earlier steps. Or the line computes a part of some losses, and a gradient scaler
left out the step of each of them. Or passes go back through a copy of what is trained, a target
network: its parameters get gradients that nothing uses (a note). Or a line that changes parameters
by their gradients itself asks for this one's, and it is never there yet. Or the program reads an
iterator of parameters again that its optimizer has gone through (a note). Or a line limits the
gradients of an accumulation, and backward adds to them before the step uses the sum, which nothing
limits; it is a note where the sum is limited as well, or where another loss adds to them.

## Why it matters
The optimizer steps on nothing: the loss stays where it is, and there is no error. Where only the
change is lost, the steps use gradients that were never clipped. An Adam of one step moves each
element by the learning rate, however small its gradient is.

## Known problems
Only what happens at every recorded step is reported; clearing once is taken as meant (a skipped
step, a gradient that was not finite). A changed gradient that anything read counts as used.
An iterator is known by a variable, or an attribute of `self`, that is assigned once.

## Example
```python
loss.backward()
opt.zero_grad()
opt.step()
```

## Use instead
```python
opt.zero_grad()
loss.backward()
opt.step()
```

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that clears gradients at every step."""
    groups: dict[int, list[int]] = defaultdict(list)
    where: dict[int, tuple[int, Gradients]] = {}
    for tensor in sorted(history.held, key=lambda one: history.order.get(one, 0)):
        found = _always_cleared(history, TensorId(tensor))
        if found is not None:
            site = int(history.events[found[0]].site)
            groups[site].append(tensor)
            where.setdefault(site, found)
    for site, tensors in groups.items():
        yield _claim(history, tensors, *where[site])
    yield from _in_part(history, set(groups))
    for clip in vain_clips(history):
        yield _nothing_clipped(history, clip)
    for bound in scaled_changes(history):
        yield _bounded(history, bound)
    for early in bounded_early(history):
        yield _bounded_in_part(history, early)
    for part in skipped_parts(history):
        yield _skipped(history, part)
    for anew in begun_anew(history):
        yield _forgotten(history, anew)
    for copied in graded_copies(history):
        yield _copied(history, copied)
    yield from _not_found(history)


def _not_found(history: History) -> Iterator[Claim]:
    """Yield the lines that look for gradients, or parameters, and find none."""
    for asked in asked_in_vain(history):
        yield _never_found(history, asked)
    yield from of_iterators(history)


def _in_part(history: History, told: set[int]) -> Iterator[Claim]:
    """Yield what is lost though each step has a gradient, by lines that were not told of."""
    for lost in lost_passes(history):
        if history.events[lost.cleared].site not in told:
            yield _only_the_last(history, lost)
    for left in left_over_passes(history):
        yield _left_over(history, left)
    for other in replaced_passes(history):
        if history.events[other.cleared].site not in told:
            yield _replaced(history, other)
    for change in lost_changes(history):
        if history.events[change.cleared].site not in told:
            yield _lost(history, change)


def _always_cleared(history: History, tensor: TensorId) -> tuple[int, Gradients] | None:
    """Return the first clearing call and its step, when every step found the gradient cleared."""
    steps = [fact for fact in history.steps if tensor in fact.status]
    used = {str(fact.status[tensor]) for fact in steps}
    if "some" in used or not history.backwards or _given_zeros(history, tensor, used):
        return None
    found: list[tuple[int, Gradients]] = []
    since = 0
    passes = _filling(history, tensor), history.graded_after(tensor)
    for step in steps:
        at = history.position(step.at)
        # What was not looked into says nothing; before the first pass there is nothing to clear.
        if step.status[tensor] != "unchecked" and history.backwards[0] < at:
            found.append((_clearing(history, tensor, passes, (since, at)), step))
        since = at
    return found[0] if found and all(one != UNKNOWN for one, _ in found) else None


def _given_zeros(history: History, tensor: TensorId, used: set[str]) -> bool:
    """Whether backward gave a parameter zeros, and they are what its steps used."""
    filled = {fact.status.get(tensor, "none") for fact in history.after_backward}
    return "zero" in filled and "some" not in filled and "none" not in used


def _clearing(
    history: History,
    tensor: TensorId,
    passes: tuple[set[SiteId], list[int]],
    stretch: tuple[int, int],
) -> int:
    """Return the last call in a stretch that took away a gradient which a backward had given.

    `passes` are the lines whose passes were seen to give something, and when a gradient was there.
    """
    (filled, given), (since, until) = passes, stretch
    if bisect_left(given, since) >= bisect_right(given, until):
        return UNKNOWN
    gradients: set[int] = set()
    found, after_backward, nothing = UNKNOWN, False, True
    for position in range(max(0, since), min(until, len(history.events))):
        event = history.events[position]
        if event.operation == "backward":
            found, after_backward, nothing = UNKNOWN, True, event.site not in filled
        elif event.operation == "grad.__get__" and _is_of(event, tensor):
            gradients.update(one.tensor for one in event.results)
        elif after_backward and _clears(
            event, tensor, gradients, known=nothing or found != UNKNOWN
        ):
            found = position
    return found


def _filling(history: History, tensor: TensorId) -> set[SiteId]:
    """Return the lines whose passes were seen to give a tensor something else than zeros."""
    return {one.site for one in history.after_backward if one.status.get(tensor) == "some"}


def _is_of(event: Event, tensor: TensorId) -> bool:
    return bool(event.reads) and event.reads[0].tensor == tensor


def _clears(event: Event, tensor: TensorId, gradients: set[int], *, known: bool) -> bool:
    """Whether a call takes a gradient away: sets it anew, or is the last to write over it.

    Where a call is known that did, a later one that computes with what is left is not it; nor where
    the pass was not seen to give anything but zeros.
    """
    if event.operation == "zero_grad":
        return any(one.tensor == tensor for one in event.reads)
    if event.operation == "grad.__set__":
        return _is_of(event, tensor)
    if known and not operation(event.operation).overwrites:
        return False
    return any(one.tensor in gradients for one in event.writes)


def _claim(history: History, tensors: list[int], position: int, step: Gradients) -> Claim:
    event, events = history.events[position], history.events
    first = history.backwards[0]
    count = sum(
        tensors[0] in fact.status and history.position(fact.at) > first for fact in history.steps
    )
    backward = next((one for one in reversed(history.backwards) if one < position), first)
    return Claim(
        tensors=tuple(tensors),
        cause=event.site,
        site=event.site,
        calls=(position,),
        operation=event.operation.removesuffix(".__set__"),
        message=say(
            "The gradient of {subject} was cleared between backward and step, before {every}: the"
            " optimizer had nothing to use.",
            every="the one step" if count == 1 else f"each of {count} steps",
        ),
        story=(
            Step("made", events[backward].site, say("backward fills the gradient")),
            Step("cleared", event.site, say("it is cleared here")),
            Step("step", step.site, say("the optimizer steps without it")),
        ),
        repair=Repair(say("Clear gradients before backward, not at {here}.", here=At(event.site))),
        count=count,
    )


def _only_the_last(history: History, lost: LostPasses) -> Claim:
    events = history.events
    loss, cleared, step = (events[at].site for at in (lost.backward, lost.cleared, lost.step))
    return Claim(
        tensors=lost.tensors,
        cause=("passes", loss, cleared),
        site=cleared,
        calls=(lost.cleared,),
        operation=events[lost.cleared].operation,
        message=say(
            "{n} of {all} passes of backward at {loss} are lost to {subject}: {here} clears what"
            " they gave before the step at {step} uses it, so each step uses the last pass alone.",
            n=lost.lost, all=lost.passes, loss=At(loss), here=At(cleared), step=At(step),
        ),
        story=(
            Step("made", loss, say("backward fills the gradient, several times for each step")),
            Step("cleared", cleared, say("it is cleared here before the last pass")),
            Step("step", step, say("the optimizer steps with what the last pass gave")),
        ),
        repair=Repair(say("Clear gradients once for each step: right after it, or before the first"
                          " of its passes.")),
        count=0,
    )  # fmt: skip


_LEFT_OVER = (
    "Each step at {step} takes the gradients of {full} passes of backward at {loss}. {n} more"
    " passes were left over, {times} times too few for a step, and {here} clears what they gave to"
    " {subject}: no step uses it."
)
_CUT_SHORT = (
    "Each step at {step} has {full} passes of backward at {loss} before it, and {times} of the"
    " steps use a part of them alone: {here} clears what {n} passes gave to {subject} before the"
    " step that counts them."
)


def _left_over(history: History, lost: LeftOverPasses) -> Claim:
    events = history.events
    loss, cleared, step = (events[at].site for at in (lost.backward, lost.cleared, lost.step))
    return Claim(
        tensors=lost.tensors,
        cause=("left over", loss, cleared),
        site=cleared,
        calls=(lost.cleared,),
        operation=events[lost.cleared].operation,
        severity="note",
        message=say(
            _CUT_SHORT if lost.within else _LEFT_OVER,
            step=At(step), full=lost.full, loss=At(loss), n=lost.lost, times=lost.times,
            here=At(cleared),
        ),
        story=(
            Step("made", loss, say("backward adds to the gradient")),
            Step("cleared", cleared, say("it is cleared here, and no step came between")),
            Step("step", step, say("the next step goes by later passes alone")),
        ),
        repair=Repair(say("Clear gradients right after each step and nowhere else; or step with"
                          " what is left over before it is cleared, and count anew.")
                      if lost.within else
                      say("Step once more at the end of an epoch with what is left over, or clear"
                          " gradients right after each step and nowhere else.")),
        count=0,
    )  # fmt: skip


def _never_found(history: History, asked: AskedInVain) -> Claim:
    backward = history.events[asked.backward].site
    cleared = history.events[asked.cleared].site if asked.cleared != UNKNOWN else None
    clears = () if cleared is None else (
        Step("cleared", cleared, say("it is cleared here before the line asks again")),
    )  # fmt: skip
    return Claim(
        tensors=asked.tensors,
        cause=("asked", asked.site),
        site=asked.site,
        operation="grad",
        message=say(
            "{here} asks for the gradient of {subject} and never finds one, though each of {n}"
            " backward passes gives it one afterwards: nothing uses it. It finds those of {others}"
            " other parameters.",
            here=At(asked.site), n=asked.passes, others=asked.others,
        ),
        story=(
            Step("used", asked.site, say("the gradient is asked for here, and is None")),
            Step("made", backward, say("this backward pass gives it")),
            *clears,
        ),
        repair=Repair(
            say("Ask once more when the pass has ended. A hook that `Tensor.register_hook` adds"
                " runs before the gradient is stored; one that"
                " `register_post_accumulate_grad_hook` adds runs after it.")
        ),
        count=asked.passes,
    )  # fmt: skip


def _replaced(history: History, lost: OtherPasses) -> Claim:
    events = history.events
    loss, cleared, instead, step = (
        events[at].site for at in (lost.backward, lost.cleared, lost.instead, lost.step)
    )
    return Claim(
        tensors=lost.tensors,
        cause=("replaced", loss, cleared),
        site=cleared,
        calls=(lost.cleared,),
        operation=events[lost.cleared].operation,
        message=say(
            "What backward at {loss} gives {subject} is used by no step, in any of {n} passes:"
            " {here} clears it, and {step} steps with what backward at {instead} gives.",
            loss=At(loss), here=At(cleared), step=At(step), instead=At(instead), n=lost.times,
        ),
        story=(
            Step("made", loss, say("backward fills the gradient")),
            Step("cleared", cleared, say("it is cleared here")),
            Step("made", instead, say("another backward pass fills it")),
            Step("step", step, say("the optimizer steps with what the other pass gave")),
        ),
        repair=Repair(
            say("Ask for the other gradients with torch.autograd.grad, which leaves `.grad` alone,"
                " or before the pass at {loss}.", loss=At(loss))
        ),
        count=lost.times,
    )  # fmt: skip


def _lost(history: History, change: LostChange) -> Claim:
    events = history.events
    written, cleared, step = (events[at].site for at in (change.write, change.cleared, change.step))
    return Claim(
        tensors=change.tensors,
        cause=("change", written),
        site=written,
        calls=(change.write,),
        operation=events[change.write].operation,
        message=say(
            "The gradient of {subject} was changed at {written} and cleared at {cleared} before the"
            " step at {step}, each of {n} times: no step used the change.",
            written=At(written), cleared=At(cleared), step=At(step), n=change.times,
        ),
        story=(
            Step("written", written, say("{call} changes the gradient in place",
                 call=CallOf(change.write))),
            Step("cleared", cleared, say("it is cleared here, and made anew")),
            Step("step", step, say("the optimizer steps with a gradient that was not changed")),
        ),
        repair=Repair(
            say(
                "Change the gradient between the backward pass and the step that uses it; where"
                " the step is given a closure, inside the closure, after its backward pass."
            )
        ),
        count=change.times,
    )  # fmt: skip


def _nothing_clipped(history: History, clip: VainClip) -> Claim:
    site = history.events[clip.first].site
    why = (
        "what it was given, {subject} among it, had none then."
        if clip.tensors
        else "it was given no parameters, or an iterator that had been gone through before."
    )
    return Claim(
        tensors=clip.tensors,
        cause=("clip", site),
        site=site,
        operation=history.site(history.events[clip.first].inner).function,
        message=say(
            "The clipping at {line} found no gradient, each of {n} times: " + why,
            line=At(site), n=clip.runs,
        ),
        subject=shortened(history.site(site).expression),
        story=(Step("written", site, say("nothing is clipped here")),),
        repair=Repair(
            say("Clip between the backward pass and the step.")
            if clip.tensors
            else say("Give it a list, or ask for the parameters anew: an iterator gives what it has"
                     " once.")
        ),
        count=0,
    )  # fmt: skip


def _bounded_in_part(history: History, found: BoundedEarly) -> Claim:
    events = history.events
    written, added = events[found.write].site, events[found.added].site
    parts = {
        "written": At(written), "added": At(added), "step": At(events[found.step].site),
        "passes": found.passes, "n": found.steps, "call": CallOf(found.write),
    }  # fmt: skip
    then = (
        "what an early pass gave is scaled again after each later one, for each of {n} steps."
        if found.again
        else "nothing limits the sum that {step} uses, in each of {n} steps."
    )
    return Claim(
        tensors=found.tensors,
        cause=("in part", written),
        site=written,
        calls=(found.write,),
        operation=events[found.write].operation,
        severity="warning" if found.alike and not found.again else "note",
        message=say(
            "The gradient of {subject} is limited at {written} as the sum of a part of {passes}"
            " passes; backward at {added} adds to it, and " + then,
            **parts,
        ),
        story=(
            Step("written", written, say("it is limited here, before all passes have added to it")),
            Step("made", added, say("this pass adds to what was limited")),
            Step("step", events[found.step].site, say("the optimizer uses the sum")),
        ),
        repair=Repair(
            say("Limit the gradients once for each step, after its last pass of backward.", **parts)
        ),
        count=found.steps,
    )  # fmt: skip


def _bounded(history: History, found: ScaledChange) -> Claim:
    events = history.events
    passed, written, divided = (
        events[at].site for at in (found.backward, found.write, found.divided)
    )
    return Claim(
        tensors=found.tensors,
        cause=("scaled", written),
        site=written,
        calls=(found.write,),
        operation=events[found.write].operation,
        message=say(
            "The gradient of {subject} still held the scale of the loss when {line} limited it,"
            " each of {n} times: {divided} divides it by that scale afterwards, and the limit with"
            " it.",
            line=At(written), divided=At(divided), n=found.times,
        ),
        story=(
            Step("made", passed, say("backward of a scaled loss fills the gradient")),
            Step("written", written, say("it is limited here")),
            Step("cleared", divided, say("the scale is taken out here, before the step")),
        ),
        repair=Repair(
            say("Call `unscale_` of the gradient scaler, with the optimizer, before {line}.",
                line=At(written))
        ),
        count=found.times,
    )  # fmt: skip


def _skipped(history: History, found: SkippedPart) -> Claim:
    part, loss, rescaled = (
        history.events[at].site for at in (found.call, found.backward, found.rescaled)
    )
    return Claim(
        tensors=(),
        cause=("skipped", part),
        site=part,
        calls=(found.call,),
        operation=history.events[found.call].operation,
        severity="note" if found.meant else "warning",
        message=say(
            "No step ever used what {part} computes: it is behind the losses of {n} passes, and the"
            " gradient scaler left out the step after each of them. {m} steps came after passes"
            " without it.",
            part=At(part), n=found.times, m=found.stepped,
        ),
        subject=shortened(history.site(part).expression),
        story=(
            Step("used", part, say("this is a part of some losses only")),
            Step("made", loss, say("backward of such a loss fills the gradients")),
            Step("cleared", rescaled, say("the scaler goes on, and no step was taken")),
        ),
        repair=Repair(say("Keep the scale at which such a loss overflows from coming back: a larger"
                          " growth_interval of the scaler than the passes between, or a smaller"
                          " loss; or repeat a step that was left out.")),
        count=found.times,
    )  # fmt: skip


def _forgotten(history: History, found: BegunAnew) -> Claim:
    fact = history.trace.optimizers[found.optimizer]
    step = history.events[found.step].site
    return Claim(
        tensors=tuple(fact.tensors),
        cause=("anew", fact.site),
        site=fact.site,
        operation=fact.kind,
        message=say(
            "The {n} optimizers of {subject} that {line} made took one step each: what {kind} keeps"
            " of the gradients of earlier steps is lost each time.",
            line=At(fact.site), n=found.times, kind=fact.kind,
        ),
        story=(
            Step("made", fact.site, say("a new {kind} is made here", kind=fact.kind)),
            Step("step", step, say("it takes its only step")),
        ),
        repair=Repair(say("Make the optimizer once, before the loop.")),
        count=found.times,
    )  # fmt: skip


def _copied(history: History, found: GradedCopy) -> Claim:
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
            "Nothing uses the gradients that {n} backward passes gave {subject}, and no optimizer"
            " takes them: {write} gives it the values of {source}, as a copy.",
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


VERDICT = Verdict(
    slug="gradient-discarded",
    severity="warning",
    summary="a gradient was there and was cleared, here, before the optimizer used it",
    page=PAGE,
    check=check,
    damage="lost training",
    examples=(
        Example(
            "A target network that the loss goes back through",
            """import torch

net, target = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    wanted = 1 + 0.9 * target(torch.zeros(2, 3))
    opt.zero_grad()
    (net(torch.ones(2, 3)) - wanted).pow(2).mean().backward()
    opt.step()
    target.load_state_dict(net.state_dict())
""",
            (Expected("gradient-discarded", "target.weight", 6),),
        ),
        Example(
            "A target network without a graph",
            """import torch

net, target = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    with torch.no_grad():
        wanted = 1 + 0.9 * target(torch.zeros(2, 3))
    opt.zero_grad()
    (net(torch.ones(2, 3)) - wanted).pow(2).mean().backward()
    opt.step()
    target.load_state_dict(net.state_dict())
""",
        ),
    ),
)
