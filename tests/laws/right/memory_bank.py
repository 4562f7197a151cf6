"""A queue of keys, a bank of rows, and centroids updated in place."""

import torch
from torch import nn

torch.manual_seed(0)


class Contrast(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.query, self.key = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.key.load_state_dict(self.query.state_dict())
        for p in self.key.parameters():
            p.requires_grad_(False)
        self.register_buffer("queue", torch.randn(size, dim))
        self.at = 0

    @torch.no_grad()
    def follow(self):
        for k, q in zip(self.key.parameters(), self.query.parameters()):
            k.mul_(0.9).add_(q, alpha=0.1)

    def forward(self, x):
        q = self.query(x)
        with torch.no_grad():
            self.follow()
            k = self.key(x)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().T], 1)
        self.queue[self.at : self.at + len(k)] = k
        self.at = (self.at + len(k)) % len(self.queue)
        return nn.functional.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))


model = Contrast(4, 8)
opt = torch.optim.SGD(model.query.parameters(), lr=0.1)
losses = []
for _ in range(5):
    opt.zero_grad()
    loss = model(torch.randn(2, 4))
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses, model.queue.sum().item())


def means(points, k, steps):
    centers = points[:k].clone()
    path = []
    for _ in range(steps):
        nearest = torch.cdist(points, centers).argmin(1)
        old = centers.clone()
        for j in range(k):
            if (nearest == j).any():
                centers[j] = points[nearest == j].mean(0)
        path.append((centers - old).norm().item())
    return centers, path


points = torch.randn(12, 2)
print(means(points, 3, 3), points.sum().item())
