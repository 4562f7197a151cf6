"""Loaded values that the program's own lines write over before anything has read them."""

import pytest

from programs import record_program

PROGRAM = """\
import io
import torch
from torch import nn

torch.manual_seed(0)

class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("known", torch.tensor(False))
        self.begun = False

    def forward(self, x):
        if FIRST:
            with torch.no_grad():
                WRITE
            self.begun = True
            self.known.fill_(True)
        return x * self.scale

def fit(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()

first = Norm()
fit(first)
disk = io.BytesIO()
torch.save(first.state_dict(), disk)
disk.seek(0)
second = Norm()
second.load_state_dict(torch.load(disk))
THEN
fit(second)
"""
PLAIN, BUFFER = "not self.begun", "not self.known"
COPY = "self.scale.copy_(1 / x.std(0))"

CASES = {
    "a flag that the state does not have": (PLAIN, COPY, "pass", True),
    "through data": (PLAIN, "self.scale.data.copy_(1 / x.std(0))", "pass", True),
    "a flag that the state has": (BUFFER, COPY, "pass", False),
    "read in between": (PLAIN, COPY, "print(second.scale.sum())", False),
    "from what was loaded": (PLAIN, "self.scale.mul_(x.std(0))", "pass", False),
    "a constant": (PLAIN, "self.scale.fill_(1.0)", "pass", False),
    "a draw": (PLAIN, "self.scale.normal_()", "pass", False),
    "a part of it": (PLAIN, "self.scale[:2] = 1 / x.std(0)[:2]", "pass", False),
    "by PyTorch's own initialisation": (PLAIN, "nn.init.uniform_(self.scale)", "pass", False),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_loaded_and_written_over_unread(name, tmp_path):
    first, write, then, lost = CASES[name]
    text = PROGRAM.replace("FIRST", first).replace("WRITE", write).replace("THEN", then)
    found = [one for one in record_program(text, tmp_path).findings if one.slug == "values-lost"]
    assert [(one.severity, one.site.line) for one in found] == [("note", 17)] * lost
