"""What stands in the text around a line: assignments, calls, conditions, returned values.

These answers are only ever used to say where a reader should look; what is true of the program is
decided by what was recorded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from tether.facts import Site
from tether.source.syntax import CALLABLES, RUNS, Function, Source, called

MOST_LINES = 6
"""Lines that one answer names."""

_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def assigned(source: Source, name: str, line: int) -> int:
    """Return the last line before `line` that assigns a plain name, in its scope; 0 for none."""
    found = _assignment(source, name, line)
    return 0 if found is None else found.lineno


def loop_of(source: Source, site: Site) -> int:
    """Return the line of the loop whose variable is given the value at a site in it; 0 for none."""
    for node in source.outwards(source.node_at(site), RUNS):
        if isinstance(node, (ast.For, ast.AsyncFor)):
            names = (one.id for one in ast.walk(node.target) if isinstance(one, ast.Name))
            if site.target in names:
                return node.lineno
    return 0


def goes_on(source: Source, call: Site) -> bool:
    """Whether the value of a method's call goes into something else than where it came from."""
    node = source.node_at(call)
    above = source.parent(node) if node is not None else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if isinstance(above, ast.ListComp):
        above = source.parent(above)
    if isinstance(above, ast.Assign):
        return ast.unparse(above.targets[0]) != ast.unparse(node.func.value)
    return not isinstance(above, ast.Expr)


def calls_of(source: Source, method: str) -> list[int]:
    """Return the lines that call a method of this name."""
    return sorted(
        node.lineno
        for node in source.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
    )


def stores_of(source: Source, key: str) -> list[int]:
    """Return the lines that store something by a key: `group["lr"] = 0`, `group.update(lr=0)`.

    Where some of them store a plain zero, these alone.
    """
    found = {value.lineno: value for node in source.nodes for value in _stored(node, key)}
    zeros = [line for line, value in found.items() if _is_zero(value)]
    return sorted(zeros or found)


def _stored(node: ast.AST, key: str) -> Iterator[ast.expr]:
    """Yield what a statement or a call stores by a key."""
    if isinstance(node, ast.Call) and called(node.func) == "update":
        yield from (one.value for one in node.keywords if one.arg == key)
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(_is_entry(one, key) for target in targets for one in ast.walk(target)):
            yield node.value


