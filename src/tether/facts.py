"""What happened: the plain facts of one recording.

A fact is what happened, once, as it was then. Facts hold numbers and strings only: no tensor, no
frame, no live object. The recorder makes them; every verdict and report reads them through
`History` and needs no torch.

Identity. A tensor and a storage are known by serial numbers, minted when first seen and never used
again, since addresses come back within microseconds. `UNKNOWN` (-1) means "not known" wherever a
number is expected, and each unknown has a `Gap` or a reason beside it.

Time. The index of an `Event` is the only clock. An `EventId` is the index of one event; a `Moment`
is a time between events: "so many events had been recorded by then". So is a `NameId` among names.

A field's type says what its number is. Checking, saving and merging are derived from these
annotations (`tether.store`), so a new fact is a class here, a table in `Trace`, and whatever
collects it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, NewType

EventId = NewType("EventId", int)
Moment = NewType("Moment", int)
SiteId = NewType("SiteId", int)
TensorId = NewType("TensorId", int)
StorageId = NewType("StorageId", int)
MemoryId = NewType("MemoryId", int)
SpanId = NewType("SpanId", int)
ThreadId = NewType("ThreadId", int)
OptimizerId = NewType("OptimizerId", int)
KindId = NewType("KindId", int)
ModuleId = NewType("ModuleId", int)
NameId = NewType("NameId", int)

UNKNOWN: Final = -1
"""No number is known."""

GRAD_OFF, GRAD_ON, GRAD_INFERENCE = 0, 1, 2
"""Values of `Event.grad_mode`: `no_grad`, grad enabled, `inference_mode`."""


class Site(NamedTuple):
    """Where in the program something was written, resolved from code object and instruction.

    Lines count from 1. Columns count characters from 1, the end column is exclusive; 0 means the
    column is not known (no source, or code made by `exec` without positions).
    """

    file: str  # absolute path, or a name like "<string>" when there is no file
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    function: str = ""  # qualified name of the code object: "TestModel.forward", "<module>"
    first_line: int = 0  # of that code object (of its first decorator, if it has one)
    user: bool = True  # the user's own file, not the standard library's or an installed package's
    expression: str = ""  # the source text of the call: "out2.detach()"
    target: str = ""  # what its value is assigned to: "identity", "self.h0", "" when nothing

    @property
    def position(self) -> tuple[str, int, int, int, int]:
        """File, line, column, end line, end column: the same for every call made there."""
        return self[:5]

    @property
    def row(self) -> tuple[str, int]:
        """File and line: the same for all calls that begin on that line."""
        return self[:2]


class Operand(NamedTuple):
    """One tensor as it was at one moment of one event.

    A sparse tensor has no storage: it shows that of its values, whose place, shape and strides
    these are.
    """

    tensor: TensorId
    storage: StorageId
    version: int  # its version counter; UNKNOWN for an inference tensor
    offset: int  # of its first element in the storage, in elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str  # "float32"
    requires_grad: bool
    leaf: bool

    @property
    def whole(self) -> bool:
        """Whether its elements are whole numbers or truths, which have no gradient."""
        return self.dtype.startswith(("int", "uint", "bool"))


RAISED = 1  # the call raised; the `Raised` fact has the message
OUT = 2  # results went to an out= argument
NON_BLOCKING = 4  # the copy may not be there when the call returns
CREATE_GRAPH = 8  # of backward, autograd.grad
RETAIN_GRAPH = 16  # of backward, autograd.grad: what was saved is kept
ON = 32  # set_grad_enabled, requires_grad_ and its assignment: on; a truth asked for: true
INFERENCE = 64  # set_grad_enabled: inference mode from here on
KEEPS = 256  # of the first step of an optimizer: it keeps tensors of its own for later ones
NONE = 128  # grad: None was read or assigned; zero_grad: gradients became None, not zeros
NAMED = 512  # __setitem__: its index has numbers and slices alone; what it wrote is all they name


BACKWARDS = ("backward", "autograd.grad")
"""The calls that go back through the graph."""


class Event(NamedTuple):
    """One call that the program made, as far as it touched tensors.

    `operation` is the plain public name: ``detach``, ``clone``, ``add``, ``__iadd__``,
    ``__setitem__``, ``data.__get__``, ``data.__set__``, ``grad.__get__``, ``from_numpy``,
    ``Parameter`` (a call of `nn.Parameter`), ``apply`` (of an `autograd.Function`), ``backward``,
    ``autograd.grad``, ``step``, ``zero_grad``, ``set_grad_enabled``, ``register_hook``, ``save``.

    Operands stand in the order of the call, those given by keyword behind the others: so ``out=x``
    is the last of `reads` (and among `writes`). ``event.inner == event.site`` says that the
    program's own line made the call, and no library's.
    """

    operation: str
    site: SiteId  # the user's line
    reads: tuple[Operand, ...] = ()  # tensor arguments as they were before the call
    results: tuple[Operand, ...] = ()  # tensors returned, as they were after it
    writes: tuple[Operand, ...] = ()  # arguments whose bytes the call changed, as they were after
    grad_mode: int = GRAD_ON
    span: SpanId = SpanId(UNKNOWN)  # innermost Span that was open
    inner: SiteId = SiteId(
        UNKNOWN
    )  # the library's line that made the call; the user's when that did
    thread: ThreadId = ThreadId(0)  # 0 is the thread that started the recording
    flags: int = 0  # RAISED, OUT and the others above
    losses: int = 0  # of backward and autograd.grad: how many of `reads` it started from
    detail: str = ""  # class of the Function or optimizer, qualified name of the hook
    kind: KindId = KindId(UNKNOWN)  # what autograd made of it; UNKNOWN: no graph node
    nodes: int = 0  # graph nodes that this thread had made when the call returned

    @property
    def raised(self) -> bool:
        """The call raised."""
        return bool(self.flags & RAISED)

    def all_of(self, written: Operand) -> Operand:
        """Return all of a tensor of which the call wrote some elements: ``x[1] = 0``."""
        return next((one for one in self.reads if one.tensor == written.tensor), written)

    def shows(self, operand: Operand) -> bool:
        """Whether the call gives views of an operand's memory and nothing else, and writes none."""
        same = all(one.storage == operand.storage for one in self.results)
        return same and bool(self.results) and not self.writes

    @property
    def is_backward(self) -> bool:
        """The call went back through the graph, for gradients."""
        return self.operation in BACKWARDS

    @property
    def on(self) -> bool:
        """The switch was turned on, or what was asked is true."""
        return bool(self.flags & ON)

    @property
    def none(self) -> bool:
        """The gradient read or assigned was None, or became so."""
        return bool(self.flags & NONE)

    @property
    def named(self) -> bool:
        """The assignment wrote each element of what it is said to have written."""
        return bool(self.flags & NAMED)

    @property
    def keeps(self) -> bool:
        """The optimizer, at its first step, had begun to keep tensors for later ones."""
        return bool(self.flags & KEEPS)

    @property
    def non_blocking(self) -> bool:
        """The copy may not be there when the call returns."""
        return bool(self.flags & NON_BLOCKING)

    @property
    def create_graph(self) -> bool:
        """The gradients have a graph of their own."""
        return bool(self.flags & CREATE_GRAPH)


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


