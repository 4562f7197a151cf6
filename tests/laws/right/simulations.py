"""Bodies that move: positions of each time are kept, and a step may be taken back."""

from dataclasses import dataclass, replace

import torch


@dataclass
class State:
    position: torch.Tensor
    speed: torch.Tensor

    def copy(self):
        return State(self.position.clone(), self.speed.clone())


def step(state, dt):
    state.speed -= dt * state.position
    state.position += dt * state.speed
    return state


def energy(state):
    return 0.5 * (state.position.pow(2) + state.speed.pow(2)).sum().item()


state = State(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
start = replace(state, position=state.position.clone(), speed=state.speed.clone())
track, saved = [], []
for k in range(6):
    before = state.copy()
    step(state, 0.1)
    if energy(state) > 1.2:
        state = before
    track.append(state.position.clone())
    saved.append(state.copy())
print(torch.stack(track).tolist(), energy(start), [round(energy(one), 3) for one in saved])
