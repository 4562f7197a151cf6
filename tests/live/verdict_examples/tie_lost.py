"""Further examples of `tie-lost`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "Gradients in one flat buffer, and zero_grad() that sets `.grad` to None",
        """import torch
from torch import nn

model = nn.Linear(3, 2)
buffer = torch.zeros(8)
model.weight.grad = buffer[:6].view(2, 3)
model.bias.grad = buffer[6:]
for _ in range(3):
    model.zero_grad()
    model(torch.ones(1, 3)).square().sum().backward()
    print(buffer.norm())
""",
        (Expected("tie-lost", "model.weight", 9),),
    ),
    Example(
        "Two copies of what two modules shared",
        """import copy
import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x):
        return self.other(self.one(x))


model = Pair(nn.Linear(3, 3), nn.Linear(3, 3))
model.other.weight = model.one.weight
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 3)).sum().backward()
opt.step()
second = Pair(copy.deepcopy(model.one), copy.deepcopy(model.other))
opt = torch.optim.SGD(second.parameters(), lr=0.1)
second(torch.ones(2, 3)).sum().backward()
opt.step()
""",
        (Expected("tie-lost", "second.other.weight", 20),),
    ),
    Example(
        "A conversion of parameters that are windows of one tensor",
        """import torch
from torch import nn

net = nn.Linear(3, 2)
flat = torch.cat([p.detach().flatten() for p in net.parameters()])
net.weight.data = flat[:6].view(2, 3)
net.bias.data = flat[6:]
net.double()
flat = flat.double()
for _ in range(2):
    loss = net(torch.ones(1, 3, dtype=torch.float64)).sum()
    grads = torch.autograd.grad(loss, list(net.parameters()))
    flat -= 0.1 * torch.cat([one.flatten() for one in grads])
""",
        (Expected("tie-lost", "net.weight", 8),),
    ),
    Example(
        "Parameters whose sizes the first call tells share no memory before it",
        """import torch
from torch import nn

model = nn.Sequential(nn.LazyConv1d(2, 1), nn.Flatten(), nn.LazyLinear(1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    loss = model(torch.ones(4, 2, 3)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    ),
)
