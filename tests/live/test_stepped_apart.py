"""Batches that are cut into parts: a step for each part, where the parts were to add up, and not.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import torch

net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
data = torch.randn(60, 4)


def loss_of(part):
    return net(part).pow(2).mean()


"""

APART = {
    "a step that belongs one level further out": """\
for _ in range(5):
    batch = data[torch.randperm(60)[:12]]
    for part in batch.split(4):
        loss = loss_of(part) / 3
        loss.backward()
        opt.step()  #! gradient-accumulated net.weight (note)
        opt.zero_grad()
""",
    "a hook that steps within each pass": """\
of = {one: torch.optim.SGD([one], 0.1) for one in net.parameters()}


def step(parameter):
    of[parameter].step()  #! gradient-accumulated net.weight (note)
    of[parameter].zero_grad()


for one in of:
    one.register_post_accumulate_grad_hook(step)
for _ in range(5):
    batch = data[torch.randperm(60)[:12]]
    for first in range(0, 12, 4):
        (loss_of(batch[first : first + 4]) / 3).backward()
""",
}

TOGETHER = {
    "parts that add up": """\
for _ in range(5):
    batch = data[torch.randperm(60)[:12]]
    opt.zero_grad()
    for part in batch.split(4):
        (loss_of(part) / 3).backward()
    opt.step()
""",
    "a sum over as many rows as it is divided by": """\
for _ in range(5):
    for part in data[torch.randperm(60)[:16]].split(4):
        opt.zero_grad()
        (net(part).pow(2).sum() / 4).backward()
        opt.step()
""",
    "a sum over all rows of an epoch": """\
for _ in range(5):
    for part in data[torch.randperm(60)].split(20):
        opt.zero_grad()
        (net(part).pow(2).sum() / 60).backward()
        opt.step()
""",
    "a mean of two losses, and four parts": """\
for _ in range(5):
    for part in data[torch.randperm(60)].split(15):
        opt.zero_grad()
        ((loss_of(part) + loss_of(part.abs())) / 2).backward()
        opt.step()
""",
}


SHORT = {
    "passes that are left over at the end of an epoch": """\
for _ in range(2):
    for number, part in enumerate(data.split(4), 1):
        loss = loss_of(part) / 7  #! gradient-accumulated net.weight (note)
        loss.backward()
        if number % 7 == 0 or number == 15:
            opt.step()
            opt.zero_grad()
""",
    "a count that begins at zero": """\
for number, part in enumerate(data.split(4)):
    (loss_of(part) / 5).backward()  #! gradient-accumulated net.weight (note)
    if number % 5 == 0:
        opt.step()
        opt.zero_grad()
""",
}

FULL = {
    "a window that is divided by its own length": """\
for _ in range(2):
    parts = data.split(4)
    for first in range(0, 15, 7):
        window = parts[first : first + 7]
        for part in window:
            (loss_of(part) / len(window)).backward()
        opt.step()
        opt.zero_grad()
""",
    "passes that are left over, and dropped": """\
for _ in range(2):
    opt.zero_grad()
    for number, part in enumerate(data.split(4), 1):
        (loss_of(part) / 7).backward()
        if number % 7 == 0:
            opt.step()
            opt.zero_grad()
""",
    "a gradient that is made larger where passes are missing": """\
for _ in range(2):
    for number, part in enumerate(data.split(4), 1):
        (loss_of(part) / 7).backward()
        if number % 7 == 0 or number == 15:
            if number == 15:
                for one in net.parameters():
                    one.grad.mul_(7)
            opt.step()
            opt.zero_grad()
""",
    "a step for each pass now and then, whatever it is divided by": """\
for number, part in enumerate(data.split(4), 1):
    (loss_of(part) / 2).backward()
    if number % 3:
        opt.step()
        opt.zero_grad()
""",
    "sums of as many rows as a part has": """\
for part in data.split(8):
    opt.zero_grad()
    (net(part).pow(2).sum() / 8).backward()
    opt.step()
""",
}


@pytest.mark.parametrize("text", APART.values(), ids=APART)
def test_a_step_for_each_part_of_a_mean_is_told(text, tmp_path):
    check_program(MODEL + text, tmp_path)


@pytest.mark.parametrize("text", TOGETHER.values(), ids=TOGETHER)
def test_parts_that_stand_alone_or_add_up_are_not(text, tmp_path):
    recording = check_program(MODEL + text, tmp_path)
    assert not [one for one in recording.findings if one.slug == "gradient-accumulated"]


@pytest.mark.parametrize("text", SHORT.values(), ids=SHORT)
def test_steps_with_fewer_passes_than_a_loss_is_divided_by_are_told(text, tmp_path):
    check_program(MODEL + text, tmp_path)


@pytest.mark.parametrize("text", FULL.values(), ids=FULL)
def test_steps_that_have_their_passes_or_make_up_for_them_are_not(text, tmp_path):
    recording = check_program(MODEL + text, tmp_path)
    assert not [one for one in recording.findings if one.slug == "gradient-accumulated"]
