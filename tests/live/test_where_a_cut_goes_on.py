"""The lines by which what came out of a cut goes on to the loss."""

import pytest

from programs import record_program

START = """\
import torch
from torch import nn

torch.manual_seed(0)
gate, body, head = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(3, 1)
opt = torch.optim.SGD([*gate.parameters(), *body.parameters(), *head.parameters()], 0.1)
x = torch.randn(8, 4)
for _ in range(2):
    opt.zero_grad()
    scores = gate(x)
"""
END = """\
    loss.backward()
    opt.step()
"""

WAYS = {
    "indices, a one-hot, a product": (
        """\
    index = scores.argmax(1)
    chosen = torch.eye(3)[index]
    wide = chosen * 2
    part = wide * body(x)
    loss = head(part).mean()
""",
        [12, 14],
    ),
    "straight into a product": (
        """\
    fixed = scores.detach()
    loss = head(fixed * body(x)).mean()
""",
        [12],
    ),
    "on the line of the cut": (
        """\
    loss = head(scores.detach() * body(x)).mean()
""",
        [],
    ),
    "through numbers, which come back on a line that is told": (
        """\
    values = scores.tolist()
    again = torch.tensor(values)
    both = again.softmax(1) * body(x)
    loss = head(both).mean()
""",
        [13],
    ),
    "straight through: two losses use what it was added to": (
        """\
    through = body(x) + (scores - body(x)).detach()
    first = head(through).mean()
    loss = first + (through - 1).pow(2).mean()
""",
        [12, 13],
    ),
    "a side that does not come to the loss": (
        """\
    index = scores.argmax(1)
    print(index.float().mean())
    weight = index.float()
    loss = (head(body(x))[:, 0] * weight).mean()
""",
        [13, 14],
    ),
}


@pytest.mark.parametrize(("text", "lines"), WAYS.values(), ids=WAYS)
def test_a_cut_is_told_with_the_lines_that_lead_to_the_loss(text, lines, tmp_path):
    recording = record_program(START + text + END, tmp_path)
    assert recording.error is None
    (found,) = [one for one in recording.findings if one.slug == "gradient-cut"]
    assert found.site.line == 11
    assert [one.site.line for one in found.evidence if one.role == "used"] == lines
