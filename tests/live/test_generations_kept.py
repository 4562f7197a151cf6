"""Copies of a whole model, one after the other: what a name holds of them, and what a ring does."""

import gc

import pytest

from programs import record_program

PROGRAM = """\
import copy
import gc
import torch
from torch import nn

torch.manual_seed(0)
gc.disable()  # when rings go would depend on what else runs


class Orchard(nn.Module):
    def __init__(self):
        super().__init__()
        self.trees = nn.Linear(20, 4)
        for number in range(8):
            setattr(self, f"season{number}", torch.rand(SIZE))
        RING

    def forward(self, x):
        return self.trees(x)


def grow(years):
    orchard = Orchard()
    opt = torch.optim.SGD(orchard.parameters(), 0.1)
    BEGINS
    for year in range(years):
        for _ in range(3):
            opt.zero_grad()
            orchard(torch.rand(5, 20)).square().mean().backward()
            opt.step()
        KEEPS
    return GIVES


found = grow(YEARS)
"""
RING = "self.ways = [self.named_parameters]"
LAST = "kept = copy.deepcopy(orchard)"


@pytest.fixture(autouse=True)
def _collecting():
    yield
    gc.enable()


def pinned(tmp_path, years, ring="", size=7000, begins="kept = None", keeps=LAST, gives="orchard"):
    text = (
        PROGRAM.replace("RING", ring or "pass")
        .replace("YEARS", str(years))
        .replace("SIZE", str(size))
    )
    text = text.replace("BEGINS", begins).replace("KEEPS", keeps).replace("GIVES", gives)
    found = record_program(text, tmp_path).findings
    return [str(one.message) for one in found if one.slug == "storage-pinned"]


def test_what_rings_keep_is_not_said_to_be_kept_by_the_variable(tmp_path):
    (said,) = pinned(tmp_path, 14, RING)
    assert said.startswith("Something keeps")


def test_two_generations_are_what_a_program_keeps_at_hand(tmp_path):
    assert not pinned(tmp_path, 2, RING, size=70_000)


@pytest.mark.parametrize("years", [3, 14])
def test_a_copy_that_takes_the_place_of_another_keeps_nothing(years, tmp_path):
    assert not pinned(tmp_path, years)


@pytest.mark.parametrize(
    ("begins", "keeps"),
    [
        ("kept = []", "kept.append(copy.deepcopy(orchard))"),
        ("kept = {}", "kept[year] = copy.deepcopy(orchard)"),
        ("kept = []", "kept.append([getattr(orchard, f'season{n}').clone() for n in range(8)])"),
    ],
)  # fmt: skip
def test_what_a_container_takes_of_each_run_it_keeps(begins, keeps, tmp_path):
    (said,) = pinned(tmp_path, 14, begins=begins, keeps=keeps, gives="(orchard, kept)")
    assert "`kept`" in said or "`found" in said


def test_a_loop_of_one_line_runs_it_many_times(tmp_path):
    keeps = "kept += [copy.deepcopy(orchard)] if year < 3 else ()"
    (said,) = pinned(tmp_path, 14, begins="kept = []\n    for _ in range(9): kept.append(copy."
                     "deepcopy(orchard))", keeps=keeps, gives="(orchard, kept)")  # fmt: skip
    assert "`kept`" in said or "`found" in said
