"""Every example of the pages runs, and prints what its page shows.

The blocks of a page are taken in order, in a folder of their own: one with a title is a file, a
``console`` block is a terminal, Python is run as one program (what begins with a percent sign as
cells of a notebook, what defines tests by pytest), and of YAML the commands are run. The pages of the
verdicts are fragments; the whole program in each is run by test_verdict_examples.
"""

import os
import re
import shlex
from pathlib import Path

import pytest

import warm
from test_cli import CUT
from tether.verdicts import VERDICTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
PAGES = [
    ROOT / "README.md",
    *(one for one in sorted(DOCS.glob("*.md")) if one.name != "rulebook.md"),
]

GIVEN = """
import torch
x = torch.ones(3)
a, b = x, x.clone()
tree = {"x": x}
class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = torch.nn.Linear(2, 1)
    def forward(self, x):
        return self.layer1(x)
model = Small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.ones(1, 2)).sum()
import tether
previous = tether.copy(tree)
def train():
    model(torch.ones(1, 2)).sum().backward()
"""
"""What the fragments of a page speak of without making it."""

OWN = {"adding-a-way.md": "import tether.operations.rules_copy as r; globals().update(vars(r))"}
NOT_HERE = ("python -m pip install",)  # tests/meta/test_readme.py holds these together with CI
CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {cells!r}:
    shell.run_cell(cell).raise_error()
"""


def blocks(page):
    return BLOCK.findall(page.read_text("utf-8"))


def typed(text):
    """Yield each command of a terminal and the lines that it is to print."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        yield command.partition("  #")[0], shown.splitlines()


def in_order(shown, printed):
    """Whether the lines shown are printed in that order; `...` ends a line, or stands for some."""
    printed = iter(printed)
    return all(
        any(line.startswith(one.removesuffix("...")) for line in printed)
        if one.endswith("...")
        else one in printed
        for one in shown
        if one.strip() not in ("", "...")
    )


def run(command, folder):
    """Run a command of a page; return its exit code and what it prints."""
    for ignored in NOT_HERE:
        if command.startswith(ignored):
            return 0, ""
    program, *arguments = shlex.split(command)
    assert program in ("tether", "pytest"), command
    done = warm.python(
        "-m", program, *arguments, folder=folder, env={**os.environ, "COLUMNS": "80"}
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(CUT)
    (tmp_path / "test_training.py").write_text(
        "import runpy\n\n\ndef test_step():\n    runpy.run_path('train.py')\n"
    )
    os.symlink(ROOT / "examples", tmp_path / "examples")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda one: one.name)
def test_the_examples_of_a_page(page, folder):
    python = []
    for kind, title, text in blocks(page):
        if title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(text)
        elif kind == "python":
            python.append(text)
        if kind == "console":
            for command, shown in typed(text):
                _, printed = run(command, folder)
                assert in_order(shown, printed.splitlines()), f"{command}\n{printed}"
        if kind == "yaml":
            for command in re.findall(r"(?:run|entry): (tether .*)", text):
                code, printed = run(command, folder)
                assert code == (3 if "--fail-on" in command else 0), printed
    run_python(page, python, folder)


def run_python(page, texts, folder):
    tests = [text for text in texts if re.search(r"^def test_", text, re.M)]
    for text in tests:
        (folder / "test_page.py").write_text(text)
        done = warm.python("-m", "pytest", "-q", "test_page.py", folder=folder)
        assert done.returncode == 0, done.stdout
    cells = [GIVEN, OWN.get(page.name, ""), *(text for text in texts if text not in tests)]
    whole = "\n".join(cells)
    if "\n%" in whole:
        pytest.importorskip("IPython")
        whole = CELLS.format(cells=cells)
    done = warm.python("-c", whole, folder=folder)
    assert done.returncode == 0, done.stderr


def test_lines_that_are_not_printed_are_noticed():
    assert in_order(["a", "...", "c d ..."], ["a", "b", "c d e"])
    assert not in_order(["a", "c ..."], ["a", "b"])
    assert not in_order(["b", "a"], ["a", "b"])
    assert list(typed("$ x 1  # why\na\n$ y\n")) == [("x 1", ["a"]), ("y", [])]


# -- from symptom to verdict -----------------------------------------------------------------------


def test_the_start_page_leads_to_every_verdict():
    text = (DOCS / "index.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and ".md)" in line]
    assert len(rows) >= 10
    assert set(re.findall(r"\(verdicts/([\w-]+)\.md\)", text)) == {one.slug for one in VERDICTS}
    nav = (ROOT / "mkdocs.yml").read_text("utf-8")
    for verdict in VERDICTS:
        assert f"verdicts/{verdict.slug}.md" in nav


SAID = {
    "modified by an inplace operation": "h = w.exp(); h[0] = 0; h.sum().backward()",
    "a second time": "loss = (w * w).sum(); loss.backward(); loss.backward()",
    "a leaf Variable that requires grad": "w.add_(1)",
    "Can't call numpy()": "w.numpy()",
    "element 0 of tensors": "w.detach().sum().backward()",
}


@pytest.mark.parametrize("words", SAID)
def test_an_error_leads_to_the_verdict_that_explains_it(words, tmp_path):
    rows = (DOCS / "index.md").read_text("utf-8").splitlines()
    (row,) = [line for line in rows if words in line]
    (slug,) = re.findall(r"verdicts/([\w-]+)\.md", row)
    (tmp_path / "wrong.py").write_text(
        f"import torch\nw = torch.ones(3, requires_grad=True)\n{SAID[words]}\n"
    )
    arguments = ("run", "--output-format", "concise", "wrong.py")
    done = warm.tether(*arguments, folder=tmp_path)
    assert done.returncode == 1
    assert words in done.stderr
    assert re.search(rf"^wrong\.py:3:\d+: {slug} ", done.stderr, re.M), done.stderr
