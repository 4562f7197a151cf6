"""What a tensor without a name of its own is called: its variable, or a short expression."""

import pytest

from programs import record_program

HEAD = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
"""

LOOP = (
    HEAD
    + """
def embed(x):
    x = x.long()
    return x.float().mean() + x.sum()

stations = TensorDataset(torch.rand(64, 60), torch.randint(9, (64, 60)))
for turn, (levels, hours) in enumerate(DataLoader(stations, batch_size=8)):
    levels = levels.float()
    late = hours.float()
    print(embed(late), levels.sum())
"""
)

PART = (
    HEAD
    + """
def level(x):
    return (x * x).sum()

rate = 1.0
for turn in range(12):
    x = torch.rand(50, 40, requires_grad=True)
    slope = torch.autograd.grad(level(x), [x])[0]
    moved = rate * slope
    print(moved.relu().sum(), slope.mean())
"""
)

PAIR = (
    HEAD
    + """
for turn in range(12):
    spread, middle = torch.std_mean(torch.rand(50, 400), 0)
    kept = middle.clone()
    print(kept.sum(), middle.max(), spread.sum())
"""
)

CASES = {"of a loop": (LOOP, "hours"), "by an index": (PART, "slope"), "of two": (PAIR, "middle")}


@pytest.mark.parametrize(("program", "name"), CASES.values(), ids=CASES)
def test_it_is_called_by_its_variable(program, name, tmp_path):
    recording = record_program(program, tmp_path)
    history = recording.history
    assert name in {history.name_of(one).strip("`") for one in history.trace.tensors}
    notes = [one for one in recording.findings if one.slug == "needless-copy"]
    said = " ".join(f"{one.message} {one.fix.text}" for one in notes)
    assert not notes or f"`{name}`" in said
    for text in ("for turn", "autograd.grad(", "std_mean"):
        assert text not in said


STATEMENT = (
    HEAD
    + """
class Tides:
    def __iter__(self):
        for n in range(6):
            yield torch.rand(30, 50)[:n + 2], n

for tide in Tides():
    rows = tide[0].clone()
    print(rows.sum(), tide[0].mean())
"""
)


def test_a_statement_is_no_name(tmp_path):
    recording = record_program(STATEMENT, tmp_path)
    for one in recording.findings:
        assert "for tide" not in f"{one.message} {one.fix.text if one.fix else ''} {one.also}"
    for tensor in recording.history.trace.tensors:
        assert "for tide" not in recording.history.name_of(tensor)


def test_an_expression_stays_where_there_is_no_variable(tmp_path):
    text = HEAD + "x = torch.rand(50, 60)\nfor n in range(9):\n"
    text += "    print((x + n).clone().sum(), x.mean())\n"
    (note,) = record_program(text, tmp_path).findings
    assert "(x + n)" in f"{note.message} {note.fix.text}" or "x + n" in str(note.message)
