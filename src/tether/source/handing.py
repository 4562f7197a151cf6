"""Where the text hands a variable itself on: to a call, which may keep it, or to who called."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from tether.facts import Site
from tether.source.syntax import Source, called, site_of_node


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


def gives_back(source: Source, site: Site) -> bool:
    """Whether the function around a site returns the variable that an expression begins with.

    ``rows`` of ``rows[..., :2].numpy()``, which is at the site.
    """
    node = source.node_at(site)
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and returns(source, site, node.id)


def given_back(
    sources: Mapping[str, Source], site: Site, attributes: Collection[str]
) -> Iterator[Site]:
    """Yield the lines that return some attributes, in the functions that a site calls.

    Only where one function of the whole text has the name.
    """
    node = sources[site.file].node_at(site) if site.file in sources else None
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)] if node else []
    for name in dict.fromkeys(called(one.func) for one in calls):
        defined = [(file, one) for file, text in sources.items() for one in text.functions
                   if one.name == name]  # fmt: skip
        for file, function in defined if len(defined) == 1 else ():
            for one in filter(lambda node: _gives(node, attributes), ast.walk(function)):
                yield site_of_node(file, one, sources[file].lines)  # type: ignore[arg-type]


def handed_for_a_result(sources: Mapping[str, Source], site: Site) -> bool:
    """Whether what a site gives is handed to a function of the text, whose result is taken.

    ``reward = env.step(action.numpy())``, for which `step` is defined somewhere in the text. A
    call whose result nobody takes is made for what it writes.
    """
    source = sources.get(site.file)
    node = source.node_at(site) if source is not None else None
    call = source.parent(node) if source is not None and node is not None else None
    if source is None or not isinstance(call, ast.Call) or node not in call.args:
        return False
    known = {one.name for text in sources.values() for one in text.functions}
    return called(call.func) in known and not isinstance(source.parent(call), ast.Expr)


def _gives(node: ast.AST, attributes: Collection[str]) -> bool:
    """Whether a statement returns an attribute, by itself or as a part of an object made there."""
    if not isinstance(node, ast.Return):
        return False
    value = node.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return any(_attribute(one) in attributes for one in _given(value))
    return _attribute(value) in attributes


def _attribute(value: ast.expr | None) -> str:
    """Return the attribute that an expression is, or a part of which it takes by an index."""
    while isinstance(value, ast.Subscript):
        value = value.value
    return value.attr if isinstance(value, ast.Attribute) else ""


def handed_beside(source: Source, call: Site, name: str) -> int | None:
    """Return how many arguments a call has beside a variable; None: it is not given it as it is.

    Or nothing is done with what the call returns.
    """
    node = source.node_at(call)
    if not isinstance(node, ast.Call) or isinstance(source.parent(node), ast.Expr):
        return None
    given = list(_given(node))
    return len(given) - 1 if any(_is_named(one, name) for one in given) else None


def reads_beside(source: Source, site: Site, call: Site, name: str) -> bool:
    """Whether an expression reads a variable in another place than within a call."""
    node, inside = source.node_at(site), source.node_at(call)
    if node is None or node is inside:
        return False
    within = set(ast.walk(inside)) if inside is not None else set()
    return any(
        isinstance(one, ast.Name) and one.id == name and one not in within for one in ast.walk(node)
    )


def used_below(source: Source, site: Site, name: str) -> bool:
    """Whether a function uses a variable's value below a line, before it sets the variable anew.

    As it is: what an attribute or a method of it gives may be its shape.
    """
    below = (
        node
        for node in _within(source, site)
        if isinstance(node, ast.Name) and node.id == name and node.lineno > site.end_line
    )
    for node in sorted(below, key=lambda one: (one.lineno, one.col_offset)):
        if not isinstance(node.ctx, ast.Load):
            return False
        if not isinstance(source.parent(node), ast.Attribute):
            return True
    return False


def made_as(source: Source, call: Site, kind: str) -> Site | None:
    """Return the first call of a class in the assignment of what a line calls: ``self.branch``."""
    node = source.node_at(call)
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func)
    for one in source.nodes:
        if isinstance(one, ast.Assign) and any(ast.unparse(to) == name for to in one.targets):
            made = [part for part in ast.walk(one.value)
                    if isinstance(part, ast.Call) and called(part.func) == kind]  # fmt: skip
            first = min(made, key=lambda part: (part.lineno, part.col_offset), default=None)
            if first is not None:
                return site_of_node(call.file, first, source.lines)
    return None


def made_of_class(source: Source, file: str, kind: str) -> Iterator[Site]:
    """Yield the calls of a class in a text."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and called(node.func) == kind:
            yield site_of_node(file, node, source.lines)


def saved_at(source: Source, made: Site) -> Site | None:
    """Return the call by which a function keeps for backward what a site in it is assigned to."""
    for node in _within(source, made):
        if isinstance(node, ast.Call) and called(node.func) == "save_for_backward":
            name = made.target
            if name and any(_is_named(one, name) for one in _given(node)):
                return site_of_node(made.file, node, source.lines)._replace(user=made.user)
    return None


def registered_at(source: Source, file: str, name: str) -> Site | None:
    """Return the first call that registers a buffer or parameter of a name."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and called(node.func).startswith("register_") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and first.value == name:
                return site_of_node(file, node, source.lines)
    return None


def _within(source: Source, site: Site) -> Iterator[ast.AST]:
    """Yield the nodes of the function that a site is in."""
    if site.function == "<module>":
        yield from source.nodes
    elif (function := source.function_at(site)) is not None:
        yield from ast.walk(function)


def _given(call: ast.Call) -> Iterator[ast.expr]:
    """Yield what a call is given, and what is in the tuples and lists among that."""
    for one in (*call.args, *(word.value for word in call.keywords)):
        yield from one.elts if isinstance(one, (ast.Tuple, ast.List)) else (one,)


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
