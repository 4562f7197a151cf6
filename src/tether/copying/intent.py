"""Which copy is wanted, and which calls make it: a pure decision table.

`Intent` says what a copy shall be tied to, `Subject` what the tensor is, and `decide` answers with
a `Plan`: the steps, each with its reason, or `Refused`, which says why no such copy can exist and
what would work instead. Nothing here touches a tensor; `tether.copying.copy` carries plans out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

MEMORY = ("own", "share")
GRAD = ("cut", "keep")
FORMATS = ("preserve", "contiguous", "channels_last", "channels_last_3d")

NUMPY_DTYPES = frozenset(
    {"float16", "float32", "float64", "complex64", "complex128", "bool"}
    | {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)
"""What NumPy can hold without help."""

RAGGED = frozenset({"nested", "jagged"})
"""Layouts of tensors whose rows differ in length."""

EXTENSION_DTYPES = {
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2": "float8_e5m2",
    "float8_e5m2fnuz": "float8_e5m2fnuz",
    "float8_e8m0fnu": "float8_e8m0fnu",
}
"""torch dtype -> the name of the same type in the ml_dtypes package."""


class Intent(NamedTuple):
    """What the copy shall be. Names are torch's own, without the "torch." before them."""

    memory: str = "own"
    grad: str = "cut"
    device: str = ""  # "cuda:0"; "" leaves it where it is
    dtype: str = ""  # "float32"; "" leaves it
    memory_format: str = "preserve"
    to: str = "torch"  # "torch", "numpy" or "dlpack"
    pinned: bool = False
    non_blocking: bool = False
    dense: bool = False  # a sparse tensor may become dense
    readonly: bool = False  # the NumPy array refuses writes
    out: bool = False  # written into memory that is there already


class Subject(NamedTuple):
    """What one tensor is, as far as copying it depends on it."""

    device: str = "cpu"
    dtype: str = "float32"
    layout: str = "strided"  # "nested" and "jagged" for tensors whose rows differ in length
    shape: tuple[int, ...] = ()
    requires_grad: bool = False
    conj: bool = False  # the conjugate bit is set: the bytes are not the values
    neg: bool = False  # the same for the negative bit
    formats: frozenset[str] = frozenset()  # the memory formats it already has
    pinned: bool = False
    inference: bool = False  # inference mode is on, or it was made in it
    plain: bool = True  # no subclass that intercepts dispatch
    readonly: bool = False  # a NumPy array that refuses writes


class Target(NamedTuple):
    """What the `out` is."""

    device: str
    dtype: str
    shape: tuple[int, ...]
    overlapping: bool = False  # two of its elements share a byte (an expanded view)
    touches_source: bool = False  # it shares bytes with what is copied
    readonly: bool = False


class World(NamedTuple):
    """What the machine offers."""

    cuda: bool = False
    ml_dtypes: bool = False


PLAIN_WORLD = World()
"""Neither CUDA nor ml_dtypes."""


class PlanStep(NamedTuple):
    """One call, by the name under which `tether.copying.copy` knows it, and why it is made."""

    call: str
    why: str


class Plan(NamedTuple):
    """The calls that make the copy, in order, and the ties that the result then has."""

    steps: tuple[PlanStep, ...]
    memory: str
    grad: str

    @property
    def calls(self) -> tuple[str, ...]:
        """The steps' names alone."""
        return tuple(step.call for step in self.steps)

    def __str__(self) -> str:
        tie = "shares the source's memory" if self.memory == "share" else "owns its memory"
        flow = "gradients flow back" if self.grad == "keep" else "gradients are cut"
        lines = [f"the result {tie}; {flow}"]
        lines += [
            f"  {number}. {step.call}: {step.why}" for number, step in enumerate(self.steps, 1)
        ]
        return "\n".join(lines)


class Refused(ValueError):  # noqa: N818 -- it names what happened, as StopIteration does
    """No copy can be what was asked for. `why` is the reason, `instead` what would work."""

    def __init__(self, why: str, instead: str) -> None:
        super().__init__(f"{why}; {instead}" if instead else why)
        self.why = why
        self.instead = instead