SpanKind = Literal["function", "backward", "step", "closure", "hook", "checkpoint", "compiled",
                   "transform"]  # fmt: skip


class Span(NamedTuple):
    """A stretch of the recording inside one call: what was recorded there happened within it.

    ``function`` is the forward of an `autograd.Function` (its inner calls run with gradients off
    and decide nothing about the graph), ``closure`` what an optimizer's step calls to evaluate the
    model anew, ``transform`` a `torch.func` transform.
    """

    kind: SpanKind
    name: str  # class of the Function or optimizer, name of the hook
    site: SiteId
    first: Moment
    last: Moment = Moment(UNKNOWN)  # UNKNOWN: it never ended
    parent: SpanId = SpanId(UNKNOWN)  # the span around it
    event: EventId = EventId(UNKNOWN)  # the Event of the call itself, recorded when it ended


RunEnd = Literal["returned", "stopped", "raised"]
"""How a block ran to its end: ``stopped`` by PyTorch, which had recomputed all that it needed."""


class RunAgain(NamedTuple):
    """A block under activation checkpointing ran again in a backward pass, which failed.

    The last block that ran again in that pass. What was recorded within the moments of a run, in
    its thread, happened in it.
    """

    event: EventId  # the backward pass
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


class Callers(NamedTuple):
    """From where a line of the user's was reached when it was first met."""

    site: SiteId
    above: tuple[SiteId, ...]  # the user's lines on the stack, the nearest first


MOST_REACHED: Final = 1 << 14
"""Changes of way that are noted; nothing is known of later ones."""


