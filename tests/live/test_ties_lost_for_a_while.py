"""A tied parameter that one of its places gives up for a while, and puts back.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
import torch
from torch import nn

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Embedding(5, 3), nn.Linear(3, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.mix(self.embed(ids)))

model = Tied()
ids = torch.tensor([0, 1])
opt = torch.optim.SGD(model.parameters(), lr=0.1)

def train():
    opt.zero_grad()
    model(ids).sum().backward()
    opt.step()
"""

SWAPPED = """
average = {
    name: nn.Parameter(p.detach().clone(), requires_grad=False)
    for name, p in model.named_parameters(ALL)
}

def swap():
    for name in average:
        owner, _, key = name.rpartition(".")
        module = model.get_submodule(owner)
        live = getattr(module, key)
        setattr(module, key, average[name])  #MARK
        average[name] = live

for _ in range(3):
    train()
    swap()
    READ
    swap()
"""

ONE = """
noisy = nn.Parameter(model.head.weight.detach() + 0.1, requires_grad=False)

for _ in range(3):
    train()
    kept = model.head.weight
    model.head.weight = noisy  #MARK
    print(model(ids).sum())
    model.head.weight = kept
"""

RUN = "print(model(ids).sum())"

LOST = {
    "an average that takes the place of what is listed once": SWAPPED.replace("ALL", "")
    .replace("READ", RUN)
    .replace("#MARK", "#! tie-lost model.head.weight"),
    "an average of each place": SWAPPED.replace("ALL", "remove_duplicate=False").replace(
        "READ", RUN
    ),
    "nothing is computed before all is put back": SWAPPED.replace("ALL", "").replace(
        "READ", "print(len(average))"
    ),
    "only the new values are read": SWAPPED.replace("ALL", "").replace(
        "READ", "print(model.embed(ids).sum())"
    ),
    "old and new compared": SWAPPED.replace("ALL", "").replace(
        "READ", "print((model.embed.weight - model.head.weight).abs().max())"
    ),
    "values written into the one parameter": SWAPPED.replace("ALL", "")
    .replace("READ", RUN)
    .replace("live = getattr(module, key)", "live = getattr(module, key).data")
    .replace("setattr(module, key, average[name])", "getattr(module, key).data = average[name]"),
    "statistics that begin as one and go on apart": """
class Norm(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.register_buffer("mean", start)

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean

start = torch.zeros(3)
both = nn.ModuleList([Norm(start), Norm(start)])
for _ in range(4):
    print(sum(norm(torch.randn(4, 3)).sum() for norm in both))
""",
    "one parameter replaced by itself": ONE.replace("#MARK", "#! tie-lost model.embed.weight (note)"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_a_tie_that_is_lost_for_a_while(name, tmp_path):
    check_program(HEAD + LOST[name], tmp_path)
