"""What no function mode hears: PyTorch's own entry points, replaced while recording.

Each replacement calls the original and tells the listener of its thread what happened. All of
them are put back when the recording ends, whatever ended it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tether.record.compiled import Compiled
from tether.record.listener import Listener
from tether.record.patches import (
    arrays,
    collectives,
    constructors,
    debuggers,
    engine,
    functional,
    hooks,
    modes,
    processes,
    rebinding,
    scripted,
    shallow_copies,
    tensors,
)
from tether.record.patches.module_modes import ModuleModes
from tether.record.patches.optimizers import Optimizers
from tether.record.patches.replacing import Replacements
from tether.record.recorder import Recorder

if TYPE_CHECKING:
    from tether.record.processes.children import Children


class Patches:
    """All replacements of one recording; `install` and `restore` are each called once."""

    def __init__(
        self,
        recorder: Recorder,
        listen: Callable[[], Listener],
        children: Children | None = None,
        *,
        eager: bool = False,
    ) -> None:
        self._recorder = recorder
        self._children = children
        self._listen = listen  # makes the listener of the current thread
        self._replacements = Replacements(recorder.tape)
        self.optimizers = Optimizers(self._replacements, recorder)
        self._replacements.on_suspend = self.optimizers.unhook
        self._replacements.on_resume = self.optimizers.hook
        self._compiled = Compiled(
            recorder.tape, self._replacements.suspended, recorder.functions, eager=eager
        )

    def install(self) -> None:
        """Put every replacement in place."""
        tensors.install(self._replacements, self._recorder)
        constructors.install(self._replacements)
        arrays.install(self._replacements, self._recorder.array_calls, self._recorder.same.listed)
        engine.install(self._replacements, self._recorder, self._listen)
        self.optimizers.install()
        rebinding.install(self._replacements, self._recorder)
        hooks.install(self._replacements, self._recorder)
        ModuleModes(self._replacements).install()
        functional.install(self._replacements)
        modes.install(self._replacements, self._listen)
        scripted.install(self._replacements)
        processes.install(self._replacements, self._recorder, self._children)
        collectives.install(self._replacements)
        debuggers.install(self._replacements)
        self._recorder.mapped_files.install(self._replacements)
        self._recorder.packing.install(self._replacements)
        self._recorder.others.install(self._replacements)
        shallow_copies.install(self._replacements, self._recorder.shallow_copies)
        self._recorder.checkpoints.install(self._replacements)
        self._compiled.install()

    def in_child(self) -> None:
        """Take a lock of its own in a forked process, where another thread may have held it."""
        self._replacements.lock = threading.RLock()

    def restore(self) -> None:
        """Put every original back."""
        self._compiled.restore()
        self._replacements.restore()
