"""Ways of copying by sizes: what each costs, beside the memory's own speed. `tether bench`."""

from __future__ import annotations

import functools
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

import tether
from tether.measure import machine_limits, timing
from tether.measure.allocations import account
from tether.measure.cost import Bench, Cost


class Way(NamedTuple):
    """One expression over `x` that is measured."""

    expression: str
    family: str  # ways that are held against each other
    grad: bool = False  # `x` requires grad


WAYS = (
    Way("x.new_tensor(x)", "tensor"),
    Way("x.clone().detach()", "tensor"),
    Way("torch.empty_like(x).copy_(x)", "tensor"),
    Way("torch.tensor(x)", "tensor"),
    Way("x.detach().clone()", "tensor"),
    Way("tether.copy(x)", "tensor"),
    Way("x.detach().numpy().copy()", "numpy", grad=True),
    Way("x.clone().detach().numpy()", "numpy", grad=True),
    Way("x.detach().clone().numpy()", "numpy", grad=True),
    Way("x.clone().numpy()", "numpy", grad=True),
    Way("tether.copy(x, to='numpy')", "numpy", grad=True),
)
"""The five ways to copy a tensor, the four ways to an array (one is refused), and tether's."""

SIZES = tuple(4**power for power in range(15))
"""1 to 2^28 bytes."""


class Setting(NamedTuple):
    """What `x` is."""

    dtype: str = "float32"
    shape: str = "n"  # one of its sizes is n, chosen so that `x` has the bytes asked for
    device: str = "cpu"

    def make(self, nbytes: int, *, grad: bool) -> torch.Tensor:
        """Return `x` of about `nbytes`, at most, if one element in `n` allows.

        Raises `ValueError` for a dtype or shape that is none.
        """
        dtype = dtype_of(self.dtype)
        if nbytes < dtype.itemsize and self.shape == "n" and not grad:
            dtype = torch.uint8  # so many bytes have no element of that type
        sizes = shape_of(self.shape)
        fixed = math.prod(size for size in sizes if size is not None)
        count = max(1, nbytes // max(1, fixed * dtype.itemsize))
        x = torch.ones([count if s is None else s for s in sizes], dtype=dtype, device=self.device)
        return x.requires_grad_() if grad else x


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of that name. Raises `ValueError`."""
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name!r} is no dtype of torch (float32, bfloat16, int64, ...)")
    return found


def shape_of(text: str) -> tuple[int | None, ...]:
    """Return the sizes in ``"n,64"``, None for the n. Raises `ValueError`."""
    parts = [part.strip() for part in text.strip("()[] ").split(",") if part.strip()]
    if not all(part == "n" or (part.isdigit() and int(part) > 0) for part in parts):
        raise ValueError(f"{text!r} is no shape: write sizes and one n, as in n,64")
    if parts.count("n") != 1:
        raise ValueError(f"{text!r} needs exactly one n, the size that varies, as in n,64")
    return tuple(None if part == "n" else int(part) for part in parts)


def run(
    ways: Sequence[Way] = WAYS,
    sizes: Sequence[int] = SIZES,
    setting: Setting | None = None,
    *,
    seconds: float = 60.0,
    progress: Callable[[float], None] = lambda _: None,
) -> Bench:
    """Measure every way at every size within about `seconds`.

    What small sizes leave of their time goes to the larger ones. `progress` hears the part that
    is done, from 0 to 1. Raises `ValueError` for a setting that is none and `SyntaxError` for an
    expression that is none.
    """
    setting = setting or Setting()
    for way in ways:
        compile(way.expression.strip(), way.expression, "eval")
    start = time.perf_counter()
    costs: list[Cost] = []
    floor: dict[int, float] = {}
    disturbed: list[str] = []
    ordered = sorted(set(sizes))
    for number, nbytes in enumerate(ordered):
        left = max(0.0, seconds - (time.perf_counter() - start))

        def within(part: float, number: int = number) -> None:
            progress((number + part) / len(ordered))

        share = left / (len(ordered) - number)
        found, seconds_of_memory, words = _one_size(ways, nbytes, setting, share, within)
        if any(cost.nbytes in floor for cost in found):
            continue  # a size below one element became the size before
        costs += found
        if found:
            floor[found[0].nbytes] = seconds_of_memory
        if words:
            disturbed.append(f"at {found[0].nbytes:,} bytes {words}")
    return Bench(tuple(costs), floor, (), machine(setting), (*loaded(), *disturbed))


def _one_size(
    ways: Sequence[Way],
    nbytes: int,
    setting: Setting,
    seconds: float,
    progress: Callable[[float], None],
) -> tuple[list[Cost], float, str]:
    """Return the costs at one size, the memory's own time, and what disturbed it."""
    plain = setting.make(nbytes, grad=False)
    with_grad = functools.cache(lambda: _with_grad(plain))
    cuda = plain.device.type == "cuda"
    refused: dict[Way, str] = {}
    statements: dict[Way | str, timing.Statement] = {}
    accounts = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="To copy construct")
        for way in ways:
            try:
                x = with_grad() if way.grad else plain
                statement = timing.Statement(way.expression, _names(x), cuda=cuda)
                accounts[way] = account(statement.once, x)
                statements[way] = statement
            except Exception as error:  # noqa: BLE001 -- any expression of the user's may raise
                refused[way] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        own = machine_limits.memory_ways(plain)
        statements.update(own)
        samples = timing.interleaved(statements, seconds, progress=progress)
    best = min(own, key=lambda name: samples[name].median)
    costs = []
    for way in ways:
        if way in refused:
            costs.append(Cost(way.expression, way.family, plain.nbytes, None, note=refused[way]))
            continue
        sample, seen = samples[way], accounts[way]
        low, high = sample.quartiles
        costs.append(
            Cost(
                way.expression,
                way.family,
                plain.nbytes,
                sample.median,
                low,
                high,
                len(sample.times),
                sample.calls,
                sample.faults,
                *seen,
            )
        )
    return costs, samples[best].median, timing.noise(samples[best])


def _with_grad(plain: torch.Tensor) -> torch.Tensor:
    if not plain.dtype.is_floating_point and not plain.dtype.is_complex:
        name = str(plain.dtype).removeprefix("torch.")
        raise TypeError(f"x of {plain.nbytes} bytes is {name}, which cannot require grad")
    return plain.detach().requires_grad_()


def _names(x: torch.Tensor) -> dict[str, Any]:
    names: dict[str, Any] = {"x": x, "torch": torch, "tether": tether}
    try:
        import numpy as np
    except ImportError:
        return names
    return {**names, "np": np, "numpy": np}


def machine(setting: Setting) -> dict[str, str]:
    """Return what the figures depend on, in generic words."""
    found = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": str(os.cpu_count() or "unknown"),
        "threads": str(torch.get_num_threads()),
        "huge pages": huge_pages(),
        **setting._asdict(),
    }
    if setting.device.startswith("cuda"):
        found["device name"] = torch.cuda.get_device_name(setting.device)
    return found


def huge_pages() -> str:
    """Return the kernel's setting of transparent huge pages: "always", "madvise", "never"."""
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii")
    except OSError:
        return "unknown"
    return text.partition("[")[2].partition("]")[0] or "unknown"


def loaded() -> tuple[str, ...]:
    """Return words about a machine that was busy with other things in the last minute."""
    try:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
    except (AttributeError, OSError):  # Windows has no such figure
        return ()
    # This process itself keeps up to all cores busy: only what is beyond them is foreign for sure.
    if load > 1.2 * cores:
        return (f"the machine was busy: a load of {load:.1f} on {cores} cores",)
    return ()
