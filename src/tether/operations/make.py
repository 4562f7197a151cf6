"""Makes `aten.json`: what PyTorch's own schema and derivatives say of every operation.

``python -m tether.operations.make`` reads the files that lie inside the installed torch
(``torchgen/packaged``) and prints the table, with the release it was made from. It is run when a
new PyTorch is out; a test says where the installed one disagrees with the table.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

_FLAT = re.compile(
    r"(zeros_like\(.*\)|at::zeros(_symint)?\(.*\)|\w+_info\.zeros\(\)|\w+\.zeros\(\))"
)
"""A formula that gives zeros whatever the values are."""


def facts() -> dict[str, Any]:
    """Return the table: operations by their plain name, and the classes of graph nodes."""
    import torchgen
    from torchgen.gen import parse_native_yaml
    from torchgen.packaged.autograd.load_derivatives import load_derivatives

    packaged = Path(torchgen.__file__).parent / "packaged"
    native = str(packaged / "ATen/native/native_functions.yaml")
    tags = str(packaged / "ATen/native/tags.yaml")
    derivatives, _ = load_derivatives(str(packaged / "autograd/derivatives.yaml"), native, tags)
    functions = parse_native_yaml(native, tags).native_functions
    infos = [info for by_key in derivatives.values() for info in by_key.values()]
    release = metadata.version("torch").partition("+")[0]
    operations, linear = _operations(functions), _linear(infos)
    for name in operations.keys() & linear.keys():
        operations[name]["linear"] = linear[name]
    for name, row in operations.items():
        if "writes" in row and name.endswith("_") and not name.startswith("_"):
            row.update(_anew(name.removesuffix("_")))
    return {"release": release, "operations": operations, "nodes": _nodes(infos)}


def _operations(functions: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return for each plain name what holds for all, or for some, of its overloads."""
    grouped: dict[str, list[Any]] = defaultdict(list)
    for function in functions:
        name = function.func.name.name
        if name.dunder_method:
            grouped[f"__{'i' if name.inplace else ''}{name.base}__"].append(function)
        else:
            grouped[name.base + ("_" if name.inplace else "")].append(function)
    return {name: _row(found) for name, found in sorted(grouped.items())}


def _anew(name: str) -> dict[str, str]:
    """Return in what of PyTorch's the call stands that makes a new tensor; nothing of a method."""
    if hasattr(_module("torch").Tensor, name):
        return {}
    found = (one for one in ("torch.nn.functional", "torch") if hasattr(_module(one), name))
    return {"anew": next(found, "")}


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _row(overloads: list[Any]) -> dict[str, Any]:
    plain = [one for one in overloads if not one.func.is_out_fn()] or overloads
    schemas = [one.func for one in plain]
    row: dict[str, Any] = {}
    if any(map(_is_view, schemas)):
        row["view"] = "always" if all(map(_is_view, schemas)) else "sometimes"
    if any(map(_writes, schemas)):
        row["writes"] = "shape" if all("inplace_view" in one.tags for one in plain) else "values"
    if not any(map(_takes_tensors, schemas)):
        row["fresh"] = True
    tags = set[str]().union(*(one.tags for one in plain))
    return row | {word: True for tag, word in _TAGS.items() if tag in tags}


_TAGS = {
    "data_dependent_output": "leaves",
    "nondeterministic_seeded": "random",
    "pointwise": "pointwise",
}


def _is_view(schema: Any) -> bool:
    return any(one.annotation is not None and not one.annotation.is_write for one in schema.returns)


def _writes(schema: Any) -> bool:
    return any(
        one.annotation is not None and one.annotation.is_write
        for one in schema.arguments.flat_non_out
    )


def _takes_tensors(schema: Any) -> bool:
    return any(one.type.is_tensor_like() for one in schema.arguments.flat_all)


def _nodes(infos: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return for each class of node the inputs that it always gives a gradient of zero.

    Inputs are counted as the node's edges are: differentiable arguments, in the order of the call.
    """
    found: dict[str, dict[str, Any]] = {}
    for info in infos:
        if not info.op:
            continue
        flat = {
            name
            for one in info.derivatives
            for name in one.var_names
            if _FLAT.fullmatch(one.formula.strip())
        }
        names = [one.name for one in info.args_with_derivatives] if flat else []
        row: dict[str, Any] = {"operation": str(info.func.func.name.name)}
        if flat:
            row["flat"] = [number for number, name in enumerate(names) if name in flat]
        if any("rounding_mode" in one.formula for one in info.derivatives):
            row["rounds"] = True
        found[info.op] = row
    return dict(sorted(found.items()))


def _linear(infos: Iterable[Any]) -> dict[str, list[int]]:
    """Return for each name the tensor arguments in which its first result is linear, or affine.

    The formula of the derivative there names neither the argument nor a result, and is not zero;
    so for each of its overloads but those that are asked to round.
    """
    said: dict[str, set[tuple[int, bool]]] = defaultdict(set)
    for info in infos:
        if any("rounding_mode" in one.formula for one in info.derivatives):
            continue
        schema = info.func.func
        given = [one.name for one in schema.arguments.flat_non_out if one.type.is_tensor_like()]
        made = ["result", *(one.name for one in schema.returns if one.name)]
        said[schema.name.name.base] |= {
            (given.index(name), _is_linear(one.formula, (name, *made)))
            for one in info.derivatives
            for name in one.var_names
            if name in given
        }
    found = {
        name: sorted(place for place, yes in places if yes and (place, False) not in places)
        for name, places in said.items()
    }
    return {name: places for name, places in found.items() if places}


def _is_linear(formula: str, words: Iterable[str]) -> bool:
    if _FLAT.fullmatch(formula.strip()) or formula.startswith("not_implemented"):
        return False
    return not any(re.search(rf"\b{word}\b", formula) for word in words)


if __name__ == "__main__":
    json.dump(facts(), sys.stdout, indent=0, sort_keys=False)
