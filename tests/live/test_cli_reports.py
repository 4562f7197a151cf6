"""The reports that the command line hands to other tools."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

import warm
from test_cli import CUT, tether


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with a program and its recording, made once."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(CUT)
    done = tether("run", "-q", "-o", "run.tether", "train.py", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_github_annotations_name_files_from_the_checkout(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "train.py").write_text(CUT)
    arguments = ("run", "-q", "--github", "app/train.py")
    done = tether(*arguments, folder=tmp_path, GITHUB_WORKSPACE="")
    assert done.stdout == "args []\n"
    assert done.stderr.startswith(
        "::warning file=app/train.py,line=7,col=13,title=gradient-cut%3A w"
    )
    assert len(done.stderr.splitlines()) == 1
    elsewhere = tether(*arguments, folder=tmp_path, GITHUB_WORKSPACE=str(tmp_path / "app"))
    assert elsewhere.stderr.startswith("::warning file=train.py,line=7,")


def test_no_annotations_unless_asked_for(recorded):
    done = tether("report", "run.tether", folder=recorded, GITHUB_ACTIONS="true")
    assert "::" not in done.stdout + done.stderr
    assert "::warning " in tether("report", "--github", "run.tether", folder=recorded).stdout


def test_diff_of_a_line_that_moved_and_of_a_repair(recorded, tmp_path):
    old = str(recorded / "run.tether")
    same = tether("diff", old, old, folder=tmp_path)
    assert same.returncode == 0
    assert "nothing changed" in same.stdout
    repaired = "# one line more\n" + CUT.replace("w.detach()", "w")
    (tmp_path / "train.py").write_text(repaired)
    assert tether("run", "-q", "-o", "new.tether", "train.py", folder=tmp_path).returncode == 0
    better = tether("diff", old, "new.tether", folder=tmp_path)
    assert better.returncode == 0
    assert "0 findings gained, 1 lost; 1 gradient changed" in better.stdout
    assert "(w * b)" not in better.stdout  # the line moved, and is the same
    worse = tether("diff", "--json", "-", "new.tether", old, folder=tmp_path)
    assert worse.returncode == 1
    made = json.loads(worse.stdout)
    assert [one["slug"] for one in made["findings"]["gained"]] == ["gradient-cut"]
    assert made["gradients"] == [{"name": "w", "before": "reached", "after": "none"}]


def test_diff_of_what_is_no_recording_is_one_line_and_exit_2(recorded):
    for arguments in (("run.tether", "nothing"), ("train.py", "run.tether"), ("run.tether",)):
        done = tether("diff", *arguments, folder=recorded)
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
    assert "Exits 1 when B has a finding" in tether("diff", "--help", folder=recorded).stdout


def test_a_slow_analysis_is_told_on_the_terminal_only(recorded):
    """In a terminal of its own, where the first look comes at once."""
    pty = pytest.importorskip("pty")
    code = (
        "import time, tether.report.progress as p; p.AFTER = p.EVERY = 0.001\n"
        "import tether.verdicts as v; judge = v.judge\n"
        "v.judge = lambda *a: (time.sleep(0.3), judge(*a))[1]\n"
        "from tether.cli.main import main; main(['report', 'run.tether'])"
    )
    own, other = pty.openpty()
    with os.fdopen(own, "rb", buffering=0) as terminal:
        done = warm.python(
            *("-c", code),
            folder=recorded,
            stderr=other,
            env={**os.environ, "TERM": "xterm"},
            text=False,
        )
        os.close(other)
        assert done.returncode == 0
        told = b""
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
            while piece := terminal.read(4096):
                told += piece
    assert b"tether: judging: " in told or b"tether: reading the recording" in told
    assert told.endswith(b"\r\x1b[K")
    assert b"\x1b" not in done.stdout
    assert b"gradient-cut" in done.stdout


def test_reports_without_source(recorded):
    arguments = ("report", "-q", "--no-source", "--json", "-", "run.tether")
    shared = tether(*arguments, folder=recorded).stdout
    assert [one["subject"] for one in json.loads(shared)["findings"]] == ["w"]
    assert "w.detach()" not in shared
    assert (
        "w.detach()" in tether("report", "-q", "--json", "-", "run.tether", folder=recorded).stdout
    )


NOTHING_ASKS = """\
from torch import nn, randn
encoder, head = nn.Linear(4, 8), nn.Linear(8, 2)
features = encoder(randn(3, 4)).detach()
head(features).sum().backward()
"""


def test_a_cut_is_told_where_nothing_asks_for_the_gradient(tmp_path):
    (tmp_path / "look.py").write_text(NOTHING_ASKS)
    done = tether("run", "-o", "look.tether", "look.py", folder=tmp_path)
    assert "nothing to report" in done.stderr  # no optimizer, and nobody read a gradient
    rows = [line.split(maxsplit=2) for line in done.stderr.splitlines()]
    assert ["encoder.weight", "none", "cut at look.py:3"] in rows
    told = tether("why", "encoder.weight", "look.tether", folder=tmp_path).stdout
    assert "`encoder(randn(3, 4)).detach()` shares the values but not the graph" in told
    assert "look.py:4  backward starts from the loss here" in told


@pytest.mark.rest
def test_the_installed_command_is_no_file_of_the_program(tmp_path):
    (tmp_path / "train.py").write_text(CUT)
    command = os.path.join(os.path.dirname(sys.executable), "tether")
    if not os.path.exists(command):
        pytest.skip("tether is not installed as a command here")
    done = subprocess.run(
        [command, "run", "-q", "--html", "page.html", "train.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert command not in (tmp_path / "page.html").read_text()
