"""`tether bench` as a command: what it refuses, and a whole run of it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tether.cli.bench import bench_command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x +"], "is no expression"),
        (["--sizes", "y"], "no size"),
        (["--dtype", "float99"], "no dtype"),
        (["--shape", "3,4"], "exactly one n"),
        (["--device", "cuda:77"], "cannot be used"),
        (["--compare", "nowhere.json"], "cannot read nowhere.json"),
        (["--plot", "x.gif"], ".png, .svg; --html writes a page"),
        (["--save", "nowhere/x.json"], "no such folder"),
        (["--seconds", "0"], "more than 0"),
        (["x.nosuch()", "--sizes", "4K"], "x.nosuch(): AttributeError"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, said):
    result = CliRunner().invoke(bench_command, arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_whole_run_through_the_command(tmp_path):
    saved = tmp_path / "old.json"
    small = ["--sizes", "256", "--seconds", "0.1", "x.clone()", "x.t()", "x.nothing"]
    small += ["--shape", "n,8", "--dtype", "bfloat16"]
    result = CliRunner().invoke(bench_command, [*small, "--save", str(saved)])
    assert result.exit_code == 2, result.output
    assert "tether: not measured: x.nothing: AttributeError" in result.stderr
    clone, view, failed = json.loads(Path(saved).read_text())["costs"]
    assert (clone["nbytes"], clone["allocated"], clone["memory"]) == (256, 256, "none")
    assert (view["allocated"], view["memory"]) == (0, "same")
    assert failed["seconds"] is None
    assert "nothing" in failed["note"]
    again = CliRunner().invoke(bench_command, [*small, "--compare", str(saved), "--json", "-"])
    assert again.exit_code == 2
    assert json.loads(again.stdout)["kind"] == "tether bench"
