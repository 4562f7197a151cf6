"""Terms of a loss whose gradients are cleared before a step uses them, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import textwrap

import pytest

from programs import check_program, record_program

START = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
maker, judge = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
makes = torch.optim.Adam(maker.parameters(), lr=1e-2)
judges = torch.optim.SGD(judge.parameters(), lr=1e-2)


def right(scores):
    return F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))


def wrong(scores):
    return F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))


def judged(made, real):
    judges.zero_grad()
    (wrong(judge(made.detach())) + right(judge(real))).backward()
    judges.step()


"""

FOUND = {
    "a value of which the judge gets a copy without a graph, the loss by helpers": """\
def optimize(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    optimize(wrong(judge(made.detach())) + right(judge(real)), judges)
    fooled = right(judge(made.data))  #! gradient-lost fooled
    optimize(F.l1_loss(made, real) + 0.1 * fooled, makes)
""",
    "a block without gradients, a sum that grows, gradients cleared for both at once": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    judges.zero_grad()
    makes.zero_grad()
    judged(maker(z), real)
    made = maker(z)
    loss = F.mse_loss(made, real)
    with torch.no_grad():
        fake = made * 1  #! gradient-lost hinge
    hinge = -judge(fake).mean()
    loss += hinge
    loss /= 2
    loss.backward()
    makes.step()
""",
    "a list of terms that is stacked, in every second step": """\
for step in range(8):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    if step % 2:
        judged(made, real)
    else:
        seen = made.clone().detach()  #! gradient-lost terms[1]
        adversarial = F.softplus(-judge(seen)).mean()
        terms = [F.mse_loss(made, real), adversarial, made.pow(2).mean()]
        makes.zero_grad()
        torch.stack(terms).sum().backward()
        makes.step()
""",
    "what each sample adds, and judges that are cleared through the module": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judge.zero_grad()
    (wrong(judge(made.detach())) + right(judge(real))).backward()
    judges.step()
    each = F.softplus(-judge(made.detach())).squeeze(1)  #! gradient-lost each
    makes.zero_grad()
    ((made - real).pow(2).sum(1) + each).mean().backward()
    makes.step()
""",
    "an actor that no value of its critic reaches": """\
for _ in range(4):
    state, reward = torch.randn(6, 3), torch.randn(6, 1)
    action = maker(state)
    judges.zero_grad()
    F.mse_loss(judge(action.detach()), reward).backward()
    judges.step()
    worth = judge(action.detach())  #! gradient-lost worth
    makes.zero_grad()
    (-worth.mean() + 0.01 * action.pow(2).mean()).backward()
    makes.step()
""",
}

NOTED = {
    "a term about what is real, beside one that the maker learns from": """\
given = nn.Linear(3, 4)
makes.add_param_group({"params": given.parameters()})
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    context = given(z)
    judged(maker(z) + context, real + context.detach())
    truth = judge(real + context.detach()).mean()  #! gradient-lost truth (note)
    makes.zero_grad()
    (truth - judge(maker(z) + context).mean()).backward()
    makes.step()
""",
    "a judge that no optimizer has": """\
critic = nn.Linear(4, 1)
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judged(made, real)
    quality = -critic(made.detach()).mean()  #! gradient-lost quality (note)
    makes.zero_grad()
    (F.mse_loss(made, real) + quality).backward()
    makes.step()
""",
}

