"""The time that one kind of looking may take, as a share of the run."""

from __future__ import annotations

import math
import os
import time
from threading import get_ident

from tether.facts import STRICT


class Budget:
    """A share of the run's time, and `allowed` seconds beside it; ``with budget:`` counts.

    What is counted is the time in which this thread worked: on a machine that works for others
    as well, waiting is not looking. Under ``TETHER_STRICT``, as in our tests, nothing is late: what
    they find is not to depend on the machine.
    """

    __slots__ = ("_allowed", "_began", "_entered", "_share", "_spent")

    def __init__(self, share: float, allowed: float) -> None:
        self._share = share
        self._allowed = math.inf if os.environ.get(STRICT) else allowed  # seconds
        self._began = time.perf_counter()
        self._spent = 0.0
        self._entered: dict[int, list[float]] = {}  # thread -> when it began to look

    def late(self) -> bool:
        """Whether looking has taken its share of the run."""
        return self._spent > self._share * (time.perf_counter() - self._began) + self._allowed

    def __enter__(self) -> None:
        self._entered.setdefault(get_ident(), []).append(time.thread_time())

    def __exit__(self, *_: object) -> None:
        self._spent += time.thread_time() - self._entered[get_ident()].pop()

    def count(self, seconds: float) -> None:
        """Count time that passed elsewhere."""
        self._spent += seconds
