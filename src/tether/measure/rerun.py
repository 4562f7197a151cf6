"""A program run once more, with chosen calls changed, and everything that it hands out summed up.

What a copy was worth is shown by doing without it. A trial runs the program as a recording does,
with the same patches and listeners, but records nothing: at the chosen places it leaves a copy out
(``drop``) or puts one in (``insert``), and of every value that leaves the tensors it keeps a sum of
the bytes. Two trials whose sums agree, one with the change and one without, gave the same results
bit for bit.

What leaves: tensors that become Python values, arrays or text (calls whose row says `leaves`), what
``backward`` starts from, each gradient after each backward pass and before each optimizer step,
each parameter as it steps and at the end, and what ``torch.save`` writes.

A trial runs in a process of its own: ``python -m tether.measure.rerun ORDER`` reads what to run
from a JSON file and writes what was seen beside it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tether.analysis.copies.already_there import shown_by
from tether.facts import Event, GradientStatus, Operand, SiteId, StorageId, TensorId
from tether.operations.table import operation
from tether.record import running
from tether.record.arrays.memory import root_of
from tether.record.gradients.gradients import GradientLog
from tether.record.listener import Listener, past_dispatch
from tether.record.session import Session
from tether.record.sites import site_at
from tether.record.tape import Tape
from tether.record.values.indexed import View
from tether.record.values.sameness import chosen, in_memory

MOST = 200_000
"""Values that are summed up in one trial; what is handed out after that is counted only."""

_mute = torch._C.DisableTorchFunction
_no_grad = torch.no_grad

Position = tuple[str, int, int, int, int]
"""File, line, column, end line, end column."""


class CallChange(NamedTuple):
    """One place where a call is made in another way."""

    kind: str  # "drop": the source instead of its copy; "insert": a copy of what is returned;
    # "time": as it is, and timed
    operation: str  # as in `facts.Event`; "" for any that returns what shares memory
    site: Position  # the user's line
    inner: Position | None = None  # the library's line that made the call; None: any


class Value(NamedTuple):
    """One value that was handed out."""

    what: str  # "item", "the gradient of a parameter"
    line: str  # "train.py:30"
    sum: str  # of its bytes, shape and dtype; "" where they cannot be read


class TrialOutput(NamedTuple):
    """Everything that one trial handed out."""

    values: list[Value]
    applied: list[int]  # for each change, how often it was made
    spent: list[float]  # for each that is timed, seconds in its calls, on the processor's clock
    exit_code: int
    error: str


class Values:
    """The values of one trial, as they come, from all threads."""

    def __init__(self) -> None:
        self.found: list[Value] = []
        self._lock = threading.Lock()

    def add(self, what: str, line: str, tensors: Iterable[Any]) -> None:
        """Keep the sums of some tensors."""
        with self._lock:
            for tensor in tensors:
                if isinstance(tensor, torch.Tensor) and len(self.found) < MOST:
                    self.found.append(Value(what, line, _sum(tensor)))


class Trial(Listener):
    """A listener that records nothing: it changes the chosen calls, and sums up what leaves."""

    def __init__(self, recorder: Any, thread: int, changes: Sequence[CallChange], values: Values):
        super().__init__(recorder, thread)
        self.changes = changes
        self.values = values
        self.applied = [0] * len(changes)
        self.spent = [0.0] * len(changes)
        self._operations = {one.operation for one in changes}
        self._any = "" in self._operations
        # What numbers were converted from, where a way there and back is to be left out.
        self._follows = any(operation(one).copies in ("cast", "move") for one in self._operations)
        self._sources: deque[tuple[torch.Tensor, torch.Tensor]] = deque(maxlen=16)
        self._chosen: dict[Any, list[int]] = {}  # (operation, places) -> the changes made there
        self._positions: dict[int, Position] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func`, or what it is changed to."""
        kwargs = kwargs or {}
        what = self._known.get(func) or self._functions.learn(func)
        name = what.name
        exits = what.exits or name == "backward"
        wanted = self._any or name in self._operations
        if not (exits or wanted):
            return self._followed(name, args, func(*args, **kwargs))
        with _mute():
            user, inner = self._places(sys._getframe(1))
            if exits:
                tensors = self.tensors_in(*args[:2])
                if what.exits and tensors:
                    self._same.left(tensors[0], 0)
                self.values.add(name, _line(user), tensors)
        made = self._changes(name, user, inner) if wanted else []
        if not made:
            return func(*args, **kwargs)
        return self._changed(made[0], func, name, args, kwargs)

    def _changed(
        self, number: int, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a call in the way that one of the changes asks for."""
        change = self.changes[number]
        if change.kind == "drop":
            with _mute():
                found = self._instead(func, name, args, kwargs)
            self.applied[number] += found is not None
            return func(*args, **kwargs) if found is None else found
        began = time.perf_counter()
        result = func(*args, **kwargs)
        if change.kind == "time":
            self.applied[number] += 1
            self.spent[number] += time.perf_counter() - began
            return result
        with _mute():
            copied = _copied(result)
        self.applied[number] += copied is not result
        return copied

    def _followed(self, name: str, args: tuple[Any, ...], result: Any) -> Any:
        """Remember what numbers were converted from, where that may be asked for."""
        if self._follows and operation(name).copies and isinstance(args[0], torch.Tensor):
            self._sources.append((result, args[0]))
        return result

    def _instead(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor | None:
        """Return the older memory that shows what a call would make anew; None where none does."""
        with _no_grad():
            made: torch.Tensor = func(*args, **kwargs)
        if operation(name).copies and (name == "copy_" or isinstance(args[0], torch.Tensor)):
            return self._unconverted(name, args, kwargs, made.dtype)
        found = self._came_from(args[0], made) if not self.tensors_in(*args) else None
        if found is not None:
            return _shown(*found).detach().requires_grad_(bool(kwargs.get("requires_grad")))
        shown = chosen(name, args, made) or _joined(name, args, kwargs, made)
        return None if shown is None else _shown(*shown)

    def _came_from(self, data: Any, made: torch.Tensor) -> tuple[torch.Tensor, View] | None:
        """Return the tensor that data of Python's or NumPy's came from, and how it shows that."""
        root = root_of(data)[1]
        if root is not None:  # whatever the program called it, it lives as long as its array
            view = in_memory(root, data, made)
            return None if view is None else (root, view)
        found = self._same.origin(data, made)
        return None if found is None else found[1]

    def _unconverted(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype
    ) -> torch.Tensor | None:
        """Return what a call copies, or what numbers were converted from that it converts back."""
        if name == "copy_" or args[0].dtype == dtype:
            return instead(name, args, kwargs)
        before = [one for wide, one in self._sources if wide is args[0] and one.dtype == dtype]
        return instead(name, (before[-1], *args[1:]), kwargs) if before else None

    def _places(self, frame: Any) -> tuple[Position, Position]:
        """Return the user's place that led to a call, and the call's own."""
        frame, _ = past_dispatch(frame)
        places = self.tape.places
        own = places.of_code(frame.f_code)
        inner = user = self._position(own, frame.f_lasti)
        above = frame
        while above is not None:
            known = places.of_code(above.f_code)
            if known.user:
                user = self._position(known, above.f_lasti)
                break
            above = above.f_back
        return user, inner

    def _position(self, known: Any, offset: int) -> Position:
        place = known.places.get(offset) or self.tape.places.add(known, offset)
        found = self._positions.get(place.number)
        if found is None:
            site = site_at(known, offset)
            found = self._positions[place.number] = site[:5]
        return found

    def _changes(self, name: str, user: Position, inner: Position) -> list[int]:
        key = (name, user, inner)
        found = self._chosen.get(key)
        if found is None:
            found = self._chosen[key] = [
                number
                for number, change in enumerate(self.changes)
                if change.operation in ("", name)
                and change.site == user
                and change.inner in (None, inner)
            ]
        return found

    def note(self, operation: str, *args: Any, **_: Any) -> int:
        """Sum up what is saved; of the rest nothing is recorded."""
        if operation == "save" and len(args) > 1:
            self.values.add("save", "", args[1])
        return 0


class _Gradients(GradientLog):
    """Sums up gradients and parameters where a recording asks whether they are there."""

    def __init__(self, tape: Tape, values: Values) -> None:
        super().__init__(tape)
        self._values = values

    def _living(self) -> list[torch.Tensor]:
        return [leaf for _, leaf in sorted(self.leaves(), key=lambda pair: pair[0])]

    def after_backward(self, site: int, leaves: Any, *, look: bool) -> set[TensorId]:  # noqa: ARG002 -- as its base is called
        """Sum up every gradient there is."""
        grads = [one.grad for one in self._living()]
        self._values.add("a gradient", "", [one for one in grads if one is not None])
        return set()  # nobody looks whether anything moved

    def after_grad(self, site: int, asked: Any, found: Any, *, look: bool) -> None:  # noqa: ARG002 -- as its base is called
        """Sum up what ``autograd.grad`` returned."""
        self._values.add("a gradient", "", [one for one in found if one is not None])

    def before_step(
        self,
        tensors: Any,
        numbers: Any,  # noqa: ARG002 -- as its base is called
        *,
        look: bool,  # noqa: ARG002 -- as its base is called
    ) -> dict[TensorId, GradientStatus]:
        """Sum up what the optimizer is about to change."""
        for one in tensors:
            self._values.add("a parameter", "", [one])
            if one.grad is not None:
                self._values.add("a gradient", "", [one.grad])
        return {}

    def at_end(self) -> None:
        """Sum up every parameter."""
        self._values.add("a parameter at the end", "", self._living())


class TrialSession(Session):
    """A session whose listeners try a program with changes."""

    def __init__(self, changes: Sequence[CallChange]) -> None:
        super().__init__()
        self.changes = tuple(changes)
        self.values = Values()
        self.trials: list[Trial] = []
        self.recorder.gradients = _Gradients(self.recorder.tape, self.values)

    def _listen(self, thread: int) -> Listener:
        one = Trial(self.recorder, thread, self.changes, self.values)
        self.trials.append(one)
        return one

    def seen(self, exit_code: int = 0, error: str = "") -> TrialOutput:
        """Return everything that was handed out, once the session has stopped."""
        applied = [sum(one.applied[n] for one in self.trials) for n in range(len(self.changes))]
        spent = [sum(one.spent[n] for one in self.trials) for n in range(len(self.changes))]
        return TrialOutput(self.values.found, applied, spent, exit_code, error)


# -- a call in its cheap form ----------------------------------------------------------------------


def instead(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Return what a call that copies would have copied: the same elements, and the same graph.

    Where the copy stood outside the graph and its source stands in it, the source is detached.
    """
    source: torch.Tensor = args[1] if name in ("new_tensor", "copy_") else args[0]
    if name == "__deepcopy__":
        found = source if not source.requires_grad else _leaf(source)
        if len(args) > 1 and isinstance(args[1], dict):
            args[1][id(source)] = found
        return found
    if name in ("tensor", "new_tensor"):
        found = source.detach()
        return found.requires_grad_() if kwargs.get("requires_grad") else found
    if source.requires_grad and not torch.is_grad_enabled():
        return source.detach()
    return source


def _shown(source: torch.Tensor, view: View) -> torch.Tensor:
    """Return a view of a tensor's memory, in the graph where the tensor is.

    A view that was made where gradients are off is in no graph, though what it is a view of may be.
    """
    offset, shape, strides = view
    base = source._base if source.grad_fn is not None and source._is_view() else source
    if base is None or not torch.is_grad_enabled():
        base = source.detach()
    return torch.as_strided(base, shape, strides, offset)


def _joined(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], made: torch.Tensor
) -> tuple[torch.Tensor, View] | None:
    """Return the view that shows what a call repeated, or put side by side."""
    tensors = list(args[0]) if isinstance(args[0], (list, tuple)) else [args[0]]
    if not all(isinstance(one, torch.Tensor) for one in tensors):
        return None  # numbers that no tensor was found for in this run
    along = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    by_dimension = operation(name).notes == "dimension" and isinstance(along, int)
    call = Event(
        name, SiteId(0), tuple(map(_operand, tensors)), (_operand(made),),
        detail=str(along or "") if by_dimension else "",
    )  # fmt: skip
    found = list(shown_by(call))
    if len(found) != 1:
        return None
    view = found[0][0]
    return tensors[0], (view.offset, view.shape, view.strides)