QUIET = {
    "the judge's term leads to the maker": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judged(made, real)
    makes.zero_grad()
    (F.l1_loss(made, real) + right(judge(made))).backward()
    makes.step()
""",
    "one loss for both, and both step": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    makes.zero_grad()
    judges.zero_grad()
    (F.l1_loss(made, real) + wrong(judge(made.detach())) + right(judge(real))).backward()
    makes.step()
    judges.step()
""",
    "one loss for both, which step in turn": """\
for step in range(8):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    learns = judges if step % 3 == 2 else makes
    makes.zero_grad()
    judges.zero_grad()
    (F.l1_loss(made, real) + wrong(judge(made.detach())) + right(judge(real))).backward()
    learns.step()
""",
    "one loss for both, by a function with passes of two lines": """\
def total(z, real):
    made = maker(z)
    scored = wrong(judge(made.detach())) + right(judge(real))
    return F.l1_loss(made, real) + scored


for step in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    judges.zero_grad()
    total(z, real).backward()
    judges.step()
    makes.zero_grad()
    total(z, real).backward()
    makes.step()
""",
    "gradients that add up over both passes, for a step that comes later": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    makes.zero_grad()
    (F.l1_loss(made, real) + wrong(judge(made.detach()))).backward()
    makes.step()
    right(judge(real)).backward()
    judges.step()
    judges.zero_grad()
""",
    "gradients of several rounds, of which the judge's step uses all": """\
for step in range(9):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    makes.zero_grad()
    (F.l1_loss(made, real) + wrong(judge(made.detach())) + right(judge(real))).backward()
    makes.step()
    if step % 3 == 2:
        judges.step()
        judges.zero_grad()
""",
    "a probe on what is learned, with a step of its own": """\
probe = nn.Linear(4, 2)
probes = torch.optim.SGD(probe.parameters(), lr=0.1)
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    features = maker(z)
    guess = F.cross_entropy(probe(features.detach()), torch.randint(2, (6,)))
    makes.zero_grad()
    probes.zero_grad()
    (F.mse_loss(features, real) + guess).backward()
    makes.step()
    probes.step()
""",
    "a probe whose optimizer never steps: that is what is missing": """\
probe = nn.Linear(4, 2)
probes = torch.optim.SGD(probe.parameters(), lr=0.1)
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    features = maker(z)
    guess = F.cross_entropy(probe(features.detach()), torch.randint(2, (6,)))
    makes.zero_grad()
    probes.zero_grad()
    (F.mse_loss(features, real) + guess).backward()
    makes.step()
""",
    "a term of the judge's own weights, with no cut": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judged(made, real)
    decay = sum(one.pow(2).sum() for one in judge.parameters())
    makes.zero_grad()
    (right(judge(made)) + 1e-4 * decay).backward()
    makes.step()
""",
    "the difference of what is real and made, each judged": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judged(made, real)
    makes.zero_grad()
    (judge(real).mean() - judge(made).mean()).backward()
    makes.step()
""",
    "features of the judge to be matched": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judged(made, real)
    makes.zero_grad()
    (right(judge(made)) + F.l1_loss(judge[0](made), judge[0](real).detach())).backward()
    makes.step()
""",
    "a gradient penalty in the judge's pass": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    mixed = (0.5 * real + 0.5 * made.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
    judges.zero_grad()
    penalty = (slope.norm(dim=1) - 1).pow(2).mean()
    (wrong(judge(made.detach())) + right(judge(real)) + penalty).backward()
    judges.step()
    makes.zero_grad()
    (F.l1_loss(made, real) + right(judge(made))).backward()
    makes.step()
""",
    "a penalty on real values, added to each pass of the judge's": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4).requires_grad_()
    made = maker(z)
    scores = judge(real)
    (slope,) = torch.autograd.grad(scores.sum(), real, create_graph=True)
    judges.zero_grad()
    (wrong(judge(made.detach())) + right(scores) + slope.pow(2).sum(1).mean()).backward()
    judges.step()
    makes.zero_grad()
    (0.1 * F.l1_loss(made, real.detach()) + right(judge(made))).backward()
    makes.step()
""",
    "a frozen judge, whose term is a number": """\
for one in judge.parameters():
    one.requires_grad_(False)
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    makes.zero_grad()
    (F.l1_loss(made, real) + right(judge(made))).backward()
    makes.step()
""",
    "gradients that are looked at": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judged(made, real)
    score = right(judge(made.detach()))
    makes.zero_grad()
    judges.zero_grad()
    (F.l1_loss(made, real) + score).backward()
    print(judge[0].weight.grad.norm())
    makes.step()
""",
    "gradients that a hook takes": """\
seen = []
judge[2].weight.register_hook(lambda grad: seen.append(grad.norm()))
judge[0].weight.register_hook(lambda grad: seen.append(grad.norm()))
judge[0].bias.register_hook(lambda grad: seen.append(grad.norm()))
judge[2].bias.register_hook(lambda grad: seen.append(grad.norm()))
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judged(made, real)
    score = right(judge(made.detach()))
    makes.zero_grad()
    (F.l1_loss(made, real) + score).backward()
    makes.step()
""",
    "a clipped norm of all gradients, those of the judge as well": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judged(made, real)
    score = right(judge(made.detach()))
    makes.zero_grad()
    judges.zero_grad()
    (F.l1_loss(made, real) + score).backward()
    nn.utils.clip_grad_norm_([*maker.parameters(), *judge.parameters()], 1.0)
    makes.step()
""",
    "the judge's loss, whose graph is kept and added for the record": """\
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judges.zero_grad()
    score = wrong(judge(made.detach())) + right(judge(real))
    score.backward(retain_graph=True)
    makes.zero_grad()
    (F.l1_loss(made, real) + 0.0 * score).backward()
    judges.step()
    makes.step()
""",
    "the judge warms up: later its term leads to the maker": """\
for step in range(9):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z)
    judged(made, real)
    score = right(judge(made.detach() if step < 5 else made))
    makes.zero_grad()
    (F.l1_loss(made, real) + score).backward()
    makes.step()
""",
    "a state that a step before has moved on from": """\
memory = torch.zeros(6, 4)
for _ in range(4):
    z, real = torch.randn(6, 3), torch.randn(6, 4)
    made = maker(z) + memory
    judged(made, real)
    makes.zero_grad()
    (F.l1_loss(made, real) + judge(memory).mean()).backward()
    makes.step()
    memory = made.detach()
""",
    "one pass": """\
z, real = torch.randn(6, 3), torch.randn(6, 4)
made = maker(z)
judged(made, real)
makes.zero_grad()
(F.l1_loss(made, real) + right(judge(made.detach()))).backward()
makes.step()
""",
}


@pytest.mark.parametrize("body", [*FOUND.values(), *NOTED.values()], ids=[*FOUND, *NOTED])
def test_a_term_in_vain_is_told(body, tmp_path):
    check_program(START + body, tmp_path)


@pytest.mark.parametrize("body", QUIET.values(), ids=QUIET)
def test_look_alikes_are_quiet(body, tmp_path):
    found = record_program(START + body, tmp_path).findings
    assert [one.message for one in found if one.slug == "gradient-lost"] == []


def test_the_sentence_names_both_ends(tmp_path):
    body = next(iter(FOUND.values()))
    (one,) = [
        one
        for one in record_program(START + body, tmp_path).findings
        if one.slug == "gradient-lost"
    ]
    lines = textwrap.dedent(START + body).splitlines()
    cleared = lines.index("    optimizer.zero_grad()") + 1
    assert one.message.startswith("`fooled` is a term of the loss of line")
    assert f"line {cleared} clears these gradients before a step uses them" in one.message
    assert "cuts it off from `maker.weight`" in one.message
    assert "judge.0.weight" in one.message
