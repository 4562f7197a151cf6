"""What modules were told and given, and what became of the values of their parameters."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tether.facts.identity import EventId, Moment, OptimizerId, SiteId, TensorId


class PlainFlag(NamedTuple):
    """A module or tensor has an attribute of its own that is to freeze it or to let it train.

    And that nobody reads. PyTorch asks a tensor's ``requires_grad``; a module has none, nor has a
    tensor one of another spelling.
    """

    at: Moment  # found
    owner: str  # class of the module or tensor
    name: str  # of the attribute
    tensors: tuple[TensorId, ...]  # the tensor, or the parameters of the module
    on: bool = False  # it says that they are to train


class OwnBackward(NamedTuple):
    """A module's class has a method ``backward`` that takes a gradient; PyTorch calls none."""

    at: Moment  # found
    owner: str  # the class of the module
    site: SiteId  # where the method begins


class ModeSwitch(NamedTuple):
    """The program put a module, and all within it, into training or evaluation mode."""

    at: Moment
    site: SiteId
    training: bool
    tensors: tuple[TensorId, ...]  # its parameters and buffers
    kinds: tuple[str, ...] = ()  # classes of the modules in it that the mode makes a difference to
    itself: bool = False  # the mode makes a difference to the module, not only to what is in it
    apart: tuple[TensorId, ...] = ()  # of modules in it that are in the other mode all the same


ValueStatus = Literal["moved", "same", "lost", "unchecked"]
"""What became of values: other bits, the same bits, not a number somewhere, not looked into."""


class Movement(NamedTuple):
    """What became of the values of many tensors between two looks.

    ``step``: from before to after one step of an optimizer. ``since``: from the first look at a
    tensor to before that step, or to the end of a backward pass (then without an optimizer); where
    no ``step`` has the same moment, to after the step.
    ``end``: from the first look to the end of the recording. The first look is before the first
    step of its optimizer, or after the first backward pass.
    """

    moment: Literal["step", "since", "end"]
    at: Moment
    site: SiteId
    optimizer: OptimizerId  # UNKNOWN for the end
    status: dict[TensorId, ValueStatus]


class Drift(NamedTuple):
    """Elements that a step moved although their gradients were zero, where others' were not."""

    at: Moment
    site: SiteId  # of the step
    optimizer: OptimizerId
    elements: dict[TensorId, int]  # how many of each tensor


class SlicesAlike(NamedTuple):
    """A parameter's slices along a dimension were the same, bit for bit, before the first step.

    Looked at as steps of its optimizer begin, the 1st, 2nd, 4th, 8th..., with the gradient.
    """

    tensor: TensorId
    dimension: int  # 0 or 1
    slices: int
    at: Moment  # of the first look
    looks: int = 0  # at which the slices of its gradient were the same as well, and not all zero
    alike: bool = True  # neither its slices nor those of its gradient were ever seen to differ


class Padded(NamedTuple):
    """An embedding was asked for the row that it takes for padding, and gives no gradient."""

    event: EventId
    row: int
    times: int  # that the indices name it
    given: int  # indices in all
    between: int  # of those times, with other indices on both sides; of a single row of indices all


class Unmatched(NamedTuple):
    """A module was called with tensors for its parameters, some by names that it does not have."""

    at: Moment
    until: Moment  # the call had returned
    site: SiteId
    module: str  # its class
    keys: tuple[str, ...]  # names that it does not have, the first few
    tensors: tuple[TensorId, ...]  # that were given by such names, all of them
    given: int  # names in all
