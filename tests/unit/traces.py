"""Traces for tests from a tiny notation: one line is one event, at the line of its number.

w = param net.w          a parameter of that name, held by the optimizer made after all params
x = data                 a tensor that requires no grad
h = mul w x              a call: requires grad if an input does and grad mode is on
v = view h               the same, on the memory of its first operand
d = detach h             detach, data.__get__: on that memory, outside the graph
b = zeros_like x int64   a dtype at the end
copy_ z h                a write into z, which then is as the graph has it
no_grad / grad           switches of the grad mode
s = item h               leaves the tensors; t = tensor <- s  comes back (`<~`: only likely)
backward loss; step      with `step`, the gradients are given: step w=none b=some
"""

from __future__ import annotations

from tether.facts import (
    GRAD_OFF,
    GRAD_ON,
    ON,
    RAISED,
    Bridge,
    Event,
    Gradients,
    Name,
    Operand,
    OptimizerFact,
    Site,
    StorageFact,
    TensorFact,
    Trace,
)
from tether.store.fields import check

SHARES = frozenset({"view", "reshape", "transpose", "detach", "data.__get__", "numpy"})
CUTS = frozenset({"detach", "data.__get__", "tensor", "argmax", "gt"})
DTYPES = frozenset({"int64", "bool", "float32", "float64"})


class _Builder:
    def __init__(self) -> None:
        self.trace = Trace(folder="/p")
        self.now: dict[str, Operand] = {}
        self.exits: dict[str, int] = {}
        self.mode = GRAD_ON
        self.parameters: list[int] = []

    def tensor(self, name: str, storage: int | None = None, *, grad: bool = False,
               leaf: bool = True, dtype: str = "float32") -> Operand:  # fmt: skip
        serial, born = len(self.trace.tensors), len(self.trace.events)
        self.trace.tensors[serial] = TensorFact("Tensor", born)
        if storage is None:
            storage = len(self.trace.storages)
            self.trace.storages[storage] = StorageFact(16, "cpu", born)
        made = Operand(serial, storage, 0, 0, (4,), (1,), dtype, grad, leaf)
        self.now[name] = made
        return made

    def event(self, operation: str, line: int, text: str, **facts: object) -> None:
        site = len(self.trace.sites)
        target = text.split(" = ", maxsplit=1)[0] if " = " in text else ""
        self.trace.sites.append(
            Site("/p/main.py", line, 1, line, 9, "<module>", 1, True, text, target)
        )
        event = Event(operation, site, inner=site, grad_mode=self.mode)
        self.trace.events.append(event._replace(**facts))

    def optimizer(self) -> None:
        if not self.trace.optimizers and self.parameters:
            fact = OptimizerFact("SGD", -1, len(self.trace.events), tuple(self.parameters))
            self.trace.optimizers.append(fact)

    def line(self, number: int, text: str) -> None:
        target, _, call = text.rpartition(" = ")
        words = call.split()
        operation, rest = words[0], words[1:]
        if operation == "param":
            made = self.tensor(target, grad="frozen" not in rest)
            self.parameters.append(made.tensor)
            self.event("Parameter", number, text, results=(made,))
            module = rest[0].rpartition(".")[0]
            self.trace.names.append(Name(made.tensor, rest[0], 0, "Net", True, module))
        elif operation == "data":
            self.event("randn", number, text, results=(self.tensor(target),))
        elif operation in {"no_grad", "grad"}:
            on = operation == "grad"
            self.event("set_grad_enabled", number, text, flags=ON if on else 0)
            self.mode = GRAD_ON if on else GRAD_OFF
        elif operation == "backward":
            self.optimizer()
            loss = self.now[rest[0]]
            flags = 0 if loss.requires_grad else RAISED
            self.event("backward", number, text, reads=(loss,), flags=flags, losses=1)
            self.gradients("backward", rest[1:])
        elif operation == "step":
            self.gradients("step", rest)
            self.event("step", number, text)
        elif target:
            self.call(number, text, target, operation, rest)
        else:
            self.write(number, text, operation, rest)

    def gradients(self, moment: str, words: list[str]) -> None:
        status = {
            self.now[name].tensor: value for name, _, value in (w.partition("=") for w in words)
        }
        holder = 0 if moment == "step" else -1
        fact = Gradients(moment, len(self.trace.events), len(self.trace.sites) - 1, holder, status)  # type: ignore[arg-type]
        if status:
            self.trace.gradients.append(fact)

    def call(self, number: int, text: str, target: str, operation: str, rest: list[str]) -> None:
        if rest[:1] in (["<-"], ["<~"]):
            here = len(self.trace.events)
            bridge = Bridge(self.exits[rest[1]], here, rest[0] == "<-", "the number")
            self.trace.bridges.append(bridge)
            self.event(operation, number, text, results=(self.tensor(target),))
            return
        dtype = rest.pop() if rest and rest[-1] in DTYPES else "float32"
        reads = tuple(self.now[name] for name in rest)
        if operation in {"item", "tolist"}:
            self.exits[target] = len(self.trace.events)
            self.event(operation, number, text, reads=reads)
            return
        exact = dtype in {"int64", "bool"}
        keeps = self.mode == GRAD_ON and operation not in CUTS and not exact
        grad = keeps and any(operand.requires_grad for operand in reads)
        storage = reads[0].storage if operation in SHARES else None
        made = self.tensor(target, storage, grad=grad, leaf=not grad, dtype=dtype)
        self.event(operation, number, text, reads=reads, results=(made,))

    def write(self, number: int, text: str, operation: str, rest: list[str]) -> None:
        reads = tuple(self.now[name] for name in rest)
        into = reads[0]
        joins = self.mode == GRAD_ON and into.dtype.startswith("float")
        grad = into.requires_grad or (joins and any(one.requires_grad for one in reads))
        after = into._replace(
            version=into.version + 1, requires_grad=grad, leaf=into.leaf and not (grad and joins)
        )
        self.now[rest[0]] = after
        self.event(operation, number, text, reads=reads, results=(after,), writes=(after,))


def trace(*lines: str) -> Trace:
    """Build a checked trace; event n stands at line n, counted from 1."""
    builder = _Builder()
    for number, text in enumerate(lines, start=1):
        builder.line(number, text)
    builder.optimizer()
    check(builder.trace)
    return builder.trace
