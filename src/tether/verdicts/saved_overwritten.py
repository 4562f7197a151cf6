"""`saved-overwritten`: backward raised, since a value that it needs was written in place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.overwritten import Overwritten, blamed, overwritten
from tether.analysis.history import History
from tether.analysis.libraries import made_by
from tether.analysis.surroundings import WaysThere
from tether.facts import OUT, UNKNOWN, Event, Operand
from tether.finding import At, CallOf, Claim, Repair, Sentence, Step, Tensor, say, typed
from tether.operations.table import makes_anew, operation
from tether.source.calls import without_keyword
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# saved-overwritten

## What it says
Backward raised "one of the variables needed for gradient computation has been modified by an
inplace operation". The finding names the call that saved the value, the line that wrote it
afterwards, and the tensor's name. A note says the same of a loss on which nobody has called
backward yet, when that would fail.

## Why it matters
PyTorch's message gives a shape and two version numbers. Anomaly detection adds the line that saved
the value. Neither says who wrote it.

## Known problems
Where several saved values were written, the one that backward needs first is named. Where the
program has set its own hooks on saved tensors, tether does not read what is saved, and says
nothing.

## Example
```python
probs = scores.softmax(dim=-1)
probs[:, :, future] = 0.0            # softmax saved probs for its backward
```

## Use instead
```python
probs = scores.softmax(dim=-1)
probs = probs.masked_fill(future, 0.0)
```

## Fix safety
A write that makes a new tensor needs memory for it, so no fix is applied automatically.
"""


def check(history: History) -> Iterator[Claim]:
    """Explain each backward pass that failed for this reason."""
    explained: set[tuple[int, int]] = set()
    for fact in history.trace.raised:
        found = blamed(history, fact)
        if found is not None:
            explained.add(_cause(history, found))
            yield _failed(history, history.position(fact.event), found)
    for loss, found in _ahead(history):
        if _cause(history, found) not in explained:
            yield _would_fail(history, loss, found)


def _cause(history: History, found: Overwritten) -> tuple[int, int]:
    return history.events[found.write].site, history.events[found.at].site


# -- a loss that nobody has called backward on -----------------------------------------------------


def _ahead(history: History) -> Iterator[tuple[int, Overwritten]]:
    """Find losses that no backward pass has started from, and of which each would fail.

    A loss is a single value alive at the end. What was saved has to be written by the program's
    own line; parameters that an optimizer stepped are left out: a loss of an evaluation is not
    meant to be differentiated. So is a sum of losses that were each gone through: what their passes
    needed has served, and is let go.
    """
    graph = history.get(Graph)
    for made in _losses_alive(history):
        if graph.last_pass[made] >= 0:
            continue
        for found in overwritten(history, made, len(history.events)):
            stepped = history.events[found.write].operation == "step"
            used = graph.last_pass[found.at] >= 0
            if not stepped and not used and found.operand.tensor not in history.held:
                yield made, found
                break


def _losses_alive(history: History) -> Iterator[int]:
    """Yield the calls that made what may be a loss: one value with a graph, alive at the end."""
    for tensor in history.left:
        operand, made = history.operand_of(tensor), history.made_at(tensor)
        if operand is None or made < 0 or not history.names_of(tensor):
            continue
        if math.prod(operand.shape) == 1 and operand.requires_grad and not operand.leaf:
            yield made


def _would_fail(history: History, loss: int, found: Overwritten) -> Claim:
    """Say of a loss that backward through it would fail."""
    write = history.events[found.write]
    written, result = write.writes[0].tensor, history.events[loss].results[0].tensor
    return Claim(
        tensors=(written, found.operand.tensor),
        cause=_cause(history, found),
        site=write.site,
        operation=write.operation,
        severity="note",
        message=say(
            "backward() on {loss} would fail: {saver} at {saved} saved {kept} for it, and {written}"
            " wrote to {kept} afterwards.",
            loss=Tensor(result),
            saver=CallOf(found.at),
            saved=At(history.events[found.at].site),
            kept=Tensor(found.operand.tensor),
            written=At(write.site),
        ),
        story=(
            *_story(history, found, loss),
            Step("used", history.events[loss].site, say("{x} is made here", x=Tensor(result))),
        ),
        repair=_repair(history, found, written),
        calls=(found.write,),
    )


