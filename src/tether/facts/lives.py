"""How long tensors and memory lived, and what held memory beside variables."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tether.facts.identity import UNKNOWN, MemoryId, Moment, SiteId, StorageId, TensorId


class TensorFact(NamedTuple):
    """The life of one tensor object in Python."""

    kind: str  # class name: "Tensor", "Parameter", "Buffer", a subclass's own name
    born: Moment  # when it was first seen
    died: Moment = Moment(UNKNOWN)  # UNKNOWN: alive at the end

    @property
    def is_parameter(self) -> bool:
        """Whether it is a `nn.Parameter`: no buffer, and of no class that a library made of it."""
        return self.kind == "Parameter"


class StorageFact(NamedTuple):
    """The life of one piece of memory."""

    nbytes: int
    device: str  # "cpu", "cuda:0", "meta"; "cpu (pretended)": see `PRETENDED`
    born: Moment
    freed: Moment = Moment(UNKNOWN)  # UNKNOWN: alive at the end
    memory: MemoryId = MemoryId(
        UNKNOWN
    )  # storages of one number wrap the same memory (NumPy, DLPack)
    start: int = 0  # first byte of this storage within that memory


class InRing(NamedTuple):
    """A tensor with a graph went as Python's collector ran: only objects in a ring had it."""

    tensor: TensorId


class Attached(NamedTuple):
    """Memory held by something other than a variable; recorded when memory is asked for.

    A gradient or optimizer state is a tensor that no call returned, found once it was there. An
    ``activation`` is memory that a backward pass freed, and so nothing but its graph had held.
    """

    tensor: TensorId  # UNKNOWN for an activation
    storage: StorageId
    kind: Literal["gradient", "optimizer state", "activation"]
    of: TensorId  # the tensor that it belongs to; UNKNOWN: to none
    part: str  # "grad", or the optimizer's word for it: "exp_avg"
    at: Moment
    site: SiteId  # of the backward pass or step that made it, or freed it


class Allocator(NamedTuple):
    """What a device's own allocator says when the recording ends."""

    device: str  # "cuda:0"
    peak: int  # most bytes asked of it at once
    held: int  # bytes asked of it and not given back


PRETENDED: Final = "(pretended)"
"""After a device's name: tensors say that they are there (FakeTensorMode), and have no bytes."""
