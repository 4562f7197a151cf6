"""Which stretches of a run are recorded: all of it, a slice of the steps, or a sample of them.

A stretch begins and ends as an optimizer step ends, so that it holds whole rounds of a training
loop: clearing, forward, backward, step.
"""

from __future__ import annotations

import functools
import math
import sys
import time
import types
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from tether.record.budget import Budget
from tether.record.patches.replacing import Original, Replacements

__tracebackhide__ = True

FIRST = 8
"""Steps that a sample begins with: what grows, or is carried from step to step, shows in them."""

LONGEST = 64
"""Most steps of a stretch; a round of optimizers that takes more is heard in part."""


MEASURED = 512
"""Steps of a run of which each is looked at to tell how long a round is."""

ALLOWED = 0.2
"""Seconds of it that a short run may take as well."""


_OWN = "tether.record."
"""What the names of the recorder's modules begin with."""


class Slice:
    """From the end of step ``first`` to the end of step ``last - 1``, counted from 0."""

    def __init__(self, first: int = 0, last: int | None = None) -> None:
        self.first, self.last = first, last

    def stepped(self, optimizer: Optimizer, done: int) -> None:
        """Nothing depends on whose step it was."""

    def wanted(self, done: int) -> bool:
        """Whether to record what comes after so many steps."""
        return self.first <= done and (self.last is None or done < self.last)

    def begins(self, done: int) -> float:
        """Return after how many steps the next stretch begins."""
        return self.first if done < self.first else math.inf


class Sample:
    """The first steps, then one round after 8, 16, 32, 64... steps, and what happens seldom.

    A round is as many steps as it takes until an optimizer's turn comes again. `opened` has the
    next round recorded as well.
    """

    def __init__(self) -> None:
        self._round = 1
        self._until = 0
        self._turns: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()

    def stepped(self, optimizer: Optimizer, done: int) -> None:
        """Measure how many steps of all optimizers a round takes."""
        before = self._turns.get(optimizer)
        if before is not None:
            self._round = min(LONGEST, max(self._round, done - before))
        self._turns[optimizer] = done

    def wanted(self, done: int) -> bool:
        """Whether to record what comes after so many steps."""
        if done < max(FIRST, self._until):
            return True
        since = done - (1 << done.bit_length() - 1)
        return since < self._round

    def begins(self, done: int) -> float:
        """Return after how many steps the next stretch begins."""
        return 1 << done.bit_length()

    def opened(self, done: int) -> None:
        """Have what comes now recorded, for a round."""
        self._until = done + self._round


class Doors:
    """What a program calls as an epoch or the training ends; between stretches it opens one.

    Each place opens at its 1st, 2nd, 4th, 8th... call. Where a state is taken, saved or loaded it
    opens at other calls as well, for at most 1 % of the run's time: what is kept there, and
    changes with the next step, is what a later line relies on.
    """

    def __init__(self, replacements: Replacements, on_opened: Callable[[], None]) -> None:
        self._replacements = replacements
        self._on_opened = on_opened
        self._calls: Counter[tuple[int, int]] = Counter()
        self._budget = Budget(0.01, ALLOWED)
        self._opened: float | None = None  # when the stretch began that one of these opened

    def install(self) -> None:
        """Put the doors in place."""
        self._replace(torch.nn.Module, "train", often=False)
        for name in ("state_dict", "load_state_dict"):
            self._replace(torch.nn.Module, name, often=True)
        for name in ("save", "load"):
            self._replace(torch, name, often=True)

    def restore(self) -> None:
        """Put the originals back."""
        self._replacements.restore()

    def closed(self) -> None:
        """Count the time of the stretch that has ended, if it began here."""
        if self._opened is not None:
            self._budget.count(time.perf_counter() - self._opened)
            self._opened = None

    def _replace(self, owner: Any, name: str, *, often: bool) -> None:
        tape = self._replacements.tape

        def make(original: Original) -> Original:
            @functools.wraps(original)
            def door(*args: Any, **kwargs: Any) -> Any:
                opens = self._opens(sys._getframe(1), often=often)
                if tape.active or not opens:
                    return original(*args, **kwargs)
                self._opened = time.perf_counter()
                self._on_opened()
                return getattr(owner, name)(*args, **kwargs)  # now heard like all calls

            return door

        self._replacements.replace(owner, name, make)

    def _opens(self, frame: types.FrameType, *, often: bool) -> bool:
        """Whether a call from `frame` opens: not one that PyTorch makes for a module's children.

        What replaces the same function while a stretch is recorded stands between.
        """
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
            frame = frame.f_back
        if frame.f_globals.get("__name__", "").startswith("torch."):
            return False
        place = id(frame.f_code), frame.f_lasti
        self._calls[place] += 1
        if self._calls[place] & (self._calls[place] - 1) == 0:
            return True
        return often and not self._budget.late()
