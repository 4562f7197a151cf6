"""`buffer-stale`: a module follows another by its parameters, and its buffers stay behind."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, at_line
from tether.analysis.training.stale_buffers import StaleBuffer, stale_buffers
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.source.reading import looped_over
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# buffer-stale

## What it says
The parameters of one module are written into those of another again and again: a teacher, a target
network, an average. Its buffers are not. The trained module updates its own (the running mean and
variance of a batch normalization), and the module that follows computes with what its buffers were
in the beginning.

## Why it matters
`parameters()` lists no buffers. In evaluation mode the module that follows normalizes by a mean of
0 and a variance of 1, or by those of an old model, and gives other results than the one whose
weights it has. Nothing raises.

## Known problems
It is a warning where the buffers that stay behind show what they were made with, and the others are
computed from data; else it is a note. Nothing is said where the module that follows writes its
buffers itself (in training mode), or gets them at any later time (`update_bn`, `load_state_dict`).

## Example
```python
for p, q in zip(teacher.parameters(), student.parameters()):
    p.lerp_(q, 0.01)
```

## Use instead
```python
for p, q in zip(teacher.parameters(), student.parameters()):
    p.lerp_(q, 0.01)
for p, q in zip(teacher.buffers(), student.buffers()):
    p.copy_(q)
```

## Fix safety
It changes the results of the module that follows: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that moves parameters and leaves buffers behind."""
    for found in stale_buffers(history):
        yield _claim(history, found)


def _claim(history: History, found: StaleBuffer) -> Claim:
    events, moved = history.events, history.events[found.moved].site
    names = {"one": found.follower, "other": found.followed}
    stays = "nothing ever filled" if found.as_made else "nothing writes any more"
    return Claim(
        tensors=(found.tensor,),
        cause=("stale", moved, found.follower),
        site=moved,
        operation=events[found.moved].operation,
        severity="warning" if found.as_made else "note",
        message=say(
            "{line} moves the parameters of `{one}` after those of `{other}`, and no line its"
            f" buffers: {{n}} calls compute with {{subject}}, which {stays}, while {{of}} goes on"
            " being written.",
            line=At(moved), of=Tensor(found.of), n=found.reads, **names,
        ),
        story=(
            *_loop(history, moved),
            Step("written", events[found.written].site,
                 say("{of} gets new values here", of=Tensor(found.of))),
            Step("read", events[found.read].site,
                 say("`{one}` computes with {own}", own=Tensor(found.tensor), **names)),
        ),
        repair=Repair(
            say("Copy the buffers as well: `for p, q in zip({one}.buffers(), {other}.buffers()):"
                " p.copy_(q)`. torch.optim.swa_utils.AveragedModel does so.", **names)
        ),
        count=0,
        calls=(found.moved,),
    )  # fmt: skip


def _loop(history: History, moved: int) -> Iterator[Step]:
    """Yield the loop that goes over what is moved."""
    site = history.site(moved)
    for line in looped_over(history.get(Surroundings).source(site.file), site)[:1]:
        yield Step("made", at_line(site, line), say("this goes over parameters, and no buffers"))


VERDICT = Verdict(
    slug="buffer-stale",
    severity="warning",
    summary="a module follows another by its parameters, and computes with buffers that do not",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "A teacher whose running statistics stay 0 and 1",
            """import copy
import torch
from torch import nn

student = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1))
teacher = copy.deepcopy(student).eval()
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(4):
    x = torch.randn(8, 3) + 2
    with torch.no_grad():
        target = teacher(x)
    opt.zero_grad()
    (student(x) - target).pow(2).mean().backward()
    opt.step()
    with torch.no_grad():
        for p, q in zip(teacher.parameters(), student.parameters()):
            p.lerp_(q, 0.1)
""",
            (Expected("buffer-stale", "teacher.1.running_mean", 17),),
        ),
        Example(
            "A teacher that is given the buffers, and one that keeps statistics of its own",
            """import copy
import torch
from torch import nn

student = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1))
teacher, other = copy.deepcopy(student).eval(), copy.deepcopy(student)
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(4):
    x = torch.randn(8, 3) + 2
    with torch.no_grad():
        target = teacher(x) + other(x)
    opt.zero_grad()
    (student(x) - target).pow(2).mean().backward()
    opt.step()
    with torch.no_grad():
        for p, r, q in zip(teacher.parameters(), other.parameters(), student.parameters()):
            p.lerp_(q, 0.1)
            r.lerp_(q, 0.1)
        for p, q in zip(teacher.buffers(), student.buffers()):
            p.copy_(q)
""",
        ),
    ),
)
