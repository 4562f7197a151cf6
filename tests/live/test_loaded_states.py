"""States of optimizers that are loaded, for the parameters that they were kept for and for others.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import copy
import io

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.left(x) - 2 * self.right(x.flip(1))


def fit(model, opt, steps=3):
    for _ in range(steps):
        opt.zero_grad()
        (model(torch.randn(8, 4)) - 1).pow(2).mean().backward()
        opt.step()


model = Model()
opt = torch.optim.Adam(model.parameters(), 0.01)
fit(model, opt)
"""

WRONG = {
    "read back from a file, with the layers in another order": """\
file = io.BytesIO()
torch.save([model.state_dict(), opt.state_dict()], file)
file.seek(0)
weights, state = torch.load(file)
resumed = Model()
opt = torch.optim.Adam([*resumed.right.parameters(), *resumed.left.parameters()], 0.01)
opt.load_state_dict(state)  #! gradient-misdirected resumed.right.weight
resumed.load_state_dict(weights)
fit(resumed, opt)
""",
}

DECAYED = """\
def rated(opt, **how):
    return torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.5**step, **how)


schedule = rated(opt)
for _ in range(3):
    fit(model, opt, 1)
    schedule.step()
state, rates = opt.state_dict(), schedule.state_dict()
opt = torch.optim.Adam(model.parameters(), 0.01)
"""

WRONG["a rate that the scheduler replaces"] = (
    DECAYED
    + """\
opt.load_state_dict(state)
schedule = rated(opt)  #! values-lost learning rate of Adam (note)
schedule.load_state_dict(rates)
fit(model, opt)
"""
)

OWN = {
    "a rate that is loaded after the scheduler was made": DECAYED
    + """\
schedule = rated(opt)
opt.load_state_dict(state)
schedule.load_state_dict(rates)
fit(model, opt)
""",
    "a scheduler that goes on where it was": DECAYED
    + """\
opt.load_state_dict(state)
schedule = rated(opt, last_epoch=rates["last_epoch"] - 1)
fit(model, opt)
""",
    "a scheduler for the work after the loaded state was used": DECAYED
    + """\
opt.load_state_dict(state)
fit(model, opt)
schedule = rated(opt)
fit(model, opt)
""",
    "read back into the same order": """\
file = io.BytesIO()
torch.save([model.state_dict(), opt.state_dict()], file)
file.seek(0)
weights, state = torch.load(file)
resumed = Model()
opt = torch.optim.Adam(resumed.parameters(), 0.01)
opt.load_state_dict(state)
resumed.load_state_dict(weights)
fit(resumed, opt)
""",
    "back to an earlier state of the same optimizer": """\
weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())
fit(model, opt)
model.load_state_dict(weights)
opt.load_state_dict(state)
fit(model, opt)
""",
    "other weights, which go on with the state of these": """\
other = Model()
state = opt.state_dict()
opt = torch.optim.Adam([*other.right.parameters(), *other.left.parameters()], 0.01)
opt.load_state_dict(state)
fit(other, opt)
""",
    "two models that are one in all they have": """\
twin, state = copy.deepcopy(model), copy.deepcopy(opt.state_dict())
of_twin = torch.optim.Adam(twin.parameters(), 0.01)
of_twin.load_state_dict(state)
print(of_twin.state_dict()["param_groups"])
fit(twin, of_twin)
""",
    "swapped by name, and the order with it": """\
weights = {f"right{k[4:]}" if k.startswith("left") else f"left{k[5:]}": v for k, v in
           model.state_dict().items()}
state, swapped = opt.state_dict(), Model()
swapped.load_state_dict(weights)
opt = torch.optim.Adam([*swapped.right.parameters(), *swapped.left.parameters()], 0.01)
opt.load_state_dict(state)
fit(swapped, opt)
""",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_state_that_goes_wrong_is_told(text, tmp_path):
    check_program(MODEL + text, tmp_path)


@pytest.mark.parametrize("text", OWN.values(), ids=OWN)
def test_a_state_of_its_own_is_not(text, tmp_path):
    check_program(MODEL + text, tmp_path)
