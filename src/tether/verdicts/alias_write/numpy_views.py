"""NumPy arrays on the memory of tensors: part of `alias-write`, both ways.

A write on the array's side is found by bytes, and changes the tensor. A write on the tensor's side
changes an array that was taken as a record. How long an array lives is a fact; that it is read is
not heard, so the read is found in the program's text: a line that names the array (or the container
that it was put into) and ran, by the calls recorded, after the write.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tether.analysis.dataflow import values_read
from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing, unheard
from tether.facts import UNKNOWN, Event, Operand, Site, Unseen
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.regions import extent, may_overlap
from tether.source.handing import gives_back, handed_for_a_result
from tether.source.keeping import Kept, follows, keeping, loads
from tether.source.names import joint_name
from tether.source.syntax import Source, site_of_node, source_of
from tether.verdicts.alias_write.set_beside import array_beside, compared, set_beside
from tether.verdicts.alias_write.telling import copied

# -- a write on the array's side -------------------------------------------------------------------

FILLED = 2
"""Changes of one tensor through its array; with more it is a buffer that is filled anew."""


class Change(NamedTuple):
    """Bytes of a tensor that an array's owner changed."""

    export: int
    read: int
    tensor: int
    storage: int
    changed: int  # the first call after which the bytes may be others
    passing: bool = False  # whoever was given the array wrote it, and it was gone with that call


def written_by_arrays(history: History, told: set[int]) -> Iterator[Claim]:
    """Yield the tensors whose bytes an array changed after they had values, by line of the tie."""
    groups: dict[int, list[Change]] = defaultdict(list)
    changes = list(_changes(history))
    times = Counter(one.tensor for one in changes)
    for change in changes:
        # A buffer that is filled again and again: that is its use.
        if change.tensor not in told and times[change.tensor] <= FILLED:
            groups[history.events[change.export].site].append(change)
    for members in groups.values():
        yield _array_wrote(history, members)


def _changes(history: History) -> Iterator[Change]:
    filled: set[int] = set()
    for fact, export in _written(history):
        operand = _handed_out(history, export)
        read = _first_read(history, fact, operand)
        if fact.storage not in filled and _held_nothing(history, Export(export, operand, read)):
            filled.add(fact.storage)
            continue  # memory that held nothing yet is given its values
        if read != UNKNOWN:
            changed = history.position(fact.after) + 1
            tensor = _that_lasts(history, operand.tensor, changed)
            tied, passing = _tied_at(history, tensor, export), fact.site == UNKNOWN
            yield Change(tied, read, tensor, fact.storage, changed, passing)


def _written(history: History) -> Iterator[tuple[Unseen, int]]:
    """Yield the writes of those who had the array of a tensor, and the call that gave it.

    An array that nobody has any more is the tensor's own. One that was gone with the call that it
    was handed to may have been handed out to be filled, or changed: not where values that were
    used before were handed out, nor where the call was made for its result.
    """
    passing = Counter(one.storage for one in unheard(history) if one.site == UNKNOWN)
    for_result = functools.cache(functools.partial(_for_a_result, history))
    for fact in unheard(history):
        export = history.position(fact.event) if fact.event != UNKNOWN else UNKNOWN
        if not fact.held or not 0 <= export < len(history.events):
            continue
        once = passing[fact.storage] == 1 and (
            _used_before(history, export)
            or (not _is_blank(history, export) and for_result(history.events[export].site))
        )
        if fact.site != UNKNOWN or once:
            yield fact, export


def _handed_out(history: History, export: int) -> Operand:
    """Return the tensor of which an array was made, or that was made of one."""
    event = history.events[export]
    return (event.results or event.reads)[0]


def _used_before(history: History, export: int) -> bool:
    """Whether a call computed with the elements of a tensor before they were handed out."""
    operand = _handed_out(history, export)
    used = [at for at in history.on_storage(operand) if at < export]
    written = max((at for at in used if history.events[at].writes), default=UNKNOWN)
    reads = (history.events[at] for at in used if at > written)
    return any(
        not operation(event.operation).leaves
        and event.results
        and all(one.storage != operand.storage for one in event.results)
        and any(one.storage == operand.storage for one in event.reads)
        for event in reads
    )


