"""Transfers between devices, on facts made by hand: there need not be a device."""

import pytest

from tether.facts import Event, Operand, Site, StorageFact, TensorFact, Trace
from tether.history import History
from tether.verdicts import repeated_transfer, slow_copy

SHAPE = (200, 200)
SIZE = 4 * 200 * 200


def operand(number, *, version=0, shape=SHAPE):
    strides = (shape[-1], 1) if len(shape) == 2 else (1,) * len(shape)
    return Operand(number, number, version, 0, shape, strides, "float32",
                   requires_grad=False, leaf=True)  # fmt: skip


def history(events, devices):
    trace = Trace(program=["p.py"], events=events)
    trace.sites = [Site("/p.py", line, 1, line, 9, expression=f"call{line}") for line in range(9)]
    trace.storages = {n: StorageFact(SIZE, device, 0) for n, device in devices.items()}
    trace.tensors = {n: TensorFact("Tensor", 0) for n in devices}
    return History(trace)


def send(site, source, target, **note):
    return Event("to", site, (operand(source),), (operand(target),), **note)


def test_the_same_bytes_twice():
    events = [send(1, 0, 1), send(2, 0, 2), send(2, 0, 3)]
    (found,) = repeated_transfer.check(
        history(events, {0: "cpu", 1: "cuda:0", 2: "cuda:0", 3: "cuda:0"})
    )
    assert (found.site.line, found.count, found.bytes) == (2, 2, 2 * SIZE)
    assert found.evidence[0].site.line == 1


@pytest.mark.parametrize(
    ("between", "devices"),
    [
        ([Event("add_", 3, (operand(0),), (), (operand(0, version=1),))], {}),  # written
        ([], {2: "cuda:1"}),  # another device
        ([], {1: "cpu", 2: "cpu"}),  # nothing is moved
    ],
)
def test_bytes_that_had_to_be_moved(between, devices):
    events = [send(1, 0, 1), *between, send(2, 0, 2)]
    there = {0: "cpu", 1: "cuda:0", 2: "cuda:0", **devices}
    assert not list(repeated_transfer.check(history(events, there)))


def test_what_is_small_is_not_told():
    small = {"shape": (10,)}
    events = [Event("to", n, (operand(0, **small),), (operand(n, **small),)) for n in (1, 2)]
    assert not list(repeated_transfer.check(history(events, {0: "cpu", 1: "cuda:0", 2: "cuda:0"})))


def test_two_copies_on_the_way_to_a_device():
    there = {n: "cuda:0" if n % 3 < 2 else "cpu" for n in range(24)}
    events = []
    for n in range(0, 24, 3):
        events += [Event("clone", 1, (operand(n),), (operand(n + 1),)),
                   Event("cpu", 2, (operand(n + 1),), (operand(n + 2),))]  # fmt: skip
    found = [one for one in slow_copy.check(history(events, there)) if one.operation == "clone"]
    assert [(one.site.line, one.count) for one in found] == [(1, 8)]
    assert "to another" in found[0].message
