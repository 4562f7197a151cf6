"""The house: its sizes, its one table of operations, its one reader of program text.

The figures are those of `make figures`. What is left over from before is counted here, by room,
and may only become less: where it has, lower the number.
"""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import figures
from lengths import LONG

ROOT = Path(__file__).parents[2]
FILES = figures.files(ROOT / "src" / "tether")
FUNCTIONS = figures.functions(FILES)

# The hook inlines on purpose; `copy` has an option for each thing that can be asked of a copy.
COMPLEX = {
    "record/listener.py __torch_function__",
    "copying/copy.py copy",
}
MANY_PARAMETERS = {
    "copying/copy.py copy",
    "cli/bench.py bench_command",  # an argument for each option of the command
    "record/tape.py add",  # the hook writes an event in one call
    "record/listener.py note",
}


def test_no_function_branches_too_much():
    found = {one.place for one in FUNCTIONS if one.complexity > figures.COMPLEXITY}
    assert found == COMPLEX


def test_no_function_takes_too_much():
    found = {one.place for one in FUNCTIONS if one.parameters > figures.PARAMETERS}
    assert found == MANY_PARAMETERS


def test_operations_are_listed_in_one_place():
    found = {one.name: figures.tables(one) for one in FILES if one.room != "operations"}
    assert not {name: tables for name, tables in found.items() if tables}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("A = {'add', 'mul', 'div'}", 1),
        ("A = 'add mul div'.split()", 1),
        ("A = frozenset({'add'} | {'mul'}) | {'div', 'no operation'}", 1),
        ("A = x in ('add', 'mul')", 0),
        ("A = {'append', 'extend', 'insert', 'add', 'mul', 'div', 'push'}", 0),
        ("'What add and mul and div do, in a sentence that says something else as well.'", 0),
    ],
)
def test_what_counts_as_a_list_of_operations(text, count):
    assert len(figures.tables(figures.File("x.py", text, ast.parse(text)))) == count


def test_program_text_is_parsed_in_one_place():
    assert {file.name for file in FILES if figures.parses(file)} == {"source/syntax.py"}


def test_an_analysis_serves_more_than_one_verdict():
    assert not figures.of_one_verdict(FILES)


def test_what_one_verdict_alone_asks_is_found():
    texts = {
        "analysis/own.py": "from tether.analysis.behind import z",
        "analysis/behind.py": "",
        "analysis/common.py": "",
        "verdicts/one/part.py": "from tether.analysis.own import x",
        "verdicts/two.py": "from tether.analysis import common",
        "report/page/page.py": "from tether.analysis.common import y",
    }
    of = [figures.File(name, text, ast.parse(text)) for name, text in texts.items()]
    assert figures.of_one_verdict(of) == {"analysis/own": "one", "analysis/behind": "one"}


def test_every_class_has_a_name_of_its_own():
    assert not figures.same_names(FILES)


def test_the_linter_holds_sizes_but_where_these_lists_say():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert settings["mccabe"]["max-complexity"] == figures.COMPLEXITY
    assert settings["pylint"]["max-args"] == figures.PARAMETERS
    assert "C901" in settings["select"]
    excused = {
        file.removeprefix("src/tether/")
        for file, rules in settings["per-file-ignores"].items()
        if file.startswith("src/") and {"C901", "PLR0913"} & set(rules)
    }
    named = {place.split()[0] for place in COMPLEX | MANY_PARAMETERS}
    assert excused <= named


def test_the_tests_of_unit_run_without_torch():
    script = ROOT / "tests" / "unit" / "without_torch.py"
    command = [sys.executable, str(script), *(["--long"] if LONG else [])]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_the_figures_are_printed():
    printed = "\n".join(figures.report(ROOT / "src" / "tether" / "store"))
    assert f"in {sum(one.room == 'store' for one in FILES)} files" in printed
    assert f"complexity above {figures.COMPLEXITY}" in printed
    assert "tables of operations outside" in printed
