"""`alias-write`: a write through one name changed what another name reads."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import Claim
from tether.verdicts.alias_write import by_calls
from tether.verdicts.alias_write.kept import SILENT, kept_values
from tether.verdicts.alias_write.numpy_views import followers, written_by_arrays
from tether.verdicts.alias_write.overlapping import overlapping
from tether.verdicts.alias_write.telling import with_more_lines
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# alias-write

## What it says
Two names share one memory, since a call that looks like a copy was none. A write through one of
them changed what the other one reads. The finding names the line from which they share, the line of
the write, and the line that read the changed values.

Other ways to come to this, by who shares the memory:

- **Places of a container**: one tensor in several places, filled at different times or by `[t] *
  n`; two lists of the same tensors, one filled before a write and one after it; results that are
  all computed from the last of many writes.
- **Views**: pieces of `unfold` or `expand` that overlap, written one after the other; a copy onto
  elements it has still to read; views of the same elements that one line takes again and again
  (`frames.append(screen.view(-1))`), with a write in between or filled by one line each, where
  nothing had read an earlier one before the next was taken and one line reads both later.
- **Two names**: two places of one memory that a later call compares; one summand added twice, since
  two names of the sum are one memory; a mean that is written into one of its summands, which a line
  reads beside the others; a second name that a function gives a tensor (`labels = ids`) before it
  writes that by its first name and uses both.
- **A function and its caller**: an argument that a function changed and returned, where the caller
  goes on to read both; a cached value that its caller changed; a container that a hook fills with a
  layer's output, which the next layer writes in place, and with what that layer gives.
- **A copy that is gone**: a write into a tensor that is gone after its line, or into a copy that
  was to be a view.
- **Gradients**: one gradient assigned to several parameters, or taken twice; a gradient that the
  backward of an `autograd.Function`, or a hook on a tensor, is given and writes in place
  (`grad.mul_(scale)`) while PyTorch holds that tensor for another part of the graph: an addition
  gives one tensor to all its summands.
- **Optimizers**: two optimizers on one state; one tensor as the learning rate of groups that are to
  have different ones, or of two optimizers, where a scheduler of one writes it in place and the
  other steps with it.
- **Modules**: a vector whose pieces became the memory of parameters; a vector, or an array, that
  one training began from, in its own memory, and that another one is given to begin from; a buffer
  that is another attribute of its module as well, and is loaded; a buffer of two modules that have
  weights of their own; one model that is averaged with itself; a part that a target network has in
  common with the one that trains, so that each step moves it, while the rest of the target moves
  only where it is copied; a module or parameter that a default argument made (`heads=(Head(32),)`),
  and that two objects train along with parameters of their own.
- **Objects**: two of which one is a shallow copy (`copy.copy(cache)`, `dataclasses.replace`), and
  that set the same elements of the tensors that both hold, one after the other, and go on.
- **Arrays**: one array in many places that NumPy code goes on to fill, whether PyTorch is given it
  or not; an item that a data set changes each time it is asked for; a buffer that a producer hands
  out each time and writes for the next.

Where the facts leave open whether it was meant, the finding is a note:

- **One tensor**: a module's tensor was put on another's memory once and is read in turn with its
  writes; what is written by one name is read through the other alone; a line keeps a tensor itself
  (`self.features.append(output)` in a hook), a later call writes it in place, and what is kept is
  read after that; of the places of an expanded tensor that are one element the program writes no
  second one; a view is read with what was written to the tensor it is of, and is not written itself
  (`first = root[0]; root.sub_(low)`).
- **A line**: it takes a view in some runs and a copy in others, and both are written; it writes
  what its function has just computed in some runs, and in the others what an attribute, a container
  or an optimizer's state keeps (`update = mean / scale` or `update = mean`, and `update.mul_(lr)`
  below); it writes by the second name that a function gives a tensor; it writes a view that another
  function gave it (`last = beam.last(); last[unknown] = 0`), and what that is of is read.
- **A function or a module**: it writes what it is handed, and its caller reads that again or hands
  it in again, or was given it by an object that keeps it and hands it out again (a loader that
  gives slices of its data); it writes what a conversion that had nothing to do gave back of an
  optimizer's or an object's own state; it is handed a parameter and writes that between two steps,
  and its result is used (`grid = make_grid(conv.weight.data, normalize=True)`); a constant that it
  computes once is changed by who was given it.
- **Optimizers and modules**: one module is in several places; the modules of a list have one tensor
  as a buffer, and several of them write it; an optimizer steps one memory as two
  parameters; several optimizers step the same parameters in turn; both of two shallow copies add to
  what they share.
- **Arrays and files**: an array that a tensor shows is written; a file is written over whenever a
  line opens it as an array.

Nothing is said of:

SILENT

## Why it matters
"Best weights" that go on changing, a replay buffer whose entries are all the last one, two towers
that are one table: nothing raises, and the numbers look plausible.

## Known problems
Reads of a NumPy array are not recorded: one that follows a tensor is reported where a line that
names it ran after the write, and an array that was returned or passed on is not followed. One
tensor at several places of a list (`[t] * n`, one buffer appended again and again) is found where a
variable that is alive at a write to it, at a step or at the end names the list. By which names a
memory is reached is looked up at the 1st, 2nd, 4th, 8th... write of a line, of what more refers to
than at its other writes as well; of a library's lines below it, each by itself. Every such write
that another name shows is in the report's list of ties, also where nothing is said here. Who else
holds a gradient is asked of PyTorch, of tensors on the CPU, at the 1st, 2nd, 4th... run: not in
passes with `create_graph=True`, nor, for a Function, once the program has put hooks on nodes of the
graph. Memory shared on purpose under one object (tied weights) and views used as windows are not
reported.

## Example
```python
best = model.state_dict()            # detached tensors on the model's own memory
train_one_more_epoch(model)          # changes best as well
model.load_state_dict(best)          # restores nothing
```

## Use instead
```python
best = copy.deepcopy(model.state_dict())   # or tether.copy(model.state_dict())
```

## Fix safety
A copy needs memory and freezes the values at that line: never applied by itself.
""".replace("SILENT", "\n".join(f"- {use}: {why}." for use, why in SILENT.items()))


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each place from which memory is shared, with all its readers."""
    told: set[int] = set()
    for claim in _by_calls(history):
        told.update(claim.tensors)
        yield with_more_lines(history, claim)
    for claim in kept_values(history, told):
        yield with_more_lines(history, claim)


def _by_calls(history: History) -> Iterator[Claim]:
    """Find what calls that look like a copy, views and arrays put in one memory."""
    shared = list(by_calls.claims(history))
    yield from shared
    yield from overlapping(history)
    yield from written_by_arrays(history, {tensor for one in shared for tensor in one.tensors})
    yield from followers(history)


VERDICT = Verdict(
    slug="alias-write",
    severity="warning",
    summary="a write here changed what this other name reads, since they share memory from there",
    page=PAGE,
    check=check,
    past="some",
    examples=(
        Example(
            "The best weights that go on changing",
            """import torch
from torch import nn

model = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
best = model.state_dict()
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
model.load_state_dict(best)
""",
            (Expected("alias-write", "best", 6),),
        ),
        Example(
            "A state_dict that is copied, and one that is loaded at once",
            """import copy
import torch
from torch import nn

model, other = nn.Linear(3, 1), nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
best = copy.deepcopy(model.state_dict())
for _ in range(2):
    other.load_state_dict(model.state_dict())
    opt.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
model.load_state_dict(best)
""",
        ),
    ),
)
