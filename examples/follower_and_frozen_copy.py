"""Two networks read the weights of a third: one follows them, one stays behind.

    tether run examples/follower_and_frozen_copy.py

`follower` shares memory with the trained weights, so every step shows in it; `frozen` is a copy as
of the line that made it. Both are used as targets on purpose, and tether stays quiet about that:
`tether why follower` and `tether why frozen` tell them apart.
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1, bias=False)
follower = net.weight.detach()
frozen = net.weight.detach().clone()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

for step in range(3):
    x = torch.randn(8, 3)
    optimizer.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    optimizer.step()

print("follower moved with it:", torch.equal(follower, net.weight))
print("frozen stayed behind:  ", not torch.equal(frozen, net.weight))
