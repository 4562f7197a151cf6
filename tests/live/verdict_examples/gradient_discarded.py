"""Further examples of `gradient-discarded`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "Copies of a model that one line trains in turn, and that step together",
        """import copy
import torch

class Member:
    def __init__(self, net):
        self.net, self.opt = net, torch.optim.SGD(net.parameters(), lr=0.1)
        self.flat = torch.zeros(4)
        net.weight.grad, net.bias.grad = self.flat[:3].view(1, 3), self.flat[3:]
    def learn(self, x):
        self.opt.zero_grad(set_to_none=False)
        self.net(x).pow(2).mean().backward()

net = torch.nn.Linear(3, 1)
members = [Member(copy.deepcopy(net)) for _ in range(4)]
for _ in range(40):
    for one in members:
        one.learn(torch.randn(2, 3))
    mean = torch.stack([one.flat for one in members]).mean(0)
    for one in members:
        one.flat.copy_(mean)
        one.opt.step()
""",
    ),
    Example(
        "Cleared for the next loss, and set to what it is by then",
        """import torch

trunk, ears, eyes = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)
weights = [*trunk.parameters(), *ears.parameters(), *eyes.parameters()]
opt = torch.optim.SGD(weights, lr=0.1)
for _ in range(3):
    hidden = trunk(torch.ones(2, 3)).tanh()
    for head in (ears, eyes):
        opt.zero_grad(set_to_none=False)
        head(hidden).pow(2).sum().backward(retain_graph=head is ears)
    for one in weights:
        one.grad = one.grad
    opt.step()
""",
        (Expected("gradient-discarded", "ears.weight", 9),),
    ),
    Example(
        "Cleared before each of the passes that were to be summed up",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for part in range(8):
    opt.zero_grad()
    ((w - part).pow(2).sum() / 4).backward()
    if part % 4 == 3:
        opt.step()
""",
        (Expected("gradient-discarded", "w", 6),),
    ),
    Example(
        "Another loss whose gradients take the place of those that are stepped with",
        """import torch

w, data = torch.ones(3, requires_grad=True), torch.randn(3)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (w - data).pow(2).sum().backward()
    probe = data.clone().requires_grad_()
    opt.zero_grad()
    (w * probe).max().backward()
    print(probe.grad.abs().sum())
    opt.step()
""",
        (Expected("gradient-discarded", "w", 9),),
    ),
    Example(
        "Another loss that is looked at on the way, by autograd.grad",
        """import torch

w, data = torch.ones(3, requires_grad=True), torch.randn(3)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (w - data).pow(2).sum().backward()
    probe = data.clone().requires_grad_()
    print(torch.autograd.grad((w * probe).max(), probe)[0].abs().sum())
    opt.step()
""",
    ),
    Example(
        "A trial whose gradient is read, and a step that is left out once",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
def passes():
    opt.zero_grad()
    w.pow(2).sum().backward()
for part in range(4):
    passes()
    size = w.grad.norm()
    passes()
    opt.step()
for part in range(4):
    passes()
    if part != 1:
        opt.step()
""",
    ),
    Example(
        "zero_grad between backward and step",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    w.pow(2).sum().backward()
    opt.zero_grad()
    opt.step()
""",
        (Expected("gradient-discarded", "w", 7),),
    ),
    Example(
        "A clipping that is given an iterator which the optimizer has gone through",
        """import itertools
import torch

w = torch.ones(3, requires_grad=True)
held = itertools.chain([w])
opt = torch.optim.SGD(held, lr=0.1)
for _ in range(3):
    opt.zero_grad()
    w.pow(2).sum().backward()
    torch.nn.utils.clip_grad_norm_(held, 0.1)
    opt.step()
""",
        (Expected("gradient-discarded", "torch.nn.utils.clip_grad_norm_(held, 0.1)", 10),),
    ),
    Example(
        "A clipping before there are gradients",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    torch.nn.utils.clip_grad_norm_([w], 0.1)
    w.pow(2).sum().backward()
    opt.step()
""",
        (Expected("gradient-discarded", "torch.nn.utils.clip_grad_norm_([w], 0.1)", 7),),
    ),
    Example(
        "A clipping of gradients that a scaler has not divided yet",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(3):
    opt.zero_grad()
    scaler.scale(w.pow(2).sum()).backward()
    torch.nn.utils.clip_grad_norm_([w], 0.1)
    scaler.step(opt)
    scaler.update()
""",
        (Expected("gradient-discarded", "w", 9),),
    ),
    Example(
        "A clipping of gradients that were divided before, and a mean of scaled ones",
        """import torch

w, count = torch.ones(3, requires_grad=True), torch.tensor(2.0)
opt = torch.optim.SGD([w], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(3):
    opt.zero_grad()
    for part in range(2):
        scaler.scale(w.pow(2).sum()).backward()
    w.grad.div_(count)
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_([w], 0.1)
    scaler.step(opt)
    scaler.update()
""",
    ),
    Example(
        "A new optimizer with momentum for each step",
        """import torch

w = torch.ones(3, requires_grad=True)
for _ in range(4):
    opt = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
""",
        (Expected("gradient-discarded", "w", 5),),
    ),
    Example(
        "New optimizers that keep nothing, and one for each start from the same values",
        """import torch

w = torch.ones(3, requires_grad=True)
for _ in range(4):
    w.grad = None
    w.pow(2).sum().backward()
    torch.optim.SGD([w], lr=0.1).step()
start = w.detach().clone()
for _ in range(4):
    with torch.no_grad():
        w.copy_(start)
    opt = torch.optim.Adam([w], lr=0.1)
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
    print(w.detach().sum())
""",
    ),
    Example(
        "A gradient that adds up to zero, and is clipped; another loss gives it something",
        """import torch

w, b = torch.ones(3, requires_grad=True), torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
for _ in range(4):
    opt.zero_grad()
    ((w * 2 + b).mean() - (w * 3 + b).mean()).backward()
    torch.nn.utils.clip_grad_norm_([w, b], 0.1)
    opt.step()
    (w + b).sum().backward()
    print(w.grad)
""",
    ),
    Example(
        "A clipping that the closure computes anew",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)


def closure():
    opt.zero_grad()
    loss = w.pow(2).sum()
    loss.backward()
    return loss


for _ in range(3):
    closure()
    torch.nn.utils.clip_grad_norm_([w], 0.1)
    opt.step(closure)
""",
        (Expected("gradient-discarded", "w", 16),),
    ),
    Example(
        "A clipping within the closure",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.LBFGS([w], lr=0.1)


def closure():
    opt.zero_grad()
    loss = w.pow(2).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([w], 0.1)
    return loss


for _ in range(3):
    opt.step(closure)
""",
    ),
    Example(
        "zero_grad where it belongs",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
""",
    ),
)
