"""What stands at each site: the expression, and what its value is assigned to."""

from __future__ import annotations

import ast
import re

from tether.facts import Site, Trace
from tether.operations.table import operation
from tether.source.syntax import Source, read, source_of

LONGEST = 2000
"""Characters of an expression that are kept. Nobody reads a longer one; the site has its place."""

WRAPPERS = frozenset({"Parameter", "Buffer", "Variable"})
"""Calls that give a tensor a role: in ``self.h0 = nn.Parameter(torch.zeros(3))`` both make h0."""


def annotate(trace: Trace, *, elsewhere: bool = True) -> None:
    """Fill `Site.expression` and `Site.target` of every site, and `Trace.sources`.

    Where there is no text (a frozen module, code from `exec` that nobody registered) both stay
    empty. The text of the user's files is kept with the trace, so that a report can be made
    after they have changed. Without `elsewhere` only the text that the trace has is used.
    """
    texts = dict(trace.sources)
    for number, site in enumerate(trace.sites):
        if site.file not in texts:
            texts[site.file] = read(site.file) if elsewhere else ""
        text = texts[site.file]
        if not text:
            continue
        if site.user:
            trace.sources[site.file] = text
        trace.sites[number] = described(site, source_of(site.file, text))


def described(site: Site, source: Source) -> Site:
    """Return the site with its expression and target as `source` has them."""
    node = source.node_at(site)
    if node is None:
        key = source.key(site)
        return site._replace(expression=source.between(key)[:LONGEST]) if key else site
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return _switched(site, node, source)
    expression = source.text_of(node)[:LONGEST]
    return site._replace(expression=expression, target=target_of(node, source)[:LONGEST])


def _switched(site: Site, node: ast.With | ast.AsyncWith, source: Source) -> Site:
    """Return the site of the manager that a ``with`` enters, in place of the whole statement."""
    managers = [item.context_expr for item in node.items]
    switches = [one for one in managers if _SWITCH.search(source.text_of(one))]
    manager = (switches or managers)[0]
    end_line, end = manager.end_lineno or manager.lineno, manager.end_col_offset or 0
    return site._replace(
        line=manager.lineno,
        column=_column(source.line(manager.lineno), manager.col_offset),
        end_line=end_line,
        end_column=_column(source.line(end_line), end),
        expression=source.text_of(manager)[:LONGEST],
    )


def _column(line: str, offset: int) -> int:
    """Turn a byte offset within a line into a column, counted in characters from 1."""
    return len(line.encode("utf-8", "replace")[:offset].decode("utf-8", "replace")) + 1


_SWITCH = re.compile(r"grad|inference_mode")


def target_of(node: ast.AST, source: Source) -> str:
    """Return the text of what the value of `node` is assigned to, "" when to nothing.

    Only where the value itself arrives there: through parentheses, a conditional, an await, a
    method that keeps the value, an in-place method (it returns the tensor it wrote) or a wrapper.
    """
    if isinstance(node, ast.AugAssign):
        return source.text_of(node.target)
    if isinstance(getattr(node, "ctx", None), ast.Store):
        return source.text_of(node)
    while (parent := source.parent(node)) is not None:
        if not _passes_on(parent, node):
            return _assigned_by(parent, node, source)
        node = parent
    return ""


def _passes_on(parent: ast.AST, node: ast.AST) -> bool:
    """Whether the value of an expression is that of one inside it."""
    match parent:
        case ast.Attribute(attr=name):
            return _keeps_value(name)
        case ast.Call(func=func) if func is node:  # the method looked up on the line before
            return isinstance(node, ast.Attribute) and _keeps_value(node.attr)
        case ast.Call(func=func, args=[first, *_]) if first is node:
            return getattr(func, "attr", getattr(func, "id", "")) in WRAPPERS
        case ast.IfExp(test=test):
            return test is not node
    return isinstance(parent, ast.Await)


def _assigned_by(parent: ast.AST, node: ast.AST, source: Source) -> str:
    """Return the text of what a statement or ``:=`` binds to the value of `node`, or ""."""
    match parent:
        case ast.NamedExpr(target=target):
            return target.id
        case ast.Assign(targets=[first, *_], value=value) if value is node:
            return source.text_of(first)
        case ast.AnnAssign(target=target, value=value) if value is node:
            return source.text_of(target)
        case ast.Tuple(elts=values):
            place = next(i for i, value in enumerate(values) if value is node)
            return _matching_target(parent, place, source)
    return ""


def _keeps_value(method: str) -> bool:
    """Whether a method or attribute gives the same values: in ``y = x.clone().to(d)`` both make y.

    Any other makes something else: the product in ``loss = (a * b).sum()`` is no loss.
    """
    in_place = method.endswith("_") and not method.endswith("__")
    return in_place or operation(method).same or operation(f"{method}.__get__").same


def _matching_target(values: ast.Tuple, place: int, source: Source) -> str:
    """Return b of ``a, b = x, y`` for y."""
    statement = source.parent(values)
    if not isinstance(statement, ast.Assign) or statement.value is not values:
        return ""
    targets = statement.targets[0]
    if not isinstance(targets, (ast.Tuple, ast.List)) or len(targets.elts) != len(values.elts):
        return ""
    if any(isinstance(one, ast.Starred) for one in (*targets.elts, *values.elts)):
        return ""
    return source.text_of(targets.elts[place])
