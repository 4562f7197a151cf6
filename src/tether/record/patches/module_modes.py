"""Modules that are put into training or evaluation mode."""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from typing import Any

import torch

from tether.facts import ModeSwitch, Moment, SiteId, TensorId
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here

__tracebackhide__ = True

MOST_SWITCHES = 4096
"""After so many nothing is said of any: what is switched so often is switched back as well."""


class ModuleModes:
    """Hears of the calls of `train` and `eval` that the program makes, not of those within."""

    def __init__(self, replacements: Replacements) -> None:
        self._replacements = replacements
        self._tape = replacements.tape
        self._within = threading.local()
        self._tables: dict[tuple[TensorId, ...], tuple[TensorId, ...]] = {}
        self._full = False
        self._reads_mode: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        """Put the replacements in place."""
        for name in ("train", "eval"):
            self._replacements.replace(torch.nn.Module, name, self._switching)

    def _switching(self, original: Original) -> Original:
        @functools.wraps(original)
        def switch(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._within, "call", False):
                return original(module, *args, **kwargs)
            self._within.call = True
            try:
                result = original(module, *args, **kwargs)
            finally:
                self._within.call = False
            listener = None if self._full else self._replacements.listener()
            if listener is not None:
                with muted(listener):
                    self._note(module, self._tape.places.user_place(here(2))[0])
            return result

        return switch

    def _note(self, module: torch.nn.Module, site: int) -> None:
        tape, facts = self._tape, self._tape.mode_switches
        serials = self._serials(module, recurse=True)
        serials = self._tables.setdefault(serials, serials)  # thousands of switches share one
        kinds = tuple(self._depend_on_mode(module))
        apart = [one for one in module.modules() if one.training != module.training]
        fact = ModeSwitch(
            Moment(tape.now()), SiteId(site), module.training, serials, kinds,
            itself=self._depends_on_mode(module),
            apart=tuple(serial for one in apart for serial in self._serials(one)),
        )  # fmt: skip
        facts.append(fact)
        if len(facts) > MOST_SWITCHES:
            facts.clear()
            self._full = True

    def _serials(self, module: torch.nn.Module, *, recurse: bool = False) -> tuple[TensorId, ...]:
        """Return the numbers of a module's parameters and buffers."""
        own = (*module.parameters(recurse), *module.buffers(recurse))
        return tuple(TensorId(self._tape.who.serial(one)) for one in own)

    def _depend_on_mode(self, module: torch.nn.Module) -> dict[str, None]:
        """Return the classes of the modules in one that compute otherwise in training, in order."""
        return {type(one).__name__: None for one in module.modules() if self._depends_on_mode(one)}

    def _depends_on_mode(self, module: torch.nn.Module) -> bool:
        """Whether the forward of a module reads its mode, and what it may do then is not nothing.

        A dropout of 0 drops nothing (`p` of `nn.Dropout`, `dropout` of attention and recurrent
        layers), and a norm that keeps no statistics computes them in both modes.
        """
        kind = type(module)
        if kind not in self._reads_mode:
            self._reads_mode[kind] = _names_mode(kind.forward)
        own = module.__dict__
        rate = own.get("p", own.get("dropout"))
        keeps = own.get("track_running_stats", True)
        nothing = isinstance(rate, float | int) and rate == 0
        return self._reads_mode[kind] and bool(keeps) and not nothing


def _names_mode(forward: Any) -> bool:
    """Whether the code of a forward has ``training`` in it."""
    code = getattr(inspect.unwrap(forward), "__code__", None)
    return code is not None and "training" in code.co_names
