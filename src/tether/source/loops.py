"""What a loop in the text gives at each turn, beside the parts of tensors that were recorded."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from tether.facts import Site
from tether.source.syntax import RUNS, Source, called, site_of_node

_UNSEEN = (ast.NamedExpr, ast.While, ast.Yield, ast.Await, ast.Break, ast.Continue)
"""What may bring numbers into a turn, or end it, and leaves no call that is recorded."""


def takes_only(source: Source, site: Site, parts: int) -> bool:
    """Whether the loop around a call differs from turn to turn in so many parts alone.

    A counter chooses elements and does nothing else; each other value that the loop gives, and
    each choice by the counter, is one of the parts that were recorded.
    """
    node = source.node_at(site)
    loop = _around(source, node) if node is not None else None
    if loop is None:
        return False
    given, counter, body = loop
    inside = [one for part in body for one in ast.walk(part)]
    if any(isinstance(one, _UNSEEN) or _carries_on(one, inside) for one in inside):
        return False
    choices = [_choice(source, one) for one in inside if _is_read(one, counter)]
    known = [one for one in choices if one is not None]
    chosen = {source.text_of(one) for one in known if isinstance(one.ctx, ast.Load)}
    return len(known) == len(choices) and 0 < given + len(chosen) <= parts


def _carries_on(node: ast.AST, inside: Sequence[ast.AST]) -> bool:
    """Whether a turn changes a number that turns after it may use; one that they add to is none."""
    if not isinstance(node, ast.AugAssign):
        return False
    return not isinstance(node.target, ast.Name) or any(
        _is_read(one, node.target.id) for one in inside
    )


def _is_read(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _around(source: Source, node: ast.AST) -> tuple[int, str, Sequence[ast.AST]] | None:
    """Return how many values the nearest loop gives, its counter and its body."""
    for within in source.outwards(node, RUNS):
        if isinstance(within, (ast.ListComp, ast.GeneratorExp)):
            (first, *more) = within.generators
            plain = not more and not first.ifs and not first.is_async
            return (*_given(first), [within.elt]) if plain else None
        if isinstance(within, ast.For):
            return (*_given(within), within.body)
    return None


def _given(loop: ast.For | ast.comprehension) -> tuple[int, str]:
    """Return how many values a loop gives at each turn beside its counter, and the counter."""
    over, target = loop.iter, loop.target
    called = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
    if called == "range":
        return 0, next(_names(target), "")
    if called == "enumerate" and isinstance(target, ast.Tuple):
        return 1, next(_names(target), "")
    if called == "zip" and isinstance(over, ast.Call):
        return len(over.args), ""
    return 1, ""


def _names(target: ast.expr) -> Iterator[str]:
    for one in ast.walk(target):
        if isinstance(one, ast.Name):
            yield one.id


def _choice(source: Source, name: ast.AST) -> ast.Subscript | None:
    """Return what a name is an index of; None where it is used as a number."""
    node = name
    while (above := source.parent(node)) is not None:
        if isinstance(above, ast.Subscript):
            return above if above.slice is node else None
        if not isinstance(above, (ast.Tuple, ast.Slice, ast.BinOp)):
            return None
        node = above
    return None


def comprehension_at(source: Source, site: Site) -> Site | None:
    """Return the comprehension whose parts are made by what stands at a site; None for none."""
    inner = None
    for node in source.outwards(source.node_at(site), RUNS):
        given = node.value if isinstance(node, ast.DictComp) else getattr(node, "elt", None)
        if isinstance(node, _GATHERED) and inner is given:
            return site_of_node(site.file, node, source.lines)
        inner = node
    return None


_GATHERED = (ast.ListComp, ast.SetComp, ast.DictComp)


def taken_by_loop(source: Source, site: Site, no_tensor: Callable[[Site], bool]) -> Iterator[str]:
    """Yield the variables of the loop that runs over what stands at a site.

    Those left out are given what a call at another place gives that is known to be no tensor.
    """
    for loop in source.nodes:
        if isinstance(loop, (ast.For, ast.AsyncFor)) and loop.iter.lineno == site.line:
            for target, given in _turns(loop.target, loop.iter):
                if not no_tensor(site_of_node(site.file, given, source.lines)):
                    yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def _turns(target: ast.expr, given: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the variables of a loop, each with what its values are taken from."""
    name = called(given.func) if isinstance(given, ast.Call) else ""
    if isinstance(given, ast.Call) and isinstance(target, ast.Tuple):
        if name == "zip" and len(given.args) == len(target.elts):
            for one, part in zip(target.elts, given.args, strict=True):
                yield from _turns(one, part)
            return
        if name == "enumerate" and len(target.elts) > 1:
            yield from _turns(target.elts[1], given.args[0])
            return
    yield target, given
