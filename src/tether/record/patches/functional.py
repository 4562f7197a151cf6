"""Modules called with tensors for parameters: those given by names that the module has not."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import torch
from torch.nn.utils import stateless

from tether.facts import Moment, SiteId, TensorId, Unmatched
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here

__tracebackhide__ = True

_CALL = "_functional_call"
"""PyTorch's function behind `torch.func.functional_call` and the older way to call it."""

MOST_KEYS = 8
"""Names that a fact keeps."""


def install(replacements: Replacements) -> None:
    """Hear of such calls; the names are compared at the 1st, 2nd, 4th, 8th... call of a line."""
    calls: Counter[int] = Counter()  # by site
    replacements.replace(stateless, _CALL, functools.partial(_heard, replacements, calls))


def _heard(replacements: Replacements, calls: Counter[int], original: Original) -> Original:
    tape = replacements.tape

    @functools.wraps(original)
    def functional_call(module: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
        listener, fact = replacements.listener(), None
        if listener is not None:
            with muted(listener):
                site = tape.places.user_place(here(2))[0]
                calls[site] += 1
                if calls[site] & (calls[site] - 1) == 0:
                    fact = _unmatched(replacements, module, given, site)
        result = original(module, given, *args, **kwargs)
        if fact is not None:
            tape.unmatched.append(fact._replace(until=Moment(tape.now())))
        return result

    return functional_call


def _unmatched(
    replacements: Replacements, module: torch.nn.Module, given: dict[str, Any], site: int
) -> Unmatched | None:
    """Return which of the given names a module has not; None where it has all."""
    tape = replacements.tape
    own = (module.named_parameters, module.named_buffers)
    names = {name for known in own for name, _ in known(remove_duplicate=False)}
    lost = {key: one for key, one in given.items() if key not in names}
    if not lost:
        return None
    tensors = [one for one in lost.values() if isinstance(one, torch.Tensor)]
    return Unmatched(
        Moment(tape.now()),
        Moment(tape.now()),
        SiteId(site),
        type(module).__name__,
        tuple(lost)[:MOST_KEYS],
        tuple(TensorId(tape.who.serial(one)) for one in tensors),
        len(given),
    )
