"""The command line as a user types it, each command in a process of its own."""

import json
import os

import pytest

import warm

CUT = """\
import sys, torch
w = torch.ones(3, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    loss = (w.detach() * b).sum()
    loss.backward()
    opt.step()
print("args", sys.argv[1:])
"""


def tether(*arguments, folder, **environment):
    return warm.tether(
        *arguments, folder=folder, env={**os.environ, "COLUMNS": "80", **environment}
    )


@pytest.fixture
def program(tmp_path):
    (tmp_path / "train.py").write_text(CUT)
    return tmp_path


def test_run_reports_on_stderr_and_leaves_stdout_alone(program):
    done = tether("run", "train.py", "--lr", "1", folder=program)
    assert done.stdout == "args ['--lr', '1']\n"
    assert "gradient-cut" in done.stderr
    assert "train.py:7" in done.stderr
    assert "w.detach()" in done.stderr
    assert "\x1b" not in done.stderr
    assert done.returncode == 0


def test_a_fresh_interpreter_runs_and_reports_as_the_forks_of_these_tests_do(program):
    for name in ("rich", "click", "networkx"):  # the program's own, which it may be named like
        (program / f"{name}.py").write_text("raise SystemExit('imported by tether')")
    arguments = ("-m", "tether", "run", "train.py", "--lr", "1")
    environment = {**os.environ, "COLUMNS": "80"}
    fresh = warm.fresh(*arguments, folder=program, env=environment)
    forked = warm.python(*arguments, folder=program, env=environment)
    assert (fresh.returncode, fresh.stdout) == (forked.returncode, forked.stdout)
    assert fresh.stderr == forked.stderr


def test_fail_on_exits_3_and_quiet_says_nothing(program):
    done = tether("run", "-q", "--fail-on", "warning", "train.py", folder=program)
    assert (done.returncode, done.stderr) == (3, "")
    assert tether("run", "-q", "--fail-on", "error", "train.py", folder=program).returncode == 0


def test_json_has_the_finding(program):
    done = tether("run", "-q", "--json", "out.json", "train.py", folder=program)
    assert done.returncode == 0
    report = json.loads((program / "out.json").read_text())
    (finding,) = [one for one in report["findings"] if one["severity"] == "warning"]
    assert (finding["slug"], finding["subject"]) == ("gradient-cut", "w")
    assert (finding["site"]["file"], finding["site"]["line"]) == ("train.py", 7)
    assert {row["name"]: row["status"] for row in report["gradients"]} == {
        "w": "none",
        "b": "reached",
    }


def test_a_saved_recording_gives_the_same_report_and_answers_why(program):
    ran = tether("run", "-o", "run.tether", "train.py", folder=program)
    again = tether("report", "run.tether", folder=program)
    assert again.stdout == ran.stderr
    why = tether("why", "w", folder=program)
    assert "w.detach()" in why.stdout
    assert tether("why", "run.tether", "w", folder=program).stdout == why.stdout
    unknown = tether("why", "v", "run.tether", folder=program)
    assert unknown.returncode == 2
    assert len(unknown.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "nothing.py"),
        ("run", "--no-such-option", "train.py"),
        ("run", "--limit", "0", "train.py"),
        ("run", "--steps", "3", "train.py"),
        ("run", "--steps", "3:3", "train.py"),
        ("rulebook", "--only", "nothing"),
        ("no-such-command",),
        ("run", "-m", "no.such.module"),
        ("run", "--htlm", "x.html", "train.py"),
        ("run", "--html"),
        ("run", "--select", "gradient-cot", "train.py"),
        ("run", "--output-format", "xml", "train.py"),
        ("completion", "tcsh"),
        ("run", "-o", "no/such/folder/x", "train.py"),
        ("report", "nothing.tether"),
        ("report", "train.py"),
        ("why", "w"),
        ("explain", "gradient-cot"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(program, arguments):
    done = tether(*arguments, folder=program)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_a_module_and_a_string_of_code_run_as_python_runs_them(program):
    (program / "tool.py").write_text("import sys, torch\nprint(__name__, sys.argv)\n")
    done = tether("run", "-q", "-m", "tool", "a", folder=program)
    assert done.stdout == f"__main__ ['{program / 'tool.py'}', 'a']\n"
    done = tether("run", "-qmtool", "-c", "--html", "--", "x", folder=program)
    assert done.stdout == f"__main__ ['{program / 'tool.py'}', '-c', '--html', '--', 'x']\n"
    done = tether("run", "-q", "-c", "import sys; print(__name__, sys.argv)", "b", folder=program)
    assert done.stdout == "__main__ ['-c', 'b']\n"


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("sys.exit(7)", 7),
        ("sys.exit()", 0),
        ("sys.exit('bye')", 1),
        ("raise ValueError('mine')", 1),
        ("raise KeyboardInterrupt", -2),
        ("import os; os._exit(4)", 4),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
    ],
)
def test_the_end_of_the_program_is_as_without_tether(program, last, code):
    (program / "train.py").write_text(CUT + last + "\n")
    bare = warm.python("train.py", folder=program)
    quiet = tether("run", "-q", "train.py", folder=program)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (code, bare.stdout, bare.stderr)
    told = tether("run", "train.py", folder=program)
    assert told.returncode == code
    assert "gradient-cut" in told.stderr


def test_settings_come_from_pyproject(program):
    (program / "pyproject.toml").write_text('[tool.tether]\nfail-on = "warning"\nquiet = true\n')
    done = tether("run", "train.py", folder=program)
    assert (done.returncode, done.stderr) == (3, "")
    (program / "pyproject.toml").write_text("[tool.tether]\nfial-on = 1\n")
    done = tether("run", "train.py", folder=program)
    assert done.returncode == 2
    assert "fial-on" in done.stderr


def test_only_some_steps_are_recorded(program):
    done = tether("run", "-q", "--json", "some.json", "--steps", "1:2", "train.py", folder=program)
    assert done.returncode == 0
    report = json.loads((program / "some.json").read_text())
    assert any("steps 1:2" in gap["reason"] for gap in report["gaps"])


def test_explain_prints_pages(program):
    assert "gradient-cut" in tether("explain", folder=program).stdout
    assert "## Use instead" in tether("explain", "gradient-cut", folder=program).stdout