class WayThere(NamedTuple):
    """From a time on a line of a function of the user's was reached by another way than before.

    Its first way is among the `Callers`. Looked at each time that the line calls PyTorch.
    """

    at: Moment
    site: SiteId
    above: tuple[SiteId, ...]  # the user's lines on the stack, the nearest first


class TensorFact(NamedTuple):
    """The life of one tensor object in Python."""

    kind: str  # class name: "Tensor", "Parameter", "Buffer", a subclass's own name
    born: Moment  # when it was first seen
    died: Moment = Moment(UNKNOWN)  # UNKNOWN: alive at the end


class StorageFact(NamedTuple):
    """The life of one piece of memory."""

    nbytes: int
    device: str  # "cpu", "cuda:0", "meta"; "cpu (pretended)": see `PRETENDED`
    born: Moment
    freed: Moment = Moment(UNKNOWN)  # UNKNOWN: alive at the end
    memory: MemoryId = MemoryId(
        UNKNOWN
    )  # storages of one number wrap the same memory (NumPy, DLPack)
    start: int = 0  # first byte of this storage within that memory


class Name(NamedTuple):
    """What the running program calls a tensor: ``model.layer1.weight``, ``agent.net.h0``."""

    tensor: TensorId
    name: str
    at: Moment
    owner: str = ""  # class of the nearest object around it: "Linear", "ListScorer"
    owner_user: bool = True  # the nearest class around it that is not PyTorch's is the user's own
    module: str = ""  # name of the module whose direct parameter or buffer it is
    listed: bool = True  # parameters() of the module that the name goes through lists it
    holder: ModuleId = ModuleId(UNKNOWN)  # that module: one object, whatever it is called


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


HolderKind = Literal["variable", "attribute", "slot", "closure", "default", "cache", "state"]
"""What holds an object: a variable of a running function, an attribute, a place in a container,
what a function keeps (a closure, a default argument, a cache), an optimizer's state or setting."""


class Holder(NamedTuple):
    """One place that showed a memory right after a write to it, and how the program reaches it.

    Looked for at the 1st, 2nd, 4th, 8th... write of a line; below it, of each line of a library's;
    what more refers to than at its other writes is counted apart.
    """

    event: EventId  # the write
    tensor: TensorId  # the tensor object there; UNKNOWN: an array on the memory
    name: str  # "history[2]", "self.cache"
    kind: HolderKind
    function: str  # whose variable the name begins with: "train", "<module>"
    site: SiteId  # the call that this function was making
    depth: int  # functions between it and the write; 0: the one that wrote
    part: bool = False  # an array that shows a part of what was written, or more than it


class Reassigned(NamedTuple):
    """A place of a module was given another tensor: ``layer.weight = other``.

    Or it is inside a module whose place was given another module: ``model.layer = other``.
    """

    at: Moment
    site: SiteId
    holder: ModuleId  # as in `Name`
    name: str  # of the place: "weight"; "layer.weight", from the module around the replaced one
    old: TensorId
    new: TensorId
    named: NameId = NameId(0)  # names that had been found by then: they come first in `Trace.names`


class InRing(NamedTuple):
    """A tensor with a graph went as Python's collector ran: only objects in a ring had it."""

    tensor: TensorId


class CacheKept(NamedTuple):
    """A function's cache keeps tensors by keys that only caches have: no call can find them again.

    A key is a tensor, a module or another object that is equal to itself alone.
    """

    name: str  # of the function
    site: SiteId  # of its definition
    entries: int  # such keys
    tensors: tuple[TensorId, ...]  # the keys, or what they alone have
    nbytes: int
    also: tuple[SiteId, ...] = ()  # the definitions of other functions whose caches have some too


class MadeOnce(NamedTuple):
    """An object that a definition made once, and that several owners had at one time.

    The value of a default argument, or of an attribute of a class.
    """

    at: Moment  # last seen so
    name: str  # of the argument, "head"; of the attribute behind its class, "Norm.stats"
    site: SiteId  # the definition of the function that has the default; UNKNOWN: of a class
    times: int  # owners
    owners: tuple[str, ...]  # how the first few are reached
    tensors: tuple[TensorId, ...]  # what is in it, or itself
    filled: Literal["", "in order", "by key"]  # a list or a dictionary, that may have been empty
    kept: bool = False  # each owner has it as its own attribute, or in one; none by its class


