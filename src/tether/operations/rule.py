"""The vocabulary of the rulebook: a `Rule` says by `Case` what a call does, as an `Effect`.

A rule is about one *source*, called ``x`` in its call (or named by `Rule.source`), and one
*result*. What a call does may depend on the source: each case names the sources it holds for, and
the first case that fits decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64",)
WHOLE = ("int64", "bool")
DTYPES = FLOATS + COMPLEX + WHOLE
"""The types that the experiments try, by PyTorch's names."""

Memory = Literal["same", "share", "bridge", "own", "moved", "values"]
MEMORY: dict[Memory, str] = {
    "same": "returns the very same tensor",
    "share": "shares its memory",
    "bridge": "shares its bytes through another storage object",
    "own": "has its own memory",
    "moved": "the same tensor, now on other memory",
    "values": "leaves the tensors: plain Python values",
}
"""How result and source are tied in memory, in words."""

Gradient = Literal["keep", "cut", "zero", "raises"]
GRADIENT: dict[Gradient, str] = {
    "keep": "keeps the gradient",
    "cut": "cuts the gradient",
    "zero": "passes only zeros back",
    "raises": "makes backward raise",
}
"""What becomes of the tie of gradient, in words; only sources that require grad have one."""

Layout = Literal["source", "contiguous", "view"]
Writes = Literal["no", "seen", "unseen"]
Saved = Literal["x", "other", "result", "own"]  # "own": a number, a mask, indices


class Given(NamedTuple):
    """What a rule may ask of the tensor a call is made on."""

    dtype: str = "float32"
    contiguous: bool = True
    requires_grad: bool = False
    leaf: bool = True
    device: str = "cpu"


class When(NamedTuple):
    """Which sources a case holds for; None and () ask nothing."""

    dtype: tuple[str, ...] = ()
    contiguous: bool | None = None
    requires_grad: bool | None = None
    leaf: bool | None = None
    device: str | None = None  # type of the device: "cpu", "cuda"

    def holds(self, source: Given) -> bool:
        """Whether `source` is one of those meant."""
        return (
            (not self.dtype or source.dtype in self.dtype)
            and self.contiguous in (None, source.contiguous)
            and self.requires_grad in (None, source.requires_grad)
            and self.leaf in (None, source.leaf)
            and self.device in (None, source.device.partition(":")[0])
        )

    def words(self) -> str:
        """Say the condition: ``float32, not contiguous``; "" when there is none."""
        said = [_dtype_words(self.dtype)] if self.dtype else []
        for wanted, word in (
            (self.contiguous, "contiguous"),
            (self.requires_grad, "requiring grad"),
            (self.leaf, "a leaf"),
        ):
            if wanted is not None:
                said.append(word if wanted else f"not {word}")
        if self.device:
            said.append(f"on {self.device}")
        return ", ".join(said)


ANY = When()
"""Every source."""


@dataclass(frozen=True)
class Effect:
    """What a call does to one source."""

    memory: Memory
    gradient: Gradient = "keep"
    requires_grad: Literal["", "yes", "no"] = ""  # "": follows from `gradient`
    leaf: Literal["", "yes", "no"] = ""  # "": a result that does not require grad is a leaf
    dtype: str = ""  # "": that of the source
    device: str = ""  # "": that of the source
    layout: Layout = "view"  # "source": the same strides; "view": whatever the view makes of them
    version: Literal["own", "shared", "none"] = "own"  # "none": no counter hears writes through it
    writes: Writes = "no"  # whether the source's bytes change, and whether its version tells
    grad: Literal["no", "same", "copied", "other"] = "no"  # a leaf's `.grad`: is it on the result
    hooks: Literal["no", "same"] = "no"  # hooks registered on the source: are they on the result
    allocations: int = 0  # blocks of the source's size that torch allocates; -1: not counted
    waits: bool = False  # a GPU source makes the program wait for it
    saves: tuple[Saved, ...] = ()  # values backward reads again, freed by the first
    starts: int = 0  # version of a result with a counter of its own
    raises: str = ""  # "RuntimeError: what its message contains"; nothing else holds then

    def result_requires_grad(self, source: Given) -> bool:
        """Whether the result requires grad, grad mode being on."""
        if self.requires_grad:
            return self.requires_grad == "yes"
        return source.requires_grad and self.gradient != "cut"

    def result_leaf(self, source: Given) -> bool:
        """Whether the result is a leaf, grad mode being on."""
        if self.leaf:
            return self.leaf == "yes"
        if not self.result_requires_grad(source):
            return True
        return self.memory in ("same", "moved") and source.leaf


class Case(NamedTuple):
    """An effect and the sources it holds for."""

    when: When
    effect: Effect


@dataclass(frozen=True)
class Rule:
    """One way of copying, converting, viewing, wrapping or writing a tensor.

    `call` is the text that the experiment runs: an expression whose value is the result, or
    statements after which the expression `result` is. `setup` runs first; then `source` is taken.
    """

    slug: str  # "clone", "to:dtype": the recorder's operation name, and the form of the call
    call: str
    cases: tuple[Case, ...]
    sentence: str  # what a user should know, in one sentence
    family: str = ""
    better: str = ""  # the better way, where there is one
    setup: str = ""
    source: str = "x"
    result: str = ""
    only: When = ANY  # the sources it makes sense for
    names: tuple[str, ...] = ()  # further operation names that mean this call
    needs: Literal["", "cuda", "numpy"] = ""  # what the machine must have
    since: str = ""  # PyTorch release it was tried on, where an earlier one was found different

    @property
    def operation(self) -> str:
        """The recorder's name of the call; "" for a chain of several calls."""
        operation = self.slug.partition(":")[0]
        return "" if operation == "chain" else operation

    def effect(self, source: Given) -> Effect | None:
        """Return what the call does to `source`; None when no case holds for it."""
        if not self.only.holds(source):
            return None
        return next((case.effect for case in self.cases if case.when.holds(source)), None)

    def varies(self, field: str) -> bool:
        """Whether the cases that return differ in `field` of their effects."""
        return len({getattr(c.effect, field) for c in self.cases if not c.effect.raises}) > 1


def _dtype_words(dtypes: tuple[str, ...]) -> str:
    groups = {
        FLOATS: "floating point",
        COMPLEX: "complex",
        WHOLE: "integers and bools",
        FLOATS + COMPLEX: "floating point and complex",
        FLOATS + WHOLE: "real",
    }
    return groups.get(dtypes) or " or ".join(dtypes)
