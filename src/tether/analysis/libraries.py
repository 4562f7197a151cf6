"""Which package's own lines made the calls that a line of the program led to."""

from __future__ import annotations

import re
from collections import defaultdict

from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Site
from tether.operations.table import operation

_OF_MODULES = "torch.nn.modules.module"
_INSTALLED = re.compile(r"(?:site|dist)-packages[/\\\\]")
_PACKAGE = re.compile(r"(?:site|dist)-packages[/\\\\]([^/\\\\]+)")


class Libraries:
    """The packages whose lines called an operation, by the program's line that led there."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._found: dict[tuple[tuple[str, int, int, int, int], str], dict[str, None]]
        self._found = defaultdict(dict)
        for _, event in history.events.at(history.first_of_lines):
            key = history.site_of(event).position, event.operation
            self._found[key].setdefault(self._package(event))

    def at(self, site: Site, operation: str) -> list[str]:
        """Return the packages at a line; "" stands for the program itself, and for PyTorch.

        To call PyTorch is to ask for what it does: its own lines are part of the call.
        """
        return list(self._found.get((site.position, operation), {"": None}))

    def _package(self, event: Event) -> str:
        found = package_of(self._history, event)
        return "" if found == "torch" else found


def package_of(history: History, event: Event) -> str:
    """Return the package whose own line made a call; "" for the program."""
    if event.inner in (UNKNOWN, event.site):
        return ""
    inner = history.site(event.inner)
    found = None if inner.user else _PACKAGE.search(inner.file)
    return found[1] if found else ""


def made_by(history: History, event: Event, module: str, function: str = "") -> bool:
    """Whether a line of an installed module made a call: in one function of it, if that is given.

    A module within the named one counts: `torch.distributions.normal` is `torch.distributions`.
    """
    inner = history.site(event.inner)
    own = "" if inner.user else _module_of(inner.file)
    return f"{own}.".startswith(f"{module}.") and function in ("", inner.function)


def _module_of(file: str) -> str:
    """Return the name by which an installed file is imported: `torch.nn.modules.module`."""
    path = _INSTALLED.split(file)[-1]
    return path.removesuffix(".py").replace("\\", ".").replace("/", ".")


def hands_out_state(history: History, event: Event) -> bool:
    """Whether `Module.state_dict` made a call, by whatever name the program called it."""
    return made_by(history, event, _OF_MODULES, "Module._save_to_state_dict")


def takes_state_in(history: History, event: Event) -> bool:
    """Whether `Module.load_state_dict` made a call, by whatever name the program called it."""
    return made_by(history, event, _OF_MODULES, "Module._load_from_state_dict")


def scaled_by_library(history: History, event: Event) -> bool:
    """Whether a library's own line wrote (a clipping), and left something of the old values."""
    return bool(package_of(history, event)) and not operation(event.operation).overwrites
