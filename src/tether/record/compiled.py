"""`torch.compile` runs as it would have: the recorder steps aside while dynamo is in charge.

Dynamo traces a function mode like any other code: a mode on the stack means graph breaks, more
graphs and recompilations, and a replaced function fails its guards. So where a compiled region
begins, the thread's listener leaves the stack and every replacement is taken back; where it ends,
all return. Where its graphs were not read, or a run of them is not told call by call, the region
is one event named ``compiled``, from its tensor arguments (and its module's parameters) to its
results.

Dynamo says where a region begins and ends by the frame callback it sets, through
``torch._dynamo.eval_frame._maybe_set_eval_frame``. What happens inside is told from the graphs that
dynamo makes (`record.compiled_graph`); the one event is for what those do not cover. Importing
dynamo takes seconds, so a finder waits for the program to do it, and steps aside during the import
too: dynamo notes many functions by identity.
"""

from __future__ import annotations

import functools
import importlib.abc
import sys
import threading
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

import torch
import torch._guards

from tether.record.compiled_graph import RegionGraphs
from tether.record.mode_stack import listener_here, muted, off_the_stack

if TYPE_CHECKING:
    from tether.record.listener import Functions, Listener
    from tether.record.tape import Tape

_DYNAMO = "torch._dynamo"


class _Region:
    """A compiled region that is running in this thread."""

    def __init__(
        self, listener: Listener, frame: types.FrameType, aside: AbstractContextManager[None]
    ) -> None:
        tape = listener.tape
        self.listener = listener
        with muted(listener):
            self.place = tape.places.user_place(frame)
            variables = _variables(frame, "args", "kwargs", "fn")
            owner = getattr(variables.get("fn"), "__self__", None)
            held = owner.parameters() if isinstance(owner, torch.nn.Module) else ()
            tensors = listener.tensors_in(variables.get("args"), variables.get("kwargs"), *held)
            self.name = getattr(variables.get("fn"), "__qualname__", "")
            self.tensors = tensors
            self.reads = tuple(tape.who.snapshot(one) for one in tensors)
            self.span = tape.open_span("compiled", self.name, self.place[0], listener.span)
        # What sets another callback in between (a function that dynamo is kept out of) is within.
        self.frame = id(frame)
        self.told: set[int] = set()
        self.made: Sequence[Any] = ()
        self.known = False
        self.outer, listener.span = listener.span, self.span
        self.off = off_the_stack(listener)
        self.off.__enter__()
        self.aside = aside
        aside.__enter__()

    def end(self, frame: types.FrameType) -> None:
        """Hear again, and append the event."""
        listener, tape = self.listener, self.listener.tape
        listener.span = self.outer
        self.aside.__exit__(None, None, None)
        if not tape.active:
            return
        self.off.__exit__()
        with muted(listener):
            # In PyTorch 2.11 no variable holds the result: it is what the last graph gave.
            made = _variables(frame, "result").get("result", self.made)
            results = listener.tensors_in(made)
            written = [
                one
                for one, before in zip(self.tensors, self.reads, strict=True)
                if tape.who.has_moved(one, before)
            ]
            numbers = tape.who.known(results)
            if numbers and self.told.issuperset(numbers):
                tape.close_span(self.span)  # all of it is there, call by call
                return
            if not self.known:
                tape.gap("compiled", "", self.place[0])
            event = listener.note(
                "compiled", self.place, results=results, writes=written, detail=self.name,
                snapshots=self.reads,
            )  # fmt: skip
            tape.close_span(self.span, event)


class Compiled:
    """Watches for compiled regions; `suspended` takes all other replacements back for a while."""

    def __init__(
        self,
        tape: Tape,
        suspended: Callable[[], AbstractContextManager[None]],
        functions: Functions,
        *,
        eager: bool,
    ) -> None:
        self._tape = tape
        self._graphs = RegionGraphs(tape, functions, self._running)
        self._suspended = suspended
        self._eager = eager
        self._threads = threading.local()
        self._finder = _Finder(self)
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        """Watch dynamo, now if it is imported, else when it is."""
        if _DYNAMO in sys.modules and hasattr(sys.modules[_DYNAMO], "eval_frame"):
            self.imported()
        else:
            sys.meta_path.insert(0, self._finder)

    def restore(self) -> None:
        """Watch no longer."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        while self._undo:
            self._undo.pop()()

    def importing(self) -> AbstractContextManager[None]:
        """Step aside while dynamo is being imported."""
        return self._suspended() if self._tape.active else nullcontext()

    def imported(self) -> None:
        """Replace the function by which dynamo sets its callback."""
        module = sys.modules[_DYNAMO].eval_frame
        original = module._maybe_set_eval_frame
        if self._eager:
            stance = module._stance
            if stance.stance == "default":
                before = stance.stance
                torch.compiler.set_stance("force_eager")
                self._undo.append(lambda: torch.compiler.set_stance(before))
            return
        module._maybe_set_eval_frame = self._watching(original)
        self._read_graphs()

        def undo() -> None:
            module._maybe_set_eval_frame = original

        self._undo.append(undo)

    def _read_graphs(self) -> None:
        """Replace the method by which dynamo hands a graph to a backend."""
        maker = getattr(sys.modules.get(f"{_DYNAMO}.output_graph"), "OutputGraph", None)
        original = getattr(maker, "call_user_compiler", None)
        if maker is None or original is None:
            self._tape.gap("pytorch", "OutputGraph.call_user_compiler")
            return
        maker.call_user_compiler = self._graphs.watching(original)
        self._undo.append(lambda: setattr(maker, "call_user_compiler", original))

    def _running(self) -> _Region | None:
        """Return the compiled region that runs in this thread."""
        return getattr(self._threads, "running", None)

    def _watching(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        tape, threads = self._tape, self._threads
        compiling = torch._guards.CompileContext.try_get

        @functools.wraps(original)
        def _maybe_set_eval_frame(callback: Any) -> Any:
            running = getattr(threads, "running", None)
            if (callback is None and running is None) or compiling() is not None:
                return original(callback)
            try:
                if callback is not None and running is None:
                    listener = listener_here(tape)
                    if listener is not None:
                        threads.running = _Region(listener, sys._getframe(1), self._suspended())
                elif running is not None and running.frame == id(sys._getframe(1)):
                    threads.running = None
                    running.end(sys._getframe(1))
            except Exception as error:  # noqa: BLE001
                tape.failed("compiled region", error)
            return original(callback)

        return _maybe_set_eval_frame


class _Finder(importlib.abc.MetaPathFinder):
    """Sees dynamo's import begin and end; finds nothing itself."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled

    def find_spec(
        self, fullname: str, path: Any, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the others find dynamo, and stand around its execution."""
        if fullname != _DYNAMO:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._stand_around(spec.loader)
                return spec
        return None

    def _stand_around(self, loader: Any) -> None:
        execute, compiled = loader.exec_module, self._compiled

        def exec_module(module: types.ModuleType) -> None:
            del loader.exec_module  # the loader is its old self again
            with compiled.importing():
                execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                compiled.imported()

        loader.exec_module = exec_module


def _variables(frame: types.FrameType, *names: str) -> dict[str, Any]:
    """Read local variables without leaving a copy of them in the frame."""
    local = frame.f_locals
    found = {name: local[name] for name in names if name in local}
    if isinstance(local, dict) and frame.f_code.co_flags & 1:  # CO_OPTIMIZED
        local.clear()
    return found
