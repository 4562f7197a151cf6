"""Transfers between devices, on facts made by hand: there need not be a device.

A program is a list of lines ``y@cuda = to x !note * 100``: the call `to` with `x`, whose result is
`y` on that device. ``!note`` is the event's note, ``* 100`` runs the line a hundred times, each with
a result of its own. Calls that end in _ write their first tensor. Line n of the list is line n of
the file.
"""

from __future__ import annotations

import re

import pytest

from tether.analysis.history import History
from tether.facts import (
    NON_BLOCKING,
    RAISED,
    Event,
    Gap,
    Operand,
    Site,
    StorageFact,
    TensorFact,
    Trace,
    Unseen,
)
from tether.store.fields import check
from tether.verdicts import needless_copy, repeated_transfer, slow_copy
from tether.verdicts.judging import judged

_LINE = re.compile(r"(?:(\w+)@(\w+) = )?(\w+)((?: \w+)*)(?: !(\w+))?(?: \* (\d+))?$")


class Program:
    """A trace in the making; `shapes` and `dtypes` of its variables, (600, 600) float32."""

    def __init__(self, *lines, shapes=None, dtypes=None, texts=None):
        self.trace = Trace(folder="/p", program=["p.py"])
        self.shapes, self.dtypes = shapes or {}, dtypes or {}
        self.now = {}
        for number, text in enumerate(lines, 1):
            made, device, operation, reads, note, times = _LINE.match(text).groups()
            shown = (texts or {}).get(operation, f"{operation}()")
            self.trace.sites.append(Site("/p/p.py", number, 1, number, 9, "", 1, True, shown))
            for _ in range(int(times or 1)):
                self.event(number - 1, made, device, operation, reads.split(), note or "")
        check(self.trace)

    def event(self, site, made, device, operation, names, note):
        reads = tuple(self.now[name] for name in names)
        if made:
            share = reads[0] if operation in ("detach", "share_memory_", "numpy") else None
            results = (self.tensor(made, device, share),)
            writes = ()
        else:
            results = writes = ()
            if operation.endswith("_"):
                after = reads[0]._replace(version=reads[0].version + 1)
                self.now[names[0]], results, writes = after, (after,), (after,)
        flags = {"non_blocking": NON_BLOCKING, "raised": RAISED}.get(note, 0)
        event = Event(operation, site, reads, results, writes, inner=site, flags=flags)
        self.trace.events.append(event)

    def tensor(self, name, device, share):
        number, now = len(self.trace.tensors), len(self.trace.events)
        before = self.now.get(name)
        if before is not None and before.storage in self.trace.storages:
            fact = self.trace.storages[before.storage]
            self.trace.storages[before.storage] = fact._replace(freed=now)
        shape, dtype = self.shapes.get(name, (600, 600)), self.dtypes.get(name, "float32")
        strides = tuple(shape[n + 1] if n + 1 < len(shape) else 1 for n in range(len(shape)))
        self.trace.tensors[number] = TensorFact("Tensor", now)
        storage = number if share is None else share.storage
        if share is None:
            self.trace.storages[number] = StorageFact(1 << 20, device, now)
        version = 0 if share is None else share.version
        self.now[name] = Operand(
            number, storage, version, 0, shape, strides, dtype, requires_grad=False, leaf=True
        )
        return self.now[name]

    def found(self, verdict):
        """Return what a verdict says, as (line, operation, count)."""
        findings = judged(History(self.trace), [verdict.VERDICT])
        return sorted((one.site.line, one.operation, one.count) for one in findings)

    def only(self, verdict):
        (found,) = judged(History(self.trace), [verdict.VERDICT])
        return found


SIZE = 4 * 600 * 600
SMALL = {"shapes": {"x": (10,), "y": (10,)}}

# -- repeated-transfer -----------------------------------------------------------------------------


def test_the_same_bytes_at_each_step():
    found = Program("x@cpu = randn", "y@cuda = to x * 5").only(repeated_transfer)
    assert (found.site.line, found.count, found.bytes) == (2, 4, 4 * SIZE)
    assert found.message.startswith("Moved to cuda again, 4 times at line 2: `randn()`, ")


