"""Elements that were compared: they came back, were there already, were lost or overwritten."""

from __future__ import annotations

from typing import Final, NamedTuple

from tether.facts.identity import UNKNOWN, EventId, Moment, SiteId, StorageId, TensorId


class Bridge(NamedTuple):
    """A value that left the tensors (NumPy, Python numbers, DLPack) and came back.

    Certain when the memory or object was the same; otherwise it was followed through the source,
    or matched by value, and is only likely.
    """

    exit: EventId
    entry: EventId
    certain: bool
    via: str = ""  # in words: "the NumPy array", "the float, through `total`"
    doubtful: bool = False  # the source leads to other fields, or from other callers, just as well


class Collision(NamedTuple):
    """A write through an index did not keep all values that it was given.

    It gave some elements several, or overwrote some before it had read them. Read again when the
    call had returned.
    """

    event: EventId  # the write
    lost: int  # values that are not where the index put them
    given: int  # values in all


class AddressedApart(NamedTuple):
    """Two writes through an index named two places of a tensor that are one element of memory.

    Or one write chose several of its places, by a mask or by numbers: then both are that write.
    """

    event: EventId  # the later write
    before: EventId
    tensor: TensorId


LEAST_OF_A_LIST = 4 << 10
"""Bytes of a tensor from which to make it of a list takes far longer than to sum it up: smaller
ones are not compared with what had become a list."""


class Same(NamedTuple):
    """A call gave, in memory of its own, elements that a tensor showed already, in their order.

    Compared when the call returned, where its name does not say it: a choice by an index, what
    came back from an array or a list. The view of the older memory that shows them has the shape
    of the result.
    """

    event: EventId
    tensor: TensorId  # the result
    source: TensorId  # that showed them
    storage: StorageId  # of the source
    offset: int  # of the view, in elements
    strides: tuple[int, ...]
    since: EventId  # the call that they were taken from the source by: `event`, or an export
    sure: bool = True  # memory or numbers are the very same; else the elements are only equal
    any_choice: bool = False  # whichever places it had chosen, they are one element
    few: bool = False  # one place or two, of more: they may be in order by chance
    equal: bool = False  # the places are not in order: what is in them is equal to what was there


class Tried(NamedTuple):
    """A call was made again, unheard, with the source of a copy that it had been given.

    The copy lay in another way than its source. Where several of what the call was given were such
    copies, it was made with the sources of all as well. Where its result has a graph, so were the
    gradients of what it was given. Of the results no more is kept than what they had in common.
    """

    event: EventId  # the call
    read: int  # which of its `reads` was the copy; of all that were, ~ of the sum of 1 << each
    same: bool  # its result had the same bits, and its gradients the same bits and layout
    strides: tuple[int, ...] = ()  # by which it lay, if in another way


class Entered(NamedTuple):
    """A call made a tensor of data of Python in a way that a later look asks about.

    The data was a list of NumPy arrays, of what tensors had become as lists, or of numbers, or a
    call had been given that very data before and had made the same elements of it.
    """

    event: EventId
    arrays: int  # in the list, each of several elements; 0: it was no such list
    since: EventId = EventId(UNKNOWN)  # the last call before that was given the data
    lists: int = 0  # that as many tensors had become: the data is these, one after the other
    numbers: bool = False  # the data was lists of Python's numbers
    listed: SiteId = SiteId(UNKNOWN)  # where an array, or bytes, became the last of these lists


class ReadBack(NamedTuple):
    """A state was read from a stream in memory, with the bytes that it had been saved there in."""

    event: EventId  # of the call that read it
    since: EventId  # of the call that had saved it


COMPARED: Final = 64 << 10
"""Bytes of new memory from which what a line makes is compared with what it made before."""


class Repeated(NamedTuple):
    """A line whose calls made the same bytes, in new memory, whenever they were compared.

    Those that made less than `COMPARED` bytes were not looked at.
    """

    event: EventId  # its first call
    looked: int  # calls whose result was compared, the first one among them


class KeptAgain(NamedTuple):
    """Memory that kept elements several times over, by looks at what the variables lead to.

    The tensors or arrays of a container, or the slices of one along a dimension; as last seen.
    """

    at: Moment
    since: Moment  # of the look before; UNKNOWN: of tensors that were looked at once
    name: str  # of the container, or of the one tensor or array
    tensors: tuple[TensorId, ...]  # some of them, if calls were given them; none: arrays
    items: int  # tensors or arrays, or slices that hold something
    kept: int  # bytes of those that are not alike for want of anything in them
    distinct: int  # of these, about
    axis: int  # of the slices; UNKNOWN: of a container
    moves: bool  # each goes on from the one before, as a window does; False: some are equal
    single: bool
    slices: int = 0  # of one along that dimension, with those that hold nothing yet