class ShallowCopy(NamedTuple):
    """A line of the program's copied an object, and not its tensors: both objects hold them.

    By `copy.copy` or `dataclasses.replace`, an object that is no module and no container.
    """

    at: Moment
    site: SiteId
    owner: str  # class of the object
    of: int  # number of the object that was copied
    made: int  # number of the copy
    tensors: tuple[TensorId, ...]  # that both hold
    names: tuple[str, ...]  # of the attribute that each is in


class WrittenThrough(NamedTuple):
    """The nearest function that ran had one of several objects that hold what a call wrote."""

    event: EventId  # the write
    holder: int  # number of the object, as in `ShallowCopy`


class Suspended(NamedTuple):
    """A generator or coroutine that waits for its next turn, and keeps its variables until then."""

    name: str  # as its variables are named: "readers[2].gi_frame"
    site: SiteId  # where it waits


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


class ModeSwitch(NamedTuple):
    """The program put a module, and all within it, into training or evaluation mode."""

    at: Moment
    site: SiteId
    training: bool
    tensors: tuple[TensorId, ...]  # its parameters and buffers
    kinds: tuple[str, ...] = ()  # classes of the modules in it that the mode makes a difference to
    itself: bool = False  # the mode makes a difference to the module, not only to what is in it
    apart: tuple[TensorId, ...] = ()  # of modules in it that are in the other mode all the same


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


class Bridge(NamedTuple):
    """A value that left the tensors (NumPy, Python numbers, DLPack) and came back.

    Certain when the memory or object was the same; otherwise it was followed through the source,
    or matched by value, and is only likely.
    """

    exit: EventId
    entry: EventId
    certain: bool
    via: str = ""  # in words: "the NumPy array", "the float, through `total`"
    doubtful: bool = False  # the source leads to other fields, or from other callers, just as well


class Collision(NamedTuple):
    """A write through an index did not keep all values that it was given.

    It gave some elements several, or overwrote some before it had read them. Read again when the
    call had returned.
    """

    event: EventId  # the write
    lost: int  # values that are not where the index put them
    given: int  # values in all


class AddressedApart(NamedTuple):
    """Two writes through an index named two places of a tensor that are one element of memory.

    Or one write chose several of its places, by a mask or by numbers: then both are that write.
    """

    event: EventId  # the later write
    before: EventId
    tensor: TensorId


class Padded(NamedTuple):
    """An embedding was asked for the row that it takes for padding, and gives no gradient."""

    event: EventId
    row: int
    times: int  # that the indices name it
    given: int  # indices in all
    between: int  # of those times, with other indices on both sides; of a single row of indices all


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


LEAST_OF_A_LIST = 4 << 10
"""Bytes of a tensor from which to make it of a list takes far longer than to sum it up: smaller
ones are not compared with what had become a list."""


class Same(NamedTuple):
    """A call gave, in memory of its own, elements that a tensor showed already, in their order.

    Compared when the call returned, where its name does not say it: a choice by an index, what
    came back from an array or a list. The view of the older memory that shows them has the shape
    of the result.
    """

    event: EventId
    tensor: TensorId  # the result
    source: TensorId  # that showed them
    storage: StorageId  # of the source
    offset: int  # of the view, in elements
    strides: tuple[int, ...]
    since: EventId  # the call that they were taken from the source by: `event`, or an export
    sure: bool = True  # memory or numbers are the very same; else the elements are only equal
    any_choice: bool = False  # whichever places it had chosen, they are one element
    few: bool = False  # one place or two, of more: they may be in order by chance
    equal: bool = False  # the places are not in order: what is in them is equal to what was there


class Tried(NamedTuple):
    """A call was made again, unheard, with the source of a copy that it had been given.

    The copy lay in another way than its source. Where several of what the call was given were such
    copies, it was made with the sources of all as well. Where its result has a graph, so were the
    gradients of what it was given. Of the results no more is kept than what they had in common.
    """

    event: EventId  # the call
    read: int  # which of its `reads` was the copy; of all that were, ~ of the sum of 1 << each
    same: bool  # its result had the same bits, and its gradients the same bits and layout
    strides: tuple[int, ...] = ()  # by which it lay, if in another way


class Taken(NamedTuple):
    """A call made a tensor of an array that no tensor shows, bit for bit, and what became of it."""

    event: EventId
    beside: int  # bytes of the array's memory that the tensor has not
    changed: Literal["yes", "no", "unknown"]  # while the tensor lived; "unknown": no look was taken
    released: Moment = Moment(UNKNOWN)  # UNKNOWN: the array was alive at the end
    memory: MemoryId = MemoryId(UNKNOWN)  # the array's own, as `StorageFact` has it


