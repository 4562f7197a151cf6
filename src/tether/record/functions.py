"""What kinds of functions there are, as the recorder meets them in ``__torch_function__``.

Nothing has to be listed: any torch function is recorded. The table of operations names those that
say nothing about ties (a shape, a dtype, a device), and those of which more is to be noted than
what they read, returned and wrote: `learn` gives each of them a `Special`, once.
"""

from __future__ import annotations

import gc
import os
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.overrides

from tether.facts import NON_BLOCKING, NONE, ON, OUT, UNKNOWN
from tether.operations.table import Notes, Operation, operation


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


_DROPOUT = 4  # place of `dropout_p` among the arguments of scaled_dot_product_attention


class Function:
    """One torch function as the recorder treats it."""

    __slots__ = (
        "apart", "aside", "asks", "changes_identity", "draws", "enters", "exits", "fills",
        "followed", "foreign", "lays", "memo", "name", "number", "onto", "originals", "pads",
        "picks", "places", "plain", "rounds", "silent", "special", "spreads", "switches", "untied",
        "writes",
    )  # fmt: skip

    def __init__(self, name: str, *, silent: bool) -> None:
        row = operation(name)
        self.name = name
        self.number = -1  # of the name, in the log of one recording
        self.silent = silent
        self.foreign = False  # the program's: it may stand in the place of one of PyTorch's
        self.asks = row.strides  # as the recorder does itself, of any tensor
        # Silent or foreign, or asked: seldom, and not to be recorded as it stands.
        self.aside = silent or self.asks
        self.originals: dict[Any, Any] = {}  # of a foreign one: by the code that asks
        self.exits = bool(row.leaves)
        self.enters = row.enters
        self.lays = _may_lay_out(row)
        self.rounds = row.rounds  # how, only trying a call can tell
        self.draws = bool(row.random)
        self.picks = row.chooses
        self.places = row.places
        self.spreads = row.spreads
        self.memo = row.typed == "deepcopy"
        self.apart = row.own_counter  # on known memory, with a version counter of its own
        self.changes_identity = row.retypes
        self.fills = row.overwrites and not row.copies  # with what no tensor of the program's held
        self.switches = row.notes == "mode"
        self.pads = row.notes == "padding"
        self.special = _SPECIALS.get(row.notes)
        self.writes = _writes(row)
        self.onto = self.writes and row.pointwise and not row.random  # may read what it writes
        self.followed = _is_followed(self)
        self.untied = False  # it gives and changes no tensors: without an event, but an error's
        # Nothing but reads, results and moved versions to tell of it.
        self.plain = not (
            self.exits
            or self.enters
            or self.apart
            or self.changes_identity
            or self.special
            or self.places
            or self.spreads
            or self.pads
        )


def _is_followed(what: Function) -> bool:
    """Whether a call is looked at for what it exports, takes in or chooses."""
    return bool(what.picks or what.onto or what.places or what.pads or what.exits or what.enters)


def _may_lay_out(row: Operation) -> bool:
    """Whether a call may give the elements that it was given in memory of another layout."""
    return bool(row.copies) or row.regroups


def _writes(row: Operation) -> bool:
    """Whether a call writes its first argument, whatever the version says.

    Inference tensors keep no version, and some writes move none (``apply_``).
    """
    if row.retypes:
        return False
    if row.known:
        return row.writes == "values"
    return row.name.endswith("_") and not row.name.endswith("__")


def learn(func: Any) -> Function:
    """Classify a function as handed to ``__torch_function__``."""
    what = _classified(func)
    untied = operation(what.name).warns or _is_untied(func)
    what.untied = untied and not (what.special or what.switches or what.followed)
    if is_foreign(func):
        what.foreign = what.aside = True
    return what


def _classified(func: Any) -> Function:
    name = getattr(func, "__name__", None) or type(func).__name__
    if name in ("__get__", "__set__", "__delete__"):
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        if attribute == "_grad":
            attribute = "grad"
        # `del x.grad` does what assigning None does.
        accessor = f"{attribute}.{name}".replace("grad.__delete__", "grad.__set__")
        return Function(accessor, silent=not operation(accessor).known)
    if func is torch.autograd.grad:
        name = "autograd.grad"
    if name == "wrapped" and hasattr(func, "__wrapped__"):  # _handle_torch_function_and_wrap_...
        name = func.__wrapped__.__name__
    if name == "_set_grad_enabled":
        return Function("set_grad_enabled", silent=False)
    row = operation(name)
    asks = name.startswith("is_") and not (row.leaves or row.strides)
    return Function(name, silent=row.silent or asks)


