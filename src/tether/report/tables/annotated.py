"""The user's source with what happened at each line, as data: no markup, no colour.

A *group* is all the memory that was touched at the same set of lines: hovering one of its names
lights those lines up. Lines and columns count as in `Site`.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from tether.analysis.history import History
from tether.analysis.speaking import bytes_text
from tether.facts import Event, Operand, Site
from tether.finding import SEVERITIES, Severity
from tether.operations.table import operation, shown
from tether.report.document.findings import Findings
from tether.report.document.grouping import ends
from tether.report.filters import Selection, shown_path
from tether.report.tables.copies import Copy, nbytes
from tether.source import syntax
from tether.source.syntax import source_of

MANY_STEPS = 12
"""Places of one chain; the rest is counted."""

MANY_GROUPS = 24
"""Groups that one name lights up; a name with more is a loop's, and lights the first ones."""

_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

Kind = Literal["owns", "shares", "cut", "written", "needed", "needless"]
KINDS: tuple[Kind, ...] = ("needless", "needed", "cut", "written", "owns", "shares")

_MARK_OF: dict[str, Kind] = {
    "cut": "cut", "shared": "shares", "written": "written", "needless-copy": "needless",
}  # fmt: skip
"""The mark that a place of a finding is about, by its role or by the finding's slug."""

Key = tuple[str, int]  # file, line


@dataclass
class Mark:
    """What one line did to a tie, over all its runs."""

    kind: Kind
    count: int = 0
    bytes: int = 0


class ChainPlace(NamedTuple):
    """One place of a chain: what happened to the memory there."""

    role: str
    site: Site
    here: bool  # it is the line whose chain this is


class NameSpan(NamedTuple):
    """A stretch of a line, characters from 0, that names memory."""

    start: int
    end: int
    groups: tuple[int, ...]


@dataclass
class LineMarks:
    """What is known of one line."""

    marks: dict[Kind, Mark] = field(default_factory=dict)
    steps: list[ChainPlace] = field(default_factory=list)
    more: int = 0  # steps left out
    groups: tuple[int, ...] = ()
    meant: list[tuple[int, int, Severity]] = field(default_factory=list)  # what a finding means
    findings: list[int] = field(default_factory=list)  # numbers, from 1, whose ends are here
    told: dict[Kind, Severity] = field(default_factory=dict)  # marks that a finding speaks of

    @property
    def severity(self) -> Severity | None:
        """The gravest of the findings that have an end on the line."""
        return min((one[2] for one in self.meant), key=SEVERITIES.index, default=None)


@dataclass
class File:
    """One source file and what happened on it."""

    path: str
    shown: str
    text: str
    lines: dict[int, LineMarks]
    names: dict[int, list[NameSpan]]


def annotated(about: Findings) -> list[File]:
    """Return the files that the recording holds text of, those with findings first."""
    return _Annotation(about).files()


