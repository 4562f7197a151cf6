"""What no function mode hears: PyTorch's own entry points, replaced while recording.

Each replacement calls the original and tells the listener of its thread what happened. All of
them are put back when the recording ends, whatever ended it.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.optim.optimizer as optimizer_module
import torch.utils.dlpack
from torch.optim import Optimizer

from tether.facts import UNKNOWN, OptimizerFact
from tether.record import warning_levels
from tether.record.compiled import Compiled
from tether.record.gradients import gradient_of
from tether.record.identity import version_of
from tether.record.mode_stack import listener_here, muted, off_the_stack, push, remove
from tether.record.sites import here

if TYPE_CHECKING:
    from tether.record.recorder import Listener, Recorder


class Patches:
    """The replacements of one recording; `install` and `restore` are each called once."""

    def __init__(
        self, recorder: Recorder, listen: Callable[[], Listener], *, eager: bool = False
    ) -> None:
        self._recorder = recorder
        self._listen = listen  # makes the listener of the current thread
        self._undo: list[Callable[[], None]] = []
        self._redo: list[Callable[[], None]] = []
        self._asides = 0  # compiled regions that run now, in all threads
        self._lock = threading.RLock()
        self._compiled = Compiled(recorder, self.suspended, eager=eager)
        self._handles: list[Any] = []  # of the hooks around optimizer steps
        self.on_step: Callable[[], None] = lambda: None  # after each step, recorded or not
        self._optimizers: dict[int, int] = {}  # id of an optimizer -> its index in the facts
        self._versions: dict[int, dict[int, int]] = {}  # open step -> id of tensor -> its version

    def hook(self) -> None:
        """Hear of optimizer steps; costs next to nothing while nothing is recorded."""
        if not self._handles and not _stepping():
            before = optimizer_module.register_optimizer_step_pre_hook(self._before_step)
            after = optimizer_module.register_optimizer_step_post_hook(self._after_step)
            self._handles += [before, after]

    def unhook(self) -> None:
        """Hear of steps no more; hooks that are being run stay, PyTorch is iterating over them."""
        if not _stepping():
            while self._handles:
                self._handles.pop().remove()

    def install(self) -> None:
        """Put every replacement in place."""
        self._constructors()
        self._autograd()
        self._grad_modes()
        self._optimizer()
        self._threads()
        self._questions()
        self._tracers()
        self._levels()
        self._compiled.install()

    def restore(self) -> None:
        """Put every original back."""
        self._compiled.restore()
        with self._lock:
            self._redo.clear()
            while self._undo:
                self._undo.pop()()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Put every original back for the length of a block, for all threads."""
        with self._lock:
            self._asides += 1
            if self._asides == 1:
                self.unhook()
                for undo in reversed(self._undo):
                    undo()
        try:
            yield
        finally:
            with self._lock:
                self._asides -= 1
                if self._asides == 0 and self._redo:
                    self.hook()
                    for redo in self._redo:
                        redo()

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``owner.name`` by what `make` makes of the original."""
        own = owner.__dict__ if isinstance(owner, type) else vars(owner)
        inherited = name not in own
        original = getattr(owner, name) if inherited else own[name]
        made = make(original)
        setattr(owner, name, made)
        self._redo.append(lambda: setattr(owner, name, made))
        if inherited:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, original))

    # -- tensors that come from elsewhere --------------------------------------------------------

    def _constructors(self) -> None:
        self._replace(torch, "from_numpy", lambda f: self._maker(f, "from_numpy"))
        self._replace(torch, "frombuffer", lambda f: self._maker(f, "frombuffer"))
        dlpack = self._maker(torch.utils.dlpack.from_dlpack, "from_dlpack")
        self._replace(torch, "from_dlpack", lambda _: dlpack)
        self._replace(torch.utils.dlpack, "from_dlpack", lambda _: dlpack)
        self._replace(torch.Tensor, "set_", self._set_)
        self._replace(torch.nn.Parameter, "__new__", self._new_parameter)
        self._replace(torch, "save", self._save)
        for owner in (torch.cuda, torch.cuda.Event, torch.cuda.Stream):
            self._replace(owner, "synchronize", self._synchronize)
        for name in ("fill_", "copy_"):
            self._replace(torch.UntypedStorage, name, self._storage_write)

    def _maker(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        recorder = self._recorder

        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            listener = listener_here(recorder)
            if listener is None:
                return original(*args, **kwargs)
            result = original(*args, **kwargs)
            with muted(listener):
                place = recorder.places.user_place(here(2))
                data = args[0] if args else kwargs.get("ext_tensor", kwargs.get("buffer"))
                sources = [data] if isinstance(data, torch.Tensor) else []
                index = listener.note(name, place, sources, [result])
                recorder.contents.entered(index, data, result)
                if name == "from_dlpack" and sources:
                    _join(recorder, sources[0], result)
            return result

        return make

    def _save(self, original: Any) -> Any:
        recorder = self._recorder

        @functools.wraps(original)
        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            listener = listener_here(recorder)
            if listener is not None:
                with muted(listener):
                    place = recorder.places.user_place(here(2))
                    listener.note("save", place, listener.tensors_in(obj))
            return original(obj, *args, **kwargs)

        return save

    def _synchronize(self, original: Any) -> Any:
        recorder = self._recorder

        @functools.wraps(original)
        def synchronize(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            listener = listener_here(recorder)
            if listener is not None:
                with muted(listener):
                    listener.note("synchronize", recorder.places.user_place(here(2)))
            return result

        return synchronize

    def _storage_write(self, original: Any) -> Any:
        recorder = self._recorder

        @functools.wraps(original)
        def write(storage: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(storage, *args, **kwargs)
            listener = listener_here(recorder)
            if listener is not None:
                with muted(listener):
                    place = recorder.places.user_place(here(2))
                    recorder.contents.written(storage, place[0])
            return result

        return write

    def _set_(self, original: Any) -> Any:
        recorder = self._recorder

        @functools.wraps(original)
        def set_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            listener = listener_here(recorder)
            if listener is None:
                return original(tensor, *args, **kwargs)
            before: tuple[Any, ...] = ()
            with muted(listener):
                before = tuple(
                    recorder.who.snapshot(one) for one in listener.tensors_in(tensor, *args)
                )
            result = original(tensor, *args, **kwargs)
            with muted(listener):
                recorder.who.refresh(tensor)
                place = recorder.places.user_place(here(2))
                listener.note("set_", place, results=[tensor], snapshots=before)
            return result

        return set_

    def _new_parameter(self, original: Any) -> Any:
        recorder = self._recorder
        plain = original.__func__

        @functools.wraps(plain)
        def __new__(  # noqa: N807 -- what it replaces is called so
            cls: type, data: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            result = plain(cls, data, *args, **kwargs)
            listener = listener_here(recorder)
            if listener is not None:
                with muted(listener):
                    place = recorder.places.user_place(here(2))
                    sources = [data] if isinstance(data, torch.Tensor) else []
                    listener.note("Parameter", place, sources, [result])
            return result

        return staticmethod(__new__)

    # -- the engine, custom functions, hooks -----------------------------------------------------

    def _autograd(self) -> None:
        self._replace(torch.autograd, "_engine_run_backward", self._run_backward)
        self._replace(torch.autograd.Function, "apply", self._apply)

    def _run_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self._recorder

        @functools.wraps(original)
        def _engine_run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not recorder.active:
                return original(t_outputs, *args, **kwargs)
            listener = listener_here(recorder)
            silent = listener is None  # inside a function written in Python: the mode is off
            if listener is None:
                listener = self._listen()
            accumulates = kwargs.get("accumulate_grad", True)
            name = "backward" if accumulates else "autograd.grad"
            place, span = _NOWHERE, UNKNOWN
            losses: list[torch.Tensor] = []
            asked: list[torch.Tensor] = []
            reads: tuple[Any, ...] = ()
            with muted(listener):
                place = recorder.places.user_place(here(2))
                wanted = () if accumulates else (args[3] if len(args) > 3 else ())
                losses = [one for one in t_outputs if isinstance(one, torch.Tensor)]
                asked = [one for one in wanted or () if isinstance(one, torch.Tensor)]
                reads = tuple(recorder.who.snapshot(one) for one in (*losses, *asked))
                if recorder.contents.watched:
                    recorder.contents.compare_all(place[0])
                if recorder.holdings is not None:
                    recorder.holdings.before_backward()
                span = recorder.open_span("backward", name, place[0], listener.span)
            outer, listener.span = listener.span, span
            if silent:
                push(listener)
            # backward(create_graph=True) leaves gradients that hold the graph they came from.
            creates = len(args) > 2 and bool(args[2])
            note, results = "create_graph" if creates else "", []
            recorder.gradients.trains()
            try:
                value = original(t_outputs, *args, **kwargs)
                results = [one for one in value or () if isinstance(one, torch.Tensor)]
            except BaseException as error:
                note = "raised"
                recorder.error(error, place[0])
                raise
            finally:
                if silent:
                    remove(listener)
                listener.span = outer
                with muted(listener):
                    extra = note
                    if asked and note != "raised":
                        extra = f"of {len(losses)}" + (f", {note}" if note else "")
                    if recorder.holdings is not None:
                        recorder.holdings.backward_ended(place[0])
                    index = listener.note(name, place, results=results, note=extra, snapshots=reads)
                    recorder.close_span(span, index)
                    recorder.contents.wrote_any()
                    recorder.naming.maybe_search(here(2))
                    if accumulates:
                        recorder.gradients.after_backward(place[0])
                    recorder.beat()
            if asked and len(value) == len(asked):
                with muted(listener):
                    recorder.gradients.after_grad(place[0], asked, value)
            return value

        return _engine_run_backward

    def _apply(self, original: Any) -> Any:
        recorder = self._recorder
        plain = original.__func__

        def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
            listener = listener_here(recorder)
            if listener is None:
                return plain(cls, *args, **kwargs)
            place, span = _NOWHERE, UNKNOWN
            tensors: list[torch.Tensor] = []
            reads: tuple[Any, ...] = ()
            with muted(listener):
                place = recorder.places.user_place(here(2))
                tensors = listener.tensors_in(*args, *kwargs.values())
                reads = tuple(recorder.who.snapshot(one) for one in tensors)
                span = recorder.open_span("function", cls.__name__, place[0], listener.span)
            outer, listener.span = listener.span, span
            try:
                value = plain(cls, *args, **kwargs)
            except BaseException as error:
                recorder.error(error, place[0])
                raise
            finally:
                listener.span = outer
                recorder.close_span(span)
            with muted(listener):
                results = listener.tensors_in(value)
                for one in results:
                    recorder.who.refresh(one)  # its grad_fn came after the forward
                written = [
                    one
                    for one, before in zip(tensors, reads, strict=True)
                    if before[2] >= 0 and one._version != before[2]
                ]
                index = listener.note(
                    "apply", place, results=results, writes=written, note=cls.__name__,
                    snapshots=reads,
                )  # fmt: skip
                recorder.close_span(span, index)
            return value

        return classmethod(functools.update_wrapper(apply, plain))

    # -- modes -----------------------------------------------------------------------------------

    def _grad_modes(self) -> None:
        mode = torch.autograd.grad_mode.inference_mode
        self._replace(mode, "__enter__", lambda f: self._switch(f, entering=True))
        self._replace(mode, "__exit__", lambda f: self._switch(f, entering=False))

    def _switch(self, original: Any, *, entering: bool) -> Any:
        recorder = self._recorder

        @functools.wraps(original)
        def switch(mode: Any, *args: Any) -> Any:
            result = original(mode, *args)
            listener = listener_here(recorder)
            if listener is not None:
                with muted(listener):
                    place = recorder.places.user_place(here(2))
                    site = listener._definition_or(place[0]) if entering else place[0]
                    state = (
                        "inference"
                        if torch.is_inference_mode_enabled()
                        else ("on" if torch.is_grad_enabled() else "off")
                    )
                    listener.note("set_grad_enabled", (site, place[1]), note=state)
            return result

        return switch

    # -- optimizers ------------------------------------------------------------------------------

    def _optimizer(self) -> None:
        self._replace(Optimizer, "__init__", self._optimizer_init)
        self._replace(Optimizer, "zero_grad", self._zero_grad)
        self._replace(torch.nn.Module, "zero_grad", self._zero_grad)
        for owner, name in _optimizer_internals():
            self._replace(owner, name, self._unheard)

    def _tracers(self) -> None:
        """Leave TorchScript's tracer alone: whatever asks a tensor its shape ends in its graph."""
        module = torch.jit._trace
        for name in ("_trace_impl", "_get_trace_graph", "trace_module"):
            if hasattr(module, name):
                self._replace(module, name, lambda f: self._unheard(f, _TRACED))
        self._replace(torch.jit, "trace_module", lambda f: self._unheard(f, _TRACED))

    def _levels(self) -> None:
        """Let warnings that count frames upwards name the line that they would have named."""
        apply = warning_levels.replace()
        if apply is not None:
            self._undo.append(apply())

            def again() -> None:
                apply()

            self._redo.append(again)

    def _unheard(self, original: Any, gap: str = "") -> Any:
        """Run a function without the mode; an optimizer's thousands of calls are one event."""
        recorder = self._recorder

        @functools.wraps(original)
        def unheard(*args: Any, **kwargs: Any) -> Any:
            listener = listener_here(recorder)
            if listener is None:
                return original(*args, **kwargs)
            if gap:
                with muted(listener):
                    recorder.gap(gap, recorder.places.user_place(here(2))[0])
            with off_the_stack(listener):
                return original(*args, **kwargs)

        return unheard

    def _optimizer_init(self, original: Any) -> Any:
        @functools.wraps(original)
        def __init__(  # noqa: N807 -- what it replaces is called so
            optimizer: Optimizer, *args: Any, **kwargs: Any
        ) -> None:
            original(optimizer, *args, **kwargs)
            listener = listener_here(self._recorder)
            if listener is not None:
                with muted(listener):
                    self._know_optimizer(optimizer, self._recorder.places.user_place(here(2))[0])
                    self._recorder.naming.maybe_search(here(2))

        return __init__

    def _know_optimizer(self, optimizer: Optimizer, site: int) -> int:
        """Index of an optimizer among the facts; a changed set of tensors is a new fact."""
        recorder = self._recorder
        tensors = tuple(
            recorder.gradients.hold(one)
            for group in optimizer.param_groups
            for one in group["params"]
        )
        index = self._optimizers.get(id(optimizer))
        if index is not None and recorder.optimizers[index].tensors == tensors:
            return index
        kind = type(optimizer).__name__
        fact = OptimizerFact(kind, site, recorder.now(), tensors)
        if index is not None and recorder.optimizers[index].kind == kind:
            fact = fact._replace(site=recorder.optimizers[index].site)
        recorder.optimizers.append(fact)
        self._optimizers[id(optimizer)] = len(recorder.optimizers) - 1
        return len(recorder.optimizers) - 1

    def _before_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        try:
            self._stepping_begins(optimizer)
        except Exception as error:  # noqa: BLE001
            self._recorder.failed("optimizer step", error)

    def _stepping_begins(self, optimizer: Optimizer) -> None:
        recorder = self._recorder
        listener = listener_here(recorder)
        if listener is None:
            return
        with muted(listener):
            place = recorder.places.user_place(here(3))
            self._close_stale_step(listener)
            index = self._know_optimizer(optimizer, place[0])
            tensors = [one for group in optimizer.param_groups for one in group["params"]]
            recorder.gradients.at_step(place[0], index, tensors)
            if recorder.contents.watched:
                recorder.contents.compare_all(place[0])
            recorder.naming.maybe_search(here(2))
            kind = type(optimizer).__name__
            listener.span = recorder.open_span("step", kind, place[0], listener.span)
            self._versions[listener.span] = {id(one): version_of(one) for one in tensors}

    def _after_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        try:
            self._stepped(optimizer)
        except Exception as error:  # noqa: BLE001
            self._recorder.failed("optimizer step", error)
        self._recorder.beat()
        self.on_step()

    def _stepped(self, optimizer: Optimizer) -> None:
        recorder = self._recorder
        listener = listener_here(recorder)
        if listener is None or listener.span == UNKNOWN:
            return
        with muted(listener):
            place = recorder.places.user_place(here(3))
            span = listener.span
            if recorder.spans[span][0] != "step":
                return
            listener.span = recorder.spans[span][5]
            before = self._versions.pop(span, {})
            written = []
            for group in optimizer.param_groups:
                for one in group["params"]:
                    # A closure may have looked since: the version before the step counts as well.
                    ref, now = recorder.who.find(one), version_of(one)
                    if ref is not None and {ref.snapshot[2], before.get(id(one), now)} != {now}:
                        written.append(one)
            kind = type(optimizer).__name__
            event = listener.note("step", place, writes=written, note=kind)
            recorder.close_span(span, event)
            recorder.contents.wrote_any()
            if recorder.holdings is not None:
                recorder.holdings.after_step(place[0], optimizer)

    def _close_stale_step(self, listener: Listener) -> None:
        """Close steps that raised: the hook that would have closed them never ran."""
        spans = self._recorder.spans
        running = 0
        frame: types.FrameType | None = here(2)
        while frame is not None:
            running += frame.f_code.co_name == "wrapper" and "profile_name" in (
                frame.f_code.co_varnames
            )
            frame = frame.f_back
        opened = []
        number = listener.span
        while number != UNKNOWN:
            if spans[number][0] == "step":
                opened.append(number)
            number = spans[number][5]
        for stale in opened[: max(0, len(opened) - (running - 1))]:
            self._recorder.close_span(stale)
            self._versions.pop(stale, None)
            if listener.span == stale:
                listener.span = spans[stale][5]

    def _zero_grad(self, original: Any) -> Any:
        recorder = self._recorder

        @functools.wraps(original)
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> Any:
            place, filled = _NOWHERE, list[torch.Tensor]()
            listener = listener_here(recorder)
            if listener is None:
                return original(owner, *args, **kwargs)
            with muted(listener):
                place = recorder.places.user_place(here(2))
                if isinstance(owner, Optimizer):
                    held = [one for group in owner.param_groups for one in group["params"]]
                else:
                    held = list(owner.parameters())
                filled = [one for one in held if one.is_leaf and gradient_of(one) is not None]
            with off_the_stack(listener):
                result = original(owner, *args, **kwargs)
            with muted(listener):
                cleared = bool(args[0]) if args else bool(kwargs.get("set_to_none", True))
                listener.note("zero_grad", place, filled, note="none" if cleared else "zero")
            return result

        return zero_grad

    # -- threads ---------------------------------------------------------------------------------

    def _threads(self) -> None:
        self._replace(threading.Thread, "_bootstrap_inner", self._bootstrap)

    def _bootstrap(self, original: Any) -> Any:
        recorder, listen = self._recorder, self._listen

        def _bootstrap_inner(thread: threading.Thread) -> Any:
            if not recorder.active:
                return original(thread)
            listener = listen()
            push(listener)
            try:
                return original(thread)
            finally:
                remove(listener)

        return _bootstrap_inner

    # -- who asks whether a mode is on -----------------------------------------------------------

    def _questions(self) -> None:
        """Let attention keep its fused kernels: the recorder is no reason to leave them."""
        recorder = self._recorder

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def has_torch_function(args: Any) -> bool:
                listener = listener_here(recorder)
                if listener is None or torch._C._len_torch_function_stack() != 1:
                    return bool(original(args))
                with off_the_stack(listener):
                    return bool(original(args))

            return has_torch_function

        self._replace(torch.overrides, "has_torch_function", make)
        # TorchScript knows the original by identity.
        known: dict[int, str] = torch.jit._builtins._get_builtin_table()  # type: ignore[no-untyped-call]
        replaced = id(torch.overrides.has_torch_function)
        known[replaced] = "aten::has_torch_function"
        self._undo.append(lambda: known.__delitem__(replaced))
        self._redo.append(lambda: known.__setitem__(replaced, "aten::has_torch_function"))


