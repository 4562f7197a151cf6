"""One experiment: make a source, run a rule's call on it, and look at what became of both ties.

Everything is observed from outside, with PyTorch's own means (storages, versions, `grad_fn`,
exceptions), and nothing is taken from the rulebook but the text of the call.
"""

# ruff: noqa: S102, S307, ARG004 - the text that runs is the rulebook's own; the Functions below
# have the signatures that autograd asks for

from __future__ import annotations

import copy
import ctypes
import itertools
import pickle
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import increment_version
from torch.utils.checkpoint import checkpoint

from tether.measure.allocations import recorded
from tether.operations.rule import COMPLEX, DTYPES, FLOATS, Given, Rule

try:
    import numpy as np
except ImportError:  # pragma: no cover - numpy is an extra
    np = None  # type: ignore[assignment]

HAS_NUMPY = np is not None
SHAPE = (3, 4)


class Seen(NamedTuple):
    """What one experiment saw; "" where there was nothing to see.

    The fields are those of `Effect`, with `requires_grad` and `leaf` as they were.
    """

    raises: str = ""
    memory: str = ""
    gradient: str = ""
    requires_grad: str = ""
    leaf: str = ""
    dtype: str = ""
    device: str = ""
    strides: str = ""  # "source contiguous", "source", "contiguous" or ""
    version: str = ""
    writes: str = ""
    grad: str = ""
    hooks: str = ""
    saves: str = ""
    starts: str = ""


def sources(rule: Rule, device: str) -> Iterator[Given]:
    """Every source that the rule makes sense for, of those tried."""
    for dtype, contiguous, (requires_grad, leaf) in itertools.product(
        DTYPES, (True, False), ((False, True), (True, True), (True, False))
    ):
        if requires_grad and dtype not in FLOATS + COMPLEX:
            continue
        source = Given(dtype, contiguous, requires_grad, leaf, device)
        if rule.only.holds(source):
            yield source


def make(source: Given) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a tensor as `source` says, and the leaf from which its gradient is asked."""
    dtype = getattr(torch, source.dtype)
    values = torch.arange(1, 13, device=source.device).reshape(SHAPE).to(dtype)
    values[0, 0] = -1  # what a ReLU changes
    values = values.clone()  # a tensor of its own, no view of another
    if not source.contiguous:
        values = torch.empty_strided(SHAPE, (1, 3), dtype=dtype, device=source.device).copy_(values)
    if source.requires_grad:
        values.requires_grad_()
    if source.leaf:
        return values, values
    return values.clone(), values


@contextmanager
def _prepared(rule: Rule, source: Given) -> Iterator[tuple[dict[str, Any], Any, torch.Tensor]]:
    """Give the names of the rule's text, its source, and the leaf behind that, warnings off."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="tether-") as folder:
        warnings.simplefilter("ignore")
        names = namespace(Path(folder))
        names["x"], root = make(source)
        exec(rule.setup, names)
        before = eval(rule.source, names)
        made_anew = before is not names["x"] or (root is not before and source.leaf)
        yield names, before, before if made_anew else root


def observe(rule: Rule, source: Given) -> Seen:
    """Run the rule's call on such a source and say what was seen."""
    with _prepared(rule, source) as (names, before, root):
        if before.requires_grad and before.is_leaf:
            before.grad = torch.ones_like(before)
            before.register_hook(_hook)
        look = _Look(before, root, names.get("other"))
        try:
            result = run(rule, names)
        except Exception as error:  # noqa: BLE001 - whatever is raised is the result
            return Seen(raises=f"{type(error).__name__}: {error}")
        return look.after(result)


def run(rule: Rule, names: dict[str, Any]) -> Any:
    """Run the call and return its result. Errors: whatever the call raises."""
    if not rule.result:
        return eval(rule.call, names)
    exec(rule.call, names)
    return eval(rule.result, names)


def allocations(rule: Rule, source: Given) -> int | None:
    """Count the blocks as large as the source that torch allocates in the call; None: no record."""
    with _prepared(rule, source) as (names, x, _):
        if "optim" in rule.setup:  # a step without gradients does nothing
            x.grad = torch.ones_like(x)
        seen = recorded(partial(run, rule, names))
        if seen is None:
            return None
        result, blocks = seen
        size = x.numel() * min(x.element_size(), getattr(result, "itemsize", 16))
        return len([nbytes for nbytes in blocks if nbytes >= size])


def waits(rule: Rule, source: Given) -> bool:
    """Whether the call makes the program wait for the GPU, by CUDA's own report."""
    with _prepared(rule, source) as (names, _, _):
        torch.cuda.synchronize()
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            run(rule, names)
        except RuntimeError as error:
            if "synchronizing CUDA operation" not in str(error):
                raise
            return True
        finally:
            torch.cuda.set_sync_debug_mode(mode)
    return False


def namespace(folder: Path) -> dict[str, Any]:
    """Make the names a rule's text may use."""
    return {
        "torch": torch,
        "np": np,
        "copy": copy,
        "pickle": pickle,
        "checkpoint": checkpoint,
        "temporary": lambda: str(folder / "tensor.pt"),
        "holder": _holder,
        "print": lambda *_: None,
        "Identity": _Identity,
        "Cut": _Cut,
        "NonDifferentiable": _NonDifferentiable,
    }


