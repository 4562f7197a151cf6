"""`tether.copy`: the copy that is meant, of one tensor or of anything that holds tensors."""

from __future__ import annotations

import operator
import sys
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from tether.copying import numpy_bridge, pool, refresh, steps, storages, threads, trees
from tether.copying.intent import Intent, Plan, Refused, check_words, decide

_Tensor = torch.Tensor
_requires_grad = operator.attrgetter("requires_grad")
_PEEK = torch._C._functorch.maybe_current_level  # None outside of torch.func transforms
_FORWARD = torch.autograd.forward_ad
_SMALL = threads.THRESHOLD
_PLAINEST = Intent()
_POOLED = pool.THRESHOLD
_SMALL_ARRAY = 128 << 10  # bytes; above, PyTorch copies on several threads
_Device = str | int | torch.device | None
_Dtype = str | torch.dtype | None


class TreePlan(NamedTuple):
    """What `copy` does with the tensors of a tree; printed, it is a few lines."""

    tensors: int
    groups: int  # pieces of memory that several of them lie on
    nbytes: int  # of all tensors together
    passed: tuple[str, ...]  # kinds of objects that both trees will hold
    plans: tuple[tuple[str, Plan], ...]  # path of the tensor, what is done with it

    def __str__(self) -> str:
        size = f"{self.tensors} tensors, {self.nbytes} bytes"
        lines = [f"{size}; {self.groups} pieces of memory are under several: ties are kept"]
        alike: dict[Plan, list[str]] = {}
        for path, plan in self.plans:
            alike.setdefault(plan, []).append(path)
        for plan, names in alike.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            lines.append(f"{names[0]}{more}: {plan}")
        if self.passed:
            lines.append("shared by both: " + ", ".join(self.passed))
        return "\n".join(lines)


def copy(
    obj: Any,
    /,
    *,
    memory: str = "own",
    grad: str = "cut",
    device: _Device = None,
    dtype: _Dtype = None,
    memory_format: str | torch.memory_format = "preserve",
    to: str = "torch",
    pinned: bool = False,
    non_blocking: bool = False,
    dense: bool = False,
    readonly: bool = False,
    out: Any = None,
    objects: str = "copy",
    share_types: tuple[type, ...] = (),
    explain: bool = False,
) -> Any:
    """Return a copy of `obj`, a tensor or anything that holds tensors, with exactly these ties.

    - `memory`: "own" is bytes of its own; "share" the source's bytes, or an error that says why
    - `grad`: "cut", no gradient flows to the source; "keep", it does
    - `device`, `dtype`, `memory_format`: as for `Tensor.to`; integers in a tree stay integers
    - `to`: "torch", "numpy" or "dlpack"
    - `pinned`: page-locked host memory
    - `non_blocking`: returns a `Pending`, whose `wait()` returns the copy when it is complete
    - `dense`: a sparse tensor may become dense
    - `readonly`: the NumPy array refuses writes
    - `out`: a copy made before, which is refreshed in place and returned
    - `objects`: "copy", what is no tensor is copied deeply; "share", objects without tensors are
      passed through
    - `share_types`: objects of these types are passed through
    - `explain`: prints the plan first

    One plain tensor comes back as one that requires no grad; within a tree, and for a Parameter,
    a leaf that requires grad stays such a leaf. The source's values, gradient, hooks and version
    are not touched. Raises `tether.copying.intent.Refused`, a `ValueError`, when no copy can be
    as asked.
    """
    if (
        type(obj) is _Tensor
        and memory == "own"
        and grad == "cut"
        and device is dtype is out is None
        and memory_format == "preserve"
        and objects == "copy"
        and not (pinned or non_blocking or explain or readonly)
        and _PEEK() is None
        and _FORWARD._current_level < 0
    ):
        # What `decide` says for this intent, without asking: detach if there is a graph, clone.
        try:
            if to == "torch" and not obj.__dict__:
                return _values(obj)
            if to == "numpy":
                if obj.nbytes < _SMALL_ARRAY:  # NumPy allocates these quicker
                    return obj.numpy(force=True).copy("K")  # force: detach, resolve, in one call
                if obj.is_cpu:
                    return _values(obj).numpy()
        except (RuntimeError, TypeError):
            pass  # a layout without nbytes, a dtype or bit that NumPy lacks: ask after all
    intent = Intent(
        memory=memory,
        grad=grad,
        device=_device_name(device),
        dtype=_dtype_name(dtype),
        memory_format=_format_name(memory_format),
        to=to,
        pinned=pinned,
        non_blocking=non_blocking,
        dense=dense,
        readonly=readonly,
        out=out is not None,
    )
    _check(intent, objects)
    if explain:
        print(_planned(obj, intent, out, share_types), file=sys.stderr)  # noqa: T201 -- asked for
    if isinstance(obj, _Tensor) or numpy_bridge.is_plain_array(obj):
        return _copy_one(obj, intent, out)
    return _copy_tree(obj, intent, out, objects, share_types)


