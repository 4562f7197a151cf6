"""Passes made for an input, whose gradients of the parameters a step uses as well; look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

PROGRAM = """\
import torch
from torch.nn.functional import cross_entropy, mse_loss

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def batch():
    x = torch.randn(16, 4)
    return x, x.sum(1, keepdim=True)


"""

FOUND = {
    "an attack in a function, after the clearing": """\
def attack(model, x, y):
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        loss = mse_loss(model(x + delta), y)
        loss.backward()  #! gradient-accumulated net.0.weight
        g = delta.grad.detach()
        delta.data = (delta + 0.1 * g.sign()).clamp(-0.3, 0.3)
        delta.grad.zero_()
    return delta.detach()


for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    delta = attack(net, x, y)
    mse_loss(net(x + delta), y).backward()
    opt.step()
""",
    "an energy's sampler, with noise": """\
def sample(energy, n):
    x = torch.randn(n, 4)
    for _ in range(5):
        x = x.detach().requires_grad_()
        (energy(x).sum() / n).backward()  #! gradient-accumulated net.0.weight
        x = x - 0.1 * x.grad + 0.01 * torch.randn_like(x)
    return x.detach()


for _ in range(6):
    real, _ = batch()
    opt.zero_grad()
    fake = sample(net, 16)
    loss = net(real).mean() - net(fake).mean()
    loss.backward()
    opt.step()
""",
    "a sampler that is a class, with a buffer of samples, and Adam": """\
class Sampler:
    def __init__(self, energy):
        self.energy = energy
        self.chains = torch.rand(64, 4)

    def draw(self, size):
        which = torch.randperm(64)[:size]
        state = self.chains[which].clone()
        state.requires_grad = True
        for _ in range(4):
            self.energy(state).sum().backward()  #! gradient-accumulated net.0.weight
            with torch.no_grad():
                state.add_(state.grad, alpha=-0.1)
                state.add_(torch.randn_like(state), alpha=0.005)
            state.grad = None
        self.chains[which] = state.detach()
        return state.detach()


adam = torch.optim.Adam(net.parameters(), 1e-3)
sampler = Sampler(net)
for _ in range(5):
    positive, _ = batch()
    adam.zero_grad()
    negative = sampler.draw(16)
    contrast = net(positive).mean() - net(negative).mean() + 0.1 * net(positive).pow(2).mean()
    contrast.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    adam.step()
""",
    "an attack with momentum, cleared after each step": """\
class Momentum(torch.nn.Module):
    def __init__(self, model, steps=3):
        super().__init__()
        self.model, self.steps = model, steps

    def forward(self, inputs, wanted):
        worst, velocity = inputs.clone(), torch.zeros_like(inputs)
        for _ in range(self.steps):
            worst = worst.detach()
            worst.requires_grad_(True)
            mse_loss(self.model(worst), wanted).backward()  #! gradient-accumulated net.0.weight
            velocity = 0.9 * velocity + worst.grad / worst.grad.abs().mean()
            worst = torch.min(torch.max(worst + 0.1 * velocity.sign(), inputs - 0.3), inputs + 0.3)
        return worst.detach()


adversary = Momentum(net)
for _ in range(6):
    x, y = batch()
    mse_loss(net(adversary(x, y)), y).backward()
    opt.step()
    net.zero_grad()
""",
    "one step of an attack may be meant as a loss": """\
def fgsm(x, y):
    x = x.clone().requires_grad_()
    mse_loss(net(x), y).backward()  #! gradient-accumulated net.0.weight (note)
    return (x + 0.1 * x.grad.sign()).detach()


for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    worst = fgsm(x, y)
    loss = mse_loss(net(worst), y)
    loss.backward()
    opt.step()
""",
    "gradients scaled, also of the attack": """\
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for _ in range(6):
    x, y = batch()
    opt.zero_grad(set_to_none=False)
    delta = torch.empty_like(x).uniform_(-0.1, 0.1).requires_grad_()
    for _ in range(2):
        scaler.scale(mse_loss(net(x + delta), y)).backward()  #! gradient-accumulated net.0.weight
        with torch.no_grad():
            delta += 0.05 * delta.grad.sign()
        delta.grad.zero_()
    scaler.scale(mse_loss(net(x + delta.detach()), y)).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
""",
    "in a closure": """\
