"""The user's functions in the text: which there are, who calls them by name, and by which way.

A way is the calls that led to a run of a function, the nearest first. It is `ROOT` for a run that
no call in the text by the function's name led to: a hook, a `forward`, an alias.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tether.source.held import Way
from tether.source.syntax import Function

MANY = 5  # user functions of one name; beyond that a name says nothing about the callee

LONGEST = 4
"""Calls of a way that are told apart: values that one caller gives rarely go deeper."""

ROOT: Way = (None,)


@dataclass
class Scope:
    """A function (or a module's own code) and what is known of it from outside."""

    file: str
    body: list[ast.stmt]
    parameters: list[str]
    method: bool = False
    parent: Scope | None = None
    rest: str = ""  # name of *args
    keywords: str = ""  # name of **kwargs
    mentions: set[str] = field(default_factory=set)  # names and attributes in its text
    names: set[str] = field(default_factory=set)  # assigned in it
    inner: bool = False  # functions are written inside it: its names are seen there

    @property
    def alone(self) -> Way:
        """The way of a run of which no caller is known; a module's own code has none."""
        return () if self.parent is None else ROOT

    @cached_property
    def around(self) -> list[Scope]:
        """Itself and the functions that it stands in, the innermost first, and their module."""
        return [self, *(self.parent.around if self.parent is not None else ())]


class Scopes:
    """The functions of some trees, and their calls of each other by name."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self.all: list[Scope] = []
        self.around: dict[ast.AST, Scope] = {}  # an expression -> the function it stands in
        self._by_name: dict[str, list[Scope]] = {}
        self._calls: list[ast.Call] = []
        for file, tree in trees.items():
            module = self._scope(Scope(file, tree.body, []))
            self._collect(tree.body, module, in_class="")

    def called(self, node: ast.Call) -> list[Scope]:
        """Return the user's functions that a call can be of, by its name; [] where it says none."""
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        found = self._by_name.get(name, [])
        return found if len(found) <= MANY else []

    def leading_to(self, nodes: Iterable[ast.AST]) -> set[int]:
        """Return the ids of the functions in which some expressions stand, or that lead there."""
        callers: dict[int, set[int]] = defaultdict(set)
        for call in self._calls:
            for callee in self.called(call):
                callers[id(callee)].add(id(self.around[call]))
        waiting = [id(self.around[one]) for one in nodes if one in self.around]
        found: set[int] = set()
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += callers[one]
        return found

    def _scope(self, scope: Scope) -> Scope:
        for statement in scope.body:
            for node in own_nodes(statement):
                self._note(node, scope)
        scope.names.update(scope.parameters)
        scope.mentions.update(scope.parameters)
        self.all.append(scope)
        return scope

    def _note(self, node: ast.AST, scope: Scope) -> None:
        self.around[node] = scope
        if isinstance(node, ast.Name):
            scope.mentions.add(node.id)
            if isinstance(node.ctx, ast.Store):
                scope.names.add(node.id)
        elif isinstance(node, ast.Attribute):
            scope.mentions.add(node.attr)
        elif isinstance(node, ast.Call):
            self._calls.append(node)

    def _collect(self, body: Iterable[ast.AST], parent: Scope, in_class: str) -> None:
        waiting = list(body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, Function):
                scope = self._function(node, parent, bool(in_class))
                self._by_name.setdefault(node.name, []).append(scope)
                if node.name == "__init__" and in_class:
                    self._by_name.setdefault(in_class, []).append(scope)
                parent.inner = True
                self._collect(node.body, scope, "")
            elif isinstance(node, ast.ClassDef):
                self._collect(node.body, parent, node.name)
            elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
                waiting.extend(ast.iter_child_nodes(node))

    def _function(self, node: Function, parent: Scope, method: bool) -> Scope:
        given = node.args
        decorators = {getattr(one, "id", "") for one in node.decorator_list}
        return self._scope(
            Scope(
                parent.file,
                node.body,
                [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)],
                method and "staticmethod" not in decorators,
                parent,
                given.vararg.arg if given.vararg else "",
                given.kwarg.arg if given.kwarg else "",
                {node.name},
            )
        )


def way_by(call: ast.Call, way: Way) -> Way:
    """Return the way of a function that a call calls which was itself reached by a way."""
    return (call, *way)[:LONGEST]


def own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, without the insides of functions written in it."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function):
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))
