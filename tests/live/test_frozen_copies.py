"""Frozen parameters that an optimizer holds: a note, but of copies that the program keeps up."""

from __future__ import annotations

import pytest

from programs import check_program, record_program

PROGRAM = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.fast = nn.Linear(3, 2)
        self.slow = copy.deepcopy(self.fast)
        self.lens = nn.Linear(3, 3)


twin = Twin()
twin.slow.requires_grad_(False)
{frozen}
optimizer = torch.optim.Adam(twin.parameters(), lr=0.1)
for _ in range(5):
    picture = twin.lens(torch.randn(4, 3))
    loss = (twin.fast(picture) - twin.slow(picture)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(twin.slow.parameters(), twin.fast.parameters()):
            {write}
"""

KEPT_UP = {
    "an average": "slow.mul_(0.9).add_(fast, alpha=0.1)",
    "a blend": "slow.lerp_(fast, 0.1)",
    "an average by .data": "slow.data = 0.9 * slow.data + 0.1 * fast.data",
    "a target network": "slow.copy_(fast)",
    "a state that is loaded": "twin.slow.load_state_dict(twin.fast.state_dict())",
}


@pytest.mark.parametrize("write", KEPT_UP.values(), ids=KEPT_UP)
def test_a_copy_that_is_kept_up_is_no_news(write, tmp_path):
    recording = record_program(PROGRAM.format(frozen="", write=write), tmp_path)
    assert not [one for one in recording.findings if one.slug == "parameter-frozen"]


NOT = {
    "nothing": "pass",
    "its own values within limits": "slow.clamp_(-1, 1)",
    "a decay": "slow.mul_(0.99)",
    "filled once": "slow.copy_(fast) if _ == 4 else None",
}


@pytest.mark.parametrize("write", NOT.values(), ids=NOT)
def test_what_is_only_frozen_is_noted(write, tmp_path):
    recording = record_program(PROGRAM.format(frozen="", write=write), tmp_path)
    (found,) = [one for one in recording.findings if one.slug == "parameter-frozen"]
    assert found.message == (
        "Adam holds `twin.slow.weight` and 1 more, but line 17 froze them: Adam does not train"
        " them."
    )
    assert found.fix.text == (
        "Nothing, if they are meant to stay frozen; else call requires_grad_(True) on them."
    )


def test_what_is_frozen_beside_a_copy_is_noted_alone(tmp_path):
    text = PROGRAM.format(
        frozen="twin.lens.weight.requires_grad_(False)  #! parameter-frozen twin.lens.weight (note)",
        write=KEPT_UP["a blend"],
    )
    check_program(text, tmp_path)


HELPER = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)


def freeze(module):
    module.requires_grad_(False)


fast, lens = nn.Linear(3, 2), nn.Linear(3, 3)
slow = copy.deepcopy(fast)
freeze(slow)
freeze(lens)
whole = nn.ModuleList([fast, slow, lens])
optimizer = torch.optim.Adam(whole.parameters(), lr=0.1)
for _ in range(4):
    picture = lens(torch.randn(4, 3))
    optimizer.zero_grad()
    (fast(picture) - slow(picture)).pow(2).mean().backward()
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), 0.1)
"""


def test_of_what_one_line_freezes_only_the_copies_go(tmp_path):
    recording = record_program(HELPER, tmp_path)
    (found,) = [one for one in recording.findings if one.slug == "parameter-frozen"]
    assert (found.severity, len(found.tensors)) == ("note", 2)
    assert "lens" in found.subject
