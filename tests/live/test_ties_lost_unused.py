"""Tied weights that come apart before anything was computed with them, whatever takes them apart.

A comment ``#!`` marks the line that the warning must name; the evidence names the line that tied.
"""

import pytest

from programs import record_program

HEAD = """\
import copy
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)

class Speaker(nn.Module):
    def __init__(self, words=9, width=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.out = nn.Linear(width, words, bias=False)
        self.out.weight = self.words.weight  # tied

    def forward(self, ids):
        return self.out(self.words(ids))

class Onto(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return functional.linear(x, self.weight)

class Given(nn.Module):
    def __init__(self, words=9, width=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.out = Onto(self.words.weight)

    forward = Speaker.forward

def train(model):
    ids = torch.arange(9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(model(ids), ids).backward()
        optimizer.step()

"""

PROGRAMS = {
    "memory given to what was made without": """\
with torch.device("meta"):
    model = Speaker()
model.to_empty(device="cpu")  #!
for one in model.parameters():
    nn.init.normal_(one, std=0.1)
train(model)
""",
    "a Parameter made anew": """\
model = Speaker()
model.out.weight = nn.Parameter(model.out.weight.detach().clone())  #!
train(model)
""",
    "a Parameter made anew, of two that were given it": """\
model = Given()
model.words.weight = nn.Parameter(torch.randn(9, 4))  #!
train(model)
""",
    "a state that is assigned": """\
model = Given()
state = {name: value.clone() for name, value in model.state_dict().items()}
model.load_state_dict(state, assign=True)  #!
train(model)
""",
    "a conversion that makes new Parameters": """\
torch.__future__.set_overwrite_module_params_on_conversion(True)
model = Given()
model.double()  #!
torch.__future__.set_overwrite_module_params_on_conversion(False)
train(model)
""",
    "one half converted by hand": """\
def halved(module):
    for name, value in list(module.named_parameters(recurse=False)):
        setattr(module, name, nn.Parameter(value.detach().double()))  #!
    for part in module.children():
        halved(part)
model = Speaker()
halved(model)
train(model)
""",
    "tied again": """\
with torch.device("meta"):
    model = Speaker()
model.to_empty(device="cpu")
model.out.weight = model.words.weight
nn.init.normal_(model.out.weight, std=0.1)
train(model)
""",
    "a conversion that keeps the Parameters": """\
model = Given().double()
train(model)
""",
    "a copy of all": """\
model = Speaker()
other = copy.deepcopy(model)
other.load_state_dict(model.state_dict())
train(model)
train(other)
""",
    "two places that change what they show": """\
class Two(Speaker):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 9, bias=False)
model = Two()
model.out.weight, model.words.weight = model.words.weight, model.out.weight
train(model)
""",
    "the other place is given the old one afterwards": """\
class Two(Speaker):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 9, bias=False)
model = Two()
old, new = model.words.weight, nn.Parameter(torch.randn(9, 4))
model.words.weight = new
model.out = Onto(old)
train(model)
""",
    "one that is used no more": """\
model = Speaker()
model.out.weight = nn.Parameter(torch.randn(9, 4))
model.forward = lambda ids: model.words(ids) @ model.words.weight.t()
train(model)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ties_that_come_apart(name, tmp_path):
    text = HEAD + PROGRAMS[name]
    found = [one for one in record_program(text, tmp_path).findings if one.slug == "tie-lost"]
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    assert [(one.site.line, one.severity) for one in found] == [(n, "warning") for n in lines]
    tied = 1 + text.splitlines().index("        self.out.weight = self.words.weight  # tied")
    for one in found if "Speaker()\n" in PROGRAMS[name] else ():
        assert (tied, "tied here") in [(each.site.line, each.text) for each in one.evidence]