class ArrayCopied(NamedTuple):
    """A call was given an array, a copy of another one that lives: both had the same elements.

    No tensor shows the memory of either. The text of the line leads from one to the other by calls
    that give the elements as they are, whatever they are. Only the copy may have a wider format.
    """

    event: EventId  # that made a tensor of it
    site: SiteId  # the expression that made the copy
    source: str  # the other one, as the program has it; "": in this run there was no such array
    dtype: str  # of the other one
    strides: tuple[int, ...]  # of the view of the other that shows the copy's elements, in elements
    shared: bool  # the tensor shows the copy's memory; else it has memory of its own
    beside: int  # bytes of the other one's memory that the copy has not
    changed: Literal["yes", "no", "unknown"]  # either, while both lived
    released: Moment = Moment(UNKNOWN)  # of the other one; UNKNOWN: alive at the end
    gone: Moment = Moment(UNKNOWN)  # of the copy


RUNS_OF_ARRAYS: Final = 64
"""Runs of a line that copies arrays which are each looked at; of later ones each 16th is."""


class ArrayLine(NamedTuple):
    """A line of the program's at which NumPy was told to copy arrays, of those that are large."""

    site: SiteId
    operation: str  # "astype", "copy", "array", "tobytes"
    within: bool  # as part of what holds the array
    runs: int
    bytes: int  # that it copied, in all runs


class ArrayCall(NamedTuple):
    """One run of such a line: what became of the array that was copied, and of the copy."""

    site: SiteId
    moment: Moment
    alike: bool  # the copy has the same elements in the same format and layout
    nbytes: int  # of the copy
    beside: int = 0  # bytes of the memory of what was copied that the copy has not
    storage: StorageId = StorageId(UNKNOWN)  # whose memory that is, where a tensor gave the array
    changed: Literal["yes", "no", "unknown"] = "unknown"  # either, while both lived
    released: Moment = Moment(UNKNOWN)  # of the array that was copied; UNKNOWN: alive at the end
    gone: Moment = Moment(UNKNOWN)  # of the copy
    taker: str = ""  # of bytes: what they were handed to, which takes an array's own memory as well
    rewritten: bool = False  # the copy, after that array had gone, whose memory the tensor has
    # The array was a copy that this line made: what that was made of is looked at in its place.
    before: SiteId = SiteId(UNKNOWN)


class Entered(NamedTuple):
    """A call made a tensor of data of Python in a way that a later look asks about.

    The data was a list of NumPy arrays, of what tensors had become as lists, or of numbers, or a
    call had been given that very data before and had made the same elements of it.
    """

    event: EventId
    arrays: int  # in the list, each of several elements; 0: it was no such list
    since: EventId = EventId(UNKNOWN)  # the last call before that was given the data
    lists: int = 0  # that as many tensors had become: the data is these, one after the other
    numbers: bool = False  # the data was lists of Python's numbers
    listed: SiteId = SiteId(UNKNOWN)  # where an array, or bytes, became the last of these lists


class ReadBack(NamedTuple):
    """A state was read from a stream in memory, with the bytes that it had been saved there in."""

    event: EventId  # of the call that read it
    since: EventId  # of the call that had saved it


class Unmatched(NamedTuple):
    """A module was called with tensors for its parameters, some by names that it does not have."""

    at: Moment
    until: Moment  # the call had returned
    site: SiteId
    module: str  # its class
    keys: tuple[str, ...]  # names that it does not have, the first few
    tensors: tuple[TensorId, ...]  # that were given by such names, all of them
    given: int  # names in all


COMPARED: Final = 64 << 10
"""Bytes of new memory from which what a line makes is compared with what it made before."""


class Repeated(NamedTuple):
    """A line whose calls made the same bytes, in new memory, whenever they were compared.

    Those that made less than `COMPARED` bytes were not looked at.
    """

    event: EventId  # its first call
    looked: int  # calls whose result was compared, the first one among them


class Drawn(NamedTuple):
    """Parts of one array became tensors of another type, which takes no more room, many times."""

    event: EventId  # the first call
    times: int
    bytes: int  # of all that was made
    whole: int  # bytes that the whole array would have as such a tensor
    written: bool  # it holds other bytes than when the second was made


