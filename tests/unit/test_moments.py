"""The moments of the page's slider: steps, lines, memory, and since when a tie is there."""

from __future__ import annotations

from traces import trace

from tether.analysis.sharing.standing import Standing, TieReason
from tether.analysis.ties import ActedTie, Ties
from tether.finding import Finding
from tether.report.document.findings import Findings
from tether.report.page import moments as module
from tether.report.page.moments import moments

PROGRAM = """
w = param net.w
x = data
h = mul w x
backward h
step w=some
d = detach w
o = mul w x
backward o
step w=some
clone d
"""


def link(site):
    return f"s0-{site.line}"


def about() -> Findings:
    made = trace(*PROGRAM.strip().splitlines())
    first, second = (n for n, event in enumerate(made.events) if event.operation == "step")
    made.events[second] = made.events[second]._replace(site=made.events[first].site)
    return Findings(made, [])  # of a loop: both steps are on line 5


def lines_of(found):
    """Return the lines of each step."""
    return [
        (step, [found["lines"][line] for line, _ in found["patterns"][pattern]])
        for step, pattern in found["steps"]
    ]


def test_a_step_ends_with_the_optimizers_step():
    found = moments(about(), link)
    (_, first), (_, second), (_, rest) = lines_of(found)
    assert first[-1] == "s0-5"
    assert second == ["s0-6", "s0-7", "s0-8", "s0-5"]
    assert rest == ["s0-10"]
    assert found["ends"] == 1


def test_a_tie_is_there_from_the_step_in_which_it_was_made():
    made = about()
    events = made.history.events
    detach = next(n for n, event in enumerate(events) if event.operation == "detach")
    step = next(n for n, event in enumerate(events) if event.operation == "step" and n > detach)
    tensor = events[detach].results[0].tensor
    site, write = made.history.site_of(events[detach]), made.history.site_of(events[step])
    acted = ActedTie("tensor", ("d",), "net.w", (tensor,), (site,), (write,), (), "step", step, 1,
                     Standing(TieReason.COPY, read=True))  # fmt: skip
    made.findings = [Finding("alias-write", "warning", "d", site, "detach", "m", tensors=(tensor,))]
    made.history.know(Ties, Ties(made.history, [acted]))
    found = moments(made, link)
    (one,) = found["ties"]
    assert (one["n"], one["step"]) == (1, 2)
    assert one["acts"] == {found["lines"].index("s0-5"): "step() writes what d (1 tensor) shows"}


def test_many_steps_are_thinned_and_the_last_stays(monkeypatch):
    monkeypatch.setattr(module, "MANY_STEPS", 2)
    assert [step for step, _ in moments(about(), link)["steps"]] == [1, 3]


def test_a_program_without_lines_to_show_has_no_moments():
    assert moments(about(), lambda _: "") is None
