"""What each PyTorch operation does, as far as its name tells: one row for each.

A row is made of two things: what PyTorch's own schema says (`aten.json`, made by `operations.make`
from the files inside the installed torch), and what no schema says, in `operations.rows`. What can
be seen in a recording (who shares, who was written, what was saved) is read off the facts; a row is
asked only for what cannot. An operation of which nothing is known says so: `Operation.known`.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, NamedTuple

Leaves = Literal[
    "", "number", "numbers", "array", "capsule", "truth", "answer", "text", "pickle", "process",
    "address",
]  # fmt: skip
Copies = Literal["", "clone", "cast", "move"]
Selects = Literal["", "comparison", "index"]
Notes = Literal[
    "",
    "mode",
    "wanted",
    "gradient read",
    "gradient assigned",
    "hook",
    "non-blocking",
    "statistics",
    "dimension",
    "padding",
    "answer",
]

ALL = (-1,)
"""Of `Operation.template`: every tensor argument."""


class Spared(NamedTuple):
    """A result of a call that need not be made, or not as large."""

    result: int  # its place among the results
    way: str  # what to write, so that it is not: "full_matrices=False"
    dimension: int = 0  # made only as long there as the shorter side of the matrix; 0: not made


@dataclass(frozen=True)
class Operation:
    """What is known of the calls of one name (`facts.Event.operation`)."""

    name: str
    known: bool = True
    shown: str = ""  # how a reader writes it, where nobody types its name
    typed: str = ""  # the name in the program text, where it is another

    # the values
    leaves: Leaves = ""  # what a tensor's values become in Python; an "answer" is about two tensors
    enters: bool = False  # makes a tensor of what may be numbers or another library's array
    mixes: bool = False  # takes a Python number beside a tensor
    same: bool = False  # gives the values it was given, as a reader sees them
    packs: bool = False  # makes a tensor of another layout around the values that it is given
    compares: bool = False  # says how two tensors differ: of one and the same, that they do not
    aims: bool = False  # is least where its first argument says what its second one does: a target
    blends: bool = False  # adds a second tensor to the first, in place
    carries: bool = True  # values flow on, into results or into what is written
    clears: bool = False  # lets gradients go, or makes zeros of them: it reads no values
    flat: bool = False  # its derivative is zero wherever it has one
    template: tuple[int, ...] = ()  # tensor arguments of which only shape, dtype or device count
    selects: Selects = ""  # its results are true and false, or places
    random: bool = False
    draws: bool = False  # its values are drawn; tensors that it is given say how they lie
    single: bool = False  # takes one sample at a time: no call of it takes many
    divides: bool = False  # its first argument by its second
    linear: tuple[int, ...] = ()  # tensor arguments of whose values its derivative says nothing
    pointwise: bool = False  # each element of the result is made of the elements in its place

    adds: bool = False  # adds elements up, or takes their mean, along a dimension
    multiplies: bool = False  # multiplies many matrices, in pairs
    as_they_lie: bool = False  # reads several matrices as they lie, and lays none of them out
    in_parts: bool = False  # asked of parts, and of what these give, it says the same of the whole
    rounds: bool = False  # adds up, in an order that may hang on strides, and does nothing else

    # the memory
    copies: Copies = ""  # may give the same elements in memory of their own
    view: bool = False  # may show the memory of an argument
    regroups: bool = False  # shows the same elements in another shape
    indices: bool = False  # shows where the values of a sparse tensor stand
    picks: bool = False  # gives elements of its first argument as they are; which, others tell
    rows: bool = False  # gives rows of its second argument, as the first one says
    pools: bool = False  # ... or gives one made of several, where it gives fewer
    places: bool = False  # puts given values, one by one, where an index says
    puts: Literal["", "given", "numbered"] = ""  # gives its first argument in other memory, with
    # other values in places: as many as it is given, or where tensors of numbers say
    joins: Literal["", "along", "new"] = ""  # puts tensors side by side, along a dimension
    shifts: bool = False  # gives its argument's elements moved along, those at the end at the begin
    spreads: bool = False  # may lay several places on one element of memory
    repeats: bool = False  # gives its argument's elements several times over
    fresh: bool = False  # memory of its own, made of no tensor's values
    empty: bool = False  # ... and with nothing in it yet
    blank: bool = False  # ... and with nothing in it yet, or one value throughout
    outside: bool = False  # on the same memory and outside the graph
    own_counter: bool = False  # on the same memory, with a version counter of its own
    memory: Literal["", "owns", "shares"] = ""  # what its result does in every call
    listed: bool = False  # reports list it among copies for another reason
    any_strides: bool = False  # no bit and no stride of its result depends on strides
    either_order: bool = False  # of channels first or last: computes in what it is given, gives it
    unpads: bool = False  # leaves out what sequences were filled up with
    spares: tuple[Spared, ...] = ()  # results that another call of it leaves out
    exact: bool = False  # computes each element from its own, rounded once: no bit hangs on strides
    strides: bool = False  # says how the elements lie, and reads none
    lays_out: tuple[int, ...] = ()  # tensor arguments that it copies where they are not in order
    compact: bool = False  # refuses, or copies, what has strides of zero

    # what it writes
    writes: Literal["", "values", "shape"] = ""  # of its first argument
    anew: str = "torch.Tensor"  # what has the call that makes a new tensor instead; "": nothing
    overwrites: bool = False  # nothing is left of the old values
    aside: bool = False  # what it writes goes into no result of the same call
    part: bool = False  # some elements; which, its other arguments tell
    bounds: bool = False  # keeps each element within limits
    unscales: bool = False  # takes the scale of the loss out of gradients
    rescales: bool = False  # adapts a scale of gradients to whether a step could be taken
    reduces: bool = False  # puts the total of what all processes have in place of each one's
    accumulates: bool = False  # adds to gradients, or to an optimizer's state, call by call

    # the graph
    rebuilds: bool = False  # its result is a new leaf, whatever went in
    cuts: bool = False  # its result has no way back to what it was made of
    gradients: bool = False  # its results are gradients

    # the object
    own: str = ""  # what is done to this object and no other: "has a hook of its own"
    replaces: str = ""  # what becomes of the memory behind the object
    wraps: bool = False  # makes a Parameter on the memory of what it is given
    rebinds: bool = False  # puts another tensor's memory under one that is there already
    makes: bool = False  # takes part in making a tensor, before it is used
    retypes: bool = False  # may change storage, shape or graph, and no version tells

    # the device
    waits: bool = False  # returns when the device has done what came before
    moves: bool = False  # may take the values to another device

    notes: Notes = ""  # what is recorded of its calls beside what they read, returned and wrote
    silent: bool = False  # asks a shape, a dtype, a device: says nothing about ties
    warns: bool = False  # says nothing about ties, and warns the line that calls it

    @property
    def chooses(self) -> bool:
        """Whether it gives elements of an argument as they are; which, another tells."""
        return self.picks or self.rows

    @property
    def exports(self) -> bool:
        """Whether a tensor's own values become something that is no tensor."""
        return self.leaves in ("number", "numbers", "array", "capsule", "truth")

    @property
    def lends(self) -> bool:
        """Whether what it gives is no tensor and shows the tensor's own memory."""
        return self.leaves in ("array", "capsule", "address")

    @property
    def constant(self) -> bool:
        """Whether it makes a tensor of no other, and draws nothing: a total, a buffer to fill."""
        return self.fresh and not self.random

    @property
    def records(self) -> bool:
        """Whether it reads as a copy or a record; it may give back the memory it was given."""
        return self.same or self.packs or (self.enters and self.own_counter)

    @property
    def converts(self) -> bool:
        """Whether it is a copy or a conversion. Views and arithmetic are neither."""
        return bool(self.copies or self.enters or self.exports or self.listed)


