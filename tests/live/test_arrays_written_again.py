"""Arrays that NumPy code writes between two reads of PyTorch's: listed, with the lines.

A comment ``#~`` marks the lines that the row must name.
"""

import re

import pytest

from programs import record_program

GAME = """\
import numpy as np
import torch

class Game:
    def __init__(self):
        self.board = np.zeros((2, 3), dtype=np.float32)

    def play(self, move):
        self.board[move % 2] += 1.0  #~
        return BOARD

def score(board):
    return torch.from_numpy(board).sum().item()  #~

def keep(board, kept):
    kept.append(torch.from_numpy(board).tolist())  #~

game, kept = Game(), []
board = game.play(0)
for move in range(1, 6):
    print(score(board))
    after = game.play(move)
    keep(board, kept)  #~
    board = after
print(kept)
"""

SCALED = """\
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self):
        self.rows = np.arange(24, dtype=np.float32).reshape(8, 3)

    def __len__(self):
        return len(self.rows)

    def scaled(self, values):
        values *= 0.5  #~
        return values

    def __getitem__(self, index):
        row = TAKEN
        return self.scaled(row)

loader = DataLoader(Rows(), batch_size=4)
for epoch in range(3):
    print(sum(batch.sum().item() for batch in loader))  #~
"""

BY_PYTORCH = """\
import numpy as np
import torch

counts = np.zeros((2, 3), dtype=np.float32)
for k in range(5):
    torch.from_numpy(counts).add_(1.0)
    print(torch.from_numpy(counts).sum())
"""

FRESH = """\
import numpy as np
import torch

for k in range(50):
    rows = np.full((2, 3), float(k), dtype=np.float32)
    print(torch.from_numpy(rows).sum())
    print(torch.from_numpy(rows).mean())
"""


def again(text, folder):
    recording = record_program(text, folder)
    assert not [one for one in recording.findings if one.severity != "note"]
    assert not any("failed" in one.code for one in recording.trace.gaps), recording.trace.gaps
    return [row.tie for row in recording.about.ties[:10] if row.tie.kind == "again"]


WRITTEN = {
    "an array that is read by one line, written, and read by another": (
        GAME.replace("BOARD", "self.board"), "game.board"
    ),
    "rows that are scaled whenever they are taken": (
        SCALED.replace("TAKEN", "self.rows[index]"), "loader.dataset.rows"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_was_written_between_two_reads_is_listed(name, tmp_path):
    text, holder = WRITTEN[name]
    found = again(text, tmp_path)
    wanted = {n for n, line in enumerate(text.splitlines(), 1) if re.search(r"#~$", line)}
    assert wanted <= {site.line for one in found for site in one.sites}, found
    assert any(holder in name for one in found for name in one.shows), found


RIGHT = {
    "an array that is handed out as a copy": GAME.replace("BOARD", "self.board.copy()"),
    "rows that are copied before they are scaled": SCALED.replace(
        "TAKEN", "self.rows[index].copy()"
    ),
    "an array that PyTorch itself writes": BY_PYTORCH,
    "an array made anew where the last one lay": FRESH,
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_nothing_wrote_is_not_listed(name, tmp_path):
    assert not again(RIGHT[name], tmp_path)
