"""Arrays that are written after the last call of PyTorch: the list of ties says so."""

from programs import record_program
from tether.analysis.ties import Ties

PROGRAM = """\
import torch

w = torch.ones(3, requires_grad=True)
shown = (w * 2).data.numpy()
shown += 1.0
"""


def test_a_write_that_no_call_comes_after(tmp_path):
    (tie,) = record_program(PROGRAM, tmp_path).history.get(Ties).found
    assert (tie.kind, tie.operation, tie.writes) == ("array", "", ())
