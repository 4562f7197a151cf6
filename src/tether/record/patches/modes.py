"""Modes and threads: inference mode, new threads, and whoever asks whether a mode is on."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from tether.facts import INFERENCE, ON
from tether.record import warning_levels
from tether.record.listener import Listener
from tether.record.mode_stack import muted, off_the_stack, push, remove
from tether.record.patches.optimizers import unheard
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here

__tracebackhide__ = True

_TRACED = "torch.jit.trace"


def install(replacements: Replacements, listen: Callable[[], Listener]) -> None:
    """Put the replacements in place; `listen` makes the listener of the current thread."""
    replace = replacements.replace
    mode = torch.autograd.grad_mode.inference_mode
    for name, entering in (("__enter__", True), ("__exit__", False)):
        replace(mode, name, functools.partial(_switch, replacements, entering))
    # Another thread may start just then: it would never be heard.
    replace(
        threading.Thread,
        "_bootstrap_inner",
        functools.partial(_bootstrap, replacements, listen),
        lasting=True,
    )
    _answer_whether_a_mode_is_on(replacements)
    _leave_tracers_alone(replacements)
    apply = warning_levels.replace()
    if apply is not None:  # warnings that count frames upwards name the line they would have named
        replacements.reversible(apply)


def _switch(replacements: Replacements, entering: bool, original: Original) -> Original:
    tape = replacements.tape

    @functools.wraps(original)
    def switch(mode: Any, *args: Any) -> Any:
        result = original(mode, *args)
        listener = replacements.listener()
        if listener is not None:
            with muted(listener):
                place = tape.places.user_place(here(2))
                site = listener.definition_or(place[0]) if entering else place[0]
                flags = INFERENCE if torch.is_inference_mode_enabled() else 0
                flags = flags or (ON if torch.is_grad_enabled() else 0)
                listener.note("set_grad_enabled", (site, place[1]), flags=flags)
        return result

    return switch


def _bootstrap(
    replacements: Replacements, listen: Callable[[], Listener], original: Original
) -> Original:
    tape = replacements.tape

    def _bootstrap_inner(thread: threading.Thread) -> Any:
        if not tape.active and tape.ear is None:
            return original(thread)
        listener = listen()
        push(listener)
        try:
            return original(thread)
        finally:
            remove(listener)

    return _bootstrap_inner


def _leave_tracers_alone(replacements: Replacements) -> None:
    """Leave TorchScript's tracer alone: whatever asks a tensor its shape ends in its graph."""
    module = torch.jit._trace
    for owner, name in (
        (module, "_trace_impl"),
        (module, "_get_trace_graph"),
        (module, "trace_module"),
        (torch.jit, "trace_module"),
    ):
        if hasattr(owner, name):
            make = functools.partial(unheard, replacements, gap=_TRACED)
            replacements.replace(owner, name, make)


def _answer_whether_a_mode_is_on(replacements: Replacements) -> None:
    """Let attention keep its fused kernels: the recorder is no reason to leave them."""

    def make(original: Original) -> Original:
        @functools.wraps(original)
        def has_torch_function(args: Any) -> bool:
            listener = replacements.listener()
            if listener is None or torch._C._len_torch_function_stack() != 1:
                return bool(original(args))
            with off_the_stack(listener):
                return bool(original(args))

        return has_torch_function

    if not replacements.replace(torch.overrides, "has_torch_function", make):
        return
    builtins = getattr(torch.jit._builtins, "_get_builtin_table", None)
    if builtins is None:
        replacements.unknown("torch.jit._builtins._get_builtin_table")
        return
    # TorchScript knows the original by identity.
    known: dict[int, str] = builtins()
    replaced = id(torch.overrides.has_torch_function)

    def apply() -> Callable[[], None]:
        known[replaced] = "aten::has_torch_function"
        return lambda: known.__delitem__(replaced)

    replacements.reversible(apply)
