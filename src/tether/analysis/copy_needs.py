"""Whether a copy was needed: what would have gone otherwise had it been its source.

Asked of every copy that PyTorch makes of a tensor with the same elements, dtype and device. Each
condition that fails is a reason, with the event it rests on; what the recording cannot tell makes
the answer "unknown". The conditions, in the order in which they are asked:

- the source was written while the copy lived, or the copy while the source did. Lived, not read:
  a copy kept for later is needed even if this run never came back to it. Memory lives as long as
  anything holds it, the gradient graph and exported arrays included;
- the copy as an object had something of its own: a hook, a retained gradient, a place in an
  optimizer, a ``requires_grad_``, a name inside a module;
- another layout was relied upon: every call that was given the copy must give the same bits
  whatever the strides are;
- the copy let a much larger memory go;
- the gradient graph would add up a gradient in another order.

A site's answer is the gravest of its executions': one that needed the copy is enough.
"""

from __future__ import annotations

import ast
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tether.analysis.graph import Graph
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand, Span
from tether.regions import element_size, may_overlap

Needed = Literal["yes", "no", "unknown"]

COPIES = frozenset(
    {"clone", "contiguous", "to", "cpu", "cuda", "tensor", "new_tensor", "__deepcopy__", "copy_"}
    | {"float", "double", "half", "bfloat16", "int", "long", "type", "type_as"}
)
"""Operations that can return the same elements in memory of their own."""

_EMPTIES = frozenset({"empty_like", "empty", "new_empty", "empty_strided", "new_empty_strided"})

_OWN = {
    "requires_grad_": "has its own requires_grad",
    "requires_grad.__set__": "has its own requires_grad",
    "retain_grad": "retains its own gradient",
    "register_hook": "has a hook of its own",
    "register_post_accumulate_grad_hook": "has a hook of its own",
    "grad.__get__": "is asked for its own gradient",
    "grad.__set__": "takes part in a gradient that is set",
    "detach_": "is cut from the graph in place",
    "swap_tensors": "is swapped with another tensor",
    "backward": "is what backward starts from",
    "autograd.grad": "is differentiated by name",
    "__setstate__": "is filled anew",
}
"""What is done to the object, so that its source must be another object."""

_REPLACED = {
    "set_": "is given other memory",
    "data.__set__": "is given other memory",
    "resize_": "is given another size",
    "resize_as_": "is given another size",
    "share_memory_": "is moved to shared memory",
    "Parameter": "becomes a Parameter of its own",
}
"""What is done to the memory behind the object, and so to whoever else uses it."""

_MAKING = frozenset({"Parameter", "detach", "data.__get__", "requires_grad_", "__getitem__"})
"""Calls that take part in making a tensor, before it is used."""

_CLOSED = {
    "function": "inside an autograd.Function",
    "hook": "inside a hook",
    "backward": "inside a backward pass",
    "step": "inside an optimizer's step",
    "compiled": "inside a compiled region",
    "transform": "inside a torch.func transform",
    "checkpoint": "inside a checkpointed block, which runs twice",
}
"""Spans in which a copy plays a part that the facts do not tell."""

VIEWS = frozenset(
    {"__getitem__", "unsqueeze", "squeeze", "transpose", "permute", "expand", "detach", "select"}
    | {"narrow", "unbind", "t", "movedim", "moveaxis", "swapaxes", "swapdims", "split", "chunk"}
    | {"T.__get__", "mT.__get__", "split_with_sizes", "tensor_split", "diagonal", "unfold"}
)
"""Views that can be had of any strides; who reads them is asked in turn."""

SINKS = frozenset(
    {"amax", "amin", "item", "tolist", "any", "all", "equal", "cat", "stack", "index_select"}
    | {"gather", "nonzero", "copy_", "isin", "unique", "bincount", "count_nonzero"}
    | {"__bool__", "__float__", "__int__", "__repr__", "__format__"}
)
"""Calls of which nothing depends on strides: neither a bit of their results nor their layout."""

RESHAPES = frozenset({"view", "view_as", "reshape", "reshape_as", "flatten", "ravel", "unflatten"})
"""Calls that group the same elements anew, in the same memory where strides allow it."""

