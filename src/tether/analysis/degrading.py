"""What becomes of a part of the analysis that fails: it is left out, and a gap says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from tether.facts import STRICT, Gap, Trace

Part = TypeVar("Part")


def attempt(trace: Trace, name: str, work_out: Callable[[], Part], without: Part) -> Part:
    """Return what is worked out, or `without` where that fails.

    Raises:
        Exception: of any kind, under ``TETHER_STRICT``, as in our tests.
    """
    try:
        return work_out()
    except Exception as error:
        if os.environ.get(STRICT):
            raise
        trace.gaps.append(Gap("analysis", f"{name} ({type(error).__name__}: {error})"))
        return without