def _is_entry(node: ast.AST, key: str) -> bool:
    """Whether an expression stores the entry of a container that has this key."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store):
        return False
    return isinstance(node.slice, ast.Constant) and node.slice.value == key


def _is_zero(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in (0, 0.0)


def callers_of(source: Source, function: str) -> list[int]:
    """Return the lines that call a function of this name: its last part, as in a qualified name."""
    name = function.rpartition(".")[2]
    return sorted(
        {
            node.lineno
            for node in source.nodes
            if isinstance(node, ast.Call) and called(node.func) == name
        }
    )[:MOST_LINES]


def gathered(source: Source, call: Site, at: int = 0, named: str = "params") -> list[int]:
    """Return the lines at which an argument of a call, by its place or name, was put together.

    Names are followed to what was assigned to them, three times over, and a function of the file
    to what it fills and returns. A plain ``model.parameters()`` was not put together.
    """
    node = source.node_at(call)
    if not isinstance(node, ast.Call):
        return []
    given = [*node.args[at : at + 1], *(one.value for one in node.keywords if one.arg == named)]
    lines = _put_together(source, given, call.end_line + 1)
    return list(dict.fromkeys([*lines, *_filled_in(source, given)]))


def _filled_in(source: Source, given: list[ast.expr]) -> list[int]:
    """Return the lines by which functions that make some expressions fill what they return."""
    wanted = {called(one.func) for one in given if isinstance(one, ast.Call)}
    functions = [one for one in source.functions if one.name in wanted]
    return sorted({line for one in functions for line in _filling(one)})[: 2 * MOST_LINES]


def _filling(function: ast.AST) -> set[int]:
    """Return the lines of a function at which something comes into what it returns."""
    nodes, lines = list(ast.walk(function)), set[int]()
    returned = [one.value for one in nodes if isinstance(one, ast.Return) and one.value]
    names = {name for value in returned for name in _names(value)}
    for _ in range(3):
        found = [one for one in nodes if _fills(one) & names]
        lines.update(one.lineno for one in found)  # type: ignore[attr-defined]
        names |= {name for one in found for name in _read_by(one)}
    return lines


def _fills(node: ast.AST) -> set[str]:
    """Return the variables that a statement assigns, or by whose method it puts something in."""
    if isinstance(node, ast.Assign):
        return {one.id for target in node.targets for one in ast.walk(target) if _is_name(one)}
    if isinstance(node, ast.AugAssign):
        return {one.id for one in ast.walk(node.target) if _is_name(one)}
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return {one.id for one in ast.walk(call.func.value) if _is_name(one)}
    return set()


def _read_by(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if _is_name(one)}


def _is_name(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def looped_over(source: Source, site: Site) -> list[int]:
    """Return the line of the loop around a site, and those that put together what it goes over."""
    for node in source.outwards(source.node_at(site), RUNS):
        if isinstance(node, (ast.For, ast.AsyncFor)):
            return [node.lineno, *_put_together(source, [node.iter], node.lineno)]
    return []


def _put_together(source: Source, given: list[ast.expr], before: int) -> list[int]:
    """Return the lines before one at which the names of some expressions were assigned."""
    lines: dict[int, None] = {}
    for _ in range(3):
        names = [one for expression in given for one in _names(expression)]
        places = [_assignment(source, name, before) for name in names]
        known = [one for one in places if one is not None and one.lineno not in lines]
        lines |= dict.fromkeys(one.lineno for one in known)
        given = [one.value for one in known if isinstance(one, ast.Assign)]
    return list(lines)[:MOST_LINES]


def returns(source: Source, line: int) -> list[int]:
    """Return the lines that return from the function defined at a line."""
    found = [one for one in source.nodes if isinstance(one, CALLABLES) and one.lineno == line]
    return _returning(found[0]) if found else []


def outcomes_of(source: Source, kind: str, method: str) -> list[int]:
    """Return the lines that decide what a method of a class returns: ``Quantize``, ``backward``."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and node.name == kind:
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name == method:
                    return _outcomes(one)
    return []


def blocks_around(source: Source, line: int) -> list[int]:
    """Return the lines of the `with` statements around a line of a function, the outer first."""
    return sorted(
        node.lineno
        for node in source.nodes
        if isinstance(node, (ast.With, ast.AsyncWith))
        and node.body[0].lineno <= line <= (node.end_lineno or 0)
    )


def answering(source: Source, line: int) -> list[int]:
    """Return the lines that give a condition its answer.

    What decides the results of the functions that it calls, where only one of the text has the
    name, and where the attributes that it reads are set.
    """
    tests = [
        node.test
        for node in source.nodes
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and node.test.lineno == line
    ]
    parts = [one for test in tests for one in ast.walk(test)]
    asked = {called(one.func) for one in parts if isinstance(one, ast.Call)}
    read = {one.attr for one in parts if isinstance(one, ast.Attribute)} - asked
    lines = [line for name in asked for line in _decides(source, name)]
    return [*lines, *sorted(line for name in read for line in _set(source, name))][:MOST_LINES]


def _decides(source: Source, name: str) -> list[int]:
    """Return what decides the result of the one function of a name."""
    found = [one for one in source.functions if one.name == name]
    return _outcomes(found[0]) if len(found) == 1 else []


def _set(source: Source, name: str) -> Iterator[int]:
    """Yield the lines that set an attribute of a name."""
    for node in source.nodes:
        if isinstance(node, ast.Assign) and _assigns(node, name, attribute=True):
            yield node.lineno


def given_to_others(source: Source, attribute: str, value: object) -> list[int]:
    """Return the lines that assign to an attribute of this name of anything but ``self``.

    What may be the value: a line that says another one is none of them.
    """
    return [
        node.lineno
        for node in source.nodes
        if isinstance(node, ast.Assign)
        and not (isinstance(node.value, ast.Constant) and node.value.value is not value)
        and any(
            isinstance(one, ast.Attribute)
            and one.attr == attribute
            and not (isinstance(one.value, ast.Name) and one.value.id == "self")
            for one in node.targets
        )
    ]


_CONTAINERS = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Tuple, ast.Set, ast.SetComp)


