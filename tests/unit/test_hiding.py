"""A report to be shared holds nothing that the program's author wrote but names."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from test_report import example

from tether.finding import Edit, Evidence, Fix, Said, Segment
from tether.report.forms import FORMS
from tether.report.recording import Recording
from tether.report.redact import bare, without_source

SECRET = "secret(x, 'of the author')"


def with_secrets():
    """A recording in which every line, expression and quotation is the author's."""
    about = example()
    trace = about.trace
    trace.sources = dict.fromkeys(trace.sources, f"{SECRET}  # secret\n" * 20)
    trace.sites = [one._replace(expression=SECRET, target="secret[0](1)") for one in trace.sites]
    first = about.findings[0]
    place = first.site._replace(expression=SECRET, target=SECRET)
    recording = Recording(trace, prepared=True)
    recording.findings = [
        replace(
            first,
            site=place,
            subject=SECRET,
            also=(SECRET, "net.kept.name"),
            message=f"{SECRET} and `secret + 1` cut `net.kept.weight`",
            evidence=(Evidence("cut", place, f"{SECRET} cuts"),),
            assumes=(f"that {SECRET}",),
            fix=Fix(f"write secret() for {SECRET}", (Edit(place.file, 1, 1, 1, 9, "secret()"),)),
        )
    ]
    recording.defects = list(recording.findings)
    recording.with_memory = True
    return recording


@pytest.mark.parametrize("form", [one.name for one in FORMS])
def test_no_report_holds_a_line_or_an_expression(form):
    recording = with_secrets()
    whole = getattr(recording, form)()
    shared = getattr(recording, form)(source=False)
    assert "secret" in whole, "there was nothing to hide"
    assert "secret" not in shared
    assert "net.kept.weight" in shared
    if form in ("json", "sarif"):
        json.loads(shared)


def test_files_are_written_without_it(tmp_path):
    files = {one.name: tmp_path / one.name for one in FORMS}
    with_secrets().report(**files, source=False)
    assert not any("secret" in file.read_text() for file in files.values())


def test_a_sentence_hides_its_code_and_keeps_its_names():
    """By its parts: no line of the program's that is known has this code in it."""
    about = example()
    said = Said(
        [
            Segment("Use "),
            Segment("`made.anew[n + 1]`", "code"),
            Segment(" at "),
            Segment("`net.kept.weight`", "name"),
            Segment(": `"),
            Segment("f(made)", "code"),
            Segment("`, or "),
            Segment("`plain`", "code"),
            Segment("; bare "),
            Segment("made() and more", "code"),
            Segment("."),
        ]
    )
    about.findings[0] = replace(about.findings[0], message=said)
    (finding,) = without_source(about).findings
    assert finding.message == "Use `...` at `net.kept.weight`: `...`, or `plain`; bare ...."


def test_names_and_places_stay():
    about = without_source(example())
    (finding,) = about.findings
    (first,) = example().findings
    assert finding.message == (
        "net.layer1.weight got no gradient: ... cuts its only way to the loss."
    )
    assert finding.subject == "net.layer1.weight"
    assert finding.site == bare(first.site)
    assert finding.site.line == 7
    assert finding.fix.text == "Remove .detach()."
    assert finding.fix.edits == ()
    assert [row.count for row in about.copies] == [3, 3]


def test_the_whole_report_is_as_it_was():
    about = example()
    without_source(about)
    assert about.findings == example().findings
    assert about.trace == example().trace
