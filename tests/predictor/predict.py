"""Predict a program: its text in, the facts a recording of it would hold out, without torch.

What is understood is straight-line code on tensors: names, the calls the rulebook knows, indexing,
``+=``, ``with torch.no_grad()``, ``try``. Whatever else the text says becomes a `Gap` that says so,
its value is unknown from there on, and everything computed from it is too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from predictor.calls import FUNCTIONS, METHODS, OPERATORS, index, write_index
from predictor.graph import Refused, Tensor
from predictor.layout import LayoutError
from predictor.machine import Array, Machine, Unknown
from tether.facts import (
    UNKNOWN,
    Gap,
    Gradients,
    GradientStatus,
    Outcome,
    Raised,
    Site,
    StorageFact,
    TensorFact,
    Trace,
)
from tether.operations.rule import Rule
from tether.store.fields import check

_MODES = {"torch.no_grad": False, "torch.enable_grad": True}


def predict(
    program: str, *, file: str = "<program>", rules: dict[str, Rule] | None = None
) -> Trace:
    """Predict the facts of running `program`.

    Raises `SyntaxError` when it is no Python. `rules` takes the rulebook's place.
    """
    predictor = Predictor(file, rules)
    predictor.run(program)
    return predictor.trace()


class _Opaque:
    """A value of which nothing is known."""


_OPAQUE = _Opaque()


class Predictor:
    """The state of one prediction; `run` may be called with one part of the program after another.

    `names` holds what the program's variables are: `Tensor`, `Array`, plain Python values.
    """

    def __init__(self, file: str = "<program>", rules: dict[str, Rule] | None = None) -> None:
        self.file = file
        self.program = ""
        self.machine = Machine(rules)
        self.names: dict[str, Any] = {}
        self.sites: dict[Site, int] = {}
        self.raised: list[Raised] = []
        self.gaps: list[Gap] = []
        self.gradients: list[Gradients] = []
        self.outcome: Outcome = "finished"

    def run(self, text: str) -> None:
        """Run some more lines. After an exception that nothing catches, nothing runs any more.

        Raises `SyntaxError` when it is no Python.
        """
        tree = ast.parse(text)
        ast.increment_lineno(tree, self.program.count("\n"))
        self.program += text if text.endswith("\n") else text + "\n"
        if self.outcome == "raised":
            return
        try:
            self._body(tree.body)
        except Refused:
            self.outcome = "raised"
            self.raised[-1] = self.raised[-1]._replace(fatal=True)

    def trace(self) -> Trace:
        """Gather the facts so far."""
        machine = self.machine
        trace = Trace(outcome=self.outcome, events=list(machine.events), sites=list(self.sites))
        trace.raised, trace.gaps = list(self.raised), list(self.gaps)
        trace.gradients = list(self.gradients)
        trace.bridges, trace.unseen = list(machine.bridges), machine.unheard()
        born = _births(machine)
        trace.tensors = {
            tensor.serial: TensorFact(tensor.kind, born.get(tensor.serial, 0))
            for tensor in machine.tensors
        }
        trace.storages = {
            memory.serial: StorageFact(memory.nbytes, memory.device, 0, UNKNOWN, memory.region)
            for memory in machine.memories
        }
        trace.sources[self.file] = self.program
        check(trace)
        return trace

    # -- statements ------------------------------------------------------------------------

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            try:
                self._statement(statement)
            except Unknown as unknown:
                self._forget(statement, str(unknown))

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._value(value))
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self._augment(name, statement, type(op).__name__, self._value(value))
            case ast.Expr(value=value):
                self._value(value)
            case ast.With(items=[ast.withitem(context_expr=ast.Call(func=func))], body=body):
                self._with(statement, ast.unparse(func), body)
            case ast.Try(body=body, handlers=[ast.ExceptHandler(body=[ast.Pass()])]):
                with suppress(Refused):
                    self._body(body)
            case ast.Delete(targets=targets):
                for target in targets:
                    self.names.pop(ast.unparse(target), None)
            case ast.Import() | ast.ImportFrom() | ast.Pass():
                pass
            case _:
                raise Unknown(f"{type(statement).__name__} is not predicted")

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.names[name] = value
            case ast.Attribute(value=owner, attr="data"):
                tensor = self._tensor(owner)
                if not isinstance(value, Tensor):
                    raise Unknown("what is assigned to .data is not known")
                self._at(target, lambda: self.machine.set_data(tensor, value))
            case ast.Subscript(value=owner, slice=key):
                self._write_item(target, self._value(owner), self._value(key), value)
            case _:
                raise Unknown(f"an assignment to {ast.unparse(target)} is not predicted")

    def _write_item(self, target: ast.expr, owner: Any, key: Any, value: Any) -> None:
        if isinstance(owner, Array):
            self._at(target, lambda: self.machine.write_array(owner))
            return
        if not isinstance(owner, Tensor) or value is _OPAQUE:
            raise Unknown(f"{ast.unparse(target)} is not known")
        self._at(target, lambda: write_index(self.machine, owner, key, value))

    def _augment(self, name: str, node: ast.stmt, op: str, value: Any) -> None:
        target = self.names.get(name)
        method = {"Add": "add_", "Sub": "sub_", "Mult": "mul_"}.get(op, "")
        if not isinstance(target, Tensor) or not method or value is _OPAQUE:
            raise Unknown(f"{ast.unparse(node)} is not predicted")
        self.names[name] = self._at(
            node, lambda: METHODS[method](self.machine, target, [value], {})
        )

    def _with(self, node: ast.With, name: str, body: Sequence[ast.stmt]) -> None:
        if name not in _MODES:
            raise Unknown(f"with {name} is not predicted")
        before = self.machine.grad
        self._at(node, lambda: self.machine.grad_mode(on=_MODES[name]))
        try:
            self._body(body)
        finally:
            self._at(node, lambda: self.machine.grad_mode(on=before))

    def _forget(self, statement: ast.stmt, reason: str) -> None:
        """Say that a statement is not known, and forget what it assigned."""
        self.gaps.append(Gap("failed", reason, self._site(statement)))
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.names[node.id] = _OPAQUE

    # -- expressions -----------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.names.get(name, _OPAQUE)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                values = [self._value(item) for item in items]
                return tuple(values) if isinstance(node, ast.Tuple) else values
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(
                    *(None if part is None else self._value(part) for part in (lower, upper, step))
                )
            case ast.Subscript(value=owner, slice=key):
                return self._item(node, self._value(owner), self._value(key))
            case ast.BinOp(left=left, op=op, right=right):
                return self._operator(
                    node, type(op).__name__, self._value(left), self._value(right)
                )
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
        raise Unknown(f"{ast.unparse(node)} is not predicted")

    def _tensor(self, node: ast.expr) -> Tensor:
        value = self._value(node)
        if not isinstance(value, Tensor):
            raise Unknown(f"{ast.unparse(node)} is not known to be a tensor")
        return value

    def _item(self, node: ast.expr, owner: Any, key: Any) -> Any:
        if isinstance(owner, Tensor):
            return self._at(node, lambda: index(self.machine, owner, key))
        if isinstance(owner, tuple | list) and isinstance(key, int) and key < len(owner):
            return owner[key]
        raise Unknown(f"{ast.unparse(node)} is not predicted")

    def _operator(self, node: ast.expr, op: str, left: Any, right: Any) -> Any:
        if op not in OPERATORS or not isinstance(left, Tensor) or right is _OPAQUE:
            raise Unknown(f"{ast.unparse(node)} is not predicted")
        return self._at(node, lambda: METHODS[OPERATORS[op]](self.machine, left, [right], {}))

    def _attribute(self, node: ast.Attribute) -> Any:
        if ast.unparse(node).startswith("torch."):
            return ast.unparse(node).removeprefix("torch.")  # a dtype or a device
        method = METHODS.get(f"{node.attr}.__get__")
        if method is None:
            raise Unknown(f".{node.attr} is not in the rulebook that predicts")
        tensor = self._tensor(node.value)
        return self._at(node, lambda: method(self.machine, tensor, [], {}))

    def _call(self, node: ast.Call) -> Any:
        arguments = [self._value(one) for one in node.args]
        keywords = {one.arg or "**": self._value(one.value) for one in node.keywords}
        if _OPAQUE in (*arguments, *keywords.values()):
            raise Unknown(f"an argument of {ast.unparse(node)} is not known")
        function = FUNCTIONS.get(ast.unparse(node.func))
        if function is not None:
            return self._at(node, lambda: function(self.machine, arguments, keywords))
        if not isinstance(node.func, ast.Attribute):
            raise Unknown(f"{ast.unparse(node.func)} is not predicted")
        method = METHODS.get(node.func.attr)
        if method is None:
            raise Unknown(f"{node.func.attr} is not in the rulebook that predicts")
        tensor = self._tensor(node.func.value)
        try:
            return self._at(node, lambda: method(self.machine, tensor, arguments, keywords))
        finally:
            if node.func.attr == "backward":
                self._gradients(node)

    # -- places and errors -----------------------------------------------------------------

    def _at(self, node: ast.expr | ast.stmt, run: Callable[[], Any]) -> Any:
        """Run one call as written at `node`."""
        self.machine.site = site = self._site(node)
        try:
            return run()
        except LayoutError as error:
            raise Unknown(f"{ast.unparse(node)}: {error}") from None
        except Refused as error:
            self._note(error, site)
            raise

    def _note(self, error: Refused, site: int) -> None:
        if not self.raised or self.raised[-1].at != len(self.machine.events):
            self.raised.append(
                Raised(len(self.machine.events), error.kind, str(error), site, fatal=False)
            )

    def _site(self, node: ast.expr | ast.stmt) -> int:
        site = Site(
            self.file,
            node.lineno,
            node.col_offset + 1,
            node.end_lineno or node.lineno,
            (node.end_col_offset or 0) + 1,
            function="<module>",
            first_line=1,
            expression=ast.get_source_segment(self.program, node) or "",
        )
        return self.sites.setdefault(site, len(self.sites))

    def _gradients(self, node: ast.expr) -> None:
        """Note which leaves that were met have a gradient now."""
        status: dict[int, GradientStatus] = {}
        met = {
            one.tensor
            for event in self.machine.events
            for one in (*event.reads, *event.results)
            if one.requires_grad and one.leaf
        }
        for tensor in self.machine.tensors:
            if tensor.serial in met and tensor.leaf:
                status[tensor.serial] = "unchecked" if tensor.reached else "none"
        at = len(self.machine.events)
        self.gradients.append(Gradients("backward", at, self._site(node), UNKNOWN, status))


def _births(machine: Machine) -> dict[int, int]:
    born: dict[int, int] = {}
    for number, event in enumerate(machine.events):
        for one in (*event.reads, *event.results):
            born.setdefault(one.tensor, number)
    return born
