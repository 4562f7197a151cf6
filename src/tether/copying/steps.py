"""Carries out a `Plan` on one tensor: each step's name is one function here."""
# ruff: noqa: ARG001 -- every step is given the intent and the out, and few need them

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from tether.copying import numpy_bridge, pool, relation, threads
from tether.copying.intent import EXTENSION_DTYPES, Intent, Plan, Subject, Target, World

FORMATS = {
    "preserve": torch.preserve_format,
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


def dtype_name(dtype: torch.dtype) -> str:
    """Return "float32" for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def is_plain(x: torch.Tensor) -> bool:
    """Whether `x` is strided elements on a storage: what can be copied by its geometry.

    False for sparse, nested, quantized, wrapper and uninitialized tensors, and inside of
    `torch.func` transforms.
    """
    return (
        (type(x) is torch.Tensor or (type(x).__torch_dispatch__ is _NO_DISPATCH and not is_lazy(x)))
        and x.layout is torch.strided
        and not x.is_nested
        and not x.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
        and not torch._is_functional_tensor(x)
    )


def has_tangent(x: torch.Tensor) -> bool:
    """Whether `x` carries a forward-mode gradient: a tie that a cut has to cut as well."""
    forward: Any = torch.autograd.forward_ad
    return forward._current_level >= 0 and forward.unpack_dual(x).tangent is not None


def subject_of(x: torch.Tensor, readonly: bool = False) -> Subject:
    """Return the facts about `x` on which a plan depends. Touches no memory.

    `readonly` says that `x` lies on an array that refuses writes, which a tensor does not know.
    """
    plain = is_plain(x)
    strided = x.layout is torch.strided
    return Subject(
        device=str(x.device),
        dtype=dtype_name(x.dtype),
        layout="nested" if x.is_nested and strided else str(x.layout).removeprefix("torch."),
        shape=tuple(x.shape) if plain else (),
        requires_grad=x.requires_grad or has_tangent(x),
        conj=x.is_conj(),
        neg=x.is_neg(),
        formats=_formats(x) if plain else frozenset(),
        pinned=x.device.type == "cpu" and plain and torch.cuda.is_available() and x.is_pinned(),
        inference=torch.is_inference_mode_enabled() or x.is_inference(),
        plain=plain,
        readonly=readonly,
    )


def _formats(x: torch.Tensor) -> frozenset[str]:
    dims = {"contiguous": None, "channels_last": 4, "channels_last_3d": 5}
    return frozenset(
        name
        for name, dim in dims.items()
        if dim in {None, x.dim()} and x.is_contiguous(memory_format=FORMATS[name])
    )


def target_of(out: Any, x: torch.Tensor) -> Target:
    """Return the facts about `out`, a tensor or a NumPy array, as the target of a copy of `x`."""
    readonly = not isinstance(out, torch.Tensor) and not out.flags.writeable
    if readonly:
        return Target("cpu", str(out.dtype), tuple(out.shape), readonly=True)
    written = numpy_bridge.tensor_on(out)
    touches = is_plain(x) and is_plain(written) and bool(relation.common_bytes(written, x))
    return Target(
        device=str(written.device),
        dtype=dtype_name(written.dtype),
        shape=tuple(written.shape),
        overlapping=is_plain(written) and relation.overlaps_itself(written),
        touches_source=written is x or touches,
    )


@functools.cache
def _ml_dtypes() -> bool:
    import importlib.util

    return importlib.util.find_spec("ml_dtypes") is not None


def world() -> World:
    """Return what this machine offers."""
    return World(cuda=torch.cuda.is_available(), ml_dtypes=_ml_dtypes())


def cloned(x: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """Return PyTorch's `clone`; sparse ones do not know the word "preserve"."""
    if memory_format is torch.preserve_format:
        return x.clone()
    return x.clone(memory_format=memory_format)


def own(
    x: torch.Tensor,
    memory_format: torch.memory_format = torch.preserve_format,
    pooled_from: int = pool.THRESHOLD,
) -> torch.Tensor:
    """Return a tensor on memory of its own with the values of `x`, which carries no gradient.

    Host tensors of at least `pooled_from` bytes are put on memory from the pool. Others are
    PyTorch's `clone`.
    """
    if x.layout is not torch.strided or not x.is_cpu:
        return cloned(x, memory_format)
    nbytes = x.nbytes
    if nbytes < pooled_from or not pool.enabled or not is_plain(x):
        if memory_format is torch.preserve_format:
            return threads.paced(x.clone, nbytes)
        return threads.paced(lambda: x.clone(memory_format=memory_format), nbytes)
    try:
        made, mapped = pooled_like(x, memory_format)
    except OSError:  # no memory to map: let PyTorch try, and say so in its own words
        pool.trim()
        return cloned(x, memory_format)
    if mapped:
        threads.paced(lambda: made.copy_(x), nbytes)
    else:
        made.copy_(x)  # it faults pages in: nothing to learn from about threads
    return made.data  # the same tensor with a version counter that has not moved


def pooled_like(x: torch.Tensor, memory_format: torch.memory_format) -> tuple[torch.Tensor, bool]:
    """Return an uninitialised tensor like `x` on memory from the pool, and whether it is mapped.

    The storage has exactly the bytes of the elements: what `torch.save` would write.
    """
    view, mapped = pool.lease(x.nbytes)
    flat = torch.frombuffer(view, dtype=x.dtype)
    if memory_format is torch.preserve_format and x.is_contiguous():
        strides = x.stride()
    else:
        strides = torch.empty_like(x, device="meta", memory_format=memory_format).stride()
    return flat.as_strided(x.shape, strides), mapped


class Pending:
    """A copy that may still be under way. It is no tensor: it cannot be read too early.

    `wait()` returns the copy once it is complete; `done()` says whether that would wait.
    """

    def __init__(self, result: Any, events: tuple[Any, ...] = (), source: Any = None) -> None:
        self._result = result
        self._source = source  # held: its memory is read until the copy is complete
        self._events = events  # torch.cuda.Event of every stream that works on it

    def done(self) -> bool:
        """Whether the copy is complete."""
        return all(event.query() for event in self._events)

    def wait(self) -> Any:
        """Wait for the copy and return it."""
        for event in self._events:
            event.synchronize()
        self._events, self._source = (), None
        return self._result

    def __repr__(self) -> str:
        state = "complete" if self.done() else "under way"
        return f"<a pending copy, {state}: call wait() to have it>"


def _grad_where(x: torch.Tensor) -> torch.set_grad_enabled:
    """Turn gradients on for a source in a graph, even under `no_grad`: keeping was asked for."""
    return torch.set_grad_enabled(x.requires_grad)


def _detach(x: Any, intent: Intent, out: Any) -> Any:
    return x.detach()


def _alias(x: Any, intent: Intent, out: Any) -> Any:
    with _grad_where(x):
        return x.view_as(x) if is_plain(x) else torch.ops.aten.alias(x)


def _clone(x: Any, intent: Intent, out: Any) -> Any:
    if intent.grad == "keep" and x.requires_grad:
        with torch.enable_grad():
            return cloned(x, FORMATS[intent.memory_format])
    return own(x, FORMATS[intent.memory_format])


def _move(x: Any, intent: Intent, out: Any) -> Any:
    device = torch.device(intent.device or "cpu")
    dtype = getattr(torch, intent.dtype) if intent.dtype else x.dtype
    # A later step on the host would read what has not arrived: only the last one may run ahead.
    ahead = _may_run_on(x, intent) and intent.memory_format == "preserve"
    ahead = ahead and not (x.is_conj() or x.is_neg())
    with _grad_where(x):
        if intent.pinned:
            made = torch.empty_like(x, dtype=dtype, device="cpu", pin_memory=True)
            return made.copy_(x, non_blocking=ahead)
        return x.to(device=device, dtype=dtype, copy=True, non_blocking=ahead)


def _may_run_on(x: Any, intent: Intent) -> bool:
    target = torch.device(intent.device or "cpu")
    return intent.non_blocking and "cuda" in {x.device.type, target.type}


def _convert(x: Any, intent: Intent, out: Any) -> Any:
    with _grad_where(x):
        return x.to(dtype=getattr(torch, intent.dtype), copy=True)


def _reformat(x: Any, intent: Intent, out: Any) -> Any:
    with _grad_where(x):
        return x.contiguous(memory_format=FORMATS[intent.memory_format])


def _dense(x: Any, intent: Intent, out: Any) -> Any:
    with _grad_where(x):
        return x.to_dense()


def _resolve(x: Any, intent: Intent, out: Any) -> Any:
    return x.resolve_conj().resolve_neg()


def _pin(x: Any, intent: Intent, out: Any) -> Any:
    return x.pin_memory()


def _numpy(x: Any, intent: Intent, out: Any) -> Any:
    return x.numpy()


def _extension(x: Any, intent: Intent, out: Any) -> Any:
    return numpy_bridge.extension_array(x, EXTENSION_DTYPES[dtype_name(x.dtype)])


def _readonly(x: Any, intent: Intent, out: Any) -> Any:
    x.flags.writeable = False
    return x


def _dlpack(x: Any, intent: Intent, out: Any) -> Any:
    return torch._C._to_dlpack(x)


def _write(x: Any, intent: Intent, out: Any) -> Any:
    target = numpy_bridge.tensor_on(out)
    with torch.no_grad():
        if target.device == x.device and x.device.type == "cpu":
            threads.paced(lambda: target.copy_(x), x.nbytes if is_plain(x) else 0)
        else:
            ahead = intent.non_blocking and "cuda" in {x.device.type, target.device.type}
            target.copy_(x, non_blocking=ahead)
    return out


def _pending(x: Any, source: torch.Tensor, out: Any) -> Pending:
    """Return a `Pending` that waits for the current stream of every device that took part."""
    involved = (y for y in (x, source, out) if isinstance(y, torch.Tensor) and y.is_cuda)
    events: list[Any] = []
    for device in {y.device for y in involved}:
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        events.append(event)
    return Pending(x, tuple(events), source)


_STEPS: dict[str, Callable[[Any, Intent, Any], Any]] = {
    "detach": _detach,
    "alias": _alias,
    "clone": _clone,
    "move": _move,
    "convert": _convert,
    "reformat": _reformat,
    "dense": _dense,
    "resolve": _resolve,
    "pin": _pin,
    "numpy": _numpy,
    "ml_dtypes": _extension,
    "readonly": _readonly,
    "dlpack": _dlpack,
    "write": _write,
}


def apply(plan: Plan, x: torch.Tensor, intent: Intent, out: Any = None) -> Any:
    """Carry out `plan` on `x` and return what its last step makes."""
    result: Any = x
    for step in plan.steps:
        if step.call == "pending":
            result = _pending(result, x, out)
        else:
            result = _STEPS[step.call](result, intent, out)
    return result
