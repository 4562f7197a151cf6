"""Policy gradients: the log-probabilities keep their graph, the rewards and baselines do not."""

import torch
from torch import nn

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(2, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return self.actor(x).log_softmax(-1), self.critic(x)


policy = Policy()
opt = torch.optim.Adam(policy.parameters(), lr=0.01)
baseline, returns = 0.0, []
for _ in range(4):
    position, logs, values, rewards = torch.zeros(2), [], [], []
    for _ in range(5):
        chances, value = policy(position.clone())
        action = torch.multinomial(chances.detach().exp(), 1).item()
        position[action] += 1.0
        logs.append(chances[action])
        values.append(value[0])
        rewards.append(float(position[0] - position[1]))
    total = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    values = torch.stack(values)
    advantage = total - values.detach()
    loss = -(torch.stack(logs) * advantage).sum() + (values - total).pow(2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    baseline = 0.9 * baseline + 0.1 * total[0].item()
    returns.append(total[0].item())
print(returns, baseline, loss.item())
