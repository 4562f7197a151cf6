"""Further examples of `gradient-lost`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "A derivative that is taken without a graph",
        """import torch

w = torch.ones(3, requires_grad=True)
x = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
(slope,) = torch.autograd.grad((w * x).pow(2).sum(), x)
penalty = slope.pow(2).sum()
loss = w.sum() + penalty
loss.backward()
opt.step()
""",
        (Expected("gradient-lost", "penalty", 6),),
    ),
    Example(
        "A value that is taken from itself",
        """import torch

policy = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(policy.parameters(), lr=0.1)
x = torch.ones(3, 2)
for _ in range(3):
    old = policy(x).log_softmax(1)
    new = policy(x).log_softmax(1)
    entropy = -(new.exp() * new).sum()
    loss = -(new - old).exp()[:, 0].sum() - 0.1 * entropy
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (Expected("gradient-lost", "new", 10),),
    ),
    Example(
        "A value that is taken from itself by another name",
        """import torch

policy = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(policy.parameters(), lr=0.1)
x, kept = torch.ones(3, 2), None
for _ in range(3):
    new = policy(x).log_softmax(1)
    old = new if kept is None else kept
    entropy = -(new.exp() * new).sum()
    loss = -(new - old).exp()[:, 0].sum() - 0.1 * entropy
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (Expected("gradient-lost", "new", 10),),
    ),
    Example(
        "Values with themselves, and with what they were",
        """import torch

policy = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(policy.parameters(), lr=0.1)
x = torch.ones(3, 2) + torch.arange(6).reshape(3, 2)
for _ in range(3):
    new = policy(x).log_softmax(1)
    old, query, key = new.detach(), new, new
    alike = torch.cosine_similarity(new, new).sum()
    loss = -(new - old).exp()[:, 0].sum() + (query * key).sum() + 0 * alike
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    ),
    Example(
        "A state that is cut off at each step of a sequence",
        """import torch

cell = torch.nn.RNNCell(2, 3)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
state = torch.zeros(1, 3)
for _ in range(4):
    state = cell(torch.ones(1, 2), state.detach())
state.sum().backward()
opt.step()
""",
        (Expected("gradient-lost", "cell.weight_ih", 7),),
    ),
    Example(
        "A state that is cut off where a backward pass has gone",
        """import torch

cell = torch.nn.RNNCell(2, 3)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
state = torch.zeros(1, 3)
for _ in range(4):
    opt.zero_grad()
    state = state.detach()
    for _ in range(3):
        state = cell(torch.ones(1, 2), state)
    state.sum().backward()
    opt.step()
""",
    ),
    Example(
        "A term with its graph, a factor without, a sign beside the value",
        """import torch

w = torch.ones(3, requires_grad=True)
x = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
(slope,) = torch.autograd.grad((w * x).pow(2).sum(), x, create_graph=True)
value = w * 2
size = (value * value.sign()).sum()
shifted = (value - value.max().detach()).exp().sum()
loss = w.sum() * w.detach().sum() + slope.pow(2).sum() + size + shifted
loss.backward()
opt.step()
""",
    ),
    Example(
        "A term through a discriminator, of a detached value",
        """import torch

maker, judge = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
makes = torch.optim.SGD(maker.parameters(), lr=0.1)
judges = torch.optim.SGD(judge.parameters(), lr=0.1)
for _ in range(3):
    real, made = torch.rand(4, 3), maker(torch.rand(4, 2))
    judges.zero_grad()
    (judge(made.detach()) - judge(real)).mean().backward()
    judges.step()
    fooled = -judge(made.detach()).mean()
    makes.zero_grad()
    ((made - real).pow(2).mean() + fooled).backward()
    makes.step()
""",
        (Expected("gradient-lost", "fooled", 11),),
    ),
    Example(
        "A term through a discriminator, and one loss whose every part is stepped by",
        """import torch

maker, judge = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
makes = torch.optim.SGD(maker.parameters(), lr=0.1)
judges = torch.optim.SGD(judge.parameters(), lr=0.1)
for _ in range(3):
    real, made = torch.rand(4, 3), maker(torch.rand(4, 2))
    makes.zero_grad()
    judges.zero_grad()
    told = (judge(made.detach()) - judge(real)).mean()
    ((made - real).pow(2).mean() + told).backward()
    makes.step()
    judges.step()
    makes.zero_grad()
    (-judge(maker(torch.rand(4, 2))).mean()).backward()
    makes.step()
""",
    ),
    Example(
        "A value that is drawn without a graph",
        """import torch

encoder, decoder = torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)
opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
for x in torch.rand(3, 4, 2):
    posterior = torch.distributions.Normal(encoder(x), 1.0)
    z = posterior.sample()
    loss = (decoder(z) - x).pow(2).mean() + posterior.mean.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (Expected("gradient-lost", "encoder.weight", 7),),
    ),
    Example(
        "A value that is drawn with a graph, and one that its probability is asked of",
        """import torch

encoder, decoder = torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)
opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
for x in torch.rand(3, 4, 2):
    posterior = torch.distributions.Normal(encoder(x), 1.0)
    z, action = posterior.rsample(), posterior.sample()
    error = (decoder(z) - x).pow(2).mean()
    loss = error + (posterior.log_prob(action).sum(1) * action.sum(1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    ),
)
