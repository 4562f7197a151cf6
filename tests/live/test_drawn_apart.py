"""Values drawn without a graph that never meet what they were drawn from, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

START = """\
import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn

torch.manual_seed(0)
body, out, back = nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(2, 5)
modules = nn.ModuleList([body, out, back])
opt = torch.optim.Adam(modules.parameters(), lr=1e-2)
data = torch.rand(12, 5)


def descend(*losses):
    opt.zero_grad()
    for loss in losses:
        loss.backward()
    opt.step()


def two(x):
    return out(torch.relu(body(x))).chunk(2, dim=1)


"""

FOUND = {
    "a normal distribution, one number for each sample": """\
for x in data.split(4):
    mean, log_std = two(x)
    latent = D.Normal(mean, log_std.exp())
    code = latent.sample()  #! gradient-lost body.weight (note)
    error = (back(code) - x).pow(2).sum(1)
    apart = D.kl_divergence(latent, D.Normal(0.0, 1.0)).sum(1)
    descend((error + 0.1 * apart).mean())
""",
    "dimensions that belong together, a sample that is a sum inside the library": """\
for x in data.split(4):
    mean, log_std = two(x)
    latent = D.MultivariateNormal(mean, scale_tril=torch.diag_embed(log_std.exp()))
    descend(
        F.l1_loss(back(latent.sample()), x)  #! gradient-lost body.weight (note)
        - 0.1 * latent.entropy().mean()
    )
""",
    "a distribution of which the library draws with gradients on elsewhere": """\
for x in data.split(4):
    mean, log_std = two(x)
    latent = D.Laplace(mean, log_std.exp())
    loss = F.mse_loss(back(latent.sample((3,))), x.expand(3, -1, -1))  #! gradient-lost body.weight (note)
    loss += 0.1 * D.kl_divergence(latent, D.Laplace(0.0, 1.0)).sum(1).mean()
    descend(loss)
""",
    "gates that are open or closed": """\
for x in data.split(4):
    gates = D.Bernoulli(logits=two(x)[0])
    opened = gates.sample()  #! gradient-lost body.weight (note)
    descend(F.mse_loss(back(opened), x) + 0.01 * gates.probs.mean())
""",
    "a class that becomes numbers, drawn by a function that has no gradient": """\
for x in data.split(4):
    chances = two(x)[0].softmax(1)
    drawn = torch.multinomial(chances, 1).squeeze(1)  #! gradient-lost body.weight (note)
    hot = F.one_hot(drawn, 2).float()
    descend(F.mse_loss(back(hot), x) + (chances * chances.log()).sum(1).mean())
""",
    "rates, and a loss with a pass of its own for each part": """\
for x in data.split(4):
    mean, log_std = two(x)
    rates = D.Gamma(mean.exp(), log_std.exp())
    near, far = rates.sample(), rates.entropy().mean()  #! gradient-lost body.weight (note)
    descend(F.mse_loss(back(near), x) - 0.1 * far, (two(x)[0] - 1).pow(2).mean())
""",
    "a latent state that is handed on in an object": """\
class State:
    def __init__(self, latent):
        self.latent, self.value = latent, latent.sample()  #! gradient-lost body.weight (note)

    def loss(self, x):
        return F.mse_loss(back(self.value), x), self.latent.mean.pow(2).mean()


for x in data.split(4):
    mean, log_std = two(x)
    error, size = State(D.Normal(mean, log_std.exp())).loss(x)
    descend(error + size)
""",
}

QUIET = {
    "a sample with its graph": """\
for x in data.split(4):
    mean, log_std = two(x)
    latent = D.Normal(mean, log_std.exp())
    apart = D.kl_divergence(latent, D.Normal(0.0, 1.0)).sum(1).mean()
    descend(F.mse_loss(back(latent.rsample()), x) + 0.1 * apart)
""",
    "its probability weighs what it cost": """\
for x in data.split(4):
    mean, log_std = two(x)
    latent = D.Normal(mean, log_std.exp())
    code = latent.sample()
    error = (back(code) - x).pow(2).mean(1)
    score = latent.log_prob(code).sum(1)
    descend(error.mean() + (score * error.detach()).mean() - 0.01 * latent.entropy().mean())
""",
    "an action of a policy, and what a critic makes of it": """\