class _Annotation:
    def __init__(self, about: Findings) -> None:
        self.about = about
        self.trace = about.trace
        self.history: History = about.history
        self.selection = about.selection or Selection(about.trace.folder)
        self.lines: dict[Key, LineMarks] = defaultdict(LineMarks)
        # What happened to each memory: (site, role) in the order in which it first did.
        self.told: dict[int, dict[tuple[int, str], None]] = defaultdict(dict)
        self.touched: dict[int, set[Key]] = defaultdict(set)
        self.named: dict[tuple[str, int, str], set[int]] = defaultdict(set)  # file, scope, name
        self.chains: dict[Key, list[int]] = {}  # line -> the memories its chain is about

    def files(self) -> list[File]:
        texts = self.trace.sources
        wanted = {file for file in texts if self.selection.wants(Site(file, 1))}
        self._events(wanted)
        self._copies()
        self._findings()
        self._chains()
        groups = self._groups()
        made = []
        for file in wanted:
            lines = {at[1]: line for at, line in self.lines.items() if at[0] == file}
            names = dict(self._names(file, texts[file], groups))
            shown = shown_path(file, self.trace.folder)
            made.append(File(file, shown, texts[file], lines, names))
        return sorted(
            made,
            key=lambda one: (-sum(len(li.findings) for li in one.lines.values()), one.shown),
        )

    # -- events ------------------------------------------------------------------------------

    def _events(self, wanted: set[str]) -> None:
        memory = self.history.flow.memory
        for event in self.trace.events:
            if event.site < 0:
                continue
            site = self.trace.sites[event.site]
            if site.file not in wanted:
                continue
            at = (site.file, site.line)
            before = {one.storage for one in event.reads}
            for one in (*event.reads, *event.results, *event.writes):
                self.touched[memory(one)].add(at)
            for one in event.reads:
                self._tell(memory(one), event, "read by")
            for one in event.results:
                role = "shared by" if one.storage in before else "made by"
                self._tell(memory(one), event, role)
            for one in event.writes:
                self._tell(memory(one), event, "written by")
            self._name(event, site)
            self._mark(event, at, before)

    def _tell(self, memory: int, event: Event, role: str) -> None:
        told = self.told[memory]
        if len(told) < 10 * MANY_STEPS:
            told.setdefault((event.site, f"{role} {shown(event.operation)}"))

    def _name(self, event: Event, site: Site) -> None:
        memory, scope = self.history.flow.memory, _scope_of(site)
        if site.target and event.inner in (-1, event.site):
            for one in event.results:
                self.named[site.file, scope, site.target].add(memory(one))
        if not operation(event.operation).carries and event.operation != "backward":
            return  # an optimizer's step reads all its tensors
        read = _operands(site.expression, event.operation)
        for name, one in zip(read, event.reads, strict=False):
            if name:
                self.named[site.file, scope, name].add(memory(one))

    def _mark(self, event: Event, at: Key, before: AbstractSet[int]) -> None:
        if self.history.inside(event, "function", "backward") >= 0:
            return
        if _cuts(event):
            self._count(at, "cut", event)
        if event.writes:
            self._count(at, "written", event, sum(nbytes(one) for one in event.writes))
        views = [one for one in event.results if one.storage in before]
        if views and not event.writes and not operation(event.operation).converts:
            self._count(at, "shares", event)

    def _count(self, at: Key, kind: Kind, event: Event, size: int = 0) -> None:
        mark = self.lines[at].marks.setdefault(kind, Mark(kind))
        mark.count += 1
        mark.bytes += size
        chain = self.chains.setdefault(at, [])
        if not chain:
            of = event.writes or event.reads[:1]
            both = (*of[:1], *event.results[:1])
            chain += dict.fromkeys(self.history.flow.memory(one) for one in both)

    def _copies(self) -> None:
        """Add what the report's own table of copies says."""
        first: dict[Key, Event] = {}
        for event in self.trace.events:
            if event.site >= 0 and operation(event.operation).converts:
                site = self.trace.sites[event.site]
                first.setdefault((site.file, site.line), event)
        for row in self.about.copies:
            at = (row.site.file, row.site.line)
            for kind in _kinds(row):
                mark = self.lines[at].marks.setdefault(kind, Mark(kind))
                mark.count += row.count
                mark.bytes += row.bytes if kind != "shares" else 0
            if at in first and at not in self.chains:
                both = (*first[at].reads[:1], *first[at].results[:1])
                self.chains[at] = list(dict.fromkeys(self.history.flow.memory(one) for one in both))

    def _findings(self) -> None:
        for number, finding in enumerate(self.about.findings, start=1):
            for one in ends(finding)[0]:
                site = one.site
                line = self.lines[site.file, site.line]
                if number not in line.findings:
                    line.findings.append(number)
                first = max(0, site.column - 1)
                last = site.end_column if site.end_line == site.line else 1 << 30
                line.meant.append((first, max(first, last - 1), finding.severity))
                kind = _MARK_OF.get(one.role) or _MARK_OF.get(finding.slug)
                if kind:
                    line.told.setdefault(kind, finding.severity)

    def _chains(self) -> None:
        sites = self.trace.sites
        for at, memories in self.chains.items():
            line = self.lines[at]
            told = dict.fromkeys(one for memory in memories for one in self.told[memory])
            steps = [
                ChainPlace(role, sites[number], (sites[number].file, sites[number].line) == at)
                for number, role in _joined(told)
            ]
            line.steps, line.more = steps[:MANY_STEPS], max(0, len(steps) - MANY_STEPS)

    # -- names -------------------------------------------------------------------------------

    def _groups(self) -> dict[int, int]:
        """Return the group of each memory that was touched at more than one line."""
        numbers: dict[frozenset[Key], int] = {}
        groups = {
            memory: numbers.setdefault(frozenset(places), len(numbers))
            for memory, places in self.touched.items()
            if len(places) > 1
        }
        wanted = {groups[one] for found in self.named.values() for one in found if one in groups}
        for places, number in numbers.items():
            if number in wanted:
                for at in places:
                    self.lines[at].groups = (*self.lines[at].groups, number)
        return groups

    def _names(
        self, file: str, text: str, groups: dict[int, int]
    ) -> Iterator[tuple[int, list[NameSpan]]]:
        """Yield the names of each line that lies in a scope where they name memory."""
        by_scope = self._by_scope(file, groups)
        if not by_scope:
            return
        source = source_of(file, text)
        scopes = _scopes(source.tree, len(source.lines))
        for number, content in enumerate(source.lines, start=1):
            known = by_scope.get(scopes[number])
            if not known or len(content) > 2_000:
                continue
            spans = [
                NameSpan(match.start(), match.start() + len(part), known[part])
                for match in _DOTTED.finditer(content)
                if (part := _longest(match[0], known))
            ]
            if spans:
                yield number, sorted(spans)

    def _by_scope(self, file: str, groups: dict[int, int]) -> dict[int, _Known]:
        """Return the names of a file that name memory, and its groups, by scope."""
        by_scope: dict[int, _Known] = defaultdict(dict)
        for (where, scope, name), memories in self.named.items():
            found = sorted({groups[one] for one in memories if one in groups})
            if where == file and found:
                by_scope[scope][name] = tuple(found[:MANY_GROUPS])
        return by_scope


