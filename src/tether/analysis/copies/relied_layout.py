"""Whether it mattered how a copy's elements lie: which calls would see others without it.

Every call that was given the copy, a view of it, or what was computed from it element by element,
is asked whether its result is the same bit for bit under the strides that it would see if the copy
were its source. What depends on no strides passes; what is computed element by element and rounded
once passes too, and its own result is followed where it would lie in another way. A call that
copies only where it must would return its argument: then that copy has to go as well.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Sequence

from tether.analysis.copies.already_there import Copied
from tether.analysis.copies.layouts import (
    channels_last,
    contiguous,
    dense,
    elementwise,
    last_channels,
    remapped,
    same_layout,
    same_strides,
)
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand, StorageId, Tried
from tether.operations.table import operation

ENOUGH = 3
"""Calls of one kind that were made again and gave the same, by which others of it are judged."""

LEAST_PART = 4 << 10
"""Elements of a part, on average, from which a call for each costs less than the join."""

_NO_VIEW = "could not give a view of its source, whose elements lie in another order"

Ints = tuple[int, ...]
_Kind = tuple[str, int, bool, tuple[object, ...]]
"""An operation, which of its reads was the copy, whether it has a graph, how all of them lie."""


class Trials:
    """Of calls that were made again with the source of a copy, whether they gave the same.

    There is not time to make all of them again. In which order a kernel adds depends on how what it
    is given lies: where several calls of one kind gave the same, and none gave another, so do all.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._found: dict[tuple[int, int], Tried] = {}
        self._of_kind: dict[_Kind, list[Tried]] = defaultdict(list)
        for one in history.trace.tried:
            at = history.position(one.event)
            if at >= 0:
                self._found[at, one.read] = one
                self._of_kind[self._kind(at, one.read)].append(one)
        self._calls = {at for at, _ in self._found}

    def same(self, at: int, read: int) -> Ints | None:
        """Return by which strides the same bits would lie with the source of what a call reads.

        Of several that it reads, with the sources of all.

        () where they would lie as they do, None where they are not known to be the same.
        """
        if not self._found:
            return None
        known = self._found.get((at, read))
        others = [known] if known else self._of_kind.get(self._kind(at, read), [])
        alike = len({one[2:] for one in others}) == 1 and others[0].same
        return others[0].strides if alike and (known or len(others) >= ENOUGH) else None

    def of(self, copied: Copied) -> bool:
        """Whether a call that was given a copy was made again."""
        return not self._calls.isdisjoint(self._history.on_storage(copied.copy))

    def _kind(self, at: int, read: int) -> _Kind:
        event = self._history.events[at]
        lies = tuple((one.shape, one.strides, one.dtype, one.requires_grad) for one in event.reads)
        return event.operation, read, trained(event), lies


def trained(event: Event) -> bool:
    """Whether a call's result has a graph: where it was made again, so were its gradients."""
    return any(one.requires_grad for one in event.results)


Ask = Callable[[Copied], str]
"""Says why a copy would have to stay; "" where it may go."""


