"""Random programs of rulebook calls, as text, and the facts to compare.

A program grows line by line while the predictor runs along, so that every line fits the tensors
there are: shapes that can be added, views that exist. Whether a line raises is part of the game.
"""

from __future__ import annotations

import re

from hypothesis import strategies as st

from predictor.graph import Tensor
from predictor.layout import LayoutError, elementwise, overlaps_itself
from predictor.machine import Array
from predictor.predict import Predictor
from tether.facts import Operand, Raised, Trace

START = ["torch.ones(2, 3)", "torch.ones(2, 3, requires_grad=True)", "torch.zeros(3)",
         "torch.ones(3, requires_grad=True)", "torch.ones(2, 1, 3)"]  # fmt: skip
COPIES = ["clone()", "detach()", "data", "contiguous()", "double()", "float()", "cpu()",
          "to(torch.float64)"]  # fmt: skip
COMPUTED = ["exp()", "neg()", "relu()", "sign()", "round()", "sum()"]
VIEWS = ["reshape(-1)", "unsqueeze(0)", "unsqueeze(-1)", "squeeze()"]
WRITES = ["add_(1)", "mul_(2)", "exp_()", "zero_()", "fill_(3)", "requires_grad_()",
          "requires_grad_(False)", "detach_()"]  # fmt: skip


@st.composite
def programs(draw: st.DrawFn, size: int = 14) -> str:
    """Draw a program of up to `size` statements, each of which may raise."""
    predictor = Predictor()
    for number in range(draw(st.integers(2, size))):
        line = draw(_line(predictor, f"v{number}"))
        if number == 0:
            line = "v0 = torch.ones(2, 3, requires_grad=True)"  # something to derive
        elif not _makes_view(line) and draw(st.integers(0, 5)) == 0:
            line = "with torch.no_grad():\n    " + line.replace("\n", "\n    ")
        predictor.run(_caught(line))
    for name, value in list(predictor.names.items())[::-1]:
        if isinstance(value, Tensor) and value.requires_grad and draw(st.booleans()):
            predictor.run(_caught(f"{name}.sum().backward(retain_graph=True)"))
    return predictor.program


def _makes_view(line: str) -> bool:
    """Whether a line makes a view; left out of no_grad, known programs have those.

    A view made under no_grad says that it requires grad, and refuses to follow its base; in which
    order PyTorch complains about that is not predicted for every call.
    """
    made = re.fullmatch(r"v\d+ = v\d+(\[.*\]|\.(\w+)\(.*)", line)
    return made is not None and (made[2] is None or made[2] in _VIEW_NAMES)


_VIEW_NAMES = {"reshape", "unsqueeze", "squeeze", "t", "transpose", "diagonal", "permute", "view",
               "select", "narrow", "expand", "unbind", "split"}  # fmt: skip


def _caught(line: str) -> str:
    body = line.replace("\n", "\n    ")
    return f"try:\n    {body}\nexcept Exception:\n    pass\n"


@st.composite
def _line(draw: st.DrawFn, predictor: Predictor, new: str) -> str:
    tensors = {n: v for n, v in predictor.names.items() if isinstance(v, Tensor)}
    arrays = [name for name, value in predictor.names.items() if isinstance(value, Array)]
    kinds = [_start, _copy, _computed, _computed, _view, _view, _item, _product, _product, _write,
             _write, _write_item, _augmented, _backward, _leave, _wrap, _parts, _set_data, _join,
    ]  # fmt: skip
    if arrays:
        kinds.append(lambda draw, *_: _array(draw, arrays, new))
    kind = draw(st.sampled_from(kinds)) if tensors else _start
    return kind(draw, tensors, new)


def _start(draw, tensors, new):
    return f"{new} = {draw(st.sampled_from(START))}"


def _name(draw, tensors):
    return draw(st.sampled_from(sorted(tensors)))


def _copy(draw, tensors, new):
    return f"{new} = {_name(draw, tensors)}.{draw(st.sampled_from(COPIES))}"


def _computed(draw, tensors, new):
    return f"{new} = {_name(draw, tensors)}.{draw(st.sampled_from(COMPUTED))}"


