"""Small views that a line takes run after run, and the large memory that they keep: a note.

A comment ``#!`` marks the line that the note must name.
"""

import pytest

from programs import record_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 64), nn.Tanh())

def batches(count=24):
    for _ in range(count):
        yield torch.randn(16, 64, 64)

@torch.no_grad()
def main():
    PROGRAM

main()
"""

PROGRAMS = {
    "a diagonal, which lies all over the memory": """\
kept = {}
    for number, rows in enumerate(batches()):
        some = rows[:, :4].flatten(1)
        kept[number] = torch.cov(some.T).diagonal()  #!
    print(sum(one.sum() for one in kept.values()))""",
    "the first token of each batch": """\
kept = []
    for rows in batches():
        kept.append(net(rows)[:, 0])  #!
    print(torch.cat(kept).sum())""",
    "an attribute of a record": """\
class Entry:
        def __init__(self, value):
            self.value = value
    kept = {}
    for number, rows in enumerate(batches()):
        kept[number] = Entry(net(rows).select(1, 3))  #!
    print(sum(one.value.sum() for one in kept.values()))""",
    "a piece that an object of the program's own is made of": """\
class Clip:
        def __init__(self, number, *, part):
            self.number, self.part = number, part
    kept = []
    for number, rows in enumerate(batches()):
        pieces = torch.split(rows, 1)  #!
        kept.append(Clip(number, part=pieces[3]))
    print(sum(one.part.sum() for one in kept))""",
    "the last state of a sequence, by narrow": """\
kept = []
    for rows in batches():
        states = rows.cumsum(1)
        last = states.narrow(1, 63, 1)  #!
        kept.append(last.squeeze(1))
    print(torch.stack(kept).mean())""",
    "a piece of what a generator gives": """\
kept = [rows[0] for rows in batches()]  #!
    print(torch.stack(kept).mean())""",
    "what is used further before it goes": """\
kept, total = [], 0
    for rows in batches():
        out = net(rows)
        kept.append(out[:, 0])  #!
        total += out.mean().item()
    print(torch.cat(kept).sum(), total)""",
    "a copy of the first token": """\
kept = []
    for rows in batches():
        kept.append(net(rows)[:, 0].clone())
    print(torch.cat(kept).sum())""",
    "a choice by an index, which is a copy": """\
kept = []
    for rows in batches():
        kept.append(net(rows)[:, [0]])
    print(torch.cat(kept).sum())""",
    "views that are used at once": """\
total = 0
    for rows in batches():
        total += net(rows)[:, 0].sum().item()
    print(total)""",
    "what is loaded first and looked at in part": """\
held = list(batches())
    kept = [rows[0] for rows in held]
    print(torch.stack(kept).mean(), sum(rows.sum() for rows in held))""",
    "what is looked at in part, and used whole later": """\
held, kept = [], []
    for rows in batches():
        held.append(rows)
        kept.append(rows[0])
    print(torch.stack(kept).mean(), sum(rows.sum() for rows in held))""",
    "half of each": """\
kept = []
    for rows in batches():
        kept.append(net(rows)[:, :32])
    print(torch.cat(kept).sum())""",
    "the last few of many": """\
kept = []
    for rows in batches():
        kept = [*kept[-3:], net(rows)[:, 0]]
    print(torch.cat(kept).sum())""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_small_views_keep(name, tmp_path):
    text = HEAD.replace("PROGRAM", PROGRAMS[name])
    recording = record_program(text, tmp_path)
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    found = [one for one in recording.findings if one.slug == "storage-pinned"]
    assert [one.site.line for one in found] == lines
    assert all(one.severity == "note" for one in found)