class _Look:
    """The source before the call, and the questions asked of it afterwards."""

    def __init__(self, source: torch.Tensor, root: torch.Tensor, other: Any) -> None:
        self.source, self.root, self.other = source, root, other
        self.alias = source.detach()  # holds the storage, so that no address comes back
        self.requires_grad = source.requires_grad
        self.storage = source.untyped_storage()
        self.address = (self.storage._cdata, self.storage.data_ptr(), self.storage.nbytes())
        self.strides = source.stride()
        self.bytes = _bytes(self.storage) if source.device.type == "cpu" else b""
        self.values = self.alias.clone()
        self.version = source._version
        self.leaf_grad = source.grad if source.is_leaf else None

    def after(self, result: Any) -> Seen:
        """Look at the result. The questions that move a version counter come last."""
        writes = self._writes()
        if not isinstance(result, torch.Tensor):
            return self._plain(result, writes)
        requires_grad, leaf = result.requires_grad, result.is_leaf
        seen = Seen(
            memory=self._memory(result),
            gradient=self._gradient(result),
            requires_grad="yes" if requires_grad else "no",
            leaf="yes" if leaf else "no",
            dtype=str(result.dtype).removeprefix("torch."),
            device=result.device.type,
            strides=self._strides(result.stride(), result.is_contiguous()),
            writes=writes,
            grad=self._grad(result),
            hooks="same" if leaf and result._backward_hooks else "no",
        )
        inner = self.requires_grad and requires_grad and not leaf
        starts = "" if result.is_inference() else str(result._version)
        saves = self._saves(result) if inner else ""
        version = self._version(result)
        return seen._replace(
            saves=saves, version=version, starts=starts if version == "own" else ""
        )

    def _plain(self, result: Any, writes: str) -> Seen:
        """Say what is known of a result that is no tensor."""
        if np is None or not isinstance(result, np.ndarray):
            return Seen(memory="values", gradient="cut", writes=writes)
        start = result.__array_interface__["data"][0]
        _, first, nbytes = self.address
        strides = tuple(s // result.itemsize for s in result.strides)
        return Seen(
            memory="bridge" if first <= start < first + nbytes else "own",
            gradient="cut",
            dtype=str(result.dtype),
            device="cpu",
            strides=self._strides(strides, result.flags.c_contiguous),
            writes=writes,
        )

    def _memory(self, result: torch.Tensor) -> str:
        storage = result.untyped_storage()
        cdata, address, nbytes = self.address
        if result is self.source:
            return "same" if storage._cdata == cdata else "moved"
        if storage._cdata == cdata:
            return "share"
        start = storage.data_ptr()
        return "bridge" if start and address <= start < address + nbytes else "own"

    def _gradient(self, result: torch.Tensor) -> str:
        if not self.requires_grad:
            return ""
        if not result.requires_grad:
            return "cut"
        try:
            back = _back(result, self.root)
        except (RuntimeError, NotImplementedError) as error:
            # A view made under no_grad says that it requires grad, and has no way back.
            return "cut" if "does not require grad" in str(error) else "raises"
        if back is None:
            return "cut"
        return "keep" if back.any() else "zero"

    def _strides(self, strides: tuple[int, ...], contiguous: bool) -> str:
        return " ".join(
            word
            for word, true in (("source", strides == self.strides), ("contiguous", contiguous))
            if true
        )

    def _version(self, result: torch.Tensor) -> str:
        if result.is_inference():
            return "none"
        before = self.source._version
        with torch.no_grad():
            increment_version(result)
        return "shared" if self.source._version != before or result is self.source else "own"

    def _writes(self) -> str:
        if self.source.device.type == "meta":
            return "no"
        storage, nbytes = self.alias.untyped_storage(), self.address[2]
        if self.bytes:
            same = _bytes(storage)[:nbytes] == self.bytes
        else:
            same = torch.equal(self.alias, self.values)
        if same:
            return "no"
        return "seen" if self.source._version != self.version else "unseen"

    def _grad(self, result: torch.Tensor) -> str:
        if self.leaf_grad is None:
            return ""
        carried = result.grad if result.is_leaf else None
        if carried is None:
            return "no"
        if carried is self.leaf_grad:
            return "same"
        return "copied" if torch.equal(carried, self.leaf_grad) else "other"

    def _saves(self, result: torch.Tensor) -> str:
        """Which values backward reads again: those whose version it finds changed."""
        increment_version(self.alias)
        if _refuses(result, self.root):
            return "result" if result is self.source else "x"
        with torch.no_grad():
            increment_version(result)
        if _refuses(result, self.root):
            return "result"
        if isinstance(self.other, torch.Tensor):
            increment_version(self.other)
            if _refuses(result, self.root):
                return "other"
        return "own" if self._frees(result) else ""

    def _frees(self, result: torch.Tensor) -> bool:
        """Whether a second way back is refused since the first freed something."""
        try:
            _back(result, self.root, retain=False)
            _back(result, self.root, retain=False)
        except (RuntimeError, NotImplementedError) as error:
            return "a second time" in str(error)
        return False


def _bytes(storage: torch.UntypedStorage) -> bytes:
    return ctypes.string_at(storage.data_ptr(), storage.nbytes())


def _refuses(result: torch.Tensor, root: torch.Tensor) -> bool:
    try:
        _back(result, root)
    except (RuntimeError, NotImplementedError) as error:
        return "modified by an inplace operation" in str(error)
    return False


def _back(result: torch.Tensor, root: torch.Tensor, *, retain: bool = True) -> torch.Tensor | None:
    # Unequal weights: the sum of a softmax is one, whatever goes in.
    weights = torch.arange(1.0, result.numel() + 1, device=result.device)
    weights = weights.reshape(result.shape).to(result.dtype)
    (back,) = torch.autograd.grad(result, root, weights, retain_graph=retain, allow_unused=True)
    return back


def _hook(grad: torch.Tensor) -> None:
    """Hear a gradient and leave it alone."""


def _holder(x: torch.Tensor) -> torch.nn.Module:
    """Make a module whose parameter ``weight`` is on the memory of `x`."""
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(x.detach(), requires_grad=x.requires_grad)
    return module


class _Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None


class _NonDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        ctx.mark_non_differentiable(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]
