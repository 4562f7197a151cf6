"""Where the program's text may write an array: statements that assign into what names it.

NumPy's calls are not recorded, so that the text is all that says where an array was written. It
names the line for a change that the recording has found, and is never the ground of one. An array
is followed into the variables that are given it or an index of it, and into the parameters of the
program's functions; an attribute is known by its own name, whosever it is.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tether.facts import Site
from tether.operations.numpy_calls import WRITING_FUNCTIONS, WRITING_METHODS
from tether.source.syntax import (
    CALLABLES,
    FUNCTIONS,
    Source,
    called,
    expression,
    site_of_node,
    source_of,
)

ROUNDS = 6
"""Calls deep that an array is followed."""

MANY = 5
"""Functions of one name; beyond that a name says nothing about who is called."""


@dataclass
class _Scope:
    """A function, or a module's own code, and which of its variables are the array."""

    file: str
    name: str
    parameters: list[str]
    nodes: list[ast.AST]
    arrays: set[str] = field(default_factory=set)


def array_writes(sources: Mapping[str, str], names: Iterable[tuple[str, str]]) -> list[Site]:
    """Return the statements that may write an array, by its names and the functions they are of."""
    return _Writes(sources, list(names)).found()


def may_have_run(sources: Mapping[str, str], site: Site) -> bool:
    """Whether some text names the function that a statement stands in: else none has called it.

    Python itself calls those of special names.
    """
    source = source_of(site.file, sources.get(site.file, ""))
    function = source.function_around(site.line)
    name = "" if function is None or isinstance(function, ast.Lambda) else function.name
    if not name or name.startswith("__"):
        return True
    nodes = (node for file, text in sources.items() for node in source_of(file, text).nodes)
    return any(
        isinstance(node, (ast.Name, ast.Attribute)) and called(node) == name for node in nodes
    )


def written_below(
    sources: Mapping[str, str], names: Iterable[str], writes: Iterable[Site]
) -> list[Site]:
    """Return the statements that stand in functions of some names, or in ones that these call."""
    bodies = _bodies(sources)
    reached, new = set[str](), set(names)
    for _ in range(ROUNDS):
        reached |= new
        below = (one for name in new for one in bodies[name] if len(bodies[name]) <= MANY)
        new = {name for one in below for name in one.calls} - reached
    stretches = [one for name in reached for one in bodies[name]]
    return [one for one in writes if any(_stands_in(one, each) for each in stretches)]


def may_put_back(sources: Mapping[str, str], array: str, copy: str) -> bool:
    """Whether the text may write an array's old elements back, out of a copy of it.

    Then it has the same bytes again, and was another in between. A statement does so that assigns
    the copy into what has the array's name; or one that fills a whole array out of the copy, or out
    of what a variable holds where the array has that name, or a loop or a call says which it is.
    """
    return any(
        _puts_back(source, node, array, copy)
        for source in (source_of(file, text) for file, text in sources.items())
        for node in source.nodes
    )


def _puts_back(source: Source, node: ast.AST, array: str, copy: str) -> bool:
    match node:
        case ast.Assign(targets=[ast.Subscript(value=into, slice=part)], value=value):
            whole = _is_whole(part)
        case ast.Call(args=[into, value, *_]) if called(node.func) == "copyto":
            whole = True
        case _:
            return False
    if not isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    same_array, same_copy = _last_name(into) == _last(array), _last_name(value) == _last(copy)
    if not whole:
        return same_array and same_copy
    loops = isinstance(into, ast.Name) and _is_any(source, node, into.id)
    return same_array or same_copy or loops


def _is_whole(part: ast.expr) -> bool:
    """Whether an index takes a whole array: ``x[...]``, ``x[:]``."""
    if isinstance(part, ast.Slice):
        return part.lower is None and part.upper is None
    return isinstance(part, ast.Constant) and part.value is Ellipsis


def _is_any(source: Source, node: ast.AST, name: str) -> bool:
    """Whether a name is a loop's variable or a function's parameter around a node."""
    for around in source.outwards(node):
        if isinstance(around, (ast.For, ast.AsyncFor)):
            if any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(around.target)):
                return True
        elif isinstance(around, CALLABLES):
            return any(one.arg == name for one in ast.walk(around.args) if isinstance(one, ast.arg))
    return False


def _last(text: str) -> str:
    node = expression(text)
    return "" if node is None else _last_name(node)


def _last_name(node: ast.AST) -> str:
    """Return the last name of what an expression is an index of: ``rows`` of ``self.rows[3]``."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return called(node) if isinstance(node, ast.expr) else ""


class _Body(NamedTuple):
    """Where a function stands, and the names of what it calls."""

    file: str
    first: int
    last: int
    calls: set[str]


def _bodies(sources: Mapping[str, str]) -> dict[str, list[_Body]]:
    found: dict[str, list[_Body]] = defaultdict(list)
    for file, text in sources.items():
        for node in source_of(file, text).functions:
            calls = {called(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
            last = node.end_lineno or node.lineno
            found[node.name].append(_Body(file, node.lineno, last, calls))
    return found


def _stands_in(site: Site, body: _Body) -> bool:
    return site.file == body.file and body.first <= site.line <= body.last


def called_in(text: str) -> list[str]:
    """Return the names of the functions that an expression calls."""
    node = expression(text)
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call)) if node else ()
    return [called(one.func) for one in calls]


def goes_on_from(source: Source, write: Site) -> bool:
    """Whether a statement writes into an array what it makes of that array's own values."""
    node = source.node_at(write)
    if isinstance(node, ast.AugAssign):
        return True
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
        return False
    into: ast.expr = node.targets[0]
    while isinstance(into, ast.Subscript):
        into = into.value
    return any(ast.unparse(one) == ast.unparse(into) for one in ast.walk(node.value))


