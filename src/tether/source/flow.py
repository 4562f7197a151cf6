"""Where a value can go once it has left the tensors: def-use through the user's functions.

A small abstract interpreter. Every function is walked statement by statement with what its local
names can hold (exits: sites where a value left the tensors; see `source.held`). An assignment to a
name replaces what it held; branches are joined; loops are walked until nothing changes. A function
is walked for each way by which it is called, so that what one caller gives does not come out at
another. What outlives a call (attributes, globals, names seen by inner functions) is kept in one
store that only grows, and functions that mention what grew are walked again.

Not followed: control (``if x.item() > 0``), an index (``names[i]``), a length or shape. A call of a
function that is not the user's is taken to use its arguments: what comes out may hold them.
"""

from __future__ import annotations

import ast
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tether.source.held import (
    EACH,
    Held,
    Some,
    Way,
    each,
    from_place,
    grows,
    joined,
    made_of,
    named,
    picked,
    put_at,
    stored_at,
    subscripted,
    transposed,
    unnamed,
    within,
    zipped,
)
from tether.source.scopes import Scope, Scopes, way_by
from tether.source.syntax import INTO_CONTAINERS

ROUNDS = 30  # of the whole program; each goes one call deeper or back, and values rarely cross ten

MOST_WALKS = 1500
"""Walks through functions in which their ways are told apart; a walk takes a millisecond or two."""

OPAQUE = frozenset(
    {"len", "print", "isinstance", "issubclass", "type", "id", "hash", "range", "hasattr", "repr"}
    | {"format", "open", "callable", "bytes", "dir", "vars", "super", "slice", "setattr"}
)
"""Calls whose result tells nothing of the numbers in their arguments."""

SHAPES = frozenset({"shape", "dtype", "device", "ndim", "size", "nbytes", "layout", "itemsize"})
"""Attributes that say how a value lies and not what it is."""

HOLDING = INTO_CONTAINERS | {"push", "put"}
"""Methods whose arguments the object they are called on may hold from then on.

A `push` is the program's own: where its text is known, it is walked as well.
"""

TAKING_OVER = frozenset({"extend", "update"})
"""Those of them that put in what their argument holds."""

AS_THEY_ARE = frozenset({"list", "tuple", "iter"})
"""Functions of Python's own whose result has the elements of its argument in their places."""


class Run:
    """A function as it is reached by one way."""

    def __init__(self, scope: Scope, way: Way) -> None:
        self.scope, self.way = scope, way
        self.parameters: dict[str, Held] = {}
        self.returned: Held = {}
        self.callers: set[tuple[int, Way]] = set()  # runs that take what it returns

    @property
    def key(self) -> tuple[int, Way]:
        """The number by which it is known."""
        return id(self.scope), self.way


