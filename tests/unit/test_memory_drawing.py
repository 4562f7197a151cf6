"""What the page says of memory: the peak that every report has, and all that it is made of."""

from __future__ import annotations

from traces import trace

from tether.analysis.history import History
from tether.analysis.memory import Memory
from tether.report.page import memory_drawing

PROGRAM = """
w = param net.w
x = data
h = mul w x
o = mul w h
backward o
step w=some
p = mul w x
backward p
step w=some
"""


def test_the_rows_are_the_whole_peak(monkeypatch):
    history = History(trace(*PROGRAM.strip().splitlines()))
    (one,) = memory_drawing.drawings(history)
    assert one.peak == Memory(history).peak == sum(row.nbytes for row in one.rows)
    assert [tick.step for tick in one.ticks] == [1, 2]
    monkeypatch.setattr(memory_drawing, "MANY_ROWS", 1)
    (few,) = memory_drawing.drawings(history)
    assert len(few.rows) == 2
    assert few.rows[1].kind == "other lines"
    assert sum(row.nbytes for row in few.rows) == one.peak
