"""The gradient graph: what calls made of it, what came back through it, what hooks did there."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tether.facts.identity import (
    UNKNOWN,
    EventId,
    Moment,
    OptimizerId,
    SiteId,
    StorageId,
    TensorId,
    ThreadId,
)


class Kind(NamedTuple):
    """What autograd made of one kind of call, read off the nodes of one such call.

    Calls are of one kind when function, number of nodes, words among the arguments and the
    operands that require grad are the same. Operands are counted through what a call read and
    then what it returned.
    """

    nodes: tuple[str, ...]  # classes of the nodes that lead to results, by their numbers
    made: int = 0  # how many nodes were made in all
    saved: tuple[int, ...] = ()  # operands kept for backward, with the version they had
    held: tuple[int, ...] = ()  # operands kept on a custom Function's ctx, with no version
    edges: tuple[tuple[int, int, int], ...] = ()  # node, its input, and where that leads to:
    # another node of the call, or -1 - n for operand n
    rounds: bool = False  # it was asked to round, so only zeros come back
    known: bool = True  # False: the program's own hooks on saved tensors were not to be run
    results: tuple[int, ...] = ()  # of a call with several: the node of each, -1 for none
    on_ctx: tuple[int, ...] = ()  # of `held`: themselves an attribute, not only on its memory


class Walk(NamedTuple):
    """The graph that one backward pass started from, walked from its losses.

    Nodes are known by their numbers (``Event.nodes``) and stand in stretches, first and last.
    """

    event: EventId  # the backward pass
    thread: ThreadId
    leaves: tuple[TensorId, ...]  # whose gradients it could add to
    nodes: tuple[tuple[int, int], ...]  # stretches of nodes in the graph
    freed: tuple[tuple[int, int], ...] = ()  # of those, nodes whose saved values were gone
    whole: bool = True  # False: it was too large to be walked to its end
    asked: tuple[TensorId, ...] = ()  # that alone were to get gradients; none: all leaves
    number: float = 0.0  # the one number that the last call of the loss had saved; 0: none, or
    # not asked for; of a line that has a whole one, the first pass with another is walked as well


class Altered(NamedTuple):
    """A write that no version tells of, to a value that a node of a living graph had saved."""

    event: EventId  # the write
    thread: ThreadId  # that numbered the node
    node: int
    differs: bool  # the node gives back other gradients than before the write


RunEnd = Literal["returned", "stopped", "raised"]
"""How a block ran to its end: ``stopped`` by PyTorch, which had recomputed all that it needed."""


MOST_RUNS: Final = 1 << 14
"""Runs of blocks that are noted; of later ones only those at which a pass failed."""


class RunAgain(NamedTuple):
    """A block under activation checkpointing ran again in a backward pass.

    What was recorded within the moments of a run, in its thread, happened in it. Of a pass that
    failed it is the last block that ran again.
    """

    event: EventId  # the backward pass that failed; UNKNOWN: the pass went on
    site: SiteId  # the user's line that had the block checkpointed
    first: Moment  # the run in the forward
    last: Moment
    thread: ThreadId
    again: Moment  # the run in the pass
    ended: Moment
    again_in: ThreadId
    end: RunEnd
    reentrant: bool  # `use_reentrant`: the forward ran without gradients
    keeps_random: bool = True  # `preserve_rng_state`: both runs draw the same numbers
    other_random: bool = False  # both runs drew, from generators in another state


class Hooked(NamedTuple):
    """Hooks that one line has put on one module or tensor and not removed.

    As it was when the line last registered one there.
    """

    site: SiteId
    on: str  # class of what they are on: "Linear", "Parameter"
    tensor: TensorId  # that they are on, if it was met; UNKNOWN: none
    at: tuple[Moment, ...]  # when each was registered
    variable: str = ""  # that hooks of this line read, and that changed between registrations
    own: bool = False  # a variable around a hook of this line holds the tensor that it is on


class BackwardHooked(NamedTuple):
    """A hook that is told of a module's gradients, for which PyTorch made views.

    The module's inputs or outputs went through a Function, which returned them as views. Noted of
    the last such calls when an error speaks of the Function.
    """

    event: EventId  # the call of the Function
    registered: SiteId  # the line that registered the hook
    on: str  # class of the module
    module: str = ""  # what the program calls it; "": it was found under no name
    every: bool = False  # the hook is one for all modules


GradientStatus = Literal["none", "zero", "some", "unchecked"]
"""What a gradient was: None, exactly zero everywhere, something else, there but not looked into."""


class Gradients(NamedTuple):
    """The gradients of many tensors at one moment.

    ``backward``: after a backward pass. ``asked``: what ``autograd.grad`` returned for each input.
    ``step``: as the optimizer used them, when its step has finished. ``carried``: those of its step
    that hold what an earlier step had used, too. ``end``: when the recording ended.
    """

    moment: Literal["backward", "asked", "step", "carried", "end"]
    at: Moment
    site: SiteId
    optimizer: OptimizerId  # UNKNOWN for all but a step
    status: dict[TensorId, GradientStatus]


class Stop(NamedTuple):
    """An edge of the graph over which no gradient came back, though one came to its node.

    Or, where it is `broken`, one that is not finite, though all that came to its node was.
    """

    node: int
    input: int
    zeros: bool  # zeros came back; False: nothing at all
    saved: str = ""  # what the node had saved: "other"
    low: float = 0.0  # least and greatest of its elements
    high: float = 0.0
    broken: bool = False


class Followed(NamedTuple):
    """One backward pass that was followed from node to node: where gradients stopped."""

    event: EventId
    thread: ThreadId
    stops: tuple[Stop, ...]
    zeroed: tuple[int, ...]  # nodes that got zeros though no edge before them gave only zeros
    undone: tuple[int, ...] = ()  # nodes that gave opposite gradients to two ways that are the same
    turned: tuple[int, ...] = ()  # nodes whose gradient came over several edges, and a hook turned
    cancelled: tuple[int, ...] = ()  # nodes that got zeros over several edges, none of them alone


class FunctionState(NamedTuple):
    """What a custom Function's forward sets outside of its ctx, and its backward names.

    Noted after the first call, and after each that left another value than the call before.
    """

    event: EventId  # the call
    name: str  # of the attribute of its class, or the variable of its module
    value: str


class KeptByHook(NamedTuple):
    """A value that was saved for backward, of which a hook of the program's kept the memory itself.

    PyTorch checks no version of what a hook on saved tensors keeps. Noted as it is given back.
    """

    packed: Moment  # within the call that saved it
    unpacked: Moment
    storage: StorageId
    version: int  # of what was saved, as it was packed
    offset: int  # in elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    hook: SiteId  # where the function that packs begins


class FunctionPass(NamedTuple):
    """What the backward of a custom Function was given and returned.

    Of the 1st, 2nd, 4th, 8th... run of each; none that returned zeros throughout.
    """

    at: Moment  # it began
    until: Moment
    site: SiteId  # of its definition
    name: str  # of its class
    given: tuple[TensorId, ...]
    returned: tuple[TensorId, ...]
    memories: tuple[StorageId, ...]  # of what it was given, and then of what it returned
    varied: bool  # some of what it was given had different elements
    filled: bool  # each tensor that it returned had the same number throughout
    numbers: tuple[
        float, ...
    ] = ()  # what it was given, each the same number throughout; or nothing


class GivenWritten(NamedTuple):
    """A backward of a custom Function, or a hook on a tensor, wrote the gradient it was given.

    In place, while somebody else held it: another node that waits for it, or who asked for it. The
    elements were others afterwards. Looked at is the 1st, 2nd, 4th, 8th... such run of each.
    """

    at: Moment  # the run began; of a hook: its write
    until: Moment
    site: SiteId  # of the definition of the backward, or the hook
    name: str  # of the Function's class, or the hook
    tensor: TensorId
    storage: StorageId
    thread: ThreadId
    node: int = UNKNOWN  # number of the Function's node (see `Event.nodes`); UNKNOWN: a hook
