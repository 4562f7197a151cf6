"""Lines that undo a freeze for a while, and what was frozen before with it; and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program, says

PROGRAM = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(self.encoder(x).tanh()).tanh())


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad = False


def let_go(module):
    for parameter in module.parameters():
        parameter.requires_grad = True


def switch(module, on):
    module.requires_grad_(on)


def search():
    x = torch.randn(3, 4, requires_grad=True)
    for _ in range(3):
        (slope,) = torch.autograd.grad(model(x).sum(), x)
        x = (x + 0.1 * slope).detach().requires_grad_()
    return x


def fit(steps=4):
    for _ in range(steps):
        opt.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        opt.step()


torch.manual_seed(0)
model = Model()
"""

MARK = "  #! parameter-moved model.encoder.weight (note)"
OPT = "opt = torch.optim.Adam(model.parameters(), 0.01)\n"
SET_UP = "model.encoder.requires_grad_(False)\n" + OPT
SAMPLE = f"""\
def sample():
    for p in model.parameters():
        p.requires_grad_(False)
    found = search()
    for p in model.parameters():
        p.requires_grad_(True){MARK}
    return found


"""
QUIET = SAMPLE.replace(MARK, "")

FOUND = {
    "a sampler": SAMPLE
    + SET_UP
    + """\
for _ in range(3):
    fit()
    sample()
""",
    "before the first step": SAMPLE
    + SET_UP
    + """\
for _ in range(3):
    sample()
    fit()
""",
    "by modules, for one evaluation": SET_UP
    + f"""\
fit()
model.requires_grad_(False)
print(model(torch.randn(5, 4)).mean().item())
model.requires_grad_(True){MARK}
fit()
""",
    "by functions that freeze and let go": f"""\
freeze(model.encoder)
{OPT}
for _ in range(2):
    fit()
    freeze(model)
    search()
    let_go(model){MARK}
""",
    "by one function for all": f"""\
switch(model.encoder, False)
{OPT}
for _ in range(2):
    fit()
    switch(model, False)
    search()
    switch(model, True){MARK}
""",
    "trained first, and frozen for a second stage": SAMPLE
    + OPT
    + """\
fit()
model.encoder.requires_grad_(False)
for _ in range(3):
    fit()
    sample()
""",
    "a generator that holds the discriminator still, of which a part is frozen": f"""\
generator = nn.Linear(2, 4)
{SET_UP}
other = torch.optim.Adam(generator.parameters(), 0.01)
for _ in range(3):
    fit()
    for p in model.parameters():
        p.requires_grad = False
    other.zero_grad()
    model(generator(torch.randn(8, 2))).mean().backward()
    other.step()
    for p in model.parameters():
        p.requires_grad = True{MARK}
""",
}

