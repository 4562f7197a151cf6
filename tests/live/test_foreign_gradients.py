"""Two losses of two optimizers, of which one goes through what the other trains; and look-alikes."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
actor, critic = nn.Linear(3, 2), nn.Linear(2, 1)
log_alpha = torch.zeros((), requires_grad=True)
actor_opt = torch.optim.Adam(actor.parameters(), 1e-2)
critic_opt = torch.optim.Adam(critic.parameters(), 1e-2)
alpha_opt = torch.optim.Adam([log_alpha], 1e-2)

for _ in range(4):
    obs = torch.randn(8, 3)
    with torch.no_grad():
        act = actor(obs).tanh()
    CLEARED
    (critic(act) - 1).square().mean().backward()
    critic_opt.step()

    act = actor(obs).tanh()
    log_pi = -act.square().sum(-1)
    actor_loss = (WEIGHT * log_pi - critic(act).squeeze(-1)).mean()
    alpha_loss = -(log_alpha.exp() * (ENTROPY - 1)).mean()
    actor_opt.zero_grad()
    alpha_opt.zero_grad()
    actor_loss.backward(retain_graph=True)
    alpha_loss.backward()
    actor_opt.step()
    alpha_opt.step()
"""
MEANT = {"CLEARED": "critic_opt.zero_grad()", "WEIGHT": "log_alpha.exp().detach()",
         "ENTROPY": "log_pi"}  # fmt: skip


def _told(folder, **how):
    text = PROGRAM
    for place, code in {**MEANT, **how}.items():
        text = text.replace(place, code)
    found = record_program(text, folder).findings
    return [one for one in found if one.slug == "gradient-accumulated" and "sum" in one.message]


def test_a_loss_that_goes_through_what_the_other_trains(tmp_path):
    (found,) = _told(tmp_path)
    assert (found.site.line, found.severity) == (26, "note")
    assert "`actor.weight`" in found.message
    assert {25, 27, 28} <= {one.site.line for one in found.evidence}


@pytest.mark.parametrize("how", [
    {"ENTROPY": "log_pi.detach()"},  # each part has a loss of its own
    {"WEIGHT": "log_alpha.exp()"},  # nothing says that each is to have one
])  # fmt: skip
def test_of_losses_that_are_meant_for_both_nothing_is_said(how, tmp_path):
    assert not _told(tmp_path, **how)
