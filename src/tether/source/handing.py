"""Where the text hands a variable itself on: to a call, which may keep it, or to who called."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tether.facts import Site
from tether.source.syntax import Source, site_of_node

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def handings(source: Source, site: Site, name: str) -> Iterator[Site]:
    """Yield the calls that are given a variable of the function around a site, as it is."""
    for node in _within(source, site):
        if isinstance(node, ast.Call) and any(_is_named(one, name) for one in _given(node)):
            yield site_of_node(site.file, node, source.lines)


def returns(source: Source, site: Site, name: str) -> bool:
    """Whether the function around a site returns a variable of its own, or what the site gives."""
    if site.function == "<module>":
        return False
    for node in _within(source, site):
        if isinstance(node, ast.Return) and node.value is not None:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            first, last = node.lineno, node.end_lineno or node.lineno
            if first <= site.line <= last or any(_is_named(one, name) for one in values):
                return True
    return False


def _within(source: Source, site: Site) -> Iterator[ast.AST]:
    """Yield the nodes of the function that a site is in."""
    if site.function == "<module>":
        yield from source.nodes
    for node in source.nodes:
        if isinstance(node, _FUNCTIONS):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first == site.first_line:
                yield from ast.walk(node)


def _given(call: ast.Call) -> Iterator[ast.expr]:
    """Yield what a call is given, and what is in the tuples and lists among that."""
    for one in (*call.args, *(word.value for word in call.keywords)):
        yield from one.elts if isinstance(one, (ast.Tuple, ast.List)) else (one,)


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