def _values(x: torch.Tensor) -> torch.Tensor:
    """Return the values of a plain tensor on memory of their own, gradient cut."""
    source = x.detach() if x.requires_grad else x
    nbytes = source.nbytes
    if nbytes < _SMALL:
        return source.clone()
    if nbytes < _POOLED and source.is_cpu:
        return threads.paced(source.clone, nbytes)
    return steps.own(source)


def plan(obj: Any, /, **options: Any) -> Plan | TreePlan:
    """Return what `copy(obj, **options)` would do, without doing it. Print it to read it.

    Raises `tether.copying.intent.Refused` where `copy` would, and TypeError for what it does not
    know.
    """
    out = options.pop("out", None)
    share_types = options.pop("share_types", ())
    objects = options.pop("objects", "copy")
    options.pop("explain", None)
    unknown = options.keys() - Intent._fields
    if unknown:
        raise TypeError(f"plan() got an unexpected keyword argument {min(unknown)!r}")
    options["device"] = _device_name(options.get("device"))
    options["dtype"] = _dtype_name(options.get("dtype"))
    options["memory_format"] = _format_name(options.get("memory_format", "preserve"))
    intent = Intent(**options, out=out is not None)
    _check(intent, objects)
    return _planned(obj, intent, out, share_types)


def _device_name(device: _Device) -> str:
    if device is None or device == "":
        return ""
    found = torch.device(device)
    if found.type != "cpu" and found.index is None and found.type != "meta":
        module = getattr(torch, found.type, None)
        index = module.current_device() if module is not None and module.is_available() else 0
        return f"{found.type}:{index}"
    return found.type if found.type == "cpu" else str(found)


def _dtype_name(dtype: _Dtype) -> str:
    if dtype is None or dtype == "":
        return ""
    name = dtype if isinstance(dtype, str) else steps.dtype_name(dtype)
    name = name.removeprefix("torch.")
    if not isinstance(getattr(torch, name, None), torch.dtype):
        raise ValueError(f"dtype={dtype!r} is no dtype of torch")
    return steps.dtype_name(getattr(torch, name))


def _format_name(memory_format: str | torch.memory_format) -> str:
    return str(memory_format).removeprefix("torch.").removesuffix("_format")


def _check(intent: Intent, objects: str) -> None:
    check_words(intent)
    if intent.to not in {"torch", "numpy", "dlpack"}:
        raise ValueError(f"to={intent.to!r} is not known; it is one of torch, numpy, dlpack")
    if objects not in {"copy", "share"}:
        raise ValueError(f"objects={objects!r} is not known; it is copy or share")


def _decided(x: torch.Tensor, intent: Intent, out: Any, readonly: bool = False) -> Plan:
    target = None if out is None else steps.target_of(out, x)
    return decide(intent, steps.subject_of(x, readonly), target, steps.world())


def _decided_one(obj: Any, intent: Intent, out: Any) -> tuple[torch.Tensor, Plan]:
    """Return the tensor that a lone tensor or array is copied as, and the plan for it."""
    readonly = numpy_bridge.is_readonly(obj)
    x = numpy_bridge.tensor_on(numpy_bridge.copyable(obj, intent.memory))
    return x, _decided(x, intent, out, readonly)


def _decided_in_tree(x: torch.Tensor, intent: Intent, out: Any = None) -> Plan:
    in_tree = storages.plan_in_tree(x, intent)._replace(non_blocking=intent.non_blocking)
    return _decided(x, in_tree, out)


def _planned(obj: Any, intent: Intent, out: Any, share_types: tuple[type, ...]) -> Plan | TreePlan:
    if isinstance(obj, _Tensor) or numpy_bridge.is_plain_array(obj):
        return _decided_one(obj, intent, out)[1]
    found = trees.find(obj, share_types)
    names = trees.paths(obj)
    plain = [x for x in found.tensors if steps.is_plain(x)]
    targets: list[Any] = [None] * len(found.tensors)
    if intent.out:
        _refuse_for_out(intent)
        refresh.pair(obj, out, found, share_types)
        targets = trees.find(out, share_types).tensors
    return TreePlan(
        tensors=len(found.tensors),
        groups=sum(not group.alone for group in storages.grouped(plain)),
        nbytes=sum(x.nbytes for x in plain),
        passed=tuple(sorted({type(item).__name__ for item in found.passed})),
        plans=tuple(
            (names.get(id(x), "?"), _decided_in_tree(x, intent, target))
            for x, target in zip(found.tensors, targets, strict=True)
        ),
    )


