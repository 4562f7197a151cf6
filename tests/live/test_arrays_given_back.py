"""Arrays of tensors that NumPy writes: what reads what was written, and by whom it is meant."""

import pytest

from programs import check_program, record_program

START = """\
import numpy as np, torch
torch.manual_seed(0)
def poses(n):
    return torch.rand(n, 17, 3)
"""

GIVEN_BACK = """\
def rooted(joints):
    xy = joints[..., :2].numpy()
    xy -= xy[:, :1].copy()
    joints[..., 2] = (joints[..., 2] > 0.3).float()
    return joints
for n in range(3):
    batch = poses(20)
    batch.mul_(100)
    found = rooted(batch)
    print(found[..., :2].mean().item())
"""

OTHER_ELEMENTS = """\
batch = poses(20)
shares = batch.softmax(-1)
print(shares.sum().item())
xy = shares[..., :2].numpy()
xy -= xy.mean()
print(shares[..., 2].sum().item())
"""

READ_AFTER = OTHER_ELEMENTS.replace("[..., :2].numpy()", "[..., :2].numpy()  #! alias-write xy")
READ_AFTER = READ_AFTER.replace("shares[..., 2].sum", "shares[..., 1].sum")


def warned(text, folder):
    recording = record_program(START + text, folder)
    assert recording.error is None
    return [one.slug for one in recording.findings if one.severity != "note"]


def test_who_is_given_the_tensor_back_is_to_read_what_was_written(tmp_path):
    assert warned(GIVEN_BACK, tmp_path) == []


def test_other_elements_than_the_array_shows_are_as_they_were(tmp_path):
    recording = record_program(START + OTHER_ELEMENTS, tmp_path)
    assert [one.message for one in recording.findings if one.slug == "alias-write"] == []


def test_elements_that_the_array_shows_are_read_after_it_wrote(tmp_path):
    check_program(START + READ_AFTER, tmp_path)


TASKS = """\
from torch import nn
trunk, heads = nn.Linear(6, 8), nn.ModuleList(nn.Linear(8, 1) for _ in range(3))
opt = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.05)
for _ in range(12):
    x = torch.randn(32, 6)
    losses = [head(trunk(x).tanh()).pow(2).mean() for head in heads]
    taken = []
    for loss in losses:
        opt.zero_grad()
        loss.backward(retain_graph=True)
        taken.append([one.grad for one in trunk.parameters()])
    merged = [sum(some) for some in zip(*taken)]
    LAST
    opt.step()
"""

SUMMED = """opt.zero_grad(set_to_none=False)
    sum(losses).backward()
    for one, given in zip(trunk.parameters(), merged):
        one.grad.copy_(given)"""


def test_passes_are_not_lost_where_another_line_gives_their_gradients_again(tmp_path):
    assert warned(TASKS.replace("LAST", SUMMED), tmp_path) == []


@pytest.mark.parametrize(
    "last", ["pass", "torch.nn.utils.clip_grad_norm_(trunk.parameters(), 1.0)"]
)
def test_passes_are_lost_where_the_step_uses_the_last_alone(last, tmp_path):
    text = TASKS.replace("LAST", last).replace("taken.append", "list").replace("merged =", "#")
    assert "gradient-discarded" in warned(text, tmp_path)
