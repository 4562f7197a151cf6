"""Arrays that are written after the last call of PyTorch: the list of ties says so."""

import io

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


OF_ANOTHER_FILE = """\
import torch
from shown_as import as_array

w = torch.ones(3, requires_grad=True)
shown = as_array(w * 2)
shown += 1.0
"""


def test_each_line_of_a_row_is_told_with_its_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shown_as.py").write_text("def as_array(t):\n    return t.data.numpy()\n")
    shown = io.StringIO()
    record_program(OF_ANOTHER_FILE, tmp_path).print(shown)
    assert "not PyTorch  the array  shown_as.py:2" in shown.getvalue()
