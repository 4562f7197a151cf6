"""Whether what a function returns depends on a name that it reads, as far as its text says it.

Only what is sure counts: values that are returned, what those were computed from, what was
written into them by a method whose name ends in an underscore, and conditions around either. A
value that is printed, kept or counted is none of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tether.source.syntax import Function, Source

_Conditional = (ast.If, ast.While, ast.For, ast.AsyncFor)


def returns_depend(source: Source, kind: str, method: str, name: str) -> bool:
    """Whether a method of a class computes what it returns by an attribute, or global, `name`."""
    return any(
        _Slice(one, name).found
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and node.name == kind
        for one in node.body
        if isinstance(one, Function) and one.name == method
    )


class _Slice:
    """The names that a function's returned values depend on, found from the returns backwards."""

    def __init__(self, function: Function, name: str) -> None:
        self._name = name
        self._own = {one.arg for one in function.args.args[:1]}  # ctx is of the call
        self._names: set[str] = set()
        self.found = False
        nodes, before = list(ast.walk(function)), -1
        while len(self._names) > before and not self.found:
            before = len(self._names)
            for node in nodes:
                for part in self._parts(node):
                    self._use(part)

    def _parts(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a returned value depends on by this node itself."""
        if isinstance(node, ast.Return):
            yield from filter(None, [node.value])
        elif self._sets(node):
            yield node
        elif isinstance(node, _Conditional) and self._matters(node):
            yield node.iter if isinstance(node, (ast.For, ast.AsyncFor)) else node.test

    def _sets(self, node: ast.AST) -> bool:
        """Whether a statement gives a value to one of the names, or writes into it."""
        if isinstance(node, ast.Assign):
            return self._any(node.targets)
        if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
            return self._any([node.target])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr.endswith("_") and self._any([node.func.value])
        return False

    def _matters(self, node: ast.AST) -> bool:
        """Whether a condition decides about what is returned, or about one of the names."""
        return any(isinstance(one, ast.Return) or self._sets(one) for one in ast.walk(node))

    def _any(self, targets: Iterable[ast.expr]) -> bool:
        roots = (_root(part) for one in targets for part in _flat(one))
        return not self._names.isdisjoint(roots)

    def _use(self, part: ast.AST) -> None:
        """Take note of all that an expression reads."""
        for one in ast.walk(part):
            if isinstance(one, ast.Name):
                self.found |= one.id == self._name
                self._names.add(one.id)
            elif isinstance(one, ast.Attribute) and one.attr == self._name:
                self.found |= _root(one.value) not in self._own


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    """Yield the targets in one: of ``a, (b, c)`` each of the three."""
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _flat(one)
    else:
        yield target


def _root(node: ast.expr) -> str:
    """Return the name that a path begins with, as ``x`` of ``x.grad[0]``; "" for any other."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
