"""States that a model loads after copies of it were made for the optimizer, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import io
import torch

disk = io.BytesIO()
torch.save(torch.nn.Linear(3, 2).state_dict(), disk)
disk.seek(0)
model = torch.nn.Linear(3, 2).to(torch.bfloat16)


def copied():
    return [one.detach().clone().float().requires_grad_() for one in model.parameters()]


def steps(masters, opt, times=3):
    for _ in range(times):
        model.zero_grad()
        model(torch.randn(4, 3).to(torch.bfloat16)).float().pow(2).mean().backward()
        for one, master in zip(model.parameters(), masters):
            master.grad = one.grad.float()
        opt.step()
        with torch.no_grad():
            for one, master in zip(model.parameters(), masters):
                one.copy_(master)


"""

LOST = {
    "loaded once the copies were made": """\
masters = copied()
opt = torch.optim.SGD(masters, 0.1)
model.load_state_dict(torch.load(disk))  #! values-lost model.weight
steps(masters, opt)
""",
    "evaluated before the training goes on": """\
masters = copied()
opt = torch.optim.Adam(masters, 0.1)
state = torch.load(disk)
model.load_state_dict(state)  #! values-lost model.weight
with torch.no_grad():
    print(model(torch.ones(1, 3, dtype=torch.bfloat16)).sum().item())
steps(masters, opt)
""",
    "trained for a while before it is loaded": """\
masters = copied()
opt = torch.optim.SGD(masters, 0.1)
steps(masters, opt)
model.load_state_dict(torch.load(disk))  #! values-lost model.weight
steps(masters, opt)
""",
}

KEPT = {
    "the copies are made of what was loaded": """\
model.load_state_dict(torch.load(disk))
masters = copied()
steps(masters, torch.optim.SGD(masters, 0.1))
""",
    "the copies are refreshed": """\
masters = copied()
opt = torch.optim.SGD(masters, 0.1)
model.load_state_dict(torch.load(disk))
with torch.no_grad():
    for one, master in zip(model.parameters(), masters):
        master.copy_(one)
steps(masters, opt)
""",
    "the copies load their own values before": """\
masters = copied()
opt = torch.optim.SGD(masters, 0.1)
state = torch.load(disk)
with torch.no_grad():
    for name, master in zip(state, masters):
        master.copy_(state[name])
model.load_state_dict(state)
steps(masters, opt)
""",
    "others are loaded for an evaluation and put back": """\
masters = copied()
opt = torch.optim.SGD(masters, 0.1)
steps(masters, opt)
kept = {name: one.clone() for name, one in model.state_dict().items()}
model.load_state_dict(torch.load(disk))
with torch.no_grad():
    print(model(torch.ones(1, 3, dtype=torch.bfloat16)).sum().item())
model.load_state_dict(kept)
steps(masters, opt)
""",
    "trained as it was loaded": """\
kept = [one.detach().clone() for one in model.parameters()]
model.load_state_dict(torch.load(disk))
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 3).to(torch.bfloat16)).float().pow(2).mean().backward()
    opt.step()
print([(one - old).abs().max().item() for one, old in zip(model.parameters(), kept)])
""",
}


@pytest.mark.parametrize("name", LOST)
def test_a_state_that_older_copies_are_written_over(name, tmp_path):
    check_program(MODEL + LOST[name], tmp_path)


@pytest.mark.parametrize("name", KEPT)
def test_a_state_that_the_training_goes_on_from(name, tmp_path):
    check_program(MODEL + KEPT[name], tmp_path)
