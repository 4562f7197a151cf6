"""Copies of objects that leave their tensors where they are: `copy.copy`, `dataclasses.replace`."""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any

from tether.record.mode_stack import muted
from tether.record.names.shallow_copies import ShallowCopies, can_be_followed
from tether.record.patches.replacing import Original, Replacements

__tracebackhide__ = True


def install(replacements: Replacements, copies: ShallowCopies) -> None:
    """Hear of the copies that the program's own lines make."""

    def make(original: Original) -> Original:
        @functools.wraps(original)
        def copying(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            given = args[0] if args else None
            if type(made) is type(given) and made is not given and can_be_followed(made):
                listener = replacements.listener()
                if listener is not None:
                    with muted(listener):
                        copies.copied(given, made)
            return made

        return copying

    for owner, name in ((copy, "copy"), (dataclasses, "replace")):
        replacements.replace(owner, name, make)
