"""A Metropolis chain updated in place, with its samples kept, and a particle filter."""

import torch

torch.manual_seed(0)


def energy(state):
    return 0.5 * state.pow(2).sum()


def sample(steps):
    state, samples, accepted = torch.zeros(3), [], 0
    for _ in range(steps):
        proposal = state.clone()
        proposal += 0.5 * torch.randn(3)
        if torch.rand(()) < torch.exp(energy(state) - energy(proposal)):
            state.copy_(proposal)
            accepted += 1
        samples.append(state.clone())
    return torch.stack(samples), accepted


def filtered(steps):
    particles = torch.randn(16, 2)
    means = []
    for k in range(steps):
        particles += 0.1 * torch.randn(16, 2)
        weights = torch.softmax(-(particles - k / 4).pow(2).sum(1), 0)
        means.append((weights[:, None] * particles).sum(0))
        old = particles.clone()
        particles[:] = old[torch.multinomial(weights, 16, replacement=True)]
    return torch.stack(means), particles.mean(0)


samples, accepted = sample(12)
print(accepted, samples.std(0).tolist())
print(filtered(4))
