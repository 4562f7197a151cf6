"""identity = x or identity = x.clone()? Three residual blocks.

    tether run examples/residual_connection.py

`Careful` clones although nothing ever writes x: the clone is needless. `InPlace` adds into its own
fresh result, which is right without a clone. `Rewriting` writes x itself while `identity` is still
to be read: there the clone is needed.
"""

import torch
from torch import nn


class Careful(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x):
        identity = x.clone()
        out = torch.relu(self.conv(x))
        return out + identity


class InPlace(Careful):
    def forward(self, x):
        identity = x
        out = self.conv(x)
        out += identity
        return torch.relu(out)


class Rewriting(Careful):
    def forward(self, x):
        x = x * 1.0
        identity = x.clone()
        x += self.conv(identity)
        return x - identity


torch.manual_seed(0)
blocks = nn.Sequential(Careful(16), InPlace(16), Rewriting(16))
optimizer = torch.optim.SGD(blocks.parameters(), lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    loss = blocks(torch.randn(4, 16, 64)).pow(2).mean()
    loss.backward()
    optimizer.step()
print("ran", step + 1, "steps")
