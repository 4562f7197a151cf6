"""The generated pages are those of today's code, and the README shows what tether prints."""

import os
import re
import runpy
from pathlib import Path

from warm import tether

ROOT = Path(__file__).parents[2]


def stale(folder, wanted):
    """Names of pages that are missing, superfluous or differ."""
    kept = {f"{file.parent.name}/{file.name}": file for file in folder.glob("*/*.md")}
    generated = {name for name in kept if "Generated from" in kept[name].read_text("utf-8")[:80]}
    return sorted(
        name
        for name in generated | wanted.keys()
        if name not in kept or kept[name].read_text("utf-8") != wanted.get(name)
    )


def test_the_generated_pages_are_fresh():
    wanted = runpy.run_path(str(ROOT / "docs" / "make_pages.py"))["pages"]()
    assert stale(ROOT / "docs", wanted) == [], "run: make docs"


def test_the_check_above_can_fail(tmp_path):
    (tmp_path / "a").mkdir()
    note = "<!-- Generated from x -->\n"
    for name, text in (("same", note), ("changed", note), ("gone", note), ("written", "by hand")):
        (tmp_path / "a" / f"{name}.md").write_text(text)
    wanted = {"a/same.md": note, "a/changed.md": "other", "a/new.md": "text"}
    assert stale(tmp_path, wanted) == ["a/changed.md", "a/gone.md", "a/new.md"]


def test_the_gallery_shows_examples_and_their_reports(tmp_path):
    gallery = runpy.run_path(str(ROOT / "docs" / "make_gallery.py"))
    names = list(gallery["names"]())
    assert len(names) > 5
    assert [one for one in names if not (ROOT / "examples" / f"{one}.py").is_file()] == []
    page = gallery["report"]("write_to_a_leaf", tmp_path)
    assert "tie-error" in page
    assert len(page) < 300_000


def in_order(shown, printed):
    """Whether the lines shown, where they do not say "...", are printed in that order."""
    printed = iter(printed)
    return all(line in printed for line in shown if line.strip() not in ("", "..."))


def test_the_readmes_output_is_what_tether_prints():
    (block,) = re.findall(
        r"```console\n\$ tether run (\S+)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    done = tether("run", block[0], folder=ROOT, env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    printed = (done.stdout + done.stderr).splitlines()
    assert in_order(block[1].splitlines(), printed), done.stdout + done.stderr


def test_the_comparison_above_can_fail():
    assert in_order(["a", "...", "c"], ["a", "b", "c"])
    assert not in_order(["a", "c", "b"], ["a", "b", "c"])
    assert not in_order(["a", "d"], ["a", "b", "c"])
