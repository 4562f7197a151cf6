"""Processes that a recorded program starts, recorded as well: each into a file of its own.

A Python that is started anew (subprocess, spawn, a launcher's ranks) finds a ``sitecustomize`` at
the front of its path, as coverage tools and tracers do it: see `startup/sitecustomize.py`. Nothing
happens in it until it imports torch. A forked process goes on with a recording of its own. Each
leaves a note in a folder, the inbox, named by its process id; the process that was asked to record
reads them when it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tether.facts import Process, Trace
from tether.record.ending import ended_with, strip
from tether.record.session import Session
from tether.source.annotate import annotate
from tether.source.bridges import follow
from tether.store.file import save

VARIABLE = "TETHER_CHILDREN"
STARTUP = str(Path(__file__).with_name("startup"))
_OPTIONS = "options.json"

Which = Literal["all", "ranks"]
"""Which processes are recorded: all, or those that a launcher starts as ranks."""


class Note(NamedTuple):
    """What a process left in the inbox."""

    number: int  # its process id
    file: str = ""  # its recording; "" as long as it has not imported torch
    parent: int = 0
    kind: str = ""  # of the gap that its parent noted when it was forked; "" of one started anew


@dataclass(frozen=True)
class Children:
    """How the processes that a program starts are recorded, and where that is left."""

    inbox: str
    which: Which = "all"
    output: str = ""  # the name of a recording, with {rank} or {pid}; "": in the inbox
    limit: int | None = None
    eager: bool = False
    memory: bool = False
    sample: bool = False

    @classmethod
    @contextlib.contextmanager
    def asked(cls, which: Which, **options: Any) -> Iterator[Children]:
        """Make an inbox for the length of a block."""
        process = os.getpid()
        made = cls(tempfile.mkdtemp(prefix="tether-"), which, **options)
        try:
            Path(made.inbox, _OPTIONS).write_text(json.dumps(asdict(made)), "utf-8")
            yield made
        finally:
            if os.getpid() == process:  # and not a fork that leaves the block as well
                made.remove()

    def remove(self) -> None:
        """Remove the inbox with all that is in it."""
        shutil.rmtree(self.inbox, ignore_errors=True)

    @classmethod
    def told(cls, environment: str) -> Children:
        """Return what the process that started this one says. Raises `OSError`."""
        inbox = environment.partition(":")[2]
        return cls(**json.loads(Path(inbox, _OPTIONS).read_text("utf-8")))

    def environment(self, given: dict[str, str]) -> dict[str, str]:
        """Return an environment with what a Python started in it needs to know."""
        which = "none" if self.which == "ranks" and "RANK" in os.environ else self.which
        rest = given.get("PYTHONPATH", "")
        if rest.split(os.pathsep)[0] != STARTUP:
            rest = os.pathsep.join([STARTUP, rest] if rest else [STARTUP])
        return {**given, VARIABLE: f"{which}:{self.inbox}", "PYTHONPATH": rest}

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Have that environment for the length of a block that starts a process."""
        before = {name: os.environ.get(name) for name in (VARIABLE, "PYTHONPATH")}
        os.environ.update(self.environment(dict(os.environ)))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def leave(self, note: Note) -> None:
        """Put a note into the inbox, in the place of an older one."""
        path = Path(self.inbox, str(note.number))
        path.with_suffix(".new").write_text(json.dumps(note[1:]), "utf-8")
        path.with_suffix(".new").replace(path)

    def notes(self) -> list[Note]:
        """Return the notes of all processes that were heard, in the order of their numbers."""
        found = []
        for file in Path(self.inbox).glob("*"):
            if file.name.isdigit():
                text = file.read_text("utf-8")
                found.append(Note(int(file.name), *(json.loads(text) if text else ())))
        return sorted(found)

    def path(self, process: Process) -> str:
        """Return the file for the recording of a process."""
        inside = str(Path(self.inbox, f"{process.number}.tether"))
        return expanded(self.output, process, str(process.number)) if self.output else inside


