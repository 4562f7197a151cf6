"""NumPy's arrays: on the memory of tensors, and those that tensors were made of."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tether.facts.identity import UNKNOWN, EventId, MemoryId, Moment, SiteId, StorageId


class Taken(NamedTuple):
    """A call made a tensor of an array that no tensor shows, bit for bit, and what became of it."""

    event: EventId
    beside: int  # bytes of the array's memory that the tensor has not
    changed: Literal["yes", "no", "unknown"]  # while the tensor lived; "unknown": no look was taken
    released: Moment = Moment(UNKNOWN)  # UNKNOWN: the array was alive at the end
    memory: MemoryId = MemoryId(UNKNOWN)  # the array's own, as `StorageFact` has it


class OnOthers(NamedTuple):
    """A call made a tensor on memory that PyTorch has not allocated: an array's, a buffer's."""

    event: EventId


class ArrayCopied(NamedTuple):
    """A call was given an array, a copy of another one that lives: both had the same elements.

    No tensor shows the memory of either. The text of the line leads from one to the other by calls
    that give the elements as they are, whatever they are. Only the copy may have a wider format.
    """

    event: EventId  # that made a tensor of it
    site: SiteId  # the expression that made the copy
    source: str  # the other one, as the program has it; "": in this run there was no such array
    dtype: str  # of the other one
    strides: tuple[int, ...]  # of the view of the other that shows the copy's elements, in elements
    shared: bool  # the tensor shows the copy's memory; else it has memory of its own
    beside: int  # bytes of the other one's memory that the copy has not
    changed: Literal["yes", "no", "unknown"]  # either, while both lived
    released: Moment = Moment(UNKNOWN)  # of the other one; UNKNOWN: alive at the end
    gone: Moment = Moment(UNKNOWN)  # of the copy


RUNS_OF_ARRAYS: Final = 64
"""Runs of a line that copies arrays which are each looked at; of later ones each 16th is."""


class ArrayLine(NamedTuple):
    """A line of the program's at which NumPy was told to copy arrays, of those that are large."""

    site: SiteId
    operation: str  # "astype", "copy", "array", "tobytes"
    within: bool  # as part of what holds the array
    runs: int
    bytes: int  # that it copied, in all runs


class ArrayCall(NamedTuple):
    """One run of such a line: what became of the array that was copied, and of the copy."""

    site: SiteId
    moment: Moment
    alike: bool  # the copy has the same elements in the same format and layout
    nbytes: int  # of the copy
    beside: int = 0  # bytes of the memory of what was copied that the copy has not
    storage: StorageId = StorageId(UNKNOWN)  # whose memory that is, where a tensor gave the array
    changed: Literal["yes", "no", "unknown"] = "unknown"  # either, while both lived
    released: Moment = Moment(UNKNOWN)  # of the array that was copied; UNKNOWN: alive at the end
    gone: Moment = Moment(UNKNOWN)  # of the copy
    taker: str = ""  # of bytes: what they were handed to, which takes an array's own memory as well
    rewritten: bool = False  # the copy, after that array had gone, whose memory the tensor has
    # The array was a copy that this line made: what that was made of is looked at in its place.
    before: SiteId = SiteId(UNKNOWN)


class Drawn(NamedTuple):
    """Parts of one array became tensors of another type, which takes no more room, many times."""

    event: EventId  # the first call
    times: int
    bytes: int  # of all that was made
    whole: int  # bytes that the whole array would have as such a tensor
    written: bool  # it holds other bytes than when the second was made


class ArrayAgain(NamedTuple):
    """An array of NumPy's that was there in new memory each time, and held the same bytes.

    It lay behind what a line gave PyTorch. Each had gone before the last was met, as it had come.
    """

    event: EventId  # the first call
    looked: int  # arrays of which all bytes were compared
    runs: int  # arrays that were met
    nbytes: int  # of each
    given: int  # of these, the bytes of what the call was given


class Rewritten(NamedTuple):
    """Calls made tensors of one place in an array's memory, and found other bytes than before.

    No call of PyTorch that was heard wrote in between. The first of the calls from one line, where
    those before were made from one other line, or the same.
    """

    event: EventId
    since: EventId  # the call before
    times: int


class ArrayFact(NamedTuple):
    """The life of a NumPy array that a call handed out on a tensor's memory.

    Views made of the array keep it. One that was gone before the next call has no fact.
    """

    event: EventId  # the export (numpy, __array__)
    released: Moment = Moment(UNKNOWN)  # UNKNOWN: alive at the end


class ArrayKept(NamedTuple):
    """Arrays that show a small part of a tensor's memory are all that is left of it.

    Looked for whenever names are, and as arrays on large memory grow in number.
    """

    event: EventId  # the export
    since: Moment  # of the first look that found it so
    until: Moment  # of the last one
    name: str  # of a place that has such an array: "history[2]"
    shown: int  # bytes
    nbytes: int  # of the memory


class Unseen(NamedTuple):
    """A write that bumped no version, found by comparing contents."""

    storage: StorageId
    after: Moment  # it happened between these times
    before: Moment
    event: EventId  # the export (numpy, data, dlpack...) through which it can have come
    site: SiteId  # where it was noticed
    held: bool = True  # somebody beside the tensor still had the array then


class MappedFile(NamedTuple):
    """A file that was there was opened as an array to be written to, and its bytes changed."""

    at: Moment
    site: SiteId  # that opened it
    file: str  # its name, without the folder
    changed: tuple[int, ...]  # pages that were others when the array went, of those looked at
    flushed: bool  # the program asked for it to be written
    released: Moment = Moment(UNKNOWN)  # UNKNOWN: the array was alive at the end
    asked: bool = True  # the program gave the mode itself; False: it is that of `numpy.memmap`
