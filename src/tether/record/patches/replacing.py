"""Putting functions of PyTorch's own aside for the length of a recording, and back again.

What is replaced is looked at first: where the installed PyTorch has nothing of that name, or
something of another kind than was known when this was written, it is left alone and a gap says so.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tether.facts import RAISED
from tether.record.listener import Listener
from tether.record.mode_stack import listener_here, muted
from tether.record.sites import here
from tether.record.tape import Tape

__tracebackhide__ = True

Original = Callable[..., Any]
Tell = Callable[[Listener, tuple[int, int], tuple[Any, ...], dict[str, Any], Any], None]
"""Notes a call that has returned: the listener, the place, arguments by place and name, result."""


class Replacements:
    """The replacements of one recording; `install` and `restore` are each called once."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self._undo: list[Callable[[], None]] = []
        self._undo_last: list[Callable[[], None]] = []  # of what no suspension takes back
        self._redo: list[Callable[[], None]] = []
        self._asides = 0  # regions that run without them now, in all threads
        self.lock = threading.RLock()
        self.on_suspend: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None

    def listener(self) -> Listener | None:
        """Return the listener that hears this thread now; None where no mode is on."""
        return listener_here(self.tape)

    # -- in place, and back ----------------------------------------------------------------------

    def replace(
        self,
        owner: Any,
        name: str,
        make: Callable[[Any], Any],
        known: Callable[[Any], bool] = callable,
        *,
        lasting: bool = False,
    ) -> bool:
        """Replace ``owner.name`` by what `make` makes of the original; return whether it was.

        `known` says whether the original is of a kind that `make` can wrap. A `lasting` one stays
        in place while others are suspended. What the program puts there itself stays as it is.
        """
        own = owner.__dict__ if isinstance(owner, type) else vars(owner)
        inherited = name not in own
        original = getattr(owner, name, None) if inherited else own[name]
        if original is None or not known(original):
            self.unknown(f"{getattr(owner, '__qualname__', owner.__name__)}.{name}")
            return False
        made = make(original)
        setattr(owner, name, made)
        plain = own.get(name) is made  # an owner may keep it in a way of its own

        def undo() -> None:
            if plain and own.get(name) is not made:
                return
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

        def redo() -> None:
            if not plain or own.get(name, original) is original:
                setattr(owner, name, made)

        (self._undo_last if lasting else self._undo).append(undo)
        if not lasting:
            self._redo.append(redo)
        return True

    def unknown(self, what: str) -> None:
        """Note something of PyTorch's that is not as this tether knows it."""
        self.tape.gap("pytorch", what)

    def reversible(self, apply: Callable[[], Callable[[], None]]) -> None:
        """Call `apply`, which returns how to take back what it did; again after a suspension."""
        self._undo.append(apply())

        def again() -> None:
            apply()

        self._redo.append(again)

    def restore(self) -> None:
        """Put every original back."""
        with self.lock:
            self._redo.clear()
            while self._undo:
                self._undo.pop()()
            while self._undo_last:
                self._undo_last.pop()()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Put every original back for the length of a block, for all threads."""
        with self.lock:
            self._asides += 1
            if self._asides == 1:
                self.on_suspend()
                for undo in reversed(self._undo):
                    undo()
        try:
            yield
        finally:
            with self.lock:
                self._asides -= 1
                if self._asides == 0 and self._redo:
                    self.on_resume()
                    for redo in self._redo:
                        redo()

    # -- what most replacements do ---------------------------------------------------------------

    def telling(
        self, tell: Tell, before: Callable[[tuple[Any, ...]], None] | None = None
    ) -> Callable[[Original], Original]:
        """Return what makes a function that calls its original and then tells of it.

        `before` is given the arguments of the call before it.
        """

        def make(original: Original) -> Original:
            @functools.wraps(original)
            def replaced(*args: Any, **kwargs: Any) -> Any:
                listener = self.listener() if before is not None else None
                if before is not None and listener is not None:
                    with muted(listener):
                        before(args)
                try:
                    result = self.tape.places.called_from(here(2))(original, args, kwargs)
                except Exception as error:
                    self.refused(original, error, args)
                    raise
                listener = self.listener()
                if listener is not None:
                    with muted(listener):
                        place = self.tape.places.user_place(here(2))
                        tell(listener, place, args, kwargs, result)
                return result

            return replaced

        return make

    def refused(self, original: Original, error: BaseException, args: tuple[Any, ...]) -> None:
        """Record a call that raised, with the tensors that it was given."""
        listener = self.listener()
        if listener is not None:
            with muted(listener):
                place = self.tape.places.user_place(here(3))
                tensors = listener.tensors_in(*args)
                event = listener.note(original.__name__, place, tensors, flags=RAISED)
                self.tape.error(error, place[0], event)
