"""Which calls computed what an earlier call had computed: told by what they were given.

Two calls at one place of the program gave the same if they are of one operation, which leaves
nothing to chance, and were given the same: the same elements of one memory in one version, or what
calls that gave the same had made. No bytes are compared; of the numbers that a call was given
beside tensors its text says whether they are constants, but for a conversion.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.already_there import nbytes
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.source.calls import takes_tensors_alone

TURNS = 8
"""Other results of a line that may lie between two that are the same: the layers of a loop."""

Line = tuple[int, int, str]
"""Where a call was made: the user's site, the library's site and the operation."""

_Key = tuple[object, ...]
_MOST = 64  # operands that a result is followed back to


class _MadeOf(NamedTuple):
    """What a memory was made of, as long as nothing wrote it."""

    number: int  # the same for what was computed from the same
    version: int
    given: tuple[Operand, ...]  # what was there before, of which it was computed


class Numbered:
    """The calls of a history that computed what one shortly before had computed."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._made: dict[int, _MadeOf] = {}  # by storage
        self._numbers: dict[_Key, int] = {}
        self._recent: dict[Line, deque[tuple[_Key, int]]] = defaultdict(lambda: deque(maxlen=TURNS))
        self._plain: dict[tuple[Line, int], bool] = {}
        self.runs: dict[Line, int] = defaultdict(int)
        self.again: dict[Line, list[tuple[int, int]]] = defaultdict(list)  # before, and again
        self.repeats: set[int] = set()  # positions of those that computed it again
        self.given: dict[int, tuple[Operand, ...]] = {}  # of what, by position
        self.bytes = 0  # of all new memory that any call made
        for position, event in history.events.having("results"):
            self._look(position, event)

    def value(self, operand: Operand) -> _Key:
        """Return what is the same for operands that show the same elements."""
        made = self._made.get(operand.storage)
        known = made is not None and made.version == operand.version
        root = (made.number,) if made is not None and known else (operand.storage, operand.version)
        return (*root, *operand[3:8])

    def _look(self, position: int, event: Event) -> None:
        line = (event.site, event.inner, event.operation)
        shown = {one.storage for one in event.reads}
        fresh = [one for one in event.results if one.storage not in shown]
        self.bytes += sum(map(nbytes, fresh))
        if len(fresh) < len(event.results) or not self._computes(event, line):
            return
        given = tuple(dict.fromkeys(self._roots(event)))
        if len(given) > _MOST:
            return
        storages = self._history.trace.storages
        looks = tuple((*one[4:8], storages[one.storage].device) for one in event.results)
        key = (*line, event.grad_mode, event.thread, *map(self.value, event.reads), looks)
        number = self._numbers.setdefault(key, len(self._numbers))
        for place, one in enumerate(event.results):
            self._made[one.storage] = _MadeOf(number << 8 | place, one.version, given)
        self.runs[line] += 1
        recent = self._recent[line]
        before = next((known for known in recent if known[0] == key), None)
        if before is not None:
            recent.remove(before)
            self.again[line].append((before[1], position))
            self.repeats.add(position)
            self.given[position] = given
        recent.append((key, position))

    def _computes(self, event: Event, line: Line) -> bool:
        """Whether a call computes its results of tensors, and of nothing that is not known."""
        if event.raised or event.writes or event.detail or event.span != UNKNOWN:
            return False
        if not event.reads or any(one.version < 0 for one in (*event.reads, *event.results)):
            return False
        key = line, len(event.reads)
        if key not in self._plain:
            text = self._history.site(event.inner if event.inner >= 0 else event.site).expression
            alone = takes_tensors_alone(event.operation, text, len(event.reads))
            # Of a conversion the result itself says what it was asked for.
            alone = alone or (operation(event.operation).copies in ("cast", "move"))
            self._plain[key] = alone and _is_certain(event.operation)
        return self._plain[key]

    def _roots(self, event: Event) -> Iterator[Operand]:
        """Yield what was there before of which a call's operands were computed."""
        for one in event.reads:
            made = self._made.get(one.storage)
            if made is not None and made.version == one.version:
                yield from made.given
            else:
                yield one


def _is_certain(name: str) -> bool:
    """Whether an operation gives the same elements of the same."""
    row = operation(name)
    return row.known and not (row.random or row.empty or row.leaves)
