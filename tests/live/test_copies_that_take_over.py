"""Copies that are written, of what nothing uses again: needless; and what looks alike.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

START = """\
import copy
import torch

torch.manual_seed(0)
weight = torch.rand(64, 64, requires_grad=True)


"""

FOUND = {
    "what a function copies of a value that was made for it": """\
def centred(x):
    y = x.clone()  #! needless-copy y (note)
    y -= y.mean()
    return y


for _ in range(3):
    print(centred(torch.rand(64, 64)).sum().item())
""",
    "a chain of transforms that each copy": """\
def jitter(sample):
    sample = copy.deepcopy(sample)  #! needless-copy sample (note)
    sample["x"].add_(torch.rand(64, 64))
    return sample


for _ in range(3):
    sample = {"x": torch.rand(64, 64)}
    sample = jitter(sample)
    sample = jitter(sample)
    print(sample["x"].sum().item())
""",
}

QUIET = {
    "what the caller reads again": """\
def centred(x):
    y = x.clone()
    y -= y.mean()
    return y


for _ in range(3):
    x = torch.rand(64, 64)
    print((x - centred(x)).sum().item())
""",
    "items that are read again": """\
def jitter(sample):
    sample = copy.deepcopy(sample)
    sample["x"].add_(torch.rand(64, 64))
    return sample


items = [{"x": torch.rand(64, 64)} for _ in range(3)]
for _ in range(2):
    for one in items:
        print(jitter(one)["x"].sum().item())
""",
    "items that live on, and were read once": """\
items = [torch.rand(64, 64) for _ in range(3)]
for one in items:
    noisy = one.clone()
    noisy += 1
    print(noisy.sum().item())
""",
    "what a product saved": """\
def step():
    x = torch.rand(64, 64)
    loss = (x * weight).sum()
    y = x.clone()
    del x
    y += 1
    loss.backward()
    return y.sum().item()


for _ in range(3):
    print(step())
""",
    "what has a graph": """\
def step():
    x = weight * 2
    y = x.clone()
    y += 1
    return y.sum()


for _ in range(3):
    step().backward()
""",
    "what an array shows": """\
def step():
    x = torch.rand(64, 64)
    shown = x.numpy()
    y = x.clone()
    y += 1
    return shown.sum(), y.sum().item()


for _ in range(3):
    print(step())
""",
    "a row of what is expanded": """\
def step():
    y = torch.rand(64, 1).expand(64, 64).clone()
    y += torch.rand(64, 64)
    return y.sum().item()


for _ in range(3):
    print(step())
""",
}


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_a_copy_of_what_nothing_uses_again_is_not_needed(program, tmp_path):
    recording = check_program(START + program, tmp_path)
    assert any("may be written there" in str(one.message) for one in recording.findings)


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_a_copy_of_what_is_used_is(program, tmp_path):
    findings = check_program(START + program, tmp_path).findings
    assert "needless-copy" not in {one.slug for one in findings}
