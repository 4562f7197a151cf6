"""What kinds of functions there are, as the recorder meets them in ``__torch_function__``.

Nothing has to be listed: any torch function is recorded. Listed are only those that say nothing
about ties (a shape, a dtype, a device), and those of which more is to be noted than what they
read, returned and wrote: `learn` gives each of them a `Special`, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tether.facts import NON_BLOCKING, NONE, ON, OUT, UNKNOWN
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

NORMALISING = {"batch_norm", "instance_norm"}
"""Operations that write running statistics without moving their version."""


class Call:
    """One call of a function that has more to tell than its operands: its `Special` fills it in."""

    __slots__ = (
        "args", "detail", "flags", "kind", "kwargs", "nodes", "result", "site", "tensors",
        "unversioned",
    )  # fmt: skip

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        tensors: list[torch.Tensor],
        site: int,
        kind: int = UNKNOWN,
        nodes: int = 0,
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.result = result
        self.tensors = tensors  # among the arguments
        self.site = site
        self.kind = kind  # what autograd made of it
        self.nodes = nodes
        self.flags = 0
        self.detail = ""
        self.unversioned: list[torch.Tensor] = []  # written, though no version moved

    def argument(self, place: int, name: str) -> Any:
        """Return an argument that may be given by place or by name; None where it was not."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name)


Special = Callable[[Call], None]
"""Notes what is particular to a call of one function."""


class Function:
    """One torch function as the recorder treats it."""

    __slots__ = (
        "aside", "changes_identity", "enters", "exits", "foreign", "name", "number", "originals",
        "plain", "silent", "special", "switches", "writes",
    )  # fmt: skip

    def __init__(self, name: str, *, silent: bool) -> None:
        self.name = name
        self.number = -1  # of the name, in the log of one recording
        self.silent = silent
        self.foreign = False  # the program's: it may stand in the place of one of PyTorch's
        self.aside = silent  # silent or foreign: seldom, and not to be recorded as it stands
        self.originals: dict[Any, Any] = {}  # of a foreign one: by the code that asks
        self.exits = name in EXITS
        self.enters = name in ENTRIES
        self.changes_identity = name in RETYPES
        self.switches = name == "set_grad_enabled"
        self.special = _SPECIALS.get(name)
        # By its name: inference tensors keep no version, and some writes move none (`apply_`).
        self.writes = _is_in_place(name) and not self.changes_identity and not _moves_no_bytes(name)
        # Nothing but reads, results and moved versions to tell of it.
        self.plain = not (
            self.exits or self.enters or self.changes_identity or self.switches or self.special
        )


def _is_in_place(name: str) -> bool:
    plain = name.removeprefix("_foreach_")
    return (
        (plain.endswith("_") and not plain.endswith("__"))
        or name in ("__setitem__", "real.__set__", "imag.__set__")
        or (name.startswith("__i") and name not in ("__invert__", "__int__", "__index__"))
    )


def _moves_no_bytes(name: str) -> bool:
    """Whether PyTorch says that a call changes a tensor's shape or strides alone (`t_`)."""
    packet = getattr(torch.ops.aten, name, None) if name.endswith("_") else None
    if packet is None:
        return False
    overloads = [getattr(packet, one) for one in packet.overloads()]
    return any(torch.Tag.inplace_view in one.tags for one in overloads)


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


# -- what some of them have to tell ----------------------------------------------------------------


def _moved(call: Call) -> None:
    if call.kwargs.get("non_blocking") or first_bool(call.args):
        call.flags |= NON_BLOCKING  # the result may not be there yet


def first_bool(args: tuple[Any, ...]) -> bool:
    """Whether a call of `MOVES` was given ``non_blocking=True`` by place.

    It is the first of two flags in every signature: ``to(device, dtype, non_blocking, copy)``,
    ``to(dtype, non_blocking, copy)``, ``cuda(device, non_blocking)``, ``copy_(src, non_blocking)``.
    """
    for argument in args[2:]:
        if type(argument) is bool:
            return argument
    return False


def _switched(call: Call) -> None:
    call.flags |= ON if call.args and call.args[0] else 0


def _requires(call: Call) -> None:
    wanted = call.argument(1, "requires_grad")
    call.flags |= ON if wanted is None or wanted else 0


def _gradient_read(call: Call) -> None:
    call.flags |= NONE if call.result is None else 0


def _gradient_assigned(call: Call) -> None:
    call.flags |= NONE if len(call.tensors) == 1 else 0


def _hooked(call: Call) -> None:
    hook = call.argument(1, "hook")
    call.detail = getattr(hook, "__qualname__", "")


def _normalised(call: Call) -> None:
    """Find the running statistics that a training batch norm wrote."""
    named = call.kwargs.get("training", call.kwargs.get("use_input_stats"))
    if not (named or (len(call.args) > 5 and call.args[5])):
        return
    found = (*call.args[1:3], call.kwargs.get("running_mean"), call.kwargs.get("running_var"))
    call.unversioned += [one for one in found if isinstance(one, torch.Tensor)]


_SPECIALS: dict[str, Special] = {
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(NORMALISING, _normalised),
    "set_grad_enabled": _switched,
    "requires_grad_": _requires,
    "requires_grad.__set__": _requires,
    "grad.__get__": _gradient_read,
    "grad.__set__": _gradient_assigned,
    "register_hook": _hooked,
}


def flags_of(call: Call) -> int:
    """Return the flags that any call can have."""
    return call.flags | (OUT if "out" in call.kwargs else 0)