class ArrayAgain(NamedTuple):
    """An array of NumPy's that was there in new memory each time, and held the same bytes.

    It lay behind what a line gave PyTorch. Each had gone before the last was met, as it had come.
    """

    event: EventId  # the first call
    looked: int  # arrays of which all bytes were compared
    runs: int  # arrays that were met
    nbytes: int  # of each
    given: int  # of these, the bytes of what the call was given


class KeptAgain(NamedTuple):
    """Memory that kept elements several times over, by looks at what the variables lead to.

    The tensors or arrays of a container, or the slices of one along a dimension; as last seen.
    """

    at: Moment
    since: Moment  # of the look before; UNKNOWN: of tensors that were looked at once
    name: str  # of the container, or of the one tensor or array
    tensors: tuple[TensorId, ...]  # some of them, if calls were given them; none: arrays
    items: int  # tensors or arrays, or slices
    kept: int  # bytes of those that are not alike for want of anything in them
    distinct: int  # of these, about
    axis: int  # of the slices; UNKNOWN: of a container
    moves: bool  # each goes on from the one before, as a window does; False: some are equal
    single: bool


class Refilled(NamedTuple):
    """Who holds arrays that are in several places each was looked for; `Trace.holders` has them.

    They were met so for the first time, or had other bytes than at the look before.
    """

    event: EventId  # the last call before
    arrays: int


class Rewritten(NamedTuple):
    """Calls made tensors of one place in an array's memory, and found other bytes than before.

    No call of PyTorch that was heard wrote in between. The first of the calls from one line, where
    those before were made from one other line, or the same.
    """

    event: EventId
    since: EventId  # the call before
    times: int


class ArrayFact(NamedTuple):
    """The life of a NumPy array that a call handed out on a tensor's memory.

    Views made of the array keep it. One that was gone before the next call has no fact.
    """

    event: EventId  # the export (numpy, __array__)
    released: Moment = Moment(UNKNOWN)  # UNKNOWN: alive at the end


class ArrayKept(NamedTuple):
    """Arrays that show a small part of a tensor's memory are all that is left of it.

    Looked for whenever names are, and as arrays on large memory grow in number.
    """

    event: EventId  # the export
    since: Moment  # of the first look that found it so
    until: Moment  # of the last one
    name: str  # of a place that has such an array: "history[2]"
    shown: int  # bytes
    nbytes: int  # of the memory


class Unseen(NamedTuple):
    """A write that bumped no version, found by comparing contents."""

    storage: StorageId
    after: Moment  # it happened between these times
    before: Moment
    event: EventId  # the export (numpy, data, dlpack...) through which it can have come
    site: SiteId  # where it was noticed
    held: bool = True  # somebody beside the tensor still had the array then


class MappedFile(NamedTuple):
    """A file that was there was opened as an array to be written to, and its bytes changed."""

    at: Moment
    site: SiteId  # that opened it
    file: str  # its name, without the folder
    changed: tuple[int, ...]  # pages that were others when the array went, of those looked at
    flushed: bool  # the program asked for it to be written
    released: Moment = Moment(UNKNOWN)  # UNKNOWN: the array was alive at the end
    asked: bool = True  # the program gave the mode itself; False: it is that of `numpy.memmap`


class Fork(NamedTuple):
    """A process was forked off: it had every memory as it was then, and as its own from then on."""

    at: Moment
    heard: bool  # what it did with those memories was heard: see `Inherited`
    rewrites: bool  # it wrote a memory that it had sent to another process, or got from one


class Inherited(NamedTuple):
    """A memory that a forked process used, which it had from the one that forked it off."""

    storage: StorageId
    changed: bool  # it wrote it, sent it, or gave it to what may write it unheard
    graded: bool = False  # it computed, with gradients on, with a tensor there that requires grad
    site: SiteId = SiteId(UNKNOWN)  # the user's line in that process that did so first, if one did
    tensor: TensorId = TensorId(UNKNOWN)  # the tensor there; UNKNOWN: one that it had made itself


SharedBy = Literal["sent", "received", "mapped"]
"""How other processes come to show a memory: this one sent it, another one did, or it is mapped: a
file, or shared memory that was not made by PyTorch, as far as can be told."""


class Shared(NamedTuple):
    """A memory that other processes may show: what they write is not heard."""

    storage: StorageId
    way: SharedBy


