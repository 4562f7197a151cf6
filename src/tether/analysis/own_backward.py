"""Modules with a method `backward` of their own, which is never called.

PyTorch computes gradients by what forward did; it calls the backward of an `autograd.Function`, and
never a method of a module.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tether.analysis.history import History
from tether.facts import OwnBackward, SiteId


def never_called(history: History) -> Iterator[OwnBackward]:
    """Yield the methods in which no call was made, where backward passes ran."""
    if not (history.trace.own_backwards and history.whole and history.backwards):
        return
    lines = {SiteId(number) for number in np.unique(history.events.column("site")).tolist()}
    lines.update(one for fact in history.trace.callers for one in fact.above)
    ran = {(history.site(one).file, history.site(one).function) for one in lines}
    told = set[SiteId]()
    for one in history.trace.own_backwards:
        method = history.site(one.site)
        if one.site not in told and (method.file, method.function) not in ran:
            told.add(one.site)
            yield one
