"""The recorder's ear in one thread: hears every call on tensors, and appends what happened.

It is a `TorchFunctionMode`: such a mode hears the call that the user wrote, before PyTorch takes it
apart, at a fifth of what a dispatch mode costs. The effects of a call are read off its arguments
before and after it: the version moved, so it was written; the storage is an argument's, so it is
shared; it is new, so it is owned. What a mode does not hear comes in through `record.patches`.

Observe and append, nothing else: judging is for afterwards.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from threading import active_count
from typing import Any, Protocol

import torch
import torch.overrides
import torch.utils._contextlib
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from tether.facts import GRAD_ON, NAMED, RAISED, UNKNOWN, EventId
from tether.record.arrays.copies import ArrayCopyLog
from tether.record.arrays.watch import ArrayWatch
from tether.record.events import PACK_HEAD, PACK_ROWS
from tether.record.functions import Call, Function, drops, flags_of, learn, original
from tether.record.gradients.given_gradients import GivenGradients
from tether.record.gradients.nodes import GraphLog, count_nodes
from tether.record.identity import MAPPING, OTHER, PLAIN, SEQUENCE, SUBCLASS, WORD, Snapshot
from tether.record.names.holders import HolderLog
from tether.record.objects import items_of
from tether.record.sites import behind_us
from tether.record.tape import Tape, grad_mode
from tether.record.training.open_steps import leave_stale_steps
from tether.record.values.addressed import AddressLog
from tether.record.values.altered import AlteredLog, NodeAnswer
from tether.record.values.collisions import CollisionLog
from tether.record.values.indexed import region_of
from tether.record.values.padding import PaddingLog
from tether.record.values.repeats import ArrayAgainLog, RepeatLog
from tether.record.values.sameness import SameLog
from tether.record.ways import WayLog

__tracebackhide__ = True  # pytest shows none of these frames

_handle = torch.overrides.handle_torch_function.__code__
_boolean = next(  # of F.max_pool2d and the like: return_indices or not
    (
        one
        for one in torch._jit_internal.boolean_dispatch.__code__.co_consts
        if isinstance(one, types.CodeType)
    ),
    _handle,  # a torch that does without it
)
_device = DeviceContext.__torch_function__.__code__  # of a default device
_decorators = torch.utils._contextlib.__file__  # where ``@torch.no_grad()`` wraps functions
_NOTHING: list[NodeAnswer] = []
_NUMBERS = frozenset((bool, int, float))
_NO_DETAIL = 0  # number of the empty string in every log
_HERE = os.path.dirname(__file__) + os.sep
_FAST = len(PACK_ROWS) - 2  # operands of a call that is recorded in the quick way
_WRAPPED = 16  # decorators of one function that are looked through
_getframe = sys._getframe
_grad_enabled = torch.is_grad_enabled
_function = types.FunctionType
_without_subclasses = torch._C.DisableTorchFunctionSubclass


def _innermost(function: Any) -> Any:
    """Return the function that decorators wrap, which `functools.wraps` makes known."""
    for _ in range(_WRAPPED):
        inner = getattr(function, "__dict__", {}).get("__wrapped__")
        if inner is None:
            break
        function = inner
    return function


def past_dispatch(frame: types.FrameType) -> tuple[types.FrameType, types.CodeType]:
    """Step back from what PyTorch puts between a call and its kernel to who made the call.

    It is the dispatch of a function written in Python, the mode of a default device, and what we
    put around NumPy's functions that ask a tensor for its array.
    """
    while frame.f_code is _handle or frame.f_code is _boolean or frame.f_code is _device:
        steps = 2 if frame.f_code is _handle else 1
        for _ in range(steps):
            if frame.f_back is None:
                return frame, frame.f_code
            frame = frame.f_back
    frame = behind_us(frame)
    return frame, frame.f_code


class Functions:
    """The torch functions met so far, classified; shared by the listeners of all threads."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.known: dict[Any, Function] = {}

    def learn(self, func: Any) -> Function:
        """Classify a function that was not met before."""
        what = learn(func)
        what.number = self._tape.log.number(what.name)
        self.known[func] = what
        return what

    def meant(self, func: Any, what: Function, frame: types.FrameType) -> tuple[Any, Function]:
        """Return the function that a call of a foreign one means, asked for from `frame`."""
        above = frame.f_back if frame.f_code is _handle else None
        key = above.f_code if above is not None else None
        real = what.originals.get(key)
        if real is None:
            real = what.originals[key] = original(func, frame)
        return real, what if real is func else self.known.get(real) or self.learn(real)