class Raised(NamedTuple):
    """An exception that passed through a recorded call or ended the program."""

    at: Moment
    type: str
    message: str
    site: SiteId
    fatal: bool  # it ended the program
    event: EventId = EventId(UNKNOWN)  # the call that it passed through
    elsewhere: str = ""  # what it had said in the other process that raised it; "": this one did
    lines: tuple[SiteId, ...] = ()  # the user's lines that it had passed there, the outermost first


class Attached(NamedTuple):
    """Memory held by something other than a variable; recorded when memory is asked for.

    A gradient or optimizer state is a tensor that no call returned, found once it was there. An
    ``activation`` is memory that a backward pass freed, and so nothing but its graph had held.
    """

    tensor: TensorId  # UNKNOWN for an activation
    storage: StorageId
    kind: Literal["gradient", "optimizer state", "activation"]
    of: TensorId  # the tensor that it belongs to; UNKNOWN: to none
    part: str  # "grad", or the optimizer's word for it: "exp_avg"
    at: Moment
    site: SiteId  # of the backward pass or step that made it, or freed it


class Allocator(NamedTuple):
    """What a device's own allocator says when the recording ends."""

    device: str  # "cuda:0"
    peak: int  # most bytes asked of it at once
    held: int  # bytes asked of it and not given back


GapCode = Literal[
    "killed", "forgotten", "steps", "sampled", "failed", "pytorch", "release",  # of the recording
    "child", "thread", "compiled", "traced", "memory", "pretended",  # ran or was held unseen
    "array-large", "array-many", "array-time", "gradient-threads", "autosave",  # what was given up
    "analysis",  # what failed as the recording was looked at
]  # fmt: skip


CACHE: Final = "__cache__"
"""In a name: what a function's cache keeps."""

WAITING: Final = "gi_frame"
"""In a name: the variables of a generator or coroutine, as Python calls them."""

PRETENDED: Final = "(pretended)"
"""After a device's name: tensors say that they are there (FakeTensorMode), and have no bytes."""

STRICT = "TETHER_STRICT"
"""The variable of the environment under which what fails inside tether raises, and looking may take
what time it takes: set in our tests."""

LOADER = "data loader's worker"
"""Detail of a ``child`` gap: a process that only loads data."""


class Gap(NamedTuple):
    """Something that could not be seen. `report.gaps` says what a code means, in words."""

    code: GapCode
    detail: str = ""  # what the words of the code name: a class, a number of calls
    site: SiteId = SiteId(UNKNOWN)
    times: int = 1  # that it was met

    @property
    def reason(self) -> str:
        """The code and what it names."""
        return f"{self.code}: {self.detail}" if self.detail else self.code


class Process(NamedTuple):
    """The process that a recording was made in."""

    number: int = 0  # its process id
    rank: int = UNKNOWN  # among those that work together; UNKNOWN: it is none of them
    ranks: int = 0  # how many work together
    name: str = ""  # what multiprocessing calls it: "SpawnProcess-1"
    started: bool = False  # by another process that was recorded

    @property
    def label(self) -> str:
        """What reports call it."""
        if self.rank >= 0:
            return f"rank {self.rank}"
        return self.name or (f"process {self.number}" if self.started else "the main process")


Outcome = Literal["finished", "raised", "interrupted", "unfinished"]
"""How the program ended; ``unfinished``: it was killed, or is still running."""


