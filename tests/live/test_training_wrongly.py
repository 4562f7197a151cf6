"""Programs that train, and by the wrong values: each with look-alikes that are right.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

CROSSED = {
    "weights of samples as a column": """\
import torch

net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)


def column(values):
    return values.unsqueeze(1)


x, y, weights = torch.randn(6, 3), torch.randn(6), column(torch.rand(6))
for _ in range(3):
    chosen = weights[torch.randperm(6)]
    errors = torch.nn.functional.smooth_l1_loss(net(x).squeeze(1), y, reduction="none")
    opt.zero_grad()
    (chosen * errors).mean().backward()  #! batch-crossed chosen
    opt.step()
""",
    "a loss that broadcasts what it compares": """\
import torch

net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
x, y = torch.randn(6, 3), torch.randn(6)
for _ in range(3):
    predicted = net(x)
    opt.zero_grad()
    torch.nn.functional.l1_loss(predicted, y).backward()  #! batch-crossed predicted
    opt.step()
""",
    "the log-density of actions without a column": """\
import torch

net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
x, actions = torch.randn(6, 3), torch.randn(6)
for _ in range(3):
    policy = torch.distributions.Normal(net(x), 1.0)
    opt.zero_grad()
    (-policy.log_prob(actions).mean()).backward()  #! batch-crossed policy.loc
    opt.step()
""",
    "an advantage over values that are detached": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD([*policy.parameters(), *critic.parameters()], 0.1)
x, returns, actions = torch.randn(6, 3), torch.randn(6), torch.randint(0, 4, (6,))
for _ in range(3):
    values = critic(x)
    chosen = torch.distributions.Categorical(logits=policy(x)).log_prob(actions)
    gain = returns - values.detach()  #! batch-crossed `values.detach()`
    print(gain.mean().item())
    opt.zero_grad()
    ((values.squeeze(1) - returns).pow(2).mean() - (gain * chosen).mean()).backward()
    opt.step()
""",
    "an advantage that is detached later, after the critic has learnt": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD([*policy.parameters(), *critic.parameters()], 0.1)
x, returns, actions = torch.randn(6, 3), torch.randn(6), torch.randint(0, 4, (6,))
for _ in range(3):
    values = critic(x)
    opt.zero_grad()
    torch.nn.functional.mse_loss(values, returns.unsqueeze(1)).backward()
    gain = returns - critic(x)  #! batch-crossed `critic(x)`
    gain = ((gain - gain.mean()) / (gain.std() + 1e-8)).detach()
    chosen = policy(x).log_softmax(1)[torch.arange(6), actions]
    (-(gain * chosen).sum()).backward()
    opt.step()
""",
    "a target of a column and a row, without gradients": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(policy.parameters(), 0.1)
x, after, paid = torch.randn(6, 3), torch.randn(6, 3), torch.randn(6)
actions = torch.randint(0, 4, (6,))
for _ in range(3):
    with torch.no_grad():
        best = 0.9 * policy(after).max(1, keepdim=True).values
        target = paid + best  #! batch-crossed best
    value = policy(x).gather(1, actions.unsqueeze(1)).squeeze(1)
    opt.zero_grad()
    torch.nn.functional.smooth_l1_loss(value, target).backward()
    opt.step()
""",
    "advantages that serve for several passes": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(policy.parameters(), 0.1)
x, returns, actions = torch.randn(6, 3), torch.randn(6), torch.randint(0, 4, (6,))
with torch.no_grad():
    gain = returns - critic(x)  #! batch-crossed `critic(x)`
    gain -= gain.mean()
    old = policy(x).log_softmax(1)[torch.arange(6), actions]
for _ in range(3):
    ratio = (policy(x).log_softmax(1)[torch.arange(6), actions] - old).exp()
    opt.zero_grad()
    (-torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()).backward()
    opt.step()
""",
    "samples weighed by a column that another net gave": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(policy.parameters(), 0.1)
x, y, known = torch.randn(6, 3), torch.randint(0, 4, (6,)), torch.rand(6)
for _ in range(3):
    trust = critic(x).sigmoid().detach()
    weight = known * trust  #! batch-crossed trust
    errors = torch.nn.functional.cross_entropy(policy(x), y, reduction="none")
    opt.zero_grad()
    (errors * weight.float()).mean().backward()
    opt.step()
""",
    "squares of the same mistake, compared with nothing and with one another": """\
import torch
import torch.nn.functional as F

critic = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(critic.parameters(), 0.1)
x = torch.randn(6, 3)
paid = (x[:, 0] * 2).unsqueeze(-1)
before = torch.zeros(6).unsqueeze(-1)
for _ in range(3):
    chosen = torch.randperm(6)
    value, returns, old = critic(x[chosen])[:, 0], paid[chosen], before[chosen]
    near = old + (value - old).clamp(-0.2, 0.2)  #! batch-crossed old
    far_off, close_by = returns - value, returns - near  #! batch-crossed returns
    plain = F.huber_loss(far_off, torch.zeros_like(far_off), reduction="none")
    clipped = F.huber_loss(close_by, torch.zeros_like(close_by), reduction="none")
    opt.zero_grad()
    torch.max(plain, clipped).mean().backward()
    opt.step()
""",
}

