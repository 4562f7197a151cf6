"""One array that NumPy code fills again and again, kept in many places.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
from dataclasses import dataclass
import numpy as np
import torch
from torch import nn

class Game:
    def __init__(self):
        self.random = np.random.default_rng(0)
        self.board = np.zeros(6, dtype=np.float32)

    def play(self, move):
        self.board += self.random.standard_normal(6).astype(np.float32)
        self.board[move] += 1
        return self.board

torch.manual_seed(0)
game, policy = Game(), nn.Linear(6, 3)
board = game.play(0)

def act(board):
    with torch.no_grad():
        return int(policy(TAKEN(board)).argmax())
"""

LOOP = """
for _ in range(20):
    move = act(board)
    after = game.play(move)
    KEEP
    board = after
"""

KEPT = {
    "in tuples": "kept = []"
    + LOOP.replace("KEEP", "kept.append((board, move, after))  #! alias-write kept")
    + "print(policy(torch.as_tensor(np.stack([one[0] for one in kept]))).sum())",
    "in one dictionary that is handed out again": """
class Wrapped:
    def __init__(self):
        self.seen = {"board": game.board}
    def play(self, move):
        game.play(move)
        return self.seen

wrapped, kept = Wrapped(), []
for _ in range(20):
    seen = wrapped.play(act(wrapped.seen["board"]))
    kept.append(seen)  #! alias-write kept
print(policy(torch.as_tensor(np.stack([one["board"] for one in kept]))).sum())
""",
    "in records": """
@dataclass
class Move:
    before: np.ndarray
    move: int

kept = []"""
    + LOOP.replace("KEEP", "kept.append(Move(board, move))  #! alias-write kept")
    + "print(policy(torch.as_tensor(np.stack([one.before for one in kept]))).sum())",
    "copies": "kept = []"
    + LOOP.replace("KEEP", "kept.append((board.copy(), move, after.copy()))")
    + "print(policy(torch.as_tensor(np.stack([one[0] for one in kept]))).sum())",
    "rows of one table": """
table, rows = np.zeros((20, 6), dtype=np.float32), []
for turn in range(20):
    table[turn] = game.play(act(table[turn - 1]))
    rows.append(table[turn])
    with torch.no_grad():
        print(policy(TAKEN(table)).sum())
print(policy(torch.as_tensor(np.stack(rows))).sum())
""",
    "a board that watchers read": """
class Watcher:
    def __init__(self, board):
        self.watched = board
    def read(self):
        return float(self.watched.sum())

watchers = []"""
    + LOOP.replace("KEEP", "watchers.append(Watcher(board))")
    + "print([one.read() for one in watchers])",
    "arrays that are taken from a pool and given back": """
free = [np.zeros(6, dtype=np.float32) for _ in range(3)]
for _ in range(20):
    mine = free.pop()
    mine[:] = game.play(act(mine))
    free.append(mine)
""",
}


@pytest.mark.parametrize("taken", ["torch.from_numpy", "torch.tensor"])
@pytest.mark.parametrize("name", KEPT)
def test_an_array_that_is_kept(name, taken, tmp_path):
    check_program((HEAD + KEPT[name]).replace("TAKEN", taken), tmp_path)
