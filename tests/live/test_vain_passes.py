"""Passes whose gradients are cleared each time, and read by nothing; and passes that look alike.

A comment ``#!`` marks the pass that the note must name, with the number of passes behind it.
"""

import re

import pytest

from programs import record_program

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
seismic = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
depth = nn.Linear(6, 1)
opt = torch.optim.Adam(seismic.parameters(), lr=0.01)
others = torch.optim.SGD(depth.parameters(), lr=0.01)
traces = [torch.randn(8, 6) for _ in range(5)]
kept = []


def misfit(x, net=seismic):
    return F.mse_loss(net(x), x[:, :1])


"""

VAIN = {
    "a check before each step, and another one at the end": """\
def looked_at(x):
    loss = misfit(x)
    loss.backward()  #! 7
    return loss.item()


for x in traces:
    print(looked_at(x))
    opt.zero_grad()
    (misfit(x) + misfit(-x)).backward()
    opt.step()
    opt.zero_grad()
looked_at(traces[0])
opt.zero_grad()
looked_at(traces[1])
""",
    "of two losses the first comes before the clearing, in a test as well": """\
def fit(x, train=True):
    first = misfit(x)
    first.backward(retain_graph=True)  #! 10
    opt.zero_grad()
    second = first + misfit(2 * x)
    if train:
        second.backward()
        opt.step()
    return second.item()


for x in traces:
    fit(x)
    print(fit(-x, train=False))
""",
    "several before each step, one of them at the end": """\
def looked_at(x):
    loss = misfit(x, lambda x: seismic(x) + depth(x))
    loss.backward()  #! 12
    return loss.item()


for x in traces:
    for one in opt, others:
        one.zero_grad()
    misfit(x).backward()
    misfit(x, depth).backward()
    opt.step()
    others.step()
    for one in opt, others:
        one.zero_grad()
    print(sum(looked_at(some) for some in (x, -x)))
    for one in opt, others:
        one.zero_grad()
looked_at(x)
for one in opt, others:
    one.zero_grad()
looked_at(x)
""",
}

USED = {
    "what the step takes": """\
for x in traces:
    opt.zero_grad()
    misfit(x).backward()
    opt.step()
""",
    "a norm that is printed": """\
for x in traces:
    misfit(x).backward()
    print(seismic[0].weight.grad.norm())
    opt.zero_grad()
    (misfit(x) + misfit(-x)).backward()
    opt.step()
""",
    "a saliency of the input": """\
for x in traces:
    seen = x.clone().requires_grad_()
    misfit(seen).backward()
    moved = x + 0.1 * seen.grad.sign()
    opt.zero_grad()
    misfit(moved).backward()
    opt.step()
""",
    "a hook on a hidden layer": """\
for x in traces:
    hidden = seismic[:2](x)
    hidden.register_hook(kept.append)
    seismic[2](hidden).sum().backward()
    opt.zero_grad()
    misfit(x).backward()
    opt.step()
""",
    "a hook on a module": """\
seismic[1].register_full_backward_hook(lambda one, given, got: kept.append(got[0]))
for x in traces:
    seismic(x).sum().backward()
    opt.zero_grad()
    misfit(x).backward()
    opt.step()
""",
    "a hidden layer that keeps its gradient": """\
for x in traces:
    hidden = seismic[:2](x)
    hidden.retain_grad()
    seismic[2](hidden).sum().backward()
    kept.append(hidden.grad)
    opt.zero_grad()
    misfit(x).backward()
    opt.step()
""",
    "a try before the first step": """\
for x in traces:
    misfit(x).backward()
    opt.zero_grad()
for x in traces:
    opt.zero_grad()
    (misfit(x) + misfit(-x)).backward()
    opt.step()
""",
    "a step that is left out where the loss is large": """\
for n, x in enumerate(traces):
    misfit(x).backward()
    if n != 2:
        opt.step()
    opt.zero_grad()
""",
    "the other of two networks is trained with it": """\
for x in traces:
    both = misfit(x, lambda x: depth(seismic(x).expand(-1, 6)))
    both.backward()
    others.step()
    opt.zero_grad()
    others.zero_grad()
    misfit(x).backward()
    opt.step()
    opt.zero_grad()
""",
    "a buffer that all gradients lie in": """\
flat = torch.zeros(sum(one.numel() for one in seismic.parameters()))
for x in traces:
    at = 0
    for one in seismic.parameters():
        one.grad = flat[at : at + one.numel()].view_as(one)
        at += one.numel()
    misfit(x).backward()
    kept.append(flat.norm().item())
    opt.zero_grad()
    (misfit(x) + misfit(-x)).backward()
    opt.step()
    flat.zero_()
""",
    "a gradient that is kept, and zeroed in place": """\
misfit(traces[0]).backward()
shown = seismic[0].weight.grad
for x in traces:
    misfit(x).backward()
    kept.append(shown.norm().item())
    opt.zero_grad(set_to_none=False)
    (misfit(x) + misfit(-x)).backward()
    opt.step()
    opt.zero_grad(set_to_none=False)
""",
    "a pass within a backward, which other losses take": """\
class Seen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        kept.append(gradient.norm().item())
        return gradient


for x in traces:
    misfit(x, lambda x: Seen.apply(seismic(x))).backward()
    opt.zero_grad()
    misfit(x).backward()
    opt.step()
""",
}


@pytest.mark.parametrize("name", [*VAIN, *USED])
def test_passes_that_nothing_uses(name, tmp_path):
    text = HEAD + (VAIN | USED)[name]
    recording = record_program(text, tmp_path)
    assert recording.error is None
    marks = [(n, re.search(r"#! (\d+)", line)) for n, line in enumerate(text.splitlines(), 1)]
    found = [one for one in recording.findings if "backward at line" in one.message]
    found = [one for one in found if one.slug == "gradient-discarded"]
    assert [(one.site.line, one.count) for one in found] == [
        (n, int(mark[1])) for n, mark in marks if mark
    ], [one.message for one in found]
