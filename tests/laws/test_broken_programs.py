"""A right program with one change that breaks it: the line of the change is named, or nearly always.

Whether a change broke a program is asked of the program, never of tether (`outcomes`): its results
are others, PyTorch refuses it, or it keeps memory that it did not. Named is a line that a finding or
one of the first ten ties has. The right programs themselves give no finding of severity warning or
error. `lengths` says how many are tried.
"""

import functools
import json
import os
import random
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from changes import changes_of
from lengths import LONG, programs, sampled
from outcomes import differs, outcome_of
from right_programs import right_programs
from warm import python

PROGRAMS = right_programs()
CHANGES = [
    (name, file, change)
    for name, files in PROGRAMS.items()
    for file, text in files.items()
    if file.endswith(".py")
    for change in changes_of(text)
]
SHARE = 0.85
"""Of the broken programs whose line must be named. Of all 1,672 changes 446 broke their program, and
the line of 424 was named (95 %); a sample of some fifty varies by a few points. The rest is mostly
second names of one object (`c = a`), and calls that PyTorch refuses, where the line that refuses is
named and not the one that led there."""

TRIED = 200
"""Changes that are tried at length, of some 1,700: four minutes. `TETHER_PROGRAMS` tries more."""

OF_THE_CHANGE = (
    "AttributeError", "NameError", "TypeError", "SyntaxError", "UnboundLocalError",
    "UnsupportedOperation",
)  # fmt: skip
"""Errors that say that the change made no sense where it was made."""

GRADIENTS = {"item taken out", "detach taken out", "detach put in"}
"""Changes whose other results say nothing: values flow on or not, as somebody meant them to."""

JUDGE = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "live")!r})
from pathlib import Path
from programs import record_program
from tether.analysis.ties import Ties

recording = record_program(Path("main.py").read_text(), Path.cwd(), "main.py")
findings = recording.findings
lines = [[(e.site.file, e.site.line) for e in one.evidence] for one in findings]
lines = [[(one.site.file, one.site.line), *rest] for one, rest in zip(findings, lines)]
lines += [[(s.file, s.line) for s in tie.sites] for tie in recording.history.get(Ties).found[:10]]
grave = [f"{{one.slug}}: {{one.message}}" for one in findings if one.severity != "note"]
Path("judged.json").write_text(json.dumps({{"lines": sum(lines, []), "grave": grave}}))
"""


def put(files, folder):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def judged(folder):
    """Return the lines that tether names of the program in a folder, and its grave findings."""
    (folder / "judge.py").write_text(JUDGE)
    done = python("judge.py", folder=folder)
    assert (folder / "judged.json").exists(), done.stderr
    return json.loads((folder / "judged.json").read_text())


def broken_by(name, file, change, folder):
    """Return what a change broke in a program: "" for nothing."""
    files = PROGRAMS[name]
    made = put({**files, file: change.made_in(files[file])}, folder / "broken")
    before = outcome_of(put({**files, file: change.untied_in(files[file])}, folder / "right"))
    if before is None or before["error"] or differs(before, outcome_of(folder / "right")):
        return ""
    after = outcome_of(made)
    if after is None or after["error"].startswith(OF_THE_CHANGE):
        return ""
    what = differs(_beside(change, before), _beside(change, after))
    return "" if what == "results" and change.kind in GRADIENTS else what


def _beside(change, outcome):
    """Return an outcome without the variable that a change writes by its name.

    `x.clamp_(0)` says that it writes `x`: what is broken is another result, or another place.
    """
    if change.kind != "made in place":
        return outcome
    own = "= " + change.text.split(".")[0]
    left = {key: one for key, one in outcome["results"].items() if key != own}
    return {**outcome, "results": left}


@functools.cache
def is_right(name):
    """Whether nothing is said of a program: some examples show what is said."""
    with tempfile.TemporaryDirectory() as folder:
        return not judged(put(PROGRAMS[name], Path(folder)))["grave"]


def trial(number, folder):
    """Make one change; return what it broke, and whether tether names its line."""
    name, file, change = CHANGES[number]
    what = is_right(name) and broken_by(name, file, change, folder)
    if not what:
        return name, change, "", True
    lines = range(change.first, change.last + 1)
    named = {(os.path.basename(path), line) for path, line in judged(folder / "broken")["lines"]}
    return name, change, what, any((os.path.basename(file), line) in named for line in lines)


@pytest.mark.long
def test_the_line_that_broke_a_program_is_named(tmp_path):
    numbers = list(range(len(CHANGES)))
    random.Random(0).shuffle(numbers)
    numbers = numbers[: programs(short=8, long=TRIED)]
    folders = [tmp_path / str(number) for number in numbers]
    with ThreadPoolExecutor(os.cpu_count() if LONG else 2) as pool:
        trials = [one for one in pool.map(trial, numbers, folders) if one[2]]
    missed = [
        f"{name}:{change.first} {change.kind} ({what})"
        for name, change, what, named in trials
        if not named
    ]
    counts = Counter(change.kind for _, change, _, _ in trials)
    assert len(missed) <= (1 - SHARE) * len(trials) + (not LONG), (counts, missed)
    assert len(trials) >= max(1, len(numbers) // 12), counts


@pytest.mark.long
@pytest.mark.parametrize("name", sampled([one for one in PROGRAMS if one[:6] == "right/"], 5))
def test_a_right_program_is_left_in_peace(name, tmp_path):
    assert not judged(put(PROGRAMS[name], tmp_path))["grave"]


def test_a_line_that_is_not_named_counts_as_missed(tmp_path):
    """The judgement itself can fail: a program that nothing is said of names no line."""
    text = "import torch\nx = torch.ones(2)\ny = x + 1\nprint(y)\n"
    assert judged(put({"main.py": text}, tmp_path))["lines"] == []


def test_the_oracle_tells_programs_apart(tmp_path):
    text = "import torch\nx = torch.ones(2)\ny = {}\nx += 1\nprint(y)\n"
    one = outcome_of(put({"main.py": text.format("x.clone()")}, tmp_path / "one"))
    other = outcome_of(put({"main.py": text.format("x")}, tmp_path / "other"))
    assert differs(one, other) == "results"
    assert differs(one, one) == ""
