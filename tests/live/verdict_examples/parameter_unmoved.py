"""Further examples of `parameter-unmoved`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "A step that waits for more batches than there are",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for i in range(3):
    w.pow(2).sum().backward()
    if (i + 1) % 8 == 0:
        opt.step()
""",
        (Expected("parameter-unmoved", "w", 4),),
    ),
    Example(
        "A backup that is made when the average is there already",
        """import torch

w = torch.ones(3, requires_grad=True)
average = w.detach().clone()
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
    with torch.no_grad():
        average.lerp_(w, 0.1)
        w.copy_(average)
        backup = w.clone()
        print(w.sum().item())
        w.copy_(backup)
""",
        (Expected("parameter-unmoved", "w", 13),),
    ),
    Example(
        "A head replaced after the optimizer was made, of which parameter-stale speaks",
        """import torch

net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net[1] = torch.nn.Linear(3, 1)
for _ in range(3):
    opt.zero_grad()
    net(torch.rand(4, 3)).pow(2).mean().backward()
    opt.step()
""",
    ),
    Example(
        "A schedule made for epochs that counts batches",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.1)
for epoch in range(5):
    for batch in range(10):
        opt.zero_grad()
        (w - torch.rand(3)).pow(2).sum().backward()
        opt.step()
        schedule.step()
""",
        (Expected("parameter-unmoved", "w", 5),),
    ),
    Example(
        "A schedule that ends at zero as the training does",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 - step / 31)
for step in range(32):
    opt.zero_grad()
    (w - torch.rand(3)).pow(2).sum().backward()
    opt.step()
    schedule.step()
""",
    ),
    Example(
        "It moves",
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
