"""Where a value can go once it has left the tensors: def-use through the user's functions.

A small abstract interpreter. Every function is walked statement by statement with what its local
names can hold (a set of exits: sites where a value left the tensors). An assignment to a name
replaces what it held; branches are joined; loops are walked until nothing changes. What crosses
functions (parameters, returned values, attributes, globals, names seen by inner functions) is kept
in one store that only grows, and functions that mention what grew are walked again.

Not followed: control (``if x.item() > 0``), an index (``names[i]``), a length or shape. A call of a
function that is not the user's is taken to use its arguments: what comes out may hold them.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

Held = dict[int, str]
"""Exits that a value can come from, each with the name it was last read by."""

ROUNDS = 12  # of the whole program; each goes one call deeper, and values rarely cross five

OPAQUE = frozenset(
    {"len", "print", "isinstance", "issubclass", "type", "id", "hash", "range", "hasattr", "repr"}
    | {"format", "open", "callable", "bytes", "dir", "vars", "super", "slice", "setattr"}
)
"""Calls whose result tells nothing of the numbers in their arguments."""

SHAPES = frozenset({"shape", "dtype", "device", "ndim", "size", "nbytes", "layout", "itemsize"})
"""Attributes that say how a value lies and not what it is."""

STORING = frozenset(
    {"append", "extend", "add", "insert", "update", "setdefault", "appendleft", "push", "put"}
)
"""Methods that put their arguments into the container they are called on."""

MANY = 5  # user functions of one name; beyond that a name says nothing about the callee

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Scope:
    """A function (or a module's own code) and what is known of it from outside."""

    file: str
    body: list[ast.stmt]
    parameters: list[str]
    method: bool = False
    parent: Scope | None = None
    rest: str = ""  # name of *args
    keywords: str = ""  # name of **kwargs
    mentions: set[str] = field(default_factory=set)  # names and attributes in its text
    names: set[str] = field(default_factory=set)  # assigned in it
    inner: bool = False  # functions are written inside it: its names are seen there


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
        self.reached: dict[int, Held] = {}  # entry -> exits
        self.store: dict[tuple[object, ...], Held] = {}
        self.grown: set[str] = set()  # names and attributes whose holdings grew in this round
        self.scopes: list[Scope] = []
        self.by_name: dict[str, list[Scope]] = {}
        for file, tree in trees.items():
            module = self._scope(Scope(file, tree.body, []))
            self._collect(tree.body, module, in_class="")

    def run(self) -> dict[int, Held]:
        """Return for each entry the exits whose value can reach it."""
        waiting = self.scopes
        for _ in range(ROUNDS):
            self.grown = set()
            for scope in waiting:
                _FunctionWalk(self, scope).walk()
            waiting = [scope for scope in self.scopes if scope.mentions & self.grown]
            if not waiting:
                break
        return self.reached

    # -- finding the functions

    def _scope(self, scope: Scope) -> Scope:
        for statement in scope.body:
            for node in _own_nodes(statement):
                if isinstance(node, ast.Name):
                    scope.mentions.add(node.id)
                    if isinstance(node.ctx, ast.Store):
                        scope.names.add(node.id)
                elif isinstance(node, ast.Attribute):
                    scope.mentions.add(node.attr)
        scope.names.update(scope.parameters)
        scope.mentions.update(scope.parameters)
        self.scopes.append(scope)
        return scope

    def _collect(self, body: Iterable[ast.AST], parent: Scope, in_class: str) -> None:
        waiting = list(body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, Function):
                scope = self._function(node, parent, bool(in_class))
                self.by_name.setdefault(node.name, []).append(scope)
                if node.name == "__init__" and in_class:
                    self.by_name.setdefault(in_class, []).append(scope)
                parent.inner = True
                self._collect(node.body, scope, "")
            elif isinstance(node, ast.ClassDef):
                self._collect(node.body, parent, node.name)
            elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
                waiting.extend(ast.iter_child_nodes(node))

    def _function(self, node: Function, parent: Scope, method: bool) -> Scope:
        given = node.args
        decorators = {getattr(one, "id", "") for one in node.decorator_list}
        return self._scope(
            Scope(
                parent.file,
                node.body,
                [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)],
                method and "staticmethod" not in decorators,
                parent,
                given.vararg.arg if given.vararg else "",
                given.kwarg.arg if given.kwarg else "",
                {node.name},
            )
        )

    # -- what crosses functions

    def add(self, key: tuple[object, ...], held: Held, name: str) -> None:
        """Add to what is kept under `key`; remember `name` when something was new."""
        if not held:
            return
        known = self.store.setdefault(key, {})
        if held.keys() - known.keys():
            self.grown.add(name)
        for exit_, via in held.items():
            known.setdefault(exit_, via)

    def get(self, key: tuple[object, ...]) -> Held:
        """Return what is kept under `key`."""
        return self.store.get(key, {})

    def enter(self, entry: int, held: Held) -> None:
        """Note that values reach an entry."""
        if held:
            self.reached.setdefault(entry, {}).update(held)