def test_the_same_bytes_from_two_lines():
    program = Program("x@cpu = randn", "y@cuda = to x", "z@cuda = cuda x")
    found = program.only(repeated_transfer)
    assert (found.site.line, found.count, found.bytes) == (3, 1, SIZE)
    assert [one.site.line for one in found.evidence] == [2, 3]


def test_back_to_the_host():
    program = Program("x@cuda = randn", "y@cpu = cpu x * 3")
    assert program.found(repeated_transfer) == [(2, "cpu", 2)]


def test_into_a_buffer():
    program = Program("x@cpu = randn", "b@cuda = empty", "copy_ b x * 3")
    found = program.only(repeated_transfer)
    assert found.count == 2
    assert "write a clone" in found.fix.text


def test_through_a_view_of_the_same_elements():
    program = Program("x@cpu = randn", "y@cuda = to x", "v@cpu = detach x", "z@cuda = to v")
    assert program.found(repeated_transfer) == [(4, "to", 1)]


@pytest.mark.parametrize(
    "lines",
    [
        ("x@cpu = randn", "y@cuda = to x", "add_ x", "z@cuda = to x"),  # written
        ("x@cpu = randn", "y@cuda = to x", "v@cpu = detach x", "add_ v", "z@cuda = to x"),
        ("x@cpu = randn", "y@cuda = to x", "z@other = to x"),  # to another device
        ("x@cpu = randn", "y@cpu = to x * 3"),  # nothing is moved
        ("x@cuda = randn", "y@meta = to x * 3"),
        ("x@cpu = randn", "y@cuda = to x !raised * 3"),
        ("x@cpu = randn", "s@cpu = share_memory_ x", "y@cuda = to x * 3"),  # another process
    ],
)
def test_bytes_that_had_to_be_moved(lines):
    assert Program(*lines).found(repeated_transfer) == []


def test_after_a_write_it_begins_anew():
    program = Program("x@cpu = randn", "y@cuda = to x * 2", "add_ x", "z@cuda = to x * 3")
    assert program.found(repeated_transfer) == [(2, "to", 1), (4, "to", 2)]


def test_what_came_from_elsewhere_may_be_written_elsewhere():
    program = Program("x@cpu = randn", "y@cuda = to x * 3")
    program.trace.events = program.trace.events[1:]  # not heard to be made: from a queue, say
    assert program.found(repeated_transfer) == []


def test_few_bytes_are_not_told():
    assert Program("x@cpu = randn", "y@cuda = to x * 99", **SMALL).found(repeated_transfer) == []


def test_a_write_that_was_not_heard():
    program = Program("x@cpu = randn", "y@cuda = to x * 2")
    program.trace.unseen.append(Unseen(0, 1, 2, 0, 0))
    assert program.found(repeated_transfer) == []


def test_a_version_that_rose_unheard():
    program = Program("x@cpu = randn", "y@cuda = to x * 2")
    last = program.trace.events[-1]
    program.trace.events[-1] = last._replace(reads=(last.reads[0]._replace(version=1),))
    assert program.found(repeated_transfer) == []


@pytest.mark.parametrize(("gap", "count"), [("", 1), ("array-time", 0)])
def test_an_array_on_the_memory(gap, count):
    program = Program("x@cpu = randn", "a@cpu = numpy x", "y@cuda = to x * 2")
    program.trace.gaps += [Gap(gap)] if gap else []
    assert len(program.found(repeated_transfer)) == count


# -- slow-copy between devices ---------------------------------------------------------------------


def test_two_copies_on_the_way_to_a_device():
    """Where it is known that the clone was not needed that says more; else both copies are told."""
    program = Program("x@cuda = randn", "y@cuda = clone x", "z@cpu = cpu y")
    assert program.found(needless_copy) == [(2, "clone", 1)]
    assert program.found(slow_copy) == []
    program.trace.outcome = "raised"
    program.trace.dropped = 1
    assert program.found(needless_copy) == []
    found = program.only(slow_copy)
    assert (found.site.line, found.operation, found.bytes) == (2, "clone", SIZE)
    assert "the move to cpu copies again" in found.message
    assert [one.site.line for one in found.evidence] == [2, 3]


def test_two_copies_though_the_first_would_be_needed_for_itself():
    lines = ("x@cuda = randn", "y@cuda = clone x", "z@cpu = cpu y", "add_ x", "w@cpu = mul z")
    program = Program(*lines)
    assert program.found(needless_copy) == []
    assert program.found(slow_copy) == [(2, "clone", 1)]


