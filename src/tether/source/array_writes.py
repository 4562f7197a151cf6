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

from tether.facts import Site
from tether.source.syntax import called, site_of_node, source_of

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
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
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
        words = node.keywords if isinstance(node, ast.Call) else ()
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