TOGETHER = {
    "advantages of one shape, and all gains in a table": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD([*policy.parameters(), *critic.parameters()], 0.1)
x, returns, actions = torch.randn(6, 3), torch.randn(6), torch.randint(0, 4, (6,))
for _ in range(3):
    values = critic(x)
    chosen = policy(x).log_softmax(1)[torch.arange(6), actions]
    gain = returns - values.detach().squeeze(1)
    table = returns - values.detach()
    print(table.mean().item(), table.amax(1).tolist())
    opt.zero_grad()
    (torch.nn.functional.mse_loss(values, returns.unsqueeze(1)) - (gain * chosen).mean()).backward()
    opt.step()
""",
    "as many quantiles as samples": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD([*policy.parameters(), *critic.parameters()], 0.1)
heads = torch.nn.Linear(3, 6)
opt = torch.optim.SGD(heads.parameters(), 0.1)
x, returns, levels = torch.randn(6, 3), torch.randn(6), (torch.arange(6) + 0.5) / 6
for _ in range(3):
    gap = returns.unsqueeze(1).clone() - heads(x)
    weight = (levels - (gap.detach() < 0).float()).abs()
    opt.zero_grad()
    (weight * gap.abs()).sum(1).mean().backward()
    opt.step()
""",
    "weights of all pairs, made of sums of rows and columns": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(policy.parameters(), 0.1)
near = torch.rand(6, 6)
x = torch.randn(6, 3)
for _ in range(3):
    with torch.no_grad():
        expected = near.sum(1, keepdim=True) * near.sum(0) / near.sum()
    groups = policy(x).softmax(1)
    opt.zero_grad()
    (-((near - expected) * (groups @ groups.T)).sum()).backward()
    opt.step()
""",
    "as many frequencies as times": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD([*policy.parameters(), *critic.parameters()], 0.1)
mix = torch.nn.Linear(6, 1)
opt = torch.optim.SGD(mix.parameters(), 0.1)
times, rates, y = torch.rand(6, 1), torch.arange(6.0), torch.randn(6)
for _ in range(3):
    waves = torch.sin(times * rates)
    opt.zero_grad()
    torch.nn.functional.mse_loss(mix(waves).squeeze(1), y).backward()
    opt.step()
""",
    "a column made for all pairs, and then detached": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(critic.parameters(), 0.1)
x, returns, scale = torch.randn(6, 3), torch.randn(6), torch.rand(6)
for _ in range(3):
    column = policy(x).sum(1).unsqueeze(1).detach().double()
    pairs = (returns - column).abs() * scale
    value = critic(x).squeeze(1)
    opt.zero_grad()
    (pairs * value).mean().backward()
    opt.step()
""",
    "what is added to a mean moves nothing": """\
import torch

policy, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(critic.parameters(), 0.1)
x, returns = torch.randn(6, 3), torch.randn(6)
for _ in range(3):
    value = critic(x)
    opt.zero_grad()
    ((returns - value.detach()) + value.squeeze(1).pow(2)).mean().backward()
    opt.step()
""",
    "columns with columns, and rows with rows": """\
import torch

net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
x, y = torch.randn(6, 3), torch.randn(6)
for _ in range(3):
    predicted = net(x)
    opt.zero_grad()
    ((predicted - y.unsqueeze(1)).pow(2) + (predicted.squeeze(1) - y).abs().mean()).mean().backward()
    opt.step()
""",
    "all pairs that are chosen from, ranked or weighed": """\
import torch

net, bias = torch.nn.Linear(3, 1), torch.nn.Parameter(torch.zeros(6, 1))
opt = torch.optim.SGD([*net.parameters(), bias], 0.1)
x, times = torch.randn(6, 3), torch.arange(6.0)
for _ in range(3):
    scores = net(x)
    row = scores.squeeze(1)
    before = times.unsqueeze(1) < times
    pairs = torch.nn.functional.softplus(row - scores)[before].mean()
    soft = torch.logsumexp(row + scores, dim=1).mean()
    spread = (bias * row).pow(2).mean()
    opt.zero_grad()
    (pairs + soft + spread).backward()
    opt.step()
""",
    "pairs that a square of another origin weighs": """\
import torch
import torch.nn.functional as F

scorer = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(scorer.parameters(), 0.1)
x, wanted = torch.randn(6, 3), torch.rand(6).unsqueeze(-1)
near = torch.rand(6, 6)
for _ in range(3):
    score, target = scorer(x)[:, 0], wanted[torch.arange(6)]
    gap = target - score
    errors = F.huber_loss(gap, torch.zeros_like(gap), reduction="none")
    opt.zero_grad()
    torch.min(errors, near).mean().backward()
    opt.step()
""",
}

MISDIRECTED = {
    "gradients in another order than the parameters": """\
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
weights = dict(net.named_parameters())
for _ in range(3):
    loss = net(torch.randn(4, 3)).pow(2).sum()
    gradients = torch.autograd.grad(loss, list(reversed(weights.values())))
    for weight, gradient in zip(weights.values(), gradients):
        weight.data -= 0.01 * gradient  #! gradient-misdirected net.0.weight
""",
    "set as the gradients of the parameters that were not used": """\
import torch
from torch import nn

heads = nn.ModuleList(nn.Linear(3, 1, bias=False) for _ in range(2))
opt = torch.optim.SGD(heads.parameters(), 0.1)
for turn in range(4):
    loss = heads[turn % 2](torch.ones(2, 3)).pow(2).sum()
    found = torch.autograd.grad(loss, list(heads.parameters()), allow_unused=True)
    for head, gradient in zip(heads, [one for one in found if one is not None]):
        head.weight.grad = gradient  #! gradient-misdirected heads.0.weight
    opt.step()
""",
    "a list of what has a gradient": """\
import torch
from torch import nn

heads = nn.ModuleList(nn.Linear(3, 1, bias=False) for _ in range(2))
for turn in range(4):
    for head in heads:
        head.weight.grad = None
    heads[turn % 2](torch.ones(2, 3)).pow(2).sum().backward()
    gradients = [one.grad for one in heads.parameters() if one.grad is not None]
    with torch.no_grad():
        for one, gradient in zip(heads.parameters(), gradients):
            one.add_(gradient, alpha=-0.1)  #! gradient-misdirected heads.0.weight
""",
}

DIRECTED = {
    "a step uphill before the gradient is taken": """\
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
weights = list(net.parameters())
for _ in range(3):
    gradients = torch.autograd.grad(net(torch.ones(4, 3)).pow(2).sum(), weights)
    norm = torch.stack([one.norm() for one in gradients]).norm()
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients):
            weight.add_(gradient / norm)
    again = torch.autograd.grad(net(torch.ones(4, 3)).pow(2).sum(), weights)
    with torch.no_grad():
        for weight, gradient, first in zip(weights, again, gradients):
            weight.sub_(first / norm + 0.01 * gradient)