class Ear(Protocol):
    """What a listener needs of the recorder that it listens for."""

    tape: Tape
    functions: Functions
    arrays: ArrayWatch
    graph: GraphLog
    altered: AlteredLog
    given: GivenGradients
    holders: HolderLog
    same: SameLog
    collisions: CollisionLog
    addressed: AddressLog
    padding: PaddingLog
    repeats: RepeatLog
    ways: WayLog
    arrays_again: ArrayAgainLog
    array_copies: ArrayCopyLog


class Listener(TorchFunctionMode):
    """The recorder's ear in one thread."""

    def __init__(self, recorder: Ear, thread: int) -> None:
        super().__init__()
        self.recorder = recorder
        self.tape = recorder.tape
        self.arrays = recorder.arrays
        self.thread = thread
        self.span: int = UNKNOWN
        self.steps: list[int] = []  # spans of the optimizer steps that run in this thread
        self.who = recorder.tape.who
        self._functions = recorder.functions
        self._known = recorder.functions.known
        self._log = recorder.tape.log
        self._graph = recorder.graph
        self._kinds = recorder.graph.kinds
        self._categories = self.who.categories
        self._arrays_held = recorder.tape.arrays.held
        self._refs = self.who.tensors
        self._given = recorder.given
        self._holders = recorder.holders
        self._same = recorder.same
        self._laid_out = recorder.same.laid_out
        self._copies = recorder.same.laid_out.copies
        self._collisions = recorder.collisions
        self._addressed = recorder.addressed
        self._pieces = recorder.addressed.pieces
        self._repeats = recorder.repeats
        self._ways = recorder.ways

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func`, and append what it did."""
        if kwargs is None:
            kwargs = {}
        tape = self.tape
        what = self._known.get(func)
        if what is None:
            what = self._functions.learn(func)
        if what.aside or not tape.active:
            if what.foreign:
                func, what = self._functions.meant(func, what, _getframe(1))
            if not tape.active:
                ear = tape.ear
                return func(*args, **kwargs) if ear is None else ear.call(func, what, args, kwargs)
            if what.silent or (what.asks and _getframe(1).f_code.co_filename.startswith(_HERE)):
                return self._silently(func, what, args, kwargs)
        # Where from: the caller, past PyTorch's own dispatch of functions written in Python.
        frame = _getframe(1)
        code = frame.f_code
        if code is _handle or code is _boolean or code is _device:
            frame, code = past_dispatch(frame)
        places = tape.places
        known = places.codes.get(id(code)) or places.of_code(code)
        if known.skip:
            return _function(known.passing(frame.f_lasti), frame.f_globals)(func, args, kwargs)
        if self.steps:
            leave_stale_steps(self, frame)
        place = known.places.get(frame.f_lasti) or places.add(known, frame.f_lasti, frame)
        inner = site = place.number
        if not known.user:
            above, libraries = frame.f_back, places.libraries
            while above is not None:
                if id(above.f_code) in libraries:  # as are nearly all, through PyTorch's modules
                    above = above.f_back
                    continue
                known = places.codes.get(id(above.f_code)) or places.of_code(above.f_code)
                if known.user:
                    user = known.places.get(above.f_lasti) or places.add(
                        known, above.f_lasti, above
                    )
                    site = user.number
                    if user.called:
                        self._ways.look(user, above)
                    break
                above = above.f_back
            del above
        elif place.called:
            self._ways.look(place, frame)
        call = _function(place.code, frame.f_globals)
        del frame
        if what.untied:
            return self._untied(call, func, what, args, kwargs, (site, inner))
        # Before: the arguments as they are.
        who = self.who
        tensors: list[torch.Tensor] = []
        reads: list[Snapshot] = []
        rows: list[int] = []
        words: tuple[str, ...] = ()
        plain, answers, wrote = what.plain, _NOTHING, None
        try:
            if who.dead:
                who.bury()
            if self._arrays_held:
                tape.arrays.look()
            categories, refs = self._categories, self._refs
            arguments = args
            if kwargs:
                arguments = (*args, *kwargs.values())
                if "out" in kwargs:
                    plain = False
            for argument in arguments:
                category = categories.get(type(argument))
                if category == PLAIN:
                    # As `Identities.snapshot` does, without the calls.
                    ref = refs.get(id(argument))
                    if ref is None:
                        seen = who.meet(argument)
                    else:
                        seen = ref.snapshot
                        if (
                            seen[2] < 0
                            or argument._version != seen[2]
                            or argument.requires_grad is not seen[3]
                        ):
                            seen = who.snapshot(argument)
                    tensors.append(argument)
                    reads.append(seen)
                    rows.append(seen[5])
                elif category == OTHER:
                    continue
                elif category == WORD:
                    words += (argument,)
                elif category == MAPPING and what.memo:
                    continue  # of what was copied before: it reads none of them
                elif self._look(argument, tensors, reads, rows):
                    plain = False
            if self.arrays.watched:
                self.arrays.compare(reads, site)
            if what.writes and tensors:
                if refs[id(tensors[0])].apart:
                    answers = self.recorder.altered.before(tensors[0], site)
                    plain = plain and not answers
                if self._given.hooks and self._given.passes:
                    with _without_subclasses():
                        wrote = self._given.writes(tensors[0], _getframe(1))
                    plain = plain and wrote is None
                if len(reads) > 1 and reads[0][1] == reads[-1][1] and (what.places or what.onto):
                    with _without_subclasses():
                        if what.places:
                            self._collisions.before(tensors[-1], site)
                        elif self._collisions.onto(func, args, kwargs, site):
                            plain = False
        except Exception as error:  # noqa: BLE001
            tape.failed(what.name, error)
            return call(func, args, kwargs)
        # The call itself.
        before_nodes = count_nodes()
        try:
            result = call(func, args, kwargs)
        except BaseException as error:
            self._raised(error, what.name, site, inner, reads)
            raise
        # After: what autograd made of it, who was written, what came back.
        try:
            nodes, kind = count_nodes(), -1
            if nodes != before_nodes:
                key = (what, words, nodes - before_nodes, *[seen[3] for seen in reads])
                kind = self._kinds.get(key, -1)
                if kind < 0:
                    kind = self._learn(key, tensors, result, before_nodes, nodes)
            count = len(rows)
            if plain and count < _FAST and categories.get(type(result)) == PLAIN:
                written: torch.Tensor | None = None
                for tensor, before in zip(tensors, reads):  # noqa: B905 -- a third of its cost
                    version = before[2]
                    if version < 0 or tensor._version != version:
                        first = tensor is result and written is None
                        if not first or version < 0 or self.arrays.watched:
                            break
                        written = tensor
                else:
                    # The common cases: one tensor came back, new or written in place, and
                    # nothing else is to be told.
                    if written is not None or not what.writes:
                        if who.dead:
                            who.bury()
                        mode = GRAD_ON if _grad_enabled() else grad_mode()
                        if written is None:
                            ref = refs.get(id(result))
                            seen = who.meet(result) if ref is None else who.snapshot(result)
                            rows.append(seen[5])
                            writes = 0
                        else:
                            row = who.written(written)[5]
                            rows += (row, row)
                            writes = 1
                        head = PACK_HEAD(
                            what.number, site, mode, self.span, inner, self.thread, 0, 0,
                            _NO_DETAIL, kind, nodes, count, 1, writes,
                        )  # fmt: skip
                        packed = PACK_ROWS[count + 1 + writes](*rows)
                        log = self._log
                        index = log.count
                        log.heads += head  # as in `EventLog.add`
                        log.rows += packed
                        log.count = index + 1
                        if index >= log.full:
                            log.attend()
                        if what.picks and seen[1] != reads[0][1]:
                            with _without_subclasses():
                                self._same.picked((what.name, site), arguments, result, index)
                        if written is None and (
                            (what.lays and count and seen[1] != reads[0][1])
                            or (what.rounds and self._copies)
                        ):
                            with _without_subclasses():
                                found = Call(args, kwargs, result, tensors, site, kind, nodes)
                                self._follow_layout(what, func, found, reads, index)
                        if self._pieces and count and reads[0][0] in self._pieces:
                            with _without_subclasses():
                                self._addressed.met(
                                    what.name, args, result, index, wrote=written is not None
                                )
                        if who.large >= 0 and written is None:
                            with _without_subclasses():
                                self.made(what.name, (site, inner), index, result, tensors)
                        if written is not None and (site == inner or not what.fills):
                            self._holders.wrote((written,), index, (site, inner))
                        return result
            with _without_subclasses():  # a user's subclass must not hear the recorder look
                found = Call(args, kwargs, result, tensors, site, kind, nodes)
                self._append(what, (site, inner), reads, found)
                if what.lays or (what.rounds and self._copies):
                    self._follow_layout(what, func, found, reads, tape.now() - 1)
                if answers:
                    self.recorder.altered.after(answers, tape.now() - 1, self.thread)
                if wrote is not None:
                    wrote(tape.now() - 1, self.thread)
        except Exception as error:  # noqa: BLE001
            tape.failed(what.name, error)
        return result

    # -- parts of one call -------------------------------------------------------------------

    def _silently(
        self, func: Any, what: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function that says nothing about ties, unless it raises."""
        try:
            return func(*args, **kwargs)
        except Exception as error:
            if self.tape.is_last_error(error):
                raise  # heard where it was raised
            with _without_subclasses():
                site, inner = self.tape.places.user_place(_getframe(2))
                reads = [self.who.snapshot(one) for one in self.tensors_in(args)]
                self._raised(error, what.name, site, inner, reads)
            raise

    def _untied(
        self, call: Any, func: Any, what: Function, args: tuple[Any, ...], kwargs: dict[str, Any],
        place: tuple[int, int],
    ) -> Any:  # fmt: skip
        """Call an operation that has nothing to do with tensors, such as a profiler's."""
        try:
            result = call(func, args, kwargs)
        except BaseException as error:
            reads = [self.who.snapshot(one) for one in self.tensors_in(*args, *kwargs.values())]
            self._raised(error, what.name, *place, reads)
            raise
        self.tape.take_received()
        return result

    def _look(
        self, value: Any, tensors: list[torch.Tensor], reads: list[Snapshot], rows: list[int]
    ) -> bool:
        """Take snapshots of the tensors in an argument; return whether one is of a subclass."""
        found: list[torch.Tensor] = []
        self._collect(value, found, 0)
        foreign = False
        for tensor in found:
            seen = self.who.snapshot(tensor)
            tensors.append(tensor)
            reads.append(seen)
            rows.append(seen[5])
            foreign = foreign or self._categories.get(type(tensor)) != PLAIN
        return foreign

    def _collect(self, value: Any, into: list[torch.Tensor], depth: int) -> None:
        """Gather the tensors inside plain containers, a few levels deep."""
        kind = type(value)
        category = self._categories.get(kind)
        if category is None:
            category = self.who.category(kind)
        if category == PLAIN or category == SUBCLASS:
            into.append(value)
        elif category == SEQUENCE:
            if depth < 6:  # without the code of a subclass's own
                for item in value if kind is list or kind is tuple else items_of(value):
                    self._collect(item, into, depth + 1)
        elif category == MAPPING and depth < 6:
            for item in dict.values(value):
                self._collect(item, into, depth + 1)

    def _append(
        self, what: Function, place: tuple[int, int], reads: Sequence[Snapshot], call: Call
    ) -> None:
        """Append a call that has more to tell than the quick way can."""
        if what.changes_identity and call.tensors:
            self.who.refresh(call.tensors[0])  # it may have another storage or place in the graph
        if what.special is not None:
            what.special(call)
        writes = self._written(what, reads, call)
        results = self._results(call.result)
        if what.apart:
            self._set_apart(call.result)
        if not (reads or results or what.switches):
            return
        site, inner = place
        if what.switches:
            site = self.definition_or(site)
        index = self._log.add(
            (
                what.number, site, grad_mode(), self.span, inner,
                self.thread, flags_of(call), 0, self._log.number(call.detail), call.kind,
                call.nodes, len(reads), len(results), len(writes),
            ),
            [one[5] for one in (*reads, *results, *writes)],
        )  # fmt: skip
        if writes:
            self._wrote(what, index, (site, inner), call, writes)
        elif self.who.large >= 0:
            self.made(what.name, (site, inner), index, call.result, call.tensors)
        self._follow(what, index, call)

    def _follow_layout(
        self, what: Function, func: Any, call: Call, reads: Sequence[Snapshot], index: int
    ) -> None:
        """Remember what was laid out anew; see whether a call that reads it needs it so."""
        result = call.result
        if what.writes or not call.tensors or type(result) is not torch.Tensor:
            return
        if any(one is result for one in call.tensors):
            return  # `out=` would be written again
        if what.lays:
            self._laid_out.made(result, call.tensors[0])
            if result.dtype != call.tensors[0].dtype and not result.requires_grad:
                self._same.converted(result, call.tensors[0], index)
        elif not what.foreign:
            self._read_again(what, func, call, reads, index)

    def _read_again(
        self, what: Function, func: Any, call: Call, reads: Sequence[Snapshot], index: int
    ) -> None:
        """Make a call again; one that may draw only where no other thread draws meanwhile."""
        draws = what.draws and drops(call.args, call.kwargs)
        if draws and active_count() > 1:
            return
        given, made = (call.tensors, reads), (call.args, call.kwargs)
        self._laid_out.read(func, made, given, call.result, index, draws=draws)

    def _follow(self, what: Function, index: int, call: Call) -> None:
        """Follow what a call has done to arrays and places, where it may have done anything."""
        if what.followed:
            self._follow_arrays(what, index, call)
        if what.spreads or self._pieces:
            self._follow_places(what, index, call)

    def _follow_places(self, what: Function, index: int, call: Call) -> None:
        """Follow tensors of which several places are one element, and views of them."""
        if what.spreads:
            self._addressed.spread(self.tensors_in(call.result))
        else:
            self._addressed.met(what.name, call.args, call.result, index, wrote=what.writes)

    def made(
        self, name: str, place: tuple[int, int], index: int, result: Any,
        given: Sequence[torch.Tensor],
    ) -> None:  # fmt: skip
        """Look at a result for which large new memory was met, if it was."""
        large, self.who.large = self.who.large, UNKNOWN
        ref = self.who.find(result) if large >= 0 and isinstance(result, torch.Tensor) else None
        if ref is not None and ref.snapshot[1] == large:
            self._same.made(name, place, index, result, given)
            if not result.requires_grad:
                self._repeats.look(name, place, index, result)

    def _wrote(
        self, what: Function, index: int, place: tuple[int, int], call: Call,
        writes: tuple[Snapshot, ...],
    ) -> None:  # fmt: skip
        """Tell those who follow arrays and places of what a call wrote."""
        if self.arrays.watched:
            self.arrays.wrote(writes)
        site, inner = place
        if site == inner or not what.fills:
            serials = {one[0] for one in writes}
            tensors = [*call.tensors, *call.unversioned]
            written = [one for one in tensors if self.who.serial(one) in serials]
            self._holders.wrote(written, index, place)

    def _follow_arrays(self, what: Function, index: int, call: Call) -> None:
        """Follow memory that leaves for an array, or comes in from one; look at choices."""
        if what.picks:
            given = (*call.args, *call.kwargs.values())
            self._same.picked((what.name, call.site), given, call.result, index)
        if what.onto:
            self._collisions.computed(EventId(index))
        if what.places:
            self._collisions.wrote(
                what.name, call.args, call.kwargs, call.result, EventId(index), call.site
            )
            if what.name == "__setitem__":
                written = call.args[0]
                self._addressed.wrote(written, self.who.serial(written), call.args[1], index)
        if what.pads:
            self.recorder.padding.look(call.args, call.kwargs, index, call.site)
        if what.exits:
            self.arrays.exported(what.name, index, call.tensors, call.result)
        elif what.enters and call.args:
            data = call.args[-1] if what.name == "new_tensor" else call.args[0]
            self.entered(index, call.site, data, call.result)

    def entered(self, index: int, site: int, data: Any, result: Any) -> None:
        """Follow an array that became a tensor; ask who holds it where others had written it."""
        self.recorder.arrays_again.look(index, site, data)
        shows = self.arrays.entered(index, site, data, result)
        if shows is not None:
            self._holders.given(shows, index, site)
        self.recorder.array_copies.look(index, site, data, result)

    def _learn(
        self, key: Any, tensors: list[torch.Tensor], result: Any, first: int, last: int
    ) -> int:
        """Look for the first time at what autograd makes of this kind of call."""
        with torch._C.DisableTorchFunction():
            results = self.tensors_in(result) or tensors
            return self._graph.learn(key, tensors, results, first, last)

    def _written(
        self, what: Function, reads: Sequence[Snapshot], call: Call
    ) -> tuple[Snapshot, ...]:
        """Look again at the arguments that the call wrote."""
        who, writes = self.who, list[Snapshot]()
        first: Any = call.args[0] if call.args else None
        listed = type(first) in (list, tuple)
        among = len(first) if listed else 1  # tensors that it writes
        for number, (tensor, before) in enumerate(zip(call.tensors, reads, strict=True)):
            if (what.writes and number < among) or who.has_moved(tensor, before):
                found = who.refresh(tensor)
                whole = number > 0 or what.name != "__setitem__"
                writes.append(found if whole else self._indexed(call, found))
        received = self.tape.take_received()
        call.unversioned += [one for one in call.tensors if id(one) in received]
        return tuple(dict.fromkeys([*writes, *(who.refresh(one) for one in call.unversioned)]))

    def _indexed(self, call: Call, whole: Snapshot) -> Snapshot:
        """Return of an assignment to an index which elements it wrote, as far as that is plain."""
        region = region_of(call.args[0], call.args[1])
        if region is None:
            return whole
        call.flags |= NAMED
        return self.who.part(call.args[0], region)

    def _set_apart(self, result: Any) -> None:
        ref = self.who.find(result) if isinstance(result, torch.Tensor) else None
        if ref is not None:
            ref.apart = True

    def _results(self, result: Any) -> tuple[Snapshot, ...]:
        category = self._categories.get(type(result), OTHER)
        if category == PLAIN or category == SUBCLASS:
            return (self.who.snapshot(result),)
        if result is None or type(result) in _NUMBERS:
            return ()
        return tuple([self.who.snapshot(tensor) for tensor in self.tensors_in(result)])

    def definition_or(self, site: int) -> int:
        """Return the place of a grad-mode switch: a decorator's own line, where one made it.

        Not where a line of the program did, in a function that is decorated, or called by one.
        """
        frame: types.FrameType | None = _getframe(1)
        while frame is not None:
            code = frame.f_code
            if self.tape.places.of_code(code).user:
                break
            if code.co_filename == _decorators and "func" in code.co_freevars:
                local = frame.f_locals
                decorated = getattr(_innermost(local.get("func")), "__code__", None)
                if hasattr(local, "clear"):
                    local.clear()  # the snapshot of a frame's variables would keep them alive
                return self.tape.places.add_definition(decorated) if decorated else site
            frame = frame.f_back
        return site

    def _raised(
        self,
        error: BaseException,
        name: str,
        site: int,
        inner: int,
        reads: Sequence[Snapshot],
    ) -> None:
        self._collisions.raised()
        operands = (reads, (), ())
        event = self.tape.add(name, (site, inner), operands, self.span, self.thread, RAISED)
        self.tape.error(error, site, event)

    # -- what the patches tell ---------------------------------------------------------------

    def note(
        self,
        operation: str,
        place: tuple[int, int],
        reads: Iterable[torch.Tensor] = (),
        results: Iterable[torch.Tensor] = (),
        writes: Iterable[torch.Tensor] = (),
        *,
        flags: int = 0,
        losses: int = 0,
        detail: str = "",
        kind: int = UNKNOWN,
        snapshots: tuple[Snapshot, ...] | None = None,
    ) -> int:
        """Append an event that no mode hears; `snapshots` are reads taken before the call."""
        who = self.who
        operands = (
            who.snapshots(reads) if snapshots is None else snapshots,
            [who.snapshot(one) for one in results],
            [who.written(one) for one in writes],
        )
        return self.tape.add(
            operation, place, operands, self.span, self.thread, flags, losses, detail, kind,
            count_nodes(),
        )  # fmt: skip

    def tensors_in(self, *values: Any) -> list[torch.Tensor]:
        """Return the tensors among and inside `values`."""
        found: list[torch.Tensor] = []
        for value in values:
            self._collect(value, found, 0)
        return found