def _operand(tensor: torch.Tensor) -> Operand:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Operand(
        TensorId(id(tensor)), StorageId(id(tensor.untyped_storage())), 0,
        int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), dtype,
        tensor.requires_grad, tensor.is_leaf,
    )  # fmt: skip


def _leaf(source: torch.Tensor) -> torch.Tensor:
    return source.detach().requires_grad_()


def _copied(result: Any) -> Any:
    """Return a result with memory of its own: tensors, arrays, and plain containers of them."""
    if isinstance(result, torch.Tensor):
        with _no_grad():
            return result.detach().clone() if not result.requires_grad else result.clone()
    if type(result).__name__ == "ndarray":
        return result.copy()
    return result


# -- sums ------------------------------------------------------------------------------------------


def _sum(tensor: torch.Tensor) -> str:
    """Sum up the bytes of a tensor's elements, in their order whatever the layout."""
    with _mute(), _no_grad():
        try:
            found = tensor.detach()
            parts = [found]
            if found.layout is torch.sparse_coo:
                found = found.coalesce()
                parts = [found.indices(), found.values()]
            total = hashlib.blake2b(digest_size=8)
            total.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            for one in parts:
                plain = one.resolve_conj().resolve_neg().cpu().contiguous()
                size = plain.numel() * plain.element_size()
                if size:
                    total.update((ctypes.c_char * size).from_address(plain.data_ptr()))
            return total.hexdigest()
        except Exception:  # noqa: BLE001 -- a wrapper, a meta tensor: nothing to be read
            return ""


def _line(place: Position) -> str:
    return f"{Path(place[0]).name}:{place[1]}"


# -- as a process ----------------------------------------------------------------------------------


def _seed() -> None:
    """Give a program that sets no seeds the same ones in every trial."""
    random.seed(0)
    torch.manual_seed(0)
    try:
        import numpy as np
    except ImportError:
        return
    np.random.seed(0)


def main(order: str) -> int:
    """Run the program of an order, and write what was seen beside it."""
    given = json.loads(Path(order).read_text("utf-8"))
    program = running.Program(given["kind"], given["target"], tuple(given["arguments"]))
    changes = [
        CallChange(one[0], one[1], tuple(one[2]), tuple(one[3]) if one[3] else None)
        for one in given["changes"]
    ]
    session = TrialSession(changes)
    _seed()

    def finish(ending: running.Ending) -> int:
        error = "" if ending.error is None else f"{type(ending.error).__name__}: {ending.error}"
        seen = session.seen(ending.exit_code, error)
        Path(given["result"]).write_text(json.dumps(seen), "utf-8")
        return ending.exit_code

    return running.run(program, session, finish)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
