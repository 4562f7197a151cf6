"""`tether.unchanged`: a block in which the bytes of some tensors must not change."""

from __future__ import annotations

from typing import Self

import torch

from tether.facts import UNKNOWN, Operand, Trace
from tether.record.session import Session
from tether.regions import overlaps


class ChangedError(AssertionError):
    """A tensor changed in a block that was to leave it as it is."""


class unchanged:  # noqa: N801 -- used as `with tether.unchanged(x):`
    """Raise `ChangedError` when the bytes of a tensor change inside the block.

    ``with tether.unchanged(x, y): ...``. The error names the line that wrote, as far as the write
    was heard: one through a NumPy array or another library is found by its effect, and the error
    says between which lines. Costs a copy of each tensor, and recording during the block.

    Raises `TypeError` when given anything but tensors.
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        for number, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                kind = type(tensor).__name__
                raise TypeError(f"unchanged() takes tensors; argument {number} is a {kind}")
        self._tensors = tensors
        self._before: list[torch.Tensor] = []
        self._session = Session()

    def __enter__(self) -> Self:
        self._before = [tensor.detach().clone() for tensor in self._tensors]
        who = self._session.recorder.tape.who
        self._serials = [who.serial(tensor) for tensor in self._tensors]
        self._session.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        trace = self._session.stop()
        if error is not None:
            return  # the block's own exception matters more
        for number, tensor in enumerate(self._tensors):
            if not _same(tensor, self._before[number]):
                raise ChangedError(_told(trace, number, self._serials[number]))


def _same(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether the bytes are the same: NaN equals NaN, and 0.0 differs from -0.0."""
    now = tensor.detach()
    if now.shape != before.shape or now.dtype != before.dtype:
        return False
    if now.layout != torch.strided:
        return bool((now.to_dense() == before.to_dense()).all())
    first, second = (_bits(one) for one in (now, before))
    return bool(torch.equal(first, second))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8) if plain.numel() else plain


def _told(trace: Trace, number: int, serial: int) -> str:
    """Say which line changed it."""
    operand = _seen(trace, serial)
    lines = []
    for event in trace.events:
        for written in event.writes:
            if written.tensor == serial or (operand is not None and overlaps(operand, written)):
                site = trace.sites[event.site] if event.site != UNKNOWN else None
                where = f"{site.file}:{site.line}" if site is not None else "an unknown line"
                through = (
                    "" if written.tensor == serial else ", through another tensor on its memory"
                )
                lines.append(f"{event.operation} at {where}{through}")
    what = f"tensor {number} of unchanged() changed"
    if lines:
        more = f" (and {len(lines) - 1} more writes)" if len(lines) > 1 else ""
        return f"{what}: {lines[0]}{more}"
    return f"{what}, and no torch call wrote it: a NumPy array or another library on its memory did"


def _seen(trace: Trace, serial: int) -> Operand | None:
    for event in trace.events:
        for operand in (*event.reads, *event.writes, *event.results):
            if operand.tensor == serial:
                return operand
    return None