def containers_called(source: Source, attribute: str) -> list[int]:
    """Return the lines that make an attribute of a name a list, a dict or the like."""
    return [
        node.lineno
        for node in source.nodes
        if isinstance(node, ast.Assign)
        and _assigns(node, attribute, attribute=True)
        and (isinstance(node.value, _CONTAINERS) or _makes_container(node.value))
    ]


def _makes_container(node: ast.expr) -> bool:
    plain = ("list", "dict", "tuple", "set", "defaultdict", "OrderedDict", "deque")
    return isinstance(node, ast.Call) and called(node.func) in plain


def mentions(source: Source, attribute: str) -> list[int]:
    """Return the lines that read an attribute of this name."""
    return sorted(
        {
            node.lineno
            for node in source.nodes
            if isinstance(node, ast.Attribute)
            and node.attr == attribute
            and isinstance(node.ctx, ast.Load)
        }
    )[:MOST_LINES]


def _returning(function: Function | ast.Lambda) -> list[int]:
    if isinstance(function, ast.Lambda):
        return [function.body.lineno]
    lines = {node.lineno for node in ast.walk(function) if isinstance(node, ast.Return)}
    return sorted(lines)[:MOST_LINES]


def _outcomes(function: Function) -> list[int]:
    """Return the lines of a function's conditions and returns."""
    tests = {test.lineno for test in ast.walk(function) if isinstance(test, ast.If)}
    return sorted({*_returning(function), *tests})[:MOST_LINES]


def deciders(source: Source, line: int) -> list[int]:
    """Return the lines of the conditions that decide whether a line of a function is reached.

    Those around it, and those before it that leave the function or the loop.
    """
    found: dict[int, None] = {}
    for node in source.nodes:
        if not isinstance(node, ast.stmt) or node.lineno != line:
            continue
        found |= dict.fromkeys(_conditions(source, node))
        for inner in source.outwards(node, RUNS):
            found |= dict.fromkeys(_left_before(source.parent(inner), inner))
    return sorted(found)[:MOST_LINES]


def left_by(source: Source, line: int) -> int:
    """Return the line that leaves a loop or function where the condition of a line holds, or 0."""
    for node in source.nodes:
        if isinstance(node, ast.If) and node.test.lineno == line:
            last = node.body[-1]
            if isinstance(last, (ast.Break, ast.Return)) and last.lineno != line:
                return last.lineno
    return 0


def _left_before(above: ast.AST | None, inner: ast.AST) -> Iterator[int]:
    """Yield the conditions in a block, before a statement of it, under which the block is left."""
    for statement in getattr(above, "body", ()) if not isinstance(above, ast.Module) else ():
        if statement is inner:
            return
        if isinstance(statement, ast.If) and any(
            isinstance(one, _LEAVES) for one in statement.body
        ):
            yield statement.test.lineno


def _conditions(source: Source, node: ast.AST) -> Iterator[int]:
    """Yield the lines of the conditions around a node, the nearest first, in its function."""
    for above in source.outwards(source.parent(node), RUNS):
        if isinstance(above, (ast.If, ast.IfExp, ast.While)):
            yield above.test.lineno


def _assignment(source: Source, name: str, line: int) -> ast.Assign | ast.For | None:
    """Return what last assigned a name, or an attribute of this name, before a line."""
    scope = source.function_around(line)
    places = source.nodes if scope is None else list(ast.walk(scope))
    found = [one for one in places if _assigns(one, name) and one.lineno < line]  # type: ignore[attr-defined]
    if not found:  # an attribute may be set by another function
        found = [one for one in source.nodes if _assigns(one, name, attribute=True)]
    return max(found, key=lambda one: one.lineno, default=None)  # type: ignore[attr-defined,return-value]


def _assigns(node: ast.AST, name: str, *, attribute: bool = False) -> bool:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.For):
        targets = [node.target]
    else:
        return False
    parts = [one for target in targets for one in ast.walk(target)]
    if any(isinstance(one, ast.Attribute) and one.attr == name for one in parts):
        return True
    return not attribute and any(isinstance(one, ast.Name) and one.id == name for one in parts)


def _names(expression: ast.expr) -> Iterator[str]:
    """Yield the names that an expression reads; of ``model.parameters()`` none."""
    whole = expression.func if isinstance(expression, ast.Call) else None
    if isinstance(whole, ast.Attribute) and whole.attr in ("parameters", "named_parameters"):
        return
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
