"""What a generator gives, collected and joined: one buffer, or a tensor each time."""

import pytest

from programs import record_program

PROGRAM = """\
import torch

torch.manual_seed(0)


def windows(samples):
    window = torch.zeros(8)
    for start in range(0, len(samples), 4):
        window[:4] = window[4:].clone()
        window[4:] = samples[start : start + 4]
        yield GIVEN


for _ in range(2):
    kept = USED
    print(JOINED.std(0).sum())
"""
MEANT = {"GIVEN": "window", "USED": "list(windows(torch.randn(20)))", "JOINED": "torch.stack(kept)"}


def _told(folder, **how):
    text = PROGRAM
    for place, code in {**MEANT, **how}.items():
        text = text.replace(place, code)
    found = record_program(text, folder).findings
    return [one for one in found if "that are all `" in one.message]


def test_one_buffer_that_was_written_for_each(tmp_path):
    (found,) = _told(tmp_path)
    assert (found.site.line, found.severity, found.subject) == (16, "warning", "window")


@pytest.mark.parametrize("how", [
    {"GIVEN": "window.clone()"},
    {"USED": "[one.clone() for one in windows(torch.randn(20))]"},
    {"USED": "list(windows(torch.randn(20)))[-1]", "JOINED": "torch.stack([kept, kept, kept])"},
    {"USED": "list(windows(torch.randn(20)))[-1]", "JOINED": "torch.stack([kept] * 4)"},
    {"JOINED": "torch.stack([one * 2 for one in kept])"},
])  # fmt: skip
def test_copies_and_repetitions_that_are_meant(how, tmp_path):
    assert not _told(tmp_path, **how)
