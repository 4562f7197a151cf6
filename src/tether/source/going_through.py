"""Where the text goes through what a name has: loops, comprehensions, calls that do.

What is true of the program is asked of the recording; this says where to look, and whether the text
lets a place be reached without what else.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tether.facts import Site
from tether.operations.table import operation
from tether.source.on_the_way import Place, decided, end, start
from tether.source.syntax import CALLABLES, COMPREHENSIONS, FUNCTIONS, Function, Source, called, own

_STOPS = (ast.Return, ast.Raise, ast.Break, ast.Yield, ast.YieldFrom, ast.Await)
_TAKES_ALL = {one.__name__ for one in (sum, max, min, list, tuple, set, frozenset, sorted, dict)}
_DEEPEST = 2
"""Calls of the program's functions that a name is followed into."""

Scope = Function | ast.Lambda | ast.Module | ast.ClassDef


class TextPart(NamedTuple):
    """A part of the text of a file."""

    file: str
    first: Place
    last: Place


class Reading(NamedTuple):
    """A place of a scope that goes through what a name has."""

    node: ast.AST  # the statement, or the expression, of the scope itself
    at: tuple[str, ast.expr]  # what goes through it, in whichever file: a function's own loop
    within: tuple[TextPart, ...]  # what is done with an element is done within all of them
    whole: bool  # by its text it takes all there is
    shown: bool  # by its text it does something with each element that is recorded
    lent: bool = False  # a function is given the iterator, of which nothing is read
    partial: bool = False  # it may stop before the end


