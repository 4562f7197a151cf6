"""NumPy arrays on the memory of tensors: part of `alias-write`, both ways.

A write on the array's side is found by bytes, and changes the tensor. A write on the tensor's side
changes an array that was taken as a record. How long an array lives is a fact; that it is read is
not heard, so the read is found in the program's text: a line that names the array (or the container
that it was put into) and ran, by the calls recorded, after the write.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.shared_memory import Sharing, container, unheard
from tether.analysis.wording import evidence, place
from tether.facts import UNKNOWN, Event, Operand, Site
from tether.finding import Evidence, Finding, Fix
from tether.operations.table import operation
from tether.regions import may_overlap
from tether.source.syntax import site_of_node

_FRESH = frozenset(
    {"zeros", "empty", "ones", "full", "zeros_like", "empty_like", "ones_like", "full_like"}
    | {"new_zeros", "new_empty", "new_ones", "new_full"}
)
"""Calls whose result holds nothing yet that a program could want to keep."""

_OF_ARRAYS = frozenset({"from_numpy", "as_tensor", "asarray", "frombuffer"})

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module, ast.ClassDef)
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


# -- a write on the array's side -------------------------------------------------------------------


class Change(NamedTuple):
    """Bytes of a tensor that an array's owner changed."""

    export: int
    read: int
    tensor: int


def written_by_arrays(history: History, told: set[int]) -> Iterator[list[Change]]:
    """Yield the tensors whose bytes an array changed after they had values, by line of the tie."""
    groups: dict[int, list[Change]] = defaultdict(list)
    for fact in unheard(history):
        export = history.position(fact.event)
        if fact.event == UNKNOWN or not 0 <= export < len(history.events):
            continue
        read = min(history.position(fact.before), len(history.events) - 1)
        event = history.events[export]
        operand = (event.results or event.reads)[0]
        if operand.tensor in told or fact.site == UNKNOWN or not fact.held:
            continue  # an array that nobody has any more is the tensor's own
        groups[event.site].append(Change(export, read, operand.tensor))
    for members in groups.values():
        if len({one.tensor for one in members}) == 1 and len(members) > 2:
            continue  # one buffer, filled again and again: that is its use
        yield members


def array_wrote(
    history: History, members: list[Change], repair: Callable[[Event, str], str], how: str
) -> Finding:
    """Return the finding on tensors that changed because an array was written."""
    event = history.events[members[0].export]
    tensors = list(dict.fromkeys(one.tensor for one in members))
    names = [history.name_of(one) for one in tensors]
    subject = (container(names) if len(names) > 1 else names[0]) or names[0]
    site = history.site_of(event)
    noticed = history.events[members[0].read]
    return Finding(
        slug="alias-write",
        severity="warning",
        subject=subject,
        site=site,
        operation=event.operation,
        message=(
            f"`{subject}` shares its memory with a NumPy array since {place(site)}: a write to the"
            f" array changed it before {place(history.site_of(noticed))} read it."
        ),
        also=tuple(one for one in dict.fromkeys(names) if one != subject)[:50],
        evidence=(
            Evidence("shared", site, f"{how} shares the array's memory"),
            evidence(history, "read", noticed, "read here, with bytes that no tensor call wrote"),
        ),
        fix=Fix(repair(event, subject)),
        count=len(members),
        tensors=tuple(tensors),
    )


# -- a write on the tensor's side ------------------------------------------------------------------


class Export(NamedTuple):
    """An array that was handed out and lived on."""

    at: int  # position of the call
    operand: Operand
    gone: int  # position of the first call without it


class Kept(NamedTuple):
    """Where the program's text keeps an array."""

    name: str
    node: ast.Call  # that made it
    many: bool  # the name is a container's, with a place for each array


def followers(history: History) -> Iterator[Finding]:
    """Find arrays taken as a record that a write to their tensor changed before they were read."""
    texts: dict[str, _Text | None] = {}
    for site, exports in _exports(history).items():
        where = history.site(site)
        if where.file not in texts:
            texts[where.file] = _text(history, where.file)
        text = texts[where.file]
        kept = text.keeping(where) if text is not None else None
        if text is None or kept is None:
            continue
        for export in exports:
            write = _changed(history, export, exports)
            read = _reading(history, text, kept, export, write) if write != UNKNOWN else None
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


