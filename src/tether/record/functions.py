"""What the recorder needs to know of a function before it calls it: its name, and how quiet it is.

Which functions exist is not listed: any torch function is heard. Listed are only those that say
nothing about ties (a shape, a dtype, a device), and those whose result is a Python value that can
carry a tensor's numbers out.
"""

from __future__ import annotations

from typing import Any

import torch

from tether.record.user_overrides import is_foreign

# Attributes whose reading or writing is an event; every other getter tells nothing about ties.
_GETTERS = {"data", "grad", "T", "mT", "H", "mH", "real", "imag", "_grad"}
_SETTERS = {"data", "grad", "requires_grad", "real", "imag", "_grad"}

_SILENT = {
    "size", "dim", "numel", "stride", "is_contiguous", "data_ptr", "element_size",
    "storage_offset", "is_floating_point", "is_complex", "ndimension", "nelement", "__len__",
    "__hash__", "get_device", "is_pinned", "is_inference", "storage", "untyped_storage",
    "typed_storage", "has_names", "_is_view", "__dir__", "is_same_size", "is_conj", "is_neg",
    "result_type", "can_cast", "__dlpack_device__", "is_signed", "is_shared", "is_sparse",
    "sparse_dim", "dense_dim", "is_coalesced", "qscheme", "storage_type", "is_set_to",
    "is_nonzero_static", "get_default_dtype", "dim_order", "_is_zerotensor", "is_distributed",
    "_has_compatible_shallow_copy_type", "is_tensor", "is_storage", "promote_types",
    # backward and grad are recorded where they enter the engine, with their hooks heard
    "backward", "autograd.grad",
}  # fmt: skip

EXITS = {
    "item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__",
    "__complex__", "__dlpack__", "__contains__", "__format__", "__repr__", "__str__", "equal",
    "allclose", "__reduce_ex__", "is_nonzero",
}  # fmt: skip
"""Operations that hand a tensor's values to Python as something that is no tensor."""

RETYPES = {"data.__set__", "set_", "resize_", "resize_as_", "detach_", "requires_grad_",
    "requires_grad.__set__", "swap_tensors", "share_memory_", "pin_memory_"}  # fmt: skip
"""Operations after which a tensor may have another storage, shape or place in the graph although
its version did not move."""

ENTRIES = {"tensor", "as_tensor", "asarray", "new_tensor", "from_numpy", "frombuffer"}
"""Operations that make a tensor of something that may be another library's array."""

MOVES = {"to", "cuda", "type", "copy_"}
"""Operations that may be told, by name or by place, not to wait for their copy."""

SPECIAL = ENTRIES | MOVES | {"set_grad_enabled", "grad.__get__", "grad.__set__", "batch_norm",
    "instance_norm", "register_hook"}  # fmt: skip
"""Operations of which the recorder notes something of their own."""


class Function:
    """One torch function as the recorder treats it."""

    __slots__ = (
        "aside", "changes_identity", "exits", "foreign", "moves", "name", "number", "originals",
        "plain", "silent", "writes",
    )  # fmt: skip

    def __init__(self, name: str, *, silent: bool) -> None:
        self.name = name
        self.number = -1  # of the name, in the log of one recording
        self.silent = silent
        self.foreign = False  # the program's: it may stand in the place of one of PyTorch's
        self.aside = silent  # silent or foreign: seldom, and not to be recorded as it stands
        self.originals: dict[Any, Any] = {}  # of a foreign one: by the code that asks
        self.exits = name in EXITS
        self.changes_identity = name in RETYPES
        self.moves = name in MOVES
        # Nothing but reads, results and moved versions to tell of it.
        self.plain = not (self.exits or self.changes_identity or name in SPECIAL)
        # Inference tensors keep no version: then the name must tell whether it writes.
        plain = name.removeprefix("_foreach_")
        self.writes = (
            (plain.endswith("_") and not plain.endswith("__"))
            or name in ("__setitem__", "real.__set__", "imag.__set__")
            or (name.startswith("__i") and name not in ("__invert__", "__int__", "__index__"))
        )


def learn(func: Any) -> Function:
    """Classify a function as handed to ``__torch_function__``."""
    what = _classified(func)
    if is_foreign(func):
        what.foreign = what.aside = True
    return what


def _classified(func: Any) -> Function:
    name = getattr(func, "__name__", None) or type(func).__name__
    if name in ("__get__", "__set__", "__delete__"):
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        if attribute.startswith("_") and attribute != "_grad":
            return Function(f"{attribute}.{name}", silent=True)
        heard = _GETTERS if name == "__get__" else _SETTERS
        silent = attribute not in heard
        return Function(f"{attribute.lstrip('_')}.{name}", silent=silent)
    if func is torch.autograd.grad:
        name = "autograd.grad"
    if name == "wrapped" and hasattr(func, "__wrapped__"):  # _handle_torch_function_and_wrap_...
        name = func.__wrapped__.__name__
    if name == "_set_grad_enabled":
        return Function("set_grad_enabled", silent=False)
    asks = name.startswith("is_") and name != "is_nonzero"
    return Function(name, silent=name in _SILENT or asks)


def first_bool(args: tuple[Any, ...]) -> bool:
    """Whether a call of `MOVES` was given ``non_blocking=True`` by place.

    It is the first of two flags in every signature: ``to(device, dtype, non_blocking, copy)``,
    ``to(dtype, non_blocking, copy)``, ``cuda(device, non_blocking)``, ``copy_(src, non_blocking)``.
    """
    for argument in args[2:]:
        if type(argument) is bool:
            return argument
    return False
