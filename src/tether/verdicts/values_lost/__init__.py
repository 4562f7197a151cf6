"""`values-lost`: values that were computed to be written somewhere, and are nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import Claim
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.values_lost import (
    bound_in_vain,
    collisions,
    copies_trained,
    derived_in_vain,
    given_in_vain,
    handed_in_vain,
    loaded_over,
    never_put_back,
    own_values,
    rates,
    states_left,
    written_back,
    written_in_vain,
)

PAGE = """
# values-lost

## What it says
Values were computed, or brought, to be written somewhere, and are nowhere:

- An assignment through an index was given several values for one element. Each element kept one of
  them: the index names some elements more than once.
- The values lie in the memory that is written, as in `x[:, 1:] = x[:, :-1]`, and some were
  overwritten before they were read.
- Two tensors are swapped by two copies, `a.copy_(b)` and `b.copy_(a)`: the first one writes over
  what the second one was to bring. So does `random.shuffle(x)` with the parts of a tensor.
- A call changes a tensor in place by a part of itself, as in `x -= x[:, :1]`: that part changed
  while it was read.
- A loop's variable is given new values, and nothing reads them: the name is bound to another
  tensor, and the parameter that the loop gave keeps its values.
- A view is put on other memory by `.data = ...`, and nothing reads it after that: what it was a
  view of keeps its values.
- A weight that is computed of a parameter for each pass (pruned, normalised) is written, and
  nothing reads it before it is computed anew: the parameter keeps its values.
- Entries are written into the dict that `state_dict()` has just made, which nothing but these lines
  gets to see.
- A module was called with tensors for its parameters (`functional_call`), and has none of the names
  that they were given by: it computes with its own.
- A training goes on from saved parameters, and the state of the optimizer, or the scheduler, that
  was handed out with them is not loaded: momentum, averages and counts begin anew. Or a file got
  the parameters without any state of the optimizer (a note).
- An optimizer loads a state, and before it steps another one is made of the same parameters, which
  has none: it is a note where the other has another learning rate.
- The state of an optimizer is handed out, to be saved, that never steps: another one of its kind
  steps its parameters, and nothing asks for what that one keeps.
- A model loads a state, and the first step writes copies of the parameters over it that the
  optimizer steps, and that were made before the load.
- A model loads a state, and a line of the program writes other values over it before anything has
  read it (a note).
- Parameters are given other values for an evaluation, made of their own earlier ones, no copy of
  the trained ones is there, and the training goes on from the others (a note).
- Parameters are copied, given other values for an evaluation, such as an average, and trained on
  from those: nothing ever reads the copies.
- A line gives tensors the values that they have: a network loads its own `state_dict`, or is
  blended with itself by two names. It is a note where an optimizer trains them.
- An optimizer trains copies of a model's parameters (`torch.func.stack_module_state`), nothing
  reads them after the last step, and the model itself is called, with the values that it had (a
  note).
- The program sets the learning rate of a parameter group, and a scheduler, whose own rate of that
  group is zero, sets zero again at its next step: once and for all.
- An optimizer loaded a state, and a scheduler that was made after it replaced the learning rate
  before any step used it (a note).
- A scheduler sets no learning rate that the training uses: nothing steps it, or it is made anew for
  each of its steps (notes), or the optimizer that it was given never steps, and another one steps
  the same parameters. Or its course is as long as the optimizer's steps are many, or the passes of
  a line, and it is stepped far less often; or the rate comes down and up again several times, since
  the course is shorter than the training (a note).

## Why it matters
`total[index] += values` reads the old values, adds, and writes the sums back. Where two values fall
on one element the second sum replaces the first, so a part is missing from the result, and its
gradient is zero. After `p = p - rate * p.grad` the parameter is what it was. Nothing raises.

## Known problems
It is a warning where the values that were written are an update of those that the same index read:
then each of them was to count. Elsewhere it is a note, since the last value may be the one that is
meant. Looked at are the 1st, 2nd, 4th, 8th... write of a line, on the CPU. A loop's variable is
spoken of if no run of the line made values that anything read or kept; it is a warning where they
were computed from what requires grad. Of a module that has some of the names it was given a note
speaks. Of a state that was not loaded it is a warning where the training goes on with the same
data, once; an optimizer that is made with other settings, or steps on other values, is a new one.
Of copies that are not put back it is a warning where it came about three times, of all that an
optimizer holds: a program may put them back only if the others do worse.

## Example
```python
total[index] += values
```

## Use instead
```python
total.index_add_(0, index, values)
```

## Fix safety
It changes the result: never applied by itself.
"""


DETECTORS = (
    collisions,
    bound_in_vain,
    given_in_vain,
    derived_in_vain,
    rates,
    handed_in_vain,
    written_in_vain,
    written_back,
    states_left,
    loaded_over,
    never_put_back,
    own_values,
    copies_trained,
)


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that lost values."""
    for detector in DETECTORS:
        yield from detector.claims(history)


VERDICT = Verdict(
    slug="values-lost",
    severity="warning",
    summary="values that were computed to be written somewhere are nowhere",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "Messages summed up by +=",
            """import torch

total = torch.zeros(3)
index = torch.tensor([0, 0, 2])
values = torch.tensor([1.0, 2.0, 3.0])
total[index] += values
print(total)
""",
            (Expected("values-lost", "total", 6),),
        ),
        Example(
            "Weights written into the tensors of a state, or loaded when it is changed",
            """import torch
from torch import nn

net = nn.Linear(3, 2)
net.state_dict()["bias"].copy_(torch.zeros(2))
net.state_dict()["bias"] += 1
state = net.state_dict()
state["weight"] = state["weight"] * 0.5
net.load_state_dict(state)
kept = net.state_dict()
kept["epoch"] = 3
torch.save(kept, "/dev/null")
""",
        ),
    ),
)
