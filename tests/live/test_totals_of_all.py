"""Totals of all processes in the graph of a loss: in place, where nothing comes back, or not.

A comment ``#!`` marks the line that the note must name.
"""

import pytest
import torch

from programs import record_program

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="PyTorch was built without torch.distributed"
)

HEAD = """\
import warnings

import torch
import torch.distributed as dist
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
field = nn.Linear(5, 3)
opt = torch.optim.SGD(field.parameters(), lr=0.01)


def spread(seen):
    seen = seen - seen.mean(0)
    return seen.T @ seen / len(seen)


for _ in range(3):
    seen = field(torch.randn(8, 5))
    opt.zero_grad()
    TURN
    opt.step()
dist.destroy_process_group()
"""

IN_PLACE = {
    "a matrix whose distance is the loss": """\
whole = spread(seen)
    dist.all_reduce(whole)  #!
    (whole - torch.eye(3)).pow(2).sum().backward()""",
    "parts of it that are written in place": """\
whole = spread(seen).div_(2)
    dist.all_reduce(whole)  #!
    near = torch.diagonal(whole).add_(-1).pow_(2).sum()
    (near + whole.triu(1).pow(2).sum()).backward()""",
    "its diagonal alone, written in place": """\
whole = spread(seen)
    dist.all_reduce(whole)  #!
    torch.diagonal(whole).sub_(1).pow_(2).sum().backward()""",
    "its mean, by a helper, in a part of the loss": """\
whole = spread(seen)
    def share(x):
        dist.all_reduce(x)  #!
        x /= dist.get_world_size()
        return x
    (seen.mean() + share(whole).logdet()).backward()""",
    "a norm that all are divided by": """\
size = seen.pow(2).sum()
    dist.all_reduce(size)  #!
    (seen / size.sqrt()).sigmoid().sum().backward()""",
}

OTHERWISE = {
    "by a Function that has a backward": """\
import torch.distributed.nn.functional as joined
    whole = joined.all_reduce(spread(seen))
    (whole - torch.eye(3)).pow(2).sum().backward()""",
    "a detached copy, to be printed": """\
loss = (spread(seen) - torch.eye(3)).pow(2).sum()
    shown = loss.detach().clone()
    dist.all_reduce(shown)
    loss.backward()
    print(shown.item())""",
    "the loss itself, after its pass": """\
loss = (spread(seen) - torch.eye(3)).pow(2).sum()
    loss.backward()
    dist.all_reduce(loss)
    print(loss.item())""",
    "the loss itself, as a mean": """\
loss = (spread(seen) - torch.eye(3)).pow(2).sum()
    dist.all_reduce(loss)
    (loss / dist.get_world_size()).backward()""",
    "a part of it that is written in place, and added up": """\
whole = spread(seen)
    dist.all_reduce(whole)
    (torch.diagonal(whole).sub_(1).sum() + seen.pow(2).mean()).backward()""",
    "without gradients": """\
centre = seen.mean(0)
    with torch.no_grad():
        dist.all_reduce(centre)
    (seen - centre).pow(2).sum().backward()""",
    "gradients": """\
(spread(seen) - torch.eye(3)).pow(2).sum().backward()
    for one in field.parameters():
        dist.all_reduce(one.grad)""",
    "a count": """\
count = torch.tensor(float(len(seen)))
    dist.all_reduce(count)
    (seen.pow(2).sum() / count).backward()""",
    "a matrix that is looked at alone": """\
whole = spread(seen)
    dist.all_reduce(whole)
    print(whole.logdet().item())
    seen.pow(2).mean().backward()""",
}


@pytest.mark.parametrize("name", [*IN_PLACE, *OTHERWISE])
def test_totals_in_the_graph(name, tmp_path):
    text = HEAD.replace("TURN", (IN_PLACE | OTHERWISE)[name])
    recording = record_program(text, tmp_path)
    assert recording.error is None
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "#!" in line]
    found = [one for one in recording.findings if one.slug == "gradient-lost"]
    assert [(one.site.line, one.severity) for one in found] == [(n, "note") for n in lines]
