"""Where the text reads a name again that an iterator has, after it was gone through."""

from __future__ import annotations

import ast

from tether.facts import Site
from tether.source.reached_after import in_a_later_turn, reached_after
from tether.source.syntax import RUNS, Source


def read_again(source: Source, call: Site, name: str) -> list[int]:
    """Return the lines that read a name, or an attribute of `self`, after a call took what it has.

    Lines of the same function that can be reached after it. An empty list where the name may have
    been given something else by then.
    """
    node = source.node_at(call)
    if node is None:
        return []
    if name.startswith("self."):
        return _attribute(source, node, call, name[5:])
    return _variable(source, node, call, name)


def _attribute(source: Source, node: ast.AST, call: Site, name: str) -> list[int]:
    inside = set(map(id, ast.walk(node)))
    named = [one for one in source.nodes if isinstance(one, ast.Attribute) and one.attr == name]
    if sum(isinstance(one.ctx, ast.Store) for one in named) != 1:
        return []
    read = [one for one in named if isinstance(one.ctx, ast.Load) and id(one) not in inside]
    function = source.around(node, RUNS)
    own = set(map(id, ast.walk(function)))
    return sorted(
        {
            one.lineno
            for one in read
            if id(one) not in own
            or (one.lineno > call.end_line and reached_after(source, node, one, function))
        }
    )


def _variable(source: Source, node: ast.AST, call: Site, name: str) -> list[int]:
    scope = source.around(node, RUNS)
    named = [one for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == name]
    later = [one for one in named if one.lineno > call.end_line]
    stored = [one.lineno for one in later if not isinstance(one.ctx, ast.Load)]
    end = min(stored, default=1 << 30)
    return sorted(
        {
            one.lineno
            for one in later
            if one.lineno < end
            and (
                reached_after(source, node, one, scope)
                or in_a_later_turn(source, node, one, scope, name)
            )
        }
    )