_NOWHERE = (UNKNOWN, UNKNOWN)
_TRACED = "torch.jit.trace runs unseen"


def _stepping() -> bool:
    """Whether PyTorch may be running the hooks around a step just now, in this thread."""
    frame = here(1)
    while frame is not None:
        if frame.f_code is _step_wrapper:
            return True
        frame = frame.f_back
    return False


_step_wrapper = next(
    one for one in Optimizer.profile_hook_step.__code__.co_consts if isinstance(one, types.CodeType)
)


def _optimizer_internals() -> Iterator[tuple[Any, str]]:
    """Where PyTorch's optimizers gather their tensors, and where they compute.

    Neither calls anything of the user's: closures and hooks run around them.
    """
    for name, module in list(sys.modules.items()):
        if not name.startswith("torch.optim."):
            continue
        for attribute, value in list(vars(module).items()):
            if getattr(value, "__module__", None) != name:
                continue
            if isinstance(value, types.FunctionType) and name.endswith("." + attribute):
                yield module, attribute  # torch.optim.adam.adam
            elif isinstance(value, type) and "_init_group" in vars(value):
                yield value, "_init_group"


@contextmanager
def patched(patches: Patches) -> Iterator[None]:
    """Install for the length of a ``with`` block."""
    patches.install()
    try:
        yield
    finally:
        patches.restore()


def _join(recorder: Recorder, source: torch.Tensor, result: torch.Tensor) -> None:
    """Give two storages that hold the same memory one number for it."""
    ours, theirs = recorder.who.storage_of(source), recorder.who.storage_of(result)
    if ours is None or theirs is None or ours is theirs:
        return
    if ours.memory == UNKNOWN:
        ours.memory = recorder.contents._memory()
    theirs.memory, theirs.start = ours.memory, ours.start