for _ in range(5):
    x, y = batch()

    def closure():
        opt.zero_grad()
        moved = x
        for _ in range(3):
            moved = moved.detach().requires_grad_()
            (-1.0 * mse_loss(net(moved), y)).backward()  #! gradient-accumulated net.0.weight
            moved = moved - 0.05 * torch.sign(moved.grad)
        value = mse_loss(net(moved.detach()), y)
        value.backward()
        return value

    opt.step(closure)
""",
    "the clean loss as well, by a line of its own before the attack": """\
for _ in range(5):
    x, y = batch()
    opt.zero_grad()
    clean = mse_loss(net(x), y)
    clean.backward()
    adv = x.clone()
    for _ in range(2):
        adv = adv.detach().requires_grad_()
        mse_loss(net(adv), y).backward()  #! gradient-accumulated net.0.weight
        adv = adv + 0.1 * adv.grad.sign()
    mse_loss(net(adv.detach()), y).backward()
    opt.step()
""",
    "batches accumulated, an attack for each": """\
for _ in range(4):
    for part in range(2):
        x, y = batch()
        delta = torch.zeros_like(x).requires_grad_()
        for _ in range(2):
            mse_loss(net(x + delta), y).backward()  #! gradient-accumulated net.0.weight
            delta = (delta + 0.1 * delta.grad.sign()).detach().requires_grad_()
        (mse_loss(net(x + delta.detach()), y) / 2).backward()
    opt.step()
    opt.zero_grad()
""",
    "in embeddings, of which the table is trained, too": """\
table, head = torch.nn.Embedding(20, 6), torch.nn.Linear(6, 3)
both = torch.optim.AdamW([*table.parameters(), *head.parameters()], 1e-3)
for _ in range(5):
    words, classes = torch.randint(20, (8, 5)), torch.randint(3, (8,))
    both.zero_grad()
    noise = torch.zeros(8, 5, 6)
    for _ in range(3):
        noise.requires_grad_()
        wrong = cross_entropy(head((table(words) + noise).mean(1)), classes)
        wrong.backward()  #! gradient-accumulated table.weight
        noise = (noise + 0.1 * noise.grad / noise.grad.norm()).detach()
    cross_entropy(head((table(words) + noise).mean(1)), classes).backward()
    both.step()
""",
    "the norm of the gradients is looked at before the step": """\
for _ in range(5):
    x, y = batch()
    opt.zero_grad()
    z = torch.randn(16, 4)
    for _ in range(3):
        z = z.detach().requires_grad_()
        net(z).mean().backward()  #! gradient-accumulated net.0.weight
        z = z - z.grad
    (net(x) - net(z.detach())).mean().backward()
    norm = sum(p.grad.norm() for p in net.parameters()).item()
    opt.step()
""",
    "the weights of the loss are of the input's gradients": """\
for _ in range(5):
    x, y = batch()
    opt.zero_grad()
    probe = x.clone().requires_grad_()
    mse_loss(net(probe), y).backward()  #! gradient-accumulated net.0.weight (note)
    weight = torch.softmax(probe.grad.norm(dim=1), 0)
    (weight * (net(x) - y).pow(2).squeeze(1)).sum().backward()
    opt.step()
""",
    "an attack from the third step on": """\
for turn in range(8):
    x, y = batch()
    opt.zero_grad()
    for _ in range(2 if turn > 2 else 0):
        x = x.detach().requires_grad_()
        mse_loss(net(x), y).backward()  #! gradient-accumulated net.0.weight (note)
        x = x + 0.1 * x.grad.sign()
    mse_loss(net(x.detach()), y).backward()
    opt.step()
""",
    "through an array": """\
for _ in range(5):
    x, y = batch()
    opt.zero_grad()
    for _ in range(2):
        x = x.detach().requires_grad_()
        mse_loss(net(x), y).backward()  #! gradient-accumulated net.0.weight
        x = x.detach() + 0.1 * torch.from_numpy(x.grad.numpy()).sign()
    mse_loss(net(x), y).backward()
    opt.step()
""",
}

ATTACK = """\
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
{pass_}
        delta.data = (delta + 0.1 * {gradient}.sign()).clamp(-0.3, 0.3)
        delta.grad = None
{after}
    mse_loss(net(x + delta.detach()), y).backward()
    opt.step()
