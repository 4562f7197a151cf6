"""Gradients that are set once and used by each step, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

PROGRAM = """\
import torch

torch.manual_seed(0)
main, worker = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
opt = torch.optim.Adam(main.parameters(), lr=0.1)
pairs = list(zip(worker.parameters(), main.parameters()))


def loss(net):
    return net(torch.rand(8, 3)).pow(2).mean()


for batch in range(8):
    worker.load_state_dict(main.state_dict())
    worker.zero_grad()
    loss(worker).backward()
{hand}
    opt.step()
    {end}
"""

FOUND = {
    "where there is none yet": """\
    for own, theirs in pairs:
        if theirs.grad is None:
            theirs.grad = own.grad  #! gradient-stale main.weight""",
    "behind the back of the property": """\
    for own, theirs in pairs:
        if theirs.grad is not None:
            break
        theirs._grad = own.grad  #! gradient-stale main.weight""",
    "in the first batch": """\
    if batch == 0:
        for own, theirs in pairs:
            theirs.grad = own.grad.clone()  #! gradient-stale main.weight""",
    "asked for": """\
    gradients = torch.autograd.grad(loss(worker), list(worker.parameters()))
    for (_, theirs), one in zip(pairs, gradients):
        if theirs.grad is None:
            theirs.grad = one  #! gradient-stale main.weight""",
}

RIGHT = {
    "for each step": """\
    for own, theirs in pairs:
        theirs.grad = own.grad""",
    "written into what is there": """\
    for own, theirs in pairs:
        if theirs.grad is None:
            theirs.grad = own.grad.clone()
        else:
            theirs.grad.copy_(own.grad)""",
    "written through data": """\
    for own, theirs in pairs:
        if theirs.grad is None:
            theirs.grad = torch.zeros_like(theirs)
        theirs.grad.data[:] = own.grad.data""",
    "written through NumPy": """\
    for own, theirs in pairs:
        if theirs.grad is None:
            theirs.grad = own.grad.clone()
        theirs.grad.numpy()[...] = own.grad.numpy()""",
    "slices of one flat gradient": """\
    if batch == 0:
        flat = torch.empty(4)
        for (_, theirs), part in zip(pairs, flat.split([3, 1])):
            theirs.grad = part.view_as(theirs)
    torch.cat([own.grad.flatten() for own, _ in pairs], out=flat)""",
    "cleared after each step": """\
    for own, theirs in pairs:
        if theirs.grad is None:
            theirs.grad = own.grad
    opt.step()
    opt.zero_grad()
    for own, theirs in pairs:
        theirs.grad = own.grad""",
    "zeros, so that there is something": """\
    for own, theirs in pairs:
        if theirs.grad is None:
            theirs.grad = torch.zeros_like(theirs)""",
    "its own passes add to it": """\
    for own, theirs in pairs:
        if theirs.grad is None:
            theirs.grad = own.grad
    loss(main).backward()""",
    "several steps on one gradient": """\
    for own, theirs in pairs:
        theirs.grad = own.grad
    for _ in range(5):
        opt.step()""",
    "each gradient twice": """\
    if batch % 2 == 0:
        for own, theirs in pairs:
            theirs.grad = own.grad""",
    "the last few steps": """\
    if batch < 5:
        for own, theirs in pairs:
            theirs.grad = own.grad""",
}


@pytest.mark.parametrize("hand", FOUND.values(), ids=FOUND)
def test_a_gradient_that_is_set_once_is_told(hand, tmp_path):
    check_program(PROGRAM.format(hand=hand, end="pass"), tmp_path)


def test_its_story_has_both_networks(tmp_path):
    program = PROGRAM.format(hand=FOUND["where there is none yet"], end="pass")
    (found,) = record_program(program, tmp_path).findings
    assert "8 steps at line 20 use one and the same gradient" in found.message
    assert {15, 18, 19, 20} <= {one.site.line for one in found.evidence}


@pytest.mark.parametrize("hand", RIGHT.values(), ids=RIGHT)
def test_gradients_that_are_renewed_or_kept_for_a_reason_are_not(hand, tmp_path):
    found = record_program(PROGRAM.format(hand=hand, end="pass"), tmp_path).findings
    assert [one.slug for one in found if one.slug == "gradient-stale"] == []


def test_a_gradient_that_is_let_go_of_after_each_step_is_not(tmp_path):
    hand = FOUND["where there is none yet"].split("  #!")[0]
    for end in ("opt.zero_grad()", "for one in main.parameters(): one.grad = None"):
        check_program(PROGRAM.format(hand=hand, end=end), tmp_path)


def test_one_memory_that_the_passes_of_the_copy_fill_is_not(tmp_path):
    hand = FOUND["where there is none yet"].split("  #!")[0]
    kept = "worker.zero_grad(set_to_none=False)"
    program = PROGRAM.format(hand=hand, end="pass").replace("worker.zero_grad()", kept)
    found = record_program(program, tmp_path).findings
    assert [one.slug for one in found if one.slug == "gradient-stale"] == []
