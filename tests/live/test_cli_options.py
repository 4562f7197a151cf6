"""Every command and option from the outside: in a pipe and in a terminal of 80 columns."""

import contextlib
import fcntl
import importlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import termios
import threading

import click
import pytest

import warm
from test_cli import CUT, tether
from tether.cli.main import COMMANDS, main
from tether.report.forms import FORMS, PRINTED

NAME = "encoder_of_a_model_with_long_names_layer_00_attention_projection_weight_matrix"
LONG = f"""\
import torch
class Net(torch.nn.Module): pass
net = Net()
net.{NAME} = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    (net.{NAME}(torch.ones(1, 3)).detach() * torch.ones(3, requires_grad=True)).sum().backward()
    opt.step()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with programs and their recordings, made once."""
    made = tmp_path_factory.mktemp("commands")
    (made / "train.py").write_text(CUT)
    (made / "long.py").write_text(LONG)
    (made / "plain.py").write_text("print('hello')\n")
    for name in ("train", "long"):
        assert tether("run", "-qo", f"{name}.tether", f"{name}.py", folder=made).returncode == 0
    return made


def in_terminal(*arguments, folder, columns=80, typed=(), **environment):
    """Run the command in a terminal of so many columns; return its exit code and what it shows.

    `typed` are pairs: when the first has been shown, the second is typed.
    """
    pty = pytest.importorskip("pty")
    own, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    names = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    env = {**inherited, "TERM": "xterm-256color", **environment}
    shown = []

    def read():
        waiting = list(typed)
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
            while piece := os.read(own, 65536):
                shown.append(piece)
                if waiting and waiting[0][0] in plain(b"".join(shown).decode("utf-8", "ignore")):
                    os.write(own, waiting.pop(0)[1])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    command = ("-m", "tether", *arguments)
    child = warm.Child(*command, folder=folder, env=env, stdin=other, stdout=other, stderr=other)
    os.close(other)
    code = child.wait(120)
    reader.join(10)
    os.close(own)
    return code, b"".join(shown).decode().replace("\r\n", "\n")


def plain(text):
    return re.sub(r"\x1b(\[[\d;?]*[a-zA-Z]|\].*?\x1b\\)|\r\x1b\[K", "", text)


def options_of(name):
    module = importlib.import_module(f"tether.cli.{name}")
    command = getattr(module, f"{name}_command")
    return {text for one in command.params for text in one.opts if text.startswith("--")}


# -- help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_whole_in_80_columns(folder, name):
    words = [name] if name else []
    code, shown = in_terminal(*words, "--help", folder=folder)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in re.sub(r"(\]|ARGS\]|RECORDING)\.\.\.", "", shown), "a sentence is cut"
    for option in options_of(name) if name else ():
        assert re.search(rf"{option}\b", shown), option


def test_help_names_every_command():
    context = click.Context(main)
    assert set(main.list_commands(context)) == set(COMMANDS)
    for name in COMMANDS:
        assert main.get_command(context, name).name == name


def test_without_a_command_there_is_help_and_exit_2(folder):
    done = tether(folder=folder)
    assert done.returncode == 2
    assert "Usage: tether" in done.stdout
    assert tether("--version", folder=folder).stdout.startswith("tether, version ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("run", "--htlm", "x.html", "train.py"),
            "there is no option --htlm: did you mean --html?",
        ),
        (("memory", "--row", "3", "train.py"), "there is no option --row: did you mean --rows?"),
        (("report", "--shw-all", "train.tether"), "did you mean --show-all?"),
        (("runn", "train.py"), "there is no command runn: did you mean run?"),
        (("run", "--select", "gradient-cot", "train.py"), "did you mean gradient-cut?"),
        (("run", "--ignore", "nothing*", "train.py"), "`tether explain` lists them"),
        (("run", "--fail-on", "grave", "train.py"), "'error', 'warning', 'note'"),
        (("run", "nothing.py"), "there is no file 'nothing.py'"),
        (("run",), "nothing to run"),
        (("run", "--write", "train.py"), "--write and --unsafe-fixes need --fix"),
        (("explain", "gradient-cot"), "did you mean gradient-cut?"),
        (("bench", "x.nosuch()", "--sizes", "4K"), "has no attribute 'nosuch'"),
        (("rulebook", "--only", "nothing at all"), "no rule fits"),
        (("why", "nothing", "train.tether"), "nothing"),
        (("view", "train.tether"), "tether view needs a terminal; `tether report` prints"),
        (("view", "nothing.tether"), "cannot open nothing.tether"),
        (("view", "--web", "nothing.py"), "there is no file 'nothing.py': give a recording, or a"),
        (("view", "--web", "--port", "99999", "train.tether"), "99999 is not in the range"),
        (("view", "-m", "timeit"), "tether view takes one recording; with --web it also runs"),
        (("view", "--web"), "nothing to run"),
        (("view", "train.py"), "train.py is not a tether recording"),
        (("diff", "train.tether", "nothing"), "nothing"),
    ],
)
def test_what_is_wrong_is_one_line_with_what_to_do(folder, arguments, said):
    done = tether(*arguments, folder=folder)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("tether: ")
    assert said in line


