"""Values that go to NumPy and come from it while both sides go on writing."""

import numpy as np
import torch

torch.manual_seed(0)
state = torch.zeros(3)
track = []
for k in range(4):
    state += k
    track.append(state.numpy().copy())
print(np.stack(track).sum(1))

buffer = np.zeros(4, dtype=np.float32)
batches = []
for k in range(3):
    buffer[:] = np.arange(4) * k
    batches.append(torch.tensor(buffer))
print(torch.stack(batches).sum(1).tolist())

weights = torch.nn.Parameter(torch.ones(3))
before = weights.detach().numpy().copy()
opt = torch.optim.SGD([weights], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (weights * torch.arange(3.0)).sum().backward()
    opt.step()
print(before, weights.detach().numpy() - before)

scores = torch.rand(5)
ranked = np.array(scores)
ranked.sort()
print(ranked.round(3), scores.argmax().item())
