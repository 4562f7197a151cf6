"""What a fix puts into a line uses the names that the line has, and not those of who calls it."""

import pytest

from programs import record_program

REPEATED = """
import torch
from torch import nn

class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(48, 8)

    def forward(self, centre, points):
        n = points.size(1)
        near = centre.CALL
        return self.mix(torch.cat([near, points], 2)).relu().sum()

torch.manual_seed(0)
pool = Pool()
optimizer = torch.optim.SGD(pool.parameters(), lr=0.1)
for _ in range(12):
    clouds = {"centres": torch.rand(20, 1, 24), "points": torch.rand(20, 50, 24)}
    loss = pool(clouds["centres"], clouds["points"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("call", ["t.tile(centre, (1, n, 1))", "t.repeat_interleave(centre, n, 1)"])
def test_a_module_of_another_name_is_no_tensor(call, tmp_path):
    text = REPEATED.replace("centre.CALL", call)
    text = text.replace("import torch\n", "import torch\nimport torch as t\n")
    recording = record_program(text, tmp_path)
    assert recording.error is None
    for one in recording.findings:
        assert " t.expand" not in str(one.fix.text)


@pytest.mark.parametrize("call", ["repeat(1, n, 1)", "tile(1, n, 1)", "repeat_interleave(n, 1)"])
def test_a_copy_is_left_out_by_the_name_at_its_line(call, tmp_path):
    recording = record_program(REPEATED.replace("CALL", call), tmp_path)
    (note,) = [one for one in recording.findings if one.slug == "needless-copy"]
    assert "centre.expand(...)" in str(note.fix.text)
    assert "clouds" not in str(note.fix.text)


CHOSEN = """
import torch

class Log:
    def __init__(self):
        self.rows = torch.rand(60, 200)

    def until(self, n):
        return self.rows.index_select(0, torch.arange(n)).mean()

logs = {"first": Log()}
for n in range(2, 40):
    print(logs["first"].until(n), logs["first"].rows.sum())
"""


def test_an_attribute_is_called_as_the_method_calls_it(tmp_path):
    recording = record_program(CHOSEN, tmp_path)
    (note,) = [one for one in recording.findings if one.slug == "needless-copy"]
    assert "Use a slice of `self.rows`" in str(note.fix.text)
