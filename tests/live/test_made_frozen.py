"""Parameters that are made frozen: on purpose in so many words, by a flag, or by a default."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
LEARNS = False


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        table = torch.rand(5, 4)
        MADE
        self.out = nn.Linear(4, 1)

    def forward(self, at):
        return self.out(USED)


model = Model()
opt = torch.optim.Adam(HELD)
for _ in range(3):
    opt.zero_grad()
    model(torch.tensor([0, 2, 4])).square().mean().backward()
    opt.step()
"""
ALL = "model.parameters()"
CASES = {
    "in so many words": (
        "self.table = nn.Parameter(table, requires_grad=False)", "self.table[at]", ALL, 0),
    "in so many words, by position": (
        "self.table = nn.Parameter(table, False)", "self.table[at]", ALL, 0),
    "in a module of PyTorch's": (
        "self.table = nn.Embedding(5, 4); self.table.weight = nn.Parameter(table, False)",
        "self.table(at)", ALL, 0),
    "a flag": (
        "self.table = nn.Parameter(table, requires_grad=LEARNS)", "self.table[at]", ALL, 1),
    "a default": (
        "self.table = nn.Embedding.from_pretrained(table)", "self.table(at)", ALL, 1),
    "all that an optimizer holds": (
        "self.table = nn.Parameter(table, requires_grad=False)", "self.table[at]",
        "[model.table]", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_parameter_that_is_made_frozen(name, tmp_path):
    made, used, held, told = CASES[name]
    text = PROGRAM.replace("MADE", made).replace("USED", used).replace("HELD", held)
    found = record_program(text, tmp_path).findings
    assert [one.slug for one in found].count("parameter-frozen") == told
