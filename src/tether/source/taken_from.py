"""Whether what a line of the text reads is taken from a place: by name, or in a loop over it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tether.facts import Site
from tether.source.syntax import FUNCTIONS, Source, own

_MOST = 24
"""Expressions that one line is followed through."""


class TakenFrom(NamedTuple):
    """How the text of a line comes to a place."""

    named: bool  # by a word of its name, there or where one of the line's variables is given
    looped: bool  # the loop around the line takes one after the other from it


class _Bound(NamedTuple):
    """What a variable is given."""

    value: ast.AST
    looped: bool


def taken_from(source: Source, lines: Sequence[Site], words: Collection[str]) -> TakenFrom:
    """Say whether a line takes something from a place with one of some words in its name.

    `lines` are the line and those that called its function, the nearest first: a parameter is what
    the call hands in.
    """
    for site in lines:
        node = source.node_at(site)
        if node is None:
            break
        found, handed_in = _followed(source, site, node, words)
        if found.named or not handed_in:
            return found
    return TakenFrom(named=False, looped=False)


def _followed(
    source: Source, site: Site, node: ast.AST, words: Collection[str]
) -> tuple[TakenFrom, bool]:
    """Follow the variables of an expression within its function; say if a parameter is one."""
    waiting, seen = [_Bound(node, looped=False)], set[str]()
    for value, looped in itertools.islice(waiting, _MOST):
        if words_in(value) & set(words):
            return TakenFrom(named=True, looped=looped), False
        names = {one.id for one in ast.walk(value) if isinstance(one, ast.Name)} - seen
        seen |= names
        first = value is node or looped
        given = (one for name in sorted(names) for one in _given(source, site, node, name))
        waiting += [one._replace(looped=looped or (first and one.looped)) for one in given]
    return TakenFrom(named=False, looped=False), bool(seen & _parameters(source, site))


def _parameters(source: Source, site: Site) -> set[str]:
    """Return the parameters of the function around a site, but for the object of a method."""
    function = source.function_at(site)
    inside = ast.walk(function.args) if function is not None else ()
    return {one.arg for one in inside if isinstance(one, ast.arg)} - {"self"}


def words_in(node: ast.AST) -> set[str]:
    """Return the variables and attributes that an expression names; not the functions it calls."""
    functions = {one.func for one in ast.walk(node) if isinstance(one, ast.Call)}
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and one not in functions}
    return names | {one.attr for one in ast.walk(node)
                    if isinstance(one, ast.Attribute) and one not in functions}  # fmt: skip


def _given(source: Source, site: Site, node: ast.AST, name: str) -> Iterator[_Bound]:
    """Yield what a variable is given: by the comprehensions around a node, and its function."""
    for around in source.outwards(node, FUNCTIONS):
        for one in getattr(around, "generators", ()):
            if _names(one.target, name):
                yield _Bound(one.iter, looped=True)
                return
    for one in own(source.function_at(site) or source.nodes[0]):
        yield from _given_by(one, name)


def _given_by(node: ast.AST, name: str) -> Iterator[_Bound]:
    match node:
        case ast.Assign(targets=targets, value=value):
            if any(_names(one, name) for one in targets):
                yield _Bound(value, looped=False)
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            if _names(target, name):
                yield _Bound(value, looped=True)
        case ast.AnnAssign(target=target, value=given) | ast.NamedExpr(target=target, value=given):
            if given is not None and _names(target, name):
                yield _Bound(given, looped=False)


def _names(target: ast.expr, name: str) -> bool:
    """Whether a target assigns to a variable; what is put into what it holds is not it."""
    return any(
        isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
        for one in ast.walk(target)
    )