def test_an_option_that_comes_too_late_is_pointed_out(folder, tmp_path):
    late = tether("run", "train.py", "--html", "x.html", folder=folder)
    assert late.returncode == 0
    assert late.stdout == "args ['--html', 'x.html']\n"
    assert late.stderr.endswith(
        "tether: --html was passed to train.py: put tether's options before it\n"
    )
    assert not (folder / "x.html").exists()
    (tmp_path / "own.py").write_text(f"{CUT}import argparse\nargparse.ArgumentParser('--html')\n")
    for words in (("own.py", "--html"), ("own.py", "--lr", "1")):
        assert "passed to" not in tether("run", *words, folder=tmp_path).stderr
    assert tether("run", "-q", "train.py", "--html", folder=folder).stderr == ""


# -- forms of the report ---------------------------------------------------------------------------

FOUND = (
    "gradient-cut `w` got no gradient in any of 2 steps. The path to the loss is cut here: "
    "`w.detach()` shares the values but not the graph."
)


def test_concise_is_a_line_for_each_finding(folder):
    done = tether("run", "--output-format", "concise", "train.py", folder=folder)
    assert done.stderr == f"train.py:7:13: {FOUND}\n1 warning in 18 calls recorded\n"
    above = tether(
        "report", "--output-format", "concise", f"{folder.name}/train.tether", folder=folder.parent
    )
    assert above.stdout.splitlines()[0] == f"{folder.name}/train.py:7:13: {FOUND}"


def test_grouped_is_by_file(folder):
    done = tether("report", "--output-format", "grouped", "train.tether", folder=folder)
    assert done.stdout == f"train.py:\n  7:13 {FOUND}\n1 warning in 18 calls recorded\n"


def test_json_sarif_and_github_as_the_report(folder):
    read = {}
    for form in PRINTED:
        done = tether("report", "--output-format", form, "train.tether", folder=folder)
        read[form] = json.loads(done.stdout)
        file = folder / f"out.{form}"
        assert tether("report", f"--{form}", file.name, "-q", "train.tether", folder=folder)
        assert json.loads(file.read_text()) == read[form]
        done = tether(
            "report", "--output-format", form, "--no-source", "train.tether", folder=folder
        )
        assert "w.detach()" not in done.stdout
    assert read["json"]["findings"][0]["slug"] == "gradient-cut"
    assert read["sarif"]["runs"][0]["results"][0]["ruleId"] == "gradient-cut"
    done = tether("report", "--output-format", "github", "train.tether", folder=folder)
    assert done.stdout.startswith("::warning file=")
    assert done.stdout.count("\n") == 1
    heard = tether("run", "--output-format", "json", "train.py", folder=folder)
    assert json.loads(heard.stderr)["findings"] == read["json"]["findings"]
    assert heard.stdout == "args []\n"


@pytest.mark.parametrize("form", PRINTED)
def test_a_form_that_goes_to_stdout_is_alone_there(folder, form):
    alone = tether("report", f"--{form}", "-", "train.tether", folder=folder)
    asked = tether("report", "--output-format", form, "train.tether", folder=folder)
    assert json.loads(alone.stdout) == json.loads(asked.stdout)
    both = tether("report", f"--{form}", "-", "--github", "train.tether", folder=folder)
    assert json.loads(both.stdout) == json.loads(asked.stdout)
    assert both.stderr.startswith("::warning")
    read = tether("report", f"--{form}", "out", "train.tether", folder=folder)
    assert read.stdout.startswith("tether: train.py")


