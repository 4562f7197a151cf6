"""`slow-copy`: the same ties can be had in a cheaper way.

Found from facts, here; how much cheaper is not recited but measured, on the machine that ran the
program and at the sizes it used, by `tether.live.factors`. A `Spec` says what to time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.facts import GRAD_ON, UNKNOWN, Operand
from tether.finding import Finding, Fix
from tether.history import History
from tether.verdicts.base import Example, Expected, Verdict, evidence, place
from tether.verdicts.needs import copied, copied_text, nbytes, needs

PAGE = """
# slow-copy

## What it says
This line makes a copy, and the same ties could be had for less: fewer bytes moved, no node made for
the gradient graph and dropped, no new memory at each step, one call instead of one per element. The
factor was measured on this machine, at the sizes that the program used; where the cheaper way was
not at least a tenth faster the finding is not given.

## Why it matters
The two forms look alike. Which is slower depends on the size, on the machine and on what is kept,
and is easily got wrong from memory.

## Known problems
A factor is one of a single call, with its operands at hand; how much of the whole run it is depends
on the program. A report made later from a saved recording gives no factor, since it runs nothing.

## Example
```python
target = torch.tensor(prediction)            # converts through a slow general path
logged = activation.clone().detach()         # puts a node into the graph and drops it
values = [t.item() for t in scores]          # one call and one wait for each element
```

## Use instead
```python
target = prediction.detach().clone()
logged = activation.detach().clone()
values = scores.tolist()
```

## Fix safety
The values are the same. Not applied by itself: whether the copy is needed at all comes first.
"""

LEAST_BYTES = 1 << 20
"""Bytes that a line copies in a run before a slow way of it is told."""
LARGE = 1 << 20
"""Bytes of one copy from which new memory for it is worth avoiding."""
STEPS = 3
"""Executions from which a line counts as one of every step."""
ELEMENTS = 64
"""Elements read one by one from which it is told."""

_CONVERSIONS = frozenset({"to", "cpu", "cuda", "float", "double", "half", "bfloat16", "type"})


class Spec(NamedTuple):
    """Two ways to the same result, to be timed against each other."""

    slow: str  # an expression over `x`; and `out`, memory of its shape
    fast: str
    operand: Operand  # what `x` is like
    device: str


class Slow(NamedTuple):
    """One line that copies in a slow way."""

    at: int  # an event of it
    operand: Operand
    times: int
    nbytes: int
    spec: Spec | None
    what: str  # a clause: "torch.tensor converts what is a tensor already"
    fix: str


Place = tuple[str, int, int, int, int]


def check(history: History) -> Iterator[Finding]:
    """Give each of the user's lines that copies in a slow way."""
    specs: dict[tuple[Place, str], Spec] = history.memo.setdefault("slow-copy", {})
    for one in _slow(history):
        finding = _finding(history, one)
        if one.spec is not None:
            specs[finding.site[:5], finding.operation] = one.spec
        yield finding


def spec_of(history: History, finding: Finding) -> Spec | None:
    """Return what to time for a finding that `check` gave."""
    specs: dict[tuple[Place, str], Spec] = history.memo.get("slow-copy", {})
    return specs.get((finding.site[:5], finding.operation))


def _slow(history: History) -> Iterator[Slow]:
    readers: dict[int, list[int]] = defaultdict(list)
    lines: dict[tuple[int, str], list[int]] = defaultdict(list)
    for at, event in enumerate(history.events):
        for tensor in {one.tensor for one in event.reads}:
            readers[tensor].append(at)
        if event.site >= 0 and event.inner in (UNKNOWN, event.site) and event.note != "raised":
            lines[event.site, event.operation].append(at)
    for (_, operation), places in lines.items():
        found = None
        if operation in ("tensor", "new_tensor"):
            found = _converted(history, places)
        elif operation == "clone":
            found = (
                _node_dropped(history, places, readers)
                or _moved_twice(history, places, readers)
                or _expanded(history, places)
                or _new_each_step(history, places)
            )
        elif operation == "contiguous":
            found = _expanded(history, places)
        elif operation in _CONVERSIONS:
            found = _moved_twice(history, places, readers)
        elif operation == "item":
            found = _one_by_one(history, places)
        if found is not None:
            yield found


def _device(history: History, operand: Operand) -> str:
    fact = history.trace.storages.get(operand.storage)
    return fact.device if fact is not None else "cpu"


