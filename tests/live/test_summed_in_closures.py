"""Closures that a step calls several times, and that clear gradients or do not."""

import pytest

from programs import record_program

PROGRAM = """\
import torch

torch.manual_seed(0)
scale = torch.nn.Parameter(torch.ones(1))
logits, labels = torch.randn(64, 5) * 3, torch.randint(0, 5, (64,))
opt = torch.optim.LBFGS([scale], lr=0.01, max_iter=20)

def closure():
    START
    loss = torch.nn.functional.cross_entropy(logits / scale, labels)
    loss.backward()
    return loss

for _ in range(STEPS):
    opt.step(closure)
print(scale.item())
"""

CASES = {
    "nothing is cleared": ("pass", 1, 1),
    "cleared before the step alone": ("pass", 2, 1),
    "cleared by the optimizer": ("opt.zero_grad()", 2, 0),
    "set to none": ("scale.grad = None", 1, 0),
    "zeroed in place": ("scale.grad is not None and scale.grad.zero_()", 1, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_what_calls_of_a_closure_add_up(name, tmp_path):
    start, steps, told = CASES[name]
    text = PROGRAM.replace("START", start).replace("STEPS", str(steps))
    found = [one for one in record_program(text, tmp_path).findings if one.severity != "note"]
    lines = {(one.slug, one.site.line) for one in found if "closure" in one.message}
    assert lines == ({("gradient-accumulated", 11)} if told else set())
