"""Q-learning: a replay buffer filled from an environment's own array, and a target network."""

import copy
import random
from collections import deque

import numpy as np
import torch
from torch import nn


class Walk:
    def __init__(self):
        self.position = np.zeros(2, dtype=np.float32)

    def step(self, action):
        self.position += 1.0 if action else -0.5
        return self.position, float(-abs(self.position[0]))


def main():
    random.seed(0)
    torch.manual_seed(0)
    env, memory = Walk(), deque(maxlen=50)
    policy = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    target = copy.deepcopy(policy)
    opt = torch.optim.SGD(policy.parameters(), lr=0.01)
    state = env.position.copy()
    for step in range(12):
        action = step % 2
        position, reward = env.step(action)
        after = position.copy()
        memory.append((state, action, reward, after))
        state = after
        batch = random.sample(list(memory), min(4, len(memory)))
        states = torch.tensor(np.stack([one[0] for one in batch]))
        actions = torch.tensor([one[1] for one in batch])
        rewards = torch.tensor([one[2] for one in batch])
        nexts = torch.tensor(np.stack([one[3] for one in batch]))
        with torch.no_grad():
            goal = rewards + 0.9 * target(nexts).max(1).values
        value = policy(states).gather(1, actions[:, None])[:, 0]
        loss = (value - goal).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 4 == 3:
            target.load_state_dict(policy.state_dict())
    print(np.stack([one[3] for one in memory]).sum(), loss.item())


main()