"""


def attack(pass_: str, gradient: str = "delta.grad", after: str = "") -> str:
    lines = (f"        {line}\n" for line in pass_.split("\n"))
    return ATTACK.format(pass_="".join(lines).rstrip("\n"), gradient=gradient, after=f"    {after}")


LOSS = "loss = mse_loss(net(x + delta), y)\n"
RIGHT = {
    "cleared after the attack": attack(LOSS + "loss.backward()", after="opt.zero_grad()"),
    "cleared by the model": attack(LOSS + "loss.backward()", after="net.zero_grad(False)"),
    "set to None after the attack": attack(
        LOSS + "loss.backward()", after="for p in net.parameters(): p.grad = None"
    ),
    "zeros in the gradients": attack(
        LOSS + "loss.backward()", after="for p in net.parameters(): p.grad.zero_()"
    ),
    "asked for alone": attack(LOSS + "(g,) = torch.autograd.grad(loss, [delta])", "g"),
    "the input alone": attack(LOSS + "loss.backward(inputs=[delta])"),
    "frozen as long": attack(
        "net.requires_grad_(False)\n" + LOSS + "loss.backward()", after="net.requires_grad_(True)"
    ),
    "put back as they were": attack(
        "old = [None if p.grad is None else p.grad.clone() for p in net.parameters()]\n"
        + LOSS
        + "loss.backward()\nfor p, one in zip(net.parameters(), old): p.grad = one"
    ),
    "all gradients of the attack, in one line": """\
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    delta = torch.zeros_like(x, requires_grad=True)
    for turn in range(3):
        (mse_loss(net(x + delta), y) / 3).backward()
        if turn < 2:
            moved = delta + 0.1 * delta.grad / delta.grad.norm()
            delta = moved.detach().requires_grad_()
    opt.step()
""",
    "all gradients of the attack, and a last one by a line of its own": """\
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    delta = torch.zeros_like(x, requires_grad=True)
    for turn in range(2):
        (mse_loss(net(x + delta), y) / 3).backward()
        delta = (delta + 0.1 * delta.grad.sign()).detach().requires_grad_()
    (mse_loss(net(x + delta.detach()), y) / 3).backward()
    opt.step()
""",
    "a step by each pass of the attack": """\
delta = torch.zeros(16, 4)
for _ in range(3):
    x, y = batch()
    for _ in range(3):
        opt.zero_grad()
        delta.requires_grad_()
        mse_loss(net(x + delta), y).backward()
        opt.step()
        delta = (delta + 0.1 * delta.grad.sign()).detach()
""",
    "the clean loss last, after the adversarial ones": """\
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    delta = torch.zeros_like(x, requires_grad=True)
    for turn in range(2):
        mse_loss(net(x + delta), y).backward()
        delta = (delta + 0.1 * delta.grad.sign()).detach().requires_grad_()
    mse_loss(net(x), y).backward()
    opt.step()
""",
    "the same with statistics of batches and dropout": """\
deep = torch.nn.Sequential(net[0], torch.nn.BatchNorm1d(8), torch.nn.Dropout(), net[2])
opt = torch.optim.SGD(deep.parameters(), 0.01)
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    delta = torch.zeros_like(x, requires_grad=True)
    for turn in range(3):
        mse_loss(deep(x + delta), y).backward()
        delta = (delta + 0.1 * delta.grad.sign()).detach().requires_grad_()
    mse_loss(deep(x), y).backward()
    opt.step()
""",
    "the table is moved, and moved back, between two losses": """\
table, head = torch.nn.Embedding(20, 6), torch.nn.Linear(6, 3)
both = torch.optim.SGD([*table.parameters(), *head.parameters()], 0.1)
for _ in range(5):
    words, classes = torch.randint(20, (8, 5)), torch.randint(3, (8,))
    both.zero_grad()
    cross_entropy(head(table(words).mean(1)), classes).backward()
    kept = table.weight.data.clone()
    table.weight.data += 0.5 * table.weight.grad / table.weight.grad.norm()
    cross_entropy(head(table(words).mean(1)), classes).backward()
    table.weight.data = kept
    both.step()
""",
    "two losses, of which one has weight": """\
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    x.requires_grad_()
    (0.5 * mse_loss(net(x), y)).backward()
    worst = (x + 0.1 * x.grad.sign()).detach()
    (0.5 * mse_loss(net(worst), y)).backward()
    opt.step()