# -- a backward pass that failed -------------------------------------------------------------------


def _failed(history: History, backward: int, found: Overwritten) -> Claim:
    write = history.events[found.write]
    written = _written(history, found)
    stepped = write.operation == "step"
    carried, later = _carried(history, backward, found) if stepped else (None, UNKNOWN)
    story = _story(history, found, backward)
    what = say("{call} at {line} wrote to {name} afterwards", call=CallOf(found.write),
               line=At(write.site), name=Tensor(written))  # fmt: skip
    repair = _repair(history, found, written)
    tensors: tuple[int, ...] = (written, found.operand.tensor)
    if carried is not None:
        tensors = (carried.tensor, *tensors)
        state = Tensor(carried.tensor)
        what = say("{before}, and {state} still carries the graph from before that step",
                   before=what, state=state)  # fmt: skip
        entry = Step("carried", history.get(WaysThere).seen_by(later, backward), say("{x} goes into"
                     " this pass here", x=state))  # fmt: skip
        repair = Repair(say("If {x} goes on from step to step, cut its graph before {line}: `{x!s}"
                            " = {x!s}.detach()`. If it was made for this step, compute it from"
                            " detached values of what {step} trains, or run this backward before"
                            " {step}: what it adds to gradients counts there, too.",
                            x=state, line=At(entry.site), step=At(write.site)))  # fmt: skip
        made = history.made_at(carried.tensor)
        if made >= 0:
            begins = Step("carried", history.events[made].site, say("the graph of {x} begins here",
                          x=state))  # fmt: skip
            story = (story[0], begins, *story[1:])
        story = (*story, entry)
    raised = Step("loss", history.events[backward].site, say("backward raises here"))
    return Claim(
        tensors=tensors,
        cause=_cause(history, found),
        site=write.site,
        operation=write.operation,
        message=say(
            "backward failed: {saver} at {saved} had saved {kept} for it, and {what}.",
            saver=CallOf(found.at),
            saved=At(history.events[found.at].site),
            kept=Tensor(found.operand.tensor),
            what=what,
        ),
        story=(*story, raised),
        repair=repair,
        calls=(found.write,),
    )


def _written(history: History, found: Overwritten) -> int:
    """Return the tensor through which a saved value was written."""
    storage = found.operand.storage
    return next(one.tensor for one in history.events[found.write].writes if one.storage == storage)


def _story(history: History, found: Overwritten, seen: int) -> tuple[Step, ...]:
    """Where the value was made and saved, and where it was written; `seen` is the pass or loss."""
    saver, write = history.events[found.at], history.events[found.write]
    kept = Tensor(found.operand.tensor)
    name = history.facts_of_name(found.operand.tensor)
    own = name is not None and name.module  # of a module: nobody hands it to its forward
    entered = (
        say("the call that saves it came from here") if own else say("{x} goes in here", x=kept)
    )
    steps = [
        *_from(history, found.at, seen, entered),
        Step(
            "saved", saver.site,
            say("{call} saves {x} for its backward", call=CallOf(found.at), x=kept),
        ),
        Step("written", write.site, say("{call} changes it", call=CallOf(found.write))),
        *_from(history, found.write, seen, say("the call that changes it came from here")),
    ]  # fmt: skip
    function = history.inside(write, "function")
    outer = history.position(history.trace.spans[function].event) if function >= 0 else -1
    if outer > found.at:  # what a forward wrote, its caller wrote
        asked = say("{call} runs that forward", call=CallOf(outer))
        steps.append(Step("called", history.events[outer].site, asked))
    made = history.made_at(found.operand.tensor)
    if 0 <= made < found.at:
        steps.insert(0, Step("made", history.events[made].site, say("{x} is made here", x=kept)))
    return tuple(steps)


def _from(history: History, at: int, seen: int, said: Sentence) -> Iterator[Step]:
    """Yield the line that led to a call, in the function that another ran in, where it is one."""
    line = history.get(WaysThere).seen_by(at, seen)
    if line != history.events[at].site:
        yield Step("called", line, said)


