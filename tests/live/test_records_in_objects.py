"""One tensor kept by many objects, by the elements of an array of objects, by numbered attributes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
from dataclasses import dataclass
from types import SimpleNamespace
import numpy as np
import torch
from torch import nn

@dataclass
class Frame:
    step: int
    state: torch.Tensor

torch.manual_seed(0)
state = torch.zeros(6)
"""

KEPT = {
    "in objects of a list": """
frames = []
for step in range(8):
    state.mul_(0.9).add_(torch.randn(6))
    frames.append(Frame(step, state))  #! alias-write frames
print(sum((b.state - a.state).norm() for a, b in zip(frames, frames[1:])))
""",
    "in an array of objects": """
frames = np.empty(8, dtype=object)
for step in range(8):
    state.add_(torch.randn(6))
    frames[step] = state  #! alias-write frames
print(sum((frames[n + 1] - frames[n]).norm() for n in range(7)))
""",
    "in numbered attributes": """
box = SimpleNamespace()  #! alias-write box
for step in range(8):
    state.add_(torch.randn(6))
    setattr(box, f"step{step}", state)
print([getattr(box, f"step{step}").sum() for step in range(8)])
""",
    "copies in objects of a list": """
frames = []
for step in range(8):
    state.mul_(0.9).add_(torch.randn(6))
    frames.append(Frame(step, state.clone()))
print(sum((b.state - a.state).norm() for a, b in zip(frames, frames[1:])))
""",
    "two numbered attributes that change places": """
class Pair:
    def __init__(self):
        self.buffer0, self.buffer1 = torch.zeros(6), torch.ones(6)
    def step(self):
        torch.mul(self.buffer0, 0.5, out=self.buffer1)
        self.buffer1.add_(1)
        self.buffer0, self.buffer1 = self.buffer1, self.buffer0
pair = Pair()
for _ in range(9):
    pair.step()
    print(pair.buffer0.sum())
""",
    "a board that workers write, made one by one": """
class Worker:
    def __init__(self, number, board):
        self.number, self.board = number, board
    def run(self):
        self.board[self.number] += torch.randn(())
workers = []
for number in range(6):
    workers.append(Worker(number, state))
    workers[-1].run()
print([one.board[one.number].item() for one in workers], state.sum())
""",
    "a counter that loggers read, made one by one": """
class Logger:
    def __init__(self, step):
        self.step = step
    def log(self):
        print(int(self.step))
step, loggers = torch.zeros(()), []
for _ in range(8):
    step.add_(1)
    loggers.append(Logger(step))
    for one in loggers:
        one.log()
""",
    "a counter of modules that are kept by number": """
class Head(nn.Module):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls
    def forward(self, x):
        self.calls.add_(1)
        return x.tanh()
box, x = SimpleNamespace(), torch.randn(3)
for number in range(6):
    setattr(box, f"head{number}", Head(state))
    x = getattr(box, f"head{number}")(x)
print(state, x)
""",
}


@pytest.mark.parametrize("name", KEPT)
def test_what_objects_keep(name, tmp_path):
    check_program(HEAD + KEPT[name], tmp_path)
