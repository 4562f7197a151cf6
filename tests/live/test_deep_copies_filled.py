"""Deep copies that are filled anew at once: what the report calls them, and what it advises."""

import textwrap

import pytest

from programs import record_program

START = """
import copy
import torch
from torch import nn

torch.manual_seed(0)
filters = {"low": torch.rand(300, 300), "high": torch.rand(300, 300)}
body = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 10))
other = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 10)).state_dict()

"""

TENSORS = {
    "a dictionary": """
        for round in range(4):
            counts = {}
            for name, one in copy.deepcopy(filters).items():  #! filters
                one.zero_()
                counts[name] = one
            counts["low"] += filters["high"]
            print(sum(one.sum() for one in counts.values()))
        """,
    "a list in a variable": """
        rows = list(filters.values())
        for round in range(4):
            fresh = copy.deepcopy(rows)  #! fresh
            for one in fresh:
                one.fill_(0.5)
            print(sum(one.sum() for one in fresh))
        """,
    "the parameters of a model": """
        for round in range(4):
            total = 0.0
            for one in copy.deepcopy(dict(body.named_parameters())).values():  #! dict(body.named_parameters())
                one.data.zero_()
                total += one.sum()
            print(total)
        """,
}

MODEL = """
for round in range(4):
    probe = copy.deepcopy(body)
    probe.load_state_dict(other)
    print(probe(torch.rand(2, 300)).sum())
"""


def slow(text, folder):
    recording = record_program(text, folder)
    assert recording.error is None
    return [one for one in recording.findings if one.slug == "slow-copy"]


@pytest.mark.parametrize("name", TENSORS)
def test_of_tensors_that_are_filled_with_one_value(name, tmp_path):
    text = START + textwrap.dedent(TENSORS[name])
    (line,) = [one for one in text.splitlines() if "#!" in one]
    (found,) = slow(text, tmp_path)
    assert found.message.startswith(f"`{line.partition('#! ')[2]}` (line ")
    assert found.fix.text.startswith("Make each tensor without these values: torch.zeros_like(")
    made, then = (one.text for one in found.evidence)
    assert made == "deepcopy here, 4 times"
    assert then in ("zero_ puts other values there", "fill_ puts other values there")


def test_of_a_model_that_is_filled_with_another_ones_values(tmp_path):
    (found,) = slow(START + MODEL, tmp_path)
    assert "zeros_like" not in found.fix.text
    assert found.fix.text.startswith("Make the copy once, before, and fill that each time")
    assert [one.text for one in found.evidence][1] == "copy_ puts other values there"


def test_a_copy_that_is_read_before_it_is_filled_is_needed(tmp_path):
    text = START + textwrap.dedent(TENSORS["a list in a variable"]).replace(
        "    for one in fresh:", "    print(fresh[0].sum(), fresh[1].sum())\n    for one in fresh:"
    )
    assert slow(text, tmp_path) == []
