"""A training loop that runs to its end, and three things in it that went wrong.

    tether run examples/three_problems_in_a_training_loop.py
"""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.body = nn.Linear(32, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        h = torch.relu(self.embed(x))
        h = h.detach()
        return self.head(torch.relu(self.body(h)))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
losses = []
best, best_loss = None, float("inf")
for epoch in range(12):
    x = torch.randn(64, 8)
    loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)
    if loss < best_loss:
        best, best_loss = net.state_dict(), loss.item()
net.load_state_dict(best)
print(len(losses), "losses, the best", round(best_loss, 3))
