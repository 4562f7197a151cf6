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