def _view(draw, tensors, new):
    name = _name(draw, tensors)
    shape = tensors[name].layout.shape
    views = list(VIEWS)
    if len(shape) <= 2:
        views.append("t()")
    if len(shape) >= 2:
        views += ["transpose(0, -1)", "diagonal()"]
        views.append(f"permute({', '.join(map(str, [*range(1, len(shape)), 0]))})")
    if shape:
        views += [f"view({', '.join(map(str, reversed(shape)))})", "select(0, 0)",
                  f"narrow(-1, 0, {max(shape[-1] - 1, 1)})",
                  f"expand(2, {', '.join(map(str, shape))})"]  # fmt: skip
    return f"{new} = {name}.{draw(st.sampled_from(views))}"


def _keys(shape):
    keys = ["...", "None"]
    if shape:
        keys += ["0", "1:", ":1", "::2", "-1"]
    if len(shape) > 1:
        keys += [":, 1:", "..., 0", "0, None"]
    return keys


def _item(draw, tensors, new):
    name = _name(draw, tensors)
    key = draw(st.sampled_from(_keys(tensors[name].layout.shape)))
    return f"{new} = {name}[{key}]"


def _fitting(draw, tensors, name, *, target):
    """Draw a second operand: one that fits `name`, or a number."""
    shape = tensors[name].layout.shape
    fitting = ["2"]
    for other, value in tensors.items():
        try:
            common = elementwise([tensors[name].layout, value.layout]).shape
        except LayoutError:
            continue
        if not target or common == shape:
            fitting.append(other)
    return draw(st.sampled_from(fitting))


def _product(draw, tensors, new):
    name = _name(draw, tensors)
    other = _fitting(draw, tensors, name, target=False)
    return f"{new} = {name} {draw(st.sampled_from('+*-'))} {other}"


def _write(draw, tensors, new):
    name = _name(draw, tensors)
    if overlaps_itself(tensors[name].layout):
        return f"{name}.add_(1)"  # refused; to fill it is not, and backward fails then
    call = draw(st.sampled_from([*WRITES, "add_", "mul_", "copy_"]))
    if not call.endswith(")"):
        other = _fitting(draw, tensors, name, target=True)
        call = f"{call}({other})" if other != "2" else "add_(2)"
    return f"{name}.{call}"


def _write_item(draw, tensors, new):
    name = _name(draw, tensors)
    key = draw(st.sampled_from(_keys(tensors[name].layout.shape)))
    return f"{name}[{key}] = {draw(st.sampled_from(['0', '5']))}"


def _augmented(draw, tensors, new):
    name = _name(draw, tensors)
    other = _fitting(draw, tensors, name, target=True)
    return f"{name} {draw(st.sampled_from(['+=', '*=']))} {other}"


def _backward(draw, tensors, new):
    flag = draw(st.sampled_from(["", "retain_graph=True"]))
    return f"{_name(draw, tensors)}.sum().backward({flag})"


def _leave(draw, tensors, new):
    call = draw(st.sampled_from(["numpy()", "detach().numpy()", "numpy(force=True)"]))
    return f"{new} = {_name(draw, tensors)}.{call}"


def _wrap(draw, tensors, new):
    call = draw(st.sampled_from(["torch.nn.Parameter", "copy.deepcopy"]))
    return f"{new} = {call}({_name(draw, tensors)})"


def _parts(draw, tensors, new):
    wide = sorted(n for n, v in tensors.items() if v.layout.shape and v.layout.shape[0])
    if not wide:
        return _start(draw, tensors, new)
    name = draw(st.sampled_from(wide))
    return f"{new} = {name}.{draw(st.sampled_from(['unbind()', 'split(2)']))}[0]"


def _join(draw, tensors, new):
    plain = sorted(n for n, v in tensors.items() if v.layout.contiguous and v.layout.shape)
    if not plain:
        return _start(draw, tensors, new)
    name = draw(st.sampled_from(plain))
    like = (tensors[name].layout.shape, tensors[name].dtype)
    same = [n for n in plain if (tensors[n].layout.shape, tensors[n].dtype) == like]
    call = draw(st.sampled_from(["cat", "stack"]))
    return f"{new} = torch.{call}([{name}, {draw(st.sampled_from(same))}])"


def _set_data(draw, tensors, new):
    name = _name(draw, tensors)
    shape, dtype = tensors[name].layout.shape, tensors[name].dtype
    same = sorted(n for n, v in tensors.items() if v.layout.shape == shape and v.dtype == dtype)
    return f"{name}.data = {draw(st.sampled_from(same))}"


