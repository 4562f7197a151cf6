"""Parameters that no loss sees: whether a call computes with them, or some lines only keep them."""

import pytest

from programs import record_program

HEAD = """\
import copy
import io

import torch
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 4)
        self.spare = nn.Linear(4, 2)
        self.tag = nn.Linear(4, 2)

    def forward(self, x):
        return self.tag(self.read(x).tanh())


tagger = Tagger()
opt = torch.optim.SGD(tagger.parameters(), lr=0.1)
for night in range(3):
    BEFORE
    opt.zero_grad()
    tagger(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
    AFTER
"""

KEPT = {
    "a checkpoint": ("pass", "torch.save(tagger.state_dict(), io.BytesIO())"),
    "the best values": ("pass", "best = {k: v.clone() for k, v in tagger.state_dict().items()}"),
    "another format and back": ("tagger.double().float()", "pass"),
    "a copy for an average": ("average = copy.deepcopy(tagger)", "pass"),
    "a copy that is used": (
        "if night == 0: other = copy.deepcopy(tagger)",
        "other.load_state_dict(tagger.state_dict()); other.spare(torch.randn(2, 4))",
    ),
}

USED = {
    "a norm that is printed": ("pass", "print(tagger.spare.weight.norm().item())"),
    "a cast that is multiplied": ("pass", "torch.ones(4).double() @ tagger.spare.weight.double().T"),
    "copied before it is used": (
        "average = copy.deepcopy(tagger); said = tagger.spare(torch.randn(2, 4))", "pass",
    ),
    "an average of it before it is used": (
        "average = tagger.spare.weight.detach() * 0.5; said = tagger.spare(torch.randn(2, 4))",
        "pass",
    ),
}  # fmt: skip


def _unused(before, after, tmp_path):
    text = HEAD.replace("BEFORE", before).replace("AFTER", after)
    recording = record_program(text, tmp_path)
    assert recording.error is None
    (found,) = [one for one in recording.findings if one.slug == "gradient-unused"]
    row = next(n for n, line in enumerate(text.splitlines(), 1) if line.strip() in (before, after)
               and line.strip() != "pass")  # fmt: skip
    return str(found.message), row, found


@pytest.mark.parametrize("name", KEPT)
def test_what_is_only_kept_is_not_said_to_be_used(name, tmp_path):
    message, row, found = _unused(*KEPT[name], tmp_path)
    assert "`tagger.spare` got no gradient" in message
    assert "no call computes with it; line" in message
    kept = [one.site.line for one in found.evidence if "only copied" in one.text]
    assert kept
    assert row in kept or name == "a copy that is used"


@pytest.mark.parametrize("name", USED)
def test_the_line_that_computes_with_it_is_named(name, tmp_path):
    message, row, found = _unused(*USED[name], tmp_path)
    assert "its values were used, but not for the loss" in message
    used = [one.site for one in found.evidence if "its values are used here" in one.text]
    assert used[0].line == row
    assert "deepcopy" not in used[0].expression
    if "before it is used" in name:
        assert used[0].expression.startswith("tagger.spare(")


BLOCKS = """\
import torch
from torch import nn

torch.manual_seed(0)


class Cell(nn.Module):
    def __init__(self, width, end):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, end)
        self.straight = width == end

    def forward(self, x):
        seen = self.norm(x)
        return self.mix(seen if self.straight else x).tanh()


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Cell(4, 6)
        self.second = Cell(6, 6)
        self.third = Cell(6, 2)
        MORE

    def forward(self, x):
        return LAST(self.third(self.second(self.first(x))))


body = Body()
opt = torch.optim.SGD(body.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    body(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("more", "last", "said"),
    [
        ("pass", "", "`body.first.norm` and `body.third.norm` got"),
        ("self.fourth = Cell(2, 3)", "self.fourth", "`body.first.norm` and 2 more that line 10"),
    ],
)
def test_one_part_of_a_block_is_one_finding(more, last, said, tmp_path):
    text = BLOCKS.replace("MORE", more).replace("LAST", last)
    found = record_program(text, tmp_path).findings
    (found,) = [one for one in found if one.slug == "gradient-unused"]
    assert said in str(found.message)
    assert "their values were used, but not for the loss" in str(found.message)
    assert found.site.line == 10


def test_parts_of_two_lines_are_two(tmp_path):
    text = BLOCKS.replace("MORE", "self.beside = nn.LayerNorm(2)")
    text = text.replace("LAST(", "self.looked(").replace(
        "    def forward(self, x):\n        return self.l",
        "    def looked(self, x):\n        seen = self.beside(x)\n        return x\n\n"
        "    def forward(self, x):\n        return self.l",
    )
    found = record_program(text, tmp_path).findings
    found = [one for one in found if one.slug == "gradient-unused"]
    assert sorted(one.site.line for one in found) == [10, 25]
