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


FIT = (
    HEAD
    + """
def fit(first, second):
    first, second = (torch.from_numpy(np.stack(one)) for one in (first, second))
    loss = (policy(first) - second[:, :3]).pow(2).mean()
    policy.zero_grad()
    loss.backward()
    print(loss.item())

class Log:
    def __init__(self):
        self.entries = []
    def put(self, *entry):
        self.entries.append(entry)
"""
)

NEVER_GIVEN = {
    "in tuples of a class": """
log = Log()
for turn in range(80):
    before = board
    board = game.play(turn % 6)
    log.put(before, turn, board)
    chosen = [log.entries[(turn * 7) % len(log.entries)] for _ in range(3)]
    fit([one[0] for one in chosen], [one[2] for one in chosen])
""",
    "in dictionaries": """
kept = []
for turn in range(80):
    kept.append({"board": game.play(turn % 6), "turn": turn})  #! alias-write kept
    fit([one["board"] for one in kept[-4:]], [one["board"] for one in kept[:4]])
""",
    "views of one array": """
kept = []
for turn in range(80):
    kept.append(np.asarray(game.play(turn % 6)[:]))  #! alias-write kept
    fit(kept[-4:], kept[:4])
""",
    "copies": """
kept = []
for turn in range(80):
    kept.append((game.play(turn % 6).copy(), turn))
    fit([one[0] for one in kept[-4:]], [one[0] for one in kept[:4]])
""",
    "a constant beside copies": """
scale, kept = np.arange(6, dtype=np.float32), []
for turn in range(80):
    kept.append((game.play(turn % 6).copy(), scale))
    fit([one[0] * one[1] for one in kept[-4:]], [one[0] for one in kept[:4]])
""",
    "parts of one table": """
table, kept = np.zeros((80, 6), dtype=np.float32), []
for turn in range(80):
    table[turn] = game.play(turn % 6)
    kept.append(table[turn])
    fit(kept[-4:], kept[:4])
""",
    "a board of all players": """
class Player:
    def __init__(self, board):
        self.board = board
    def turn(self, number):
        self.board[number] += 1
        return self.board.copy()

players = []
for turn in range(40):
    players.append(Player(board))
    fit([one.turn(turn % 6) for one in players], [one.turn(0) for one in players])
""",
}


@pytest.mark.parametrize("name", NEVER_GIVEN)
def test_an_array_that_pytorch_is_never_given(name, tmp_path):
    text = FIT + NEVER_GIVEN[name]
    if name == "in tuples of a class":
        text = text.replace("append(entry)", "append(entry)  #! alias-write log.entries")
    check_program(text, tmp_path)


TENSORS = {
    "by a number": """
class Memory:
    def __init__(self):
        self.boards = {}
    def put(self, turn, board):
        self.boards[turn] = torch.as_tensor(board)  #! alias-write self.boards

memory = Memory()
for turn in range(60):
    memory.put(turn, game.play(turn % 6))
    print(policy(memory.boards[min(turn, 5)]).sum())
""",
    "rows of a table": """
table, kept = np.zeros((60, 6), dtype=np.float32), {}
for turn in range(60):
    table[turn] = game.play(turn % 6)
    kept[turn] = torch.from_numpy(table[turn])
    print(policy(torch.stack(list(kept.values()))).sum())
""",
    "copies": """
kept = {}
for turn in range(60):
    kept[turn] = torch.tensor(game.play(turn % 6))
    print(policy(torch.stack(list(kept.values()))).sum())
""",
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_show_one_array(name, tmp_path):
    check_program(HEAD + TENSORS[name], tmp_path)