ARRAYS = {
    "a row of what a network gives": """\
kept = []
    for rows in batches():
        kept.append(net(rows).numpy()[0, :4])  #!
    print(sum(one.sum() for one in kept))""",
    "a column, by another function and an attribute": """\
class Log:
        def __init__(self):
            self.columns = {}

        def add(self, number, rows):
            array = rows.detach().cpu().numpy()  #!
            self.columns[number] = array[:, 0, 0]
    log = Log()
    for number, rows in enumerate(batches()):
        log.add(number, rows)
    print(sum(one.sum() for one in log.columns.values()))""",
    "views of a view, of an array that NumPy asked for": """\
kept = []
    for rows in batches():
        first = np.asarray(rows)[:2]  #!
        kept.append((first[0, 0], first[1, 0].reshape(8, 8)))
    print(sum(one.sum() for one, _ in kept))""",
    "a part of a tensor that is given out": """\
kept = []
    for rows in batches():
        kept.append(rows[3, :2].numpy())  #!
    print(sum(one.sum() for one in kept))""",
    "what lies deep in a record": """\
kept = []
    for rows in batches():
        row = rows.numpy()[0, 0]  #!
        kept.append({"of": {"row": [row]}})
    print(sum(one["of"]["row"][0].sum() for one in kept))""",
    "copies of the rows": """\
kept = []
    for rows in batches():
        kept.append(net(rows).numpy()[0].copy())
    print(sum(one.sum() for one in kept))""",
    "rows of tensors that are there": """\
held = list(batches())
    kept = [rows.numpy()[0, :4] for rows in held]
    print(sum(one.sum() for one in kept), sum(rows.sum() for rows in held))""",
    "rows of arrays that are there": """\
held = [rows.numpy() for rows in batches()]
    kept = [rows[0] for rows in held]
    print(sum(one.sum() for one in kept), sum(rows.sum() for rows in held))""",
    "all rows, one by one": """\
kept = []
    for rows in batches():
        kept.append(list(rows.numpy()))
    print(sum(one[0].sum() for one in kept))""",
    "the last few of many rows": """\
kept = []
    for rows in batches():
        kept = [*kept[-3:], rows.numpy()[0]]
    print(sum(one.sum() for one in kept))""",
    "rows of small tensors": """\
kept = []
    for rows in batches():
        kept.append(rows[:, :4, :4].clone().numpy()[0])
    print(sum(one.sum() for one in kept))""",
    "rows of a memory that a graph has saved": """\
kept = []
    for rows in batches():
        with torch.enable_grad():
            out = net(rows)
            kept.append((out.sum(), out.detach().numpy()[0]))
    print(len(kept))""",
}


@pytest.mark.parametrize("name", ARRAYS)
def test_what_arrays_keep(name, tmp_path):
    text = HEAD.replace("PROGRAM", ARRAYS[name]).replace("import torch\n", IMPORTS, 1)
    recording = record_program(text, tmp_path)
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    found = [one for one in recording.findings if one.slug == "storage-pinned"]
    assert [one.site.line for one in found if one.severity == "warning"] == lines


IMPORTS = "import numpy as np\nimport torch\n"


def test_an_array_that_is_left_at_the_end(tmp_path):
    text = """\
    import torch

    def first(size):
        return torch.randn(size, 64).numpy()[:3]

    kept, small = first(8192), first(512)
    other = torch.ones(3).add(1).numpy()
    print(kept.sum(), other)
    """
    found = record_program(text, tmp_path).findings
    said = {one.subject: (one.slug, one.severity) for one in found}
    assert said == {"kept": ("storage-pinned", "warning")}


WAYS = {
    "by a loop over several things": """\
kept, codes = {}, {}
    def put(names, rows, labels):
        for name, row, label in zip(names, rows, labels.tolist()):
            kept[name] = row  #+
            codes[name] = label
    for number, rows in enumerate(batches()):
        first = net(rows)[:, 0]  #+
        put(range(number * 16, number * 16 + 16), first, first.argmax(1))
    print(torch.stack([*kept.values()]).mean())""",
    "by a loop that counts": """\
class Bank:
        def __init__(self):
            self.rows = []

        def put(self, rows):
            for number, row in enumerate(rows):
                if number % 4 == 0:
                    self.rows.append(row)  #+
    bank = Bank()
    for rows in batches():
        last = rows.cumsum(1).select(1, 63)  #+
        bank.put(last)
    print(torch.stack(bank.rows).mean())""",
    "by a variable": """\
kept = []
    for rows in batches():
        states = net(rows)
        last = states[:, -1]  #+
        note = last[0]  #+
        kept.append(note)  #+
    print(torch.stack(kept).mean())""",
}


