"""Events and lives as columns answer as the objects would."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tether.facts import Event, Operand, StorageFact
from tether.store import columns, lives
from tether.store.columns import PLACES, columns_of
from tether.store.lives import StorageLives
from tether.store.numbers import narrowest

NAMES = ("randn", "add_", "step", "clone", "set_grad_enabled")


def made(count: int) -> list[Event]:
    chance = random.Random(count)

    def some() -> tuple[Operand, ...]:
        numbers = [chance.randrange(9) for _ in range(chance.randrange(3))]
        return tuple(
            Operand(n, n // 2, chance.randrange(2), 0, (2,), (1,), "float32", n > 4, n < 2)
            for n in numbers
        )

    return [Event(chance.choice(NAMES), 0, some(), some(), some()) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 7, 300])
@pytest.mark.parametrize("block", [4, 4096])
@pytest.mark.parametrize("kept", [8, 1 << 17])
def test_events_are_found_and_come_in_order(count, block, kept, monkeypatch):
    for module in (columns, lives):
        monkeypatch.setattr(module, "BLOCK", block)
        monkeypatch.setattr(module, "KEPT", kept)
    plain = made(count)
    events = columns_of(plain)
    for _ in range(2):
        assert list(events) == plain
        assert [events[n] for n in range(-count, count)] == plain * 2
    wanted = [(n, one) for n, one in enumerate(plain) if one.operation in ("step", "add_")]
    assert list(events.where(("step", "add_").__contains__)) == wanted
    wanted = [(n, one) for n, one in enumerate(plain) if one.writes and not one.reads]
    assert list(events.having("writes", without=["reads"])) == wanted
    for places in ((), ("results",), ("reads", "writes")):
        chosen = places or PLACES
        assert [
            (n, events.operands[at]) for n, at in zip(*events.touched(*places), strict=True)
        ] == [
            (n, operand)
            for n, one in enumerate(plain)
            for place in PLACES
            for operand in (getattr(one, place) if place in chosen else ())
        ]


@pytest.mark.parametrize("serials", [[], [0, 1, 2], [3, 1, 8]])
def test_lives_are_a_mapping(serials):
    plain = {n: StorageFact(8 * n, "cpu", n, n + 1) for n in serials}
    numbering = columns.Numbering()
    lives = StorageLives(numbering.storages(plain), numbering.names())
    assert dict(lives.items()) == dict(lives) == plain
    assert list(lives.values()) == [plain[n] for n in sorted(plain)]
    assert [lives.get(n) for n in range(-1, 10)] == [plain.get(n) for n in range(-1, 10)]
    assert len(lives.items()) == len(plain)


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([], np.int8),
        ([-64, 63], np.int8),
        ([64], np.int16),
        ([-65], np.int16),
        ([1 << 14], np.int32),
        ([1 << 31], np.int64),
    ],
)
def test_a_column_is_as_narrow_as_sums_and_differences_allow(numbers, kind):
    found = narrowest(np.array(numbers, np.int64))
    assert found.dtype == kind
    assert found.tolist() == numbers


def test_a_flag_that_no_event_has():
    events = columns_of([Event("a", 0, flags=1), Event("b", 0, flags=3), Event("c", 0)])
    assert [events.flagged(flag).tolist() for flag in (1, 2, 128)] == [
        [True, True, False],
        [False, True, False],
        [False] * 3,
    ]


def test_operands_with_rows_that_are_out_of_order_and_have_gaps():
    def operands(rows):
        table = [[row, 10 * row, 0, 0, 0, 0, 0, 0] for row in rows]
        names = columns.Names(words={0: "float32"}, tuples={0: ()})
        return columns.Operands(columns.numbers(table, len(columns.OPERAND)).T, names)

    for rows in ([0, 1, 2], [2, 0, 1], [7, 3, 900]):
        made = operands(rows)
        found = made.positions(np.array(rows))
        assert [made[at].tensor for at in found.tolist()] == [10 * row for row in rows]
        for other in (-1, 5, 901):
            with pytest.raises(KeyError):
                made.positions(np.array([other]))
    assert operands([]).positions(np.array([], np.int32)).tolist() == []
    with pytest.raises(KeyError):
        operands([]).positions(np.array([0]))