def _copy_one(obj: Any, intent: Intent, out: Any) -> Any:
    x, decided = _decided_one(obj, intent, out)
    made = steps.apply(decided, x, intent, out)
    plain = type(x) is _Tensor and not x.__dict__
    if intent.to != "torch" or intent.out or plain or not isinstance(made, _Tensor):
        return made
    new = dressed(made, x, intent.grad)
    if type(x) is _Tensor and intent.grad != "keep":
        new.requires_grad_(False)  # a plain tensor is a value, not the state of something
    _attach([x], [new], {id(x): new})
    return new


def dressed(new: torch.Tensor, old: torch.Tensor, grad: str) -> torch.Tensor:
    """Return `new` as what `old` is: its class, and a leaf that requires grad if it is one.

    A tensor that keeps its gradient is no leaf, and a Parameter is always one: it comes back as
    the plain tensor that `Parameter.clone()` gives.
    """
    # Within a torch.func transform nothing is a leaf, whatever the wrapped tensor says.
    wants = old.requires_grad and old.is_leaf and _PEEK() is None
    if grad == "keep" and old.requires_grad:
        return new
    cls = type(old)
    if cls is torch.nn.Parameter:
        return torch.nn.Parameter(new, requires_grad=old.requires_grad)
    if cls is not type(new) and steps.is_plain(old):
        made: torch.Tensor = _Tensor._make_subclass(cls, new, wants)
        return made
    return new.requires_grad_() if wants else new


def _copy_tree(
    obj: Any, intent: Intent, out: Any, objects: str, share_types: tuple[type, ...]
) -> Any:
    quick = _copied_flat(obj) if intent == _PLAINEST else None
    if quick is not None:
        return quick
    found = trees.find(obj, share_types)
    if intent.out:
        _refuse_for_out(intent)
        refresh.refresh(obj, out, found, share_types)
        return steps.Pending(out) if intent.non_blocking else out
    if intent.to == "numpy":
        _refuse_for_numpy(obj, found, intent)
    copies = _copied(found, intent)
    if found.flat:
        result = trees.rebuild_flat(obj, found, copies)
    else:
        memo = dict(zip(map(id, found.tensors), copies, strict=True))
        memo |= {id(item): item for item in found.passed}
        if objects == "share":
            memo |= {id(x): x for x in trees.without_tensors(obj, found, share_types)}
        result = _rebuilt(obj, found, copies, memo)
    return steps.Pending(result) if intent.non_blocking else result


def _copied_flat(obj: Any) -> Any:
    """Return the copy of a container of nothing but plain tensors apart, None for others."""
    values = trees.plain_values(obj)
    made = storages.copy_flat(list(values)) if values else None
    if not values or made is None:
        return None
    _require_grad(values, made)
    return trees.filled(obj, made)


def _rebuilt(obj: Any, found: trees.Found, copies: list[Any], memo: dict[int, Any]) -> Any:
    """Return the copy of a tree around the copies of its tensors."""
    for item in found.deaf:  # before a deepcopy of what holds them meets them
        trees.rebuild(item, memo)
    result = trees.rebuild(obj, memo)
    _attach(found.tensors, copies, memo)
    return result


def _refuse_for_out(intent: Intent) -> None:
    if intent._replace(out=False, non_blocking=False) != Intent():
        raise Refused(
            "a refreshed tree keeps its own dtypes, devices and kinds of memory",
            "give copy(tree, out=previous) no other option",
        )


def _refuse_for_numpy(obj: Any, found: trees.Found, intent: Intent) -> None:
    if intent.device not in {"", "cpu"} and intent.memory == "own":
        raise Refused("NumPy lives in host memory", 'use device="cpu" or omit device')
    if found.flat:
        return
    if isinstance(obj, torch.nn.Module) or any(
        isinstance(x, torch.nn.Parameter) and not isinstance(obj, Mapping | list | tuple)
        for x in found.tensors
    ):
        raise Refused("a module holds tensors, not arrays", "copy its state_dict() to NumPy")


