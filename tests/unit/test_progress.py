"""What is said while the analysis takes its time: on a terminal, and nowhere else."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest

from tether.analysis.history import History
from tether.facts import Trace
from tether.report import progress
from tether.verdicts import VERDICTS, judge


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 0.02)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    monkeypatch.setenv("TERM", "xterm")


def until(there, seconds=20):
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, "nothing was shown"
        time.sleep(0.005)


def test_it_says_at_which_verdict_the_work_is(monkeypatch):
    said = []
    monkeypatch.setattr(progress, "stage", said.append)
    seen = []

    def check(history):
        seen.append(said[-1])
        return iter(())

    some = [replace(one, check=check) for one in VERDICTS[:3]]
    judge(History(Trace()), some, lambda turns: progress.each((one.slug, one) for one in turns))
    assert seen == said
    assert [one.rpartition(", ")[2] for one in said] == ["1 of 3", "2 of 3", "3 of 3"]
    assert {one.rpartition(", ")[0] for one in said} == {one.slug for one in some}


def test_a_terminal_is_told_and_left_clean(quick):
    stream = Terminal()
    with progress.shown(stream):
        for _ in progress.each([("judging: tie-lost", 1), ("judging: gradient-cut", 2)]):
            pass
        until(lambda: "judging: gradient-cut, 2 of 2 (0 s)" in stream.getvalue())
        progress.stage("making out.html")
        until(lambda: "making out.html" in stream.getvalue())
    assert stream.getvalue().endswith("\r\x1b[K")
    after = stream.getvalue()
    time.sleep(0.05)
    assert stream.getvalue() == after, "it went on after its end"


def test_what_is_quick_is_not_talked_about(monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 60)
    stream = Terminal()
    with progress.shown(stream):
        progress.stage("work")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("kind", ["pipe", "closed", "dumb", "none"])
def test_nothing_is_written_elsewhere(quick, monkeypatch, kind):
    stream = Terminal() if kind == "dumb" else io.StringIO()
    if kind == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    if kind == "closed":
        stream.close()
    with progress.shown(None if kind == "none" else stream):
        time.sleep(0.1)
    assert kind == "closed" or stream.getvalue() == ""


def test_one_line_at_a_time_and_none_left_after_an_exception(quick):
    outer, inner = Terminal(), Terminal()
    with pytest.raises(KeyError), progress.shown(outer), progress.shown(inner):
        until(lambda: outer.getvalue())
        raise KeyError
    assert inner.getvalue() == ""
    assert progress._lines == []
    assert outer.getvalue().endswith("\x1b[K")


def test_a_terminal_that_goes_away_stops_nothing(quick):
    class Gone(Terminal):
        def write(self, text):
            raise OSError

    with progress.shown(Gone()):
        time.sleep(0.1)


def test_it_fits_the_terminal(quick, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    with progress.shown(stream):
        progress.stage("making " + "x" * 200)
        until(lambda: "xxx" in stream.getvalue())
    assert max(len(one) for one in stream.getvalue().split("\r\x1b[K")) <= 39
