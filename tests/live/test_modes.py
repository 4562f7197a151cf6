"""Models that are put into evaluation mode and train on, and look-alikes that are right.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)


def fit(steps=3):
    for _ in range(steps):
        opt.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        opt.step()


@torch.no_grad()
def score():
    return model(torch.randn(8, 4)).mean()


"""

LEFT = {
    "within an epoch that goes on": """\
for epoch in range(2):
    model.train()
    fit()
    model.eval()  #! mode-kept model.0.weight
    print(score())
    fit()
""",
    "statistics held still before the loop switches the whole": """\
model[1].eval()  #! mode-kept model.1.running_mean
for epoch in range(2):
    model.train()
    fit()
    model.eval()
    print(score())
""",
    "statistics held still until the first evaluation ended": """\
model[1].eval()  #! mode-kept model.1.running_mean (note)
for epoch in range(2):
    fit()
    model.eval()
    print(score())
    model.train()
""",
    "a teacher that is a part of what is switched": """\
class Distilled(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = model
        self.teacher = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.teacher.eval()  #! mode-kept pair.teacher.2.weight

    def forward(self, x):
        with torch.no_grad():
            wanted = self.teacher(x)
        return (self.student(x) - wanted).pow(2).mean()


pair = Distilled()
for _ in range(3):
    pair.train()
    opt.zero_grad()
    pair(torch.randn(8, 4)).backward()
    opt.step()
""",
    "once, with nothing that shows what is meant": """\
fit()
model.eval()  #! mode-kept model.0.weight (note)
print(score())
fit()
""",
}

RIGHT = {
    "switched back by each evaluation": """\
for epoch in range(3):
    fit()
    model.eval()
    print(score())
    model.train()
""",
    "in evaluation mode from the first step on": """\
model.eval()
for epoch in range(3):
    fit()
    print(score())
    model.eval()
""",
    "statistics that are held still after some steps, and nothing evaluated": """\
for epoch in range(4):
    model.train()
    fit()
model.eval()
fit()
""",
    "a model that the mode makes no difference to": """\
model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    fit()
    model.eval()
    print(score())
""",
    "a module whose own train() leaves a part in evaluation mode": """\
class Held(nn.Sequential):
    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self


model = nn.Sequential(Held(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
model[0][1].eval()
for epoch in range(3):
    model.train()
    fit()
    model.eval()
    print(score())
""",
    "a frozen part of which nothing that drops values is used": """\
class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))


class Perceptual(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.judge = nn.Linear(4, 4), Features().eval()

    def forward(self, x):
        return self.judge.features(self.net(x))


model = Perceptual()
model.judge.requires_grad_(False)
opt = torch.optim.SGD(model.net.parameters(), 0.1)
for epoch in range(3):
    model.train()
    fit()
""",
    "a loaded part that comes in evaluation mode and is trained": """\
def loaded():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()).eval()


model = nn.Sequential(loaded(), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    model.train()
    fit()
    model.eval()
    print(score())
""",
    "statistics that are held still for some epochs": """\
for epoch in range(4):
    model.train()
    if epoch < 2:
        model[1].eval()
    fit()
    model.eval()
    print(score())
""",
    "statistics computed anew within an evaluation": """\
for epoch in range(3):
    model.train()
    fit()
    model.eval()
    model[1].train()
    print(score())
    model[1].eval()
    print(score())
""",
    "a part that stays in evaluation mode": """\
for epoch in range(3):
    model.train()
    model[1].eval()
    fit()
    model.eval()
    print(score())
""",
    "a part that the train() of the whole puts back, after an evaluation and before anything steps": """\
class Held(nn.Sequential):
    def train(self, mode=True):
        super().train(mode)
        self[0].eval()
        return self


fit()
model.eval()
print(score())
model = Held(model, nn.Linear(1, 1))
opt = torch.optim.SGD(model.parameters(), 0.01)
model.train()
fit()
""",
}


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_training_in_the_mode_of_an_evaluation_is_told(text, tmp_path):
    check_program(MODEL + text, tmp_path)


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_a_mode_that_is_meant_is_not(text, tmp_path):
    check_program(MODEL + text, tmp_path)
