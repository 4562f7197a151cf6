"""Who is said to read a copy or its source: whoever uses its values, not who clears gradients."""

import pytest

from programs import record_program

KEPT = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(60, 60)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for turn in range(6):
    before = net.weight.detach().clone()
    CLEAR
    loss = (net(torch.rand(8, 60)) - before.mean()).pow(2).mean()
    loss.backward()
    del before
    optimizer.step()
"""


@pytest.mark.parametrize("clear", [
    "optimizer.zero_grad()", "net.zero_grad()", "optimizer.zero_grad(set_to_none=False)",
    "net.zero_grad(set_to_none=False)",
])  # fmt: skip
def test_who_clears_gradients_reads_no_values(clear, tmp_path):
    recording = record_program(KEPT.replace("CLEAR", clear), tmp_path)
    (note,) = [one for one in recording.findings if one.slug == "needless-copy"]
    said = [str(one.text) for one in note.evidence]
    assert not [one for one in said if "zero_grad" in one]
    assert [one for one in said if "reads the copy" in one]


def test_who_steps_writes(tmp_path):
    text = KEPT.replace("    del before\n", "").replace("CLEAR", "optimizer.zero_grad()")
    text = text.replace("net.weight.detach().clone()", "net.weight.clone()")
    recording = record_program(text, tmp_path)
    said = [str(step.text) for one in recording.findings for step in one.evidence]
    assert not [one for one in said if "step" in one and "reads" in one]
    assert not [one for one in said if "zero_grad" in one and "reads" in one]
