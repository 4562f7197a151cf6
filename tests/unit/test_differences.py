"""Two recordings compared: lines that moved are the same, and what changed is told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from test_report import FILE, TEXT, example, fits, operand

from tether.analysis.history import History
from tether.facts import Event, Name, Site, TensorFact
from tether.finding import Finding
from tether.report.comparison import compare_report
from tether.report.comparison.compare import Differences
from tether.report.comparison.stable_places import key, plain
from tether.report.document.text import render
from tether.report.tables.copies import copies
from tether.report.tables.gradients import gradients


def moved(about, lines=3):
    """Return the same report of the same program with lines added above."""

    def down(site):
        return site._replace(line=site.line + lines, end_line=site.end_line + lines)

    trace = replace(
        about.trace,
        sites=[down(site) for site in about.trace.sites],
        sources={FILE: "\n" * lines + TEXT},
    )
    findings = [
        replace(
            one,
            site=down(one.site),
            evidence=tuple(each._replace(site=down(each.site)) for each in one.evidence),
        )
        for one in about.findings
    ]
    return replace(about, trace=trace, findings=findings, copies=copies(trace))


def renamed(about, text):
    """Return it with another expression where the gradient is cut."""
    trace = about.trace
    first = trace.sites[0]._replace(expression=text)
    trace = replace(trace, sites=[first, *trace.sites[1:]])
    findings = [replace(about.findings[0], site=first)]
    return replace(about, trace=trace, findings=findings, copies=copies(trace))


def test_lines_that_moved_are_no_change():
    found = Differences(example(), moved(example()))
    assert found.empty
    assert "nothing changed" in render(compare_report.build(found, "a", "b"))


def test_layout_is_no_change_and_another_expression_is():
    assert Differences(example(), renamed(example(), "out . detach( )")).empty
    found = Differences(example(), renamed(example(), "out2.detach()"))
    assert [one.finding.site.expression for one in found.gained] == ["out2.detach()"]
    assert [one.finding.site.expression for one in found.lost] == ["out.detach()"]
    assert [(pair.before is None, pair.after is None) for pair in found.copies] == [
        (False, True),
        (True, False),
    ]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("f(a,b)", "f(a, b)", True),
        ("x['k']", 'x["k"]', True),
        ("f(a)", "f(b)", False),
        ("not python (", "not  python (", True),
    ],
)
def test_what_is_the_same_expression(one, other, same):
    assert (plain(one) == plain(other)) is same


def test_the_function_and_the_file_tell_places_apart():
    here = Site(FILE, 7, 1, 7, 5, "Net.forward", expression="f()")
    folder = "/home/me/app"
    assert key(here, "f", folder) == key(here._replace(line=9, end_line=9), "f", folder)
    assert key(here, "f", folder) != key(here._replace(function="Net.back"), "f", folder)
    assert key(here, "f", folder) != key(here._replace(file="/home/me/app/b.py"), "f", folder)
    copied = here._replace(file="/other/train.py")
    assert key(here, "f", folder) == key(copied, "f", "/other"), "each program has its own folder"


def test_a_finding_for_one_more_name_is_gained_for_it():
    after = example()
    (first,) = after.findings
    after.findings = [replace(first, also=("net.layer1.bias", "net.layer2.weight"))]
    found = Differences(example(), after)
    assert [one.names for one in found.gained] == [("net.layer2.weight",)]
    assert found.lost == []
    text = render(compare_report.build(found, "a", "b"))
    assert "It was there before, but not for net.layer2.weight." in text


def test_the_order_of_names_is_no_change():
    after = example()
    (first,) = after.findings
    after.findings = [replace(first, subject="net.layer1.bias", also=("net.layer1.weight",))]
    assert Differences(example(), after).empty


def test_the_same_text_at_two_lines_counts():
    after = example()
    again = replace(after.findings[0], site=after.findings[0].site._replace(line=8, end_line=8))
    after.findings = [*after.findings, again]
    assert len(Differences(example(), after).gained) == 1
    assert len(Differences(after, example()).lost) == 1


def test_counts_and_bytes():
    after = example()
    after.trace.events += after.trace.events[:2]
    after = replace(after, copies=copies(after.trace))
    found = Differences(example(), after)
    sizes = [(one.before.count, one.after.count, one.after.bytes) for one in found.copies]
    assert sizes == [(3, 4, 0), (3, 4, 16)]
    assert found.totals[0].copied == 12
    assert found.totals[1].copied == 16
    text = render(compare_report.build(found, "a", "b"))
    assert "3 -> 4  12 B -> 16 B" in text
    assert "+33 %" in text


def test_a_view_that_became_a_copy_is_a_tie_that_changed():
    def with_reshape(storage):
        about = example()
        place = Site(FILE, 6, 1, 6, 9, "Net.forward", expression="x.reshape(-1)")
        about.trace.sites.append(place)
        event = Event("reshape", 3, (operand(20, 20),), (operand(21, storage),))
        about.trace.events.append(event)
        return about

    (pair,) = Differences(with_reshape(20), with_reshape(21)).ties
    assert (pair.before.ties, pair.after.ties) == (("shares", "keeps"), ("owns", "keeps"))
    text = render(compare_report.build(Differences(with_reshape(20), with_reshape(21)), "a", "b"))
    assert "x.reshape(-1)  reshape    shares, keeps  owns, keeps" in text
    assert Differences(with_reshape(20), with_reshape(20)).ties == []


def test_names_that_share_memory_at_the_end():
    def tied(storage, died=-1):
        about = example()
        trace = about.trace
        trace.names += [Name(30, "m.emb.weight", 5), Name(31, "m.head.weight", 5)]
        trace.tensors = {30: TensorFact("Parameter", 0), 31: TensorFact("Parameter", 0, died)}
        trace.events.append(Event("linear", 2, (operand(30, 30), operand(31, storage)), ()))
        return about

    found = Differences(tied(30), tied(31))
    assert (found.tied, found.parted) == ([], [("m.emb.weight", "m.head.weight")])
    assert Differences(tied(31), tied(30)).tied == [("m.emb.weight", "m.head.weight")]
    assert Differences(tied(31), tied(30, died=6)).tied == []
    text = render(compare_report.build(found, "a", "b"))
    assert "m.emb.weight and m.head.weight share memory no more" in text


def test_gradients_by_name():
    after = example()
    for fact in after.trace.gradients:
        fact.status[2] = "none"
    after = replace(after, gradients=gradients(History(after.trace), after.findings))
    found = Differences(example(), after)
    assert found.gradients == [("net.layer3.weight", "reached", "none")]


def test_json_says_it_all():
    after = renamed(example(), "out2.detach()")
    made = json.loads(compare_report.dumps(Differences(example(), after)))
    assert [one["names"] for one in made["findings"]["gained"]] == [
        ["net.layer1.weight", "net.layer1.bias"]
    ]
    assert made["findings"]["lost"][0]["site"]["expression"] == "out.detach()"
    assert [(one["before"] is None, one["after"] is None) for one in made["copies"]] == [
        (False, True),
        (True, False),
    ]
    assert made["before"]["copied"] == 12
    assert made["ties"] == {"changed": [], "gained": [], "lost": []}


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_it_fits(width):
    after = renamed(example(), "out2.detach()")
    after.findings = [
        *after.findings,
        Finding("tie-lost", "warning", "n" * 90, Site("/x/" + "d" * 80 + ".py", 3), "", "m"),
    ]
    for found in (Differences(example(), after), Differences(after, example())):
        lines = render(compare_report.build(found, "a.tether", "b.tether"), width).splitlines()
        assert all(fits(line, width) for line in lines)
