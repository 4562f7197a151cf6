"""`tether.Snapshot`: the state of a model as it was, kept in memory that is used again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from tether.copying import copy, refresh, trees
from tether.copying.intent import Refused


class Snapshot:
    """The tensors of `obj` (a module, an optimizer, a dict of both, ...) as they were.

    Made once, it takes no new memory: `update` writes the present values over the old ones,
    `restore` writes them back into `obj`, `average` mixes them in. Ties inside are kept. What is no
    tensor (a step count that is a Python number, a learning rate) stays as it was when the snapshot
    was made, and `restore` leaves it alone.

    Each of the four takes a lock. Another thread that saves the value holds it meanwhile::

        with best.held() as value:
            torch.save(value.state_dict(), "best.pt")

    Raises `tether.copying.intent.Refused`, a `ValueError`, naming the tensor, when `obj` has
    changed its tensors' number, shapes, dtypes or ties since.
    """

    def __init__(self, obj: Any, **options: Any) -> None:
        for name in ("out", "to", "memory", "grad", "non_blocking"):
            if name in options:
                raise TypeError(f"a snapshot owns its memory: it has no option {name}")
        self._source = obj
        self._lock = threading.RLock()
        self._value = copy.copy(obj, **options)
        self._known: tuple[refresh.Signature, refresh.Pairs] | None = None

    @property
    def value(self) -> Any:
        """The copy itself. It changes with the next `update`; see `held` and `copy`."""
        return self._value

    @contextlib.contextmanager
    def held(self) -> Iterator[Any]:
        """Hold the value still for the body of a `with`."""
        with self._lock:
            yield self._value

    def copy(self, **options: Any) -> Any:
        """Return a copy of the value, taken between two updates."""
        with self._lock:
            return copy.copy(self._value, **options)

    def update(self) -> None:
        """Take the present values."""
        with self._lock:
            refresh.write(self._pairs())

    def _pairs(self) -> refresh.Pairs:
        """Return source and value tensors paired; anew when the source is not what it was."""
        if self._known is not None:
            values = trees.plain_values(self._source)
            if values is not None and self._known[0].fits(list(values)):
                return self._known[1]
        found = trees.find(self._source)
        if self._known is not None and self._known[0].fits(found.tensors):
            return self._known[1]
        pairs = refresh.pair(self._source, self._value, found)
        signature = refresh.signature(found.tensors)
        self._known = None if signature is None else (signature, pairs)
        return pairs

    def restore(self) -> None:
        """Write the values back into the object they came from, in place.

        Autograd sees the writes: a graph that saved the old values for backward raises.
        """
        with self._lock:
            refresh.refresh(self._value, self._source)
            self._known = None

    def average(self, decay: float) -> None:
        """Move towards the present values: value = decay * value + (1 - decay) * present.

        Tied tensors move once. Integers, booleans and the like take the present value. Raises
        `ValueError` when `decay` is not within 0 and 1.
        """
        if not 0 <= decay <= 1:
            raise ValueError(f"decay={decay} is not within 0 and 1")
        with self._lock:
            pairs = self._pairs()
            mixed: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
            plain = refresh.Pairs([], [])
            for source, value in zip(pairs.sources, pairs.copies, strict=True):
                if value.dtype.is_floating_point or value.dtype.is_complex:
                    mixed[0].append(value)
                    mixed[1].append(source.detach().to(value.device))
                else:
                    plain.sources.append(source)
                    plain.copies.append(value)
            _refuse_overlap(mixed[0])
            with torch.no_grad():
                if mixed[0]:
                    torch._foreach_lerp_(mixed[0], mixed[1], 1 - decay)
            refresh.write(plain)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a deepcopy holds: the source and the value, from one moment."""
        with self._lock:
            return {"_source": self._source, "_value": copy.copy(self._value)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock(), _known=None)

    def __repr__(self) -> str:
        return f"<a snapshot of {type(self._source).__name__}>"


def _refuse_overlap(values: list[torch.Tensor]) -> None:
    """Refuse views that overlap without one holding the others: each would move their bytes."""
    from tether.copying import relation, steps, storages

    plain = [x for x in values if steps.is_plain(x)]
    for group in storages.grouped(plain):
        for number, x in enumerate(group.members):
            for y in group.members[:number]:
                if relation.common_bytes(x, y) != 0:
                    raise Refused(
                        "tensors that partly overlap would be averaged twice",
                        "give the tensor they are views of, or only one of them",
                    )
