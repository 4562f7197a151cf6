"""What happened: the plain facts of one recording.

A fact is what happened, once, as it was then. Facts hold numbers and strings only: no tensor, no
frame, no live object. Two producers make them (the recorder, from a running program, and the
predictor, from its source); every verdict and report reads them through `History` and needs no
torch.

Identity. A tensor and a storage are known by serial numbers, minted when first seen and never used
again, since addresses come back within microseconds. `-1` means "not known" wherever a serial
number, a version or an index is expected, and each unknown has a `Gap` or a reason beside it.

Time. The position of an `Event` in `Trace.events` (plus `Trace.dropped`) is the only clock: every
``at`` below is "so many events had been recorded by then".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

UNKNOWN = -1
"""No serial number, version or index is known."""

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


class Operand(NamedTuple):
    """One tensor as it was at one moment of one event."""

    tensor: int  # serial number of the tensor
    storage: int  # serial number of the memory it uses
    version: int  # its version counter
    offset: int  # of its first element in the storage, in elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str  # "float32"
    requires_grad: bool
    leaf: bool


class Event(NamedTuple):
    """One call that the program made, as far as it touched tensors.

    `operation` is the plain public name: ``detach``, ``clone``, ``add``, ``__iadd__``,
    ``__setitem__``, ``data.__get__``, ``data.__set__``, ``grad.__get__``, ``from_numpy``,
    ``Parameter`` (a call of `nn.Parameter`), ``apply`` (of an `autograd.Function`), ``backward``,
    ``autograd.grad``, ``step``, ``zero_grad``, ``set_grad_enabled``, ``register_hook``, ``save``.
    """

    operation: str
    site: int  # in Trace.sites: the user's line
    reads: tuple[Operand, ...] = ()  # tensor arguments as they were before the call
    results: tuple[Operand, ...] = ()  # tensors returned, as they were after it
    writes: tuple[Operand, ...] = ()  # arguments whose bytes the call changed, as they were after
    grad_mode: int = GRAD_ON
    span: int = UNKNOWN  # innermost Span that was open
    inner: int = UNKNOWN  # Trace.sites: the library's line that made the call, when not the user's
    thread: int = 0  # 0 is the thread that started the recording
    note: str = ""  # what else the operation needs to be understood; see NOTES


NOTES = {
    "set_grad_enabled": "'off', 'on' or 'inference': the mode from here on",
    "apply": "class name of the autograd.Function",
    "requires_grad_": "'on' or 'off'; also for the assignment, operation requires_grad.__set__",
    "register_hook": "qualified name of the hook function",
    "grad.__get__": "'none' when the gradient read was None",
    "grad.__set__": "'none' when it was set to None",
    "backward": "'raised' when it raised (the Raised fact has the message), 'create_graph'",
    "autograd.grad": "'of N', its first N operands being the losses; then ', create_graph'",
    "*": "'raised' when the call raised; 'out' when results went to an out= argument",
}
"""What `Event.note` says, by operation."""

SpanKind = Literal["function", "backward", "step", "hook", "checkpoint", "compiled", "transform"]


class Span(NamedTuple):
    """A stretch of the recording inside one call: what was heard there happened within it.

    ``function`` is the forward of an `autograd.Function` (its inner calls run with gradients off
    and decide nothing about the graph), ``transform`` a `torch.func` transform.
    """

    kind: SpanKind
    name: str  # class of the Function or optimizer, name of the hook
    site: int
    first: int  # events recorded before it began
    last: int = UNKNOWN  # events recorded before it ended; -1: it never ended
    parent: int = UNKNOWN  # the span around it
    event: int = UNKNOWN  # the Event of the call itself, recorded when it ended


class TensorFact(NamedTuple):
    """The life of one tensor object in Python."""

    kind: str  # class name: "Tensor", "Parameter", "Buffer", a subclass's own name
    born: int  # events recorded when it was first seen
    died: int = UNKNOWN  # events recorded when it was gone; -1: alive at the end


class StorageFact(NamedTuple):
    """The life of one piece of memory."""

    nbytes: int
    device: str  # "cpu", "cuda:0"
    born: int
    freed: int = UNKNOWN  # -1: alive at the end
    memory: int = UNKNOWN  # storages with the same number wrap the same memory (NumPy, DLPack)
    start: int = 0  # first byte of this storage within that memory


class Name(NamedTuple):
    """What the running program calls a tensor: ``model.layer1.weight``, ``agent.net.h0``."""

    tensor: int
    name: str
    at: int
    owner: str = ""  # class of the module or object that holds it: "Linear", "ListScorer"
    owner_user: bool = True  # the nearest class around it that is not PyTorch's is the user's own
    module: str = ""  # name of the module whose direct parameter or buffer it is
    listed: bool = True  # parameters() of the module that the name goes through lists it


class OptimizerFact(NamedTuple):
    """An optimizer and the tensors it was given."""

    kind: str  # "SGD"
    site: int
    at: int
    tensors: tuple[int, ...]


GradientStatus = Literal["none", "zero", "some", "unchecked"]
"""What a gradient was: None, exactly zero everywhere, something else, there but not looked into."""


class Gradients(NamedTuple):
    """The gradients of many tensors at one moment.

    ``backward``: after a backward pass. ``asked``: what ``autograd.grad`` returned for each input.
    ``step``: as the optimizer is about to use them. ``end``: when the recording ended.
    """

    moment: Literal["backward", "asked", "step", "end"]
    at: int
    site: int
    optimizer: int  # index in Trace.optimizers, -1 for backward and end
    status: dict[int, GradientStatus]  # tensor serial -> status


class Bridge(NamedTuple):
    """A value that left the tensors (NumPy, Python numbers, DLPack) and came back.

    ``exit`` and ``entry`` are event indices. Certain when the memory or object was the same;
    otherwise it was followed through the source, or matched by value, and is only likely.
    """

    exit: int
    entry: int
    certain: bool
    via: str = ""  # in words: "the NumPy array", "the float, through `total`"


class ArrayFact(NamedTuple):
    """The life of a NumPy array that a call handed out on a tensor's memory.

    Views made of the array keep it. One that was gone before the next call has no fact.
    """

    event: int  # the export (numpy, __array__)
    released: int = UNKNOWN  # events recorded when it was gone; -1: alive at the end


class Unseen(NamedTuple):
    """A write that bumped no version, found by comparing contents."""

    storage: int
    after: int  # it happened after this event ...
    before: int  # ... and before this one
    event: int  # the export (numpy, data, dlpack...) through which it can have come; -1 unknown
    site: int  # where it was noticed


class Raised(NamedTuple):
    """An exception that passed through a recorded call or ended the program."""

    at: int
    type: str
    message: str
    site: int
    fatal: bool  # it ended the program


class Attached(NamedTuple):
    """Memory held by something other than a variable; recorded when memory is asked for.

    A gradient or optimizer state is a tensor that no call returned, found once it was there. An
    ``activation`` is memory that a backward pass freed, and so nothing but its graph had held.
    """

    tensor: int  # -1 for an activation
    storage: int
    kind: Literal["gradient", "optimizer state", "activation"]
    of: int  # serial number of the tensor that it belongs to; -1: of none
    part: str  # "grad", or the optimizer's word for it: "exp_avg"
    at: int
    site: int  # of the backward pass or step that made it, or freed it


class Allocator(NamedTuple):
    """What a device's own allocator says when the recording ends."""

    device: str  # "cuda:0"
    peak: int  # most bytes asked of it at once
    held: int  # bytes asked of it and not given back


