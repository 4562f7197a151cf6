"""Early stopping: the best weights and the optimizer's state of that moment are kept and restored."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randn(32, 1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def loss_of(net):
    return (net(x) - y).pow(2).mean()


def train(steps):
    best, kept, state = float("inf"), None, None
    for _ in range(steps):
        opt.zero_grad()
        loss = loss_of(model)
        loss.backward()
        opt.step()
        if loss.item() < best:
            best = loss.item()
            kept = copy.deepcopy(model.state_dict())
            state = copy.deepcopy(opt.state_dict())
    return best, kept, state


best, kept, state = train(8)
model.load_state_dict(kept)
opt.load_state_dict(state)
print(round(best, 4), round(loss_of(model).item(), 4))