class ReliedLayout:
    """Follows what would lie in another way without some copies made by one call."""

    def __init__(self, history: History, made: Sequence[Copied], ask: Ask) -> None:
        self._history = history
        self._ask = ask
        self._first = made[0].position
        self._parts = made[0].part
        self._shown: dict[int, list[tuple[Operand, Operand]]] = {}  # storage -> as is, as it were
        self._waiting: list[int] = []
        self._met: set[int] = set()
        self.used = False
        self._trained = 0  # calls with gradients that would be given another layout
        self._ordered = False  # that call computes in the order of what it is given
        self.rounding = UNKNOWN  # a call that would be given another layout, and gives the same
        for one in made:
            self._follow(one.copy, one.source)

    def run(self) -> tuple[int, str]:
        """Return the first call that may see a difference, and what it does; -1 and "" if none.

        One that may only round in another way comes after all others.
        """
        while self._waiting:
            at = heapq.heappop(self._waiting)
            if at in self._met:
                continue
            self._met.add(at)
            event = self._history.events[at]
            if any(one.storage in self._shown for one in event.reads):
                text = self._differs(at, event)
                if text:
                    self.rounding = UNKNOWN
                    return at, text
        return self.rounding, "may round in another way" if self.rounding != UNKNOWN else ""

    def _follow(self, now: Operand, then: Operand) -> None:
        """Look at what is done with a memory, which would show the same elements elsewhere."""
        fresh = now.storage not in self._shown
        self._shown.setdefault(now.storage, []).append((now, then))
        if fresh:
            for at in self._history.on_storage(now):
                if self._first < at:
                    heapq.heappush(self._waiting, at)

    def _moved(self, operand: Operand) -> Operand | None:
        """Return an operand as it would be; None where no strides can say it."""
        if operand.storage not in self._shown:
            return operand
        for now, then in self._shown[operand.storage]:
            found = remapped(operand, now, then)
            if found is not None:
                return found
        return None

    # -- one call --------------------------------------------------------------------------------

    def _differs(self, at: int, event: Event) -> str:
        """Say why a call's result may differ; "" where it is the same bit for bit."""
        self.used = True
        views = [one for one in event.results if one.storage in self._shown]
        if views and not event.writes:
            return self._of_views(event, views)
        then = [self._moved(one) for one in event.reads]
        if None in then:
            return self._of_parts(event) if self._parts else "may rely on its layout"
        moved = [one for one in then if one is not None]
        if operation(event.operation).strides:
            return _answered(event.reads, moved)
        if _alike(event.reads, moved):
            return ""
        return self._under(at, event, moved)

    def _of_views(self, event: Event, views: Sequence[Operand]) -> str:
        """Ask whether a view could be had of the source; who reads it is asked in turn."""
        if self._parts or all(self._moved(one) is not None for one in views):
            return ""
        named = operation(event.operation)
        alone = named.regroups and not event.operation.startswith("view")
        return "would copy without it" if alone else _NO_VIEW

    def _of_parts(self, event: Event) -> str:
        return "" if self._of_each_part(event) else "needs its parts in one piece"

    def _of_each_part(self, event: Event) -> bool:
        """Whether a call says of a join what calls on its parts, and one more, would say.

        What is computed of it element by element is followed, as parts that nothing holds.
        """
        row, (whole, *others), made = operation(event.operation), event.reads, event.results
        shown = self._shown.get(whole.storage, [])
        plain = not others and len(made) == 1 and not (event.writes or made[0].requires_grad)
        if not plain or math.prod(whole.shape) < LEAST_PART * len(shown):
            return False
        if row.in_parts and not made[0].shape:
            return True
        if not row.exact or not same_layout(whole, made[0]) or whole.shape != made[0].shape:
            return False
        for now, _ in shown:
            moved = now.offset - whole.offset + made[0].offset
            part = now._replace(storage=made[0].storage, offset=moved, dtype=made[0].dtype)
            self._follow(part, part._replace(storage=StorageId(UNKNOWN)))
        return True

    def _under(self, at: int, event: Event, moved: Sequence[Operand]) -> str:
        """Ask about a call that would be given other strides."""
        row, name = operation(event.operation), event.operation
        doubtful = "may rely on its layout"
        if _lays_as_told(event) and same_layout(event.results[0], moved[0]):
            return self._laid_as_before(at, event, moved[0])
        pairs = list(zip(event.reads, moved, strict=True))
        if any(_in_order(*pairs[one]) for one in row.lays_out if one < len(pairs)):
            return "would copy without it"
        if _lays_out_by_numbers(event):
            return ""
        if row.any_strides:
            # What is made of channels-last images is channels-last.
            return "" if all(channels_last(a) == channels_last(b) for a, b in pairs) else doubtful
        if row.exact or operation(name.rstrip("_")).exact:
            return self._computed(event, moved)
        if self._tried(at, pairs):
            return self._laid_again(event)
        return self._otherwise(at, event, moved)

    def _tried(self, at: int, pairs: Sequence[tuple[Operand, Operand]]) -> bool:
        """Whether the call was made again with what it would be given, and gave the same.

        Where that lies in another way, so does what is made of it. Of a call that computes in the
        order of what it is given, all that follows is asked for its rounding alone.
        """
        others = [number for number, (now, then) in enumerate(pairs) if not same_layout(now, then)]
        event, read = self._history.events[at], others[0]
        if len(others) > 1:
            if not operation(event.operation).as_they_lie:
                return False  # it may lay each out, where one call had laid out all
            read = ~sum(1 << one for one in others)
        would = self._history.get(Trials).same(at, read)
        if would and (len(event.results) > 1 or operation(event.operation).either_order):
            return False
        if would:
            self._follow(event.results[0], event.results[0]._replace(strides=would))
        return would is not None

    def _laid_again(self, event: Event) -> str:
        """Ask of a second call with gradients: what each lays out for itself it keeps as well."""
        self._trained += trained(event)
        again = trained(event) and self._trained > 1
        return "may lay it out for itself, as another call that reads it may" if again else ""

    def _otherwise(self, at: int, event: Event, moved: Sequence[Operand]) -> str:
        """Ask about a call that lays its argument back, or copies; the first that does is kept."""
        row = operation(event.operation)
        self._ordered |= row.either_order and _turned(event, moved)
        if self._ordered or _laid_back(event, moved):
            self.rounding = at if self.rounding == UNKNOWN else self.rounding
            if not self._ordered:
                return ""
        copies = row.regroups or row.copies == "clone"
        if copies and len(event.results) == 1 and not event.writes:
            return self._copied(at, event, moved[0])
        return self._of_images(event) if self._ordered and row.known else "may rely on its layout"

    def _laid_as_before(self, at: int, event: Event, source: Operand) -> str:
        """Ask about a call that lays elements out as they lay before the copy.

        What converts them as well, or clones them, does so either way; any other would give what
        it is given.
        """
        result = event.results[0]
        if event.operation == "clone" or result.dtype != source.dtype:
            return ""
        return "would give its source itself" if self._ask(Copied(at, source, result, at)) else ""

    def _of_images(self, event: Event) -> str:
        """Follow the images that a call makes of others: as those lie, so these may."""
        for one in event.results:
            if len(one.shape) in (4, 5):
                self._follow(one, last_channels(one))
        return ""

    def _computed(self, event: Event, moved: Sequence[Operand]) -> str:
        """Follow what is computed element by element, where it would lie in another way."""
        if event.writes:
            return ""  # each element in its place
        if len(event.results) != 1:
            return "may rely on its layout"
        result, shapes = event.results[0], [one.shape for one in moved]
        known = elementwise(shapes, [one.strides for one in event.reads])
        would = elementwise(shapes, [one.strides for one in moved])
        if known is None or would is None or len(known) != len(result.shape):
            return "may rely on its layout"
        if not same_strides(result.shape, known, result.strides):
            return "may rely on its layout"
        if not same_strides(result.shape, would, result.strides):
            self._follow(result, result._replace(strides=would))
        return ""

    def _copied(self, at: int, event: Event, source: Operand) -> str:
        """Ask about a call that copies only where the strides it is given make it."""
        result = event.results[0]
        as_is = result._replace(shape=source.shape, strides=contiguous(source.shape))
        if not same_strides(result.shape, result.strides, contiguous(result.shape)):
            return "may rely on its layout"
        if remapped(result, as_is, source) is None:
            return ""  # copies all the same
        if event.operation == "contiguous" and not same_layout(as_is, source):
            return ""
        return "would give its source itself" if self._ask(Copied(at, source, as_is, at)) else ""