def _kinds(row: Copy) -> Iterator[Kind]:
    """Yield the marks of a row of the report's table of copies."""
    if row.memory != "owns":
        yield "shares"
    if row.memory != "shares":
        yield "owns"
    if row.needed != "unknown":
        yield "needed" if row.needed == "yes" else "needless"


def _joined(told: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Make one of what a call did to one memory: ``read and shared by detach``."""
    last: tuple[int, str] | None = None
    for number, role in told:
        verb, _, call = role.partition(" by ")
        if last and last[0] == number and last[1].endswith(f" by {call}"):
            before = last[1].removesuffix(f" by {call}")
            last = number, f"{before} and {verb} by {call}"
            continue
        if last:
            yield last
        last = number, role
    if last:
        yield last


_Known = dict[str, tuple[int, ...]]  # name -> groups


def _longest(dotted: str, known: _Known) -> str:
    """Return the longest beginning of ``out.detach`` that is a known name, or ""."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        head = ".".join(parts[:count])
        if head in known:
            return head
    return ""


def _scope_of(site: Site) -> int:
    return 0 if site.function in ("", "<module>") else site.first_line


def _scopes(tree: ast.Module | None, count: int) -> list[int]:
    """Return for each line (from 1) the first line of the function around it, or 0."""
    scopes = [0] * (count + 2)
    if tree is None:
        return scopes
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for node in sorted(functions, key=lambda one: one.lineno):  # an inner one comes later
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        last = min(node.end_lineno or node.lineno, count)
        scopes[node.lineno : last + 1] = [first] * (last + 1 - node.lineno)
    return scopes


@lru_cache(maxsize=8192)
def _operands(expression: str, operation: str) -> tuple[str, ...]:
    """Return the names of a call's tensor arguments, as far as its text is beyond doubt.

    ``out.detach()`` that was a `detach` read `out`; ``a + b`` read `a` and `b`.
    """
    match syntax.expression(expression):
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[], keywords=[]):
            # With arguments it may as well be a function of a module: `functional.relu(x)`.
            return (_dotted(value),) if attr == operation else ()
        case ast.Attribute(value=value, attr=attr) if operation == f"{attr}.__get__":
            return (_dotted(value),)
        case ast.BinOp(left=left, right=right):
            names = (_dotted(left), _dotted(right))
            return names if all(names) else ()
    return ()


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def _cuts(event: Event) -> bool:
    """Whether gradients could have flowed back from the call and cannot."""
    if not any(one.requires_grad for one in event.reads):
        return False
    if operation(event.operation).exports:
        return True
    made = [one for one in event.results if _differentiable(one)]
    return bool(made) and not any(one.requires_grad for one in made) and not _gradient(event)


def _gradient(event: Event) -> bool:
    """Whether what a call returns are gradients, which no graph is asked of."""
    return operation(event.operation).gradients


def _differentiable(operand: Operand) -> bool:
    return operand.dtype.startswith(("float", "bfloat", "complex")) and math.prod(operand.shape) > 0


def mark_label(mark: Mark) -> str:
    """Return what a mark says after its line: kind, times, bytes."""
    times = f"\u00d7{mark.count:,}" if mark.count > 1 else ""
    size = f" {bytes_text(mark.bytes)}" if mark.bytes else ""
    return f"{mark.kind}{times}{size}"


def mark_text(mark: Mark) -> str:
    """Return what a mark says in full: for a tooltip and for who cannot see its colour."""
    words = {
        "owns": "the result has memory of its own",
        "shares": "the result shares memory with its source",
        "cut": "gradients do not flow back from the result",
        "written": "memory is written in place",
        "needed": "the copy was needed",
        "needless": "the same result without the copy",
    }
    return words[mark.kind] + (f", {mark.count:,} times" if mark.count > 1 else "")
