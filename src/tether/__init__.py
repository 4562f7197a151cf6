"""The ties of PyTorch tensors: the memory they share and the gradient graph they are part of.

``import tether`` imports neither torch nor anything heavy: each public name is loaded when it is
first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

# Public name -> (module, attribute); an attribute of "" means the module itself.
_PUBLIC: dict[str, tuple[str, str]] = {
    "copy": ("tether.copying.copy", "copy"),
    "plan": ("tether.copying.copy", "plan"),
    "Snapshot": ("tether.copying.snapshot", "Snapshot"),
    "pool": ("tether.copying.pool", ""),
    "relate": ("tether.copying.relation", "relate"),
    "describe": ("tether.copying.relation", "describe"),
    "why": ("tether.copying.why_live", "why"),
    "record": ("tether.api", "record"),
    "unchanged": ("tether.record.unchanged", "unchanged"),
    "load": ("tether.report.recording", "load"),
    "testing": ("tether.testing", ""),
}

__all__ = [*_PUBLIC, "__version__"]  # noqa: PLE0604 -- the table above is the list


def __getattr__(name: str) -> Any:
    try:
        module_name, attribute = _PUBLIC[name]
    except KeyError:
        raise AttributeError(f"module 'tether' has no attribute {name!r}") from None
    module = importlib.import_module(module_name)
    value = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Do what ``%load_ext tether`` asks for: add ``%%tether`` to the shell."""
    importlib.import_module("tether.notebook").load(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Whoever imports something of the room `tether.record` must not hide `record` from users.
        if not (name == "record" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
