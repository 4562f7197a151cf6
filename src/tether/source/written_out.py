"""What the text of a call says of all its runs: how many tensors it joins, and which places."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tether.facts import Site
from tether.source.syntax import RUNS, Source, expression, is_module

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp)
_PLAIN = {"range", "list", "tuple"}
"""Functions by which numbers are said in their order."""


def joins_as_many(source: Source, site: Site) -> bool:
    """Whether a call is given a list that is written out, and not one that a loop fills.

    A name stands for the lists that the same function gives it, and for what is put in there by no
    loop but those that the call is in as well.
    """
    call = source.node_at(site)
    given = _given(call)
    return isinstance(call, ast.Call) and given is not None and _is_written_out(source, call, given)


def joins_each(source: Source, site: Site) -> bool:
    """Whether a call is given one list after the other: the variable of a loop around it."""
    call = source.node_at(site)
    given = _given(call)
    loops = source.outwards(call, RUNS)
    turns = [one for loop in loops for one in (loop, *getattr(loop, "generators", ()))]
    names = (one for turn in turns for one in ast.walk(getattr(turn, "target", ast.Pass())))
    return isinstance(given, ast.Name) and any(_is_stored(one, given.id) for one in names)


def is_chosen(source: Source, site: Site) -> bool:
    """Whether a call is given a list into which a branch puts things, or leaves them out."""
    call = source.node_at(site)
    given = _given(call)
    if isinstance(given, (ast.ListComp, ast.GeneratorExp)):
        return _leaves_out(given)
    if call is None or not isinstance(given, ast.Name):
        return False
    around, scope = set(source.outwards(call, RUNS)), source.around(call, RUNS)
    for node, _ in _filled(scope, given.id):
        above = (one for one in source.outwards(node, RUNS) if one not in around)
        if any(map(_leaves_out, (*above, *ast.walk(node)))):
            return True
    return False


def _leaves_out(node: ast.AST) -> bool:
    """Whether what stands in a statement, or a comprehension, may not come about each time."""
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return any(isinstance(one, (ast.Break, ast.Continue)) for one in ast.walk(node))
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return any(one.ifs for one in node.generators)
    return isinstance(node, (ast.If, ast.IfExp, ast.Try, ast.Match))


def _given(call: ast.AST | None) -> ast.expr | None:
    """Return the first thing that a call which joins is given."""
    if not isinstance(call, ast.Call):
        return None
    named = (one.value for one in call.keywords if one.arg == "tensors")
    return next(iter((*call.args[:1], *named)), None)


def _is_written_out(source: Source, call: ast.Call, given: ast.expr) -> bool:
    if not isinstance(given, ast.Name):
        return _lists(given)
    around, scope = set(source.outwards(call, RUNS)), source.around(call, RUNS)
    filled = [*_filled(scope, given.id)]
    if not _is_filled_alone(scope, given.id, [node for node, _ in filled]):
        return False
    apart = {one for node, _ in filled for one in source.outwards(node, RUNS)} - around
    return all(plain for _, plain in filled) and not any(isinstance(o, _LOOPS) for o in apart)


def _is_filled_alone(scope: ast.AST, name: str, filling: Sequence[ast.AST]) -> bool:
    """Whether a name is given something, and by nothing but some statements."""
    stored = sum(_is_stored(one, name) for one in ast.walk(scope))
    known = sum(isinstance(one, (ast.Assign, ast.AugAssign)) for one in filling)
    return 0 < stored == known


def _is_stored(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _filled(scope: ast.AST, name: str) -> Iterator[tuple[ast.AST, bool]]:
    """Yield what puts something into a name, or a list under it, and whether that is one thing."""
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=one)], value=value) if one == name:
                yield node, _lists(value)
            case ast.AugAssign(target=ast.Name(id=one), value=value) if one == name:
                yield node, _lists(value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=one), attr=how)) if one == name:
                yield node, how in ("append", "insert")


def _lists(node: ast.expr) -> bool:
    """Whether an expression says each element of a list."""
    if not isinstance(node, (ast.List, ast.Tuple)):
        return False
    return not any(isinstance(one, ast.Starred) for one in node.elts)


def takes_the_same(text: str) -> bool:
    """Whether the index of an expression is written out, as are numbers made into a tensor.

    Numbers in their order say nothing of any data, however many they are.
    """
    match expression(text):
        case ast.Subscript(slice=ast.Tuple(elts=given)):
            pass
        case ast.Subscript(slice=one):
            given = [one]
        case ast.Call(args=given):
            pass
        case _:
            return False
    return all(map(_says_numbers, given))


def is_part_written_out(text: str) -> bool:
    """Whether an expression takes a part by places that are all written out: ``x[2:4]``."""
    match expression(text):
        case ast.Subscript(slice=given):
            names = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
            return not any(isinstance(one, names) for one in ast.walk(given))
    return False


def names_its_format(text: str) -> bool:
    """Whether a conversion's text says to what: ``x.double()``, ``x.to(torch.float64)``.

    What stands in a variable or an object is a setting, as the format of an experiment.
    """
    call = expression(text)
    if not isinstance(call, ast.Call):
        return False
    given = [*call.args, *(one.value for one in call.keywords)]
    return all(isinstance(one, (ast.Attribute, ast.Constant)) and _is_plain(one) for one in given)


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Attribute) and is_module(node.value)
    )


def _says_numbers(node: ast.expr) -> bool:
    if isinstance(node, ast.Slice):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _PLAIN:
        return node.func.id == "range" or all(map(_says_numbers, node.args))
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True
