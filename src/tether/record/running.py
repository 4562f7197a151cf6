"""Running a program under the recorder exactly as Python would have run it.

The program gets its own ``__main__``, ``sys.argv``, ``sys.path[0]``, standard streams and exit
code. Whatever ends it (its last line, ``sys.exit``, an exception, Ctrl-C, SIGTERM, ``os._exit``),
the recording ends too, and `finish` is called once with the facts.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.machinery
import importlib.util
import io
import multiprocessing
import os
import pkgutil
import random
import runpy
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from tether.facts import Trace
from tether.record.ending import Terminated, ended_with, strip
from tether.record.processes.children import heard
from tether.record.session import Session
from tether.record.sites import launched_by

Kind = Literal["script", "module", "code"]


class CannotRunError(Exception):
    """The program cannot be started; the message is one line that says why and what to do."""


@dataclass(frozen=True)
class Program:
    """What to run: a script's path, a module's name or a string of code, and its arguments."""

    kind: Kind
    target: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def of(cls, module: str | None, code: str | None, arguments: tuple[str, ...]) -> Program:
        """Return the program that Python's own options ask for. Raises `CannotRunError`."""
        if module is not None and code is not None:
            raise CannotRunError("-m and -c exclude each other")
        if module is not None:
            return cls("module", module, arguments)
        if code is not None:
            return cls("code", code, arguments)
        if not arguments:
            raise CannotRunError("nothing to run: give a script, -m MODULE or -c CODE (see --help)")
        return cls("script", arguments[0], arguments[1:])

    @property
    def command(self) -> list[str]:
        """The program as its user would type it after ``python``."""
        first = {"script": [], "module": ["-m"], "code": ["-c"]}[self.kind]
        return [*first, self.target, *self.arguments]


@dataclass
class Ending:
    """How a program ended."""

    trace: Trace
    exit_code: int
    error: BaseException | None = None
    interrupted: bool = False


_SEARCH = ("path", "meta_path", "path_hooks")
_process, _write = os.getpid, os.write  # as they are now