def _answered(now: Sequence[Operand], then: Sequence[Operand]) -> str:
    """Ask about a call that tells how elements lie: of a dimension of one element as well."""
    alike = [one.strides for one in now] == [one.strides for one in then]
    return "" if alike else "would answer otherwise without it"


def _lays_out_by_numbers(event: Event) -> bool:
    """Whether what an index takes is laid out by the index alone, of any source.

    Numbers go first, in the order that they have; of more dimensions than one that are taken whole
    the result has the order of the source. A mask counts as the numbers of its places.
    """
    if event.operation != "__getitem__" or event.writes:
        return False
    source, *numbers = event.reads
    if not numbers or len(event.results) != 1 or event.results[0].storage == source.storage:
        return False
    if not all(one.whole for one in numbers):
        return False
    ranks = [1 if one.dtype in ("bool", "uint8") else len(one.shape) for one in numbers]
    return len(event.results[0].shape) - max(ranks) <= 1


def _in_order(now: Operand, then: Operand) -> bool:
    """Whether the elements of an operand lie in order, and would not without the copy."""
    in_order = contiguous(now.shape)
    return same_strides(now.shape, now.strides, in_order) and not same_strides(
        then.shape, then.strides, in_order
    )


def _alike(now: Sequence[Operand], then: Sequence[Operand]) -> bool:
    return all(same_layout(a, b) for a, b in zip(now, then, strict=True))


def _lays_as_told(event: Event) -> bool:
    """Whether a call copies its argument into the layout that it is told: not one of its own.

    Of elements side by side, it would have kept theirs.
    """
    if not operation(event.operation).copies or len(event.reads) != 1 or len(event.results) != 1:
        return False
    given, made = event.reads[0], event.results[0]
    if event.writes or given.shape != made.shape or given.storage == made.storage:
        return False
    return dense(given.shape, given.strides) and not same_layout(given, made)


def _laid_back(event: Event, then: Sequence[Operand]) -> bool:
    """Whether a call of PyTorch's made a channels-last result though it was not given one.

    It had laid out the argument anew, as another one lies, and would be given it so.
    """
    row, results = operation(event.operation), event.results
    if not row.known or event.writes or len(results) != 1 or row.view:
        return False
    made = results[0]
    turned = [not channels_last(a) and channels_last(b)
              for a, b in zip(event.reads, then, strict=True) if not same_layout(a, b)]  # fmt: skip
    own = channels_last(made) and not same_strides(made.shape, made.strides, contiguous(made.shape))
    return own and all(turned)


def _turned(event: Event, then: Sequence[Operand]) -> bool:
    """Whether no more than the images that a call is given would have their channels last."""
    (now, *others), (images, *rest) = event.reads, then
    alone = len(event.results) == 1 and not event.writes and _alike(others, rest)
    return alone and channels_last(images) and not channels_last(now)
