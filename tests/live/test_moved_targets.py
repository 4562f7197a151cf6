"""Targets that a loss moves, since they were computed with a graph, and those that it may move."""

import pytest
import torch
import torch.nn.functional as F

from programs import record_program
from tether.operations.table import operation

PROGRAM = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
teacher, student = nn.Linear(6, 3), nn.Linear(6, 3)
START
optimizer = torch.optim.SGD([*teacher.parameters(), *student.parameters()], lr=0.1)
for _ in range(4):
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    wanted, given = teacher(x), student(x)
    loss = LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
KL = "F.kl_div(given.log_softmax(-1), wanted.softmax(-1), reduction='batchmean')"

CASES = {
    "a divergence from a teacher": ("pass", KL, 1),
    "a cross entropy with soft targets": ("pass", "F.cross_entropy(given, wanted.softmax(-1))", 1),
    "a binary one, of scores and a quality": (
        "pass", "F.binary_cross_entropy_with_logits(given, wanted.sigmoid())", 1,
    ),
    "of probabilities, by a module": ("pass", "nn.BCELoss()(given.sigmoid(), wanted.sigmoid())", 1),
    "beside the teacher's own loss": ("pass", f"{KL} + F.cross_entropy(wanted, y)", 1),
    "detached": ("pass", KL.replace("wanted.", "wanted.detach()."), 0),
    "a teacher that is frozen": ("teacher.requires_grad_(False)", KL, 0),
    "classes": ("pass", "F.cross_entropy(given, y) + F.cross_entropy(wanted, y)", 0),
    "two views of one network": ("pass", KL.replace("wanted", "student(x * 1.1)"), 0),
    "an entropy": ("pass", "F.binary_cross_entropy(given.sigmoid(), given.sigmoid())", 0),
    "a distance, which has no direction": ("pass", "F.mse_loss(given, wanted)", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_target_with_a_graph_of_its_own(name, tmp_path):
    start, loss, expected = CASES[name]
    text = PROGRAM.replace("START", start).replace("LOSS", loss)
    found = record_program(text, tmp_path).findings
    found = [one for one in found if one.slug == "gradient-misdirected"]
    assert [(one.severity, one.site.line) for one in found] == [("note", 12)] * expected


SAID = {
    "cross_entropy": torch.log,
    "kl_div": torch.log,
    "binary_cross_entropy": lambda wanted: wanted,
    "binary_cross_entropy_with_logits": torch.logit,
}
"""What is to be given to each such loss to say what its target does."""


@pytest.mark.parametrize("name", SAID)
def test_such_a_loss_is_least_at_its_target_and_has_a_derivative_for_it(name):
    assert operation(name).aims
    wanted = torch.rand(5, 3, dtype=torch.float64).softmax(-1).requires_grad_()
    given = SAID[name](wanted.detach())
    loss = getattr(F, name)
    at_target = loss(given, wanted)
    for _ in range(8):
        # Changed so that probabilities stay probabilities.
        other = (wanted.detach() + 0.1 * torch.rand_like(wanted)).clamp(max=0.99)
        other = other / other.sum(-1, keepdim=True)
        assert loss(SAID[name](other), wanted) > at_target
    assert torch.autograd.grad(at_target, wanted)[0].abs().sum() > 0