class ProgramTexts:
    """The program's texts, by file."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self.sources = sources
        self.names: set[str] = set()  # of functions and classes
        self._functions: dict[str, list[tuple[str, Function]]] = defaultdict(list)
        self._calls: dict[str, list[tuple[str, ast.Call]]] = defaultdict(list)
        for file, source in sources.items():
            for one in source.nodes:
                if isinstance(one, FUNCTIONS):
                    self._functions[one.name].append((file, one))
                elif isinstance(one, ast.Call):
                    self._calls[called(one.func)].append((file, one))
                if isinstance(one, (*FUNCTIONS, ast.ClassDef)):
                    self.names.add(one.name)

    def defined(self, name: str) -> tuple[str, Function] | None:
        """Return the function of a name, with its file, where the program has one only."""
        found = self._functions.get(name, [])
        return found[0] if len(found) == 1 else None

    def calls(self, function: Function) -> list[tuple[str, ast.Call]]:
        """Return the calls of a function, with their files; none where others have its name."""
        return self._calls.get(function.name, []) if self.defined(function.name) else []


def stretch(file: str, *nodes: ast.AST) -> TextPart:
    """Return the text from the first of some nodes to the last."""
    return TextPart(file, start(nodes[0]), end(nodes[-1]))


# -- readings --------------------------------------------------------------------------------------


def readings(
    program: ProgramTexts, file: str, scope: Scope, name: str, depth: int = 0
) -> list[Reading]:
    """Return where a scope goes through what a name has, in the order of the text."""
    source = program.sources[file]
    found = [
        reading
        for one in own(scope)
        if _is_read(one, name)
        if (reading := _ReadingOf(program, file, source, depth).of(one)) is not None
    ]
    if depth < _DEEPEST and "." not in name:
        found += _by_functions_around(program, file, scope, name, depth)
    return sorted(found, key=lambda one: start(one.node))


def _is_read(node: ast.AST, name: str) -> bool:
    if not isinstance(getattr(node, "ctx", None), ast.Load):
        return False
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}" == name
    return isinstance(node, ast.Name) and node.id == name


class _ReadingOf(NamedTuple):
    program: ProgramTexts
    file: str
    source: Source
    depth: int

    def of(self, name: ast.AST) -> Reading | None:
        """Return the reading that a name is a part of."""
        node, plain = name, True
        above = self.source.parent(node)
        while isinstance(above, ast.Call) and self._hands_on(above, node):
            # Of several arguments any may be the one that ends first.
            plain = plain and len(above.args) == 1
            node, above = above, self.source.parent(above)
        if isinstance(above, (ast.For, ast.AsyncFor)) and above.iter is node:
            return self._loop(above, plain=plain)
        if isinstance(above, ast.comprehension) and above.iter is node:
            return self._comprehension(self.source.parent(above), above, plain=plain)
        if isinstance(above, ast.keyword):
            above = self.source.parent(above)
        outer = self.source.parent(above) if isinstance(above, ast.Starred) else above
        if isinstance(outer, ast.Call) and outer.func is not node:
            return self._call(outer, node, starred=outer is not above)
        return None

    def _hands_on(self, call: ast.Call, node: ast.AST) -> bool:
        """Whether a call is given an iterator to go through, and is itself gone through."""
        above = self.source.parent(call)
        over = isinstance(above, (ast.For, ast.AsyncFor, ast.comprehension)) and above.iter is call
        within = isinstance(above, ast.Call) and self._hands_on(above, call) if not over else True
        known = self.program.defined(called(call.func)) is not None
        return node in call.args and within and not known

    def _loop(self, loop: ast.For | ast.AsyncFor, *, plain: bool) -> Reading:
        parts = [part for one in loop.body for part in ast.walk(one)]
        partial = any(isinstance(one, _STOPS) for one in parts)
        shown = any(_is_recorded(one, loop.target) for one in loop.body)
        within = (stretch(self.file, *loop.body),)
        whole, at = plain and not partial, (self.file, loop.iter)
        return Reading(loop, at, within, whole, shown, partial=partial)

    def _comprehension(
        self, node: ast.AST | None, part: ast.comprehension, *, plain: bool
    ) -> Reading | None:
        if not isinstance(node, COMPREHENSIONS) or node.generators[0] is not part:
            return None
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        shown = any(_is_recorded(one, part.target) for one in (*part.ifs, *parts))
        shown = shown and not (part.ifs and not any(_is_recorded(one, part.target)
                                                    for one in part.ifs))  # fmt: skip
        above, at = self.source.parent(node), (self.file, part.iter)
        if not isinstance(node, ast.GeneratorExp):
            return Reading(node, at, (stretch(self.file, node),), plain, shown)
        if not isinstance(above, (ast.Call, ast.Starred)):
            return None
        whole = isinstance(above, ast.Starred) or self._takes_all(above)
        return Reading(node, at, (stretch(self.file, node),), plain and whole, shown)

    def _takes_all(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Name) and call.func.id in _TAKES_ALL

    def _call(self, call: ast.Call, node: ast.AST, *, starred: bool) -> Reading | None:
        around, at = stretch(self.file, call), (self.file, call)
        if starred or (self._takes_all(call) and call.args[:1] == [node]):
            return Reading(call, at, (around,), whole=True, shown=False)
        found = self.program.defined(called(call.func))
        if found is None:
            known = called(call.func) in self.program.names
            return Reading(call, at, (around,), whole=False, shown=True, lent=True, partial=known)
        file, function = found
        given = _parameter(function, call, node)
        if self.depth >= _DEEPEST or not given or _stores(function, given):
            return None
        inner = readings(self.program, file, function, given, self.depth + 1)
        return _by_call(call, around, self.program.sources[file], function, inner)


def _by_call(
    call: ast.Call, around: TextPart, source: Source, function: Function, inner: list[Reading]
) -> Reading | None:
    """Return the reading that a call of a function makes, of those that the function makes."""
    known = [one for one in inner if not one.lent]
    if not known:
        return None
    sure = [one for one in known if not decided(source, one.node, function)]
    first = (sure or known)[0]
    return first._replace(
        node=call, within=(around, *first.within), whole=first.whole and bool(sure)
    )


def _by_functions_around(
    program: ProgramTexts, file: str, scope: Scope, name: str, depth: int
) -> Iterator[Reading]:
    """Yield the calls in a scope of functions that go through a variable of the scope's own."""
    for call in own(scope):
        found = program.defined(called(call.func)) if isinstance(call, ast.Call) else None
        if found is None or found[0] != file or not isinstance(call, ast.Call):
            continue
        function = found[1]
        inside = any(one is function for one in ast.walk(scope))
        if inside and not _stores(function, name) and name not in _parameters(function):
            inner = readings(program, file, function, name, depth + 1)
            reading = _by_call(call, stretch(file, call), program.sources[file], function, inner)
            if reading is not None:
                yield reading


def _parameters(function: Function) -> list[str]:
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _parameter(function: Function, call: ast.Call, node: ast.AST) -> str:
    """Return the parameter that a call gives something to; "" where the text does not say."""
    for word in call.keywords:
        if word.value is node:
            return word.arg or ""
    names = _parameters(function)
    bound = isinstance(call.func, ast.Attribute) or called(call.func) != function.name
    if bound and names[:1] in (["self"], ["cls"]):
        names = names[1:]
    at = call.args.index(node) if node in call.args else len(names)
    if any(isinstance(one, ast.Starred) for one in call.args[:at]):
        return ""
    return names[at] if at < len(names) else ""