FLOOR = 64 << 10  # bytes: how much more memory a copy must let go to be worth having


class Reason(NamedTuple):
    """Why a copy was needed, or why that is not known."""

    needed: Needed
    text: str  # a clause: "line 31 writes `x` while `identity` lives"
    at: int = UNKNOWN  # the event it rests on


class _Write(NamedTuple):
    """A write to a memory."""

    at: int  # the event that wrote it; of an unheard write, the one before which it was noticed
    written: Operand | None = None  # None: no telling which part of it
    verb: str = "writes"
    since: int = UNKNOWN  # the position after which a write came that was noticed later


@dataclass
class Need:
    """The answer for one site."""

    operation: str
    needed: Needed = "no"
    reason: str = ""  # the first that weighs most; "" when it was not needed
    at: int = UNKNOWN  # the event that the reason rests on
    count: int = 0
    bytes: int = 0  # copied, in all its executions
    executions: list[tuple[int, Operand, Operand]] = field(default_factory=list)
    relaid: bool = False  # its copies have another layout than their sources

    def add(self, reason: Reason | None) -> None:
        """Join the answer for one more execution: one that needed the copy decides."""
        rank = {"no": 0, "unknown": 1, "yes": 2}
        if reason is not None and rank[reason.needed] > rank[self.needed]:
            self.needed, self.reason, self.at = reason.needed, reason.text, reason.at


Key = tuple[int, int, str]
"""A copying line: the user's site, the library's site (or -1) and the operation."""


def needs(history: History) -> dict[Key, Need]:
    """Return for every line that copies whether its copies were needed."""
    found: dict[Key, Need] | None = history.memo.get("needs")
    if found is None:
        found = history.memo["needs"] = _Judge(history).judge()
    return found


def needed_by_site(history: History) -> dict[tuple[int, str], tuple[Needed, str]]:
    """Return the answers by (site, operation), lines of libraries joined with what led there."""
    joined: dict[tuple[int, str], Need] = {}
    for (site, _, operation), need in needs(history).items():
        total = joined.setdefault((site, operation), Need(operation))
        total.add(Reason(need.needed, need.reason, need.at))
    return {key: (need.needed, need.reason) for key, need in joined.items()}


def copied(history: History, position: int) -> tuple[Operand, Operand] | None:
    """Return (source, copy) when an event gave the same elements in memory of their own."""
    event = history.events[position]
    operation = event.operation
    if operation not in COPIES or event.raised or not event.reads:
        return None
    if operation == "copy_":
        return _filled(history, position)
    if not event.results:
        return None
    source, copy = event.reads[-1 if operation == "new_tensor" else 0], event.results[0]
    if source.storage == copy.storage or UNKNOWN in (source.storage, copy.storage):
        return None
    storages = history.trace.storages
    if source.dtype != copy.dtype or source.shape != copy.shape:
        return None
    one, other = storages.get(source.storage), storages.get(copy.storage)
    if one is None or other is None or one.device != other.device:
        return None
    return source, copy


def _filled(history: History, position: int) -> tuple[Operand, Operand] | None:
    """Return the pair of ``torch.empty_like(x).copy_(x)``, written as one expression."""
    event = history.events[position]
    if len(event.reads) < 2 or not event.results or not position:
        return None
    target, source = event.reads[0], event.reads[1]
    made = history.events[position - 1]
    if made.operation not in _EMPTIES or not made.results or made.thread != event.thread:
        return None
    here, there = history.site_of(event), history.site_of(made)
    inside = (here.file, here.line, here.column) == (there.file, there.line, there.column)
    if made.results[0].tensor != target.tensor or not inside or made.inner != event.inner:
        return None
    if source.dtype != target.dtype or source.shape != target.shape:
        return None
    return source, event.results[0]


def nbytes(operand: Operand) -> int:
    """Return the bytes of a tensor's elements."""
    return math.prod(operand.shape) * element_size(operand.dtype)


