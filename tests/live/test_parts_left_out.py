"""Parts of a loss of whose passes a gradient scaler leaves out each step, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, expected_in, record_program

MODEL = """\
import torch

net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
huge = torch.tensor(torch.inf)


def step(loss):
    opt.zero_grad()
    scaler.scale(loss).backward()
    before = net.weight.detach().clone()
    scaler.step(opt)
    scaler.update()
    return torch.equal(before, net.weight)


def batch():
    return net(torch.randn(5, 3)).pow(2).mean()


"""

LEFT_OUT = {
    "a term of each eighth pass": """\
for number in range(40):
    loss = batch()
    if number % 8 == 0:
        loss = loss + net.weight.exp().sum() * huge  #! gradient-discarded loss
    step(loss)
""",
    "a pass of its own": """\
for number in range(12):
    step(batch())
    if number % 3 == 2:
        step(net.weight.pow(4).mean() * huge)  #! gradient-discarded net.weight.pow(4).mean()
""",
    "answers to what was met in the loss": """\
for number in range(24):
    loss = batch() * (huge if number % 6 == 0 else 1.0)
    if loss.isinf().item():
        loss = loss + net.weight.abs().sum()  #! gradient-discarded loss (note)
    step(loss)
""",
}

USED = {
    "a term that overflows now and then": """\
for number in range(40):
    loss = batch()
    if number % 4 == 0:
        loss = loss + net.weight.exp().sum() * (huge if number % 8 == 0 else 1.0)
    step(loss)
""",
    "a step that was left out is repeated without what is too large": """\
for number in range(24):
    term = 0.0
    if number % 6 == 0:
        term = net.weight.exp().sum()
    for factor in (huge, 1.0):
        if not step(batch() + term * (factor if number % 6 == 0 else 1.0)):
            break
        if number % 6 == 0:
            term = net.weight.exp().sum()  # a note is given: it may be the same once more
""",
    "the first steps, until the scale has fallen": """\
for number in range(12):
    step(batch() * (huge if number < 4 else 1.0))
""",
    "twice is no rule": """\
for number in range(16):
    loss = batch()
    if number % 8 == 0:
        loss = loss + net.weight.exp().sum() * huge
    step(loss)
""",
    "all passes go through": """\
for number in range(16):
    loss = batch()
    if number % 4 == 0:
        loss = loss + net.weight.exp().sum()
    step(loss)
""",
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_parts_that_no_step_uses(name, tmp_path):
    program = MODEL + LEFT_OUT[name]
    ((line, slug, _, severity),) = (one.split() for one in expected_in(program))
    (found,) = [
        one
        for one in record_program(program, tmp_path).findings
        if one.severity != "note" or one.slug == slug
    ]  # its subject is the text of the line
    grave = "note" if found.severity == "note" else "grave"
    assert (found.site.line, found.slug, grave) == (int(line), slug, severity)
    assert "No step ever used" in found.message


@pytest.mark.parametrize("name", USED)
def test_parts_that_some_step_uses(name, tmp_path):
    check_program(MODEL + USED[name], tmp_path)
