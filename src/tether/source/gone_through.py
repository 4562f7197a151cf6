"""Where the text reads a name again that an iterator has, after it was gone through."""

from __future__ import annotations

import ast

from tether.facts import Site
from tether.source.syntax import RUNS, Source


def read_again(source: Source, call: Site, name: str) -> list[int]:
    """Return the lines that read a name, or an attribute of `self`, after a call took what it has.

    An empty list where the name may have been given something else by then.
    """
    node = source.node_at(call)
    if node is None:
        return []
    inside = set(map(id, ast.walk(node)))
    if name.startswith("self."):
        named = [
            one for one in source.nodes if isinstance(one, ast.Attribute) and one.attr == name[5:]
        ]
        stores = sum(isinstance(one.ctx, ast.Store) for one in named)
        read = [one for one in named if isinstance(one.ctx, ast.Load) and id(one) not in inside]
        function = source.around(node, RUNS)
        own = set(map(id, ast.walk(function)))
        later = [one for one in read if id(one) not in own or one.lineno > call.end_line]
        return sorted({one.lineno for one in later}) if stores == 1 else []
    return _variable(source, node, call, name)


def _variable(source: Source, node: ast.AST, call: Site, name: str) -> list[int]:
    scope = ast.walk(source.around(node, RUNS))
    named = [one for one in scope if isinstance(one, ast.Name) and one.id == name]
    later = [one for one in named if one.lineno > call.end_line]
    stored = [one.lineno for one in later if not isinstance(one.ctx, ast.Load)]
    end = min(stored, default=1 << 30)
    return sorted({one.lineno for one in later if one.lineno < end})