def _own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, without the insides of functions written in it."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function):
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def _joined(*parts: Held) -> Held:
    whole: Held = {}
    for part in parts:
        whole.update(part)
    return whole


def _named(held: Held, name: str) -> Held:
    return dict.fromkeys(held, name)


class _FunctionWalk:
    """One walk through one function with what its local names hold."""

    def __init__(self, flow: Flow, scope: Scope) -> None:
        self.flow, self.scope = flow, scope
        self.local: dict[str, Held] = {}

    def walk(self) -> None:
        for name in (*self.scope.parameters, self.scope.rest, self.scope.keywords):
            if name and (held := self.flow.get((id(self.scope), "parameter", name))):
                self.local[name] = held
        self.block(self.scope.body)

    # -- statements

    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            with contextlib.suppress(RecursionError):  # a sum of a thousand terms: made by machine
                self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self.assignment(node)
            case ast.Return(value=ast.expr() as value):
                key = (id(self.scope), "return")
                self.flow.add(key, self.value(value), "")
                self.note_return(key)
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
                    self.assign(target, held, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self.value(value), value)
            case ast.AugAssign(target=target, value=value):
                self.augmented(node, target, value)

    def compound(self, node: ast.stmt) -> None:
        """Walk a statement with blocks in it."""
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                self.value(test)
                self.branches(body, orelse)
            case ast.For() | ast.AsyncFor():
                held = self.value(node.iter)
                self.loop([*self.bound(node.target, held, node.iter)], node.body, node.orelse)
            case ast.While(test=test, body=body, orelse=orelse):
                self.value(test)
                self.loop([], body, orelse)
            case ast.Try() | ast.TryStar():
                handlers = [handler.body for handler in node.handlers]
                self.branches([*node.body, *node.orelse], *handlers)
                self.block(node.finalbody)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    held = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, held, item.context_expr)
                self.block(node.body)
            case ast.Match(subject=subject, cases=cases):
                self.value(subject)
                self.branches(*[case.body for case in cases], [])

    def note_return(self, key: tuple[object, ...]) -> None:
        """Have the callers of this function walked again when it returns something new."""
        held, told = self.flow.get(key), self.flow.get((*key, "told"))
        if held.keys() - told.keys():
            self.flow.store[(*key, "told")] = dict(held)
            self.flow.grown.update(
                name for name, scopes in self.flow.by_name.items() if self.scope in scopes
            )

    def branches(self, *bodies: Iterable[ast.stmt]) -> None:
        before, after = self.local, list[dict[str, Held]]()
        for body in bodies:
            self.local = dict(before)
            self.block(body)
            after.append(self.local)
        self.local = {
            name: _joined(*(one.get(name, {}) for one in after))
            for name in {name for one in after for name in one}
        }

    def loop(
        self,
        bound: list[tuple[ast.expr, Held, ast.expr]],
        body: list[ast.stmt],
        orelse: list[ast.stmt],
    ) -> None:
        for _ in range(3):  # a value goes at most once around for each name that hands it on
            before = {name: dict(held) for name, held in self.local.items()}
            for target, held, source in bound:
                self.assign(target, held, source)
            self.branches(body, [])
            if {name: held.keys() for name, held in self.local.items() if held} == {
                name: held.keys() for name, held in before.items() if held
            }:
                break
        self.block(orelse)

    def bound(
        self, target: ast.expr, held: Held, source: ast.expr
    ) -> Iterator[tuple[ast.expr, Held, ast.expr]]:
        """Yield what the targets of a loop are bound to; `enumerate` counts in its first."""
        name = getattr(source.func, "id", "") if isinstance(source, ast.Call) else ""
        if isinstance(source, ast.Call) and isinstance(target, ast.Tuple):
            parts = [one for one in source.args if not isinstance(one, ast.Starred)]
            if name == "zip" and len(target.elts) == len(parts) == len(source.args):
                for element, part in zip(target.elts, parts, strict=True):
                    yield element, self.value(part), part
                return
            if name == "enumerate" and len(target.elts) == 2:
                target = target.elts[1]
        yield target, held, source

    def assign(self, target: ast.expr, held: Held, value: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                self.local[name] = held
                if self.scope.parent is None or self.scope.inner:
                    self.flow.add((id(self.scope), "name", name), held, name)
            case ast.Attribute(attr=name):
                self.flow.add(("attribute", name), held, name)
            case ast.Subscript(value=holder):
                self.put(holder, held)
                self.entered(target, held)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                parts = getattr(value, "elts", ())
                for place, element in enumerate(elements):
                    if len(parts) == len(elements) and not isinstance(element, ast.Starred):
                        self.assign(element, self.value(parts[place]), parts[place])
                    else:
                        self.assign(element, held, target)
            case ast.Starred(value=inner):
                self.assign(inner, held, value)

    def augmented(self, node: ast.AugAssign, target: ast.expr, value: ast.expr) -> None:
        held = self.value(value)
        self.entered(node, held)
        if node not in self.flow.tensors:
            before = self.value(target) if isinstance(target, ast.Name | ast.Attribute) else {}
            self.assign(target, _joined(before, held), value)

    def put(self, holder: ast.expr, held: Held) -> None:
        """Add to what a container holds; what it held stays."""
        if not held:
            return
        match holder:
            case ast.Name(id=name):
                self.assign(holder, _joined(self.name(name), held), holder)
            case ast.Attribute():
                self.assign(holder, held, holder)
            case ast.Subscript(value=inner):
                self.put(inner, held)

    # -- expressions

    def value(self, node: ast.expr) -> Held:
        """Return the exits that the value of an expression can come from."""
        held = self.raw(node)
        if (exit_ := self.flow.exits.get(node)) is not None:
            return {exit_: ""}
        return {} if node in self.flow.tensors else held

    def raw(self, node: ast.expr) -> Held:
        match node:
            case ast.Name(id=name):
                return _named(self.name(name), name)
            case ast.Constant():
                return {}
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript(value=base, slice=index):
                self.value(index)
                return self.value(base)
            case ast.IfExp() | ast.NamedExpr() | ast.Lambda() | ast.JoinedStr():
                return self.walked(node)
            case ast.Call():
                return self.call(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.comprehension(node)
            case ast.Dict(values=values):
                return _joined(*map(self.value, values))
            case ast.BinOp() | ast.UnaryOp() | ast.Compare():
                held = self.parts(node)
                self.entered(node, held)
                return held
            case _:
                return self.parts(node)

    def walked(self, node: ast.IfExp | ast.NamedExpr | ast.Lambda | ast.JoinedStr) -> Held:
        """Return what an expression gives of which not every part does."""
        match node:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.value(test)
                return _joined(self.value(body), self.value(orelse))
            case ast.NamedExpr(target=target, value=value):
                held = self.value(value)
                self.assign(target, held, value)
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
        if isinstance(node.value, ast.Name):
            return _named(known or held, f"{node.value.id}.{name}")
        return _named(_joined(held, known), name)

    def parts(self, node: ast.expr) -> Held:
        children = ast.iter_child_nodes(node)
        return _joined(*(self.value(one) for one in children if isinstance(one, ast.expr)))

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Held:
        outside = dict(self.local)
        for generator in node.generators:
            held = self.value(generator.iter)
            for target, bound, source in self.bound(generator.target, held, generator.iter):
                self.assign(target, bound, source)
            for test in generator.ifs:
                self.value(test)
        made = self.value(node.value if isinstance(node, ast.DictComp) else node.elt)
        self.local = outside
        return made

    def name(self, name: str) -> Held:
        if name in self.local:
            return self.local[name]
        scope: Scope | None = self.scope
        while scope is not None:
            if held := self.flow.get((id(scope), "name", name)):
                return held
            scope = scope.parent
        return {}

    def entered(self, node: ast.AST, held: Held) -> None:
        if (entry := self.flow.entries.get(node)) is not None:
            self.flow.enter(entry, held)

    def call(self, node: ast.Call) -> Held:
        base = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else {}
        given = [self.value(one) for one in node.args]
        keyed = {one.arg: self.value(one.value) for one in node.keywords}
        held = _joined(*given, *keyed.values())
        self.entered(node, _joined(base, held))
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in OPAQUE or name in SHAPES:
            return {}
        if isinstance(node.func, ast.Attribute) and name in STORING:
            self.put(node.func.value, held)
        callees = self.flow.by_name.get(name, [])
        if not callees or len(callees) > MANY:
            return _joined(base, held)
        return _joined(*(self.into(callee, node, given, keyed) for callee in callees))

    def into(
        self, callee: Scope, node: ast.Call, given: list[Held], keyed: dict[str | None, Held]
    ) -> Held:
        """Hand arguments to a function of the user's and return what it can give back."""
        names = callee.parameters[1:] if callee.method else callee.parameters
        starred = any(isinstance(one, ast.Starred) for one in node.args)
        for place, held in enumerate(given):
            if starred:
                targets = [*names, callee.rest]
            else:
                targets = [names[place] if place < len(names) else callee.rest]
            for target in filter(None, targets):
                self.flow.add((id(callee), "parameter", target), held, target)
        for name, held in keyed.items():
            target = name if name in names else callee.keywords
            for one in names if name is None else [target] if target else []:
                self.flow.add((id(callee), "parameter", one), held, one)
        return self.flow.get((id(callee), "return"))