def _for_a_result(history: History, site: int) -> bool:
    """Whether a line hands an array to a function of the program's, for its result."""
    sources = {file: source_of(file, text) for file, text in history.trace.sources.items()}
    return handed_for_a_result(sources, history.site(site))


def _is_blank(history: History, export: int) -> bool:
    """Whether an array was made of a tensor that had been made to be filled."""
    made = history.made_at(_handed_out(history, export).tensor)
    return made < 0 or operation(history.events[made].operation).constant


def _tied_at(history: History, tensor: int, export: int) -> int:
    """Return the call that tied a tensor to an array: one taken of an array's memory ties nothing.

    It was then made on that memory.
    """
    made = history.made_at(tensor)
    row = operation(history.events[made].operation)
    return made if made >= 0 and row.enters and row.own_counter else export


def _that_lasts(history: History, tensor: int, changed: int) -> int:
    """Return a tensor, or what it was a view of where it was gone before its bytes changed."""
    for link in history.get(Sharing).chain(tensor):
        died = history.trace.tensors[tensor].died
        if died == UNKNOWN or history.position(died) >= changed:
            break
        tensor = link.source
    return tensor


def _is_meant(history: History, one: Change) -> bool:
    """Whether a tensor is to show what there is: a copy of what there was is read beside it.

    Or the function that took the array gives the tensor back that it took it of, and who reads it
    is another.
    """
    memory = history.trace.storages[one.storage].memory
    return (
        _is_given_back(history, one)
        or set_beside(history, one.tensor, one.export, one.changed, one.read)
        or array_beside(history, memory, one.changed, one.read)
        or compared(history, one.tensor, one.export, one.changed)
    )


def _is_given_back(history: History, one: Change) -> bool:
    """Whether the function that took an array returns its tensor, and another one reads that."""
    export, read = (history.site_of(history.events[at]) for at in (one.export, one.read))
    if export.function == read.function:
        return False
    return gives_back(source_of(export.file, history.trace.sources.get(export.file, "")), export)


def _first_read(history: History, fact: Unseen, shown: Operand) -> int:
    """Return the first call that read elements of an array after they were found changed, or -1.

    It may have been found before a backward pass, which is asked of all at once. A call that gives
    a view has read nothing, and one of other elements of the memory not these.
    """
    since = history.position(fact.before)
    for at in history.on_memory(history.flow.memory_of(fact.storage)):
        read = _read_of(history.events[at], fact.storage) if at >= since else ()
        if any(may_overlap(one, shown) for one in read):
            return at
    return UNKNOWN


def _read_of(event: Event, storage: int) -> list[Operand]:
    """Return the tensors on a memory whose values a call reads, and does not only put some into."""
    if event.results and all(one.storage == storage for one in event.results):
        return []
    row = operation(event.operation)
    into = {one.tensor for one in event.writes} if row.places else set[int]()
    read = (event.reads[place] for place in values_read(event))
    return [one for one in read if one.storage == storage and one.tensor not in into]


def _array_wrote(history: History, members: list[Change]) -> Claim:
    """Return the claim on tensors that changed because an array was written."""
    first = members[0]
    live = {one.tensor for one in members if _is_meant(history, one)}
    tensors = list(dict.fromkeys(one.tensor for one in members))
    shared, read = history.events[first.export], history.events[first.read].site
    subject = joint_name([*map(history.name_of, tensors)]).strip("`")
    owner = "buffer" if shared.operation == "frombuffer" else "NumPy array"
    return Claim(
        tensors=tuple(tensors),
        cause=("array wrote", shared.site),
        site=shared.site,
        operation=shared.operation,
        severity="note" if {one.tensor for one in members if not one.passing} <= live else None,
        subject=subject,
        message=say(
            "`{name}` shares its memory with a {owner} from {line} on. A write to the {owner}"
            " changed what {read} reads from `{name}`.",
            name=subject, owner=owner, line=At(shared.site), read=At(read),
        ),
        story=(
            Step("shared", shared.site, say("{call} shares the memory of the {owner}",
                 call=CallOf(first.export), owner=owner)),
            Step("read", read, say("read here, with bytes that no tensor call wrote")),
        ),
        repair=copied(history, first.export, subject),
        count=len({one.export for one in members}),
        calls=(first.export,),
    )  # fmt: skip