def check_words(intent: Intent) -> None:
    """Raise `ValueError` naming the first option whose value is not one of its words."""
    for name, words in (("memory", MEMORY), ("grad", GRAD), ("memory_format", FORMATS)):
        value = getattr(intent, name)
        if value not in words:
            raise ValueError(f"{name}={value!r} is not known; it is one of {', '.join(words)}")


@functools.lru_cache(maxsize=4096)
def decide(
    intent: Intent, subject: Subject, target: Target | None = None, world: World = PLAIN_WORLD
) -> Plan:
    """Return the plan for one tensor. Raises `Refused` when no result can be as asked."""
    check_words(intent)
    _refuse_lost_gradient(intent, subject)
    if intent.pinned and not world.cuda:
        raise Refused("pinned memory needs CUDA, which is not available", "omit pinned")
    if intent.pinned and (intent.memory == "share" and not subject.pinned):
        raise Refused("this memory is not pinned and sharing cannot pin it", 'use memory="own"')
    if intent.pinned and intent.device not in {"", "cpu"}:
        raise Refused("only host memory can be pinned", 'use device="cpu" or omit pinned')
    if intent.readonly and intent.to != "numpy":
        raise Refused("only a NumPy array can be read-only", 'use to="numpy"')
    if intent.out:
        return _into(intent, subject, target)
    if intent.memory == "share":
        return _shared(intent, subject, world)
    return _owned(intent, subject, world)


def _refuse_lost_gradient(intent: Intent, subject: Subject) -> None:
    """Refuse to keep a gradient where none can be kept. Without one, keeping is no promise."""
    if intent.grad != "keep" or not subject.requires_grad:
        return
    if intent.to != "torch":
        raise Refused(
            f'gradients do not flow through {intent.to} (to="{intent.to}")',
            'use grad="cut", or stay in torch',
        )
    if subject.inference:
        raise Refused("inference mode keeps no gradients", "copy outside of torch.inference_mode")
    if intent.dtype and not _differentiable(intent.dtype):
        raise Refused(
            f"{intent.dtype} carries no gradient", 'use grad="cut" or a floating or complex dtype'
        )
    if intent.out:
        raise Refused(
            "a copy into existing memory that keeps the gradient would make `out` part of the "
            "source's graph",
            'use grad="cut", or omit `out`',
        )


