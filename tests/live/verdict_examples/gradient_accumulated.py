"""Further examples of `gradient-accumulated`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "A clipping in between clears nothing",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    w.pow(2).sum().backward()
    torch.nn.utils.clip_grad_norm_([w], 1.0)
    opt.step()
""",
        (Expected("gradient-accumulated", "w", 8),),
    ),
    Example(
        "Updates without an optimizer, and nothing clears the gradient",
        """import torch

w = torch.ones(3, requires_grad=True)
for _ in range(4):
    w.pow(2).sum().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
""",
        (Expected("gradient-accumulated", "w", 7),),
    ),
    Example(
        "A program that lets the old gradient fade",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    w.pow(2).sum().backward()
    opt.step()
    w.grad.mul_(0.9)
""",
    ),
    Example(
        "Two passes for each step, which clears them afterwards",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    for part in range(2):
        (w.pow(2).sum() / 2).backward()
    opt.step()
    opt.zero_grad()
""",
    ),
    Example(
        "Gradients of another loss are still there when its own adds to them",
        """import torch

w = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
first, second = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([v], lr=0.1)
for _ in range(4):
    first.zero_grad()
    second.zero_grad()
    made = w * 2
    (made * v).sum().backward()
    first.step()
    (made.detach() * v).pow(2).sum().backward()
    second.step()
""",
        (Expected("gradient-accumulated", "v", 10),),
    ),
    Example(
        "Two losses of what two heads share, each head with an optimizer",
        """import torch

base, w, v = (torch.ones(3, requires_grad=True) for _ in range(3))
body = torch.optim.SGD([base], lr=0.1)
first, second = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([v], lr=0.1)
for _ in range(4):
    body.zero_grad()
    first.zero_grad()
    second.zero_grad()
    (base * w).sum().backward()
    first.step()
    (base * v).pow(2).sum().backward()
    second.step()
    body.step()
""",
    ),
    Example(
        "A step for each part of a batch, whose losses were to be one mean",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    batch = torch.rand(12, 3)
    for part in batch.split(3):
        opt.zero_grad()
        ((part * w).pow(2).mean() / 4).backward()
        opt.step()
""",
        (Expected("gradient-accumulated", "w", 10),),
    ),
    Example(
        "Gradients of another loss come after its own, before both step",
        """import torch

w = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
first, second = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([v], lr=0.1)
for _ in range(4):
    made = w * 2
    own, other = (made.detach() * v - 1).pow(2).sum(), (made * v).sum()
    first.zero_grad()
    second.zero_grad()
    own.backward()
    other.backward()
    second.step()
    first.step()
""",
        (Expected("gradient-accumulated", "v", 12),),
    ),
    Example(
        "Gradients of another loss come after its own has been used",
        """import torch

w = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
first, second = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([v], lr=0.1)
for _ in range(4):
    made = w * 2
    second.zero_grad()
    (made.detach() * v - 1).pow(2).sum().backward()
    second.step()
    first.zero_grad()
    (made * v).sum().backward()
    first.step()
""",
    ),
    Example(
        "Two losses of one model, both meant for both of its parts",
        """import torch

w = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
first, second = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([v], lr=0.1)
for _ in range(4):
    made = w * 2
    first.zero_grad()
    second.zero_grad()
    (made * v - 1).pow(2).sum().backward()
    (w * v).sum().backward()
    second.step()
    first.step()
""",
    ),
    Example(
        "Gradients of another loss are cleared before its own",
        """import torch

w = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
first, second = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([v], lr=0.1)
for _ in range(4):
    first.zero_grad()
    (w - 1).pow(2).sum().backward()
    first.step()
    second.zero_grad()
    (w * v).pow(2).sum().backward()
    second.step()
""",
    ),
    Example(
        "Passes made for an input, between the clearing and the loss",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    opt.zero_grad()
    x = torch.rand(3)
    for _ in range(2):
        x = x.detach().requires_grad_()
        (w * x).tanh().sum().backward()
        x = x + 0.1 * x.grad
    (w * x.detach()).tanh().sum().backward()
    opt.step()
""",
        (Expected("gradient-accumulated", "w", 10),),
    ),
    Example(
        "Passes made for an input, which ask for its gradient alone",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    opt.zero_grad()
    x = torch.rand(3)
    for _ in range(2):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((w * x).tanh().sum(), x)
        x = x + 0.1 * slope
    (w * x.detach()).tanh().sum().backward()
    opt.step()
""",
    ),
)
