"""Where the program's text puts something into a variable, an attribute or a container.

What a place shows is known from the recording; the line that filled it is looked up here, by the
name that leads to it and the function whose variable that name begins with.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from tether.facts import Site
from tether.source.names import paths_to, steps_in
from tether.source.syntax import FUNCTIONS, INTO_CONTAINERS, site_of_node, source_of

How = Literal["assigned", "stored", "loop", "parameter", "closure"]

FILLING = INTO_CONTAINERS | {"put", "put_nowait", "register_buffer", "__setitem__"}
"""Methods whose line fills the object that they are called on.

A method of the program's own (`push`) is none: what fills is the line in it.
"""


class Fill(NamedTuple):
    """A place in the text that fills something."""

    site: Site
    how: How
    target: str  # as the text writes it: "self.best", "history"
    key: str = ""  # the text under which it puts something there; "": none, or one it works out

    def may_fill(self, step: str) -> bool:
        """Return whether it may fill a slot of its target: "['act']", "[2]"; "" is any."""
        other = step[1:-1]
        return not (self.key and other[:1] in ("'", '"')) or self.key == other


class Fillings:
    """The fillings in the texts of some files, by function."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._found = {file: _read_of(file, text) for file, text in sources.items()}
        self._attributes: dict[str, list[Fill]] = defaultdict(list)
        for found in self._found.values():
            for one in itertools.chain.from_iterable(found.values()):
                if one.target.startswith("self."):
                    self._attributes[one.target].append(one)

    def of(self, file: str, function: str, name: str) -> list[Fill]:
        """Return what fills a name of a function, in the order of the text.

        ``history[2]`` is filled by what fills ``history``; an attribute that its function does
        not fill, by any method that fills one of that name. ``before.place`` is what it is since
        ``before = state``.
        """
        paths = paths_to(name)
        for wanted in reversed(paths):
            here = [one for one in self._of(file, function) if one.target == wanted]
            if here:
                return here
            named = [
                one
                for one in self._of(file, function)
                if one.target == paths[0] != wanted
                and one.how == "assigned"
                and one.site.expression.isidentifier()
            ]
            if named:
                return named
            attribute = re.search(r"\.([^.\[\]]+)$", wanted)
            if attribute is not None and (there := self._attributes.get(f"self.{attribute[1]}")):
                return list(there)
        return []

    def of_all(self) -> list[Fill]:
        """Return what fills anything anywhere."""
        return [one for some in self._found.values() for fills in some.values() for one in fills]

    def functions_of(self, variable: str) -> list[str]:
        """Return the functions that assign a variable."""
        return [
            function
            for some in self._found.values()
            for function, fills in some.items()
            if any(one.how == "assigned" and one.target == variable for one in fills)
        ]

    def anywhere(self, name: str) -> list[Fill]:
        """Return what any function assigns to the variable or attribute that a name ends with."""
        last = (steps_in(name) or [""])[-1].lstrip(".")
        return [
            one for one in self.of_all()
            if one.how == "assigned" and one.target.removeprefix("self.") == last
        ]  # fmt: skip

    def of_any(self, attribute: str) -> list[Fill]:
        """Return what any function puts into an attribute of this name, whosever it is."""
        return [
            one for one in self.of_all()
            if one.how in ("assigned", "stored") and one.target.endswith(f".{attribute}")
        ]  # fmt: skip

    def of_function(self, file: str, function: str) -> list[Fill]:
        """Return what fills anything in a function."""
        return self._of(file, function)

    def stored(self, file: str, function: str) -> list[Fill]:
        """Return what puts something into an object in a function."""
        return [one for one in self._of(file, function) if one.how == "stored"]

    def attributes(self, file: str, function: str) -> list[Fill]:
        """Return what fills an attribute in a function."""
        return [one for one in self._of(file, function) if "." in one.target]

    def _of(self, file: str, function: str) -> list[Fill]:
        return self._found.get(file, {}).get(function, [])


@functools.lru_cache(maxsize=256)  # files: the recordings of one process have most in common
def _read_of(file: str, text: str) -> dict[str, list[Fill]]:
    """Return the fillings in the text of one file, by function."""
    return _FileReader(file, text).found


class _FileReader:
    """Reads the fillings off one file."""

    def __init__(self, file: str, text: str) -> None:
        self.found: dict[str, list[Fill]] = defaultdict(list)
        source = source_of(file, text)
        if source.tree is not None:
            self._file, self._lines = file, source.lines
            self._visit(source.tree.body, "", "")

    def _visit(self, body: list[ast.stmt], function: str, prefix: str) -> None:
        """Read statements of a function; `prefix` begins the names of what is defined there."""
        for statement in body:
            self._read(statement, function, prefix)

    def _read(self, node: ast.AST, function: str, prefix: str) -> None:
        if isinstance(node, FUNCTIONS):
            inner, given = prefix + node.name, node.args
            for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                site = Site(self._file, one.lineno, one.col_offset + 1)
                self.found[inner].append(Fill(site, "parameter", one.arg))
            self._closes_over(node, function)
            self._visit(node.body, inner, f"{inner}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            self._visit(node.body, prefix + node.name, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Lambda):
            self._closes_over(node, function)
            inner = f"{prefix}<lambda>"
            self._read(node.body, inner, f"{inner}.<locals>.")
        else:
            for target, value, how in _targets(node):
                self._add(function, target, value, how)
            for child in ast.iter_child_nodes(node):
                self._read(child, function, prefix)

    def _closes_over(self, node: ast.AST, function: str) -> None:
        """Note the variables of a function that a function inside it reads."""
        site = Site(self._file, node.lineno, node.col_offset + 1)  # type: ignore[attr-defined]
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} if function else ()
        for name in sorted(names):
            self.found[function].append(Fill(site, "closure", name))

    def _add(self, function: str, target: ast.expr, value: ast.expr | None, how: How) -> None:
        for one in _flat(target):
            site = site_of_node(self._file, value or one, self._lines)
            name = ast.unparse(one.value if isinstance(one, ast.Subscript) else one)
            slot = isinstance(one, ast.Subscript) and how == "assigned"
            fill = Fill(site, "stored" if slot else how, name, _key_of(one, value))
            self.found[function or "<module>"].append(fill)


def _targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, How]]:
    """Yield what a statement or an expression fills, and with what."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield target, node.value, "assigned"
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value, "assigned"
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.target, node.iter, "loop"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        stores = node.func.attr in FILLING and node.args
        if stores:
            yield node.func.value, node, "stored"


_BY_KEY = frozenset({"__setitem__", "setdefault"})
"""Methods that put their second argument under the first."""


def _key_of(target: ast.expr, value: ast.expr | None) -> str:
    """Return the text, in quotes, under which something is put; "" where the program works it out.

    Numbers count places, which move as others are put before them.
    """
    key: ast.expr | None = None
    if isinstance(target, ast.Subscript):
        key = target.slice
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        by_key = value.func.attr in _BY_KEY and value.func.value is target
        key = value.args[0] if by_key else None
    known = key.value if isinstance(key, ast.Constant) else None
    return repr(known) if isinstance(known, str) else ""


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for one in target.elts:
            yield from _flat(one)
    elif isinstance(target, ast.Starred):
        yield from _flat(target.value)
    else:
        yield target


def mentions(text: str, name: str) -> bool:
    """Whether the text of an expression reads a name."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text) is not None
