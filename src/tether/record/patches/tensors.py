"""Tensors that come about, change or are saved where no function mode hears it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.dlpack
from torch.nn.modules import module as modules

from tether.facts import UNKNOWN
from tether.record.arrays.watch import ArrayWatch
from tether.record.listener import Listener
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements, Tell
from tether.record.recorder import Recorder
from tether.record.sites import here
from tether.record.values.read_back import ReadBackLog

__tracebackhide__ = True

Place = tuple[int, int]


def install(replacements: Replacements, recorder: Recorder) -> None:
    """Put the replacements in place."""
    replace, telling = replacements.replace, replacements.telling
    arrays, read_back = recorder.arrays, recorder.read_back
    for name in ("from_numpy", "frombuffer"):
        replace(torch, name, telling(_made(name, arrays)))
    dlpack = telling(_made("from_dlpack", arrays))(torch.utils.dlpack.from_dlpack)
    for module in (torch, torch.utils.dlpack):
        replace(module, "from_dlpack", lambda _: dlpack)
    replace(torch.Tensor, "set_", functools.partial(_set_, replacements))
    replace(torch.utils, "swap_tensors", functools.partial(_swap_tensors, replacements))
    new_parameter = functools.partial(_new_parameter, replacements, recorder)
    replace(torch.nn.Parameter, "__new__", new_parameter)
    replace(torch, "save", functools.partial(_save, replacements, recorder))
    replace(torch, "load", functools.partial(_load, replacements, read_back))
    for owner in (torch.cuda, torch.cuda.Event, torch.cuda.Stream):
        replace(owner, "synchronize", telling(_synchronized))
    for name in ("fill_", "copy_"):
        replace(torch.UntypedStorage, name, telling(_storage_written(arrays)))


def _made(name: str, arrays: ArrayWatch) -> Tell:
    def tell(
        listener: Listener, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        data = args[0] if args else kwargs.get("ext_tensor", kwargs.get("buffer"))
        sources = [data] if isinstance(data, torch.Tensor) else []
        index = listener.note(name, place, sources, [result])
        listener.made(name, place, index, result, ())
        listener.entered(index, place[0], data, result)
        if name == "from_dlpack" and sources:
            arrays.join(sources[0], result)

    return tell


def _synchronized(listener: Listener, place: Place, *_: Any) -> None:
    listener.note("synchronize", place)


def _storage_written(arrays: ArrayWatch) -> Tell:
    def tell(_listener: Listener, place: Place, args: tuple[Any, ...], *_: Any) -> None:
        arrays.written(args[0], place[0])

    return tell


def _save(replacements: Replacements, recorder: Recorder, original: Original) -> Original:
    @functools.wraps(original)
    def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
        listener = replacements.listener()
        if listener is None:
            return original(obj, *args, **kwargs)
        with muted(listener):
            place = replacements.tape.places.user_place(here(2))
            tensors = listener.tensors_in(obj)
            event = listener.note("save", place, tensors)
            recorder.resumptions.filed(tensors, place[0])
        result = original(obj, *args, **kwargs)
        recorder.read_back.saved(args[0] if args else kwargs.get("f"), event)
        return result

    return save


def _load(replacements: Replacements, read_back: ReadBackLog, original: Original) -> Original:
    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        listener = replacements.listener()
        since = UNKNOWN
        if listener is not None:
            since = read_back.saved_by(args[0] if args else kwargs.get("f"))
        result = original(*args, **kwargs)
        if listener is not None and since != UNKNOWN:
            with muted(listener):
                place = replacements.tape.places.user_place(here(2))
                read_back.read(listener.note("load", place), since)
        return result

    return load


def _set_(replacements: Replacements, original: Original) -> Original:
    who = replacements.tape.who

    @functools.wraps(original)
    def set_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        listener = replacements.listener()
        if listener is None:
            return original(tensor, *args, **kwargs)
        before: tuple[Any, ...] = ()
        with muted(listener):
            before = tuple(who.snapshot(one) for one in listener.tensors_in(tensor, *args))
        try:
            result = original(tensor, *args, **kwargs)
        except Exception as error:
            replacements.refused(original, error, (tensor, *args))
            raise
        with muted(listener):
            who.refresh(tensor)
            place = replacements.tape.places.user_place(here(2))
            listener.note("set_", place, results=[tensor], snapshots=before)
        return result

    return set_


def _swap_tensors(replacements: Replacements, original: Original) -> Original:
    """Let go of two tensors while they change places, and follow both."""
    tape = replacements.tape

    @functools.wraps(original)
    def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> Any:
        if not tape.active:
            return original(t1, t2)
        listener = replacements.listener()
        before: tuple[Any, ...] = ()
        if listener is not None:
            with muted(listener):
                before = (tape.who.snapshot(t1), tape.who.snapshot(t2))
        with torch._C.DisableTorchFunction(), tape.who.unreferenced(t1, t2):
            result = original(t1, t2)
        if listener is not None:
            with muted(listener):
                place = tape.places.user_place(here(2))
                listener.note("swap_tensors", place, results=[t1, t2], snapshots=before)
        return result

    return swap_tensors


def _new_parameter(replacements: Replacements, recorder: Recorder, original: Any) -> Any:
    plain: Callable[..., Any] = original.__func__
    seen: set[int] = set()  # sites

    @functools.wraps(plain)
    def __new__(  # noqa: N807 -- what it replaces is called so
        cls: type, data: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            result = plain(cls, data, *args, **kwargs)
        except Exception as error:
            replacements.refused(torch.nn.Parameter, error, (data,))
            raise
        listener = replacements.listener()
        if listener is not None:
            with muted(listener):
                caller = here(2)
                place = replacements.tape.places.user_place(caller)
                sources = [data] if isinstance(data, torch.Tensor) else []
                listener.note("Parameter", place, sources, [result])
                by_module = caller and caller.f_code.co_filename == modules.__file__
                if by_module and place[0] not in seen:
                    seen.add(place[0])  # it takes a place that may be tied to another until now
                    recorder.naming.search_now(caller)
        return result

    return staticmethod(__new__)