""",
    "a server that is moved by its client's gradients": """\
import copy

import torch
from torch import nn

server = nn.Linear(3, 1)
client = copy.deepcopy(server)
for _ in range(3):
    client.zero_grad()
    client(torch.ones(2, 3)).pow(2).sum().backward()
    with torch.no_grad():
        for own, other in zip(server.parameters(), client.parameters()):
            own.sub_(0.1 * other.grad)
            other.copy_(own)
""",
    "workers that hand their gradients to the one they share": """\
import torch
from torch import nn

shared = nn.Linear(3, 1)
workers = [nn.Linear(3, 1) for _ in range(2)]
opt = torch.optim.SGD(shared.parameters(), 0.1)
for worker in (*workers, *workers):
    worker.load_state_dict(shared.state_dict())
    worker.zero_grad()
    worker(torch.ones(4, 3)).pow(2).sum().backward()
    for own, other in zip(shared.parameters(), worker.parameters()):
        own.grad = other.grad
    opt.step()
""",
    "motion and place, each moved by the other's gradient": """\
import torch

place = torch.ones(3, requires_grad=True)
motion = torch.zeros(3, requires_grad=True)
for _ in range(4):
    energy = (place**2 + motion**2).sum() / 2
    by_place, by_motion = torch.autograd.grad(energy, (place, motion))
    with torch.no_grad():
        place.add_(0.1 * by_motion)
        motion.sub_(0.1 * by_place)
""",
}

FROM_ITSELF = {
    "a ratio of one policy with itself, beside a term that trains": """\
