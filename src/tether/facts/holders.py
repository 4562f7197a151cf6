"""What the program calls a tensor, and what holds one: variables, attributes, slots, caches."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tether.facts.identity import UNKNOWN, EventId, ModuleId, Moment, NameId, SiteId, TensorId


class Name(NamedTuple):
    """What the running program calls a tensor: ``model.layer1.weight``, ``agent.net.h0``."""

    tensor: TensorId
    name: str
    at: Moment
    owner: str = ""  # class of the nearest object around it: "Linear", "ListScorer"
    owner_user: bool = True  # the nearest class around it that is not PyTorch's is the user's own
    module: str = ""  # name of the module whose direct parameter or buffer it is
    listed: bool = True  # parameters() of the module that the name goes through lists it
    holder: ModuleId = ModuleId(UNKNOWN)  # that module: one object, whatever it is called


HolderKind = Literal["variable", "attribute", "slot", "closure", "default", "cache", "state"]
"""What holds an object: a variable of a running function, an attribute, a place in a container,
what a function keeps (a closure, a default argument, a cache), an optimizer's state or setting."""

Sought = Literal["written", "given", "met"]
"""What was looked for: what the call wrote, and gradients that it reached; an array that it was
given; arrays that were met in several places as the variables were looked through after it."""


class Holder(NamedTuple):
    """One place that showed a memory right after a write to it, and how the program reaches it.

    Or what else was looked for then, which no write of that call has to do with (`Sought`).
    Looked for at the 1st, 2nd, 4th, 8th... write of a line; below it, of each line of a library's;
    what more refers to than at its other writes is counted apart.
    """

    event: EventId  # the write
    tensor: TensorId  # the tensor object there; UNKNOWN: an array on the memory
    name: str  # "history[2]", "self.cache"
    kind: HolderKind
    function: str  # whose variable the name begins with: "train", "<module>"
    site: SiteId  # the call that this function was making
    depth: int  # functions between it and the write; 0: the one that wrote
    part: bool = False  # an array that shows a part of what was looked for, or more than it
    sought: Sought = "written"


class Reassigned(NamedTuple):
    """A place of a module was given another tensor: ``layer.weight = other``.

    Or it is inside a module whose place was given another module: ``model.layer = other``.
    """

    at: Moment
    site: SiteId
    holder: ModuleId  # as in `Name`
    name: str  # of the place: "weight"; "layer.weight", from the module around the replaced one
    old: TensorId
    new: TensorId
    named: NameId = NameId(0)  # names that had been found by then: they come first in `Trace.names`


class CacheKept(NamedTuple):
    """A function's cache keeps tensors by keys that only caches have: no call can find them again.

    A key is a tensor, a module or another object that is equal to itself alone.
    """

    name: str  # of the function
    site: SiteId  # of its definition
    entries: int  # such keys
    tensors: tuple[TensorId, ...]  # the keys, or what they alone have
    nbytes: int
    also: tuple[SiteId, ...] = ()  # the definitions of other functions whose caches have some too


class MadeOnce(NamedTuple):
    """An object that a definition made once, and that several owners had at one time.

    The value of a default argument, or of an attribute of a class.
    """

    at: Moment  # last seen so
    name: str  # of the argument, "head"; of the attribute behind its class, "Norm.stats"
    site: SiteId  # the definition of the function that has the default; UNKNOWN: of a class
    times: int  # owners
    owners: tuple[str, ...]  # how the first few are reached
    tensors: tuple[TensorId, ...]  # what is in it, or itself
    filled: Literal["", "in order", "by key"]  # a list or a dictionary, that may have been empty
    kept: bool = False  # each owner has it as its own attribute, or in one; none by its class


class ShallowCopy(NamedTuple):
    """A line of the program's copied an object, and not its tensors: both objects hold them.

    By `copy.copy` or `dataclasses.replace`, an object that is no module and no container.
    """

    at: Moment
    site: SiteId
    owner: str  # class of the object
    of: int  # number of the object that was copied
    made: int  # number of the copy
    tensors: tuple[TensorId, ...]  # that both hold
    names: tuple[str, ...]  # of the attribute that each is in


class WrittenThrough(NamedTuple):
    """The nearest function that ran had one of several objects that hold what a call wrote."""

    event: EventId  # the write
    holder: int  # number of the object, as in `ShallowCopy`


class Suspended(NamedTuple):
    """A generator or coroutine that waits for its next turn, and keeps its variables until then."""

    name: str  # as its variables are named: "readers[2].gi_frame"
    site: SiteId  # where it waits


CACHE: Final = "__cache__"
"""In a name: what a function's cache keeps."""

WAITING: Final = "gi_frame"
"""In a name: the variables of a generator or coroutine, as Python calls them."""
