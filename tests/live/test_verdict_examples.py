"""Each verdict's own examples, run for real."""

import pytest
import torch

from programs import record_program
from tether.verdicts import VERDICTS

EXAMPLES = [(verdict, example) for verdict in VERDICTS for example in verdict.examples]


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
def test_a_verdict_has_a_page_and_examples_of_both_kinds(verdict):
    for heading in (
        "What it says",
        "Why it matters",
        "Known problems",
        "Example",
        "Use instead",
        "Fix safety",
    ):
        assert f"## {heading}" in verdict.page
    assert any(example.expected for example in verdict.examples)
    assert any(not example.expected for example in verdict.examples)
