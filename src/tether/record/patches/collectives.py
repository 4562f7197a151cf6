"""What processes send each other: the collectives of `torch.distributed`, which no mode hears."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed

from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here

__tracebackhide__ = True

# How the signature of a collective begins, which PyTorch writes into its documentation: a first
# parameter of tensors, and where the results have one of their own a second.
_FIRST = re.compile(
    r"\(self: [^,)]*ProcessGroup, (?P<first>\w+): [^:]*torch\.Tensor\]*, (?P<second>\w+):"
    r".*-> c10d::Work"
)


def install(replacements: Replacements) -> None:
    """Put the replacements in place, where this PyTorch has `torch.distributed`."""
    if not torch.distributed.is_available():
        return
    joined = replacements.telling(functools.partial(_joined, replacements))
    for module in (torch.distributed, torch.distributed.distributed_c10d):
        replacements.replace(module, "init_process_group", joined)
    group = torch._C._distributed_c10d.ProcessGroup
    for name, method in list(vars(group).items()):
        first = _FIRST.search(getattr(method, "__doc__", None) or "")
        if first is not None:
            replacements.replace(
                group, name, functools.partial(_sending, replacements, name, first)
            )


def _joined(replacements: Replacements, *_: Any) -> None:
    """Note which rank this process is."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    tape = replacements.tape
    tape.process = tape.process._replace(rank=rank, ranks=ranks)


def _sending(
    replacements: Replacements, name: str, first: re.Match[str], original: Original
) -> Original:
    """Tell of a collective: what it read, and into which tensors it put what came.

    Their versions do not tell: of some collectives they move, of others they do not. From 2.12 on
    a mode hears most of them as the program wrote them, and is told only what was written.
    """
    tape = replacements.tape

    @functools.wraps(original)
    def method(group: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            work = original(group, *args, **kwargs)
        except Exception as error:
            replacements.refused(original, error, args)
            raise
        listener = replacements.listener()
        if listener is not None:
            with muted(listener):
                reads, writes = _operands(name, first, group, args)
                place = tape.places.user_place(here(2))
                listener.note(name, place, reads, writes=writes)
        elif tape.active:
            tape.received.update((id(one), one) for one in _operands(name, first, group, args)[1])
        return work

    return method


def _operands(
    name: str, first: re.Match[str], group: Any, args: tuple[Any, ...]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the tensors that a collective reads, and those that it fills."""
    tensors, more = list(_tensors(args[:1])), args[1:]
    if first["first"].startswith("output"):
        return list(_tensors(more[:1])), tensors
    if first["second"].startswith("dst") or _is_root(name, group, more):
        return tensors, []
    return tensors, tensors


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in lists of lists."""
    for one in values:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from _tensors(one)


def _is_root(name: str, group: Any, more: tuple[Any, ...]) -> bool:
    """Whether it is this process whose values all others get."""
    root = getattr(more[0], "rootRank", None) if name == "broadcast" and more else None
    return root is not None and bool(root == group.rank())