def _pairs(history: History, places: list[int]) -> list[tuple[int, Operand, Operand]]:
    return [(at, *pair) for at in places if (pair := copied(history, at)) is not None]


def _largest(pairs: list[tuple[int, Operand, Operand]]) -> tuple[int, Operand, Operand]:
    return max(pairs, key=lambda one: nbytes(one[2]))


def _converted(history: History, places: list[int]) -> Slow | None:
    """Find ``torch.tensor(t)`` and ``x.new_tensor(t)``."""
    pairs = _pairs(history, places)
    total = sum(nbytes(copy) for _, _, copy in pairs)
    if total < LEAST_BYTES:
        return None
    at, source, _ = _largest(pairs)
    event = history.events[at]
    text = copied_text(event.operation, history.site_of(event).expression) or "x"
    slow = "torch.tensor(x)" if event.operation == "tensor" else "x.new_tensor(x)"
    spec = Spec(slow, "x.detach().clone()", source, _device(history, source))
    what = f"{event.operation}() takes a general way for what is a tensor already"
    return Slow(at, source, len(pairs), total, spec, what, f"{text}.detach().clone()")


def _node_dropped(
    history: History, places: list[int], readers: dict[int, list[int]]
) -> Slow | None:
    """Find ``x.clone().detach()``: the clone's node is made, and nothing leads to it."""
    pairs = []
    for at, source, copy in _pairs(history, places):
        event = history.events[at]
        after = [one for one in readers[copy.tensor] if one > at]
        cut = bool(after) and history.events[after[0]].operation == "detach" and len(after) == 1
        if cut and event.grad_mode == GRAD_ON and copy.requires_grad:
            pairs.append((at, source, copy))
    if not pairs or len(pairs) != len(places) or len(pairs) < ELEMENTS:
        return None  # a node costs under a microsecond: only many are worth a word
    at, source, _ = _largest(pairs)
    text = copied_text("clone", history.site_of(history.events[at]).expression) or "x"
    spec = Spec("x.clone().detach()", "x.detach().clone()", source, _device(history, source))
    what = "the clone makes a node of the gradient graph, which the detach drops at once"
    total = sum(nbytes(copy) for _, _, copy in pairs)
    return Slow(at, source, len(pairs), total, spec, what, f"{text}.detach().clone()")


def _moved_twice(history: History, places: list[int], readers: dict[int, list[int]]) -> Slow | None:
    """Find two copies on the way to another device, where one would do."""
    count = total = 0
    last: tuple[int, Operand] | None = None
    for at in places:
        event = history.events[at]
        if not event.reads or not event.results:
            continue
        source, made = event.reads[0], event.results[0]
        after = [one for one in readers[made.tensor] if one > at]
        if source.storage == made.storage or len(after) != 1:
            continue
        then = history.events[after[0]]
        if then.operation not in _CONVERSIONS or not then.results or then.site == UNKNOWN:
            continue
        moved = _device(history, then.results[0]) != _device(history, made)
        if moved and _device(history, source) == _device(history, made):
            count, total, last = count + 1, total + nbytes(made), (at, source)
    if last is None or total < LEAST_BYTES:
        return None
    event = history.events[last[0]]
    text = copied_text(event.operation, history.site_of(event).expression) or "x"
    what = f"{event.operation} copies on the device, and the next call copies to another"
    return Slow(last[0], last[1], count, total, None, what,
                f"one call: {text}.to(device, dtype), which is a copy already")  # fmt: skip


def _expanded(history: History, places: list[int]) -> Slow | None:
    """Find copies that write each element many times over: of an expanded tensor."""
    pairs = []
    for at, source, copy in _pairs(history, places):
        own = 1
        for size, stride in zip(source.shape, source.strides, strict=False):
            own *= size if stride else 1
        written = any(True for _ in history.writes_to(copy, at))
        if own and nbytes(copy) >= LEAST_BYTES and not written:
            times = 1
            for size in copy.shape:
                times *= size
            if times >= 4 * own:
                pairs.append((at, source, copy))
    if not pairs or len(pairs) != len(places):
        return None
    at, source, _ = _largest(pairs)
    event = history.events[at]
    spec = Spec("x.clone()", "base.clone().expand(x.shape)", source, _device(history, source))
    what = "an expanded tensor is copied, each of its elements many times, and never written"
    text = copied_text(event.operation, history.site_of(event).expression) or "x"
    total = sum(nbytes(copy) for _, _, copy in pairs)
    return Slow(at, source, len(pairs), total, spec, what, f"copy before expanding, or use {text}")