# -- a write on the tensor's side ------------------------------------------------------------------


class Export(NamedTuple):
    """An array that was handed out and lived on."""

    at: int  # position of the call
    operand: Operand
    gone: int  # position of the first call without it


class Ran:
    """When the lines of the program ran: the positions of the calls recorded at each, in order."""

    def __init__(self, history: History) -> None:
        self.at: dict[tuple[str, int], list[int]] = defaultdict(list)
        for at, event in enumerate(history.events):
            site = history.site_of(event)
            self.at[site.file, site.line].append(at)


def followers(history: History) -> Iterator[Claim]:
    """Find arrays taken as a record that a write to their tensor changed before they were read."""
    for number, exports in _exports(history).items():
        site = history.site(number)
        source = source_of(site.file, history.trace.sources.get(site.file, ""))
        kept = keeping(source, site)
        if kept is None:
            continue
        records = _Records(history, exports)
        for export in exports:
            write = records.changed(export)
            read = _reading(history, source, kept, export, write) if write != UNKNOWN else None
            if read is not None:
                yield _follower(history, export, kept, write, read, exports)
                break


def _exports(history: History) -> dict[int, list[Export]]:
    """Return the arrays that outlived their call, by the line that took them."""
    found: dict[int, list[Export]] = defaultdict(list)
    for fact in history.trace.arrays:
        at = history.position(fact.event)
        event = history.events[at] if 0 <= at < len(history.events) else None
        if event is None or not event.reads or event.inner != event.site:
            continue
        gone = history.position(fact.released) if fact.released >= 0 else len(history.events) + 1
        if not event.raised and history.site_of(event).user:
            found[event.site].append(Export(at, event.reads[0], gone))
    return found


class _Touched:
    """When the stretches of one memory were touched: few meet, however many calls there are.

    Stretches of about one size lie in the order of where they begin.
    """

    def __init__(self, touches: Iterable[tuple[int, Operand]]) -> None:
        self._times: dict[tuple[object, ...], list[int]] = {}
        rows: dict[tuple[int, str, int], list[tuple[int, int, Operand, list[int]]]] = {}
        for at, one in touches:
            key = (one.storage, *one[3:7])
            if key not in self._times:
                (first, last), times = extent(one), self._times.setdefault(key, [])
                kind = (one.storage, one.dtype, (last - first).bit_length())
                rows.setdefault(kind, []).append((first, len(self._times), one, times))
            self._times[key].append(at)
        self._rows = {kind: sorted(row) for kind, row in rows.items()}

    def meeting(self, operand: Operand, after: int, before: int) -> Iterator[list[int]]:
        """Yield when each stretch that meets an operand was touched between two moments."""
        first, last = extent(operand)
        for (storage, dtype, bits), row in self._rows.items():
            alike = (storage, dtype) == (operand.storage, operand.dtype)
            low = bisect_left(row, (first - (1 << bits),)) if alike else 0
            high = bisect_left(row, (last,)) if alike else len(row)
            for _, _, one, times in row[low:high]:
                if may_overlap(one, operand):
                    yield times[bisect_right(times, after) : bisect_left(times, before)]