for x in data.split(4):
    mean, log_std = two(x)
    policy = D.Normal(mean, log_std.exp())
    action = policy.sample()
    reward = -(action - 1).pow(2).sum(1)
    value = back(action)[:, 0]
    gain = (reward - value).detach()
    actor = -(policy.log_prob(action).sum(1) * gain).mean() - 0.01 * policy.entropy().mean()
    descend(actor + F.mse_loss(value, reward))
""",
    "the logarithm of its probability has a pass of its own": """\
for x in data.split(4):
    mean, log_std = two(x)
    policy = D.Normal(mean, log_std.exp())
    action = policy.sample()
    critic = F.mse_loss(back(action)[:, 0], action.sum(1)) - 0.01 * policy.entropy().mean()
    opt.zero_grad()
    critic.backward(retain_graph=True)
    (-policy.log_prob(action).sum(1)).mean().backward()
    opt.step()
""",
    "a rate, whose probability is linear in what was drawn": """\
for x in data.split(4):
    waits = D.Exponential(two(x)[0].exp())
    wait = waits.sample()
    error = F.mse_loss(back(wait), x) + waits.entropy().mean()
    descend(error + (waits.log_prob(wait).sum(1) * wait.sum(1)).mean())
""",
    "a class, by its place": """\
for x in data.split(4):
    policy = D.Categorical(logits=two(x)[0])
    action = policy.sample()
    reward = (action == 1).float()
    descend(-(policy.log_prob(action) * reward).mean() - 0.01 * policy.entropy().mean())
""",
    "a class that chooses a row": """\
rows = nn.Embedding(2, 2)
for x in data.split(4):
    policy = D.Categorical(logits=two(x)[0])
    descend(F.mse_loss(back(rows(policy.sample())), x) - 0.01 * policy.entropy().mean())
""",
    "one step past the other, with the probability as it was": """\
for x in data.split(4):
    with torch.no_grad():
        mean, log_std = two(x)
        policy = D.Normal(mean, log_std.exp())
        action = policy.sample()
        old = policy.log_prob(action)
    for _ in range(2):
        mean, log_std = two(x)
        now = D.Normal(mean, log_std.exp())
        ratio = (now.log_prob(action) - old).exp()
        value = F.mse_loss(back(action)[:, 0], action.sum(1))
        descend(-ratio.mean() + value - 0.01 * now.entropy().mean())
""",
    "a straight way for the gradient": """\
for x in data.split(4):
    chances = torch.sigmoid(two(x)[0])
    hard = D.Bernoulli(chances).sample()
    gates = chances + (hard - chances).detach()
    descend(F.mse_loss(back(gates), x) + 0.01 * chances.mean())
""",
    "the library's own straight way": """\
for x in data.split(4):
    gates = D.OneHotCategoricalStraightThrough(logits=two(x)[0])
    descend(F.mse_loss(back(gates.rsample()), x) - 0.01 * gates.entropy().mean())
""",
    "a chain of samples, whose energy is that of the model": """\
weight = nn.Parameter(0.1 * torch.randn(5, 2))
opt.add_param_group({"params": [weight]})
for x in data.split(4):
    seen = x
    for _ in range(2):
        hidden = D.Bernoulli(torch.sigmoid(seen @ weight)).sample()
        seen = torch.sigmoid(hidden @ weight.T)

    def energy(x):
        return -F.softplus(x @ weight).sum(1)

    descend((energy(x) - energy(seen.detach())).mean() + 0.01 * back(hidden).pow(2).mean())
""",
    "a block without gradients, around the draw": """\
for x in data.split(4):
    mean, log_std = two(x)
    latent = D.Normal(mean, log_std.exp())
    with torch.no_grad():
        code = latent.sample()
    descend(F.mse_loss(back(code), x) + 0.1 * latent.mean.pow(2).mean())
""",
    "a sample that is detached": """\
for x in data.split(4):
    mean, log_std = two(x)
    code = (mean + log_std.exp() * torch.randn_like(mean)).detach()
    descend(F.mse_loss(back(code), x) + 0.1 * mean.pow(2).mean())
""",
    "a prior that nothing trains": """\
for x in data.split(4):
    mean, log_std = two(x)
    code = D.Normal(torch.zeros(4, 2), 1.0).sample()
    descend(F.mse_loss(back(code), x) + 0.1 * mean.pow(2).mean() + log_std.pow(2).mean())