def _new_each_step(history: History, places: list[int]) -> Slow | None:
    """Find a large copy made anew at each step, the one before it gone by then."""
    pairs = [one for one in _pairs(history, places) if nbytes(one[2]) >= LARGE]
    if len(pairs) < STEPS or len(history.steps) < STEPS:
        return None
    first = history.events[pairs[0][0]]
    if any(need.needed == "no" for key, need in needs(history).items() if key[0] == first.site):
        return None  # better left out altogether
    if len({(copy.shape, copy.dtype) for _, _, copy in pairs}) > 1:
        return None
    for (_, _, copy), (later, _, _) in zip(pairs[:-2], pairs[2:], strict=True):
        life = history.trace.storages[copy.storage]
        if life.freed == UNKNOWN or history.position(life.freed) > later:
            return None  # they are kept: each needs memory of its own
    at, source, copy = pairs[-1]
    if copy.requires_grad:
        return None  # the graph keeps it until backward
    spec = Spec("x.clone()", "out.copy_(x)", source, _device(history, source))
    what = "it takes new memory at each step, and the memory of the step before has just gone"
    total = sum(nbytes(one) for _, _, one in pairs)
    return Slow(at, source, len(pairs), total, spec, what,
                "tether.copy(x, out=buffer), or tether.Snapshot for a whole model")  # fmt: skip


def _one_by_one(history: History, places: list[int]) -> Slow | None:
    """Find ``item()`` called once for each element of one tensor."""
    by_memory: dict[tuple[int, int], list[tuple[int, Operand]]] = defaultdict(list)
    for at in places:
        (operand,) = history.events[at].reads[:1]
        if not operand.shape:
            by_memory[operand.storage, operand.version].append((at, operand))
    best = max(by_memory.values(), key=len, default=[])
    offsets = {operand.offset for _, operand in best}
    if len(offsets) < ELEMENTS:
        return None
    at, operand = best[0]
    like = operand._replace(shape=(len(offsets),), strides=(1,))
    spec = Spec("[one.item() for one in x]", "x.tolist()", like, _device(history, operand))
    count = sum(map(len, by_memory.values()))
    what = f"one call for each of {len(offsets)} elements of one tensor"
    return Slow(at, operand, count, 0, spec, what, "the whole tensor's .tolist(), once")


def _finding(history: History, one: Slow) -> Finding:
    event = history.events[one.at]
    site = history.site_of(event)
    subject = site.target or history.name_of(one.operand.tensor).strip("`")
    return Finding(
        slug="slow-copy",
        severity="note",
        subject=subject,
        site=site,
        operation=event.operation,
        message=f"`{subject}` ({place(site)}) is copied in a slow way: {one.what}.",
        evidence=(evidence(history, "made", event, one.what),),
        fix=Fix(f"Use {one.fix}."),
        count=one.times,
        bytes=one.nbytes or None,
        tensors=(one.operand.tensor,),
    )


VERDICT = Verdict(
    slug="slow-copy",
    severity="note",
    summary="the same ties can be had in a cheaper way; the factor is measured here",
    page=PAGE,
    check=check,
    examples=(
        Example(
            "torch.tensor of a tensor",
            """import torch

x = torch.randn(512, 1024)
y = torch.tensor(x)
print(y.sum().item())
""",
            (Expected("slow-copy", "y", 4),),
        ),
        Example(
            "An element at a time",
            """import torch

scores = torch.randn(200)
values = [one.item() for one in scores]
""",
            (Expected("slow-copy", "values", 4),),
        ),
        Example(
            "A large copy at each step, that the next one replaces",
            """import torch

w = torch.nn.Parameter(torch.zeros(600, 1024))
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(6):
    before = w.detach().clone()
    w.sum().backward()
    optimizer.step()
    print((w - before).abs().max().item())
""",
            (Expected("slow-copy", "before", 6),),
        ),
        Example(
            "Small, and large ones that are kept",
            """import torch

w = torch.nn.Parameter(torch.zeros(600, 1024))
optimizer = torch.optim.SGD([w], lr=0.1)
kept = [torch.tensor(w[:2, :2].detach())]
for step in range(4):
    kept.append(w.detach().clone())
    w.sum().backward()
    optimizer.step()
print([one.item() for one in torch.ones(8)])
""",
        ),
    ),
)