class _Surroundings:
    """What Python had loaded, and how it finds more, before the program could change it."""

    def __init__(self) -> None:
        self._modules = dict(sys.modules)
        self._builtins = dict(vars(builtins))
        self._lists = {name: list(getattr(sys, name)) for name in _SEARCH}

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Have it all once more for the length of a block, beside what the program has loaded.

        What comes after (handlers at exit, destructors) is the program's, and finds its own.
        """
        modules, builtin = dict(sys.modules), dict(vars(builtins))
        lists = {name: list(getattr(sys, name)) for name in _SEARCH}
        sys.modules.update({name: self._modules[name] for name in self._modules.keys() - modules})
        vars(builtins).update(self._builtins)
        for name, value in self._lists.items():
            getattr(sys, name)[:] = [*value, *(one for one in lists[name] if one not in value)]
        try:
            yield
        finally:
            for name in self._modules.keys() - modules:
                sys.modules.pop(name, None)
            vars(builtins).update(builtin)
            for name, value in lists.items():
                getattr(sys, name)[:] = value


@dataclass
class _Run:
    """One run: the session, and the guarantee that it is finished exactly once."""

    program: Program
    session: Session
    finish: Callable[[Ending], int]
    main: types.ModuleType = field(default_factory=lambda: types.ModuleType("__main__"))
    folder: str = ""
    process: int = field(default_factory=os.getpid)
    before: _Surroundings = field(default_factory=_Surroundings)
    done: bool = False

    def end(self, exit_code: int, error: BaseException | None = None) -> int:
        """End the recording, hand it over, and return the exit code.

        Nothing that the program did to its process keeps its exit code from being its own.
        """
        if self.done or _process() != self.process:
            return exit_code  # a forked child leaves the report to its parent
        self.done = True
        try:
            with self.before.again():
                return self._end(exit_code, error)
        except KeyboardInterrupt:
            self.session.mute()
            saved = self.session.saved_at
            rest = f"`tether report {saved}` makes it" if saved else "nothing was saved (-o FILE)"
            _tell(f"tether: interrupted: the report was not finished; {rest}")
            return 130
        except Exception as failure:
            self.session.mute()
            if self.session.recorder.tape.strict:
                raise
            _tell(f"tether: there is no report: {type(failure).__name__}: {failure}")
            return exit_code

    def _end(self, exit_code: int, error: BaseException | None) -> int:
        with _random_numbers_kept():
            return self._reported(exit_code, error)

    def _reported(self, exit_code: int, error: BaseException | None) -> int:
        trace = self.session.stop(self.main.__dict__, error)
        trace.program = self.program.command
        trace.folder = self.folder
        if self.session.children is not None:
            heard(trace, self.session.children, self.session.recorder.tape.started)
        if error is not None:
            ended_with(trace, self.session.recorder.tape, error)
        interrupted = trace.outcome == "interrupted"
        return self.finish(Ending(trace, exit_code, error, interrupted))


def _tell(line: str) -> None:
    """Write a line to the error stream, whatever the program made of its own."""
    with contextlib.suppress(OSError):
        _write(2, (line + "\n").encode("utf-8", "backslashreplace"))


def run(
    program: Program,
    session: Session,
    finish: Callable[[Ending], int],
    journal: str | None = None,
) -> int:
    """Run `program` under `session`, call `finish` when it has ended, return the exit code.

    At the path `journal` the recording is saved now and then while the program runs. Raises
    `CannotRunError` when there is no such program; then nothing was started.
    """
    one = _Run(program, session, finish)
    code, one.folder = _prepare(program, one.main)
    real_exit = os._exit

    def flushing_exit(status: int) -> None:
        try:
            one.end(status)
        finally:
            real_exit(status)

    previous = _on_terminate(one)
    os._exit = flushing_exit  # type: ignore[assignment]
    launcher = getattr(sys.modules["__main__"], "__file__", None)
    if launcher and one.main.__dict__.get("__file__") != launcher:
        launched_by(launcher)
    sys.modules["__main__"] = one.main
    exit_code, error = 0, None
    if journal is not None:
        session.save_as_it_grows(os.path.realpath(journal), program.command, one.folder)
    session.start()
    try:
        exec(code, one.main.__dict__)  # noqa: S102 -- this is what running a program means
        _wait_for_threads()
        if session.children is not None:
            _wait_for_children()
    except SystemExit as stop:
        exit_code = _exit_code(stop)
    except BaseException as raised:  # noqa: BLE001 -- whatever ends the program is reported
        error, exit_code = raised, 130 if isinstance(raised, KeyboardInterrupt) else 1
    finally:
        session.mute()
        os._exit = real_exit
    if error is not None:
        _show(error)
    exit_code = one.end(exit_code, error)
    if previous is not None:
        signal.signal(signal.SIGTERM, previous)
    if isinstance(error, KeyboardInterrupt):
        _die_of(signal.SIGINT)
    return exit_code  # __main__ stays the program's: its atexit handlers and destructors use it


# -- before ----------------------------------------------------------------------------------------


def _prepare(program: Program, main: types.ModuleType) -> tuple[types.CodeType, str]:
    """Set up ``__main__`` and ``sys`` as Python does; return the code and the program's folder."""
    variables = main.__dict__
    variables["__builtins__"] = __builtins__
    variables["__annotations__"] = {}
    if program.kind == "code":
        code = _compile(program.target, "<string>")
        sys.argv = ["-c", *program.arguments]
        _first_on_path("")
        return code, os.getcwd()
    if program.kind == "module":
        return _prepare_module(program, variables)
    return _prepare_script(program, variables)


def _prepare_script(program: Program, variables: dict[str, Any]) -> tuple[types.CodeType, str]:
    path = program.target
    absolute = os.path.abspath(path)
    if not os.path.exists(path):
        raise CannotRunError(f"there is no file {path!r}: give the path of a Python script")
    if os.path.isdir(path) or pkgutil.get_importer(path) is not None:  # a folder or a zip file
        sys.argv = [path, *program.arguments]
        _first_on_path(path)
        spec = _main_spec(path)
        variables.update(
            __file__=spec.origin, __spec__=spec, __loader__=spec.loader, __package__=""
        )
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
        return code, absolute if os.path.isdir(path) else os.path.dirname(absolute)
    try:
        with io.open_code(absolute) as file:
            source = file.read()
    except OSError as error:
        raise CannotRunError(f"cannot read {path!r}: {error.strerror}") from None
    code = _compile(source, absolute)
    loader = importlib.machinery.SourceFileLoader("__main__", absolute)
    variables.update(
        __file__=absolute, __cached__=None, __spec__=None, __loader__=loader, __package__=None
    )
    sys.argv = [path, *program.arguments]
    folder = os.path.dirname(os.path.realpath(absolute))
    _first_on_path(folder)
    return code, os.path.dirname(absolute)