def _differentiable(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _moves(intent: Intent, subject: Subject) -> bool:
    return bool(intent.device) and intent.device != subject.device


def _converts(intent: Intent, subject: Subject) -> bool:
    return bool(intent.dtype) and intent.dtype != subject.dtype


def _reformats(intent: Intent, subject: Subject) -> bool:
    return intent.memory_format != "preserve" and intent.memory_format not in subject.formats


class _Rule(NamedTuple):
    """What cannot be: whether it is asked for, why it cannot be, and what would work instead."""

    asked: bool
    why: str
    instead: str


def _refuse(*rules: _Rule) -> None:
    """Raise `Refused` for the first rule that applies."""
    for rule in rules:
        if rule.asked:
            raise Refused(rule.why, rule.instead)


def _shared(intent: Intent, subject: Subject, world: World) -> Plan:
    """Plan a result on the source's own bytes, or refuse."""
    own = 'use memory="own"'
    here, there = subject.device, intent.device
    readonly = "readonly=True, or " if intent.to == "numpy" else ""
    _refuse(
        _Rule(_moves(intent, subject), f"{here} and {there} have no memory in common", own),
        _Rule(
            _converts(intent, subject),
            f"bytes of {subject.dtype} read as {intent.dtype} are other values",
            own,
        ),
        _Rule(
            _reformats(intent, subject),
            f"the bytes do not lie in {intent.memory_format} order",
            own,
        ),
        _Rule(
            intent.dense and subject.layout != "strided",
            f"a {subject.layout} tensor stores no zeros to share",
            own,
        ),
        _Rule(
            subject.readonly and not intent.readonly,
            "the array refuses writes, which its sharer would not",
            f'use {readonly}memory="own"',
        ),
        _Rule(
            intent.non_blocking,
            "sharing copies nothing that could be waited for",
            "omit non_blocking",
        ),
    )
    if intent.grad == "cut":
        tie = PlanStep("detach", "the same bytes, outside of the gradient graph")
    else:
        tie = PlanStep("alias", "a new tensor on the same bytes, inside the gradient graph")
    if intent.to == "torch":
        return Plan((tie,), "share", intent.grad)
    _refuse_foreign_bytes(intent, subject, own)
    return Plan((tie, *_exported(intent, subject.dtype, world)), "share", intent.grad)


def _refuse_foreign_bytes(intent: Intent, subject: Subject, own: str) -> None:
    """Refuse bytes that another library cannot read as they are."""
    bits = f"bit set), and {intent.to} has no such bit"
    _refuse(
        _Rule(
            subject.device != "cpu" and intent.to == "numpy",
            f"NumPy cannot reach memory of {subject.device}",
            own,
        ),
        _Rule(
            subject.layout != "strided",
            f"{intent.to} has no {subject.layout} layout",
            f"{own} and dense=True",
        ),
        _Rule(subject.conj, f"the bytes are not the values (conjugate {bits}", own),
        _Rule(subject.neg, f"the bytes are not the values (negative {bits}", own),
    )


def _owned(intent: Intent, subject: Subject, world: World) -> Plan:
    """Plan a result on bytes of its own. Exactly one step makes them."""
    foreign = intent.to != "torch"
    device = _other_device(intent, subject)
    dense = subject.layout != "strided" and (intent.dense or foreign)
    _refuse(*_unownable(intent, subject, moves=device != "", dense=dense))
    steps: list[PlanStep] = []
    if intent.grad == "cut" and subject.requires_grad:
        steps.append(PlanStep("detach", "cut first, so that the copy leaves no node in the graph"))
    if dense:
        steps.append(PlanStep("dense", f"{subject.layout} written out, zeros and all"))
    steps += _made(intent, subject, device, dense=dense)
    if foreign and (subject.conj or subject.neg):
        steps.append(PlanStep("resolve", "the values written out, since no such bit exists there"))
    steps += [] if device else _pinned(intent)
    if foreign:
        steps += _exported(intent, intent.dtype or subject.dtype, world)
    return Plan((*steps, *_awaited(intent)), "own", intent.grad)


def _other_device(intent: Intent, subject: Subject) -> str:
    """Return the device that the bytes are moved to, "" where they stay."""
    wanted = "cpu" if intent.to == "numpy" else intent.device
    return "" if wanted in ("", subject.device) else wanted


def _unownable(intent: Intent, subject: Subject, *, moves: bool, dense: bool) -> Iterator[_Rule]:
    """Yield why there can be no copy on bytes of its own."""
    yield _Rule(
        intent.to == "numpy" and intent.device not in ("", "cpu"),
        "NumPy lives in host memory",
        'use device="cpu" or omit device',
    )
    yield _Rule(
        subject.device == "meta" and (moves or intent.to != "torch"),
        "a meta tensor has no values",
        "make one of its shape, as torch.empty_like",
    )
    yield _Rule(
        dense and subject.layout in RAGGED,
        "the rows of a nested tensor differ in length",
        "copy its unbind(), or torch.nested.to_padded_tensor(x, 0.0)",
    )
    yield _Rule(
        dense and not intent.dense,
        f"{intent.to} has no {subject.layout} layout",
        "use dense=True",
    )


def _made(intent: Intent, subject: Subject, device: str, *, dense: bool) -> list[PlanStep]:
    """Return the step that makes own memory, on a `device` that is another one, and its order.

    Where the zeros of a sparse tensor were written out, that has made the memory.
    """
    converts = _converts(intent, subject)
    steps = []
    if device:
        why = f"from {subject.device} to {device}"
        why += f", as {intent.dtype}" if converts else ""
        why += ", into page-locked memory" if intent.pinned else ""
        steps.append(PlanStep("move", why))
    elif converts:
        steps.append(PlanStep("convert", f"from {subject.dtype} to {intent.dtype}, a copy already"))
    elif not dense:
        return [_cloned(intent, subject)]
    if _reformats(intent, subject):
        steps.append(PlanStep("reformat", f"into {intent.memory_format} order"))
    return steps


def _cloned(intent: Intent, subject: Subject) -> PlanStep:
    pooled = subject.device == "cpu" and subject.plain and subject.layout == "strided"
    if pooled and intent.grad == "cut":
        return PlanStep("clone", "own memory, from the pool when it is large")
    return PlanStep("clone", "own memory, with a node in the graph where there is one")


def _pinned(intent: Intent) -> list[PlanStep]:
    why = "page-locked, so that the device can read it directly"
    return [PlanStep("pin", why)] if intent.pinned else []


def _awaited(intent: Intent) -> list[PlanStep]:
    why = "handed out only after the transfer is known to be done"
    return [PlanStep("pending", why)] if intent.non_blocking else []


def _exported(intent: Intent, dtype: str, world: World) -> list[PlanStep]:
    if intent.to == "dlpack":
        return [PlanStep("dlpack", "as a DLPack capsule on those bytes")]
    steps = []
    if dtype in NUMPY_DTYPES:
        steps.append(PlanStep("numpy", "as an array on those bytes"))
    elif dtype not in EXTENSION_DTYPES:
        raise Refused(f"NumPy has no {dtype}", 'name a dtype it has, as dtype="float32"')
    elif not world.ml_dtypes:
        raise Refused(
            f"NumPy has no {dtype}",
            'install ml_dtypes, which adds it, or name a dtype it has, as dtype="float32"',
        )
    else:
        steps.append(PlanStep("ml_dtypes", f"as an array of ml_dtypes.{EXTENSION_DTYPES[dtype]}"))
    if intent.readonly:
        steps.append(PlanStep("readonly", "the array refuses writes"))
    return steps


def _into(intent: Intent, subject: Subject, target: Target | None) -> Plan:
    """Plan a write into memory that is there already."""
    if target is None:
        raise ValueError("out is asked for, and no target is described")
    _refuse(
        _Rule(
            intent.memory == "share",
            "`out` has memory of its own",
            'use memory="own", or omit `out`',
        ),
        _Rule(
            intent.to == "dlpack",
            "a DLPack capsule cannot be written into",
            "give the tensor itself as out",
        ),
        *_unlike(intent, subject, target),
        *_unwritable(target),
        _Rule(
            intent.memory_format != "preserve" or intent.pinned,
            "`out` has its layout and its kind of memory",
            "omit memory_format and pinned",
        ),
    )
    write = PlanStep("write", "into the memory of out, gradients cut")
    return Plan((write, *_awaited(intent)), "own", "cut")


def _unlike(intent: Intent, subject: Subject, target: Target) -> Iterator[_Rule]:
    """Yield what an `out` must have in common with the source and with what is asked for."""
    yield _Rule(
        target.shape != subject.shape,
        f"`out` has shape {list(target.shape)} and the source {list(subject.shape)}",
        "give an out of the source's shape",
    )
    yield _Rule(
        intent.dtype not in ("", target.dtype),
        f"`out` is {target.dtype} and {intent.dtype} is asked for",
        "omit dtype",
    )
    yield _Rule(
        intent.device not in ("", target.device),
        f"`out` is on {target.device} and {intent.device} is asked for",
        "omit device",
    )
    yield _Rule(
        subject.dtype.startswith("complex") and not target.dtype.startswith("complex"),
        f"`out` is {target.dtype} and would lose the imaginary part",
        "give a complex out",
    )


def _unwritable(target: Target) -> Iterator[_Rule]:
    """Yield why memory cannot be written as a copy."""
    yield _Rule(
        target.overlapping,
        "elements of `out` share bytes (an expanded view), so that one write shows in several",
        "give out.contiguous() or another tensor",
    )
    yield _Rule(
        target.touches_source, "`out` shares bytes with the source", "give separate memory as out"
    )
    yield _Rule(target.readonly, "`out` is read-only", "give an out that can be written")