def expanded(template: str, process: Process, otherwise: str) -> str:
    """Return the name of a file with rank and process id put in; `otherwise` is for no rank."""
    rank = str(process.rank) if process.rank >= 0 else otherwise
    return template.replace("{rank}", rank).replace("{pid}", str(process.number))


def heard(trace: Trace, children: Children, started: dict[int, tuple[Any, ...]]) -> None:
    """Take back the gaps for the processes that this one started and that were recorded.

    `started` has the gap that was noted for each process that was started anew.
    """
    for note in children.notes():
        key = started.get(note.number)
        if key is None and note.parent == os.getpid() and note.kind:
            key = ("child", note.kind, -1)
        for number, gap in enumerate(trace.gaps):
            if gap[:3] == key:
                trace.gaps[number] = gap._replace(times=gap.times - 1)
    trace.gaps = [gap for gap in trace.gaps if gap.times]


# -- in a child ------------------------------------------------------------------------------------


class _ChildRun:
    """The recording of a process that another recording one started."""

    def __init__(self, children: Children, kind: str = "") -> None:
        self._children, self._kind = children, kind
        self._number = os.getpid()
        self._done = False
        self._session = Session(
            children.limit,
            eager=children.eager,
            memory=children.memory,
            sample=children.sample,
            children=children,
        )
        tape = self._session.recorder.tape
        tape.process = tape.process._replace(started=True)
        self._folder = os.path.dirname(os.path.abspath(sys.argv[0]))
        self._path = children.path(self._process)
        self._real_exit = os._exit
        self._hook = sys.excepthook

    @property
    def _process(self) -> Process:
        return self._session.recorder.tape.process

    def begin(self) -> None:
        """Begin to record until the process ends, in whatever way."""
        self._tell()
        self._session.save_as_it_grows(self._path, list(sys.argv), self._folder)
        atexit.register(self.end)
        os._exit = self._exit  # type: ignore[assignment]
        sys.excepthook = self._show
        self._session.start()

    def _tell(self) -> None:
        self._children.leave(Note(self._number, self._path, os.getppid(), self._kind))

    def _exit(self, status: int) -> None:
        try:
            self.end()
        finally:
            self._real_exit(status)

    def _show(self, kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        """Show an exception that ends the process as it would have been without tether."""
        del traceback
        self._session.mute()
        strip(error)
        self._hook(kind, error, error.__traceback__)

    def end(self) -> None:
        """End the recording, and save it. It never raises: the process ends as it would have."""
        if self._done or os.getpid() != self._number:
            return
        self._done = True
        try:
            self._save()
        except Exception:  # what was saved as it grew is there
            self._session.mute()
            if self._session.recorder.tape.strict:
                raise

    def _save(self) -> None:
        session, before = self._session, self._path
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        trace = session.stop(vars(sys.modules.get("__main__", os)), error)
        trace.program, trace.folder = list(sys.argv), self._folder
        if error is not None:
            ended_with(trace, session.recorder.tape, error)
        heard(trace, self._children, session.recorder.tape.started)
        annotate(trace)
        trace.bridges += follow(trace)
        self._path = self._children.path(self._process)  # the rank may be known by now
        save(trace, self._path)
        if self._path != before:
            self._tell()
            with contextlib.suppress(OSError):
                os.unlink(before)


def begin() -> None:
    """Begin to record this process, which has just imported torch."""
    if "tether.cli.main" in sys.modules:
        return  # it is `tether run` itself, which records what it is asked to
    with contextlib.suppress(OSError):  # the program that started it has ended
        _ChildRun(Children.told(os.environ[VARIABLE])).begin()


def forked(session: Session) -> None:
    """Go on in a forked process with a recording of its own."""
    assert session.children is not None
    session.mute()
    with contextlib.suppress(OSError):
        _ChildRun(session.children, session.recorder.tape.forks).begin()
