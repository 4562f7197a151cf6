"""The recorder: hears every call on tensors, and appends what happened as plain facts.

It is one `TorchFunctionMode` per thread (`Listener`) over tables shared by all threads
(`Recorder`). A function mode hears the call that the user wrote, before PyTorch takes it apart,
at a fifth of what a dispatch mode costs. What a mode does not hear comes in through
`live.patches`. The effects of a call are read off its arguments before and after it: the version
moved, so it was written; the storage is an argument's, so it is shared; it is new, so it is owned.

Observe and append, nothing else: judging is for afterwards. A failure in here never reaches the
program; it becomes a `Gap` (and is raised when ``TETHER_STRICT`` is set, as under our tests).
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.overrides
from torch.overrides import TorchFunctionMode

from tether.facts import (
    GRAD_INFERENCE,
    GRAD_OFF,
    GRAD_ON,
    UNKNOWN,
    ArrayFact,
    Bridge,
    Gap,
    OptimizerFact,
    Raised,
    Span,
    Trace,
)
from tether.record import functions
from tether.record.array_watch import Contents
from tether.record.autosave import Journal
from tether.record.events import PACK, EventLog
from tether.record.gradient_memory import Holdings
from tether.record.gradients import GradientLog
from tether.record.identity import MAPPING, OTHER, PLAIN, SEQUENCE, SUBCLASS, Identities, Snapshot
from tether.record.naming import Naming, items_of
from tether.record.sites import Places
from tether.record.user_overrides import original

STRICT = "TETHER_STRICT"

_handle = torch.overrides.handle_torch_function.__code__
_boolean = next(  # of F.max_pool2d and the like: return_indices or not
    (
        one
        for one in torch._jit_internal.boolean_dispatch.__code__.co_consts
        if isinstance(one, types.CodeType)
    ),
    _handle,  # a torch that does without it
)
_NO_NOTE = 0  # number of the empty string in every log
_getframe = sys._getframe
_grad_enabled = torch.is_grad_enabled
_inference_enabled = torch.is_inference_mode_enabled
_function = types.FunctionType
_without_subclasses = torch._C.DisableTorchFunctionSubclass


def _past_dispatch(frame: types.FrameType) -> tuple[types.FrameType, types.CodeType]:
    """Step back from PyTorch's dispatch of a function written in Python to who called that."""
    while frame.f_code is _handle or frame.f_code is _boolean:
        steps = 2 if frame.f_code is _handle else 1
        for _ in range(steps):
            if frame.f_back is None:
                return frame, frame.f_code
            frame = frame.f_back
    return frame, frame.f_code


