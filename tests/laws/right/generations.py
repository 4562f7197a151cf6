"""A diffusion chain, a GAN's fakes, and the frames that are kept of them."""

import torch
from torch import nn

torch.manual_seed(0)
denoise = nn.Linear(4, 4)


@torch.no_grad()
def sampled(steps):
    x = torch.randn(2, 4)
    frames = [x.clone()]
    for k in range(steps):
        x -= 0.1 * denoise(x)
        x += 0.05 * torch.randn_like(x)
        frames.append(x.clone())
    return torch.stack(frames)


make, judge = nn.Linear(2, 3), nn.Linear(3, 1)
first = torch.optim.SGD(make.parameters(), lr=0.1)
second = torch.optim.SGD(judge.parameters(), lr=0.1)
losses = []
for _ in range(4):
    real, fake = torch.randn(5, 3), make(torch.randn(5, 2))
    second.zero_grad()
    loss = judge(fake.detach()).mean() - judge(real).mean()
    loss.backward()
    second.step()
    first.zero_grad()
    cost = -judge(fake).mean()
    cost.backward()
    first.step()
    losses.append((loss.item(), cost.item()))
print(sampled(3).sum((1, 2)).tolist(), losses)
