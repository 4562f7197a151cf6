"""Which names a line of the program can use: what is pasted there may say no others."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from tether.facts import Site
from tether.source.names import root_of
from tether.source.syntax import CALLABLES, RUNS, Source, own


def is_visible(source: Source, site: Site, name: str) -> bool:
    """Whether a line can use a name: its function, one around it or its module gives the variable.

    Of a line whose text is not known that is taken for granted.
    """
    root, scope = root_of(name.strip("`")), source.scope_at(site)
    if scope is None or not root.isidentifier():
        return True
    around = (one for one in source.outwards(scope) if isinstance(one, RUNS))
    return hasattr(builtins, root) or any(root in _given(one) for one in around)


def _given(scope: ast.AST) -> Iterator[str]:
    """Yield the names that stand for something in a scope, as far as its text says."""
    arguments = ast.walk(scope.args) if isinstance(scope, CALLABLES) else ()
    for node in (*arguments, *own(scope)):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=given):
                yield given or name.partition(".")[0]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.Global(names=some) | ast.Nonlocal(names=some):
                yield from some
