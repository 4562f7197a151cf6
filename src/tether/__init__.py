"""The ties of PyTorch tensors: the memory they share and the gradient graph they are part of.

``import tether`` imports neither torch nor anything heavy: each public name is loaded when it is
first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Public name -> (module, attribute); an attribute of "" means the module itself.
_PUBLIC: dict[str, tuple[str, str]] = {
    "copy": ("tether.live.copying", "copy"),
    "plan": ("tether.live.copying", "plan"),
    "Snapshot": ("tether.live.snapshot", "Snapshot"),
    "pool": ("tether.live.pool", ""),
    "relate": ("tether.live.relating", "relate"),
    "describe": ("tether.live.relating", "describe"),
    "why": ("tether.live.asking", "why"),
    "record": ("tether.api", "record"),
    "unchanged": ("tether.live.guarding", "unchanged"),
    "load": ("tether.report.loading", "load"),
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
