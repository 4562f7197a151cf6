"""Differences of an estimate and its target that multiply another loss, with their graph or not.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

MODEL = """\
import torch
from torch import nn

actor, critic, body = nn.Linear(4, 1), nn.Linear(4, 1), nn.Linear(4, 4)
actor_opt = torch.optim.Adam(actor.parameters(), 0.01)
critic_opt = torch.optim.Adam(critic.parameters(), 0.01)


def played():
    x = torch.randn(16, 4)
    return x, x.sum(1).tanh()


"""

WITH_GRAPH = {
    "an advantage that is not detached": """\
for _ in range(5):
    x, returned = played()
    value, score = critic(x).squeeze(-1), actor(x).squeeze(-1)
    advantage = returned - value  #! gradient-misdirected critic.weight (note)
    loss = (-score * advantage).mean() + nn.functional.smooth_l1_loss(value, returned)
    actor_opt.zero_grad()
    critic_opt.zero_grad()
    loss.backward()
    actor_opt.step()
    critic_opt.step()
""",
    "a body in common, and the square of the very difference": """\
opt = torch.optim.SGD([*body.parameters(), *actor.parameters(), *critic.parameters()], 0.01)
for _ in range(5):
    x, returned = played()
    x = body(x).tanh()
    advantage = returned - critic(x).squeeze(-1)  #! gradient-misdirected critic.weight (note)
    loss = (actor(x) * advantage.unsqueeze(-1)).mean() + 0.5 * advantage.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}

RIGHT = {
    "an advantage that is detached": """\
for _ in range(5):
    x, returned = played()
    advantage = returned - critic(x).squeeze(-1)
    loss = (actor(x).squeeze(-1) * advantage.detach()).mean() + advantage.pow(2).mean()
    actor_opt.zero_grad()
    critic_opt.zero_grad()
    loss.backward()
    actor_opt.step()
    critic_opt.step()
""",
    "a pass for the actor's parameters alone": """\
for _ in range(5):
    x, returned = played()
    advantage = returned - critic(x).squeeze(-1)
    actor_opt.zero_grad()
    critic_opt.zero_grad()
    loss = (actor(x).squeeze(-1) * advantage).mean()
    loss.backward(inputs=list(actor.parameters()), retain_graph=True)
    advantage.pow(2).mean().backward()
    actor_opt.step()
    critic_opt.step()
""",
    "gradients that are cleared before the critic's own loss": """\
for _ in range(5):
    x, returned = played()
    advantage = returned - critic(x).squeeze(-1)
    actor_opt.zero_grad()
    (actor(x).squeeze(-1) * advantage).mean().backward(retain_graph=True)
    actor_opt.step()
    critic_opt.zero_grad()
    advantage.pow(2).mean().backward()
    critic_opt.step()
""",
    "a weight that has a loss of its own, and no target": """\
for _ in range(5):
    x, returned = played()
    noise = critic(x).squeeze(-1)
    loss = (torch.exp(-noise) * (actor(x).squeeze(-1) - returned).pow(2) + noise).mean()
    actor_opt.zero_grad()
    critic_opt.zero_grad()
    loss.backward()
    actor_opt.step()
    critic_opt.step()
""",
    "two factors of one estimate": """\
for _ in range(5):
    x, returned = played()
    gate, value = actor(x).squeeze(-1).sigmoid(), critic(x).squeeze(-1)
    loss = nn.functional.mse_loss(gate * value, returned)
    actor_opt.zero_grad()
    critic_opt.zero_grad()
    loss.backward()
    actor_opt.step()
    critic_opt.step()
""",
    "what an estimate lacks, which a second one is to add": """\
for _ in range(5):
    x, returned = played()
    lacks = returned - critic(x).squeeze(-1)
    loss = lacks.pow(2).mean() + (lacks - actor(x).squeeze(-1)).pow(2).mean()
    actor_opt.zero_grad()
    critic_opt.zero_grad()
    loss.backward()
    actor_opt.step()
    critic_opt.step()
""",
}


@pytest.mark.parametrize("text", WITH_GRAPH.values(), ids=WITH_GRAPH)
def test_a_difference_that_weighs_with_its_graph_is_told(text, tmp_path):
    check_program(MODEL + text, tmp_path)


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_weights_without_a_graph_or_with_another_meaning_are_not(text, tmp_path):
    recording = check_program(MODEL + text, tmp_path)
    assert not [one for one in recording.findings if one.slug == "gradient-misdirected"]
