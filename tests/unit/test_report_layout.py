"""The tables of the text report: readable at every width, whatever the files are called."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from test_report import FILE, example

from tether.report.document.blocks import Column, Document, Phrase, Table
from tether.report.document.compose import build
from tether.report.document.text import render
from tether.report.page import html

LONG = "/home/me/app/packages/experiments/vision/training/loops/contrastive_pretraining.py"
BECAUSE = "the result was written at line 12 while its source was still read by the loss at line 40"


def two_files():
    """Copies in a file with a short name and in one with a long one, not in the files' order."""
    about = example()
    first, second = about.copies
    far = [
        replace(one, site=one.site._replace(file=LONG, line=1200 + n), needed="yes", reason=BECAUSE)
        for n, one in enumerate(about.copies)
    ]
    about.copies = [far[1], second, far[0], first]
    return about


def copies_of(text):
    return text.split("copies and conversions\n", 1)[1].split("\n\n")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_copies_are_grouped_by_file_and_their_expressions_are_whole(width):
    text = render(build(two_files()), width)
    assert max(map(len, text.splitlines())) <= width
    table = copies_of(text)[1].splitlines()[1:]
    names = [line for line in table if not line.startswith(" ")]
    assert len(names) == 2
    assert names[0].endswith("contrastive_pretraining.py")
    assert names[1] == "train.py"
    rows = [line.split()[:2] for line in table if line.startswith(" ")]
    assert rows == [
        ["1200", "out.detach()"],
        ["1201", "loss.item()"],
        ["7", "out.detach()"],
        ["9", "loss.item()"],
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_columns_stand_below_their_titles(width):
    table = copies_of(render(build(two_files()), width))[1].splitlines()
    title, rows = table[0], [line for line in table if line.startswith(" ")]
    for name, end in (("line", True), ("expression", False), ("memory", False), ("copied", True)):
        found = re.search(name, title)
        for row in rows:
            if end:
                assert row[found.end() - 1] != " "
                assert row[found.end() :][:1] in ("", " ")
            else:
                assert row[found.start() - 1] == " " != row[found.start()]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_reason_is_told_in_full(width):
    told = copies_of(render(build(two_files()), width))[2]
    rows = [line[title:] for title in [told.index("because")] for line in told.splitlines()[1:]]
    assert " ".join(" ".join(rows).split()).count(BECAUSE) == 2


def test_no_colour_codes_unless_asked_for():
    assert "\x1b" not in render(build(two_files()), 80)
    assert "\x1b" in render(build(two_files()), 80, colour=True)


def test_a_group_is_a_heading_of_its_rows_in_html():
    page = "".join(html.blocks(build(two_files())))
    assert page.count('scope="rowgroup"') == 3
    assert '<th colspan="7" scope="rowgroup" class="place">train.py</th>' in page


def test_a_wide_cell_folds_and_keeps_the_others_on_its_first_line():
    table = Table(
        (Column("a"), Column("b", wrap=True, give=True)),
        ((Phrase("x"), Phrase("word " * 40)), (Phrase("y"), Phrase("z" * 150))),
    )
    text = render(Document("", [table]), 60)
    lines = text.splitlines()
    assert text.count("word") == 40
    assert text.count("z") == 150
    assert [line[0] for line in lines if line[0] != " "] == ["a", "x", "y"]
    assert max(map(len, lines)) <= 60


def test_files_are_told_apart_by_their_ends():
    about = two_files()
    other = LONG.replace("contrastive", "supervised")
    about.copies[2].site = about.copies[2].site._replace(file=other)
    text = render(build(about), 60)
    assert "contrastive_pretraining.py\n" in text
    assert "supervised_pretraining.py\n" in text
    assert FILE not in text
