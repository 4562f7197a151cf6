"""The process that was recorded, those forked off, and memory that several show."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tether.facts.identity import UNKNOWN, Moment, SiteId, StorageId, TensorId


class Fork(NamedTuple):
    """A process was forked off: it had every memory as it was then, and as its own from then on."""

    at: Moment
    heard: bool  # what it did with those memories was heard: see `Inherited`
    rewrites: bool  # it wrote a memory that it had sent to another process, or got from one


class Inherited(NamedTuple):
    """A memory that a forked process used, which it had from the one that forked it off."""

    storage: StorageId
    changed: bool  # it wrote it, sent it, or gave it to what may write it unheard
    graded: bool = False  # it computed, with gradients on, with a tensor there that requires grad
    site: SiteId = SiteId(UNKNOWN)  # the user's line in that process that did so first, if one did
    tensor: TensorId = TensorId(UNKNOWN)  # the tensor there; UNKNOWN: one that it had made itself


SharedBy = Literal["sent", "received", "mapped"]
"""How other processes come to show a memory: this one sent it, another one did, or it is mapped: a
file, or shared memory that was not made by PyTorch, as far as can be told."""


class Shared(NamedTuple):
    """A memory that other processes may show: what they write is not heard."""

    storage: StorageId
    way: SharedBy


LOADER = "data loader's worker"
"""Detail of a ``child`` gap: a process that only loads data."""


class Process(NamedTuple):
    """The process that a recording was made in."""

    number: int = 0  # its process id
    rank: int = UNKNOWN  # among those that work together; UNKNOWN: it is none of them
    ranks: int = 0  # how many work together
    name: str = ""  # what multiprocessing calls it: "SpawnProcess-1"
    started: bool = False  # by another process that was recorded

    @property
    def label(self) -> str:
        """What reports call it."""
        if self.rank >= 0:
            return f"rank {self.rank}"
        return self.name or (f"process {self.number}" if self.started else "the main process")