def argument(program: ProgramTexts, site: Site, scope: Scope, name: str) -> ast.expr | None:
    """Return what a call at a site gives a parameter of the function that it calls."""
    source = program.sources.get(site.file)
    node = source.node_at(site) if source is not None else None
    if not isinstance(node, ast.Call):
        return None
    if not isinstance(scope, FUNCTIONS):
        return None
    if scope.name != called(node.func) and not scope.name.startswith("__"):
        return None  # a library's function is between the two
    given = [*node.args, *(one.value for one in node.keywords)]
    return next((one for one in given if _parameter(scope, node, one) == name), None)


def _is_recorded(node: ast.AST, target: ast.expr) -> bool:
    """Whether what a loop gives is computed with, whatever else is true: no `if` decides first."""
    names = {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
    parts: list[ast.AST] = [node]
    if isinstance(node, (ast.If, ast.While)):
        parts = [node.test]
    elif isinstance(node, (ast.With, ast.For)):
        inner = node.body if isinstance(node, ast.With) else [node.iter]
        return any(_is_recorded(one, target) for one in inner)
    return any(_computes(one, names) for part in parts for one in ast.walk(part))


def _computes(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression computes with one of some variables, or asks for its gradient."""
    if isinstance(node, ast.Attribute):
        set_ = isinstance(node.ctx, ast.Store) and node.attr == "requires_grad"
        return (set_ or node.attr in ("grad", "data")) and _has(node.value, names)
    if isinstance(node, ast.Call):
        return _is_given(node, names)
    if isinstance(node, ast.BinOp):
        return _has(node.left, names) or _has(node.right, names)
    return isinstance(node, ast.AugAssign) and (_has(node.target, names) or _has(node.value, names))


def _is_given(call: ast.Call, names: set[str]) -> bool:
    """Whether a call that is recorded is given one of some variables."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(call.func, ast.Name) and call.func.id in _SAYS:
        return False
    if owner is not None and operation(called(call.func)).silent:
        return False
    return any(_has(one, names) for one in (owner, *call.args) if one is not None)


_SAYS = {one.__name__ for one in (print, len, type, id, isinstance, str, repr)}


def _has(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node))


# -- what is assigned ------------------------------------------------------------------------------


def _stores(scope: ast.AST, name: str) -> list[ast.AST]:
    """Return what gives a variable of a scope a value, or may."""
    return [one for one in own(scope) if _names(one, name)]


def _names(node: ast.AST, name: str) -> bool:
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}" == name and not isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)


class Assigned(NamedTuple):
    """What a name was given."""

    value: ast.expr | None  # None: it is a parameter
    statement: ast.AST  # the function, of a parameter


def assigned_once(source: Source, scope: Scope, name: str) -> Assigned | None:
    """Return the one assignment of a name; None where there are several, or it is not known."""
    around: ast.AST = scope
    if "." in name:
        around = source.around(scope, (ast.ClassDef, ast.Module))
        stores = [one for one in ast.walk(around) if _names(one, name)]
    elif isinstance(scope, CALLABLES) and name in _parameters(scope):  # type: ignore[arg-type]
        return None if _stores(scope, name) else Assigned(None, scope)
    else:
        stores = _stores(scope, name) + _stored_by_others(scope, name)
    if len(stores) != 1:
        return None
    statement = source.parent(stores[0])
    plain = isinstance(statement, ast.Assign) and stores[0] in statement.targets
    return Assigned(statement.value, statement) if plain else None  # type: ignore[union-attr, arg-type]


def _stored_by_others(scope: Scope, name: str) -> list[ast.AST]:
    """Return the statements of functions in a scope that make a name of the scope theirs."""
    return [
        one
        for one in ast.walk(scope)
        if isinstance(one, (ast.Global, ast.Nonlocal)) and name in one.names
    ]


def kept_as(scope: Scope, name: str) -> Iterator[str]:
    """Yield the attributes of `self` that a function gives what a variable has, as it is."""
    for one in own(scope):
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Name):
            target = one.targets[0]
            kept = one.value.id == name and isinstance(target, ast.Attribute)
            if kept and ast.unparse(target.value) == "self":  # type: ignore[attr-defined]
                yield ast.unparse(target)


def turns(source: Source, loop: ast.AST) -> int:
    """Return how often a loop turns, as far as its text says so, if nothing leaves it; else 0."""
    over = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(over, ast.Call) or called(over.func) != "range" or len(over.args) != 1:
        return 0
    if any(isinstance(one, (ast.Break, ast.Return)) for one in ast.walk(loop)):
        return 0
    given: ast.AST | None = over.args[0]
    if isinstance(given, ast.Name) and source.tree is not None:
        once = assigned_once(source, source.tree, given.id)
        given = once.value if once is not None else None
    if isinstance(given, ast.Constant) and isinstance(given.value, int):
        return given.value
    return 0
