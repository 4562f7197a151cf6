"""The README's commands are the ones that CI runs, and its output is what the program prints."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST_COMMAND = (
    'python -m pip install torch==2.13.0 && python -m pip install ".[test]" && python -m pytest'
)


def test_ci_runs_the_readmes_test_command():
    assert TEST_COMMAND in (ROOT / "README.md").read_text()
    assert TEST_COMMAND in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_readmes_example_exists():
    command = "python -m pip install torch==2.13.0 . && tether run "
    (line,) = [
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(command)
    ]
    assert (ROOT / line.removeprefix(command)).is_file()


def test_the_pages_the_readme_links_to_exist():
    import re

    for page in re.findall(r"\]\(([\w/.-]+\.md)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / page).is_file(), page
