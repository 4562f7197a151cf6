"""`tie-error`: PyTorch's own errors about graphs, memory and devices, explained."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.gradients.overwritten import blamed
from tether.analysis.history import History, shortened
from tether.facts import UNKNOWN, Operand, Raised
from tether.finding import At, CallOf, Claim, Repair, Sentence, Tensor, say
from tether.operations.table import operation
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.tie_error.elsewhere import at_home, claim_of_another
from tether.verdicts.tie_error.messages import entry_of, of_ties
from tether.verdicts.tie_error.second_pass import repair_twice, why_twice
from tether.verdicts.tie_error.story import Story
from tether.verdicts.tie_error.views import why_view

PAGE = """
# tie-error

## What it says
PyTorch refused a call because of how tensors are tied: to a graph, to memory, to a device. The
finding names the tensor and gives the call that works.

Of an error that a data loader's worker or another process had raised it says which tensor with a
graph was taken along, where that was computed, and the lines in the other process. Of a view that
may not be written in place it names what made the view such a one: the line that registered a
backward hook on a module, the call of a custom Function, the `no_grad` block, or the `split`.

A block under activation checkpointing (`torch.utils.checkpoint`) runs again in the backward pass.
Where it goes another way than in the forward, its two runs are compared call by call. The finding
names

- the line of the checkpoint;
- the first call that only one of the runs makes, or that is given or gives a tensor of another
  shape, type or device;
- the line that changes what this hangs on: a cache that the block's own run fills, a flag that the
  program switches before the pass, `eval()`, a parameter that is frozen, numbers that are drawn
  anew.

A call that leaves nothing for the gradient (a mask that the first run makes and keeps) is not taken
for the reason. Where no call differs, the line of the checkpoint is named alone.

## Why it matters
PyTorch's messages state the rule that was broken. They do not say which tensor it is, nor which of
several ways out fits the program.

## Known problems
Which line changes a state of a block (an attribute, a container, a global) is read off the
program's text.

An error that the program catches and expects is explained as well. What a process that was
spawned, and not forked, had computed with is not known.

## Example
```python
weight -= lr * grad                  # a leaf that requires grad, in place
```

## Use instead
```python
with torch.no_grad():
    weight -= lr * grad
```

## Fix safety
Which way out is meant cannot be known: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Explain each error about ties, once per line and message."""
    for fact in _apart(history):
        if blamed(history, fact) is not None:
            continue  # saved-overwritten tells it
        if fact.elsewhere:
            yield from claim_of_another(history, fact)
            continue
        story = Story(history, fact)
        if story.missing is not None:
            yield _no_gradient(story, story.missing)
        elif story.block is not None or _speaks_of_ties(story):
            yield _refused(story)


def _apart(history: History) -> Iterator[Raised]:
    """Yield the errors; where one quotes those that led to it at its line, these in its place.

    As `load_state_dict` does: it goes on after what PyTorch refused, and then tells of all.
    """
    lines: dict[tuple[str, int], list[Raised]] = defaultdict(list)
    for noted in history.trace.raised:
        fact = at_home(history, noted)
        lines[history.site(fact.site).row].append(fact)
    for facts in lines.values():
        for fact in facts:
            by = [one for one in facts if _quotes(one, fact)]
            if by or not any(_quotes(fact, one) for one in facts):
                yield fact._replace(fatal=any(one.fatal for one in (fact, *by)))


def _quotes(outer: Raised, inner: Raised) -> bool:
    """Whether an error has in its message what a call of PyTorch's had said."""
    heard = inner.event != UNKNOWN and outer.event == UNKNOWN
    return heard and bool(inner.message) and inner.message in outer.message


def _speaks_of_ties(story: Story) -> bool:
    message = story.fact.message
    return of_ties(message) if story.event else entry_of(message) is not None


def _refused(story: Story) -> Claim:
    """Say why PyTorch refused a call."""
    fact, event = story.fact, story.event
    steps = story.told()
    twice = story.second
    chosen = twice.parted[0].value if twice else story.chosen
    if story.block is not None:
        chosen = story.block.loss
    unheard = event is None or operation(event.operation).leaves == "process"
    call = say("the call") if unheard else say("{call}", call=CallOf(story.at))
    why, repair = _explained(story, chosen)
    return Claim(
        tensors=() if chosen is None else (chosen.tensor,),
        cause=_cause(fact),
        site=fact.site,
        operation=event.operation if event is not None else "call",
        severity="error" if fact.fatal else "note",
        message=say("{call} failed at {line}: {why}", call=call, line=At(fact.site), why=why),
        story=steps,
        repair=repair,
        subject="" if chosen is not None else "the call",
    )


def _explained(story: Story, chosen: Operand | None) -> tuple[Sentence, Repair | None]:
    """Say why PyTorch refused, and what to do: by what led to it, or by what the message says."""
    entry, twice = entry_of(story.fact.message), story.second
    if story.block is not None:
        return story.block.why(_first_sentence(story.fact)), story.block.repair()
    if twice is not None:
        return why_twice(story.history, twice), repair_twice(story.history, twice)
    if story.taken_off is not None:
        return _taken_off(story, *story.taken_off)
    view = why_view(story.history, story.fact, chosen)
    if view is not None:
        return view
    if entry is None or (chosen is None and "{subject" in entry.why):
        return say('PyTorch says "{text}".', text=_first_sentence(story.fact)), None
    return say(entry.why), Repair(say(entry.repair, there=story.elsewhere(chosen)))


def _taken_off(story: Story, at: int, taken: Operand) -> tuple[Sentence, Repair]:
    """Say of a leaf, or of a value, that a call in place took it off the graph."""
    call, line = CallOf(at), At(story.history.events[at].site)
    x = Tensor(taken.tensor)
    why = say("{call} at {line} took {x} itself off the graph, and what is computed from {x} since"
              " has no gradient.", call=call, line=line, x=x)  # fmt: skip
    fix = say("Use detach() at {line}: it leaves {x} as it is.", line=line, x=x)
    return why, Repair(fix)


def _no_gradient(story: Story, leaf: Operand) -> Claim:
    """Say that a line went on with a gradient that is None."""
    fact = story.fact
    return Claim(
        tensors=(leaf.tensor,),
        cause=_cause(fact),
        site=fact.site,
        operation="grad",
        severity="error" if fact.fatal else "note",
        message=say("{subject} has no gradient at {line}: its .grad is None.", line=At(fact.site)),
        story=story.told(),
        repair=Repair(
            say(
                "Call backward on a loss that {subject} went into, with gradients on and no detach"
                " between; or skip tensors whose .grad is None."
            )
        ),
    )


def _first_sentence(fact: Raised) -> str:
    return shortened(re.split(r"\.\s|\n", fact.message, maxsplit=1)[0].rstrip("."), most=160)


def _cause(fact: Raised) -> tuple[int, str]:
    return fact.site, re.sub(r"\d+", "", fact.message)


VERDICT = Verdict(
    slug="tie-error",
    severity="error",
    summary="PyTorch refused a call because of how tensors are tied: the name, and what works",
    page=PAGE,
    check=check,
    examples=(
        Example(
            "A leaf written in place",
            """import torch

weight = torch.ones(3, requires_grad=True)
try:
    weight += 1
except RuntimeError as error:
    print(error)
""",
            (Expected("tie-error", "weight", 5),),
        ),
        Example(
            "The calls that work",
            """import copy
import torch

w = torch.ones(3, requires_grad=True)
with torch.no_grad():
    w += 1
(w * 2).detach().numpy()
copy.deepcopy(w)
""",
        ),
    ),
)
