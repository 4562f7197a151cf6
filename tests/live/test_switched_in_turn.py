"""Parameters whose requires_grad the program switches on and off in turn, and that nothing uses.

They are unused, and not frozen: they required grad when a pass could have given them a gradient.
What was frozen at each such pass is frozen, however it ended.
"""

import pytest

from programs import record_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)


def learns(module, whether):
    for one in module.parameters():
        one.requires_grad = whether


class Reader(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.words = nn.Linear(width, out)
        self.accents = nn.Linear(width, out)

    def forward(self, page):
        return self.words(page)


pages = torch.randn(6, 5)
"""
IN_TURN = """
writer, judge = Reader(5, 5), Reader(5, 1)
writes = torch.optim.Adam(writer.parameters())
judges = torch.optim.Adam(judge.parameters())
for _ in range(3):
    learns(writer, False), learns(judge, True)
    judges.zero_grad()
    judge(writer(pages)).mean().backward()
    judges.step()
    learns(writer, True), learns(judge, False)
    writes.zero_grad()
    judge(writer(pages)).square().mean().backward()
    writes.step()
"""
AROUND = """
reader = Reader(5, 1)
opt = torch.optim.SGD(reader.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    reader(pages).square().mean().backward()
    opt.step()
    learns(reader, False)
    reader(pages)
    learns(reader, True)
"""
BEFORE_THE_LOSS = """
reader = Reader(5, 1)
opt = torch.optim.SGD(reader.parameters(), 0.1)
for _ in range(3):
    reader.requires_grad_(True)
    opt.zero_grad()
    reader(pages).square().mean().backward()
    opt.step()
    reader.requires_grad_(False)
    reader(pages)
"""
FROZEN = """
reader = Reader(5, 1)
opt = torch.optim.SGD(reader.parameters(), 0.1)
learns(reader.accents, False)
for _ in range(3):
    opt.zero_grad()
    (reader(pages) + reader.accents(pages)).square().mean().backward()
    opt.step()
AFTER
"""
AS_IT_IS_USED = """
reader = Reader(5, 1)
opt = torch.optim.SGD(reader.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    learns(reader.accents, False)
    found = reader(pages) + reader.accents(pages)
    learns(reader.accents, True)
    found.square().mean().backward()
    opt.step()
"""
MADE_FROZEN = """
reader = Reader(5, 1)
reader.accents.weight = nn.Parameter(torch.ones(1, 5), requires_grad=not pages.numel())
reader.accents.bias = None
opt = torch.optim.SGD(reader.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    (reader(pages) + reader.accents(pages)).square().mean().backward()
    opt.step()
AFTER
"""


def found_in(body, tmp_path):
    return record_program(HEAD + body, tmp_path)


@pytest.mark.parametrize("body", [IN_TURN, AROUND, BEFORE_THE_LOSS])
def test_what_required_grad_at_a_pass_is_unused_and_not_frozen(body, tmp_path):
    recording = found_in(body, tmp_path)
    slugs = {one.slug for one in recording.findings}
    assert slugs == {"gradient-unused"}
    assert {
        str(one.finding is not None) for one in recording.gradients if one.status == "none"
    } == {"True"}


@pytest.mark.parametrize("after", ["", "learns(reader, True)"])
def test_what_was_frozen_at_each_pass_is_frozen_by_its_line(after, tmp_path):
    recording = found_in(FROZEN.replace("AFTER", after), tmp_path)
    (found,) = recording.findings
    assert found.slug == "parameter-frozen"
    assert "line 9 froze them" in str(found.message)


def test_what_is_frozen_as_it_is_used_is_frozen(tmp_path):
    (found,) = found_in(AS_IT_IS_USED, tmp_path).findings
    assert found.slug == "parameter-frozen"
    assert "never required grad" not in str(found.message)


def test_only_what_never_required_grad_is_said_to_have_never_done_so(tmp_path):
    (never,) = found_in(MADE_FROZEN.replace("AFTER", ""), tmp_path).findings
    assert "never required grad" in str(never.message)
    late = MADE_FROZEN.replace("AFTER", "learns(reader, True)")
    (found,) = found_in(late, tmp_path).findings
    assert found.slug == "parameter-frozen"
    assert "did not require grad when the loss was computed" in str(found.message)


GROWING = """
class Pyramid(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.levels = nn.ModuleList(nn.Linear(5, 5) for _ in range(levels))

    def forward(self, page, upto):
        for level in self.levels[:upto]:
            page = level(page)
        return page


pyramid = Pyramid(LEVELS)
opt = torch.optim.SGD(pyramid.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    pyramid(pages, UPTO).square().mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("levels", "upto", "severity"), [(6, 2, "note"), (3, 1, "note"), (3, 2, "warning")]
)
def test_several_modules_of_a_list_may_be_for_later_steps(levels, upto, severity, tmp_path):
    body = GROWING.replace("LEVELS", str(levels)).replace("UPTO", str(upto))
    (found,) = found_in(body, tmp_path).findings
    assert (found.slug, found.severity) == ("gradient-unused", severity)
    if severity == "note":
        said = f"{levels - upto} of the {levels} modules in `pyramid.levels` got no gradient"
        assert said in str(found.message)


def test_a_list_of_which_none_is_used_is_forgotten(tmp_path):
    body = GROWING.replace("LEVELS", "3").replace("UPTO", "0").replace(
        "return page", "return self.last(page)"
    ).replace("super().__init__()\n        self.levels", "super().__init__()\n"
              "        self.last = nn.Linear(5, 1)\n        self.levels")  # fmt: skip
    (found,) = found_in(body, tmp_path).findings
    assert (found.slug, found.severity) == ("gradient-unused", "warning")