def _changed(history: History, export: Export, others: list[Export]) -> int:
    """Return the first write that makes the array's record wrong, or -1.

    An array taken once may be meant as a window: of memory that held nothing yet, or that is only
    ever filled anew. Taken again after a write, with both arrays kept, it was meant as a record.
    """
    memory = history.flow.memory(export.operand)
    writes = [
        one
        for one in history.get(Sharing).writes.get(memory, ())
        if export.at < one.at < export.gone
        and may_overlap(one.operand, export.operand)
        and not _through_array(history, one.operand.tensor)
    ]
    again = [
        one
        for one in others
        if export.at < one.at < export.gone - 1  # else a name was merely given the next array
        and history.flow.memory(one.operand) == memory
        and may_overlap(one.operand, export.operand)
    ]
    for write in writes:
        if any(write.at < one.at for one in again):
            return write.at
        event = history.events[write.at]
        if event.operation == "step":
            return write.at
        if not operation(event.operation).overwrites and _had_values(history, export):
            return write.at
    return UNKNOWN


def _through_array(history: History, tensor: int) -> bool:
    """Whether a tensor was made of the array, so that who writes it knows what it shows."""
    made = history.made_at(history.get(Sharing).family(tensor))
    return made != UNKNOWN and history.events[made].operation in _OF_ARRAYS


def _had_values(history: History, export: Export) -> bool:
    owner: int = export.operand.tensor
    for link in history.get(Sharing).chain(owner):
        owner = link.source
    made = history.made_at(owner)
    if made == UNKNOWN or history.events[made].operation not in _FRESH:
        return True
    memory = history.flow.memory(export.operand)
    return any(one.at < export.at for one in history.get(Sharing).writes.get(memory, ()))


def _reading(history: History, text: _Text, kept: Kept, export: Export, write: int) -> Site | None:
    """Return the line that names the array and ran after the write, while it was still there."""
    done = history.site_of(history.events[write])
    for node in text.loads(kept):
        times = text.times(node.lineno)
        nearest = bisect_right(times, write)
        if nearest < len(times) and times[nearest] < export.gone:
            return text.site(node)
        if text.follows(node, kept, done):
            return text.site(node)
    return None


def _follower(
    history: History, export: Export, kept: Kept, write: int, read: Site, exports: list[Export]
) -> Finding:
    event, done = history.events[export.at], history.events[write]
    site = history.site_of(event)
    owner: int = export.operand.tensor
    for link in history.get(Sharing).chain(owner):
        if history.names_of(owner):
            break
        owner = link.source
    name = history.name_of(owner)
    what = f"the step of {done.detail}" if done.operation == "step" else done.operation
    return Finding(
        slug="alias-write",
        severity="warning",
        subject=kept.name,
        site=site,
        operation="numpy",
        message=(
            f"`{kept.name}` holds NumPy's view of `{name}` since {place(site)}, and no copy: the"
            f" write at {place(history.site_of(done))} ({what}) changed it before {place(read)}"
            " read it."
        ),
        evidence=(
            evidence(history, "shared", event, f"the array shares the memory of `{name}`"),
            evidence(history, "written", done, f"`{name}` is written by {what}"),
            Evidence("read", read, f"`{kept.name}` is read here, with what was written"),
        ),
        fix=Fix(
            f"Copy at {place(site)}: {site.expression}.copy(), or tether.copy({name}, to='numpy')."
        ),
        count=len(exports),
        assumes=("a line that names the array reads it: reads of NumPy arrays are not recorded",),
        tensors=(export.operand.tensor,),
    )


# -- the program's text ----------------------------------------------------------------------------


def _text(history: History, file: str) -> _Text | None:
    source = history.trace.sources.get(file)
    if source is None:
        return None
    try:
        return _Text(history, file, source)
    except (SyntaxError, ValueError, RecursionError):
        return None