_COLUMNS = ("fresh", "random", "pointwise", "writes", "anew")
"""What the schema says as it stands here."""


@functools.cache
def schema() -> dict[str, Any]:
    """Return what PyTorch's own files say: ``release``, ``operations`` and ``nodes``."""
    text = resources.files("tether.operations").joinpath("aten.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@functools.cache
def operation(name: str) -> Operation:
    """Return the row of a recorded operation; one that is not `known` for any other name."""
    from tether.operations.rows import ROWS, SAME_AS

    plain = SAME_AS.get(name, name).removeprefix("_foreach_")
    ours = {**ROWS.get(plain, {}), **ROWS.get(name, {})}
    theirs = schema()["operations"].get(plain)
    derived: dict[str, Any] = {}
    if theirs is not None:
        derived = {key: theirs[key] for key in _COLUMNS if key in theirs}
        derived["view"] = "view" in theirs
        derived["overwrites"] = plain in _overwriting()
        derived["flat"] = plain.removesuffix("_") in _flat()
        derived["linear"] = tuple(_out_of_place(plain, theirs).get("linear", ()))
    if plain.endswith("_like") or plain.startswith("new_"):
        derived |= {"fresh": True, "template": ALL}
    return Operation(name, **{"known": bool(ours) or theirs is not None, **derived, **ours})


def _out_of_place(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return what the schema says of the call that writes nothing: `add` for `add_`."""
    found: dict[str, Any] = schema()["operations"].get(name.removesuffix("_"), row)
    return found


@functools.cache
def _flat() -> frozenset[str]:
    """Return what gives its first tensor a gradient of zero by formula."""
    nodes = schema()["nodes"].values()
    return frozenset(one["operation"] for one in nodes if 0 in one.get("flat", ()))


@functools.cache
def _overwriting() -> frozenset[str]:
    """Return the writes whose old values count for nothing: flat, and no comparison of them."""
    comparing = {f"{name}_" for name in ("eq", "ne", "ge", "gt", "le", "lt")}
    return frozenset(one for one in _flat() if one.endswith("_")) - comparing


def flat_inputs(node: str) -> tuple[int, ...]:
    """Return the edges of a node (``RoundBackward0``) over which only zeros come back."""
    return tuple(schema()["nodes"].get(node, {}).get("flat", ()))


def rounds(node: str) -> bool:
    """Whether a node (``DivBackward2``) gives zeros when it was asked to round."""
    return bool(schema()["nodes"].get(node, {}).get("rounds"))


def in_place(name: str) -> str:
    """Return the call that does the same in place: ``index_copy_`` for ``index_copy``; or ""."""
    return f"{name}_" if operation(f"{name}_").writes == "values" else ""


def makes_anew(name: str) -> str:
    """Return the start of the call that makes a new tensor, of one that writes in place; or "".

    With a place for the tensor: ``{x}.add(`` of ``add_``, and ``torch.nn.functional.elu({x}, `` of
    ``elu_`` or of ``elu`` with ``inplace=True``, which is no method of a tensor.
    """
    from tether.operations.rows import SAME_AS

    plain = SAME_AS.get(name, name).removesuffix("_")
    row = operation(f"{plain}_")
    if row.name not in schema()["operations"] or not row.anew or row.writes != "values":
        return ""
    return f"{{x}}.{plain}(" if row.anew == "torch.Tensor" else f"{row.anew}.{plain}({{x}}, "


def shown(name: str) -> str:
    """Return an operation as a reader writes it."""
    return operation(name).shown or name