@dataclass
class Trace:
    """All facts of one recording."""

    program: list[str] = field(default_factory=list)  # ["train.py", "--lr", "1"]
    folder: str = ""  # of the program: paths under it are shown relative to it
    torch: str = ""
    python: str = ""
    outcome: Outcome = "finished"
    process: Process = field(default_factory=Process)
    dropped: Moment = Moment(0)  # what came before is forgotten, under a limit, but for `kept`
    kept: list[EventId] = field(default_factory=list)  # the first of `events`: from before that
    events: Sequence[Event] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    callers: list[Callers] = field(default_factory=list)
    reached: list[WayThere] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    runs_again: list[RunAgain] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    walks: list[Walk] = field(default_factory=list)
    altered: list[Altered] = field(default_factory=list)
    tensors: Mapping[int, TensorFact] = field(default_factory=dict)  # by TensorId
    storages: Mapping[int, StorageFact] = field(default_factory=dict)  # by StorageId
    names: list[Name] = field(default_factory=list)
    plain_flags: list[PlainFlag] = field(default_factory=list)
    own_backwards: list[OwnBackward] = field(default_factory=list)
    reassigned: list[Reassigned] = field(default_factory=list)
    in_rings: list[InRing] = field(default_factory=list)
    cache_kept: list[CacheKept] = field(default_factory=list)
    made_once: list[MadeOnce] = field(default_factory=list)
    shallow_copies: list[ShallowCopy] = field(default_factory=list)
    written_through: list[WrittenThrough] = field(default_factory=list)
    suspended: list[Suspended] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    hooks: list[Hooked] = field(default_factory=list)
    backward_hooks: list[BackwardHooked] = field(default_factory=list)
    optimizers: list[OptimizerFact] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    shared_rates: list[SharedRate] = field(default_factory=list)
    rates_of_others: list[RateOfAnother] = field(default_factory=list)
    iterators_taken: list[IteratorTaken] = field(default_factory=list)
    given_twice: list[GivenTwice] = field(default_factory=list)
    iterators_held: list[IteratorHeld] = field(default_factory=list)
    rates_put_back: list[RatePutBack] = field(default_factory=list)
    states_of_others: list[StateOfAnother] = field(default_factory=list)
    states_left: list[StateLeft] = field(default_factory=list)
    states_given: list[StateGiven] = field(default_factory=list)
    mode_switches: list[ModeSwitch] = field(default_factory=list)
    gradients: list[Gradients] = field(default_factory=list)
    movements: list[Movement] = field(default_factory=list)
    drifts: list[Drift] = field(default_factory=list)
    alike: list[SlicesAlike] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)
    bridges: list[Bridge] = field(default_factory=list)
    same: list[Same] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    collisions: list[Collision] = field(default_factory=list)
    addressed_apart: list[AddressedApart] = field(default_factory=list)
    function_states: list[FunctionState] = field(default_factory=list)
    kept_by_hooks: list[KeptByHook] = field(default_factory=list)
    function_passes: list[FunctionPass] = field(default_factory=list)
    given_written: list[GivenWritten] = field(default_factory=list)
    padded: list[Padded] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    arrays_copied: list[ArrayCopied] = field(default_factory=list)
    array_lines: list[ArrayLine] = field(default_factory=list)
    array_calls: list[ArrayCall] = field(default_factory=list)
    entered: list[Entered] = field(default_factory=list)
    read_back: list[ReadBack] = field(default_factory=list)
    unmatched: list[Unmatched] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    arrays_again: list[ArrayAgain] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)
    kept_again: list[KeptAgain] = field(default_factory=list)
    refilled: list[Refilled] = field(default_factory=list)
    rewritten: list[Rewritten] = field(default_factory=list)
    arrays: list[ArrayFact] = field(default_factory=list)
    arrays_kept: list[ArrayKept] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    mapped_files: list[MappedFile] = field(default_factory=list)
    forks: list[Fork] = field(default_factory=list)
    inherited: list[Inherited] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    attached: list[Attached] = field(default_factory=list)
    allocators: list[Allocator] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)  # file -> text, of the user's files
    concluded: str = ""  # what was made of the facts, for who opens the file (`report.kept`)

    @property
    def ended(self) -> Moment:
        """The time when the recording ended."""
        return Moment(self.dropped + len(self.events) - len(self.kept))

    @property
    def elsewhere(self) -> bool:
        """Whether the work was done where it was not recorded, as far as can be told.

        No call was recorded, or none that trains while other processes ran, which may have.
        """
        if not self.ended:
            return True
        if not any(gap.code == "child" and gap.detail != LOADER for gap in self.gaps):
            return False
        return not self.trains

    @property
    def trains(self) -> bool:
        """Whether a backward pass or an optimizer's step was recorded."""
        return any(one.kind in ("backward", "step") for one in self.spans)

    def position(self, at: int) -> int:
        """Return where in `events` an event is, or the first after a moment.

        -1 for an event that was forgotten, and for UNKNOWN.
        """
        if at >= self.dropped:
            return at - self.dropped + len(self.kept)
        place = bisect_left(self.kept, EventId(at))
        return place if place < len(self.kept) and self.kept[place] == at else -1

    def first_after(self, moment: Moment) -> int:
        """Return where in `events` the first is that came after a moment, of those kept."""
        found = self.position(moment)
        return found if found >= 0 else bisect_left(self.kept, EventId(moment))

    def event_id(self, position: int) -> EventId:
        """Return the index of the event that is at a position of `events`."""
        old = len(self.kept)
        return self.kept[position] if position < old else EventId(self.dropped + position - old)