@pytest.mark.parametrize("command", ["run train.py", "report train.tether"])
def test_only_one_form_can_go_to_stdout(folder, command):
    name, file = command.split()
    done = tether(name, "--json", "-", "--sarif", "-", file, folder=folder)
    assert done.returncode == 2
    assert "only one form can be written to stdout, not --json and --sarif" in done.stderr
    assert not done.stdout


def test_full_is_what_one_gets(folder):
    default = tether("report", "train.tether", folder=folder).stdout
    assert tether("report", "--output-format", "full", "train.tether", folder=folder).stdout == (
        default
    )


# -- which findings --------------------------------------------------------------------------------


def slugs(*options, folder):
    done = tether("report", *options, "--output-format", "json", "train.tether", folder=folder)
    return [one["slug"] for one in json.loads(done.stdout)["findings"]], done.returncode


def test_select_ignore_fail_on_and_exit_zero(folder):
    assert slugs(folder=folder) == (["gradient-cut"], 0)
    assert slugs("--select", "gradient-*", folder=folder) == (["gradient-cut"], 0)
    assert slugs("--select", "alias-write,tie-lost", folder=folder) == ([], 0)
    fail = ("--fail-on", "warning")
    assert slugs(*fail, folder=folder) == (["gradient-cut"], 3)
    assert slugs(*fail, "--ignore", "gradient-cut", folder=folder) == ([], 0)
    assert slugs(*fail, "--exit-zero", folder=folder) == (["gradient-cut"], 0)
    assert slugs("--fail-on", "error", folder=folder) == (["gradient-cut"], 0)


def test_nothing_recorded_has_an_exit_code_of_its_own(folder):
    told = tether("run", "plain.py", folder=folder)
    assert told.returncode == 0
    assert "no PyTorch call was recorded" in told.stderr
    assert tether("run", "--fail-on", "error", "plain.py", folder=folder).returncode == 4
    zero = ("run", "--fail-on", "error", "--exit-zero", "plain.py")
    assert tether(*zero, folder=folder).returncode == 0


def test_diff_exits_1_unless_told_otherwise(folder):
    (folder / "repaired.py").write_text(CUT.replace("w.detach()", "w"))
    tether("run", "-qo", "repaired.tether", "repaired.py", folder=folder)
    two = ("repaired.tether", "train.tether")
    assert tether("diff", *two, folder=folder).returncode == 1
    assert tether("diff", "--exit-zero", *two, folder=folder).returncode == 0


def test_show_all_leaves_no_row_out(tmp_path):
    lines = "".join(f"kept.append((x * {n}).clone())\n" for n in range(50))
    (tmp_path / "many.py").write_text(
        f"import torch\nx = torch.ones(3)\nkept = []\n{lines}print(len(kept))\n"
    )
    short = tether("run", "-o", "many.tether", "many.py", folder=tmp_path).stderr
    assert "--show-all lists them" in short
    assert "(x * 49).clone()" not in short
    whole = tether("report", "--show-all", "many.tether", folder=tmp_path).stdout
    assert "--show-all" not in whole
    assert "(x * 49).clone()" in whole


# -- the terminal ----------------------------------------------------------------------------------


def test_a_terminal_gets_colours_links_and_its_width(folder):
    code, shown = in_terminal("report", "train.tether", folder=folder)
    assert code == 0
    assert "\x1b[" in shown
    assert re.search(rf"\x1b\]8;[^;]*;file://[^/]*{folder}/train\.py#7\x1b\\", shown)
    text = plain(shown)
    assert max(map(len, text.splitlines())) <= 80
    assert text == tether("report", "train.tether", folder=folder).stdout
    code, shown = in_terminal("report", "train.tether", folder=folder, NO_COLOR="1")
    assert "\x1b" not in shown


