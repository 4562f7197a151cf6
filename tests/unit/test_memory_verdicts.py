"""The memory verdicts on facts made by hand: devices, and what the tables say is saved."""

from __future__ import annotations

import pytest

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import overlaps_itself
from tether.facts import NON_BLOCKING, Event, Operand, Site, StorageFact, TensorFact, Trace
from tether.source.names import common_place
from tether.store.fields import check
from tether.verdicts import storage_pinned, unsynchronized_read
from tether.verdicts.judging import judged


def operand(tensor, storage=None, *, shape=(4,), strides=(1,), offset=0, grad=False, leaf=True):
    storage = tensor if storage is None else storage
    return Operand(tensor, storage, 0, offset, shape, strides, "float32", grad, leaf)


GPU, HOST = operand(0), operand(1)


def copied(*events: Event, device: str = "cuda:0") -> list[str]:
    """Findings of a trace in which tensor 0 is on a device and tensor 1 on the host."""
    trace = Trace(folder="/p")
    trace.storages = {0: StorageFact(16, device, 0), 1: StorageFact(16, "cpu", 0)}
    trace.tensors = {0: TensorFact("Tensor", 0), 1: TensorFact("Tensor", 0)}
    for line, event in enumerate(events, 1):
        trace.sites.append(Site("/p/main.py", line, target="host" if line == 1 else ""))
        trace.events.append(event._replace(site=line - 1, inner=line - 1))
    check(trace)
    found = judged(History(trace), [unsynchronized_read.VERDICT])
    return [f"{one.subject} {one.site.line}" for one in found]


COPY = Event("to", 0, (GPU,), (HOST,), flags=NON_BLOCKING)
READ = Event("item", 0, (HOST,))


def test_a_read_before_the_wait_is_told_at_its_line():
    assert copied(COPY, READ) == ["host 2"]


@pytest.mark.parametrize(
    "wait", [Event("synchronize", 0), Event("item", 0, (GPU,)), Event("cpu", 0, (GPU,), ())]
)
def test_a_wait_makes_it_right(wait):
    assert copied(COPY, wait, READ) == []


def test_a_copy_that_waits_by_itself_is_right():
    assert copied(COPY._replace(flags=0), READ) == []


def test_a_copy_within_the_host_is_right():
    assert copied(COPY, READ, device="cpu") == []


def test_a_write_of_the_host_memory_by_a_second_copy_is_no_read():
    again = Event("copy_", 0, (HOST, GPU), (HOST,), (HOST,), flags=NON_BLOCKING)
    assert copied(again, again) == []


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 8), (0, 1), True),  # expand
        ((5, 3), (1, 1), True),  # unfold with steps smaller than its windows
        ((3, 8), (8, 1), False),
        ((8, 3), (1, 8), False),  # transposed
        ((1, 8), (0, 1), False),  # a dimension of one place
        ((2, 3), (6, 2), False),  # with gaps
    ],
)
def test_which_tensors_overlap_themselves(shape, strides, expected):
    assert overlaps_itself(operand(0, shape=shape, strides=strides)) is expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["best['w']", "best['b']"], "best"),
        (["replay.rows[0][1]", "replay.rows[3][0]"], "replay.rows"),
        (["net.target.0.weight", "net.target.2.bias"], "net.target"),
        (["a", "b"], ""),
    ],
)
def test_the_container_of_names(names, expected):
    assert common_place(names) == expected


@pytest.mark.parametrize(("rows", "expected"), [(10, ["rows"]), (10_000, [])])
def test_only_a_small_part_of_a_large_storage_is_told(rows, expected):
    trace = Trace(folder="/p")
    table = operand(0, 0, shape=(20_000, 4), strides=(4, 1))
    view = operand(1, 0, shape=(rows, 4), strides=(4, 1))
    trace.storages = {0: StorageFact(320_000, "cpu", 0)}
    trace.tensors = {0: TensorFact("Tensor", 0), 1: TensorFact("Tensor", 1)}
    trace.sites = [Site("/p/main.py", n, target=t) for n, t in ((1, "table"), (2, "rows"), (3, ""))]
    trace.events = [
        Event("randn", 0, (), (table,), inner=0),
        Event("narrow", 1, (table,), (view,), inner=1),
        Event("save", 2, (view,), inner=2),
    ]
    check(trace)
    assert [one.subject for one in storage_pinned.check(History(trace))] == expected