RIGHT = {
    "what required grad is kept": SET_UP
    + """\
for _ in range(3):
    fit()
    flags = [p.requires_grad for p in model.parameters()]
    for p in model.parameters():
        p.requires_grad_(False)
    search()
    for p, flag in zip(model.parameters(), flags):
        p.requires_grad_(flag)
""",
    "only what was on is let go": SET_UP
    + """\
for _ in range(3):
    fit()
    some = [p for p in model.parameters() if p.requires_grad]
    model.requires_grad_(False)
    search()
    for p in some:
        p.requires_grad_(True)
""",
    "nothing was frozen before": QUIET
    + OPT
    + """\
for _ in range(3):
    fit()
    sample()
""",
    "nothing ran over it meanwhile": SET_UP
    + """\
fit()
model.head.requires_grad_(False)
search()
model.requires_grad_(True)
fit()
""",
    "another line lets it go": SET_UP
    + """\
for epoch in range(4):
    fit()
    model.requires_grad_(False)
    search()
    model.body.requires_grad_(True)
    model.head.requires_grad_(True)
    if epoch == 2:
        model.encoder.requires_grad_(True)
""",
    "another line lets it go later": QUIET
    + SET_UP
    + """\
for epoch in range(4):
    fit()
    sample()
    model.encoder.requires_grad_(epoch > 1)
""",
    "a stage that lets all go": SET_UP
    + """\
for epoch in range(4):
    fit()
    model.requires_grad_(False)
    search()
    model.body.requires_grad_(True)
    model.head.requires_grad_(True)
model.requires_grad_(True)
fit()
""",
    "stages that begin with nothing": """\
def stage(names):
    for p in model.parameters():
        p.requires_grad_(False)
    for name, p in model.named_parameters():
        if name.split(".")[0] in names:
            p.requires_grad_(True)


"""
    + OPT
    + """\
for names in (["head"], ["head", "body"], ["head", "body", "encoder"]):
    stage(names)
    fit()
""",
    "a line that lets go by the epoch": SET_UP
    + """\
for epoch in range(4):
    fit()
    model.requires_grad_(False)
    search()
    for name, p in model.named_parameters():
        if epoch > 1 or not name.startswith("encoder"):
            p.requires_grad_(True)
""",
    "a line that lets go by the epoch, without freezing first": SET_UP
    + """\
def set_up(epoch):
    for name, p in model.named_parameters():
        if epoch > 1 or not name.startswith("encoder"):
            p.requires_grad_(True)


for epoch in range(4):
    set_up(epoch)
    fit()
    if epoch == 1:
        model.requires_grad_(False)
        search()
""",
    "frozen again at once": SAMPLE.replace(MARK, "")
    + SET_UP
    + """\
for _ in range(3):
    fit()
    sample()
    model.encoder.requires_grad_(False)
""",
    "set up by a line that is asked for each stage": OPT
    + """\
for names in (["body"], ["encoder", "body"]):
    switch(model, False)
    print(sum(p.numel() for p in model.parameters() if p.requires_grad))
    for name in names:
        switch(getattr(model, name), True)
    fit()
""",
    "a teacher that is moved by hand": QUIET
    + """\
opt = torch.optim.Adam(model.parameters(), 0.01)
teacher = Model().requires_grad_(False)
for _ in range(3):
    fit()
    teacher.requires_grad_(False)
    model.requires_grad_(False)
    search()
    model.requires_grad_(True)
    with torch.no_grad():
        for ours, theirs in zip(model.parameters(), teacher.parameters()):
            theirs.lerp_(ours, 0.1)
""",
    "frozen and let go with nothing in between": SET_UP
    + """\
fit()
model.requires_grad_(False)
model.requires_grad_(True)
fit()
""",
    "no optimizer holds it": QUIET
    + """\
model.encoder.requires_grad_(False)
opt = torch.optim.Adam([*model.body.parameters(), *model.head.parameters()], 0.01)
for _ in range(3):
    fit()
    sample()
""",
    "no step comes after it": QUIET
    + SET_UP
    + """\
fit()
sample()
""",
    "a discriminator that trains in turn": OPT
    + """\
generator = nn.Linear(2, 4)
other = torch.optim.Adam(generator.parameters(), 0.01)
for _ in range(3):
    for p in model.parameters():
        p.requires_grad = True
    fit(2)
    for p in model.parameters():
        p.requires_grad = False
    for _ in range(2):
        other.zero_grad()
        model(generator(torch.randn(8, 2))).mean().backward()
        other.step()
""",
    "a discriminator that waits for the generator": """\
generator = nn.Linear(2, 4)
model.requires_grad_(False)
"""
    + OPT
    + """\
other = torch.optim.Adam(generator.parameters(), 0.01)
for epoch in range(4):
    for p in model.parameters():
        p.requires_grad = False
    other.zero_grad()
    model(generator(torch.randn(8, 2))).mean().backward()
    other.step()
    for p in model.parameters():
        p.requires_grad = True
    if epoch:
        fit(1)
""",
    "a freeze inside a freeze": QUIET
    + OPT
    + """\
for _ in range(3):
    model.encoder.requires_grad_(False)
    sample()
    model.encoder.requires_grad_(True)
    fit()
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_frozen_before_is_let_go(name, tmp_path):
    recording = check_program(PROGRAM + FOUND[name], tmp_path)
    assert says(recording, "had switched off, and for")


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_let_go_was_to_be(name, tmp_path):
    recording = record_program(PROGRAM + RIGHT[name], tmp_path)
    assert recording.error is None
    assert not says(recording, "had switched off, and for")