class _Records:
    """The arrays that one line took, and the writes to what they show, by memory."""

    def __init__(self, history: History, exports: list[Export]) -> None:
        self._history = history
        taken: dict[int, list[tuple[int, Operand]]] = defaultdict(list)
        for one in exports:
            taken[history.flow.memory(one.operand)].append((one.at, one.operand))
        self._taken = {memory: _Touched(found) for memory, found in taken.items()}
        writes = history.get(Sharing).writes
        self._written = {
            memory: _Touched(
                one for one in writes.get(memory) if not _through_array(history, one[1].tensor)
            )
            for memory in taken
        }

    def changed(self, export: Export) -> int:
        """Return the first write that makes the array's record wrong, or -1.

        An array taken once may be meant as a window: of memory that held nothing yet, or that is
        only ever filled anew. Taken again after a write, with both arrays kept, it was meant as a
        record.
        """
        memory = self._history.flow.memory(export.operand)
        written = self._written[memory].meeting(export.operand, export.at, export.gone)
        times = sorted(at for found in written for at in found)
        if not times:
            return UNKNOWN
        # Taken just before it goes, a name was merely given the next array.
        until = export.gone - 1
        taken = self._taken[memory].meeting(export.operand, export.at, until)
        again = max((found[-1] for found in taken if found), default=UNKNOWN)
        if times[0] < again:
            return times[0]
        had = _had_values(self._history, export)
        return next((at for at in times if self._spoils(at, had=had)), UNKNOWN)

    def _spoils(self, write: int, *, had: bool) -> bool:
        """Whether a write alone makes a record wrong: it goes on from values, or replaces them."""
        name = self._history.events[write].operation
        return name == "step" or (had and not operation(name).overwrites)


def _through_array(history: History, tensor: int) -> bool:
    """Whether a tensor was made of the array, so that who writes it knows what it shows."""
    made = history.made_at(history.get(Sharing).family(tensor))
    row = operation(history.events[made].operation) if made != UNKNOWN else None
    return row is not None and row.enters and row.own_counter


def _had_values(history: History, export: Export) -> bool:
    made = _owner_made(history, export)
    blank = made != UNKNOWN and operation(history.events[made].operation).blank
    return not blank or _was_written(history, export)


def _held_nothing(history: History, export: Export) -> bool:
    made = _owner_made(history, export)
    empty = made != UNKNOWN and operation(history.events[made].operation).empty
    return empty and not _was_written(history, export)


def _owner_made(history: History, export: Export) -> int:
    return history.made_at(history.get(Sharing).owner(export.operand.tensor))


def _was_written(history: History, export: Export) -> bool:
    memory = history.flow.memory(export.operand)
    return any(one.at < export.at for one in history.get(Sharing).writes.get(memory))


def _reading(
    history: History, source: Source, kept: Kept, export: Export, write: int
) -> Site | None:
    """Return the line that names the array and ran after the write, while it was still there."""
    done, file = (
        history.site_of(history.events[write]),
        history.site_of(history.events[export.at]).file,
    )
    for node in loads(source, kept):
        times = history.get(Ran).at[file, node.lineno]
        nearest = bisect_right(times, write)
        ran = nearest < len(times) and times[nearest] < export.gone
        if ran or (done.file == file and follows(source, node, kept, done)):
            return site_of_node(file, node, source.lines)
    return None


def _follower(
    history: History, export: Export, kept: Kept, write: int, read: Site, exports: list[Export]
) -> Claim:
    shared, done = history.events[export.at].site, history.events[write].site
    owner: int = export.operand.tensor
    for link in history.get(Sharing).chain(owner):
        if history.names_of(owner):
            break
        owner = link.source
    x, call = Tensor(owner), CallOf(write)
    return Claim(
        tensors=(export.operand.tensor,),
        cause=("follower", shared),
        site=shared,
        operation="numpy",
        subject=kept.name,
        message=say(
            "`{name}` is NumPy's view of {x} since {line}, and no copy. The write at {written}"
            " ({call}) changed what {read} reads from `{name}`.",
            name=kept.name, x=x, line=At(shared), written=At(done), call=call, read=At(read),
        ),
        story=(
            Step("shared", shared, say("the array shares the memory of {x}", x=x)),
            Step("written", done, say("{x} is written by {call}", x=x, call=call)),
            Step("read", read, say("`{name}` is read here, with what was written",
                 name=kept.name)),
        ),
        repair=Repair(
            say("Copy at {line}: `{code!s}.copy()`, or `tether.copy({x!s}, to='numpy')`.",
                line=At(shared), code=Code(shared), x=x)
        ),
        assumes=(
            say("a line that names the array reads it: reads of NumPy arrays are not recorded"),
        ),
        count=len(exports),
        calls=(export.at,),
    )  # fmt: skip
