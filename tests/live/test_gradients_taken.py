"""Gradients of two losses that are taken one after the other, and are one tensor."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
trunk, heads = nn.Linear(4, 6), [nn.Linear(6, 1), nn.Linear(6, 2)]
x = torch.randn(8, 4)


def task_gradients():
    shared, taken = trunk(x).tanh(), []
    for head in heads:
        trunk.zero_grad(set_to_none=EMPTY)
        head(shared).square().mean().backward(retain_graph=True)
        taken.append([KEPT for p in trunk.parameters()])
    return taken


trunk(x).sum().backward()
for _ in range(2):
    first, second = task_gradients()
USES
"""

TWO_LINES = """\
    one = torch.cat([g.flatten() for g in first])
    other = torch.cat([g.flatten() for g in second])
    print(torch.cosine_similarity(one, other, dim=0))
"""

ONE_AFTER_THE_OTHER = """\
    size = torch.cat([g.flatten() for g in second]).norm()
    print([(g / size).abs().max() for g in second])
"""


def _told(folder, empty="False", kept="p.grad", uses=TWO_LINES):
    text = PROGRAM.replace("EMPTY", empty).replace("KEPT", kept).replace("USES\n", uses)
    return [one for one in record_program(text, folder).findings if "as `.grad`" in one.message]


def test_what_two_lines_make_of_them_comes_together(tmp_path):
    (found,) = _told(tmp_path)
    assert (found.site.line, found.severity) == (14, "note")
    assert {20, 21, 22} <= {one.site.line for one in found.evidence}


@pytest.mark.parametrize(
    "how", [{"empty": "True"}, {"kept": "p.grad.clone()"}, {"uses": ONE_AFTER_THE_OTHER}]
)
def test_gradients_that_are_two_or_are_used_as_one(how, tmp_path):
    assert not _told(tmp_path, **how)
