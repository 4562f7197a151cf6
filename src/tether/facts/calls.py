"""What was called, where, within what, and with which tensors; what it raised."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tether.facts.identity import (
    UNKNOWN,
    EventId,
    KindId,
    Moment,
    SiteId,
    SpanId,
    StorageId,
    TensorId,
    ThreadId,
)

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

    @property
    def scope(self) -> tuple[str, str]:
        """File and function: the same for all calls that stand in one function."""
        return self.file, self.function

    @property
    def definition(self) -> tuple[str, str, int]:
        """File, function and its first line: unlike `scope` it tells two of one name apart."""
        return self.file, self.function, self.first_line

    @property
    def says_it_writes(self) -> bool:
        """Whether the function is named as PyTorch names those that write in place: `clamp_`."""
        name = self.function.rpartition(".")[2]
        return name.endswith("_") and not name.endswith("__") and name != "_"


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
    def elements(self) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        """Storage, offset, shape and strides: the same for tensors that show the same elements."""
        return self.storage, self.offset, self.shape, self.strides

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
