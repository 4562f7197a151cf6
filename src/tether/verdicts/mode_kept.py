"""`mode-kept`: an evaluation mode that stayed on in training, or that did not stay on."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.left_in_evaluation import (
    LeftInEvaluation,
    NoLongerMoved,
    left_in_evaluation,
    no_longer_moved,
)
from tether.analysis.modes_undone import ModeUndone, modes_undone
from tether.analysis.no_longer import OutOfUse
from tether.analysis.statistics_moved import StatisticsMoved, statistics_moved
from tether.analysis.wording import listed
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# mode-kept

## What it says
The model was put into evaluation mode and evaluated, and the steps that follow train it in that
mode: nothing called `train()` again. Before, steps had trained it in training mode. Or a part of
the model was put into evaluation mode by itself, and a `train()` of the whole model took it out of
it: the statistics of a batch normalization that was to be held still move, or a part that nothing
trains drops values out. Or a batch normalization was frozen (`requires_grad_(False)`), and its
statistics move all the same while something else is trained, since it is in training mode. Or a
copy that followed what is trained, an average, follows no more since an evaluation put it into
evaluation mode.

## Why it matters
Dropout drops nothing and batch normalization uses the running statistics and no longer updates
them, so most of the training is another one than its first steps. Nothing raises, and the loss may
even look better.

## Known problems
It is a warning where the program shows that training mode is to come back: it calls `train()`, or
`eval()` at the same line again. Else it is a note. Nothing is said of a model without a module that
the mode makes a difference to, of one that was in evaluation mode from its first step on, or of an
`eval()` after which nothing is evaluated. Of a part it is a warning where nothing had used the part
in evaluation mode before `train()` came, or nothing trains it; else it may be what is meant, and is
a note. Nothing is said of a part that is trained and holds no statistics of its own, or of one in
which no statistics moved and no values were dropped. Of a norm that was frozen it is a warning
where a model that the last quarter of those passes did not train computes with the moved
statistics; else they may be meant to follow the data, and it is a note.

## Example
```python
model.train()
for epoch in range(epochs):
    fit(model)
    evaluate(model)       # calls model.eval(): the second epoch trains in that mode
```

## Use instead
```python
for epoch in range(epochs):
    model.train()
    fit(model)
    evaluate(model)
```

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that put what is trained into evaluation mode."""
    # What the mode takes out of the loss is told as gradient-unused, with the same repair.
    told = {one.switch.site for one in history.get(OutOfUse).found}
    for found in left_in_evaluation(history):
        if found.switch.site not in told:
            yield _claim(history, found)
    for stopped in no_longer_moved(history):
        yield _stopped(history, stopped)
    held = set[int]()
    for undone in modes_undone(history):
        held.update(undone.tensors)
        yield _undone(history, undone)
    for moved in statistics_moved(history):
        if held.isdisjoint(moved.tensors):
            yield _moved(history, moved)


def _undone(history: History, found: ModeUndone) -> Claim:
    held, undone, used = found.held.site, found.undone.site, history.events[found.used].site
    what = (
        "computes in training mode and moves {subject}"
        if found.statistics
        else "computes with {subject} in training mode and drops values, though no step trains it"
    )
    parts = {"kinds": listed(list(found.held.kinds), 3), "held": At(held), "line": At(undone)}
    return Claim(
        tensors=found.tensors,
        cause=("undone", held, undone),
        site=held,
        operation="eval",
        severity="warning" if found.in_vain or not found.trained else "note",
        message=say(
            f"A part with {{kinds}} {what}: {{held}} put it into evaluation mode, and train() at"
            " {line}, of a module around it, took it out again.",
            **parts,
        ),
        story=(
            Step("mode", held, say("evaluation mode of this part begins here")),
            Step("mode", undone, say("training mode of all that is in the module begins here")),
            Step("used", used, say("the part is used in training mode")),
        ),
        repair=Repair(say("Call eval() on the part after each train() of the module around it, or"
                          " let the module's own train() do so.")),
        count=0,
    )  # fmt: skip


