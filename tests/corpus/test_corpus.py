"""Every case of the corpus is answered, and every clean one is left in peace."""

import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tether.facts import Site
from tether.finding import Finding
from tether.record.running import Program, run
from tether.record.session import Session
from tether.report.recording import Recording

CASES = Path(__file__).parent / "cases"
SLUGS = {
    "cut": {
        "gradient-cut",
        "gradient-zero",
        "gradient-unused",
        "parameter-frozen",
        "parameter-stale",
        "gradient-discarded",
        "gradient-on-non-leaf",
    },
    "alias": {"alias-write", "untracked-write", "tie-lost"},
    "saved": {"saved-overwritten", "untracked-write"},
    "retain": {"graph-retained", "storage-pinned"},
    "needless": {"needless-copy"},
}
KEYS = {folder.name: json.loads((folder / "key.json").read_text()) for folder in CASES.iterdir()}


def run_case(files, folder):
    """Copy `files` (path -> name in the folder) and run main.py there as a program of its own."""
    for source, name in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name)
    endings = []

    def finish(ending):
        endings.append(ending)
        return ending.exit_code

    saved = sys.argv, sys.path[:], sys.modules["__main__"], set(sys.modules), Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run(Program("script", "main.py"), Session(), finish)
    finally:
        torch.set_grad_enabled(True)  # a case leaves it off: that is what is wrong with it
        os.chdir(saved[4])
        sys.argv, sys.path[:], sys.modules["__main__"] = saved[:3]
        for module in set(sys.modules) - saved[3]:
            file = getattr(sys.modules[module], "__file__", None) or ""
            if file.startswith(str(folder)):
                del sys.modules[module]
    return Recording(endings[0].trace), endings[0].error


def files_of(case, key):
    return {CASES / case / name: name for name in key["files"]}


def lines_of(finding):
    return {(Path(one.file).name, one.line) for one in
            (finding.site, *(evidence.site for evidence in finding.evidence))}  # fmt: skip


def answers(recording, key):
    """Findings that answer a case: a fitting slug that names one of the key's lines."""
    wanted = {(line["file"], line["line"]) for line in [key["cause"], *key["other_lines"]]}
    return [
        finding
        for finding in recording.findings
        if finding.slug in SLUGS[key["category"]] and wanted & lines_of(finding)
    ]


def told(recording):
    return "\n".join(
        f"{one.severity} {one.slug} {one.subject} {sorted(lines_of(one))}: {one.message}"
        for one in recording.findings
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case", sorted(case for case, key in KEYS.items() if key["category"] != "clean")
)
def test_a_case_is_answered(case, tmp_path):
    key = KEYS[case]
    recording, error = run_case(files_of(case, key), tmp_path)
    assert (error is not None) == (key["run"]["expect"] == "error"), error
    assert answers(recording, key), told(recording)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case", sorted(case for case, key in KEYS.items() if key["category"] == "clean")
)
def test_a_clean_case_is_left_in_peace(case, tmp_path):
    key = KEYS[case]
    recording, error = run_case(files_of(case, key), tmp_path)
    assert error is None
    grave = [one for one in recording.findings if one.severity != "note"]
    assert not grave, told(recording)
    suspicious = {(line["file"], line["line"]) for line in key["suspicious"]}
    for finding in recording.findings:
        assert finding.slug != "needless-copy" or not suspicious & lines_of(finding), told(
            recording
        )


def fixed_files(case, key):
    """The corrected program: one file in place of main.py, or a folder."""
    folder = CASES / case
    if (folder / "fixed.py").exists():
        files = {folder / name: name for name in key["files"] if name != "main.py"}
        return {**files, folder / "fixed.py": "main.py"}
    return {file: file.name for file in (folder / "fixed").iterdir() if file.suffix == ".py"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case", sorted(case for case, key in KEYS.items() if key["alternate"]["role"] == "fixed")
)
def test_the_corrected_program_is_quiet_about_what_was_corrected(case, tmp_path):
    key = KEYS[case]
    recording, error = run_case(fixed_files(case, key), tmp_path)
    assert error is None
    left = [
        one
        for one in recording.findings
        if one.slug in SLUGS[key["category"]] and one.severity != "note"
    ]
    assert not left, told(recording)


def recorded(slug, line, file="main.py"):
    """A recording with one finding, made by hand."""
    site = Site(f"/somewhere/{file}", line)
    finding = Finding(slug, "warning", "x", site, "detach", "x is cut")
    return SimpleNamespace(findings=[finding])


@pytest.mark.parametrize("case", sorted(case for case, key in KEYS.items() if key["cause"]))
def test_a_wrong_answer_does_not_count(case):
    """The judgement itself can fail: another line, another slug, another file, none at all."""
    key = KEYS[case]
    if key["category"] not in SLUGS:
        pytest.skip("nothing is to be found in it")
    line, file = key["cause"]["line"], key["cause"]["file"]
    right = sorted(SLUGS[key["category"]])[0]
    wrong = next(slug for slug in ("needless-copy", "alias-write") if slug != right)
    assert answers(recorded(right, line, file), key)
    assert not answers(SimpleNamespace(findings=[]), key)
    assert not answers(recorded(right, 999, file), key)
    assert not answers(recorded(wrong, line, file), key)
    assert not answers(recorded(right, line, "other.py"), key)
