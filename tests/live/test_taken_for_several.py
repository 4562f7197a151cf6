"""One model that a program takes for several: clients that share it, and are averaged.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)

class Client:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  #MADE

    def fit(self):
        self.optimizer.zero_grad()
        self.model(torch.randn(4, 3)).pow(2).mean().backward()
        self.optimizer.step()

model = nn.Linear(3, 2, bias=False)
"""

FEDERATED = """
clients = [Client(GIVEN) for _ in range(3)]
for _ in range(3):
    for client in clients:
        client.fit()
    weights = torch.stack([one.model.weight.detach() for one in clients])  #JOINED
    with torch.no_grad():
        for client in clients:
            client.model.weight.copy_(weights.mean(0))
"""

SEVERAL = {
    "one model for all": FEDERATED.replace("GIVEN", "model"),
    "a copy for each": FEDERATED.replace("GIVEN", "copy.deepcopy(model)"),
    "a token repeated for each row": """
client = Client(model)
for _ in range(3):
    client.fit()
    print(torch.stack([model.weight.detach() for _ in range(4)]).shape)
""",
    "an optimizer for each round": """
for _ in range(3):
    client = Client(model)
    client.fit()
    client.fit()
""",
    "optimizers of different layers": """
clients = [Client(one) for one in (nn.Linear(3, 2), nn.Linear(3, 2))]
for _ in range(3):
    for client in clients:
        client.fit()
print(torch.stack([one.model.weight.detach() for one in clients]).std(0))
""",
    "states that are kept as copies": """
client, states = Client(model), []
for _ in range(3):
    client.fit()
    states.append(copy.deepcopy(model.state_dict()))
print(torch.stack([one["weight"] for one in states]).mean(0))
""",
}


@pytest.mark.parametrize("name", SEVERAL)
def test_one_model_for_several(name, tmp_path):
    shared = name == "one model for all"
    text = (HEAD + SEVERAL[name]).replace(
        "#JOINED", "#! alias-write model.weight" if shared else ""
    )
    recording = check_program(text.replace("#MADE", ""), tmp_path)
    lines = [one.site.line for one in recording.findings if one.severity == "note"]
    assert (10 in lines) == shared
