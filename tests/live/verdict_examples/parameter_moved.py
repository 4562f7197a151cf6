"""Further examples of `parameter-moved`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "A rate for all groups, of which one had the rate 0",
        """import torch

body, head = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 1)
groups = [{"params": body.parameters(), "lr": 0.0}, {"params": head.parameters()}]
opt = torch.optim.SGD(groups, lr=0.1)
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=6)
for _ in range(6):
    opt.zero_grad()
    head(body(torch.rand(4, 3))).pow(2).mean().backward()
    opt.step()
    schedule.step()
""",
        (Expected("parameter-moved", "body.weight", 6),),
    ),
)
