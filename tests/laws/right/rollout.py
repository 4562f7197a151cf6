"""A rollout through a preallocated observation: each one that is kept is a copy."""

import torch


class Env:
    def __init__(self, n):
        self.observation = torch.zeros(n)

    def reset(self):
        self.observation.zero_()
        return self.observation

    def step(self, k):
        self.observation.add_(k)
        return self.observation


def rollout(env, steps):
    observations, deltas = [], []
    last = env.reset().clone()
    for k in range(steps):
        now = env.step(k)
        observations.append(now.clone())
        deltas.append(now - last)
        last = now.clone()
    return torch.stack(observations), torch.stack(deltas)


env = Env(3)
seen, moved = rollout(env, 5)
again, _ = rollout(env, 3)
print(seen.sum(1).tolist(), moved.sum(1).tolist(), again.sum().item())
