"""Tensors that trained until another one took their name: the optimizer goes on with the old one.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
target = torch.rand(4, 2)
net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
data = torch.rand(4, 3)


def train(opt, values, steps=4):
    for _ in range(steps):
        opt.zero_grad()
        (values() - target).pow(2).sum().backward()
        opt.step()


class Image:
    def __init__(self):
        self.x = torch.rand(4, 2, requires_grad=True)


image = Image()
"""

STALE = {
    "a conversion": """
opt = torch.optim.SGD([image.x], lr=0.1)
train(opt, lambda: image.x)
image.x = image.x.detach().double().requires_grad_()  #! parameter-stale image.x
train(opt, lambda: image.x)
""",
    "a new start": """
opt = torch.optim.SGD([image.x], lr=0.1)
train(opt, lambda: image.x)
image.x = torch.rand(4, 2, requires_grad=True)  #! parameter-stale image.x
train(opt, lambda: image.x)
""",
    "a head": """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
train(opt, lambda: net(data))
net[1] = nn.Linear(3, 2, bias=False)  #! parameter-stale net.1.weight
train(opt, lambda: net(data))
""",
    "a parameter beside others": """
opt = torch.optim.SGD([image.x, *net.parameters()], lr=0.1)
train(opt, lambda: net(data) * image.x)
image.x = nn.Parameter(image.x.detach() * 2)  #! parameter-stale image.x
train(opt, lambda: net(data) * image.x)
""",
}

RIGHT = {
    "an optimizer is made for it": """
opt = torch.optim.SGD([image.x], lr=0.1)
train(opt, lambda: image.x)
image.x = image.x.detach().double().requires_grad_()
opt = torch.optim.SGD([image.x], lr=0.1)
train(opt, lambda: image.x)
""",
    "it is added to the optimizer": """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
train(opt, lambda: net(data))
net[1] = nn.Linear(3, 2, bias=False)
opt.add_param_group({"params": net[1].parameters()})
train(opt, lambda: net(data))
""",
    "it is stepped by hand": """
opt = torch.optim.SGD([image.x, *net.parameters()], lr=0.1)
train(opt, lambda: net(data) * image.x)
image.x = image.x.detach().clone().requires_grad_()
for _ in range(4):
    train(opt, lambda: net(data) * image.x, 1)
    with torch.no_grad():
        image.x -= 0.1 * image.x.grad
        image.x.grad = None
""",
    "it gets no gradient": """
opt = torch.optim.SGD([image.x, *net.parameters()], lr=0.1)
train(opt, lambda: net(data) * image.x)
image.x = image.x.detach().round()
train(opt, lambda: net(data) * image.x)
""",
    "other memory of the same parameter": """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
train(opt, lambda: net(data))
net[1].weight.data = torch.rand(2, 3)
train(opt, lambda: net(data))
""",
    "an optimizer of each round": """
for _ in range(3):
    image.x = torch.rand(4, 2, requires_grad=True)
    opt = torch.optim.SGD([image.x], lr=0.1)
    train(opt, lambda: image.x)
""",
}


@pytest.mark.parametrize("text", STALE.values(), ids=STALE)
def test_what_the_optimizer_lacks_since_then(text, tmp_path):
    check_program(HEAD + text, tmp_path)


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_it_has(text, tmp_path):
    check_program(HEAD + text, tmp_path)