class _Text:
    """One file: where its calls are kept, which lines name them, and when its lines ran."""

    def __init__(self, history: History, file: str, source: str) -> None:
        self._file, self._lines = file, source.splitlines()
        self._parents: dict[ast.AST, ast.AST] = {}
        self._calls: dict[tuple[int, int, int, int], ast.Call] = {}
        self._nodes: list[ast.AST] = []
        for node in ast.walk(ast.parse(source)):
            self._nodes.append(node)
            self._parents.update((child, node) for child in ast.iter_child_nodes(node))
            if isinstance(node, ast.Call):
                site = self.site(node)
                self._calls[site.line, site.column, site.end_line, site.end_column] = node
        self._times: dict[int, list[int]] = defaultdict(list)
        for at, event in enumerate(history.events):
            site = history.site_of(event)
            if site.file == file:
                self._times[site.line].append(at)

    def site(self, node: ast.expr) -> Site:
        """Return where an expression stands."""
        return site_of_node(self._file, node, self._lines)

    def times(self, line: int) -> list[int]:
        """Return the positions of the calls recorded at a line, in order."""
        return self._times.get(line, [])

    def keeping(self, site: Site) -> Kept | None:
        """Return where the text puts what a call gives, where it puts it as it is."""
        call = self._calls.get((site.line, site.column, site.end_line, site.end_column))
        if call is None:
            return None
        node: ast.AST = call
        above = self._parents.get(node)
        # What a method or an index gives is kept: the array lived on, so that is a view of it.
        while (
            isinstance(above, ast.Attribute)
            or (isinstance(above, ast.Call) and above.func is node)
            or (isinstance(above, ast.Subscript) and above.value is node)
        ):
            node, above = above, self._parents.get(above)
        while isinstance(above, (ast.ListComp, ast.DictComp, ast.List, ast.Dict, ast.Tuple)):
            if isinstance(above, ast.ListComp) and above.elt is not node:
                return None
            if isinstance(above, ast.DictComp) and above.value is not node:
                return None
            node, above = above, self._parents.get(above)
        if isinstance(above, ast.Assign) and len(above.targets) == 1:
            return _target(above.targets[0], call)
        if isinstance(above, ast.AnnAssign):
            return _target(above.target, call)
        if (
            isinstance(above, ast.Call)
            and isinstance(above.func, ast.Attribute)
            and above.func.attr == "append"
            and above.args == [node]
        ):
            return Kept(ast.unparse(above.func.value), call, many=True)
        return None

    def loads(self, kept: Kept) -> Iterator[ast.expr]:
        """Yield the places that read the name, in the order of the text."""
        found = [
            node
            for node in self._nodes
            if isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Load)
            and ast.unparse(node) == kept.name
            and not self._fills(node)
        ]
        yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))

    def _fills(self, node: ast.AST) -> bool:
        """Whether a place names a container to put something into it."""
        above = self._parents.get(node)
        if isinstance(above, ast.Attribute):
            return above.attr in ("append", "extend", "clear")
        return isinstance(above, ast.Subscript) and not isinstance(above.ctx, ast.Load)

    def follows(self, node: ast.expr, kept: Kept, done: Site) -> bool:
        """Whether a place runs after a write: lower in the same function, and not set anew."""
        scope = self._scope(node)
        if done.file != self._file or scope is not self._scope(kept.node):
            return False
        line = self._line_in(scope, kept.node, done)
        if line == UNKNOWN or node.lineno <= line or node.lineno <= kept.node.lineno:
            return False
        loop = self._loop(kept.node)
        if loop is not None and not kept.many and node.lineno <= (loop.end_lineno or 0):
            return False
        return kept.many or self._set_once(kept, scope, node.lineno)

    def _line_in(self, scope: ast.AST, taken: ast.Call, done: Site) -> int:
        """Return the line of a scope at which the write happens: its own, or that of a call."""
        first, last = getattr(scope, "lineno", 0), getattr(scope, "end_lineno", None) or 1 << 60
        name = done.function.rpartition(".")[2]
        if self._within(scope, done.line):
            return done.line
        loop = self._loop(taken)
        start = loop.lineno if loop is not None else taken.lineno
        called = [
            node.lineno
            for node in self._nodes
            if isinstance(node, ast.Call)
            and first <= node.lineno <= last
            and node.lineno >= start
            and ast.unparse(node.func).rpartition(".")[2] == name
            and self._scope(node) is scope
        ]
        return min(called, default=UNKNOWN)

    def _within(self, scope: ast.AST, line: int) -> bool:
        """Whether a line belongs to a scope, and to no function inside it."""
        inner = [
            node
            for node in self._nodes
            if isinstance(node, _SCOPES)
            and getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", None) or 1 << 60)
        ]
        return (inner[-1] if inner else None) is scope

    def _scope(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, _SCOPES):
            node = self._parents[node]
        return node

    def _loop(self, node: ast.AST) -> ast.For | ast.While | ast.AsyncFor | None:
        """Return the outermost loop around a node within its scope."""
        found = None
        while not isinstance(node, _SCOPES):
            node = self._parents[node]
            if isinstance(node, _LOOPS):
                found = node
        return found

    def _set_once(self, kept: Kept, scope: ast.AST, line: int) -> bool:
        """Whether a name set by the call is set nowhere else, but for a `best = None` above it."""
        stores = [
            node.lineno
            for node in self._nodes
            if isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node) == kept.name
            and self._scope(node) is scope
        ]
        last = kept.node.end_lineno or kept.node.lineno
        return len(stores) <= 2 and not any(last < one <= line for one in stores)


def _target(target: ast.expr, call: ast.Call) -> Kept | None:
    """Return what is assigned to; a place in a container stands for the container."""
    if isinstance(target, ast.Subscript):
        return Kept(ast.unparse(target.value), call, many=True)
    if isinstance(target, (ast.Name, ast.Attribute)):
        return Kept(ast.unparse(target), call, many=False)
    return None
