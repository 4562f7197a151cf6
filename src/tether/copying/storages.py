"""Copies many tensors at once, so that those on one storage are on one storage afterwards."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import NamedTuple

import torch

from tether.copying import pool, relation, steps, transfer
from tether.copying.intent import Intent, Refused, decide

_FOREACH_CLONE = getattr(torch, "_foreach_clone", None)  # torch >= 2.13
_device_of = operator.attrgetter("device")
_dtype_of = operator.attrgetter("dtype")
_nbytes_of = operator.attrgetter("nbytes")
_cdata_of = operator.attrgetter("_cdata")
_STORAGE_BYTES = torch.UntypedStorage.nbytes
_RESIZABLE = torch.UntypedStorage.resizable


class Group(NamedTuple):
    """Tensors that lie on the same memory; alone, it is one tensor."""

    members: list[torch.Tensor]
    alone: bool


def grouped(tensors: list[torch.Tensor]) -> list[Group]:
    """Return plain tensors by the memory they lie on, each group in the order met.

    Memory is one storage, or several that wrap the same foreign bytes (two `torch.from_numpy` of
    one array). Only a storage that cannot grow may wrap foreign bytes, so only those are compared
    by address.
    """
    by_storage: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
    foreign = [
        members for members in by_storage.values() if not members[0].untyped_storage().resizable()
    ]
    merged = _merge_overlapping(foreign) if len(foreign) > 1 else foreign
    kept = {id(members[0]) for members in foreign}
    lists = [members for members in by_storage.values() if id(members[0]) not in kept]
    return [Group(members, len(members) == 1) for members in lists + merged]


def _storage_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses where the storage of `tensor` begins and ends."""
    storage = tensor.untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    start = relation.data_address(whole)
    return start, start + storage.nbytes()


