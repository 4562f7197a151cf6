"""Rows that an embedding never trains, `padding_idx`, and how often the indices name them.

Looked at at the 1st, 2nd, 4th, 8th... such call of a line and an embedding, on the CPU, for up to
`MOST` indices.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch

from tether.facts import EventId, Padded
from tether.record.arrays.contents import Array, words_of

MOST = 1 << 20


class PaddingLog:
    """Counts what embeddings were given as padding."""

    def __init__(self) -> None:
        self.facts: list[Padded] = []
        self._runs: Counter[tuple[int, int]] = Counter()  # by line and embedding

    def look(self, args: tuple[Any, ...], kwargs: dict[str, Any], event: int, site: int) -> None:
        """Look at the indices of a call that has returned."""
        row = kwargs.get("padding_idx", args[2] if len(args) > 2 else None)
        if type(row) is not int or len(args) < 2 or not args[1].requires_grad:
            return
        key = site, id(args[1])
        self._runs[key] += 1
        if self._runs[key] & (self._runs[key] - 1):
            return
        found = _numbers(_in_rows(args[0]))
        if found is not None:
            row = row % args[1].shape[0]
            here = found == row
            times, within = int(here.sum()), int(_between(~here).sum())
            if times:
                self.facts.append(Padded(EventId(event), row, times, found.size, within))


def _in_rows(index: torch.Tensor) -> torch.Tensor:
    """Return what indices in one row are a view of, where that has the same ones in several."""
    base = index._base
    several = base is not None and index.dim() < 2 <= base.dim()
    return base if several and base.numel() == index.numel() else index  # type: ignore[union-attr,return-value]


def _numbers(index: torch.Tensor) -> Array | None:
    """Return indices as an array; None where they cannot be read."""
    if index.is_floating_point() or index.numel() > MOST or 0 in index.stride():
        return None
    words = words_of(index)
    return None if words is None else words.view(f"i{index.element_size()}")


def _between(real: Array) -> Array:
    """Return which places have a real index on both sides in their row; alone in it, all have.

    Padding stands at the ends of rows.
    """
    if real.ndim < 2:
        return ~real
    before = np.maximum.accumulate(real, axis=-1)
    after = np.maximum.accumulate(real[..., ::-1], axis=-1)[..., ::-1]
    return ~real & before & after
