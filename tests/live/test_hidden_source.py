"""What is shared of real programs holds no expression of theirs: alone, and put together."""

import pytest

from programs import record_program
from tether.report.forms import FORMS
from tether.report.recording import Processes

PROGRAM = """
import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
x = torch.ones(3)
secret_rows = [0, 2]
kept = x.view(3)
for _ in range(3):
    x[secret_rows].mul_(2)
    x.mul_(1.5 + len(secret_rows))
    loss = (w * kept).sum() + (w * len(secret_rows)).sum().detach()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("form", [one.name for one in FORMS])
def test_no_expression_of_several_processes_is_shared(tmp_path, form):
    parts = [record_program(PROGRAM, tmp_path, "train.py") for _ in range(2)]
    for rank, part in enumerate(parts):
        part.trace.process = part.trace.process._replace(rank=rank, ranks=2)
    together = Processes(parts[0], parts)
    expression = "len(secret_rows)"
    assert form == "sarif" or expression in getattr(together, form)(), "there was nothing to hide"
    assert expression not in getattr(together, form)(source=False)
    assert len(together.about.ties) == len(together._shared(source=False).ties) > 0


def test_a_program_that_was_given_as_text_is_hidden(tmp_path):
    recording = record_program(PROGRAM, tmp_path, "train.py")
    recording.trace.program = ["-c", "import secret", "--rate", "0.1"]
    for form in FORMS:
        shared = getattr(recording, form.name)(source=False)
        assert "import secret" not in shared