def _moved(history: History, found: StatisticsMoved) -> Claim:
    events = history.events
    frozen, used = events[found.frozen].site, events[found.used].site
    mode = found.mode if found.mode >= 0 else used
    parts = {"w": Tensor(found.weight), "frozen": At(frozen), "n": found.passes, "mode": At(mode)}
    since = " since {mode}" if found.mode >= 0 else ""
    message = (
        "{subject} changed in {n} training passes though {frozen} froze {w}: the norm is in"
        f" training mode{since}, where its forward writes the statistics, whatever requires grad."
    )
    read: tuple[Step, ...] = ()
    if found.read >= 0:
        line = events[found.read].site
        message += (
            " A model that the last of these passes did not train computes with them at {read}."
        )
        parts["read"] = At(line)
        read = (Step("read", line, say("a model that they were not moved for reads them")),)
    return Claim(
        tensors=found.tensors,
        cause=("moved", frozen, mode),
        site=mode,
        operation="train",
        severity="warning" if read else "note",
        message=say(message, **parts),
        story=(
            Step("frozen", frozen, say("{w} is frozen here", **parts)),
            *([Step("mode", mode, say("training mode begins here"))] if since else []),
            Step("written", used, say("the forward in training mode writes the statistics")),
            *read,
        ),
        repair=Repair(say("Call eval() on what is frozen, after each train() of a module around"
                          " it.")),
        count=0,
    )  # fmt: skip


def _claim(history: History, found: LeftInEvaluation) -> Claim:
    switch, loss = found.switch, history.events[found.loss].site
    steps = found.in_training + found.in_evaluation
    parts = {"line": At(switch.site), "loss": At(loss), "n": found.in_evaluation, "all": steps}
    trained = [] if found.trained is None else [found.trained.site]
    return Claim(
        tensors=(found.tensor,),
        cause=("mode", switch.site),
        site=switch.site,
        operation="eval",
        severity="note" if found.meant else "warning",
        message=say(
            "{n} of {all} steps train {subject} in evaluation mode: {line} switched to it for an"
            " evaluation, and nothing switched back before backward at {loss}. The mode makes a"
            f" difference to {listed(list(switch.kinds), 3)}.",
            **parts,
        ),
        story=(
            Step("mode", switch.site, say("evaluation mode begins here")),
            Step("loss", loss, say("backward of a step that trains in evaluation mode")),
            *(Step("mode", one, say("training mode begins here")) for one in trained),
        ),
        repair=Repair(say("Call train() on the model after each evaluation, or before each epoch"
                          " and each time that training goes on within it.")),
        count=0,
    )  # fmt: skip


def _stopped(history: History, found: NoLongerMoved) -> Claim:
    switch, moved, read = found.switch, *(
        history.events[at].site for at in (found.moved, found.read)
    )  # fmt: skip
    parts = {"line": At(switch.site), "moved": At(moved), "of": Tensor(found.of),
             "n": found.before, "steps": found.steps}  # fmt: skip
    trained = [] if found.trained is None else [found.trained.site]
    return Claim(
        tensors=found.tensors,
        cause=("stopped", switch.site, moved),
        site=switch.site,
        operation="eval",
        severity="note" if found.meant else "warning",
        message=say(
            "{subject} was moved after {of} at {moved}, {n} times, and never since {line} put it"
            " into evaluation mode: nothing switched back, and {steps} steps have changed {of}"
            " since.",
            **parts,
        ),
        story=(
            *(Step("mode", one, say("training mode begins here")) for one in trained),
            Step("written", moved, say("it is moved after {of} here", **parts)),
            Step("mode", switch.site, say("evaluation mode begins here")),
            Step("used", read, say("it is read since, with the values of before")),
        ),
        repair=Repair(say("Call train() on the module after each evaluation; or let the update not"
                          " depend on the mode.")),
        count=0,
    )  # fmt: skip


VERDICT = Verdict(
    slug="mode-kept",
    severity="warning",
    summary="an evaluation mode stays on in training, or does not stay on where it was to",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "Training mode is switched on once",
            """import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for epoch in range(3):
    for _ in range(2):
        opt.zero_grad()
        model(torch.rand(4, 3)).pow(2).mean().backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        print(model(torch.rand(4, 3)).mean())
""",
            (Expected("mode-kept", "model.0.weight", 12),),
        ),
        Example(
            "Statistics that are held still each time",
            """import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    model.train()
    model[1].eval()
    opt.zero_grad()
    model(torch.rand(4, 3)).pow(2).mean().backward()
    opt.step()
""",
        ),
    ),
)
