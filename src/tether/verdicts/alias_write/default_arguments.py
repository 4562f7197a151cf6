"""Tensors made once, in a definition, and written by every call: part of `alias-write`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.wording import evidence, place
from tether.facts import UNKNOWN, Event, Site
from tether.finding import Finding, Fix
from tether.source.syntax import Key, Source, key_of, source_of


class Default(NamedTuple):
    """An expression that a definition evaluates once."""

    owner: str  # the function or class
    name: str  # the argument or the attribute
    first: int  # lines of the function or class
    last: int
    of_class: bool


def defaults_written(history: History) -> Iterator[Finding]:
    """Find tensors made in a definition and written in place by the code that it defines."""
    known: dict[int, Default | None] = {}  # by site: a line is run many times
    for at, event in enumerate(history.events):
        if not event.results or event.reads or event.site < 0:
            continue
        site = history.site_of(event)
        if site.file not in history.trace.sources:
            continue
        if event.site not in known:
            known[event.site] = _default_at(
                source_of(site.file, history.trace.sources[site.file]), site
            )
        default = known[event.site]
        if default is None:
            continue
        writes = list(_writes(history, at, event, default, site.file))
        if default.of_class and not _shared(history, event):
            continue
        if len(writes) < 2 and not (writes and default.of_class and _read_since(history, event)):
            continue
        yield _finding(history, event, default, writes)


def _default_at(source: Source, site: Site) -> Default | None:
    """Return the default whose expression holds a site, if one does."""
    where = source.key(site)
    if source.tree is None or where is None:
        return None
    for node in ast.walk(source.tree):
        last = getattr(node, "end_lineno", None) or 0
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not node.lineno <= site.line <= last:
                continue
            given = [*node.args.posonlyargs, *node.args.args]
            pairs: list[tuple[ast.arg, ast.expr]] = list(
                zip(given[len(given) - len(node.args.defaults) :], node.args.defaults, strict=True)
            )
            pairs += [
                (one, given_to)
                for one, given_to in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                if given_to is not None
            ]
            for argument, default in pairs:
                if _holds(default, where):
                    return Default(node.name, argument.arg, node.lineno, last, of_class=False)
        elif isinstance(node, ast.ClassDef):
            for line in node.body:
                value = getattr(line, "value", None)
                if not isinstance(line, (ast.Assign, ast.AnnAssign)) or value is None:
                    continue
                target = line.targets[0] if isinstance(line, ast.Assign) else line.target
                if isinstance(target, ast.Name) and _holds(value, where):
                    return Default(node.name, target.id, node.lineno, last, of_class=True)
    return None


def _holds(node: ast.expr, place: Key) -> bool:
    """Whether an expression holds a place and evaluates it where it stands."""
    around = None if isinstance(node, ast.Lambda) else key_of(node)
    return around is not None and around[:2] <= place[:2] and place[2:] <= around[2:]


def _writes(history: History, at: int, event: Event, default: Default, file: str) -> Iterator[int]:
    """Yield the writes to the default's memory by the code that it was made for.

    A function's default: from the function's lines. A class's: from anywhere, through an instance;
    a write by the class's own name (``State.count += 1``, ``cls.count``) means all instances.
    """
    for write in history.writes_to(event.results[0], at):
        site = history.site_of(history.events[write])
        if default.of_class:
            named = re.search(rf"\b(?:{re.escape(default.owner)}|cls|__class__)\.", site.expression)
            if site.user and named is None:
                yield write
        elif site.file == file and default.first <= site.line <= default.last:
            yield write


def _read_since(history: History, event: Event) -> bool:
    """Whether an instance's tensor was read on after the last write to it."""
    shown = event.results[0]
    last = max(history.writes_to(shown), default=UNKNOWN)
    return any(
        at > last and history.events[at].reads and not history.events[at].writes
        for at in history.on_storage(shown)
    )


def _shared(history: History, event: Event) -> bool:
    """Whether two instances hold the tensor of a class."""
    names = history.names_of(event.results[0].tensor)
    return len({name.rpartition(".")[0] for name in names if "." in name}) > 1


def _finding(history: History, event: Event, default: Default, writes: list[int]) -> Finding:
    tensor = event.results[0].tensor
    names = history.names_of(tensor)
    subject = default.name
    if default.of_class and names:
        subject = max(names, key=lambda name: (name.count("."), names.index(name)))
    write = history.events[writes[-1]]
    site = history.site_of(event)
    what = "class" if default.of_class else "function"
    who = "all instances" if default.of_class else "all calls"
    reads = [
        at
        for at in history.on_storage(event.results[0])
        if at > writes[0] and history.made_at(tensor) != at and not history.events[at].writes
    ]
    facts = [
        evidence(history, "shared", event, f"made once, when the {what} is defined"),
        evidence(history, "written", write, "each call writes the same tensor in place"),
    ]
    if reads and reads[-1] != UNKNOWN:
        facts.append(evidence(history, "read", history.events[reads[-1]], "and reads what is left"))
    fix = (
        f"Make it for each instance: field(default_factory=lambda: {site.expression})."
        if default.of_class
        else f"Use {default.name}=None, and make {site.expression} inside `{default.owner}`."
    )
    return Finding(
        slug="alias-write",
        severity="warning",
        subject=subject,
        site=site,
        operation="default",
        message=(
            f"The default `{default.name}` of `{default.owner}` is one tensor for {who}, and"
            f" {place(history.site_of(write))} writes it in place: later ones start from what"
            " earlier ones left."
        ),
        also=tuple(name for name in names if name != subject),
        evidence=tuple(facts),
        fix=Fix(fix),
        count=len(writes),
        tensors=(tensor,),
    )
