"""A write that PyTorch refuses is told with its leaf, its line and the ways out."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "write_to_a_leaf.py"


def report(file):
    """Run a program as a user does; return its exit code and the report with single spaces."""
    done = subprocess.run(
        [sys.executable, "-m", "tether", "run", str(file)],
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, " ".join(done.stderr.split())


def test_the_example_write_to_a_leaf():
    lines = EXAMPLE.read_text().splitlines()
    made = lines.index("scale = torch.ones(3, requires_grad=True)") + 1
    code, text = report(EXAMPLE)
    assert code == 1
    assert (
        f"because `scale += 1.0` at write_to_a_leaf.py:{len(lines)} writes to `scale`, made at"
        f" write_to_a_leaf.py:{made}." in text
    )
    assert "torch.no_grad()" in text
    assert "`scale.clone()`" in text
    assert "not through `scale.data`" in text


@pytest.mark.parametrize(
    ("write", "told"),
    [
        ("w[0] = 2.0", "because `w[0]` at main.py:3 writes to `w`, made at main.py:2"),
        ("w[:1].mul_(2.0)", "writes to `w` through a view of it"),
        ("torch.nn.functional.relu(w, inplace=True)", "writes to `w`, made at"),
    ],
)
def test_other_writes(write, told, tmp_path):
    file = tmp_path / "main.py"
    file.write_text(f"import torch\nw = torch.ones(3, requires_grad=True)\n{write}\n")
    assert told in report(file)[1]


@pytest.mark.parametrize(
    "ending",
    ["raise ValueError('mine')", "raise RuntimeError('a leaf Variable that requires grad')"],
)
def test_another_error_is_not_explained_so(ending, tmp_path):
    file = tmp_path / "main.py"
    file.write_text(
        "import torch\nw = torch.ones(3, requires_grad=True)\n"
        f"try:\n    w += 1\nexcept RuntimeError:\n    pass\n{ending}\n"
    )
    code, text = report(file)
    assert code == 1
    assert "because" not in text