class Flow:
    """Follows values from exits to entries through the syntax trees of the user's files.

    `exits` and `entries` are the nodes of sites (node -> site number); `tensors` the nodes whose
    value is a tensor of its own event, where following ends: from there the facts go on.
    """

    def __init__(
        self,
        trees: Mapping[str, ast.Module],
        exits: Mapping[ast.AST, int],
        entries: Mapping[ast.AST, int],
        tensors: Iterable[ast.AST],
    ) -> None:
        self.exits, self.entries, self.tensors = exits, entries, set(tensors)
        self.scopes = Scopes(trees)
        self.leading = self.scopes.leading_to(exits)
        self.full = False  # there were too many ways to tell them apart
        self._begin()

    def _begin(self) -> None:
        self.reached: dict[int, dict[Way, Held]] = {}  # entry -> the way to it -> exits
        self.store: dict[tuple[object, ...], Held] = {}
        # Attributes, and names by their scopes, whose holdings grew in this round.
        self.grown: dict[object, set[str]] = defaultdict(set)
        self.again: set[tuple[int, Way]] = set()  # runs that are to be walked in the next round
        self.runs = {one.key: one for one in (Run(each, each.alone) for each in self.scopes.all)}

    def run(self) -> dict[int, dict[Way, Held]]:
        """Return for each entry, by the way to it, the exits whose value can reach it."""
        if not self._settles():
            self.full = True
            self._begin()
            self._settles()
        return self.reached

    def _settles(self) -> bool:
        """Walk what there is until nothing changes; False if that is too much."""
        waiting = [*self.runs.values()]
        walks = 0
        for _ in range(ROUNDS):
            walks += len(waiting)
            if walks > max(MOST_WALKS, 4 * len(self.scopes.all)) and not self.full:
                return False
            self.grown, self.again = defaultdict(set), set()
            for run in waiting:
                _FunctionWalk(self, run).walk()
            waiting = [
                run
                for key, run in self.runs.items()
                if key in self.again or self._concerns(run.scope)
            ]
            if not waiting:
                break
        return True

    def _concerns(self, scope: Scope) -> bool:
        """Whether an attribute, or a name of its own or from around it, grew that it mentions."""
        owners = ("attribute", *map(id, scope.around))
        return any(not scope.mentions.isdisjoint(self.grown.get(one, ())) for one in owners)

    # -- what crosses functions

    def add(self, key: tuple[object, ...], held: Held, name: str) -> None:
        """Add to what is kept under `key`; remember `name` when something was new."""
        if held and grows(self.store.setdefault(key, {}), held):
            self.grown[key[0]].add(name)

    def get(self, key: tuple[object, ...]) -> Held:
        """Return what is kept under `key`."""
        return self.store.get(key, {})

    def enter(self, entry: int, way: Way, held: Held) -> None:
        """Note that values reach an entry."""
        if held:
            grows(self.reached.setdefault(entry, {}).setdefault(way, {}), held)

    def of_call(self, callee: Scope, way: Way, *, given: bool) -> Run:
        """Return the run of a function by a way; one for all where nothing was `given` to it."""
        if self.full or (not given and id(callee) not in self.leading):
            return self.runs[id(callee), callee.alone]
        found = self.runs.get((id(callee), way))
        if found is None:
            found = Run(callee, way)
            self.runs[found.key] = found
            self.again.add(found.key)
        return found

    def give(self, run: Run, parameter: str, held: Held) -> None:
        """Add to what a parameter holds."""
        if held and grows(run.parameters.setdefault(parameter, {}), held):
            self.again.add(run.key)

    def give_back(self, run: Run, held: Held) -> None:
        """Add to what a function returns."""
        if grows(run.returned, held):
            self.again |= run.callers