@pytest.mark.parametrize("name", WAYS)
def test_the_way_of_what_is_kept(name, tmp_path):
    """Each line that made a view on the way is evidence, and the one that puts it away."""
    text = HEAD.replace("PROGRAM", WAYS[name])
    recording = record_program(text, tmp_path)
    wanted = {n for n, line in enumerate(text.splitlines(), 1) if "#+" in line}
    (found,) = [one for one in recording.findings if one.slug == "storage-pinned"]
    assert wanted <= {one.site.line for one in (*found.evidence, found)}


SMALL = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
{body}
print(net(torch.randn(2, 16)).sum().item())
"""

LITTLE = {
    "rows of a dict": (
        """\
kept = {}
for n in range(4):
    with torch.no_grad():
        kept[n] = net(torch.randn(128, 16))[0]
""",
        {("storage-pinned", "note")},
    ),
    "copies of rows": (
        """\
kept = {}
for n in range(4):
    with torch.no_grad():
        kept[n] = net(torch.randn(128, 16))[0].clone()
""",
        set(),
    ),
    "a row in a variable": (
        """\
with torch.no_grad():
    row = net(torch.randn(128, 16))[0]
""",
        set(),
    ),
    "columns, in an object": (
        """\
class Kept: pass
kept = Kept()
with torch.no_grad():
    kept.column = net(torch.randn(128, 16))[:, 0]
""",
        {("storage-pinned", "note")},
    ),
    "scores of an evaluation with their graphs": (
        """\
scores = []
for n in range(12):
    scores.append(net(torch.randn(64, 16)).mean(1))
scores = torch.cat(scores)
""",
        {("graph-retained", "note")},
    ),
    "scores of an evaluation without": (
        """\
scores = []
for n in range(12):
    scores.append(net(torch.randn(64, 16)).mean(1).detach())
scores = torch.cat(scores)
""",
        set(),
    ),
}


@pytest.mark.parametrize("name", LITTLE)
def test_of_little_memory_there_is_a_note(name, tmp_path):
    body, expected = LITTLE[name]
    findings = record_program(SMALL.format(body=body), tmp_path).findings
    kept = {one for one in findings if one.slug in ("storage-pinned", "graph-retained")}
    assert {(one.slug, one.severity) for one in kept} == expected


def test_of_several_parts_the_one_that_is_kept_is_to_be_copied(tmp_path):
    text = HEAD.replace(
        "PROGRAM", PROGRAMS["a piece that an object of the program's own is made of"]
    )
    (found,) = record_program(text, tmp_path).findings
    assert found.fix.edits == () if hasattr(found.fix, "edits") else True
    assert "Keep a copy of the part that is kept" in str(found.fix)
    kept = text.splitlines().index("        kept.append(Clip(number, part=pieces[3]))") + 1
    assert kept in [one.site.line for one in found.evidence]


@pytest.mark.parametrize(("rows", "severity"), [(1024, "note"), (8192, "warning")])
def test_what_a_view_keeps_is_a_warning_from_a_megabyte_on(rows, severity, tmp_path):
    text = f"""\
import torch

class Stats:
    pass

def first(stats):
    table = torch.randn({rows}, 64)
    stats.first = table[0]

stats = Stats()
first(stats)
print(stats.first.sum().item())
"""
    (found,) = record_program(text, tmp_path).findings
    assert (found.slug, found.severity) == ("storage-pinned", severity)
