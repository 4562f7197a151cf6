"""Tensors whose array was written by what it was handed to, and gone: a note, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

START = """\
import random
import numpy as np
import torch

torch.manual_seed(0)


def scaled(values):
    values *= 0.5
    return float(values.sum())


"""

TOLD = {
    "an action that the environment scales": """\
kept, scores = [], []
for _ in range(4):
    action = torch.randn(3)
    score = action.square().sum()
    scaled(action.numpy())  #! alias-write kept[0] (note)
    kept.append(action)
    scores.append(score)
print((torch.stack(kept).square().sum(1) - torch.stack(scores)).sum().item())
""",
    "an action that is kept, and that nothing had used": """\
kept, costs = [], []
for _ in range(4):
    action = torch.randn(3)
    costs.append(scaled(action.numpy()))  #! alias-write kept[0] (note)
    kept.append(action)
print(torch.stack(kept).square().sum(1), costs)
""",
    "a picture that is drawn on after it was looked at": """\
def mark(picture):
    picture[:2] = 1.0


net = torch.nn.Linear(16, 1)
for _ in range(3):
    image = torch.rand(4, 16)
    out = net(image)
    mark(image.numpy())  #! alias-write image (note)
    print(out.sum().item(), image.mean().item())
""",
}

MEANT = {
    "a buffer that is filled": """\
buffer = torch.empty(3)
for _ in range(4):
    np.copyto(buffer.numpy(), np.random.rand(3).astype(np.float32))
    print(buffer.sum().item())
""",
    "one made for it": """\
for _ in range(4):
    values = torch.zeros(3)
    scaled(values.numpy())
    print(values.sum().item())
""",
    "only read": """\
for _ in range(4):
    action = torch.randn(3)
    print(action.sum().item(), float(action.numpy().sum()), action.mean().item())
""",
    "a copy": """\
for _ in range(4):
    action = torch.randn(3)
    print(action.sum().item(), scaled(action.numpy().copy()), action.mean().item())
""",
    "drawn, and made for it": """\
for _ in range(4):
    places = torch.arange(6)
    np.random.shuffle(places.numpy())
    values = torch.randn(3)
    scaled(values.numpy())
    print(places.sum().item(), values.sum().item())
""",
    "a result that is filled": """\
def fill(values):
    values[:] = np.random.rand(3)
    return values


for _ in range(4):
    values = torch.zeros(3)
    print(fill(values.numpy()).sum(), values.sum().item())
""",
    "not read again": """\
for _ in range(4):
    action = torch.randn(3)
    print(action.sum().item(), scaled(action.numpy()))
""",
}


@pytest.mark.parametrize("program", TOLD.values(), ids=TOLD)
def test_what_was_used_before_and_is_read_again_is_told(program, tmp_path):
    check_program(START + program, tmp_path)


@pytest.mark.parametrize("program", MEANT.values(), ids=MEANT)
def test_what_is_filled_or_not_written_or_not_read_is_not(program, tmp_path):
    found = check_program(START + program, tmp_path).findings
    assert [one.slug for one in found if one.slug == "alias-write"] == []