""",
    "a penalty on the input's gradient": """\
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    x.requires_grad_()
    mse_loss(net(x), y).backward(create_graph=True)
    x.grad.pow(2).sum().backward()
    opt.step()
    x.grad = None
""",
    "what matters in the input, looked at after the step": """\
seen = torch.zeros(4)
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    mse_loss(net(x), y).backward()
    opt.step()
    probe = x.clone().requires_grad_()
    net(probe).sum().backward()
    seen += probe.grad.abs().mean(0)
""",
    "what matters in the input, looked at before the loss": """\
seen = torch.zeros(4)
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    probe = x.clone().requires_grad_()
    net(probe).sum().backward()
    seen += probe.grad.abs().mean(0)
    mse_loss(net(x), y).backward()
    opt.step()
""",
    "latents with an optimizer of their own, which is trained by the same loss": """\
codes = torch.zeros(16, 4, requires_grad=True)
own = torch.optim.SGD([codes], 0.1)
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    own.zero_grad()
    mse_loss(net(codes), y).backward()
    length = codes.grad.norm()
    (net(codes.detach() + 0.1 * codes.grad / length) - y).pow(2).mean().backward()
    own.step()
    opt.step()
""",
    "two noises in turn, each of which is moved by its gradient, and trained on": """\
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    one = torch.zeros_like(x).requires_grad_()
    mse_loss(net(x + one), y).backward()
    two = (0.1 * one.grad.sign()).requires_grad_()
    mse_loss(net(x + two), y).backward()
    print(two.grad.norm())
    opt.step()
""",
    "a second table of weights that the program updates by itself, trained by both losses": """\
bias = torch.zeros(1, requires_grad=True)
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    mse_loss(net(x) + bias, y).backward()
    (net(x) + bias).abs().mean().backward()
    opt.step()
    with torch.no_grad():
        bias -= 0.1 * bias.grad
    bias.grad = None
""",
    "an attack whose example goes nowhere": """\
hardest = []
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    z = x
    for _ in range(2):
        z = z.detach().requires_grad_()
        mse_loss(net(z), y).backward()
        z = z + 0.1 * z.grad.sign()
    hardest.append(mse_loss(net(z.detach()), y).item())
    opt.zero_grad()
    mse_loss(net(x), y).backward()
    opt.step()
""",
    "actions, and an actor that goes on with their gradient through what both share": """\
trunk, actor, critic = (torch.nn.Linear(*shape) for shape in ((4, 6), (6, 2), (8, 1)))
every = [*trunk.parameters(), *actor.parameters(), *critic.parameters()]
opt = torch.optim.SGD(every, 0.01)
for _ in range(6):
    x, _ = batch()
    opt.zero_grad()
    action = actor(trunk(x)).detach().requires_grad_()
    critic(torch.cat([trunk(x), action], 1)).mean().backward()
    (-(actor(trunk(x)) * action.grad).sum()).backward()
    opt.step()
""",
    "an image that is optimized by the features of a network": """\
image = torch.zeros(1, 4, requires_grad=True)
own = torch.optim.LBFGS([image])
for _ in range(4):

    def closure():
        own.zero_grad()
        value = (net(image) - 3).pow(2).sum()
        value.backward()
        return value

    own.step(closure)
    print(image.grad.norm())
""",
    "a network in two halves, with a weight that both have": """\
shared = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(shared.parameters(), 0.1)
for _ in range(6):
    x, _ = batch()
    opt.zero_grad()
    middle = shared(x).tanh()
    border = middle.detach().requires_grad_()
    shared(border).pow(2).mean().backward()
    middle.backward(border.grad)
    opt.step()
""",
    "gradients of representations kept for a second pass": """\
scale = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(scale.parameters(), 0.1)
for _ in range(6):
    x, _ = batch()
    opt.zero_grad()
    reps = scale(x)
    leaf = reps.detach().requires_grad_()
    cross_entropy(scale(leaf) @ leaf.T, torch.arange(16)).backward()
    (reps * leaf.grad).sum().backward()
    opt.step()
""",
    "gradients of representations that are computed again": """\
