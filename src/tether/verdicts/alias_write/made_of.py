"""What was computed with the result of a call."""

from __future__ import annotations

from tether.analysis.history import History


def made_of(history: History, at: int, most: int, *, in_function: bool = False) -> list[int]:
    """Return a call, and the first of those that computed with what it made, or with theirs.

    Those of the call's own function alone, where that is asked. Once there are `most`, no further
    results are followed.
    """
    found = {at: None}
    waiting = [at]
    own = _function(history, at)
    while waiting and len(found) < most:
        for made in history.events[waiting.pop(0)].results:
            for one in history.reads_of(made.tensor):
                if one not in found and not (in_function and _function(history, one) != own):
                    found[one] = None
                    waiting.append(one)
    return [*found]


def _function(history: History, at: int) -> tuple[str, str]:
    return history.site_of(history.events[at]).scope
