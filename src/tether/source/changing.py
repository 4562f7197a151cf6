"""Which state a line reads, or its being reached depends on, and which lines change such a state.

What a reader looks for where one code went two ways: variables of functions are followed to what
they were given; what outlives a call is a state.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from tether.facts import Site
from tether.source.filling import FILLING
from tether.source.reading import deciders
from tether.source.syntax import CALLABLES, RUNS, Source, site_of_node, source_of

_TAKING = frozenset({"pop", "popleft", "popitem", "clear", "remove", "discard", "insert"})
_ROUNDS = 3  # variables that are followed to what they were given, one after the other


class StateChange(NamedTuple):
    """A place in the text that changes a state."""

    site: Site
    state: str  # as the text writes it: "self.keys"
    function: str  # the name of the function that it is in; "": of none
    owner: str  # the class around that function

    def is_in(self, site: Site) -> bool:
        """Whether it stands in the function that a site is in."""
        *around, name = site.function.split(".")
        own = "" if name == "<module>" else name
        return self.site.file == site.file and self.function == own and self.owner in ("", *around)


def states_behind(source: Source, site: Site, *, reached: bool) -> list[str]:
    """Return the states that a call reads and its being reached depends on, the likeliest first.

    The conditions come first where what is asked is why the line was reached. A state is known by
    the last name of an attribute, an outer variable, or a function's own variable with its place.
    """
    node = source.node_at(site)
    if node is None:
        return []
    scope, around = source.around(node, RUNS), [*_deciding(source, node, site)]
    parts = [*around, node] if reached else [node, *around]
    return list(dict.fromkeys(name for one in parts for name in _states(one, scope, site.file)))


def _deciding(source: Source, node: ast.AST, site: Site) -> Iterator[ast.AST]:
    """Yield the conditions, and what loops go over and blocks are entered with, around a call."""
    statement = source.around(node, (ast.stmt,))
    lines = set(deciders(source, getattr(statement, "lineno", site.line)))
    for one in source.nodes:
        if isinstance(one, (ast.If, ast.IfExp, ast.While)) and one.test.lineno in lines:
            yield one.test
    for above in source.outwards(source.parent(node), RUNS):
        match above:
            case ast.For(iter=value) | ast.comprehension(iter=value):
                yield value
            case ast.ListComp(generators=loops) | ast.GeneratorExp(generators=loops):
                yield from (one.iter for one in loops)
            case ast.With(items=items):
                yield from (one.context_expr for one in items)


def _states(node: ast.AST, scope: ast.AST, file: str) -> Iterator[str]:
    """Yield the states that an expression reads, directly or by variables of its function."""
    own, waiting = _own_variables(scope), [node]
    for _ in range(_ROUNDS):
        inner = [part for one in waiting for part in ast.walk(one)]
        yield from (f".{one.attr}" for one in inner if isinstance(one, ast.Attribute))
        names = sorted({one.id for one in inner if isinstance(one, ast.Name)})
        yield from (_key(name, own, scope, file) for name in names if not own.get(name))
        waiting = [value for name in names for value in own.get(name, ())]


def _own_variables(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """Return the variables of a function, each with what the text gives it; nothing: a caller."""
    found: dict[str, list[ast.expr]] = {}
    if not isinstance(scope, CALLABLES):
        return found
    for one in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs):
        found[one.arg] = []
    nodes = list(ast.walk(scope))
    for node in nodes:
        for target, value in _given(node):
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(value)
    for node in nodes:
        for name in node.names if isinstance(node, (ast.Global, ast.Nonlocal)) else ():
            found.pop(name, None)
    return found


def _key(path: str, own: Mapping[str, object], scope: ast.AST, file: str) -> str:
    """Return what a state is known by: two functions may have a variable of one name."""
    _, dot, last = path.rpartition(".")
    if dot or path not in own:
        return f"{dot}{last}"
    return f"{file}:{getattr(scope, 'lineno', 0)}:{path}"


def changes_of(sources: Mapping[str, str], states: Collection[str]) -> list[StateChange]:
    """Return the places in some files that change one of some states, in the order of these."""
    known: dict[str, list[StateChange]] = {one: [] for one in states}
    wanted = {re.split(r"[.:]", one)[-1] for one in states}
    for file, text in sources.items():
        source = source_of(file, text)
        for node in source.nodes:
            for path, rebinds in _changed(node, source):
                if path.rpartition(".")[2] not in wanted:
                    continue
                scope = source.around(node, RUNS)
                own = _own_variables(scope)
                key = _key(path, own, scope, file)
                if key in known and not (rebinds and path in own):
                    known[key].append(_change(source, file, node, path))
    return [one for some in known.values() for one in some]


def _change(source: Source, file: str, node: ast.AST, state: str) -> StateChange:
    function = source.around(node, RUNS)
    owner = source.around(node, (ast.ClassDef, ast.Module))
    site = site_of_node(file, node, source.lines)  # type: ignore[arg-type]
    return StateChange(site, state, getattr(function, "name", ""), getattr(owner, "name", ""))


def _changed(node: ast.AST, source: Source) -> Iterator[tuple[str, bool]]:
    """Yield what a node of a text changes, and whether it gives a name something else."""
    match node:
        case ast.Call(func=ast.Attribute(value=into, attr=name)):
            alone = isinstance(source.parent(node), ast.Expr)  # `x.add(y)` of tensors is not
            if name in _TAKING or (name in FILLING and alone):
                yield _path(into), False
        case ast.Call(func=ast.Name(id="next"), args=[into, *_]):
            yield _path(into), False
    for target, _ in _given(node):
        yield _path(target), isinstance(target, ast.Name)


def _given(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of a statement or a loop, each with what it is given."""
    match node:
        case ast.Assign(targets=targets, value=value):
            pairs = [(one, value) for one in targets]
        case (
            ast.AugAssign(target=target, value=value)
            | ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
            | ast.For(target=target, iter=value)
            | ast.comprehension(target=target, iter=value)
        ):
            pairs = [(target, value)]
        case _:
            return
    while pairs:
        target, value = pairs.pop(0)
        if isinstance(target, (ast.Tuple, ast.List)):
            pairs = [*((one, value) for one in target.elts), *pairs]
        else:
            yield target, value


def _path(node: ast.expr) -> str:
    """Return the name of what is changed: ``self.keys`` of ``self.keys[layer]``."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return ast.unparse(node)