@pytest.mark.parametrize(
    "lines",
    [
        ("x@cuda = randn", "y@cuda = clone x", "z@cpu = cpu y", "w@cuda = mul y"),  # of use
        ("x@cuda = randn", "y@cuda = clone x", "z@cpu = to y !non_blocking"),  # a guard
        ("x@cuda = randn", "y@cpu = cpu x", "z@cpu = clone y", "add_ z", "w@cpu = mul y z"),
    ],
)
def test_a_clone_that_has_its_use(lines):
    program = Program(*lines)
    program.trace.dropped = 1
    assert program.found(slow_copy) == []


def test_widened_before_it_is_moved():
    lines = ("x@cpu = randint", "y@cpu = float x", "z@cuda = to y")
    found = Program(*lines, dtypes={"x": "uint8"}).only(slow_copy)
    assert (found.site.line, found.operation, found.bytes) == (2, "float", 3 * 600 * 600)
    assert ".to('cuda').to(torch.float32)" in found.fix.text


@pytest.mark.parametrize(
    ("lines", "dtypes"),
    [
        (("x@cpu = randn", "y@cpu = half x", "z@cuda = to y"), {"y": "float16"}),  # fewer bytes
        (("x@cpu = randint", "y@cuda = to x", "z@cuda = float y"), {"x": "uint8", "y": "uint8"}),
        (("x@cpu = randint", "y@cpu = float x", "z@cpu = mul y"), {"x": "uint8"}),  # stays
    ],
)
def test_conversions_in_the_better_order(lines, dtypes):
    assert Program(*lines, dtypes=dtypes).found(slow_copy) == []


def test_non_blocking_from_memory_that_is_not_pinned():
    lines = ("x@cpu = randn", "b@cpu = mul x", "y@cuda = to b !non_blocking")
    found = Program(*lines).only(slow_copy)
    assert (found.site.line, found.bytes) == (3, SIZE)
    assert "the host waits" in found.message


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (("x@cpu = randn", "b@cpu = pin_memory x", "y@cuda = to b !non_blocking"), {}),
        (("b@cpu = empty", "y@cuda = to b !non_blocking"), {"empty": "empty(9, pin_memory=True)"}),
        (("b@cpu = empty", "y@cuda = to b !non_blocking"), {"empty": "empty(9, **options)"}),
        (("b@cpu = empty", "y@cuda = to b !non_blocking"), {"empty": ""}),
        (("x@cuda = randn", "y@cpu = to x !non_blocking"), {}),
        (("x@cpu = randn", "b@cpu = mul x", "y@cuda = to b"), {}),
    ],
)
def test_memory_that_may_be_pinned_or_is_waited_for_anyway(lines, texts):
    assert Program(*lines, texts=texts).found(slow_copy) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("item x * 100", "item waits until cuda has done all before it"),
        ("tolist x * 100", "tolist waits"),
        ("y@cpu = cpu x * 100", "cpu waits"),
        ("y@cpu = to x * 100", "to waits"),
    ],
)
def test_a_few_bytes_off_the_device_at_each_step(line, words):
    found = Program("x@cuda = randn", line, **SMALL).only(slow_copy)
    assert (found.site.line, found.count) == (2, 100)
    assert "100 transfers of 40 bytes from cuda to cpu" in found.message
    assert words in found.message


def test_a_few_bytes_to_the_device_at_each_step():
    found = Program("x@cpu = randn", "y@cuda = to x * 100", **SMALL).only(slow_copy)
    assert found.count == 100
    assert "waits" not in found.message


@pytest.mark.parametrize(
    ("lines", "shape"),
    [
        (("x@cuda = randn", "item x * 20"), (10,)),  # now and then
        (("x@cpu = randn", "item x * 100"), (10,)),  # nothing is moved
        (("x@cuda = randn", "y@cpu = cpu x * 100"), (600, 600)),  # it is the bytes that cost
        (("x@cuda = randn", "y@cpu = to x !non_blocking * 100"), (10,)),  # nothing waits
    ],
)
def test_transfers_in_good_measure(lines, shape):
    program = Program(*lines, shapes={"x": shape, "y": shape})
    assert program.found(slow_copy) == []