def _main_spec(path: str) -> importlib.machinery.ModuleSpec:
    spec = importlib.machinery.PathFinder.find_spec("__main__", [path])
    if spec is None or spec.loader is None or not hasattr(spec.loader, "get_code"):
        raise CannotRunError(f"{path!r} holds no __main__.py: give the path of a script inside it")
    return spec


def _prepare_module(program: Program, variables: dict[str, Any]) -> tuple[types.CodeType, str]:
    _first_on_path(os.getcwd())
    try:
        # runpy's own search: it says in words why a module cannot be run.
        name, spec, code = runpy._get_module_details(program.target)  # type: ignore[attr-defined]
    except ImportError as error:
        raise CannotRunError(f"cannot run module {program.target!r}: {error}") from None
    except SyntaxError as error:
        _show(error)
        raise CannotRunError(f"module {program.target!r} is not valid Python") from None
    del name
    variables.update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __spec__=spec,
        __loader__=spec.loader,
        __package__=spec.parent,
    )
    sys.argv = [spec.origin or program.target, *program.arguments]
    return code, os.getcwd()


def _compile(source: str | bytes, file: str) -> types.CodeType:
    try:
        return compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        if isinstance(error, SyntaxError):
            _show(error.with_traceback(None))
        raise CannotRunError(f"{file} is not valid Python: {error}") from None


def _first_on_path(folder: str) -> None:
    """Make `folder` the first entry of `sys.path`, where Python had put tether's own."""
    if getattr(sys.flags, "safe_path", False):
        return
    if sys.path:
        sys.path[0] = folder
    else:
        sys.path.append(folder)


# -- after -----------------------------------------------------------------------------------------


def _wait_for_threads() -> None:
    """Wait for the program's own threads, as Python does before it exits.

    First come the hooks by which an executor that was not shut down tells its workers to end;
    each runs once, here and not again when Python exits.
    """
    hooks: list[Callable[[], None]] = getattr(threading, "_threading_atexits", [])
    while hooks and _others():
        hook = hooks.pop()
        try:
            hook()
        except Exception:  # noqa: BLE001 -- Python too shows what a hook raises and goes on
            sys.excepthook(*sys.exc_info())
    for thread in _others():
        thread.join()


def _wait_for_children() -> None:
    """Wait for the processes that Python itself would wait for when it exits."""
    for process in multiprocessing.active_children():
        if not process.daemon:
            process.join()


def _others() -> list[threading.Thread]:
    me = threading.current_thread()
    return [one for one in threading.enumerate() if not one.daemon and one is not me]


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF if stop.code >= 0 else stop.code % 256
    print(stop.code, file=sys.stderr)  # noqa: T201 -- as Python itself does
    return 1


def _show(error: BaseException) -> None:
    """Print a traceback as Python would have: the program's frames and none of ours."""
    strip(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:  # noqa: BLE001 -- a broken hook of the program's must not hide the report
        sys.__excepthook__(type(error), error, error.__traceback__)


def _on_terminate(one: _Run) -> Any:
    """Report before SIGTERM ends the process; return the handler that was there."""
    if threading.current_thread() is not threading.main_thread():
        return None
    previous = signal.getsignal(signal.SIGTERM)
    if previous is not signal.SIG_DFL:
        return None

    def terminate(_number: int, _frame: types.FrameType | None) -> None:
        if os.getpid() == one.process:
            one.session.mute()
            one.end(143, Terminated())
        _die_of(signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminate)
    return previous


def _die_of(number: signal.Signals) -> None:
    """End as Python without tether would have: killed by the signal."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S112 -- it may be closed or replaced
            continue
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextlib.contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """Leave the generators that a program shares as they are: what it runs as it exits may draw."""
    states: list[tuple[Callable[[Any], object], Any]] = [(random.setstate, random.getstate())]
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        states.append((numbers.set_state, numbers.get_state()))
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    own = (torch.default_generator, *(torch.cuda.default_generators if used else ()))
    states += [(one.set_state, one.get_state()) for one in own]  # which no recorder hears
    try:
        yield
    finally:
        for put_back, state in states:
            put_back(state)
