"""Parameters, buffers and modules that give up their place in a module to others.

What a place showed, and by which other names it was reached, has to be known before it goes: names
are looked for at the first replacement that each line of the program makes. Of a line that asks for
what a module holds it is known that it ran: a loop over that may make no other call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as modules

from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.recorder import Recorder
from tether.record.sites import here

__tracebackhide__ = True


def install(replacements: Replacements, recorder: Recorder) -> None:
    """Hear of them, where the installed PyTorch tells."""
    seen: set[int] = set()  # sites
    for kind in ("parameter", "buffer", "module"):
        name = f"register_module_{kind}_registration_hook"
        register = getattr(modules, name, None)
        if register is None:
            replacements.unknown(f"torch.nn.modules.module.{name}")
            continue
        _hear(replacements, recorder, register, f"_{kind}s", seen)
    for name in ("parameters", "named_parameters", "buffers", "named_buffers"):
        replacements.replace(torch.nn.Module, name, functools.partial(_asking, replacements))


def _asking(replacements: Replacements, original: Original) -> Original:
    places = replacements.tape.places

    @functools.wraps(original)
    def asked(*args: Any, **kwargs: Any) -> Any:
        frame = here(2)
        known = None if frame is None else places.of_code(frame.f_code)
        if frame is not None and known is not None and known.user and replacements.listener():
            places.add(known, frame.f_lasti, frame)
        return original(*args, **kwargs)

    return asked


def _hear(
    replacements: Replacements,
    recorder: Recorder,
    register: Callable[[Any], Any],
    table: str,
    seen: set[int],
) -> None:
    def registered(owner: torch.nn.Module, name: str, new: Any) -> None:
        old = owner.__dict__.get(table, {}).get(name)
        listener = replacements.listener() if old is not None and old is not new else None
        if listener is None:
            return
        with muted(listener):
            site = replacements.tape.places.user_place(here(2))[0]
            if site not in seen:
                seen.add(site)
                # A function that is at work on a model calls it by passing names of its own.
                recorder.naming.search_now(here(2), from_outside=True)
                if not recorder.naming.knows(old):
                    recorder.naming.search_now(here(2))
            recorder.reassigned.given(owner, name, old, new, site)

    def apply() -> Callable[[], None]:
        remove: Callable[[], None] = register(registered).remove
        return remove

    replacements.reversible(apply)
