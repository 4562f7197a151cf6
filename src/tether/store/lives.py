"""The lives of tensors and storages as columns of numbers: `Lives` reads like a mapping."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, Generic, TypeVar

import numpy as np

from tether.facts import StorageFact, TensorFact
from tether.store.columns import BLOCK, KEPT, STORAGE, TENSOR, Names, Numbering
from tether.store.numbers import Numbers, in_order, narrow

Fact = TypeVar("Fact")


class Lives(Mapping[Any, Fact], Generic[Fact]):
    """Serial number -> a life, in the order in which they began."""

    NUMBERS: tuple[str, ...] = ()

    def __init__(self, table: Numbers) -> None:
        self.table = in_order(narrow(table))
        self._made: dict[int, Fact] = {}
        serials = self.table[:, 0]
        # Numbered without a gap: the line is the number.
        self._dense = bool(len(serials)) and int(serials[0]) == 0 == int(serials[-1]) + 1 - len(
            table
        )

    def _fact(self, row: list[int]) -> Fact:
        raise NotImplementedError

    def position(self, serial: int) -> int:
        """Return the line of `table` for a serial number, -1 if there is none."""
        serials = self.table[:, 0]
        if self._dense:
            return serial if 0 <= serial < len(serials) else -1
        at = int(np.searchsorted(serials, serial))
        return at if at < len(serials) and serials[at] == serial else -1

    def __getitem__(self, serial: int) -> Fact:
        made = self._made.get(serial)
        if made is None:
            at = self.position(serial)
            if at < 0:
                raise KeyError(serial)
            if len(self._made) > KEPT:
                self._made.clear()
            made = self._made[serial] = self._fact(self.table[at].tolist())
        return made

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table[:, 0].tolist())

    def __len__(self) -> int:
        return len(self.table)

    def items(self) -> ItemsView[Any, Fact]:
        """Return the serial numbers with their lives, which are made as they are asked for."""
        return _LifeItems(self)

    def values(self) -> ValuesView[Fact]:
        """Return the lives, which are made as they are asked for."""
        return _LifeValues(self)

    def column(self, name: str) -> Numbers:
        """Return one number of every life, by its name in `TENSOR` or `STORAGE`."""
        found: Numbers = self.table[:, self.NUMBERS.index(name)]
        return found

    def rows(self) -> Iterator[tuple[int, Fact]]:
        """Yield serial numbers and lives, one after the other."""
        for begin in range(0, len(self.table), BLOCK):
            for row in self.table[begin : begin + BLOCK].tolist():
                yield row[0], self._fact(row)


class _LifeItems(ItemsView[Any, Any]):
    _mapping: Lives[Any]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.rows()


class _LifeValues(ValuesView[Any]):
    _mapping: Lives[Any]

    def __iter__(self) -> Iterator[Any]:
        return (fact for _, fact in self._mapping.rows())


class TensorLives(Lives[TensorFact]):
    """The lives of tensors; lines of `TENSOR` numbers."""

    NUMBERS = TENSOR

    def __init__(self, table: Numbers, names: Names) -> None:
        super().__init__(table)
        self.names = names

    def _fact(self, row: list[int]) -> TensorFact:
        made: Any = TensorFact
        fact: TensorFact = made(self.names.words[row[1]], row[2], row[3])
        return fact


class StorageLives(Lives[StorageFact]):
    """The lives of storages; lines of `STORAGE` numbers."""

    NUMBERS = STORAGE

    def __init__(self, table: Numbers, names: Names) -> None:
        super().__init__(table)
        self.names = names

    def _fact(self, row: list[int]) -> StorageFact:
        made: Any = StorageFact
        _, nbytes, device, *rest = row
        fact: StorageFact = made(nbytes, self.names.words[device], *rest)
        return fact


def storages_of(lives: Mapping[Any, StorageFact]) -> StorageLives:
    """Return the lives of storages as columns."""
    if isinstance(lives, StorageLives):
        return lives
    numbering = Numbering()
    return StorageLives(numbering.storages(lives), numbering.names())


def tensors_of(lives: Mapping[Any, TensorFact]) -> TensorLives:
    """Return the lives of tensors as columns."""
    if isinstance(lives, TensorLives):
        return lives
    numbering = Numbering()
    return TensorLives(numbering.tensors(lives), numbering.names())
