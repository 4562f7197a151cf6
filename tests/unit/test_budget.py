"""What looking may take of a run's time, by two clocks that the tests turn themselves."""

from __future__ import annotations

import threading
import time

import pytest

from tether.record.budget import Budget


class _Clocks:
    """The time of the run, and the time in which each thread worked."""

    def __init__(self) -> None:
        self.run = 0.0
        self.worked: dict[int, float] = {}

    def works(self, seconds: float) -> None:
        self.run += seconds
        self.worked[threading.get_ident()] = self.thread_time() + seconds

    def waits(self, seconds: float) -> None:
        self.run += seconds

    def perf_counter(self) -> float:
        return self.run

    def thread_time(self) -> float:
        return self.worked.get(threading.get_ident(), 0.0)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> _Clocks:
    """Return the clocks that budgets read in this test."""
    monkeypatch.delenv("TETHER_STRICT")
    made = _Clocks()
    monkeypatch.setattr(time, "perf_counter", made.perf_counter)
    monkeypatch.setattr(time, "thread_time", made.thread_time)
    return made


def test_looking_is_late_when_it_took_more_than_its_share_and_what_is_allowed(
    clocks: _Clocks,
) -> None:
    budget = Budget(0.1, allowed=1.0)
    with budget:
        clocks.works(1.05)
    assert not budget.late()
    with budget:
        clocks.works(0.1)
    assert budget.late()
    clocks.works(10.0)
    assert not budget.late()


def test_what_is_not_looking_does_not_count_and_neither_does_waiting(clocks: _Clocks) -> None:
    budget = Budget(0.0, allowed=1.0)
    clocks.works(5.0)
    with budget:
        clocks.waits(5.0)
    assert not budget.late()


def test_threads_are_counted_each_by_its_own_clock(clocks: _Clocks) -> None:
    """A thread that has long worked does not have its whole past counted by another's."""
    budget, inside, done = Budget(0.0, allowed=1.0), threading.Event(), threading.Event()
    clocks.works(5.0)

    def other() -> None:
        with budget:
            inside.set()
            done.wait()

    thread = threading.Thread(target=other)
    with budget:
        thread.start()
        inside.wait()
    done.set()
    thread.join()
    assert not budget.late()


def test_time_that_passed_elsewhere_is_counted(clocks: _Clocks) -> None:
    budget = Budget(0.0, allowed=1.0)
    budget.count(2.0)
    assert budget.late()


def test_nothing_is_late_where_the_tests_ask_what_is_found() -> None:
    budget = Budget(0.0, allowed=0.0)
    budget.count(2.0)
    assert not budget.late()