def _array(draw, arrays, new):
    name = draw(st.sampled_from(arrays))
    return draw(st.sampled_from([f"{new} = torch.from_numpy({name})", f"{name}[...] = 7"]))


def differences(seen: Trace, said: Trace) -> list[str]:
    """Compare two traces fact for fact; serial numbers are compared by who is who."""
    found: list[str] = []
    left, right = _Serials(), _Serials()
    for number in range(max(len(seen.events), len(said.events))):
        if number >= len(seen.events) or number >= len(said.events):
            longer = seen if number < len(seen.events) else said
            found.append(f"event {number} is only {'seen' if longer is seen else 'said'}:"
                         f" {longer.events[number].operation}")  # fmt: skip
            break
        one, two = left.event(seen, number), right.event(said, number)
        found += [f"event {number} {key}: seen {one[key]}, said {two[key]}"
                  for key in one if one[key] != two[key]]  # fmt: skip
        if found:
            return found
    for one, two in zip(left.gradients(seen), right.gradients(said), strict=True):
        # What the program holds no longer, only the prediction remembers.
        found += _compared("gradients", one, {key: two[key] for key in two if key in one})
    expected = iter(said.raised)
    for error in seen.raised:
        if not any(_fits(error, other) for other in expected):
            found.append(f"raised: seen {error.type} {error.message!r}")
    found += _compared("storages", left.storages(seen), right.storages(said))
    found += _compared("memories", left.regions(seen), right.regions(said))
    # Of several exports of one memory, a recording names the last; some it cannot see at all.
    entries = {one.entry for one in said.bridges}
    found += [f"bridge: seen {one}" for one in seen.bridges if one.entry not in entries]
    # Whether an array's write changed any byte is a matter of values, which are not predicted.
    possible = {(right.memories.get(one.storage), one.event) for one in said.unseen}
    for one in seen.unseen:
        if (left.memories.get(one.storage), one.event) not in possible:
            found.append(f"unseen: seen {one}, said {said.unseen}")
    found += _compared("outcome", seen.outcome, said.outcome)
    return found


def _fits(seen: Raised, said: Raised) -> bool:
    return seen.type == said.type and said.message.lower() in seen.message.lower()


def _compared(what, seen, said):
    return [] if seen == said else [f"{what}: seen {seen}, said {said}"]


class _Serials:
    """Renumbers tensors and storages by first appearance."""

    def __init__(self) -> None:
        self.tensors: dict[int, int] = {}
        self.memories: dict[int, int] = {}
        self.leaves: dict[tuple[int, int, bool], bool] = {}

    def operand(self, one: Operand) -> Operand:
        # A view that follows its base does so without a new version: a recording goes on saying
        # what it saw first.
        key = (one.tensor, one.version, one.requires_grad)
        return one._replace(
            leaf=self.leaves.setdefault(key, one.leaf),
            tensor=self.tensors.setdefault(one.tensor, len(self.tensors)),
            storage=self.memories.setdefault(one.storage, len(self.memories)),
        )

    def event(self, trace: Trace, number: int) -> dict[str, object]:
        event = trace.events[number]
        return {
            "operation": event.operation,
            "line": trace.sites[event.site].line,
            "reads": [self.operand(one) for one in event.reads],
            "results": [self.operand(one) for one in event.results],
            "writes": [self.operand(one) for one in event.writes],
            "grad mode": event.grad_mode,
            "flags": event.flags,
        }

    def gradients(self, trace: Trace) -> list[dict[int, bool]]:
        """Which leaves have a gradient after each backward."""
        return [
            {self.tensors[t]: s != "none" for t, s in fact.status.items() if t in self.tensors}
            for fact in trace.gradients
            if fact.moment == "backward"
        ]

    def regions(self, trace: Trace) -> set[frozenset[int]]:
        """Which storages lie on the same bytes."""
        groups: dict[int, set[int]] = {}
        for serial, number in self.memories.items():
            region = trace.storages[serial].memory
            if region >= 0:
                groups.setdefault(region, set()).add(number)
        return {frozenset(group) for group in groups.values() if len(group) > 1}

    def storages(self, trace: Trace) -> dict[int, int]:
        """How many bytes each storage has."""
        return {n: trace.storages[s].nbytes for s, n in self.memories.items()}