import torch
from torch.distributions import Categorical

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
opt = torch.optim.Adam(net.parameters(), 0.01)
for _ in range(3):
    x = torch.randn(5, 4)
    before = Categorical(logits=net(x))
    action, gain = before.sample(), torch.randn(5)
    kept = {"action": action, "old": before.log_prob(action)}
    now = Categorical(logits=net(x))
    ratio = now.log_prob(action) / kept["old"]  #! gradient-lost `now.log_prob(action)`
    loss = -(ratio * gain).mean() - 0.01 * now.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}

APART = {
    "two runs with other noise, other inputs, other weights and a copy of the weights": """\
import copy

import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
other = copy.deepcopy(net[0])
opt = torch.optim.SGD([*net.parameters(), *other.parameters()], 0.1)
for _ in range(3):
    x = torch.randn(5, 4)
    opt.zero_grad()
    noise = (net(x) - net(x)).pow(2).mean() + net(x).exp().mean()
    inputs = (net[2](net[0](x)) - net[2](net[0](x + 1))).abs().mean()
    weights = (net[0](x) - other(x)).exp().mean()
    halves = (net[0](x)[:, :4] - net[0](x)[:, 4:]).pow(3).mean()
    (noise + inputs + weights + halves).backward()
    opt.step()
""",
    "equal in the first pass alone": """\
import torch

net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
x = torch.randn(5, 4)
before = x
for _ in range(4):
    smooth = (net(x) - net(before)).exp().mean()
    opt.zero_grad()
    (net(x).pow(2).mean() + smooth).backward()
    opt.step()
    before, x = x, torch.randn(5, 4)
""",
    "written beside each other and only then compared": """\
import torch

net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    x, scale = torch.randn(5, 4), torch.tensor([1.0, 2.0, 3.0])
    first, second = net(x), net(x)
    second *= scale
    opt.zero_grad()
    (first - second).exp().mean().backward()
    opt.step()
""",
}

HOOKED = {
    "a function that gives back the tensor it has put a hook on": """\
import torch
from torch import nn


def fought(x, strength):
    x.register_hook(lambda gradient: gradient.neg() * strength)  #! hook-shared turned (note)
    return x


body, label, domain = nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(3, 2)
opt = torch.optim.SGD([*body.parameters(), *label.parameters(), *domain.parameters()], 0.1)
for _ in range(3):
    features = body(torch.randn(4, 3)).relu()
    turned = fought(features, 0.5)
    opt.zero_grad()
    (label(features).pow(2).mean() + domain(turned).pow(2).mean()).backward()
    opt.step()
""",
}

PROGRAMS = {
    **CROSSED, **TOGETHER, **MISDIRECTED, **DIRECTED, **FROM_ITSELF, **APART, **HOOKED
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_told_what_it_trains_by(name, tmp_path):
    check_program(PROGRAMS[name], tmp_path)


KEYS = """\
import torch
from torch import nn
from torch.func import functional_call

net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1, bias=False))
code = nn.Parameter(torch.ones(3))
opt = torch.optim.SGD([code, *net.parameters()], 0.1)


def weights():
    return {"weight": (code * 2).view(1, 3)}


for _ in range(3):
    out = functional_call(net, weights(), (torch.ones(2, 3),))
    opt.zero_grad()
    out.sum().backward()
    opt.step()
"""


def test_values_that_nothing_takes_are_followed_to_who_was_given_them(tmp_path):
    (found,) = (
        one for one in record_program(KEYS, tmp_path).findings if one.slug == "gradient-unused"
    )
    told = {(step.site.line, step.text) for step in found.evidence}
    assert (11, "its values come as far as view") in told
    assert (15, "what gives them is called here") in told


COPIES = """\
import torch
from torch import nn
from torch.func import functional_call

net = nn.Linear(3, 1)
fast = {name: one.detach().clone().requires_grad_() for name, one in net.named_parameters()}
trained = list(net.parameters())
opt = torch.optim.SGD(trained, 0.1)
for _ in range(3):
    opt.zero_grad()
    functional_call(net, fast, (torch.ones(2, 3),)).sum().backward()
    opt.step()
"""


def test_an_optimizer_that_holds_what_copies_were_made_of(tmp_path):
    (found,) = (
        one for one in record_program(COPIES, tmp_path).findings if one.slug == "gradient-cut"
    )
    assert "gets gradients and is in no optimizer" in found.message
    assert {6, 7, 8} <= {step.site.line for step in found.evidence}
    assert found.fix is not None
    assert found.fix.text.startswith("Give the optimizer")