def _carried(history: History, backward: int, found: Overwritten) -> tuple[Operand | None, int]:
    """Find the tensor through which the graph reaches back over a step, and the call it enters."""
    graph = history.get(Graph)
    behind = sorted(graph.behind(backward))
    later = [at for at in behind if at > found.write]
    if not any(one.leaf and one.requires_grad for at in later for one in history.events[at].reads):
        return None, UNKNOWN  # cut there, the loss would have no gradient at all
    for at in later:
        for one in history.events[at].reads:
            made = history.made_at(one.tensor)
            crosses = one.requires_grad and not one.leaf and found.at <= made < found.write
            if crosses and history.flow.is_known_behind(made, found.at):
                return one, at
    return None, UNKNOWN


def _repair(history: History, found: Overwritten, written: int) -> Repair:
    """Say how to write without changing what was saved."""
    write = history.events[found.write]
    name, line = Tensor(written), At(write.site)
    if write.operation == "step":
        return Repair(
            say("Run every backward that needs {x} before the step at {line}, or compute the loss"
                " again after it.", x=name, line=line)
        )  # fmt: skip
    if write.operation == "__setitem__":
        return Repair(_of_assignment(history, found, name, line), "out of place", write.site)
    if operation(write.operation).overwrites:
        return Repair(
            say("Let {x} be a new tensor at {line} (torch.full_like(...), a clone of what is"
                " copied) instead of writing over the one that was saved.", x=name, line=line),
            "by hand",
            write.site,
        )  # fmt: skip
    said = _of_own_call(history, write, parts={"x": name, "line": line})
    if said is not None and write.inner == write.site:
        return Repair(said, "out of place", write.site)
    return Repair(_of_another_call(history, write, {"x": name, "line": line}), "by hand")


def _of_own_call(history: History, write: Event, parts: dict[str, Any]) -> Sentence | None:
    """Say how the program's own call makes a new tensor; None where PyTorch has no such call."""
    if call := without_keyword(history.site_of(write).expression, "inplace"):
        return say("Leave `inplace=True` out at {line}, and go on with the new tensor that {call}"
                   " returns.", call=typed(call), **parts)  # fmt: skip
    begun = makes_anew(write.operation).replace("{x}", "{x!s}")
    if not begun or write.flags & OUT:
        return None
    text = "Use the call that makes a new tensor at {line}: `{x!s} = "
    return say(f"{text}{begun}...)`.", **parts)


def _of_another_call(history: History, write: Event, parts: dict[str, Any]) -> Sentence:
    """Say how to do without a write that a library's line makes, or a call of another kind."""
    if write.flags & OUT:
        return say("Leave `out=` out at {line}, and go on with the new tensor that the call"
                   " returns.", **parts)  # fmt: skip
    layer, _, method = history.site(write.inner).function.rpartition(".")
    given = {one.tensor for one in write.results} & {one.tensor for one in write.writes}
    if given and method == "forward" and made_by(history, write, "torch.nn.modules"):
        return say("Make the `{layer}` that runs at {line} with `inplace=False`.", layer=layer,
                   **parts)  # fmt: skip
    return say("Let the call at {line} write to a copy, `{x!s}.clone()`, and go on with that copy;"
               " or run the call after backward.", **parts)  # fmt: skip


def _of_assignment(history: History, found: Overwritten, name: Tensor, line: At) -> Sentence:
    if history.times(found.write) > 1:
        return say(
            "Collect the parts in a list and join them once (torch.stack, torch.cat) instead of"
            " assigning into {x} at {line}.",
            x=name,
            line=line,
        )
    return say(
        "Make a new tensor at {line}, with torch.where(...) or masked_fill(...), or assign into a"
        " clone of {x}.",
        x=name,
        line=line,
    )


VERDICT = Verdict(
    slug="saved-overwritten",
    severity="error",
    summary="backward failed because a tensor saved for it was modified in place",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "An assignment into what exp returned",
            """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
h[0] = 0.0
try:
    h.sum().backward()
except RuntimeError:
    print("failed")
""",
            (Expected("saved-overwritten", "h", 5),),
        ),
        Example(
            "An addition saves nothing",
            """import torch

w = torch.ones(3, requires_grad=True)
h = w + 1
h[0] = 0.0
h.sum().backward()
""",
        ),
    ),
)
