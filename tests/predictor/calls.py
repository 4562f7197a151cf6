"""The calls that the predictor understands: which rule each follows, and where its result lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any

from predictor.graph import SIZES, Tensor
from predictor.layout import (
    Layout,
    LayoutError,
    diagonal,
    elementwise,
    expanded,
    fresh,
    narrowed,
    permuted,
    preserved,
    reshaped,
    selected,
    sliced,
    squeezed,
    unsqueezed,
)
from predictor.machine import Array, Machine, Unknown

Arguments = list[Any]
Keywords = dict[str, Any]
Method = Callable[[Machine, Tensor, Arguments, Keywords], Any]
Function = Callable[[Machine, Arguments, Keywords], Any]

OPERATORS = {"Add": "add", "Sub": "sub", "Mult": "mul"}
"""Methods that Python's operators call, by the operator's name in `ast`."""


# -- one tensor in, one out ----------------------------------------------------------------------


def _plain(operation: str, slug: str = "") -> Method:
    """Make a call without arguments whose result lies as its rule says."""

    def method(machine: Machine, x: Tensor, arguments: Arguments, keywords: Keywords) -> Tensor:
        if arguments or keywords:
            raise Unknown(f"arguments of {operation} are not predicted")
        return machine.derive(operation, slug or operation, x)

    return method


def _unary(operation: str, slug: str = "") -> Method:
    """Make a call that computes element by element."""

    def method(machine: Machine, x: Tensor, _: Arguments, __: Keywords) -> Tensor:
        return _computed(machine, (operation, slug or operation), x, (), "")

    return method


def _computed(
    machine: Machine,
    call: tuple[str, str],
    x: Tensor,
    others: Sequence[Tensor],
    dtype: str,
    *,
    number: bool = False,
) -> Tensor:
    # A Python number is an operand without dimensions, as far as the layout goes.
    extra = [Layout((), ())] if number else []
    layout = elementwise([*(one.layout for one in (x, *others)), *extra])
    operation, slug = call
    return machine.derive(operation, slug, x, layout, others=others, dtype=dtype)


def _binary(operation: str, slugs: tuple[str, str]) -> Method:
    """Make a call on two operands; `slugs` are its rules with a number and with a tensor."""

    def method(machine: Machine, x: Tensor, arguments: Arguments, _: Keywords) -> Tensor:
        (other,) = arguments
        if isinstance(other, int | float):
            return _computed(machine, (operation, slugs[0]), x, (), "", number=True)
        if not isinstance(other, Tensor):
            raise Unknown(f"the other operand of {operation} is not a tensor")
        wider = _promoted(x, other)
        return _computed(machine, (operation, slugs[1]), x, (other,), wider)

    return method


def _promoted(one: Tensor, other: Tensor) -> str:
    """Return the type of a result; a tensor without dimensions gives way to one that has some."""
    ranked = [tensor for tensor in (one, other) if tensor.layout.shape] or [one, other]
    return max((tensor.dtype for tensor in ranked), key=lambda dtype: SIZES[dtype])


def _in_place(operation: str, slugs: tuple[str, str], *, idempotent: bool = False) -> Method:
    """Make a call that writes; `slugs` are its rules with a number and with a tensor."""

    def method(machine: Machine, x: Tensor, arguments: Arguments, _: Keywords) -> Tensor:
        others = [one for one in arguments if isinstance(one, Tensor)]
        for other in others:
            if elementwise([x.layout, other.layout]).shape != x.layout.shape:
                raise LayoutError("the target is smaller than what is written")
        slug = slugs[1] if others else slugs[0]
        return machine.write(operation, slug, x, others, idempotent=idempotent)

    return method


def _conversion(operation: str, dtype: str) -> Method:
    def method(machine: Machine, x: Tensor, _: Arguments, __: Keywords) -> Tensor:
        return _converted(machine, operation, operation, x, dtype)

    return method


def _converted(machine: Machine, operation: str, slug: str, x: Tensor, dtype: str) -> Tensor:
    return machine.derive(operation, slug, x, preserved(x.layout), dtype=dtype)


def _to(machine: Machine, x: Tensor, arguments: Arguments, keywords: Keywords) -> Tensor:
    slugs = {"float32": "float", "float64": "double", "int64": "long"}
    if keywords or len(arguments) != 1 or arguments[0] not in slugs:
        raise Unknown("of .to only a floating type is predicted")
    # The rule of the conversion to this type by name says the same as that of `to`.
    return _converted(machine, "to", slugs[arguments[0]], x, arguments[0])


# -- views ---------------------------------------------------------------------------------------


def _view(operation: str, place: Callable[..., Layout], slug: str = "") -> Method:
    """Make a view; `place` says where it lies, given the layout and the arguments."""

    def method(machine: Machine, x: Tensor, arguments: Arguments, _: Keywords) -> Tensor:
        return machine.derive(operation, slug or operation, x, place(x.layout, *arguments))

    return method


def _reshape(operation: str) -> Method:
    """Make a call that is a view where the strides allow it; the rule says what it is if not."""

    def method(machine: Machine, x: Tensor, arguments: Arguments, _: Keywords) -> Tensor:
        shape = _completed(_sizes(arguments), x.layout.numel)
        layout = reshaped(x.layout, shape)
        return machine.derive(
            operation,
            operation,
            x,
            fresh(shape) if layout is None else layout,
            contiguous=layout is not None,
        )

    return method


def _transposed(layout: Layout, first: int, second: int) -> Layout:
    order = list(range(len(layout.shape)))
    order[first], order[second] = order[second], order[first]
    return permuted(layout, tuple(order))


def _t(layout: Layout) -> Layout:
    if len(layout.shape) > 2:
        raise LayoutError("t() expects a tensor with <= 2 dimensions")
    return permuted(layout, tuple(reversed(range(len(layout.shape)))))


def _parts(operation: str, divide: Callable[..., list[Layout]]) -> Method:
    """Make a call that returns several views."""

    def method(machine: Machine, x: Tensor, arguments: Arguments, _: Keywords) -> Any:
        layouts = divide(x.layout, *arguments)
        return machine.derive_all(operation, operation, x, layouts, multi=True)

    return method


def _unbound(layout: Layout) -> list[Layout]:
    return [selected(layout, 0, number) for number in range(layout.shape[0])]


def _split(layout: Layout, size: int) -> list[Layout]:
    whole = layout.shape[0]
    return [narrowed(layout, 0, start, min(size, whole - start)) for start in range(0, whole, size)]


def index(machine: Machine, x: Tensor, key: Any) -> Tensor:
    """Run ``x[key]`` for numbers, slices, None and the ellipsis: a view."""
    return machine.derive("__getitem__", "__getitem__", x, place(x.layout, key))


def write_index(machine: Machine, x: Tensor, key: Any, value: Any) -> None:
    """Run ``x[key] = value``."""
    part = None if _is_whole(x.layout, key) else place(x.layout, key)
    written = x.layout if part is None else part
    others = [value] if isinstance(value, Tensor) else []
    for other in others:
        if elementwise([written, other.layout]).shape != written.shape:
            raise LayoutError("the part is smaller than what is written")
    slug = "__setitem__:tensor" if others else "__setitem__"
    slug = "__setitem__:whole" if part is None else slug
    machine.write("__setitem__", slug, x, others, part=part, returns=False)


def _is_whole(layout: Layout, key: Any) -> bool:
    """Whether a write to ``x[key]`` goes to x itself, and to no view of it."""
    keys = [one for one in (key if isinstance(key, tuple) else (key,)) if one is not ...]
    return len(keys) <= len(layout.shape) and all(
        isinstance(one, slice) and one.indices(size) == (0, size, 1)
        for one, size in zip(keys, layout.shape, strict=False)
    )


def place(layout: Layout, key: Any) -> Layout:
    """Return where ``x[key]`` lies. Raises `Unknown` for keys that copy."""
    keys = key if isinstance(key, tuple) else (key,)
    used = sum(isinstance(one, int | slice) for one in keys)
    dimension = 0
    for one in keys:
        match one:
            case bool():
                raise Unknown("indexing by a bool is not predicted")
            case int():
                layout = selected(layout, dimension, one)
            case slice():
                layout = sliced(layout, dimension, one)
                dimension += 1
            case None:
                layout = unsqueezed(layout, dimension)
                dimension += 1
            case EllipsisType():
                dimension += len(layout.shape) - dimension - used
            case _:
                raise Unknown("indexing by a list or a tensor is not predicted")
        used -= isinstance(one, int | slice)
    return layout


# -- the rest ------------------------------------------------------------------------------------


def _sum(machine: Machine, x: Tensor, arguments: Arguments, keywords: Keywords) -> Tensor:
    if arguments or keywords:
        raise Unknown("a sum over some dimensions is not predicted")
    return machine.derive("sum", "sum", x, fresh(()))


def _joined(operation: str) -> Function:
    """Make a call that joins several tensors of one shape: ``cat``, ``stack``."""

    def function(machine: Machine, arguments: Arguments, keywords: Keywords) -> Tensor:
        if keywords or len(arguments) != 1 or not all(isinstance(x, Tensor) for x in arguments[0]):
            raise Unknown(f"torch.{operation} with these arguments is not predicted")
        first, *others = parts = list(arguments[0])
        if len({(x.layout.shape, x.dtype) for x in parts}) > 1 or not all(
            x.layout.contiguous and x.layout.shape for x in parts
        ):
            raise Unknown(f"torch.{operation} of tensors that differ is not predicted")
        shape = first.layout.shape
        if operation == "stack":
            shape = (len(parts), *shape)
        else:
            shape = (shape[0] * len(parts), *shape[1:])
        return machine.derive(operation, operation, first, fresh(shape), others=others)

    return function


def _requires_grad_(machine: Machine, x: Tensor, arguments: Arguments, _: Keywords) -> Tensor:
    return machine.mark(x, on=arguments[0] if arguments else True)


def _backward(machine: Machine, x: Tensor, _: Arguments, keywords: Keywords) -> None:
    machine.backward(x, retain=bool(keywords.get("retain_graph")))


def _numpy(machine: Machine, x: Tensor, _: Arguments, keywords: Keywords) -> Array | None:
    plain = "numpy" if machine.grad else "numpy:no_grad"
    return machine.leave("numpy", "numpy:force" if keywords.get("force") else plain, x)


def _item(machine: Machine, x: Tensor, _: Arguments, __: Keywords) -> float:
    machine.leave("item", "item", x)
    return 0.5  # some number; which, no rule asks


def _creation(name: str) -> Function:
    def function(machine: Machine, arguments: Arguments, keywords: Keywords) -> Tensor:
        dtype = keywords.get("dtype", "float32")
        if dtype not in SIZES or set(keywords) - {"dtype", "requires_grad"}:
            raise Unknown(f"torch.{name} with these arguments is not predicted")
        marked = bool(keywords.get("requires_grad"))
        return machine.create(name, fresh(_sizes(arguments)), dtype, marked=marked)

    return function


def _deepcopy(machine: Machine, arguments: Arguments, _: Keywords) -> Tensor:
    (x,) = arguments
    if not isinstance(x, Tensor):
        raise Unknown("a deep copy of something that is no tensor is not predicted")
    if x.kind == "Parameter":
        # `Parameter.__deepcopy__` is Python, and heard as what it calls.
        bare = machine.derive("data.__get__", "data.__get__", x)
        return machine.parameter(machine.derive("clone", "clone", bare), on=x.requires_grad)
    return machine.derive("__deepcopy__", "__deepcopy__", x, whole=True)


def _parameter(machine: Machine, arguments: Arguments, keywords: Keywords) -> Tensor:
    if keywords or len(arguments) != 1 or not isinstance(arguments[0], Tensor):
        raise Unknown("Parameter with these arguments is not predicted")
    return machine.parameter(arguments[0])


def _from_numpy(machine: Machine, arguments: Arguments, _: Keywords) -> Tensor:
    (array,) = arguments
    if not isinstance(array, Array):
        raise Unknown("what from_numpy is given is not known to be an array")
    return machine.enter("from_numpy", "from_numpy", array)


def _sizes(arguments: Arguments) -> tuple[int, ...]:
    sizes = arguments[0] if len(arguments) == 1 else arguments
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not all(isinstance(size, int) for size in sizes):
        raise Unknown("a shape that is computed is not predicted")
    return sizes


def _completed(sizes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Fill in the size that is given as -1."""
    if -1 not in sizes:
        return sizes
    known = 1
    for size in sizes:
        known *= size if size != -1 else 1
    return tuple(count // known if size == -1 else size for size in sizes)


METHODS: dict[str, Method] = {
    "clone": _plain("clone"),
    "detach": _plain("detach"),
    "contiguous": _plain("contiguous"),
    "data.__get__": _plain("data.__get__"),
    "cpu": _plain("cpu"),
    "float": _conversion("float", "float32"),
    "double": _conversion("double", "float64"),
    "to": _to,
    "view": _reshape("view"),
    "reshape": _reshape("reshape"),
    "t": _view("t", _t),
    "transpose": _view("transpose", _transposed),
    "permute": _view("permute", lambda layout, *order: permuted(layout, _sizes([*order]))),
    "narrow": _view("narrow", narrowed),
    "select": _view("select", selected),
    "unsqueeze": _view("unsqueeze", unsqueezed),
    "squeeze": _view("squeeze", squeezed),
    "expand": _view("expand", lambda layout, *sizes: expanded(layout, _sizes([*sizes]))),
    "diagonal": _view("diagonal", diagonal),
    "unbind": _parts("unbind", _unbound),
    "split": _parts("split", _split),
    "add": _binary("add", ("add", "add")),
    "sub": _binary("sub", ("add", "add")),
    "mul": _binary("mul", ("mul:number", "mul:tensor")),
    "exp": _unary("exp"),
    "relu": _unary("relu"),
    "sign": _unary("sign"),
    "round": _unary("round"),
    "neg": _unary("neg", "add"),
    "sum": _sum,
    "add_": _in_place("add_", ("add_", "add_")),
    "sub_": _in_place("sub_", ("add_", "add_")),
    "mul_": _in_place("mul_", ("mul_", "mul_:tensor")),
    "exp_": _in_place("exp_", ("exp_", "exp_")),
    "zero_": _in_place("zero_", ("zero_", "zero_"), idempotent=True),
    "fill_": _in_place("fill_", ("fill_", "fill_"), idempotent=True),
    "copy_": _in_place("copy_", ("copy_:into", "copy_:into")),
    "requires_grad_": _requires_grad_,
    "detach_": lambda machine, x, _, __: machine.detach_(x),
    "backward": _backward,
    "numpy": _numpy,
    "item": _item,
}
"""Methods and attributes of a tensor, by name."""

FUNCTIONS: dict[str, Function] = {
    "torch.ones": _creation("ones"),
    "torch.zeros": _creation("zeros"),
    "torch.rand": _creation("rand"),
    "torch.from_numpy": _from_numpy,
    "torch.cat": _joined("cat"),
    "torch.stack": _joined("stack"),
    "torch.nn.Parameter": _parameter,
    "copy.deepcopy": _deepcopy,
}
"""Functions, by the text that calls them."""
