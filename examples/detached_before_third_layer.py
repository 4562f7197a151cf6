"""Three linear layers, and a detach before the third: which weights get no gradient?

    tether run examples/detached_before_third_layer.py
"""

import torch
from torch import nn


class TestModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(4, 8)
        self.layer2 = nn.Linear(8, 8)
        self.layer3 = nn.Linear(8, 1)

    def forward(self, x):
        out1 = torch.relu(self.layer1(x))
        out2 = torch.relu(self.layer2(out1))
        return self.layer3(out2.detach())


torch.manual_seed(0)
model = TestModel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(16, 4), torch.randn(16, 1)

for step in range(3):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()

print("layer1.weight.grad is", model.layer1.weight.grad)