def test_colours_in_a_pipe_when_they_are_forced(folder):
    piped = tether("report", "train.tether", folder=folder)
    forced = tether("report", "train.tether", folder=folder, FORCE_COLOR="1")
    assert "\x1b" not in piped.stdout
    assert "\x1b[" in forced.stdout
    assert plain(forced.stdout) == piped.stdout
    both = tether("report", "train.tether", folder=folder, FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b" not in both.stdout


def test_a_long_name_is_never_broken(folder):
    code, shown = in_terminal("report", "long.tether", folder=folder)
    assert code == 0
    text = plain(shown)
    assert f"`net.{NAME}.weight`\n" in text
    assert f"net.{NAME}.bias" in text
    for cut in re.finditer(r"net\.enc\w*(?!\w|\.\.\.|\u2026)", text):
        assert cut[0] == f"net.{NAME}", "a name is broken, and nothing says so"


# -- settings and completion -----------------------------------------------------------------------


def settings(folder, text, *arguments):
    (folder / "pyproject.toml").write_text(text)
    try:
        return tether(*arguments, folder=folder)
    finally:
        (folder / "pyproject.toml").unlink()


def test_settings_take_what_the_command_line_takes(folder):
    table = '[tool.tether]\noutput-format = "concise"\nselect = ["gradient-*"]\nlimit = 1000\n'
    done = settings(folder, table, "report", "train.tether")
    assert done.stdout.startswith("train.py:7:13: gradient-cut")
    done = settings(folder, table, "report", "--output-format", "github", "train.tether")
    assert done.stdout.startswith("::warning")
    done = settings(folder, '[tool.tether]\njson = "-"\nquiet = true\n', "report", "train.tether")
    assert json.loads(done.stdout)["schema"] == 1
    own = '[tool.tether]\nlimit = 9\n[tool.tether.bench]\nsizes = "4K"\nseconds = 0.05\n'
    done = settings(folder, own, "bench", "x.t()", "--json", "-", "--shape", "n,8")
    assert [one["nbytes"] for one in json.loads(done.stdout)["costs"]] == [4096]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            "[tool.tether]\nfial-on = 1",
            "[tool.tether] has no setting 'fial-on': did you mean fail-on?",
        ),
        ("[tool.tether]\nzzz = 1", "there are "),
        ("[tool.tether]\nquiet = 1", "[tool.tether] quiet: must be true or false, not 1"),
        ("[tool.tether]\ninclude = 'x'", "[tool.tether] include: must be a list, not 'x'"),
        ("[tool.tether]\nlimit = 'x'", "[tool.tether] limit: must be a number, not 'x'"),
        ("[tool.tether]\nlimit = 0", "[tool.tether] limit: 0 is not in the range"),
        ("[tool.tether]\nfail-on = 'x'", "[tool.tether] fail-on: 'x' is not one of"),
        ("[tool.tether]\nselect = ['x']", "[tool.tether] select: there is no verdict 'x'"),
        ("[tool.tether.report]\nlimit = 1", "[tool.tether.report] has no setting 'limit'"),
        ("[tool]\ntether = 1", "[tool.tether] must be a table"),
        ("[tool.tether]\nreport = 1", "[tool.tether.report] must be a table"),
        ("[tool.tether", "cannot read"),
    ],
)
def test_a_wrong_setting_is_one_line(folder, table, said):
    done = settings(folder, table, "report", "train.tether")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "pyproject.toml" in line
    assert said in line


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tether ru", {"run", "rulebook"}),
        ("tether report --output-f", {"--output-format"}),
        ("tether explain gradient-c", {"gradient-cut"}),
        ("tether report --select tie-", {"tie-error", "tie-lost"}),
        ("tether report --output-format g", {"grouped", "github"}),
    ],
)
def test_a_shell_is_told_what_fits(folder, typed, offered):
    words = typed.split()
    environment = {"COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = tether(folder=folder, _TETHER_COMPLETE="bash_complete", **environment)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_one_that_the_shell_reads(folder, shell):
    script = tether("completion", shell, folder=folder).stdout
    assert "_TETHER_COMPLETE" in script
    if shutil.which(shell):
        done = subprocess.run(
            [shell, "-n"], input=script, text=True, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_every_option_of_the_contract_is_there():
    assert options_of("run") >= {
        "--html", "--json", "--sarif", "--quiet", "--fail-on", "--include", "--omit", "--steps",
        "--limit", "--output-format", "--select", "--ignore", "--exit-zero", "--show-all",
    }  # fmt: skip
    assert options_of("rulebook") >= {"--device", "--format"}
    named = {"run", "report", "why", "diff", "rulebook", "bench", "memory", "explain"}
    assert named <= set(COMMANDS)


# -- every option ----------------------------------------------------------------------------------

OPTIONS = [
    # the command line, what stdout or stderr says (a pattern), the files it makes
    ("run --output out.tether -c 'import torch; torch.ones(1)'", "1 call recorded", "out.tether"),
    ("run --no-children --steps 0:1 train.py", r"1 warning in \d+ calls", ""),
    ("run --children --limit 9 -c 'import torch; [torch.ones(1) + n for n in range(2000)]'",
     r"Only the last [\d,]+ calls were kept", ""),
    ("run --no-children --sample train.py", r"1 warning in 18 calls", ""),
    ("run --eager train.py", r"1 warning in 18 calls", ""),
    ("run --memory train.py", r"Peak \d+ B at train\.py", ""),
    ("run --github -q train.py", "::warning file=", ""),
    (f"run {' '.join(f'--{one.name} a.{one.name}' for one in FORMS)} --no-source train.py",
     "1 warning", " ".join(f"a.{one.name}" for one in FORMS)),
    ("run --include '*.py' --omit 'train*' train.py", "nothing to report", ""),
    ("run --prove train.py", "1 warning", ""),
    ("run --fix --unsafe-fixes --write -m timeit -n 1 -r 1", "no PyTorch call", ""),
    ("report --include 'nowhere/*' train.tether", "nothing to report", ""),
    ("report --omit '*' train.tether", "nothing to report", ""),
    ("report --github --quiet train.tether", "::warning file=", ""),
    ("report --html b.html --sarif b.sarif --no-source train.tether", "1 warning", "b.html"),
    ("why w train.tether", "gradient-cut", ""),
    ("why train.py:7 train.tether", "gradient-cut", ""),
    ("diff --json d.json --html d.html -q train.tether train.tether", "", "d.json d.html"),
    ("diff --include '*.py' --omit x train.tether train.tether", "", ""),
    ("memory --rows 1 --json m.json --html m.html train.py", "more lines; --json has all",
     "m.json m.html"),
    ("memory --map end -c 'import torch; x = torch.ones(3)'", "Map of tensor memory, end", ""),
    ("memory -m timeit -n 1 -r 1", "No tensor's memory was seen", ""),
    ("bench x.t() --sizes 4K --shape n,8 --dtype float64 --grad --seconds 0.05", "4 KiB", ""),
    ("bench x.t() --sizes 4K --seconds 0.05 --device cpu --save c.json --html c.html", "4 KiB",
     "c.json c.html"),
    ("rulebook --only detach --device cpu --no-cache --format json", '"detach', ""),
    ("explain gradient-cut", "## Fix safety|Fix safety", ""),
    ("completion bash", "_TETHER_COMPLETE", ""),
]  # fmt: skip

ELSEWHERE = {
    "run": "-o -c -m -q --quiet --output-format --show-all --select --ignore --fail-on --exit-zero",
    "report": "-q --output-format --show-all --select --ignore --fail-on --exit-zero --json",
    "view": "-m -c --web --port -o --output --select --ignore --include --omit",  # test_view*.py
    "diff": "--quiet --exit-zero",
    "memory": "-c -m --plot",
    "bench": "--limit --compare --json --plot",  # test_bench_command.py
}


@pytest.mark.parametrize(("line", "said", "files"), OPTIONS, ids=[one[0] for one in OPTIONS])
def test_an_option_does_what_it_says(folder, line, said, files):
    done = tether(*shlex.split(line), folder=folder)
    assert done.returncode == 0, done.stderr
    assert re.search(said, " ".join((done.stdout + done.stderr).split()))
    for file in files.split():
        text = (folder / file).read_bytes()
        assert text, file
        assert b"w.detach()" not in text or "--no-source" not in line


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_tried(name):
    module = importlib.import_module(f"tether.cli.{name}")
    command = getattr(module, f"{name}_command")
    spelt = {one for param in command.params for one in (*param.opts, *param.secondary_opts)}
    tried = {word for line, *_ in OPTIONS if line.split()[0] == name for word in line.split()}
    tried |= set(ELSEWHERE.get(name, "").split())
    assert {one for one in spelt if one.startswith("-")} <= tried