class Gap(NamedTuple):
    """Something that could not be seen, and why."""

    reason: str
    site: int = UNKNOWN
    at: int = UNKNOWN


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
    dropped: int = 0  # events forgotten at the start, under a limit
    events: list[Event] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    tensors: dict[int, TensorFact] = field(default_factory=dict)
    storages: dict[int, StorageFact] = field(default_factory=dict)
    names: list[Name] = field(default_factory=list)
    optimizers: list[OptimizerFact] = field(default_factory=list)
    gradients: list[Gradients] = field(default_factory=list)
    bridges: list[Bridge] = field(default_factory=list)
    arrays: list[ArrayFact] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    attached: list[Attached] = field(default_factory=list)
    allocators: list[Allocator] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)  # file -> text, of the user's files

    def check(self) -> None:
        """Assert what must hold between the facts; used by tests and when a file is opened.

        Raises `ValueError` naming the first fact that points nowhere.
        """
        events, sites, spans = len(self.events), len(self.sites), len(self.spans)
        for number, event in enumerate(self.events):
            if not -1 <= event.site < sites or not -1 <= event.inner < sites:
                raise ValueError(f"event {number} points at a site that is not there")
            if not -1 <= event.span < spans:
                raise ValueError(f"event {number} points at a span that is not there")
        for number, span in enumerate(self.spans):
            if not -1 <= span.site < sites or not -1 <= span.parent < spans:
                raise ValueError(f"span {number} points nowhere")
        for bridge in self.bridges:
            last = self.dropped + events
            if not (0 <= bridge.exit < last and 0 <= bridge.entry < last):
                raise ValueError(f"a bridge points at an event that is not there: {bridge}")
        placed = (
            self.optimizers, self.gradients, self.raised, self.unseen, self.gaps, self.attached
        )  # fmt: skip
        for facts in placed:
            for fact in facts:
                if not -1 <= fact.site < sites:
                    raise ValueError(f"a fact points at a site that is not there: {fact}")