""",
    "a sample that no loss uses": """\
for x in data.split(4):
    mean, log_std = two(x)
    latent = D.Normal(mean, log_std.exp())
    print(back(latent.sample()).mean())
    descend(F.mse_loss(back(latent.rsample()), x) + latent.mean.pow(2).mean())
""",
    "a critic alone: its loss has no part of the policy": """\
critics = torch.optim.SGD(back.parameters(), lr=0.1)
for x in data.split(4):
    mean, log_std = two(x)
    policy = D.Normal(mean, log_std.exp())
    action = policy.sample()
    critics.zero_grad()
    F.mse_loss(back(action)[:, 0], action.sum(1)).backward()
    critics.step()
    descend(-policy.entropy().mean() + back(policy.rsample()).mean())
""",
    "a mask of dropout in a teacher's pass": """\
teacher = nn.Sequential(body, nn.Dropout(0.5), out)
for x in data.split(4):
    with torch.no_grad():
        target = teacher(x)
    descend(F.mse_loss(teacher(x), target) + back(two(x)[0]).pow(2).mean())
""",
    "actions that leave the tensors": """\
for x in data.split(4):
    mean, log_std = two(x)
    policy = D.Normal(mean, log_std.exp())
    action = policy.sample()
    reward = torch.tensor([float(sum(one)) for one in action.tolist()])
    critic = F.mse_loss(back(action)[:, 0], reward)
    descend(critic - 0.01 * policy.entropy().mean())
""",
    "noise and a model of it": """\
noise = nn.Parameter(torch.zeros(2))
opt.add_param_group({"params": [noise]})
for x in data.split(4):
    source = D.Normal(noise, 1.0)
    fake = source.sample((4,))
    real = x[:, :2]
    apart = F.softplus(-back(real).sum(1) + source.log_prob(real).sum(1))
    apart = apart + F.softplus(back(fake).sum(1) - source.log_prob(fake).sum(1))
    descend(apart.mean() - source.log_prob(real).mean())
""",
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_a_draw_that_teaches_nothing_is_noted(body, tmp_path):
    check_program(START + body, tmp_path)


@pytest.mark.parametrize("body", QUIET.values(), ids=QUIET)
def test_look_alikes_are_quiet(body, tmp_path):
    recording = record_program(START + body, tmp_path)
    assert recording.error is None
    found = [one.message for one in recording.findings if one.slug == "gradient-lost"]
    assert [one for one in found if "draws from" in one] == []


def test_it_says_what_to_draw_with(tmp_path):
    body = FOUND["a normal distribution, one number for each sample"]
    (one,) = [
        one
        for one in record_program(START + body, tmp_path).findings
        if one.slug == "gradient-lost"
    ]
    assert one.message.startswith(
        "`latent.sample()` at line 27 draws from `body.weight` and 3 more"
    )
    assert "only its other terms do" in one.message
    assert "latent.rsample()" in one.fix.text


PRICED = """\
price = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).requires_grad_(False)
for x in data.split(4):
    mean, log_std = two(x)
    offers = D.Independent(D.Normal(mean, log_std.exp()), 1)
    offer = offers.{draw}()
    cost = price(offer).squeeze(1)
    {loss}
"""


def test_a_term_of_each_sample_that_is_drawn_without_a_graph_is_noted(tmp_path):
    """Its probability has a way back, and what it costs has none."""
    loss = "descend((cost + 0.1 * offers.log_prob(offer)).mean())"
    recording = record_program(START + PRICED.format(draw="sample", loss=loss), tmp_path)
    found = [one for one in recording.findings if one.slug == "gradient-lost"]
    assert [(one.subject, one.severity) for one in found] == [("cost", "note")]
    assert "`offers.rsample()`" in found[0].fix.text


@pytest.mark.parametrize(
    ("draw", "loss"),
    [
        ("rsample", "descend((cost + 0.1 * offers.log_prob(offer)).mean())"),
        ("sample", "descend((cost * offers.log_prob(offer)).mean())"),
        ("sample", "descend((offers.log_prob(offer) * (cost - cost.mean())).mean())"),
    ],
)
def test_a_cost_that_is_learned_from_is_not(draw, loss, tmp_path):
    findings = record_program(START + PRICED.format(draw=draw, loss=loss), tmp_path).findings
    assert "gradient-lost" not in {one.slug for one in findings}