scale = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(scale.parameters(), 0.1)
for _ in range(6):
    x, _ = batch()
    opt.zero_grad()
    with torch.no_grad():
        reps = scale(x)
    leaf = reps.detach().requires_grad_()
    cross_entropy(scale(leaf) @ leaf.T, torch.arange(16)).backward()
    kept = leaf.grad
    for part in range(2):
        half = slice(8 * part, 8 * part + 8)
        (scale(x[half]) * kept[half]).sum().backward()
    opt.step()
""",
    "a generator and its critic": """\
maker = torch.nn.Linear(4, 4)
makes = torch.optim.SGD(maker.parameters(), 0.1)
for _ in range(6):
    real, _ = batch()
    opt.zero_grad()
    (net(maker(torch.randn(16, 4)).detach()) - net(real)).mean().backward()
    opt.step()
    makes.zero_grad()
    noise = torch.randn(16, 4, requires_grad=True)
    (-net(maker(noise)).mean()).backward()
    print(noise.grad.norm())
    makes.step()
""",
    "batches accumulated, whose inputs' gradients are watched": """\
seen = 0.0
for _ in range(4):
    opt.zero_grad()
    for _ in range(3):
        x, y = batch()
        x.requires_grad_()
        (mse_loss(net(x), y) / 3).backward()
        seen += x.grad.norm().item()
    opt.step()
""",
    "fast weights that the outer loss trains on": """\
slow = torch.nn.Linear(4, 1)
opt = torch.optim.SGD([*slow.parameters(), *net[0].parameters()], 0.1)
lift = torch.nn.Linear(4, 4)
opt.add_param_group({"params": lift.parameters()})
for _ in range(5):
    (x, y), (x2, y2) = batch(), batch()
    opt.zero_grad()
    fast = slow.weight.detach().clone().requires_grad_()
    mse_loss(lift(x) @ fast.T, y).backward()
    fast = (fast - 0.1 * fast.grad).detach().requires_grad_()
    mse_loss(lift(x2) @ fast.T, y2).backward()
    slow.weight.grad = fast.grad
    opt.step()
""",
    "once": """\
for turn in range(5):
    x, y = batch()
    opt.zero_grad()
    if turn == 0:
        x.requires_grad_()
        mse_loss(net(x), y).backward()
        x = (x + 0.1 * x.grad).detach()
    mse_loss(net(x), y).backward()
    opt.step()
""",
    "halved before the step": """\
for _ in range(5):
    x, y = batch()
    opt.zero_grad()
    x.requires_grad_()
    mse_loss(net(x), y).backward()
    worst = (x + 0.1 * x.grad.sign()).detach()
    mse_loss(net(worst), y).backward()
    for p in net.parameters():
        p.grad.mul_(0.5)
    opt.step()
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_passes_for_an_input_that_count(name, tmp_path):
    check_program(PROGRAM + FOUND[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_gradients_of_an_input_that_are_asked_for_alone_or_meant(name, tmp_path):
    recording = record_program(PROGRAM + RIGHT[name], tmp_path)
    assert recording.error is None
    assert not [one for one in recording.findings if "is computed with" in one.message]


def test_an_optimizer_of_the_input_is_another_matter(tmp_path):
    """What its passes leave to the network is told as what another optimizer's have left."""
    recording = check_program(
        PROGRAM
        + """\
for _ in range(6):
    x, y = batch()
    opt.zero_grad()
    code = torch.zeros(16, 4, requires_grad=True)
    own = torch.optim.SGD([code], 0.1)
    for _ in range(3):
        own.zero_grad()
        mse_loss(net(code), y).backward()  #! gradient-accumulated net.0.weight
        own.step()
    mse_loss(net(code.detach()), y).backward()
    opt.step()
""",
        tmp_path,
    )
    assert "is computed with" not in recording.findings[0].message


def test_the_finding_names_all_four_lines(tmp_path):
    program = PROGRAM + FOUND["an attack in a function, after the clearing"]
    (finding,) = record_program(program, tmp_path).findings
    lines = program.splitlines()
    told = [lines[one.site.line - 1].strip() for one in finding.evidence]
    assert told[0].startswith("loss.backward()")
    assert told[1:4] == ["opt.zero_grad()", "mse_loss(net(x + delta), y).backward()", "opt.step()"]
    assert "`delta`" in finding.message
    assert "torch.autograd.grad" in str(finding.fix)
