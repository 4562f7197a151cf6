"""What several processes have in common is told once, and where they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from traces import trace

from tether.analysis.wording import named
from tether.facts import Process
from tether.report.document.text import render
from tether.report.formats.json import to_json
from tether.report.recording import Recording, together

CUT = """
w = param net.body
v = param net.head
x = data
h = mul w x
d = detach h
y = mul d v
backward y
step w=none v=some
"""
WHOLE = CUT.replace("d = detach h\n", "d = mul h x\n").replace("w=none", "w=some")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["rank 0"], "rank 0"),
        (["rank 1", "rank 0", "rank 1"], "ranks 0 and 1"),
        (["rank 0", "rank 2", "rank 3", "rank 4"], "ranks 0 and 2-4"),
        (["rank 0", "Process-1"], "rank 0 and Process-1"),
        (["the main process"], "the main process"),
    ],
)
def test_processes_in_words(labels, said):
    assert named(labels) == said


def recording(text: str, rank: int) -> Recording:
    made = replace(trace(*text.strip().splitlines()), process=Process(100 + rank, rank, 3))
    return Recording(made, prepared=True)


def test_ranks_that_do_the_same_are_one():
    alone = recording(CUT, 0)
    both = together([recording(CUT, 0), recording(CUT, 1)])
    (finding,) = both.findings
    (one,) = alone.findings
    assert (finding.subject, finding.message, finding.also) == (one.subject, one.message, one.also)
    assert finding.ranks == ("rank 0", "rank 1")
    assert [(row.name, row.status, row.ranks) for row in both.gradients] == [
        (row.name, row.status, "") for row in alone.gradients
    ]
    assert "in ranks 0 and 1" in render(both.document())


def test_a_rank_that_differs_is_named():
    both = together([recording(WHOLE, 0), recording(CUT, 1), recording(WHOLE, 2)])
    assert [one.ranks for one in both.findings] == [("rank 1",)]
    rows = {row.name: (row.status, row.ranks, row.finding) for row in both.gradients}
    assert rows == {
        "net.body": ("none", "reached in ranks 0 and 2, none in rank 1", 0),
        "net.head": ("reached", "", None),
    }
    assert to_json(both.about)["processes"] == ["rank 0", "rank 1", "rank 2"]
    (finding,) = both.findings
    assert [both.history.name_of(one) for one in finding.tensors] == ["net.body"]


def test_a_launcher_that_heard_nothing_is_no_part_of_it():
    launcher = recording("", 0)
    launcher.trace.process = Process(1)
    launcher.trace.program = ["launch", "train.py"]
    one = together([launcher, recording(CUT, 0)])
    assert [one.trace.program, list(one.about.processes)] == [["launch", "train.py"], ["rank 0"]]
    assert together([launcher]) is launcher
