"""Further examples of `mode-kept`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "Statistics that are held still once, before training mode is switched on",
        """import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model[1].eval()
for epoch in range(3):
    model.train()
    opt.zero_grad()
    model(torch.rand(4, 3)).pow(2).mean().backward()
    opt.step()
""",
        (Expected("mode-kept", "model.1.running_mean", 6),),
    ),
    Example(
        "Training mode is switched on in each epoch",
        """import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    model.train()
    for _ in range(2):
        opt.zero_grad()
        model(torch.rand(4, 3)).pow(2).mean().backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        print(model(torch.rand(4, 3)).mean())
""",
    ),
)