def text_of(error: BaseException) -> str:
    """Return what an exception says, however unwilling its class is to."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 -- a program's own class may do anything
        return ""


def _mode() -> int:
    if _grad_enabled():
        return GRAD_ON
    return GRAD_INFERENCE if _inference_enabled() else GRAD_OFF


class Recorder:
    """The facts of one recording while it grows, shared by the listeners of all threads."""

    def __init__(self, limit: int | None = None, *, memory: bool = False) -> None:
        self.strict = bool(os.environ.get(STRICT))
        self.active = False
        self.log = EventLog(limit)
        self.spans: list[list[Any]] = []
        self.raised: list[Raised] = []
        self.gaps: dict[tuple[str, int], int] = {}
        self.bridges: list[Bridge] = []
        self.bridges_cut = 0  # how many of them were forgotten
        self.optimizers: list[OptimizerFact] = []
        self.functions: dict[Any, functions.Function] = {}
        self.places = Places()
        self.who = Identities(self.gap, self.log)
        self.log.on_forget = self._forget
        self.contents = Contents(self)
        self.gradients = GradientLog(self)
        self.who.on_leaf = self.gradients.seen
        self.naming = Naming(self)
        self.holdings = Holdings(self) if memory else None
        self.journal: Journal | None = None
        self.exports: dict[int, int] = {}  # storage serial -> event that exported its memory
        self.last_error: tuple[int, type, str] | None = None  # noted last, while it travels up

    def _forget(self) -> None:
        """Let go of what hung on events that have just been forgotten."""
        since = self.log.dropped
        self.who.forget(self.log.rows(), since, storages=self.holdings is None)
        self.exports = {one: at for one, at in self.exports.items() if at >= since}
        kept = [one for one in self.bridges if one.exit >= since]
        self.bridges_cut += len(self.bridges) - len(kept)
        self.bridges = kept

    def keep_journal(self, path: str, program: list[str], folder: str) -> None:
        """Save what is recorded at the absolute `path`, about once a second, from now on."""
        self.journal = Journal(self, path, program, folder)
        self.log.beat(self.journal.beat)

    def beat(self) -> None:
        """Take the chance of a moment that comes now and then: save, if it is time."""
        if self.journal is not None:
            self.journal.beat()

    def now(self) -> int:
        """Return the time: how many events have been recorded."""
        return self.log.count

    def learn(self, func: Any) -> functions.Function:
        """Classify a function that was not heard before."""
        what = functions.learn(func)
        what.number = self.log.number(what.name)
        self.functions[func] = what
        return what

    def meant(
        self, func: Any, what: functions.Function, frame: types.FrameType
    ) -> tuple[Any, functions.Function]:
        """Return the function that a call of a foreign one means, asked for from `frame`."""
        above = frame.f_back if frame.f_code is _handle else None
        key = above.f_code if above is not None else None
        real = what.originals.get(key)
        if real is None:
            real = what.originals[key] = original(func, frame)
        return real, what if real is func else self.functions.get(real) or self.learn(real)

    def add(
        self,
        operation: str,
        place: tuple[int, int],
        reads: Iterable[Snapshot],
        results: Iterable[Snapshot],
        writes: Iterable[Snapshot],
        listener: Listener,
        note: str,
    ) -> int:
        """Append an event; return its index."""
        log = self.log
        if self.who.dead:
            self.who.bury()
        return log.add(
            log.number(operation),
            place[0],
            [one[5] for one in reads],
            [one[5] for one in results],
            [one[5] for one in writes],
            _mode(),
            listener.span,
            place[1],
            listener.thread,
            log.number(note),
        )

    def gap(self, reason: str, site: int = UNKNOWN) -> None:
        """Note something that could not be seen, once per reason and place."""
        key = (reason, site)
        self.gaps[key] = self.gaps.get(key, 0) + 1

    def failed(self, where: str, error: BaseException) -> None:
        """Note a failure of the recorder itself: a gap for the user, an error under our tests."""
        if self.strict:
            raise error
        self.gap(f"tether could not look at this call ({where}: {type(error).__name__}: {error})")

    def error(self, error: BaseException, site: int) -> None:
        """Note an exception that passes through a recorded call, once while it travels."""
        # Its id alone may come back once it is gone; holding it would keep its frames alive.
        text = text_of(error)
        this = (id(error), type(error), text)
        if this == self.last_error:
            return
        self.last_error = this
        if len(self.raised) < 1000:
            self.raised.append(
                Raised(self.now(), type(error).__name__, text[:2000], site, fatal=False)
            )

    # -- spans -------------------------------------------------------------------------------

    def open_span(self, kind: str, name: str, site: int, parent: int) -> int:
        """Begin a stretch that belongs to one call; return its number."""
        self.spans.append([kind, name, site, self.now(), UNKNOWN, parent, UNKNOWN])
        return len(self.spans) - 1

    def close_span(self, number: int, event: int = UNKNOWN) -> None:
        """End a stretch; `event` is the event of the call itself."""
        if number == UNKNOWN:
            return
        span = self.spans[number]
        span[4], span[6] = self.now(), event

    # -- facts -------------------------------------------------------------------------------

    def gap_facts(self, dropped: int) -> list[Gap]:
        """Return the gaps noted so far, and one for the `dropped` events that were forgotten."""
        gaps = [
            Gap(reason if n == 1 else f"{reason} ({n} times)", site)
            for (reason, site), n in list(self.gaps.items())
        ]
        if dropped:
            limit = self.log.limit or 0
            gaps.append(Gap(f"the first {dropped:,} calls were forgotten (--limit {limit:,})"))
        return gaps

    def trace(self) -> Trace:
        """Turn the raw record into facts."""
        log = self.log
        trace = Trace(torch=torch.__version__, python=sys.version.split()[0])
        trace.dropped = log.dropped
        trace.events = list(log.events(self.who.operands(log.rows())))
        trace.sites = self.places.resolve()
        trace.spans = [Span(*span) for span in self.spans]
        trace.tensors = self.who.tensor_facts()
        trace.storages = self.who.storage_facts()
        trace.names = list(self.naming.facts.values())
        trace.optimizers = list(self.optimizers)
        trace.gradients = list(self.gradients.facts)
        trace.bridges = [b for b in self.bridges if b.exit >= log.dropped]
        trace.arrays = [ArrayFact(*one) for one in sorted(self.contents.arrays.items())]
        trace.unseen = list(self.contents.facts)
        trace.raised = list(self.raised)
        trace.gaps = self.gap_facts(log.dropped)
        if self.holdings is not None:
            trace.attached = list(self.holdings.facts)
            trace.allocators = self.holdings.allocators()
        return trace


class Listener(TorchFunctionMode):
    """The recorder's ear in one thread."""

    def __init__(self, recorder: Recorder, thread: int) -> None:
        super().__init__()
        self.recorder = recorder
        self.thread = thread
        self.span = UNKNOWN
        self.who = recorder.who
        self._categories = recorder.who.categories
        self._refs = recorder.who.tensors

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
        recorder = self.recorder
        what = recorder.functions.get(func)
        if what is None:
            what = recorder.learn(func)
        if what.aside or not recorder.active:
            if what.foreign:
                func, what = recorder.meant(func, what, _getframe(1))
            if what.silent or not recorder.active:
                return func(*args, **kwargs)
        # Where from: the caller, past PyTorch's own dispatch of functions written in Python.
        frame = _getframe(1)
        code = frame.f_code
        if code is _handle or code is _boolean:
            frame, code = _past_dispatch(frame)
        places = recorder.places
        known = places.codes.get(id(code)) or places.of_code(code)
        if known.skip:
            return func(*args, **kwargs)
        place = known.places.get(frame.f_lasti) or places.add(known, frame.f_lasti)
        inner = site = place.number
        if not known.user:
            above = frame.f_back
            while above is not None:
                known = places.codes.get(id(above.f_code)) or places.of_code(above.f_code)
                if known.user:
                    user = known.places.get(above.f_lasti) or places.add(known, above.f_lasti)
                    site = user.number
                    break
                above = above.f_back
            del above
        call = _function(place.code, frame.f_globals)
        del frame
        # Before: the arguments as they are.
        who = self.who
        tensors: list[torch.Tensor] = []
        reads: list[Snapshot] = []
        rows: list[int] = []
        plain = what.plain
        try:
            if who.dead:
                who.bury()
            categories, refs = self._categories, self._refs
            arguments = args
            if kwargs:
                arguments = (*args, *kwargs.values())
                if "out" in kwargs or "non_blocking" in kwargs:
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
                elif category != OTHER and self._look(argument, tensors, reads, rows):
                    plain = False
            if recorder.contents.watched:
                recorder.contents.compare(reads, site)
        except Exception as error:  # noqa: BLE001
            recorder.failed(what.name, error)
            return call(func, args, kwargs)
        # The call itself.
        try:
            result = call(func, args, kwargs)
        except BaseException as error:
            self._raised(error, what.name, site, inner, reads)
            raise
        # After: who was written, what came back.
        try:
            count = len(rows)
            if plain and count < 14 and categories.get(type(result)) == PLAIN:
                written: torch.Tensor | None = None
                for tensor, before in zip(tensors, reads):  # noqa: B905 -- a third of its cost
                    version = before[2]
                    if version < 0 or tensor._version != version:
                        first = tensor is result and written is None
                        if not first or version < 0 or recorder.contents.watched:
                            break
                        written = tensor
                else:
                    # The common cases: one tensor came back, new or written in place, and
                    # nothing else is to be told.
                    if who.dead:
                        who.bury()
                    ref = refs.get(id(result))
                    mode = GRAD_ON if _grad_enabled() else _mode()
                    if written is None:
                        seen = who.meet(result) if ref is None else who.snapshot(result)
                        data = PACK[count + 1](
                            what.number, site, mode, self.span, inner, self.thread, _NO_NOTE,
                            count, 1, 0, *rows, seen[5],
                        )  # fmt: skip
                    else:
                        row = who.refresh(written)[5]
                        data = PACK[count + 2](
                            what.number, site, mode, self.span, inner, self.thread, _NO_NOTE,
                            count, 1, 1, *rows, row, row,
                        )  # fmt: skip
                    log = recorder.log
                    index = log.count
                    log.numbers += data  # as in `EventLog.add`
                    log.count = index + 1
                    if index >= log.full:
                        log.attend()
                    return result
            with _without_subclasses():  # a user's subclass must not hear the recorder look
                self._append(what, site, inner, tensors, reads, args, kwargs, result)
        except Exception as error:  # noqa: BLE001
            recorder.failed(what.name, error)
        return result

    # -- parts of one call -------------------------------------------------------------------

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
        self,
        what: functions.Function,
        site: int,
        inner: int,
        tensors: list[torch.Tensor],
        reads: Sequence[Snapshot],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        who = self.who
        recorder = self.recorder
        writes: tuple[Snapshot, ...] = ()
        for tensor, before in zip(tensors, reads, strict=True):
            version = before[2]
            if version >= 0:
                if tensor._version != version:
                    writes += (who.refresh(tensor),)
            elif what.writes and tensor is tensors[0]:
                writes += (who.refresh(tensor),)
        note = "out" if "out" in kwargs else ""
        if what.moves and (kwargs.get("non_blocking") or functions.first_bool(args)):
            note = "non_blocking"  # the result may not be there yet
        if what.changes_identity:
            note = self._changed(what.name, tensors, args)
        category = self._categories.get(type(result), OTHER)
        results: tuple[Snapshot, ...] = ()
        if category == PLAIN or category == SUBCLASS:
            results = (who.snapshot(result),)
        elif result is not None and type(result) is not bool:
            found: list[torch.Tensor] = []
            self._collect(result, found, 0)
            results = tuple([who.snapshot(tensor) for tensor in found])
        if not (reads or results or what.name == "set_grad_enabled"):
            return
        if what.name == "set_grad_enabled":
            note = "on" if args and args[0] else "off"
            site = self._definition_or(site)
        elif what.name == "grad.__get__":
            note = "none" if result is None else ""
        elif what.name == "grad.__set__":
            note = "none" if len(tensors) == 1 else ""
        elif what.name == "batch_norm" or what.name == "instance_norm":
            writes += self._running_statistics(args, kwargs)
        elif what.name == "register_hook":
            note = getattr(args[1] if len(args) > 1 else None, "__qualname__", "")
        log = recorder.log
        index = log.add(
            what.number,
            site,
            [one[5] for one in reads],
            [one[5] for one in results],
            [one[5] for one in writes],
            GRAD_ON if _grad_enabled() else _mode(),
            self.span,
            inner,
            self.thread,
            log.number(note) if note else _NO_NOTE,
        )
        if writes and recorder.contents.watched:
            recorder.contents.wrote(writes)
        if what.exits:
            recorder.contents.exported(what.name, index, tensors, result)
        elif what.name in functions.ENTRIES and args:
            recorder.contents.entered(
                index, args[-1] if what.name == "new_tensor" else args[0], result
            )

    def _changed(self, name: str, tensors: list[torch.Tensor], args: tuple[Any, ...]) -> str:
        """Look again at a tensor that may have another storage or place in the graph now."""
        for tensor in tensors[:1]:
            self.who.refresh(tensor)
        if name in ("requires_grad_", "requires_grad.__set__"):
            return "off" if len(args) > 1 and not args[1] else "on"
        return ""

    def _running_statistics(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Snapshot, ...]:
        """Batch norm writes its running statistics without moving their version."""
        if not (
            kwargs.get("training", kwargs.get("use_input_stats")) or (len(args) > 5 and args[5])
        ):
            return ()
        candidates = [*args[1:3], kwargs.get("running_mean"), kwargs.get("running_var")]
        return tuple(self.who.snapshot(one) for one in candidates if isinstance(one, torch.Tensor))

    def _definition_or(self, site: int) -> int:
        """Site of a grad-mode switch: a decorator's own line, where one made the switch."""
        frame: types.FrameType | None = _getframe(1)
        for _ in range(12):
            if frame is None:
                break
            if frame.f_code.co_name in ("decorate_context", "generator_context"):
                local = frame.f_locals
                function = local.get("func")
                code = getattr(function, "__code__", None)
                if hasattr(local, "clear"):
                    local.clear()  # the snapshot of a frame's variables would keep them alive
                return self.recorder.places.add_definition(code) if code is not None else site
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
        recorder = self.recorder
        recorder.add(name, (site, inner), reads, (), (), self, "raised")
        recorder.error(error, site)

    # -- what the patches tell ---------------------------------------------------------------

    def note(
        self,
        operation: str,
        place: tuple[int, int],
        reads: Iterable[torch.Tensor] = (),
        results: Iterable[torch.Tensor] = (),
        writes: Iterable[torch.Tensor] = (),
        note: str = "",
        *,
        snapshots: tuple[Snapshot, ...] | None = None,
    ) -> int:
        """Append an event that no mode hears; `snapshots` are reads taken before the call."""
        who = self.who
        return self.recorder.add(
            operation,
            place,
            tuple(who.snapshot(one) for one in reads) if snapshots is None else snapshots,
            tuple(who.snapshot(one) for one in results),
            tuple(who.refresh(one) for one in writes),
            self,
            note,
        )

    def tensors_in(self, *values: Any) -> list[torch.Tensor]:
        """Return the tensors among and inside `values`."""
        found: list[torch.Tensor] = []
        for value in values:
            self._collect(value, found, 0)
        return found
