"""What optimizers were given: parameters, learning rates and states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tether.facts.identity import UNKNOWN, Moment, OptimizerId, SiteId, TensorId


class OptimizerFact(NamedTuple):
    """An optimizer and the tensors it was given."""

    kind: str  # "SGD"
    site: SiteId
    at: Moment
    tensors: tuple[TensorId, ...]
    groups: tuple[int, ...] = ()  # how many of them each parameter group has, in order
    rates: tuple[float, ...] = ()  # of each group, at that time; nothing: not known
    added: tuple[SiteId, ...] = ()  # where each group came in; nothing: not known

    def members(self) -> Iterator[tuple[TensorId, int]]:
        """Yield its tensors, each with the number of its parameter group."""
        places = (group for group, size in enumerate(self.groups) for _ in range(size))
        return zip(self.tensors, places, strict=False)

    def given_at(self, tensor: TensorId) -> SiteId:
        """Return the line that gave it a tensor: the one that made it, or `add_param_group`."""
        groups = [group for one, group in self.members() if one == tensor]
        return self.added[groups[-1]] if groups and groups[-1] < len(self.added) else self.site


class Rate(NamedTuple):
    """The learning rate of a parameter group, as a step used it.

    Noted at the first step, whenever it becomes zero or ceases to be, and at the steps whose values
    were looked into.
    """

    at: Moment
    optimizer: OptimizerId
    group: int
    rate: float


class Schedule(NamedTuple):
    """What sets the learning rates of an optimizer: a scheduler, or the state that it loads."""

    kind: str  # "LambdaLR", "load_state_dict"
    site: SiteId
    at: Moment
    optimizer: OptimizerId
    factor: SiteId = SiteId(UNKNOWN)  # the user's function that it computes the rate by
    before: tuple[float, ...] = ()  # the rate of each group as it was about to be made
    after: tuple[float, ...] = ()  # and when it was; nothing: not known
    steps: int = UNKNOWN  # of the scheduler, that its maker did not take; UNKNOWN: not heard
    stepped: SiteId = SiteId(UNKNOWN)  # the line of the first of them
    planned: int = 0  # steps that its course has; 0: no end, or one that is not known
    turns: int = 0  # times that the rate of the first group fell to little, and rose again by steps
    loaded: SiteId = SiteId(UNKNOWN)  # the line that loaded a state into the scheduler last


class StateOfAnother(NamedTuple):
    """An optimizer goes on with what was kept for one parameter, for a parameter with other values.

    Compared as the first step after a load begins: the values, bit for bit, are those that another
    parameter had when the state was saved.
    """

    at: Moment
    site: SiteId  # of the load
    optimizer: OptimizerId
    tensor: TensorId
    of: TensorId  # that the state was kept for
    saved: SiteId


class StateLeft(NamedTuple):
    """An optimizer's first step began at values for which another's state had been handed out.

    It has no state itself, or a scheduler of it is at its start. Both are made alike. Or a file had
    got those values, and no state had been handed out with them.
    """

    at: Moment
    site: SiteId  # where the optimizer or the scheduler was made
    kind: str  # its class
    optimizer: OptimizerId
    of: OptimizerId  # the one that was saved
    saved: SiteId
    steps: int  # that the other had taken by then
    filed: bool = False  # with the values alone


class StateGiven(NamedTuple):
    """An optimizer's state was handed out."""

    at: Moment
    site: SiteId
    optimizer: OptimizerId
    full: bool  # it kept something for a parameter


class SharedRate(NamedTuple):
    """A scheduler wrote one tensor as the learning rate of several groups, not the same for each.

    The first time of each optimizer.
    """

    at: Moment
    site: SiteId  # of the call of the scheduler
    optimizer: OptimizerId
    groups: tuple[int, ...]  # that have the tensor
    rates: tuple[float, ...]  # that each was to have; the last one is what all have
    before: tuple[float, ...] = ()  # what the tensor held as each was written; nothing: not known


class RateOfAnother(NamedTuple):
    """A step of an optimizer used a learning rate that the scheduler of another one had written.

    Both have one tensor as the rate of a group. The scheduler of the optimizer itself, if it has
    one, did not come to that rate. Of the first such step of the two, which began then.
    """

    at: Moment
    site: SiteId  # the step of the scheduler
    optimizer: OptimizerId
    group: int  # of it
    of: OptimizerId  # the scheduler's own
    tensor: TensorId
    rates: tuple[float, float, float]  # without the scheduler, with it, and at the last such step
    scheduled: bool  # a scheduler of the optimizer itself writes the tensor as well


class IteratorTaken(NamedTuple):
    """An optimizer was given an iterator that the program has a name for, and went through it."""

    at: Moment
    site: SiteId  # of the call that made the optimizer
    kind: str  # "SGD"
    name: str  # "self.trainable"


class GivenTwice(NamedTuple):
    """An optimizer was about to be given a group with parameters that it has, or has them twice."""

    at: Moment
    site: SiteId
    tensors: tuple[TensorId, ...]  # those parameters


class IteratorHeld(NamedTuple):
    """A running function had a variable with an iterator, when one of its lines was first met.

    Or an attribute of its `self`. An iterator gives its elements once.
    """

    at: Moment
    site: SiteId  # the line of that function
    name: str  # "params", "self.params"
    kind: str  # "zip"; of a generator the function that it runs: "Module.parameters"
    ended: bool  # it gives nothing any more; that is known of generators alone
    given: SiteId  # the user's line that called the function; UNKNOWN: none did


MOST_HELD: Final = 1 << 12
"""Variables with iterators that are noted."""


class RatePutBack(NamedTuple):
    """A scheduler's step made zero again what it had made zero, and was another rate by then.

    The first times of each group.
    """

    at: Moment
    site: SiteId  # of the call of the scheduler
    kind: str  # of the scheduler
    optimizer: OptimizerId
    group: int
    rate: float  # before the step
