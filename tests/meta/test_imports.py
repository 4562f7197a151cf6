"""`import tether` loads nothing heavy, and the layers hold; each check is shown able to fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "rich", "click", "jinja2", "pygments", "optree", "libcst", "matplotlib")


def loaded_after(statement):
    """Names of heavy modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import tether", "import tether; dir(tether)",
                                       "import tether.facts, tether.finding, tether.operations"])  # fmt: skip
def test_importing_loads_nothing_heavy(statement):
    assert loaded_after(statement) == set()


def test_judging_loads_the_columns_of_a_recording_and_nothing_else():
    assert loaded_after("import tether.analysis.history, tether.verdicts") == {"numpy"}


def test_the_pytest_plugin_loads_no_torch():
    assert loaded_after("import tether.pytest_plugin") <= {"pygments"}  # which pytest loads itself


def test_the_check_above_can_fail():
    assert "torch" in loaded_after("import tether; tether.relate")


def test_an_unknown_name_is_an_attribute_error():
    import tether

    with pytest.raises(AttributeError, match="no attribute 'cpoy'"):
        tether.cpoy  # noqa: B018


LINT = (
    "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
)


def lint(folder):
    return subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={"PYTHONPATH": str(folder / "src"), "PATH": "", "HOME": str(folder)},
    )


def test_the_layers_hold_and_a_breach_is_caught(tmp_path):
    pytest.importorskip("importlinter")
    for name in ("src", "pyproject.toml"):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    held = lint(tmp_path)
    assert held.returncode == 0, held.stdout + held.stderr
    with (tmp_path / "src" / "tether" / "analysis" / "history.py").open("a") as file:
        file.write("\nimport torch\n")
    assert lint(tmp_path).returncode != 0
