"""Steps by the sum of a gradient that moved the parameters and of a later one, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

PROGRAM = """\
import torch
from torch.nn.functional import mse_loss

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
weights = list(net.parameters())
opt = torch.optim.SGD(weights, lr=0.01, momentum=0.9)


def loss():
    x = torch.randn(16, 4)
    return mse_loss(net(x), x.sum(1, keepdim=True))


for batch in range(6):
    loss().backward()
{body}
    opt.zero_grad()
"""

FOUND = {
    "up the slope and back": """\
    with torch.no_grad():
        length = torch.stack([p.grad.norm() for p in weights]).norm()
        moves = [p.grad * 0.05 / length for p in weights]
        for p, move in zip(weights, moves):
            p.add_(move)
    loss().backward()  #! gradient-accumulated net.0.weight (note)
    with torch.no_grad():
        for p, move in zip(weights, moves):
            p.sub_(move)
    opt.step()""",
    "up the slope by data, back to copies, and clipped": """\
    kept = [p.data.clone() for p in weights]
    for p in weights:
        p.data += 0.05 * p.grad.sign()
    loss().backward()  #! gradient-accumulated net.0.weight (note)
    for p, old in zip(weights, kept):
        p.data.copy_(old)
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    opt.step()""",
    "half a step down, which is not taken back": """\
    with torch.no_grad():
        torch._foreach_add_(weights, [p.grad for p in weights], alpha=-0.005)
    (loss() * 0.5).backward()  #! gradient-accumulated net.0.weight (note)
    opt.step()""",
    "some of the steps": """\
    if batch % 2:
        with torch.no_grad():
            for p in weights:
                p.sub_(0.1 * p.grad)
        loss().backward()  #! gradient-accumulated net.0.weight (note)
    opt.step()""",
}

RIGHT = {
    "cleared in between": """\
    with torch.no_grad():
        moves = [p.grad * 0.05 for p in weights]
        for p, move in zip(weights, moves):
            p.add_(move)
    {clear}
    loss().backward()
    with torch.no_grad():
        for p, move in zip(weights, moves):
            p.sub_(move)
    opt.step()""",
    "taken back before the pass": """\
    with torch.no_grad():
        moves = [p.grad * 0.05 for p in weights]
        for p, move in zip(weights, moves):
            p.data.add_(move)
    opt.zero_grad(set_to_none=False)
    value = loss()
    for p, move in zip(weights, moves):
        p.data.sub_(move)  #! untracked-write net.2.weight
    value.backward()
    opt.step()""",
    "an adversarial loss, of one weight that is moved": """\
    first = weights[0]
    kept = first.data.clone()
    first.data.add_(first.grad / first.grad.norm())
    loss().backward()
    first.data = kept
    opt.step()""",
    "noise by the size of the gradients, and no pass after it": """\
    with torch.no_grad():
        for p in weights:
            p.add_(torch.randn_like(p) * p.grad.std(correction=0) * 0.01)
    opt.step()""",
    "moved by what has nothing to do with the gradients": """\
    loss().backward()
    with torch.no_grad():
        for p in weights:
            p.mul_(0.999).clamp_(-2, 2)
    loss().backward()
    opt.step()""",
    "the second gradient alone goes into the step": """\
    first = [p.grad.clone() for p in weights]
    with torch.no_grad():
        for p, one in zip(weights, first):
            p.add_(0.05 * one)
    loss().backward()
    with torch.no_grad():
        for p, one in zip(weights, first):
            p.sub_(0.05 * one)
            p.grad.sub_(one)
    opt.step()""",
    "two gradients with weights of their own": """\
    with torch.no_grad():
        moves = [0.05 * p.grad for p in weights]
        for p, move in zip(weights, moves):
            p.add_(move)
            p.grad.mul_(0.3)
    loss().backward()
    with torch.no_grad():
        for p, move in zip(weights, moves):
            p.sub_(move)
    opt.step()""",
    "once": """\
    if batch == 0:
        with torch.no_grad():
            for p in weights:
                p.sub_(0.1 * p.grad)
        loss().backward()
    opt.step()""",
}

CLEARS = {
    "opt.zero_grad()",
    "net.zero_grad(set_to_none=False)",
    "for p in weights: p.grad = None",
    "for p in weights: p.grad.zero_()",
    "torch._foreach_zero_([p.grad for p in weights])",
    "for p in weights: p.grad = torch.zeros_like(p)",
    "for p in weights: del p.grad",
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_a_step_by_the_gradients_of_two_places_is_told(body, tmp_path):
    check_program(PROGRAM.format(body=body), tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_looks_like_it_is_not(body, tmp_path):
    assert not _summed(PROGRAM.format(body=body.replace("{clear}", "opt.zero_grad()")), tmp_path)


@pytest.mark.parametrize("clear", sorted(CLEARS))
def test_gradients_that_are_cleared_are_not(clear, tmp_path):
    body = RIGHT["cleared in between"].replace("{clear}", clear)
    assert not _summed(PROGRAM.format(body=body), tmp_path)


def _summed(text, folder):
    findings = check_program(text, folder).findings
    return [one for one in findings if one.slug == "gradient-accumulated"]
