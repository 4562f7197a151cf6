"""Processes that the program starts: told how to record, or said not to have been recorded."""

from __future__ import annotations

import contextlib
import functools
import inspect
import multiprocessing.connection
import multiprocessing.process
import multiprocessing.queues
import multiprocessing.reduction
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from tether.facts import LOADER, RAISED, UNKNOWN, GapCode
from tether.record.listener import Listener
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.recorder import Recorder
from tether.record.sites import here

if TYPE_CHECKING:
    from tether.record.processes.children import Children

__tracebackhide__ = True

# What a data loader's worker runs; None in a PyTorch that calls it otherwise.
_worker_loop = getattr(
    getattr(getattr(torch.utils.data, "_utils", None), "worker", None), "_worker_loop", None
)
_PYTHONS = ("python", "torchrun", "accelerate", "deepspeed")


def install(replacements: Replacements, recorder: Recorder, children: Children | None) -> None:
    """Put the replacements in place. Forks are noted by `Session`."""
    popen = functools.partial(_popen, replacements, children)
    replacements.replace(subprocess.Popen, "__init__", popen)
    process = multiprocessing.process.BaseProcess
    replacements.replace(process, "start", functools.partial(_start, replacements, children))
    replacements.reversible(functools.partial(_reducers, replacements, recorder))
    reraise = functools.partial(_reraise, replacements, recorder)
    replacements.replace(torch._utils.ExceptionWrapper, "reraise", reraise)
    sent = replacements.telling(_sent)
    replacements.replace(multiprocessing.queues.Queue, "put", sent)
    replacements.replace(multiprocessing.connection.Connection, "send", sent)


def _sent(listener: Listener, place: tuple[int, int], args: tuple[Any, ...], *_: Any) -> None:
    """Note tensors that went to another process, which is given their memory and no copy."""
    tensors = listener.tensors_in(*args[1:2])
    if tensors:
        listener.note("Queue.put", place, tensors)


def _reducers(replacements: Replacements, recorder: Recorder) -> Callable[[], None]:
    """Hear of tensors that cannot be packed for another process; return what takes it back."""
    table = multiprocessing.reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    mine = {
        kind: _reduced(replacements, recorder, original)
        for kind, original in table.items()
        if isinstance(kind, type) and issubclass(kind, torch.Tensor)
    }
    before = {kind: table[kind] for kind in mine}
    table.update(mine)

    def undo() -> None:
        table.update({kind: one for kind, one in before.items() if table.get(kind) is mine[kind]})

    return undo


def _reduced(replacements: Replacements, recorder: Recorder, original: Original) -> Original:
    @functools.wraps(original)
    def reduce(tensor: torch.Tensor) -> Any:
        try:
            return original(tensor)
        except Exception as error:
            listener = replacements.listener()
            if listener is not None:
                with muted(listener):
                    place = replacements.tape.places.user_place(here(2))
                    event = listener.note("Queue.put", place, [tensor], flags=RAISED)
                    recorder.naming.search_now(here(2))
                    replacements.tape.error(error, place[0], event)
            raise

    return reduce


def _reraise(replacements: Replacements, recorder: Recorder, original: Original) -> Original:
    """Note an error of a data loader's worker as the line that waits for the worker gets it."""

    @functools.wraps(original)
    def reraise(wrapper: Any) -> None:
        try:
            original(wrapper)
        except Exception as error:
            listener = replacements.listener()
            if listener is not None:
                with muted(listener):
                    place = replacements.tape.places.user_place(here(2))
                    recorder.naming.search_now(here(2))
                    replacements.tape.error(error, place[0], UNKNOWN)
            raise

    return reraise


def _popen(replacements: Replacements, children: Children | None, original: Original) -> Original:
    place = list(inspect.signature(original).parameters).index("env") - 2  # in `more`

    @functools.wraps(original)
    def __init__(  # noqa: N807 -- what it replaces is called so
        popen: Any, args: Any, *more: Any, **options: Any
    ) -> None:
        key = _note(replacements, "Python") if _runs_python(args) else None
        if children is not None and len(more) <= place:
            given = options.get("env")
            options["env"] = children.environment(dict(os.environ if given is None else given))
        original(popen, args, *more, **options)
        if key is not None:
            replacements.tape.started[popen.pid] = key

    return __init__


def _start(replacements: Replacements, children: Children | None, original: Original) -> Original:
    @functools.wraps(original)
    def start(process: Any) -> None:
        method = getattr(process, "_start_method", None)
        method = method or multiprocessing.get_start_method(allow_none=True)
        loads = getattr(process, "_target", process) is _worker_loop
        key = None
        if method != "fork":  # a fork is noted where it happens
            key = _note(replacements, LOADER if loads else "spawned")
        replacements.tape.forks = LOADER if loads else "forked"
        try:
            with children.around() if children is not None else contextlib.nullcontext():
                original(process)
        finally:
            replacements.tape.forks = "forked"
        if key is not None and process.pid is not None:
            replacements.tape.started[process.pid] = key

    return start


def _note(replacements: Replacements, kind: str) -> tuple[GapCode, str, int] | None:
    listener = replacements.listener()
    if listener is None:
        return None
    place = -1, -1
    with muted(listener):
        place = replacements.tape.places.user_place(here(3))
    replacements.tape.gap("child", kind, place[0])
    return "child", kind, place[0]


def _runs_python(args: Any) -> bool:
    """Whether a command line starts Python, as far as its first word tells."""
    first = args if isinstance(args, (str, bytes, os.PathLike)) else next(iter(args or ()), "")
    words = os.fsdecode(first).split()
    name = os.path.basename(words[0]) if words else ""
    return name == os.path.basename(sys.executable) or name.startswith(_PYTHONS)