def _merge_overlapping(lists: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    ranges = sorted(
        ((str(m[0].device), *_storage_range(m[0]), i) for i, m in enumerate(lists)),
    )
    merged: list[list[torch.Tensor]] = []
    last_device, last_end = "", 0
    for device, start, end, index in ranges:
        if device == last_device and start < last_end and end > start:
            merged[-1].extend(lists[index])
            last_end = max(last_end, end)
        else:
            merged.append(list(lists[index]))
            last_device, last_end = device, end
    return merged


def apart(tensors: Iterable[torch.Tensor]) -> list[torch.UntypedStorage] | None:
    """Return the storages if each tensor has memory that no other has, as far as a glance tells.

    The storages are one object each as long as they are held, so `id` tells them apart.
    """
    try:
        found = list(map(torch.Tensor.untyped_storage, tensors))
    except (RuntimeError, NotImplementedError):
        return None
    if len(set(map(id, found))) < len(found) or list(map(_RESIZABLE, found)).count(False) > 1:
        return None
    return found


def all_small(found: list[torch.UntypedStorage]) -> bool:
    """Whether nothing on these storages is worth a block of the pool.

    A tensor that is expanded may be larger than its storage, and is then copied like a small one:
    slower at worst.
    """
    return max(map(_STORAGE_BYTES, found), default=0) < pool.SMALLEST


def copy_flat(tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    """Copy plain tensors that stay what they are, or return None: ask `copy_all`.

    The quick way for the commonest tree: nothing tied, nothing converted, gradients cut.
    """
    found = apart(tensors)
    if found is None:
        return None
    try:
        with torch.no_grad():
            usual = torch.autograd.forward_ad._current_level < 0 and not tensors[0].is_cuda
            if usual and all_small(found):
                return _small_clones(tensors)
            return _clones(tensors)
    except NotImplementedError:  # a nested tensor: it has a storage, and no clone in groups
        return None


def _clones(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Clone each on memory of its own: small ones in one call, large ones from the pool."""
    if torch.autograd.forward_ad._current_level >= 0:
        tensors = [x.detach() for x in tensors]  # no_grad does not cut forward gradients
    if len(tensors) > 1 and tensors[0].is_cuda and len(set(map(_device_of, tensors))) == 1:
        return transfer.fused_clones(tensors)
    sizes = list(map(_nbytes_of, tensors))
    if max(sizes) < pool.SMALLEST:
        return _small_clones(tensors)
    pooled_from = pool.SMALLEST if sum(sizes) >= pool.THRESHOLD else pool.THRESHOLD
    small = [index for index, size in enumerate(sizes) if size < pool.SMALLEST]
    clones = dict(zip(small, _small_clones([tensors[index] for index in small]), strict=True))
    return [
        clones[index] if index in clones else steps.own(x.detach(), pooled_from=pooled_from)
        for index, x in enumerate(tensors)
    ]


def _small_clones(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    if _FOREACH_CLONE is None:
        return [x.clone() for x in tensors]
    return list(_FOREACH_CLONE(tensors)) if tensors else []


def copy_all(tensors: list[torch.Tensor], intent: Intent) -> list[torch.Tensor]:
    """Copy plain, distinct tensors onto memory of their own, gradients cut, ties kept.

    A tensor alone on its storage gets just its own bytes; those that share one get a copy of the
    whole storage and lie on it as before. Raises `Refused` when a tie cannot survive what is
    asked (another memory format for views, another dtype for views of several dtypes).
    """
    made: dict[int, torch.Tensor] = {}
    alone: list[torch.Tensor] = []
    for group in grouped(tensors):
        if group.alone:
            alone += group.members
        else:
            for old, new in zip(group.members, _copy_group(group, intent), strict=True):
                made[id(old)] = new
    for old, new in zip(alone, _copy_alone(alone, intent), strict=True):
        made[id(old)] = new
    return [made[id(tensor)] for tensor in tensors]


def _copy_alone(tensors: list[torch.Tensor], intent: Intent) -> list[torch.Tensor]:
    if not tensors:
        return []
    plans = [plan_in_tree(x, intent) for x in tensors]
    if all(
        plan.memory_format == "preserve"
        and not plan.dtype
        and not plan.pinned
        and (not plan.device or plan.device == str(x.device))
        for plan, x in zip(plans, tensors, strict=True)
    ):
        with torch.no_grad():
            return _clones(tensors)
    if transfer.worthwhile(tensors, intent):
        return transfer.moved(tensors, plans)
    world = steps.world()
    return [
        steps.apply(decide(plan, steps.subject_of(x), None, world), x, plan)
        for x, plan in zip(tensors, plans, strict=True)
    ]


def plan_in_tree(x: torch.Tensor, intent: Intent) -> Intent:
    """Return what `intent` means for one tensor of a tree.

    As in `Module.to`, a floating dtype is for floating and complex tensors, and channels_last for
    those of its number of dimensions: counters, indices and vectors stay what they are.
    """
    dims = {"channels_last": 4, "channels_last_3d": 5}.get(intent.memory_format, x.dim())
    number = x.dtype.is_floating_point or x.dtype.is_complex
    target = getattr(torch, intent.dtype) if intent.dtype else x.dtype
    keeps_dtype = target == x.dtype or (target.is_floating_point and not number)
    if x.dtype.is_complex and target.is_floating_point:
        raise Refused(
            f"a complex tensor as {intent.dtype} would lose its imaginary part",
            "name a complex dtype, or copy the complex tensors apart",
        )
    return intent._replace(
        dtype="" if keeps_dtype else intent.dtype,
        memory_format=intent.memory_format if dims == x.dim() else "preserve",
        non_blocking=False,
    )


def _copy_group(group: Group, intent: Intent) -> list[torch.Tensor]:
    """Copy one storage and lay the members on the copy as they lay on the original."""
    plan = _one_plan(group, intent)
    target = getattr(torch, plan.dtype) if plan.dtype else None
    root, starts = _common_root(group.members)
    unit = group.members[0].dtype if target is not None else torch.uint8
    whole = torch.empty(0, dtype=unit, device=root.device).set_(root.untyped_storage())
    moves = plan.device and plan.device != str(root.device)
    if target is None and not moves and not intent.pinned:
        copied = steps.own(whole)
    elif transfer.worthwhile([whole], plan):
        (copied,) = transfer.moved([whole], [plan])
    else:
        step = decide(plan, steps.subject_of(whole), None, steps.world())
        copied = steps.apply(step, whole, plan)
    return [_laid(x, copied, start, target) for x, start in zip(group.members, starts, strict=True)]


def _one_plan(group: Group, intent: Intent) -> Intent:
    """Return the plan of all members, which must be one: they come to lie on one storage."""
    plans = {plan_in_tree(x, intent) for x in group.members}
    if any(plan.memory_format != "preserve" for plan in plans):
        raise Refused(
            "views of one storage cannot be put in another memory format and stay its views",
            "omit memory_format, or copy these tensors apart",
        )
    plan = next(iter(plans))
    if len(plans) > 1 or (plan.dtype and len(set(map(_dtype_of, group.members))) > 1):
        raise Refused(
            "views of one storage with several dtypes cannot be converted and stay its views",
            "omit dtype, or copy these tensors apart",
        )
    return plan


def _common_root(members: list[torch.Tensor]) -> tuple[torch.Tensor, list[int]]:
    """Return the member whose storage spans all, and each member's bytes from its beginning."""
    ranges = [_storage_range(x) for x in members]
    low, high = min(start for start, _ in ranges), max(end for _, end in ranges)
    for member, found in zip(members, ranges, strict=True):
        if found == (low, high):
            return member, [start - low for start, _ in ranges]
    raise Refused(
        "several storages wrap overlapping parts of the same foreign memory, none of them all of "
        "it",
        "put the tensor over all of it into the tree as well",
    )


def _laid(
    x: torch.Tensor, copied: torch.Tensor, start: int, target: torch.dtype | None
) -> torch.Tensor:
    """Return a tensor that lies on `copied` as `x` does on its own storage."""
    dtype = target or x.dtype
    if start % x.element_size():
        raise Refused("two storages wrap one foreign memory at odd distances", "copy them apart")
    offset = x.storage_offset() + start // x.element_size()
    new = torch.empty(0, dtype=dtype, device=copied.device)
    new.set_(copied.untyped_storage(), offset, x.shape, x.stride())
    new = new.data  # set_ moved the version counter
    if x.is_conj():
        new = torch._C._VariableFunctions._conj(new).data
    if x.is_neg():
        new = torch._neg_view(new).data
    return new


def keep_all(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copy plain, distinct tensors with gradients kept, ties kept. Raises `Refused`."""
    made: dict[int, torch.Tensor] = {}
    for group in grouped(tensors):
        if group.alone or not any(x.requires_grad for x in group.members):
            copies = [_kept(group.members[0])] if group.alone else _copy_group(group, Intent())
        else:
            copies = _keep_group(group.members)
        for old, new in zip(group.members, copies, strict=True):
            made[id(old)] = new
    return [made[id(tensor)] for tensor in tensors]


def _kept(x: torch.Tensor) -> torch.Tensor:
    if not x.requires_grad:
        made: torch.Tensor = steps.own(x)
        return made
    with torch.enable_grad():
        return x.clone()


def _keep_group(members: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copy the one tensor that all are views of, and take the same views of the copy."""
    base = _base_of(members)
    copied = _kept(base)
    shift = copied.storage_offset() - base.storage_offset()

    def laid(x: torch.Tensor) -> torch.Tensor:
        if x is base:
            return copied
        with torch.set_grad_enabled(x.requires_grad):
            view = copied.as_strided(x.shape, x.stride(), x.storage_offset() + shift)
        return view if x.requires_grad else view.detach()

    return [laid(x) for x in members]


def _base_of(members: list[torch.Tensor]) -> torch.Tensor:
    """Return the tensor whose differentiable copy can hold all members, or refuse."""
    roots = {id(root): root for root in (x if x._base is None else x._base for x in members)}
    differing = [root for root in roots.values() if root.requires_grad]
    if len(differing) > 1:
        raise Refused(
            "these tensors share memory and not their gradient graph: no differentiable copy "
            "shares memory in the same way",
            'use grad="cut", or copy them apart',
        )
    base = (differing or list(roots.values()))[0]
    if not _holds_all(base, members):
        raise Refused(
            "the tensor they are views of has gaps or other dtypes: a differentiable copy cannot "
            "lie the same way",
            'use grad="cut", or copy them apart',
        )
    return base


def _holds_all(base: torch.Tensor, members: list[torch.Tensor]) -> bool:
    """Whether all members lie within a tensor without gaps, and have its dtype."""
    whole = relation.layout_of(base)
    if not whole.dense or any(x.dtype != base.dtype for x in members):
        return False
    layouts = map(relation.layout_of, members)
    return all(whole.start <= one.start and one.end <= whole.end for one in layouts)
