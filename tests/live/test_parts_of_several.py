"""Loops that go part by part: how many calls, of how many tensors, and how often what is named ran."""

import pytest

from programs import record_program

THREE_SERIES = """\
import torch

order = torch.randperm(30)


class Series:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.rows = torch.randint(0, 255, (150, 5, 6))
        self.mixed = torch.stack([row.float().view(-1)[order] * 2 for row in self.rows])


year = [Series(seed) for seed in range(3)]
for one in year:
    print(one.mixed.mean(0).sum(), one.mixed.norm())
"""

ONE_SERIES = """\
import torch

rain = torch.rand(400, 6)
print(torch.stack([day.exp().sum() * 2 for day in rain]).norm())
"""

NORMS = """\
import torch

rain = torch.rand(400, 6, 6)
print(torch.stack([day.exp().amax(0).log() for day in rain]).norm())
"""


def test_several_tensors_are_told_as_several(tmp_path):
    (one,) = record_program(THREE_SERIES, tmp_path).findings
    message = str(one.message)
    assert "and 2 other tensors (line 10) are read in a slow way" in message
    assert "4 calls are made for each of their 450 parts" in message
    assert one.count == 3
    assert {"year[0].rows", "year[1].rows"} <= {one.subject, *one.also}
    assert "keepdim" not in one.fix.text


@pytest.mark.parametrize(
    ("text", "calls", "said"),
    [
        (ONE_SERIES, 3, ", along a dimension (keepdim=True keeps it)."),
        (NORMS, 3, ", along a dimension."),
    ],
)
def test_what_leaves_out_dimensions_is_told_so(text, calls, said, tmp_path):
    (one,) = record_program(text, tmp_path).findings
    assert f"`rain` (line 4) is read in a slow way: {calls} calls are made for each of its 400" in (
        str(one.message)
    )
    assert one.fix.text.endswith(said)
    assert one.count == 1


PARTS_USED_ALONE = """\
import torch

order = torch.randperm(30)
views = torch.randint(0, 255, (400, 5, 6))
mixed = torch.stack([one.float().view(-1)[order] * 2 for one in views])
for n in range(400):
    print(mixed[n].sum())
"""


def test_a_join_that_nothing_needs_has_one_advice(tmp_path):
    found = record_program(PARTS_USED_ALONE, tmp_path).findings
    at_the_join = [one.slug for one in found if one.site.line == 5]
    assert len(at_the_join) == 1, at_the_join


ROWS = """\
import torch

places = torch.nn.Embedding(500, 64)
with torch.no_grad():
    for _ in range(3):
        rows = places(torch.arange(0, COUNT))
        print((rows * 2).sum())
"""


@pytest.mark.parametrize(
    ("rows", "said"), [(200, "a part of `places.weight`"), (500, "`places.wei")]
)
def test_a_copy_of_some_rows_is_told_as_a_part(rows, said, tmp_path):
    text = ROWS.replace("COUNT", str(rows))
    (one,) = record_program(text, tmp_path).findings
    assert f"is a copy of {said}" in str(one.message)
