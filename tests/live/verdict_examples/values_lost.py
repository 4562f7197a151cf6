"""Further examples of `values-lost`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "A list as index: an update, and values from other elements",
        """import torch

total, other = torch.zeros(3), torch.arange(3.0)
total[[0, 0, 2]] += torch.tensor([1.0, 2.0, 3.0])
other[[0, 0]] = other[[1, 2]] * 2
print(total, other)
""",
        (Expected("values-lost", "total", 4), Expected("values-lost", "other", 5)),
    ),
    Example(
        "The last of several values",
        """import torch

latest = torch.zeros(3)
index = torch.tensor([0, 0, 2])
latest[index] = torch.tensor([1.0, 2.0, 3.0])
print(latest)
""",
        (Expected("values-lost", "latest", 5),),
    ),
    Example(
        "A parameter's new values that are bound to the loop's variable",
        """import torch

w, b = torch.ones(3, requires_grad=True), torch.zeros(1, requires_grad=True)
for _ in range(3):
    ((w * 2 + b) ** 2).sum().backward()
    with torch.no_grad():
        for p in (w, b):
            p = p - 0.1 * p.grad
print(w)
""",
        (Expected("values-lost", "p", 8),),
    ),
    Example(
        "Weights written into the dict that a call makes",
        """import torch
from torch import nn

net = nn.Linear(3, 2)
for name, value in {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}.items():
    net.state_dict()[name] = value
print(net(torch.ones(1, 3)))
""",
        (Expected("values-lost", "net.state_dict()", 6),),
    ),
    Example(
        "A network that is to follow another, and loads its own state",
        """import copy
import torch

net = torch.nn.Linear(3, 1)
target = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    x = torch.rand(4, 3)
    opt.zero_grad()
    (net(x) - target(x).detach() - 1).pow(2).mean().backward()
    opt.step()
    target.load_state_dict(target.state_dict())
""",
        (Expected("values-lost", "target.weight", 12),),
    ),
    Example(
        "A state changed in place before it is loaded, and one entry of another network",
        """import copy
import torch

net = torch.nn.Linear(3, 1)
target = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    x = torch.rand(4, 3)
    opt.zero_grad()
    (net(x) - target(x).detach() - 1).pow(2).mean().backward()
    opt.step()
    state = target.state_dict()
    state["weight"].lerp_(net.weight.detach(), 0.1)
    target.load_state_dict(state)
    target.load_state_dict({**target.state_dict(), "bias": net.bias})
""",
    ),
    Example(
        "Weights given to a module by the names that a part of it has",
        """import torch

net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
sampled = {name: one * 2 for name, one in net[1].named_parameters()}
print(torch.func.functional_call(net, sampled, torch.ones(2, 3)))
""",
        (Expected("values-lost", "sampled['weight']", 5),),
    ),
    Example(
        "A loop's variable that is read, kept or written in place",
        """import torch

kept, w = [], torch.ones(3, requires_grad=True)
for x in (torch.ones(3), torch.zeros(3)):
    x = x * 2
    kept.append(x)
for x in (torch.ones(3), torch.zeros(3)):
    x = x + 1
    print(x)
with torch.no_grad():
    for p in (w, torch.ones(3)):
        p = p.mul_(0.5)
        p = p.detach()
""",
    ),
    Example(
        "Each element once, one value for all, and sums that are meant as such",
        """import torch

total, seen = torch.zeros(3), torch.zeros(3)
values = torch.tensor([1.0, 2.0, 3.0])
total[torch.tensor([2, 0, 1])] += values
total[torch.tensor([0, 0, 2])] = 1.0
seen[torch.tensor([0, 0, 2])] = torch.ones(3)
total.index_add_(0, torch.tensor([0, 0, 2]), values)
total.index_put_((torch.tensor([0, 0, 2]),), values, accumulate=True)
total.scatter_(0, torch.tensor([[2, 1, 0]])[0], values)
grid = torch.zeros(2, 3, 3)
grid[0, :, torch.tensor([1, 0, 2])] = torch.arange(9.0).view(3, 3)
""",
    ),
)
