"""The annotations: read back as GitHub reads them, whatever the program's strings are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_report import HOSTILE, example

from tether.facts import Site
from tether.finding import Finding
from tether.report.formats import github

ROOT = "/home/me"


def read(line: str) -> tuple[str, dict[str, str], str]:
    """Take a workflow command apart by the documented rules: ``::name key=value,...::data``."""
    assert line.startswith("::")
    head, data = line[2:].split("::", 1)
    name, _, listed = head.partition(" ")
    properties = dict(one.split("=", 1) for one in listed.split(",") if one)
    for escaped, plain in (("%3A", ":"), ("%2C", ",")):
        properties = {key: value.replace(escaped, plain) for key, value in properties.items()}

    def unescape(text):
        return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")

    return name, {key: unescape(value) for key, value in properties.items()}, unescape(data)


def lines_of(about):
    return github.dumps(about, ROOT).splitlines()


def test_a_finding_is_one_line():
    (line,) = lines_of(example())
    assert line.startswith(
        "::warning file=app/train.py,line=7,col=28,title=gradient-cut%3A net.layer1.weight::"
    )
    name, _, text = read(line)
    assert name == "warning"
    assert text.split("\n") == [
        "net.layer1.weight got no gradient: out.detach() cuts its only way to the loss.",
        "- train.py:7 in Net.forward: cut here",
        "- train.py:4 in Net.__init__: made here",
        "the same holds for net.layer1.bias",
        "3 times",
        "assumes: nothing writes the gradient by hand",
        "fix: Remove .detach().",
    ]


@pytest.mark.parametrize(
    ("severity", "name"), [("error", "error"), ("warning", "warning"), ("note", "notice")]
)
def test_the_severity_is_the_command(severity, name):
    about = example()
    about.findings = [replace(about.findings[0], severity=severity)]
    assert read(lines_of(about)[0])[0] == name


def test_places_that_are_not_known():
    about = example()
    made = [
        Finding("tie-lost", "note", "w", place, "", "m", bytes=2048)
        for place in (Site("", 0), Site("<string>", 0), Site("/home/me/a.py", 3, 5, 6, 2))
    ]
    about.findings = made
    places = [read(line)[1] for line in lines_of(about)]
    assert places == [
        {"title": "tie-lost: w"},
        {"file": "<string>", "title": "tie-lost: w"},
        {"file": "a.py", "line": "3", "endLine": "6", "title": "tie-lost: w"},
    ]
    assert read(lines_of(about)[0])[2].endswith("\n2.0 KiB")


@given(text=st.text(max_size=40) | st.just(HOSTILE) | st.text("%:,=\r\n0AD23C", max_size=30))
def test_any_string_stays_one_command(text):
    about = example()
    place = Site("/home/me/" + text, 1, 1, 1, 2)
    about.findings = [Finding("s", "error", text, place, text, text, (text,))]
    lines = lines_of(about)
    assert len(lines) == 1, "a string of the program began a line of its own"
    name, properties, data = read(lines[0])
    assert name == "error"
    assert set(properties) == {"file", "line", "col", "title"}
    assert properties["title"] == (f"s: {github.visible(text)}" if text else "s")
    assert properties["file"] == github.visible(text.replace("\\", "/"))
    assert data.startswith(github.visible(text) or "s")
