"""Each verdict's own examples, run for real, and the further ones in `verdict_examples`."""

import importlib
from pathlib import Path

import pytest
import torch

from programs import record_program
from tether.verdicts import VERDICTS
from tether.verdicts.base import HEADINGS

FURTHER = {
    path.stem.replace("_", "-"): importlib.import_module(f"verdict_examples.{path.stem}").EXAMPLES
    for path in sorted(Path(__file__).parent.glob("verdict_examples/*.py"))
}
EXAMPLES = [
    (verdict, example)
    for verdict in VERDICTS
    for example in (*verdict.examples, *FURTHER.get(verdict.slug, ()))
]


def test_further_examples_are_of_verdicts_that_there_are():
    assert FURTHER.keys() <= {one.slug for one in VERDICTS}


@pytest.mark.parametrize(
    ("verdict", "example"), EXAMPLES, ids=[f"{v.slug}: {e.title}" for v, e in EXAMPLES]
)
def test_an_example_gives_what_its_page_says(verdict, example, tmp_path):
    if example.needs == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    recording = record_program(example.program, tmp_path)
    found = {
        (one.slug, one.subject, one.site.line)
        for one in recording.findings
        if one.slug == verdict.slug
    }
    assert found == set(example.expected)


@pytest.mark.parametrize("verdict", VERDICTS, ids=[one.slug for one in VERDICTS])
def test_a_verdict_has_a_page_and_an_example_of_each_kind(verdict):
    for heading in HEADINGS:
        assert f"## {heading}" in verdict.page
    assert sorted(bool(example.expected) for example in verdict.examples) == [False, True]
