"""Statements of the text that switch `requires_grad`, and those that are written to undo them.

One undoes another where it is the same statement with True in the place of False, over the same
values, and stands in the same block: nothing decides about it that does not decide about the other.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from tether.facts import Site
from tether.source.syntax import COMPREHENSIONS, SCOPES, Source, own, site_of_node

_DECIDES = (*SCOPES, ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.ExceptHandler, ast.match_case)
_LOOPS = (ast.For, ast.AsyncFor)
_TRUTH = re.compile(r"Constant\(value=(True|False)\)")
_FLAG = "requires_grad"


class Stretch(NamedTuple):
    """The lines of a statement."""

    first: int
    last: int


class Undoing(NamedTuple):
    """A statement that would switch on what another switched off."""

    site: Site  # what switches
    switched: Stretch  # of the statement of their block that switches off
    undone: Stretch  # and of the one that switches on
    waits: bool  # the function may be left in between and entered again: a generator


class _Switch(NamedTuple):
    what: str  # the tree of what is switched, truths left out
    truths: tuple[bool, ...]


def undoing(source: Source, site: Site) -> Undoing | None:
    """Return the statement that is to undo what the one at a site switches off; None for none."""
    node = source.node_at(site)
    above = source.parent(node) if isinstance(node, ast.Attribute) else node
    if above is None or _switch(above) is None:
        return None
    scope = source.around(above)
    inside = list(own(scope))
    waits = any(isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await)) for one in inside)
    for other in inside:
        blocks = _of_one_block(source, above, other) if _switch(other) is not None else None
        if blocks is not None and isinstance(other, (ast.Call, ast.Assign)):
            place = site_of_node(site.file, other, source.lines)
            return Undoing(place, *blocks, waits)
    return None


def _switch(node: ast.AST) -> _Switch | None:
    """Return what a statement or a call switches, and to what; None where it says no truth."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], ast.dump(node.value)
        if not isinstance(target, ast.Attribute) or target.attr != _FLAG:
            return None
        return _taken_apart(ast.dump(target.value), value)
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == _FLAG + "_":
        given = [*node.args, *(one.value for one in node.keywords)] or [ast.Constant(True)]
        return _taken_apart(ast.dump(node.func.value), ast.dump(given[0]))
    return _taken_apart(ast.dump(node), "")


def _taken_apart(what: str, value: str) -> _Switch | None:
    truths = tuple(one == "True" for one in _TRUTH.findall(what + value))
    return _Switch(_TRUTH.sub("Constant()", f"{what} {value}"), truths) if truths else None


def _of_one_block(source: Source, off: ast.AST, on: ast.AST) -> tuple[Stretch, Stretch] | None:
    """Return the statements of one block that two switches are in, if one undoes the other."""
    around = list(source.outwards(off))
    inner, common = on, source.parent(on)
    while common is not None and common not in around:
        if not _goes_through(inner):
            return None
        inner, common = common, source.parent(common)
    if common is None or off is on or on in around or not _goes_through(inner):
        return None
    first = around[around.index(common) - 1]
    if not _beside(common, first, inner) or not _opposite(source, off, on, common):
        return None
    return _lines(first), _lines(inner)


def _goes_through(node: ast.AST) -> bool:
    """Whether what is in a statement runs whenever that does, for each turn of a loop."""
    if isinstance(node, _LOOPS):
        return not any(isinstance(one, (ast.Break, ast.Continue)) for one in ast.walk(node))
    if isinstance(node, COMPREHENSIONS):
        return not any(one.ifs for one in node.generators)
    return not isinstance(node, _DECIDES)


def _beside(common: ast.AST, one: ast.AST, other: ast.AST) -> bool:
    """Whether two statements are of one block; what comes at the end of a `try` counts to it."""
    blocks = [getattr(common, name, ()) for name in ("body", "orelse")]
    if isinstance(common, ast.Try):
        blocks = [[*common.body, *common.finalbody]]
    return any(
        one in block and other in block for block in blocks if isinstance(block, (list, tuple))
    )


def _opposite(source: Source, off: ast.AST, on: ast.AST, common: ast.AST) -> bool:
    """Whether two switches differ in truths alone: False in one, True in the other."""
    first, second = _in_full(source, off, common), _in_full(source, on, common)
    if first is None or second is None or first.what != second.what:
        return False
    pairs = [(a, b) for a, b in zip(first.truths, second.truths, strict=True) if a is not b]
    return bool(pairs) and not any(a for a, _ in pairs)


def _in_full(source: Source, node: ast.AST, common: ast.AST) -> _Switch | None:
    """Return a switch with the loops around it; their variables may have any names."""
    found, names = _switch(node), list[str]()
    if found is None:
        return None
    what = [found.what]
    for above in source.outwards(source.parent(node)):
        if above is common:
            break
        loops = [above] if isinstance(above, _LOOPS) else getattr(above, "generators", ())
        for loop in loops:
            what.append(ast.dump(loop.iter))
            names += [one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)]
    text = " over ".join(what)
    for number, name in enumerate(names):
        text = text.replace(f"Name(id={name!r}", f"Name(id={number}")
    return found._replace(what=text)


def _lines(node: ast.AST) -> Stretch:
    return Stretch(node.lineno, node.end_lineno)  # type: ignore[attr-defined]
