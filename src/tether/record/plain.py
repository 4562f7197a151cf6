"""Reading the program's containers without running code of the program's own."""

from __future__ import annotations

import collections
from typing import Any


def items_of(value: Any) -> list[Any]:
    """Return the items of a list, tuple, deque or set, as its plain class gives them."""
    for kind in (list, tuple, collections.deque, set, frozenset):
        if issubclass(type(value), kind):
            return list(kind.__iter__(value))
    return []
