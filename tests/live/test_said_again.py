"""A recording's file says what the run said, and the first line counts what is shown."""

import io
from dataclasses import replace

from programs import record_program
from tether.report.filters import Selection
from tether.report.recording import Recording, load

PROGRAM = """\
import torch

torch.manual_seed(0)
grain = torch.rand(600, 80)
for n in range(9):
    sieve = grain.clone()
    print(sieve.sum().item())
    bag = [grain[i].clone() for i in range(80)]
    print(torch.stack(bag).sum().item())
"""


def report_of(recording, **options):
    shown = io.StringIO()
    recording.print(shown, 120, **options)
    return shown.getvalue()


def test_a_finding_that_the_run_withdrew_is_not_in_the_file(tmp_path):
    recording = record_program(PROGRAM, tmp_path)
    first, *rest = recording.findings
    changed = [replace(rest[0], message=rest[0].message + " Measured."), *rest[1:]] if rest else []
    recording.judged(changed, [])
    recording.save(tmp_path / "run.tether")
    again = load(tmp_path / "run.tether")
    assert report_of(again) == report_of(recording)
    assert first.message not in [one.message for one in again.findings]


def test_what_was_not_asked_for_is_still_in_the_file(tmp_path):
    whole = record_program(PROGRAM, tmp_path)
    slugs = {one.slug for one in whole.findings}
    part = Recording(whole.trace, selection=Selection(ignore=("needless-copy",)), prepared=True)
    part.judged(part.findings, [])
    part.save(tmp_path / "part.tether")
    assert {one.slug for one in load(tmp_path / "part.tether").findings} == slugs


SMALL = """\
import torch

torch.manual_seed(0)
grain = torch.rand(5)
for n in range(90):
    for _ in range(30):
        grain.add(1.0).mul(2.0)
    print(grain.clone().sum().item())
"""


def test_the_first_line_says_how_many_findings_are_not_shown(tmp_path):
    recording = record_program(SMALL, tmp_path)
    assert "\n1 note (1 not shown) in " in report_of(recording)
    assert "\n1 note in " in report_of(recording, show_all=True)


def test_nothing_is_said_of_hidden_findings_where_all_are_shown(tmp_path):
    assert "not shown" not in report_of(record_program(PROGRAM, tmp_path))
