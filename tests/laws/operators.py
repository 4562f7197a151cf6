"""Small programs around one call of an operator, made from PyTorch's own samples of its operators.

A program takes its leaves from a namespace, makes the call at a line of its own, and runs twice:
bare, where PyTorch says what happens, and recorded, where tether says it.
"""

import contextlib
import itertools
import linecache
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db

import tether

OPERATORS = op_db
TYPES = (torch.float32, torch.float64, torch.complex64, torch.bfloat16, torch.float16)
MOST_SAMPLES = 24  # that are looked at for each operator


class Call(NamedTuple):
    """A call of an operator on leaves `x0`, `x1`... and on constants `c0`, `c1`..."""

    text: str
    leaves: tuple[torch.Tensor, ...]
    names: dict[str, Any]  # the operator and the constants, by name

    def namespace(self) -> dict[str, Any]:
        """Return the names that its text uses, with leaves and constants of their own."""
        leaves = [fresh(one).requires_grad_() for one in self.leaves]
        made = {f"w{n}": one for n, one in enumerate(leaves)}
        return {"torch": torch, **made, **{name: fresh(one) for name, one in self.names.items()}}

    def results(self) -> list[tuple[str, torch.Tensor]]:
        """Make the call, and return its tensors, each with its path from there."""
        names = self.namespace()
        names |= {f"x{n}": names[f"w{n}"] * 1 for n in range(len(self.leaves))}
        torch.manual_seed(0)
        return results_in(eval(self.text, names))


class Ran(NamedTuple):
    """What a program came to."""

    error: str  # "" where it ended
    line: int  # where it raised, of its own lines
    names: dict[str, Any]  # its variables
    findings: tuple[Any, ...]


def fresh(value: Any) -> Any:
    """Return a copy of the tensors in a value; other values as they are."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(fresh(one) for one in value)
    return value


def call_of(operator: Any, *, needs_graph: bool = True) -> Call | None:
    """Return a call of an operator on its first sample that a gradient flows through, if any.

    Without `needs_graph` a sample whose result has no graph does as well.
    """
    for dtype in (one for one in TYPES if one in operator.dtypes):
        torch.manual_seed(1)
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            samples = operator.sample_inputs("cpu", dtype, requires_grad=needs_graph)
            for sample in itertools.islice(samples, MOST_SAMPLES):
                call = _call(operator, sample)
                if call is not None and _is_usable(call, needs_graph):
                    return call
    return None


def _call(operator: Any, sample: Any) -> Call | None:
    leaves: list[torch.Tensor] = []
    names = {"op": operator.op}

    def text(value: Any) -> str:
        if type(value) in (list, tuple):
            inside = "".join(f"{text(one)}, " for one in value)
            return f"[{inside}]" if type(value) is list else f"({inside})"
        if isinstance(value, torch.Tensor) and value.is_floating_point() | value.is_complex():
            if value.layout is torch.strided and not any(value is one for one in leaves):
                leaves.append(value)
            found = [n for n, one in enumerate(leaves) if one is value]
            if found:
                return f"x{found[0]}"
        name = f"c{len(names) - 1}"
        names[name] = value
        return name

    given = [text(sample.input), *map(text, sample.args)]
    given += [f"{name}={text(value)}" for name, value in sample.kwargs.items()]
    sizes = [one.numel() for one in leaves]
    if not leaves or min(sizes) == 0 or max(sizes) > 4096:
        return None
    return Call(f"op({', '.join(given)})", tuple(leaves), names)


def _is_usable(call: Call, needs_graph: bool) -> bool:
    """Whether a call runs, and gives tensors (with a graph) that have elements."""
    shown = [one for _, one in call.results() if one.numel() and one.layout is torch.strided]
    return bool(shown) and (not needs_graph or any(one.requires_grad for one in shown))


def results_in(value: Any, path: str = "y") -> list[tuple[str, torch.Tensor]]:
    """Return the tensors in what a call returned, each with its path from there."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if isinstance(value, (list, tuple)):
        inside = [results_in(one, f"{path}[{n}]") for n, one in enumerate(value)]
        return list(itertools.chain(*inside))
    return []


def loss_of(results: list[tuple[str, torch.Tensor]], weight: str) -> str:
    """Return a loss in which each element of the results has a weight of its own."""
    terms = []
    for path, one in results:
        real = f"torch.view_as_real({path})" if one.is_complex() else path
        if not one.is_floating_point() and not one.is_complex():
            real = f"{path}.float()"
        terms.append(f"({real} * {weight.format(real)}).sum()")
    return " + ".join(terms)


def run(text: str, names: dict[str, Any], path: Path, *, record: bool) -> Ran:
    """Run a program in a namespace, recorded or bare."""
    path.write_text(text)
    linecache.checkcache(str(path))
    torch.manual_seed(0)
    code, error, line = compile(text, str(path), "exec"), "", 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tether.record() if record else contextlib.nullcontext() as made:
            try:
                exec(code, names)
            except Exception as caught:
                error, trace = str(caught), caught.__traceback__
                while trace is not None:
                    line = trace.tb_lineno if trace.tb_frame.f_code is code else line
                    trace = trace.tb_next
        found = tuple(made.findings) if made is not None else ()
    return Ran(error, line, names, found)


def gradients(ran: Ran, leaves: int) -> list[torch.Tensor | None]:
    """Return the gradients of a program's leaves."""
    return [ran.names[f"w{n}"].grad for n in range(leaves)]


def alike(first: list[torch.Tensor | None], other: list[torch.Tensor | None]) -> bool:
    """Whether gradients are the same up to rounding."""
    return all(
        a is b if a is None or b is None
        else torch.allclose(dense(a), dense(b), rtol=1e-4, atol=1e-6, equal_nan=True)
        for a, b in zip(first, other, strict=True)
    )  # fmt: skip


def dense(one: torch.Tensor) -> torch.Tensor:
    return one if one.layout is torch.strided else one.to_dense()


def lines_of(finding: Any) -> set[int]:
    """Return the lines that a finding names."""
    return {finding.site.line, *(step.site.line for step in finding.evidence)}


def is_nothing(one: torch.Tensor | None) -> bool:
    """Whether a gradient is None, or zero in each element."""
    return one is None or not bool(torch.any(dense(one) != 0))
