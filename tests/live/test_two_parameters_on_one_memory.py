"""Two names on one memory: one optimizer steps both, one follows or is written for the other.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

TIED = """\
import torch
from torch import nn

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        TIE

    def forward(self, ids):
        return self.head(self.embed(ids))

model = Tied()
opt = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    model(torch.tensor([0, 1])).pow(2).sum().backward()
    opt.step()
"""

WINDOWS = """\
import torch
from torch import nn

flat = torch.ones(6)
left, right = nn.Parameter(flat[:3]), nn.Parameter(flat[3:])
opt = torch.optim.AdamW([left, right], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (left * right).sum().backward()
    opt.step()
"""

STEPPED = {
    "a parameter made of another one's memory": TIED.replace(
        "TIE", "self.head.weight = nn.Parameter(self.embed.weight)"
        "  #! alias-write model.head.weight (note)"
    ),
    "memory given to a parameter that was there": TIED.replace(
        "TIE", "self.head.weight.data = self.embed.weight.data"
        "  #! alias-write model.head.weight (note)"
    ),
    "the same parameter": TIED.replace("TIE", "self.head.weight = self.embed.weight"),
    "two windows of one tensor": WINDOWS,
}  # fmt: skip


@pytest.mark.parametrize("name", STEPPED)
def test_who_is_stepped_twice(name, tmp_path):
    recording = check_program(STEPPED[name], tmp_path)
    told = any("two parameters on one memory" in one.message for one in recording.findings)
    assert told == ("#!" in STEPPED[name])


ACTOR = """\
import torch
from torch import nn

learner, actor = nn.Linear(3, 1), nn.Linear(3, 1).requires_grad_(False)
opt = torch.optim.SGD(learner.parameters(), lr=0.1)

def sync():
    actor.load_state_dict(learner.state_dict(), assign=True)  #! alias-write actor

sync()
for k in range(6):
    print(actor(torch.ones(1, 3)))
    opt.zero_grad()
    learner(torch.ones(2, 3)).sum().backward()
    opt.step()
    AGAIN
"""


def test_who_was_put_on_a_memory_once_and_reads_each_write_is_a_note(tmp_path):
    once = ACTOR.replace("AGAIN", "").replace("alias-write actor", "alias-write actor (note)")
    check_program(once, tmp_path)


def test_who_is_put_there_again_and_again_meant_a_copy(tmp_path):
    check_program(ACTOR.replace("AGAIN", "if k % 3 == 2: sync()"), tmp_path)


KEPT = """\
import copy
import torch
from torch import nn

model = nn.Linear(3, 1)
best = COPY
state = best.state_dict()  #! alias-write state
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for k in range(3):
    opt.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
    FILL
model.load_state_dict(state)
print(model(torch.ones(1, 3)))
"""


def test_who_is_filled_by_a_name_that_nothing_reads_is_a_note(tmp_path):
    text = KEPT.replace("COPY", "copy.deepcopy(model)").replace("write state", "write state (note)")
    check_program(text.replace("FILL", "best.load_state_dict(model.state_dict())"), tmp_path)


READ = {
    "the model itself": ("model", "pass"),
    "another model that is asked": (
        "nn.Linear(3, 1)", "best.load_state_dict(model.state_dict()); print(best(torch.ones(3)))"
    ),
    "another model, kept again": (
        "nn.Linear(3, 1)", "best.load_state_dict(model.state_dict()); again = best.state_dict()"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_who_is_written_by_a_name_that_is_read_as_well_meant_a_copy(name, tmp_path):
    copy, fill = READ[name]
    check_program(KEPT.replace("COPY", copy).replace("FILL", fill), tmp_path)