_UNTIED = {"StringType", "NoneType", "ClassType"}
"""Kinds of arguments that no tensor goes for, as one does for a number."""


def _is_untied(func: Any) -> bool:
    """Whether an operation's own schemas say that it neither takes nor gives tensors."""
    schemas = [func._schema] if isinstance(func, torch._ops.OpOverload) else []
    if isinstance(func, torch._ops.OpOverloadPacket):
        schemas = list(func._schemas.values())
    types = [one.type for schema in schemas for one in (*schema.arguments, *schema.returns)]
    inner = [one.getElementType() if one.kind() == "OptionalType" else one for one in types]
    return bool(schemas) and all(one.kind() in _UNTIED for one in inner)


# -- what some of them have to tell ----------------------------------------------------------------


def _moved(call: Call) -> None:
    if call.kwargs.get("non_blocking") or first_bool(call.args):
        call.flags |= NON_BLOCKING  # the result may not be there yet


def first_bool(args: tuple[Any, ...]) -> bool:
    """Whether a call that may move a tensor was given ``non_blocking=True`` by place.

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


def _along(call: Call) -> None:
    given = call.argument(1, "dim")
    call.detail = str(given) if given else ""  # 0 is what it is without a word


def _answered(call: Call) -> None:
    call.flags |= ON if call.result is True else 0


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


_SPECIALS: dict[Notes, Special] = {
    "non-blocking": _moved,
    "statistics": _normalised,
    "mode": _switched,
    "wanted": _requires,
    "gradient read": _gradient_read,
    "gradient assigned": _gradient_assigned,
    "hook": _hooked,
    "dimension": _along,
    "answer": _answered,
}


def drops(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether attention was asked to drop some of what it computes: else it draws no numbers."""
    given = args[_DROPOUT] if len(args) > _DROPOUT else kwargs.get("dropout_p", 0.0)
    return type(given) is not float or given != 0.0


def flags_of(call: Call) -> int:
    """Return the flags that any call can have."""
    return call.flags | (OUT if "out" in call.kwargs else 0)


# -- user overrides --------------------------------------------------------------------------------
# Methods of tensors that the program has replaced: which function a call really means. PyTorch
# tells a mode which function it is about to run by looking its name up, and finds the program's own
# where that has been put in the place of a method: `torch.Tensor.clone = louder`. But it is the
# method itself that asks, called by `louder`, and that must run: `louder` runs already.


_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_TETHER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_KNOWN_TYPES = ("builtins", "torch")  # modules of the types that PyTorch's own functions have
_handle = torch.overrides.handle_torch_function.__code__
_METHOD_WRAPPER = type(property().__get__)


def is_foreign(func: Any) -> bool:
    """Whether a function that PyTorch hands to a mode is none of PyTorch's, nor of ours."""
    if isinstance(func, types.FunctionType):
        return not func.__code__.co_filename.startswith((_TORCH, _TETHER))
    if isinstance(func, _METHOD_WRAPPER):
        owner = func.__self__  # type: ignore[attr-defined]
        if type(owner) is not property:
            return False
        return any(
            is_foreign(one) for one in (owner.fget, owner.fset, owner.fdel) if one is not None
        )
    return type(func).__module__.split(".", 1)[0] not in _KNOWN_TYPES


def original(func: Any, frame: types.FrameType) -> Any:
    """Return what a call of the foreign `func` means, asked for from `frame`.

    That is `func` itself where it takes part in PyTorch's protocol of its own accord, as libraries
    may, and PyTorch's own function where that has been replaced.
    """
    if frame.f_code is _handle:
        return _of_python(func, frame.f_back)
    attribute, part = func, ""
    if isinstance(func, _METHOD_WRAPPER):
        attribute, part = func.__self__, func.__name__  # type: ignore[attr-defined]
    for name, value in vars(torch.Tensor).items():
        if value is attribute:
            found = getattr(torch._C.TensorBase, name, None)
            return (getattr(found, part, None) if part else found) or func
    return func


def _of_python(func: Any, caller: types.FrameType | None) -> Any:
    """Return the function written in Python that runs in `caller`, and handed over `func`."""
    if caller is None:
        return func
    code = caller.f_code
    own = getattr(func, "__code__", None)
    if own is code or not code.co_filename.startswith(_TORCH):
        return func
    running = [
        one
        for one in gc.get_referrers(code)
        if isinstance(one, types.FunctionType) and one.__code__ is code
    ]
    return running[0] if len(running) == 1 else func