class _FunctionWalk:
    """One walk through one function with what its local names hold."""

    def __init__(self, flow: Flow, run: Run) -> None:
        self.flow, self.of, self.scope = flow, run, run.scope
        own = (*self.scope.parameters, self.scope.rest, self.scope.keywords)
        self.local: dict[str, Held] = {name: run.parameters.get(name, {}) for name in own}
        self.tries: list[dict[str, Held]] = []  # of each `try` around: what it can have come to

    def walk(self) -> None:
        self.block(self.scope.body)

    # -- statements

    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            with contextlib.suppress(RecursionError):  # a sum of a thousand terms: made by machine
                self.statement(statement)
            for come_to in self.tries:
                _add_to(come_to, self.local)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self.assignment(node)
            case ast.Return(value=ast.expr() as value):
                self.flow.give_back(self.of, self.value(value))
            case ast.ClassDef(body=body):
                self.block(body)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case _ if hasattr(node, "body") or hasattr(node, "cases"):
                self.compound(node)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child)

    def assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                held = self.value(value)
                for target in targets:
                    self.assign(target, held)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self.value(value))
            case ast.AugAssign(target=target, value=value):
                self.augmented(node, target, value)

    def compound(self, node: ast.stmt) -> None:
        """Walk a statement with blocks in it."""
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                self.value(test)
                self.branches(body, orelse)
            case ast.For() | ast.AsyncFor():
                held = each(self.value(node.iter))
                self.loop((node.target, held), node.body, node.orelse)
            case ast.While(test=test, body=body, orelse=orelse):
                self.value(test)
                self.loop(None, body, orelse)
            case ast.Try() | ast.TryStar():
                self.guarded(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    held = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, held)
                self.block(node.body)
            case ast.Match(subject=subject, cases=cases):
                self.value(subject)
                self.branches(*[case.body for case in cases], [])

    def branches(self, *bodies: Iterable[ast.stmt]) -> None:
        before, after = self.local, dict[str, Held]()
        for body in bodies:
            self.local = dict(before)
            self.block(body)
            _add_to(after, self.local)
        self.local = after

    def guarded(self, node: ast.Try | ast.TryStar) -> None:
        """Walk a `try`: its handlers start from whatever any statement in it has come to."""
        come_to = dict(self.local)
        self.tries.append(come_to)
        self.block(node.body)
        self.tries.pop()
        self.block(node.orelse)
        after = dict(self.local)
        for handler in node.handlers:
            self.local = dict(come_to)
            self.block(handler.body)
            _add_to(after, self.local)
        if node.finalbody:  # also on the way out of an error that nothing handles
            self.local = dict(come_to)
            self.block(node.finalbody)
        self.local = after
        self.block(node.finalbody)

    def loop(
        self,
        bound: tuple[ast.expr, Held] | None,
        body: list[ast.stmt],
        orelse: list[ast.stmt],
    ) -> None:
        for _ in range(3):  # a value goes at most once around for each name that hands it on
            before = {name: dict(held) for name, held in self.local.items()}
            if bound is not None:
                self.assign(*bound)
            self.branches(body, [])
            if {name: held.keys() for name, held in self.local.items() if held} == {
                name: held.keys() for name, held in before.items() if held
            }:
                break
        self.block(orelse)

    def assign(self, target: ast.expr, held: Held) -> None:
        match target:
            case ast.Name(id=name):
                self.local[name] = held
                if self.scope.parent is None or self.scope.inner:
                    self.flow.add((id(self.scope), "name", name), held, name)
            case ast.Attribute(attr=name):
                self.flow.add(("attribute", name), held, name)
            case ast.Subscript(value=holder, slice=index):
                self.put(holder, put_at(held, stored_at(index)))
                self.entered(target, held)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                self.unpack(elements, held)
            case ast.Starred(value=inner):
                self.assign(inner, held)

    def unpack(self, targets: list[ast.expr], held: Held) -> None:
        """Assign to several targets what is held in their places."""
        starred = None
        for place, target in enumerate(targets):
            if starred is not None:
                self.assign(target, picked(from_place(held, starred)))
            elif isinstance(target, ast.Starred):
                starred = place
                self.assign(target, put_at(each(from_place(held, place)), EACH))
            else:
                self.assign(target, picked(held, place))

    def augmented(self, node: ast.AugAssign, target: ast.expr, value: ast.expr) -> None:
        held = self.value(value)
        self.entered(node, held)
        if node not in self.flow.tensors:
            before = self.value(target) if isinstance(target, ast.Name | ast.Attribute) else {}
            self.assign(target, joined(before, within(held)))

    def put(self, holder: ast.expr, held: Held) -> None:
        """Add to what a container holds; what it held stays."""
        if not held:
            return
        match holder:
            case ast.Name(id=name):
                self.assign(holder, joined(self.name(name), held))
            case ast.Attribute():
                self.assign(holder, held)
            case ast.Subscript(value=inner, slice=index):
                self.put(inner, put_at(held, stored_at(index)))

    # -- expressions

    def value(self, node: ast.expr) -> Held:
        """Return the exits that the value of an expression can come from."""
        held = self.raw(node)
        if (exit_ := self.flow.exits.get(node)) is not None:
            return {Some(exit_, self.of.way): ""}
        return {} if node in self.flow.tensors else held

    def raw(self, node: ast.expr) -> Held:
        match node:
            case ast.Name(id=name):
                return named(self.name(name), name)
            case ast.Constant():
                return {}
            case ast.Starred(value=several):
                return self.value(several)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript(value=base, slice=index):
                self.value(index)
                return subscripted(self.value(base), index)
            case ast.IfExp() | ast.NamedExpr() | ast.Lambda() | ast.JoinedStr():
                return self.walked(node)
            case ast.Call():
                return self.call(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.comprehension(node)
            case ast.Dict() | ast.Tuple() | ast.List() | ast.Set() | ast.BoolOp():
                return self.literal(node)
            case ast.BinOp() | ast.UnaryOp() | ast.Compare():
                held = self.parts(node)
                self.entered(node, held)
                return held
            case _:
                return self.parts(node)

    def literal(self, node: ast.Dict | ast.Tuple | ast.List | ast.Set | ast.BoolOp) -> Held:
        """Return what a container holds that is written out, or one of several values."""
        match node:
            case ast.BoolOp(values=values):
                return joined(*map(self.value, values))
            case ast.Dict(keys=keys, values=values):
                return joined(
                    *(
                        self.value(one) if key is None else put_at(self.value(one), stored_at(key))
                        for key, one in zip(keys, values, strict=True)
                    )
                )
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                counted = not any(isinstance(one, ast.Starred) for one in elements)
                parts = enumerate(map(self.element, elements))
                return joined(*(put_at(one, at if counted else EACH) for at, one in parts))

    def element(self, node: ast.expr) -> Held:
        """Return what an element of a literal holds."""
        return picked(self.value(node.value)) if isinstance(node, ast.Starred) else self.value(node)

    def walked(self, node: ast.IfExp | ast.NamedExpr | ast.Lambda | ast.JoinedStr) -> Held:
        """Return what an expression gives of which not every part does."""
        match node:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.value(test)
                return joined(self.value(body), self.value(orelse))
            case ast.NamedExpr(target=target, value=value):
                held = self.value(value)
                self.assign(target, held)
                return held
            case ast.Lambda(body=body):
                self.value(body)
            case ast.JoinedStr():
                for part in ast.walk(node):
                    if isinstance(part, ast.FormattedValue):
                        self.value(part.value)
        return {}

    def attribute(self, node: ast.Attribute) -> Held:
        held, name = self.value(node.value), node.attr
        if name in SHAPES:
            return {}
        known = self.flow.get(("attribute", name))
        if len({(one.exit, one.way) for one in known}) > 1:  # perhaps not all to one object
            known = {one._replace(mixed=True): via for one, via in known.items()}
        if isinstance(node.value, ast.Name):
            return named(known or unnamed(held), f"{node.value.id}.{name}")
        return named(joined(unnamed(held), known), name)

    def parts(self, node: ast.expr) -> Held:
        children = ast.iter_child_nodes(node)
        return within(joined(*(self.value(one) for one in children if isinstance(one, ast.expr))))

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Held:
        outside = dict(self.local)
        for generator in node.generators:
            self.assign(generator.target, each(self.value(generator.iter)))
            for test in generator.ifs:
                self.value(test)
        made = self.value(node.value if isinstance(node, ast.DictComp) else node.elt)
        self.local = outside
        return put_at(made, EACH)

    def name(self, name: str) -> Held:
        if name in self.local:
            return self.local[name]
        for scope in self.scope.around:
            if held := self.flow.get((id(scope), "name", name)):
                return held
        return {}

    def entered(self, node: ast.AST, held: Held) -> None:
        if (entry := self.flow.entries.get(node)) is not None:
            self.flow.enter(entry, self.of.way, held)

    def call(self, node: ast.Call) -> Held:
        base = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else {}
        given = [self.value(one) for one in node.args]
        keyed = {one.arg: self.value(one.value) for one in node.keywords}
        self.entered(node, joined(base, *given, *keyed.values()))
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in OPAQUE or name in SHAPES:
            return {}
        if isinstance(node.func, ast.Attribute) and name in HOLDING:
            self.put(node.func.value, _stored(name, node, given, keyed))
        callees = self.flow.scopes.called(node)
        if callees:
            return joined(*(self.into(callee, node, given, keyed) for callee in callees))
        return _from_elsewhere(node, base, given, keyed)

    def into(
        self, callee: Scope, node: ast.Call, given: list[Held], keyed: dict[str | None, Held]
    ) -> Held:
        """Hand arguments to a function of the user's and return what it can give back."""
        parameters = _given_to(callee, node, given, keyed)
        run = self.flow.of_call(callee, way_by(node, self.of.way), given=any(parameters.values()))
        for name, held in parameters.items():
            self.flow.give(run, name, held)
        run.callers.add(self.of.key)
        return dict(run.returned)


def _given_to(
    callee: Scope, node: ast.Call, given: list[Held], keyed: dict[str | None, Held]
) -> dict[str, Held]:
    """Return what each parameter of a function is given."""
    names = callee.parameters[1:] if callee.method else callee.parameters
    found: dict[str, Held] = {}
    starred = None
    for place, held in enumerate(given):
        if isinstance(node.args[place], ast.Starred) and starred is None:
            starred = place
        if starred is None:
            _place(found, callee, names, place, held)
            continue
        # How many a starred argument stands for is not known: what follows it is one of them all.
        for at, name in enumerate(names[starred:]):
            _add_to(found, {name: picked(held, at if place == starred else None)})
        _add_to(found, {callee.rest: put_at(picked(held), EACH)})
    for key, held in keyed.items():
        if key is None:
            _add_to(found, {one: picked(held, one) for one in names} | {callee.keywords: held})
        elif key in names:
            _add_to(found, {key: held})
        else:
            _add_to(found, {callee.keywords: put_at(held, key)})
    found.pop("", None)
    return found


def _place(found: dict[str, Held], callee: Scope, names: list[str], place: int, held: Held) -> None:
    """Add what a function is given in a place."""
    if place < len(names):
        _add_to(found, {names[place]: held})
    else:
        _add_to(found, {callee.rest: put_at(held, place - len(names))})


def _stored(name: str, node: ast.Call, given: list[Held], keyed: dict[str | None, Held]) -> Held:
    """Return what a method puts into its container."""
    if name not in TAKING_OVER:
        return put_at(_mixture(node, {}, given, keyed), EACH)
    lists = name == "extend"
    parts = [put_at(picked(one), EACH) if lists else one for one in given]
    return joined(*parts, *(put_at(one, key or EACH) for key, one in keyed.items()))


def _mixture(node: ast.Call, base: Held, given: list[Held], keyed: dict[str | None, Held]) -> Held:
    """Return what a function makes of its arguments, but for those that are written out."""
    written = [*node.args, *(one.value for one in node.keywords)]
    parts = [
        held
        for one, held in zip(written, (*given, *keyed.values()), strict=False)
        if not isinstance(one, ast.Constant)
    ]
    parts += [base] if base else []
    return parts[0] if len(parts) == 1 else made_of(parts)


def _from_elsewhere(
    node: ast.Call, base: Held, given: list[Held], keyed: dict[str | None, Held]
) -> Held:
    """Return what a function that is not the user's gives."""
    if isinstance(node.func, ast.Name) and given and not keyed:
        starred = isinstance(node.args[-1], ast.Starred)
        found = _from_python(node.func.id, given, starred=starred)
        if found is not None:
            return found
    return within(_mixture(node, base, given, keyed))


def _from_python(name: str, given: list[Held], *, starred: bool) -> Held | None:
    """Return what a function of Python's own gives that keeps its arguments' elements apart."""
    if name == "zip" and not starred:
        return zipped(given)
    if name == "zip" and len(given) == 1:
        return transposed(given[0])
    if name == "enumerate" and not starred:
        return put_at(put_at(each(given[0]), 1), EACH)
    if name in AS_THEY_ARE and len(given) == 1 and not starred:
        return given[0]
    return None


def _add_to(known: dict[str, Held], more: Mapping[str, Held]) -> None:
    """Add to what names can hold."""
    for name, held in more.items():
        before = known.get(name)
        known[name] = joined(before, held) if before and held is not before else held