def same_layout(a: Operand, b: Operand) -> bool:
    """Whether two tensors of one shape lay their elements out in the same way."""
    return all(
        size <= 1 or one == other
        for size, one, other in zip(a.shape, a.strides, b.strides, strict=True)
    )


def viewable(operand: Operand, shape: tuple[int, ...]) -> bool:
    """Whether a tensor's elements, in their order, can be seen as another shape without a copy.

    They can when each run of dimensions that PyTorch may join, for its strides are those of one
    dimension, is cut up by dimensions of the new shape alone (ATen's `computeStride`).
    """
    if 0 in operand.shape:
        return True
    wanted = [size for size in shape if size != 1]
    count = 1
    dimensions = [pair for pair in zip(operand.shape, operand.strides, strict=True) if pair[0] != 1]
    for n in range(len(dimensions) - 1, -1, -1):
        size, stride = dimensions[n]
        count *= size
        if n and dimensions[n - 1][1] == size * stride:
            continue  # the one before is joined to this
        part = 1
        while wanted and part < count:
            part *= wanted.pop()
        if part != count:
            return False
        count = 1
    return not wanted


def copied_text(operation: str, expression: str) -> str:
    """Return the text of what a call copies, as far as the call is a plain one; else "".

    ``x.clone()`` and ``torch.clone(x)`` both copy ``x``.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, (ast.Attribute, ast.Name)):
        return ""
    name = tree.func.attr if isinstance(tree.func, ast.Attribute) else tree.func.id
    if name != operation.strip("_"):
        return ""
    argument = tree.args[0] if tree.args else None
    module = isinstance(tree.func, ast.Name) or (
        isinstance(tree.func.value, ast.Name) and tree.func.value.id in ("torch", "copy")
    )
    taken = argument if module or operation == "new_tensor" else tree.func.value  # type: ignore[union-attr]
    return ast.unparse(taken) if taken is not None else ""


class _Judge:
    """The judgement of one history, with the indexes that it needs."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.trace = history.trace
        self.flow = history.flow
        self.whole = bool(self.trace.program) and self.trace.outcome == "finished"
        self.held = history.held
        self.copies: dict[Key, Need] = {}
        self._library = False  # the copy in question is made by a library's line
        self.joined: dict[int, int] = {}  # memory of a needless copy -> that of its source
        tensors: set[int] = set()
        memories: set[int] = set()
        for position, event in enumerate(history.events):
            pair = copied(history, position)
            if pair is None:
                continue
            inner = UNKNOWN if self._own_line(event) else event.inner
            need = self.copies.setdefault(
                (event.site, inner, event.operation), Need(event.operation)
            )
            need.executions.append((position, *pair))
            tensors.update((pair[0].tensor, pair[1].tensor))
            memories.update((self.flow.memory(pair[0]), self.flow.memory(pair[1])))
        self.reads: dict[int, list[int]] = defaultdict(list)  # tensor -> events that read it
        self.writes: dict[int, list[_Write]] = defaultdict(list)
        self.unheard: dict[int, list[_Write]] = defaultdict(list)
        self.freed: dict[int, float] = {}  # memory -> position when the last of it was gone
        self.exported: set[int] = set()
        self._index(tensors, memories)

    def judge(self) -> dict[Key, Need]:
        """Answer for every line.

        A copy that was not needed counts as its source from then on: of a copy of a copy one may
        go where both may not.
        """
        for key, need in self.copies.items():
            for position, source, copy in need.executions:
                need.count += 1
                need.bytes += nbytes(copy)
                need.relaid |= not same_layout(source, copy)
                if need.needed != "yes":
                    self._library = key[1] != UNKNOWN
                    need.add(self._reason(position, source, copy))
            if need.needed == "no":
                for _, source, copy in need.executions:
                    self._join(source, copy)
        return self.copies

    def _memory(self, operand: Operand) -> int:
        """Return the memory behind an operand, of a copy that counts as its source the source's."""
        memory = self.flow.memory(operand)
        while memory in self.joined:
            memory = self.joined[memory]
        return memory

    def _join(self, source: Operand, copy: Operand) -> None:
        one, other = self._memory(source), self._memory(copy)
        if one == other:
            return
        self.joined[other] = one
        self.writes[one] = sorted(self.writes[one] + self.writes[other], key=lambda found: found.at)
        self.unheard[one] += self.unheard[other]
        self.freed[one] = max(self.freed.get(one, math.inf), self.freed.get(other, math.inf))
        if other in self.exported:
            self.exported.add(one)

    def _own_line(self, event: Event) -> bool:
        """Whether the user's line makes the copy itself; ``copy.deepcopy`` is no library here."""
        if event.inner in (UNKNOWN, event.site):
            return True
        expression = self.history.site_of(event).expression
        return event.operation == "__deepcopy__" and "deepcopy" in expression

    # -- indexes ---------------------------------------------------------------------------------

    def _index(self, tensors: set[int], memories: set[int]) -> None:
        history, flow = self.history, self.flow
        made: set[int] = set()  # memories that some call was heard to return
        gradients: set[int] = set()
        accumulating: list[int] = []
        seen: dict[int, tuple[int, int]] = {}  # tensor -> where it was last met, at which version
        moved: list[
            tuple[int, int, int]
        ] = []  # memory, and the events between which it was written
        # A step or a backward pass is told of when it ends; it wrote at some time since it began.
        began = {
            history.position(span.event): history.position(span.first)
            for span in self.trace.spans
            if span.event != UNKNOWN and span.kind in ("step", "backward")
        }
        for position, event in enumerate(history.events):
            for one in {one.tensor for one in event.reads} & tensors:
                self.reads[one].append(position)
            for operand in (*event.reads, *event.results):
                since, known = seen.get(operand.tensor, (position, operand.version))
                if UNKNOWN < known < operand.version:
                    memory = flow.memory(operand)
                    if memory in memories:
                        moved.append((memory, since, position))
                seen[operand.tensor] = (position, operand.version)
            within = began.get(position, UNKNOWN)
            for operand in event.writes:
                memory = flow.memory(operand)
                if memory in memories:
                    kept = self.writes if within == UNKNOWN else self.unheard
                    kept[memory].append(_Write(position, operand, since=within))
            if event.operation == "grad.__get__":
                gradients.update(flow.memory(one) for one in event.results)
                continue
            made.update(flow.memory(one) for one in event.results)
            if event.operation in ("backward", "zero_grad", "step"):
                accumulating.append(position)
            elif event.operation in ("numpy", "__array__", "__dlpack__", "from_dlpack"):
                self.exported.update(flow.memory(one) for one in event.reads)
        # A backward pass adds to gradients in place, a step writes its optimizer's state.
        for memory in memories & (gradients | (memories - made)):
            self.unheard[memory] += [
                _Write(at, verb="may write", since=began.get(at, at - 1)) for at in accumulating
            ]
        numbers = {serial: flow.memory_of(serial) for serial in self.trace.storages}
        for unseen in self.trace.unseen:
            memory = numbers.get(unseen.storage, unseen.storage)
            if memory in memories:
                before = history.position(unseen.before)
                since = history.position(unseen.after)
                self.unheard[memory].append(
                    _Write(before, None, "comes after an array wrote", since)
                )
        for found in self.writes.values():
            found.sort(key=lambda one: one.at)
        for memory, since, position in moved:
            heard = [*self.writes.get(memory, ()), *self.unheard.get(memory, ())]
            if not any(since <= one.at <= position for one in heard):
                write = _Write(position, None, "comes after something wrote", since)
                self.unheard[memory].append(write)
        for serial, fact in self.trace.storages.items():
            memory = numbers[serial]
            if memory in memories:
                end = math.inf if fact.freed == UNKNOWN else history.position(fact.freed)
                self.freed[memory] = max(self.freed.get(memory, -math.inf), end)
                if fact.memory != UNKNOWN:
                    self.exported.add(memory)

    def _written(self, operand: Operand, after: int, until: float) -> Iterator[_Write]:
        """Yield the writes to the memory behind an operand, after one event and before a time."""
        found = self.writes.get(self._memory(operand), [])
        for write in found[bisect_right(found, after, key=lambda one: one.at) :]:
            if write.at >= until:
                break
            yield write
        for write in self.unheard.get(self._memory(operand), []):
            if write.at > after and write.since < until:
                yield write

    # -- one execution ---------------------------------------------------------------------------

    def _reason(self, position: int, source: Operand, copy: Operand) -> Reason | None:
        """Return why the copy was needed or why that is unknown; None when it was not needed."""
        event = self.history.events[position]
        return (
            self._unseen(position, event, source, copy)
            or self._writes_of_source(position, source, copy)
            or self._writes_of_copy(position, source, copy)
            or self._object(position, source, copy)
            or self._layout(position, source, copy)
            or self._size(source, copy)
            or self._kept(position, source, copy)
            or self._order(position, source, copy)
        )

    def _unseen(self, position: int, event: Event, source: Operand, copy: Operand) -> Reason | None:
        """Give what the recording cannot tell of this execution."""
        if self.trace.dropped:
            return Reason("unknown", "the start of the recording was forgotten (--limit)")
        if self.history.had_children:
            return Reason("unknown", "a child process, which was not recorded, may write it")
        number = event.span
        while number != UNKNOWN:
            span = self.trace.spans[number]
            if span.kind in _CLOSED and not self._stepped_apart(span, source, copy):
                return Reason("unknown", _CLOSED[span.kind])
            number = span.parent
        for one in (source, copy):
            kind = self._kind(one)
            if kind not in ("Tensor", "Parameter", "Buffer"):
                return Reason("unknown", f"a {kind} may be more than its elements")
            if self._memory(one) in self.exported and self._unwatched(one):
                return Reason("unknown", "an array on its memory may have been written unheard")
        if self._outlived_by_array(source, copy):
            return Reason("unknown", "the array behind its source may have been written later on")
        if copy.dtype.startswith("complex"):
            return Reason("unknown", "a complex tensor may be conjugated in name only")
        if (source.version == UNKNOWN) != (copy.version == UNKNOWN):
            return Reason("yes", "its source is an inference tensor, and it is none")
        for tensor in (source.tensor, copy.tensor):
            for at in self.reads[tensor]:
                if at > position and self.history.events[at].thread != event.thread:
                    return Reason("unknown", "another thread reads it", at)
                if at > position and self.history.events[at].non_blocking:
                    text = f"the transfer of {self._line(at)} may read it for longer"
                    return Reason("unknown", text, at)
        return None

    def _stepped_apart(self, span: Span, source: Operand, copy: Operand) -> bool:
        """Whether a span is a step that writes neither: a closure's copies, as of any other code.

        What a step writes is known when it has ended; when in the step that was is not.
        """
        if span.kind != "step" or span.event == UNKNOWN:
            return False
        ended = self.history.position(span.event)
        return not any(
            write.at == ended
            for one in (source, copy)
            for write in self.unheard.get(self._memory(one), [])
        )

    def _unwatched(self, operand: Operand) -> bool:
        """Whether writes through an array on this memory could have gone unnoticed."""
        fact = self.trace.storages[operand.storage]
        return fact.device != "cpu" or fact.nbytes > 16 << 20 or self.history.arrays_unchecked

    def _outlived_by_array(self, source: Operand, copy: Operand) -> bool:
        """Whether the source was made of an array, and gone before the copy was.

        Its memory is the array's, which may live on: bytes are compared only while a tensor shows
        them.
        """
        fact = self.trace.storages[source.storage]
        if fact.memory == UNKNOWN or fact.freed == UNKNOWN:
            return False
        return self.history.position(fact.freed) < self._lives_until(copy)

    def _kind(self, operand: Operand) -> str:
        fact = self.trace.tensors.get(operand.tensor)
        return fact.kind if fact is not None else "Tensor"

    def _lives_until(self, operand: Operand) -> float:
        return self.freed.get(self._memory(operand), math.inf)

    def _writes_of_source(self, position: int, source: Operand, copy: Operand) -> Reason | None:
        """Find a write to the source while the copy lived."""
        for write in self._written(source, position, self._lives_until(copy)):
            written, line = write.written, self._line(write.at)
            if written is None or written.storage != source.storage or may_overlap(written, source):
                text = f"{line} {write.verb} {self._source(position, source)}"
                return Reason("yes", f"{text} while {self._name(copy)} lives", write.at)
            if self._saves(copy, position, write.at):
                text = f"{line} writes beside {self._source(position, source)}"
                return Reason("yes", f"{text}, which the backward pass would refuse", write.at)
        return None

    def _saves(self, copy: Operand, after: int, before: int) -> bool:
        """Whether a call saved the copy for backward, which a moved version would refuse."""
        graph = self.history.get(Graph)
        return any(
            after < at < before and any(one.tensor == copy.tensor for one in graph.saved(at))
            for at in self.reads[copy.tensor]
        )

    def _writes_of_copy(self, position: int, source: Operand, copy: Operand) -> Reason | None:
        """Find a write to the copy while the source lived."""
        for write in self._written(copy, position, self._lives_until(source)):
            text = f"{self._line(write.at)} {write.verb} {self._name(copy)}"
            lives = f"while {self._source(position, source)} lives"
            return Reason("yes", f"{text} {lives}", write.at)
        return None

    def _object(self, position: int, source: Operand, copy: Operand) -> Reason | None:
        """Find something of its own that the copy has as an object."""
        if self._kind(copy) != "Tensor":
            return Reason("yes", f"it is a {self._kind(copy)} of its own")
        if copy.tensor in self.held:
            return Reason("yes", "an optimizer holds it")
        alone = self._alone(position, source)
        for at in self.reads[copy.tensor]:
            if at <= position:
                continue
            operation = self.history.events[at].operation
            own = _REPLACED.get(operation) or ("" if alone else _OWN.get(operation))
            if own:
                return Reason("yes", f"at {self._line(at)} it {own}", at)
            if operation == "save" and self._saved_apart(at, source, copy):
                return Reason("yes", f"{self._line(at)} saves it as memory of its own", at)
        name = self.history.facts_of_name(copy.tensor)
        if name is not None and name.module:
            return Reason("unknown", f"as `{name.name}` a module holds it, and may write it")
        if self._kind(source) == "Parameter":
            for held in self.history.names_of(copy.tensor):
                if "." in held or "[" in held:
                    return Reason("unknown", f"as `{held}` a Parameter would be registered")
        return None

    def _alone(self, position: int, source: Operand) -> bool:
        """Whether the source object was there for this copy only, and is as good an object."""
        fact = self.trace.tensors.get(source.tensor)
        return (
            fact is not None
            and not (source.leaf and source.requires_grad)
            and fact.died != UNKNOWN
            and self.history.position(fact.died) <= position + 1
            and all(at >= position for at in self.reads[source.tensor])
        )

    def _saved_apart(self, at: int, source: Operand, copy: Operand) -> bool:
        """Whether one file would hold the source's whole memory, or both as one."""
        fact = self.trace.storages[source.storage]
        beside = any(one.storage == source.storage for one in self.history.events[at].reads)
        return beside or fact.nbytes > nbytes(copy)

    def _layout(self, position: int, source: Operand, copy: Operand) -> Reason | None:
        """Find a call for which it may matter how the elements lie."""
        if same_layout(source, copy):
            return None
        until = self._lives_until(copy)
        changed, used = {copy.tensor}, False
        found: Reason | None = None
        for at in self.history.on_storage(copy):
            if at <= position:
                continue
            if at >= until:
                break
            event = self.history.events[at]
            if not any(one.tensor in changed for one in event.reads):
                continue
            used = True
            name = event.operation
            if name in VIEWS and all(one.storage == copy.storage for one in event.results):
                changed.update(one.tensor for one in event.results)
            elif name in RESHAPES and self._regroups(event, copy):
                if not viewable(source, event.results[0].shape):
                    text = "could not view its source" if name.startswith("view") else "would copy"
                    return Reason("yes", f"{self._line(at)}, {name}, {text} without it", at)
                changed.add(event.results[0].tensor)
            elif name == "embedding" and copy.dtype.startswith(("int", "uint")):
                continue  # looks its indices up one by one
            elif name not in SINKS or (name in ("cat", "stack") and len(copy.shape) > 3):
                # cat of channels-last images is channels-last
                text = f"{self._line(at)}, {name}, may rely on its layout"
                found = found or Reason("unknown", text, at)
        if not used:
            return Reason("unknown", "its layout is another, and nothing was seen to read it")
        return found

    def _regroups(self, event: Event, copy: Operand) -> bool:
        """Whether an event gave the very copy another shape, in the same memory."""
        result = event.results[0] if event.results else None
        return (
            result is not None
            and event.reads[0].tensor == copy.tensor
            and (result.storage, result.dtype) == (copy.storage, copy.dtype)
        )

    def _size(self, source: Operand, copy: Operand) -> Reason | None:
        """Say whether the copy let a much larger memory go."""
        fact = self.trace.storages[source.storage]
        more = fact.nbytes - nbytes(copy)
        if self._lives_until(source) < self._lives_until(copy) and more > min(
            FLOOR, fact.nbytes / 2
        ):
            return Reason("yes", f"it lets {more:,} bytes beside it be freed")
        return None

    def _kept(self, position: int, source: Operand, copy: Operand) -> Reason | None:
        """Ask what comes after, and what others do between a library's calls: neither was seen."""
        kept = min(self._lives_until(copy), self._lives_until(source)) == math.inf
        if not kept and not self._library:
            return None
        if kept and not self.whole:
            return Reason("unknown", "both are alive where the recording ends")
        if kept and self._library:
            # The program has ended, but the library serves others as well.
            text = "both are kept: what a library's other callers write was not seen"
            return Reason("unknown", text)
        # A program has its own order; a library's copy guards against that of other callers.
        for write in self._written(source, UNKNOWN, math.inf):
            if write.at != position and self._used_before(source, write.at):
                text = f"{self._line(write.at)} writes {self._source(position, source)}"
                return Reason("unknown", f"{text} at other times", write.at)
        return None

    def _used_before(self, source: Operand, at: int) -> bool:
        """Whether a memory was read before an event: what was written until then filled it."""
        for position in self.history.on_storage(source):
            if position >= at:
                return False
            event = self.history.events[position]
            if event.reads and not event.writes and event.operation not in _MAKING:
                return True
        return False

    def _order(self, position: int, source: Operand, copy: Operand) -> Reason | None:
        """Ask for sums of gradients: three parts or more, added in another order, round anew."""
        if not copy.requires_grad:
            return None
        events = self.history.events
        parts = [
            sum(at != position and events[at].kind >= 0 for at in self.reads[one.tensor])
            for one in (source, copy)
        ]
        if min(parts) and sum(parts) > 2:
            text = f"without it the gradient of {self._source(position, source)}"
            return Reason("unknown", f"{text} is added up in another order")
        return None

    # -- words -----------------------------------------------------------------------------------

    def _line(self, position: int) -> str:
        """Return the line of an event; for a library's copy the library's own."""
        if not 0 <= position < len(self.history.events):
            return "the end of the recording"
        event = self.history.events[position]
        site = self.history.site_of(event)
        if self._library and event.inner not in (UNKNOWN, event.site):
            inner = self.history.site(event.inner)
            return f"{Path(inner.file).name}:{inner.line}"
        return f"line {site.line}" if site.line else "an unknown line"

    def _source(self, position: int, source: Operand) -> str:
        """Return what the copying line calls its source, else its name."""
        event = self.history.events[position]
        site = self.history.site(event.inner) if self._library else self.history.site_of(event)
        named = self._library or self._own_line(event)
        text = copied_text(event.operation, site.expression) if named else ""
        return f"`{text}`" if text else self._name(source, "its source")

    def _name(self, operand: Operand, otherwise: str = "the copy") -> str:
        """Return a tensor's name; a library's line that gives it none has no other to show."""
        name = self.history.name_of(operand.tensor)
        if self._library and not self.history.names_of(operand.tensor):
            return otherwise
        return name if name.startswith("`") else f"`{name}`"
