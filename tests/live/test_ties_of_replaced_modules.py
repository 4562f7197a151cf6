"""A tied parameter whose module is replaced by another module.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

HEAD = """\
import copy
import torch
from torch import nn

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Embedding(5, 3), nn.Sequential(nn.Linear(3, 3))
        self.head = nn.Linear(3, 5, bias=False)
        self.tie()

    def tie(self):
        self.head.weight = self.embed.weight

    def resize(self, size):
        old = self.embed
        new = nn.Embedding(size, 3)
        with torch.no_grad():
            new.weight[:5] = old.weight
        self.embed = new  #MARK

    def forward(self, ids):
        return self.head(self.mix(self.embed(ids)))

def train(model):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        opt.zero_grad()
        model(torch.tensor([0, 1])).sum().backward()
        opt.step()

model = Tied()
"""

RESIZED = HEAD.replace("#MARK", "#! tie-lost model.embed.weight")

REPLACED = {
    "more rows, before the training": RESIZED + "model.resize(7)\ntrain(model)",
    "more rows, after a training": RESIZED + "train(model)\nmodel.resize(7)\ntrain(model)",
    "each of both places with a new one": HEAD
    + """
def with_rows(layer, size):
    layer.weight.data[:5] = model.embed.weight.data
    return layer
embed, head = with_rows(nn.Embedding(7, 3), 7), with_rows(nn.Linear(3, 7), 7)
model.embed = embed  #! tie-lost model.embed.weight
model.head = head
train(model)
""",
    "in a model that a function has": HEAD.replace("\nmodel = Tied()", "")
    + """
def main():
    model = Tied()
    model.embed = nn.Embedding.from_pretrained(  #! tie-lost model.embed.weight (note)
        torch.randn(5, 3), freeze=False
    )
    train(model)

main()
""",
    "a copy of the module": HEAD
    + """
train(model)
model.embed = copy.deepcopy(model.embed)  #! tie-lost model.embed.weight
train(model)
""",
    "new values of the same shape": HEAD
    + """
train(model)
model.embed = nn.Embedding(5, 3)  #! tie-lost model.embed.weight (note)
train(model)
""",
    "tied again": HEAD
    + """
model.resize(7)
model.head = nn.Linear(3, 7, bias=False)
model.tie()
train(model)
""",
    "a head for another task": HEAD
    + """
train(model)
model.head = nn.Linear(3, 2, bias=False)
train(model)
""",
    "put back before it is used": HEAD
    + """
train(model)
kept = model.embed
model.resize(7)
model.embed = kept
train(model)
""",
    "a module that was tied to nothing": HEAD
    + """
train(model)
model.mix = copy.deepcopy(model.mix)
train(model)
""",
    "another model with one module of the first": HEAD
    + """
train(model)
first = model
model = Tied()
model.embed = copy.deepcopy(first.embed)
model.tie()
train(model)
print(first(torch.tensor([0])))
""",
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_tied_module_that_is_replaced(name, tmp_path):
    check_program(REPLACED[name], tmp_path)


ROUND = (
    HEAD
    + """
class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.embed, self.mix = inner.embed, nn.Linear(3, 3)
        self.head = HEAD

    def forward(self, ids):
        return self.head(self.mix(self.embed(ids)))

train(model)
around = Around(model)
train(around)
"""
)

AROUND = {
    "the values of the head": """nn.Linear(3, 5, bias=False)
        self.head.weight.data.copy_(inner.head.weight.data)  #! tie-lost around.head.weight (note)""",
    "the head": "inner.head",
    "a head of its own": "nn.Linear(3, 5, bias=False)",
}


@pytest.mark.parametrize("name", AROUND)
def test_a_model_around_what_is_tied(name, tmp_path):
    recording = check_program(ROUND.replace("= HEAD", f"= {AROUND[name]}"), tmp_path)
    assert len(recording.findings) == ROUND.replace("HEAD", AROUND[name]).count("#!")


TAKEN_APART = {
    "model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)": (
        "load_state_dict without assign=True"
    ),
    "model.to('meta').to_empty(device='cpu')": "a Parameter for each place",
    "model[1].weight = nn.Parameter(torch.zeros(3, 3))": "",
}


@pytest.mark.parametrize("line", TAKEN_APART)
def test_the_repair_fits_what_took_the_tie_apart(line, tmp_path):
    text = f"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
model[1].weight = model[0].weight
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 3)).sum().backward()
{line}
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
"""
    recording = record_program(text, tmp_path)
    (found,) = [one for one in recording.findings if one.slug == "tie-lost"]
    known = {one for one in TAKEN_APART.values() if one and one in found.fix.text}
    assert known == {TAKEN_APART[line]} - {""}