def _copied(found: trees.Found, intent: Intent) -> list[Any]:
    """Return the copies of the tensors of a tree, in order, dressed as their originals."""
    tensors = found.tensors
    _refuse_before(tensors, intent)
    plain = [x for x in tensors if steps.is_plain(x)]
    inner = intent._replace(to="torch", non_blocking=False, readonly=False)
    if intent.to == "numpy" and intent.memory == "own":  # ties are kept on the way to the host
        inner = inner._replace(device="cpu")
    if _keeps_one_by_one(inner):
        return [_copy_one(x, intent, None) for x in _untied(tensors, plain)]
    raw = _copied_together(plain, inner)
    made = {id(x): new for x, new in zip(plain, raw, strict=True)}
    if intent.to != "torch":
        return [_exported(made.get(id(x)), x, intent) for x in tensors]
    return [
        dressed(made[id(x)], x, intent.grad) if id(x) in made else _copy_special(x, inner)
        for x in tensors
    ]


def _refuse_before(tensors: list[torch.Tensor], intent: Intent) -> None:
    """Refuse what cannot be before anything is copied."""
    if intent.to != "torch" or intent.readonly or intent.memory == "share":
        for x in tensors:
            if not is_lazy(x):
                _decided_in_tree(x, intent)


def _keeps_one_by_one(intent: Intent) -> bool:
    """Whether gradients are to flow through a change of device, dtype or order."""
    own = intent.memory == "own" and intent.grad == "keep"
    return own and intent._replace(grad="cut") != Intent()


def _copied_together(plain: list[torch.Tensor], intent: Intent) -> list[torch.Tensor]:
    """Copy plain tensors of a tree with the ties between them."""
    if intent.memory == "share":
        return [steps.apply(_decided(x, intent, None), x, intent) for x in plain]
    if intent.grad == "keep":
        return storages.keep_all(plain)
    return storages.copy_all(plain, intent)


def _untied(tensors: list[torch.Tensor], plain: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return `tensors` if none share memory. Raises `Refused`: their ties could not be kept."""
    if any(not group.alone for group in storages.grouped(plain)):
        raise Refused(
            "tensors that share memory cannot be converted, keep their gradient and share again",
            'copy with grad="keep" alone first, or use grad="cut"',
        )
    return tensors


def _copy_special(x: torch.Tensor, intent: Intent) -> torch.Tensor:
    """Copy a tensor of another layout or of a wrapper class, as PyTorch copies it."""
    if is_lazy(x):  # it has no values yet, and nothing else would copy it
        kind: Any = type(x)
        dtype = getattr(torch, intent.dtype) if intent.dtype else x.dtype
        lazy: torch.Tensor = kind(x.requires_grad, device=intent.device or x.device, dtype=dtype)
        return lazy
    intent = storages.plan_in_tree(x, intent)
    new = steps.apply(_decided(x, intent, None), x, intent)
    return dressed(new, x, intent.grad)


def _exported(new: torch.Tensor | None, x: torch.Tensor, intent: Intent) -> Any:
    """Return the array on a copy that lies in the tree's memory, so that ties are kept there."""
    if new is None:
        return _copy_one(x, intent, None)
    if intent.memory == "own" and (new.is_conj() or new.is_neg()):
        new = new.resolve_conj().resolve_neg()
    onward = intent._replace(memory="share", grad="cut", device="", dtype="", pinned=False)
    onward = onward._replace(memory_format="preserve", non_blocking=False, dense=False)
    return steps.apply(_decided(new, onward, None), new, onward)


def _require_grad(tensors: Collection[torch.Tensor], copies: list[torch.Tensor]) -> None:
    if any(map(_requires_grad, tensors)):
        for old, new in zip(tensors, copies, strict=True):
            if old.requires_grad and old.is_leaf:
                new.requires_grad_()


def _attach(tensors: list[torch.Tensor], copies: list[Any], memo: dict[int, Any]) -> None:
    """Give the copies what hangs on their originals: attributes and hooks."""
    for old, new in zip(tensors, copies, strict=True):
        if not isinstance(new, _Tensor):
            continue
        leaf: Any = new
        if old.__dict__:
            for name, value in old.__dict__.items():
                new.__dict__[name] = trees.rebuild(value, memo)
        if new.requires_grad and new.is_leaf:
            on_gradient, after = trees.tensor_hooks(old)
            for hook in on_gradient.values():
                leaf.register_hook(trees.rebuild(hook, memo))
            for hook in after.values():
                leaf.register_post_accumulate_grad_hook(trees.rebuild(hook, memo))
