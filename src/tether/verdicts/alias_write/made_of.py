"""What was computed with the result of a call."""

from __future__ import annotations

from tether.analysis.history import History


def made_of(history: History, at: int, most: int, row: tuple[str, int] | None = None) -> list[int]:
    """Return a call, and the first of those that computed with what it made, or with theirs.

    Those of one line of the text alone, where its `row` is given. Once there are `most`, no
    further results are followed.
    """
    found = {at: None}
    waiting = [at]
    while waiting and len(found) < most:
        for made in history.events[waiting.pop(0)].results:
            for one in history.reads_of(made.tensor):
                if one not in found and row in (None, history.site_of(history.events[one]).row):
                    found[one] = None
                    waiting.append(one)
    return [*found]