class _Writes:
    def __init__(self, sources: Mapping[str, str], names: list[tuple[str, str]]) -> None:
        self._lines = {file: source_of(file, text).lines for file, text in sources.items()}
        self._scopes: list[_Scope] = []
        for file, text in sorted(sources.items()):
            tree = source_of(file, text).tree
            if tree is not None:
                self._read(file, "<module>", "", tree, [])
        self._called: dict[str, list[_Scope]] = defaultdict(list)
        for scope in self._scopes:
            self._called[scope.name.rpartition(".")[2]].append(scope)
        self._attributes = {name.rpartition(".")[2] for _, name in names if "." in name}
        for scope in self._scopes:
            scope.arrays |= {name for function, name in names if function == scope.name}

    def _read(
        self, file: str, name: str, prefix: str, node: ast.AST, parameters: list[str]
    ) -> None:
        """Read a scope, and those of the functions that are defined in it."""
        scope = _Scope(file, name, parameters, [])
        self._scopes.append(scope)
        waiting = [(prefix, child) for child in ast.iter_child_nodes(node)]
        while waiting:
            around, one = waiting.pop()
            if isinstance(one, FUNCTIONS):
                given = [*one.args.posonlyargs, *one.args.args]
                inner = around + one.name
                names = [each.arg for each in given]
                self._read(file, inner, f"{inner}.<locals>.", one, names)
                continue
            scope.nodes.append(one)
            within = f"{around}{one.name}." if isinstance(one, ast.ClassDef) else around
            waiting += [(within, child) for child in ast.iter_child_nodes(one)]

    def found(self) -> list[Site]:
        """Return the statements in the order of the text."""
        for _ in range(ROUNDS):
            if not sum([self._follow(scope) for scope in self._scopes]):
                break
        writes = [
            site_of_node(scope.file, node, self._lines[scope.file])
            for scope in self._scopes
            for node in scope.nodes
            if isinstance(node, (ast.stmt, ast.Call)) and self._writes(node, scope)
        ]
        return sorted(set(writes), key=lambda one: one.position)

    def _follow(self, scope: _Scope) -> bool:
        """Follow the array through the statements of one function; say whether it got further."""
        further = False
        for node in scope.nodes:
            for target, value in _given(node):
                if isinstance(target, ast.Name) and self._is_array(value, scope):
                    further |= target.id not in scope.arrays
                    scope.arrays.add(target.id)
            if isinstance(node, ast.Call):
                further |= self._hand_on(node, scope)
        return further

    def _hand_on(self, call: ast.Call, scope: _Scope) -> bool:
        """Follow the array into the functions that a call may be of."""
        callees, further = self._called.get(called(call.func), []), False
        for callee in callees if len(callees) <= MANY else ():
            method = callee.parameters[:1] == ["self"] and isinstance(call.func, ast.Attribute)
            names = callee.parameters[method:]
            given = dict(zip(names, call.args, strict=False))
            given |= {word.arg: word.value for word in call.keywords if word.arg in names}
            new = {name for name, one in given.items() if self._is_array(one, scope)}
            further |= not new <= callee.arrays
            callee.arrays |= new
        return further

    def _is_array(self, node: ast.expr, scope: _Scope) -> bool:
        """Whether an expression is the array, or an index of it."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Attribute):
            return node.attr in self._attributes
        return isinstance(node, ast.Name) and node.id in scope.arrays

    def _writes(self, node: ast.stmt | ast.Call, scope: _Scope) -> bool:
        """Whether a statement assigns into the array, or a call is given it to put its result."""
        if isinstance(node, ast.AugAssign):
            return self._is_array(node.target, scope)
        if isinstance(node, ast.Assign):
            into = [one for one in _flat(node.targets) if isinstance(one, ast.Subscript)]
            return any(self._is_array(one, scope) for one in into)
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in WRITING_METHODS:
            return self._is_array(node.func.value, scope)
        if called(node.func) in WRITING_FUNCTIONS and node.args:
            return self._is_array(node.args[0], scope)
        words = node.keywords
        return any(word.arg == "out" and self._is_array(word.value, scope) for word in words)


def _given(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what a statement gives a value to, and the value: pair by pair."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.target, node.iter
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            parts = (target, node.value)
            if all(isinstance(one, (ast.Tuple, ast.List)) for one in parts):
                yield from zip(target.elts, node.value.elts, strict=False)  # type: ignore[attr-defined]
            else:
                yield parts


def _flat(targets: Iterable[ast.expr]) -> Iterator[ast.expr]:
    for one in targets:
        if isinstance(one, (ast.Tuple, ast.List)):
            yield from _flat(one.elts)
        else:
            yield one
