"""The smallest programs of faults that were once seen, each with what is to be said of it.

`!` marks the lines that one finding of the given verdict has to name; no verdict: nothing is found.
"""

import subprocess
import sys

import pytest

from programs import record_program
from tether.analysis.ties import Ties

START = """\
import torch
import torch.nn.functional as F

a, b, c = (torch.ones(3, requires_grad=True) for _ in range(3))
opt = torch.optim.SGD([a, b, c], lr=0.1)
"""

PROGRAMS = {
    "an assignment to an index": ("saved-overwritten", """
h = a + 1
squares = h * h  #!
h[0] = 0.0  #!
squares.sum().backward()  #!
"""),
    "the call that saved, not the one that made": ("saved-overwritten", """
h = a * 1
squares = h * h  #!
with torch.no_grad():
    h.add_(1)  #!
squares.sum().backward()
"""),
    "a write under no_grad does not end a graph": ("saved-overwritten", """
h = a.exp()  #!
with torch.no_grad():
    h.clamp_(max=1.0)  #!
h.sum().backward()
"""),
    "unseen, in a Function": ("untracked-write", """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad

h = a * 1
squares = Own.apply(h)  #!
h.data.add_(1)  #!
squares.sum().backward()  #!
"""),
    "unseen, after a graph was kept": ("untracked-write", """
h = a.exp()  #!
h.sum().backward(retain_graph=True)
h.data.zero_()  #!
h.sum().backward()  #!
"""),
    "unseen, by an operator of two": ("untracked-write", """
h = torch.hypot(a * 2, b)  #!
b.data.mul_(2)  #!
h.sum().backward()  #!
"""),
    "unseen, and not needed": ("", """
h = a * 1
loss = F.l1_loss(h, torch.zeros(3)) + (b * c).sum()
h.data.zero_()
loss.backward()
opt.step()
"""),
    "in a closure": ("saved-overwritten", """
def closure():
    h = a * 1
    loss = (h * h).sum()  #!
    h.add_(1)  #!
    loss.backward()  #!
    return loss

torch.optim.LBFGS([a], lr=0.1).step(closure)
"""),
    "after a step that raised": ("saved-overwritten", """
def closure():
    raise ValueError

try:
    torch.optim.LBFGS([a], lr=0.1).step(closure)
except ValueError:
    pass
h = b * 1
squares = h * h  #!
h.add_(1)  #!
squares.sum().backward()
"""),
    "a cut in a closure": ("gradient-cut", """
def closure():
    opt.zero_grad()
    loss = (a.detach() * b * c).sum()  #!
    loss.backward()  #!
    return loss

for _ in range(2):
    opt.step(closure)
"""),
    "ended before its backward": ("", """
(torch.ones(3, requires_grad=True) * 2).sum().backward()
predicted = a * b * c
raise ValueError(predicted.shape)
"""),
    "ended in a closure": ("", """
def closure():
    if (a * b * c).sum() > 1:
        raise ValueError

torch.optim.LBFGS([a], lr=0.1).step(closure)
"""),
    "ended at a backward": ("tie-error", """
loss = torch.ones(3, requires_grad=True).detach().sum()  #!
loss.backward()  #!
(a * b * c).sum().backward()
opt.step()
"""),
    "never used": ("gradient-unused", """
opt = torch.optim.SGD([a, b, c, torch.nn.Linear(2, 2).weight], lr=0.1)  #!
(a * b * c).sum().backward()  #!
opt.step()
"""),
    "one object by other expressions": ("alias-write", """
x, kept = torch.zeros(3), []
for _ in range(3):
    kept.append(x.float().cpu().contiguous())  #!
    x.add_(1)  #!
print(sum(one.sum().item() for one in kept))
"""),
    "one object, flattened": ("alias-write", """
x, kept = torch.zeros(3), []
for _ in range(3):
    kept.append(x.flatten())  #!
    x.add_(1)  #!
print(sum(one.sum().item() for one in kept))
"""),
    "several results, of which one is used": ("gradient-unused", """
for _ in range(2):
    opt.zero_grad()
    x, y = torch.atleast_1d(a, b)  #!
    (x * x * c).sum().backward()  #!
    opt.step()
"""),
    "several results of one node": ("parameter-unmoved", """
for _ in range(2):
    opt.zero_grad()
    x, y = torch._foreach_mul([a, b], 2.0)  #!
    (x * x * c).sum().backward()  #!
    opt.step()
"""),
    "zero by the formula": ("gradient-zero", """
for _ in range(2):
    opt.zero_grad()
    (torch.normal(a, 1.0) * b * c).sum().backward()  #!
    opt.step()
"""),
    "an argument that has no derivative": ("gradient-cut", """
(F.hinge_embedding_loss(a, b) + c.sum()).backward()  #!
opt.step()
"""),
    "a boolean used as a number": ("gradient-unused", """
same = torch.allclose(a, torch.ones(3))  #!
(float(same) * b * c).sum().backward()  #!
opt.step()
"""),
    "an input that no optimizer has": ("tie-error", """
image = torch.ones(3, requires_grad=True)
loss = image.detach().sum()  #!
loss.backward()  #!
"""),
    "a view of many": ("tie-error", """
first, second, third = (a * 1).chunk(3)  #!
first.mul_(2)  #!
"""),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_said_of_it(name, tmp_path):
    verdict, body = PROGRAMS[name]
    text = START + body
    marked = {n for n, line in enumerate(text.splitlines(), 1) if "#!" in line}
    found = record_program(text, tmp_path).findings
    told = [{one.site.line, *(step.site.line for step in one.evidence)} for one in found
            if one.slug == verdict]  # fmt: skip
    assert any(marked <= lines for lines in told) if verdict else not found, found


def test_an_error_in_a_block_is_told_once(tmp_path):
    text = """\
import torch
import tether

w = torch.ones(3, requires_grad=True)
try:
    with tether.record() as made:
        w.add_(1)
except RuntimeError:
    pass
print([one.slug for one in made.findings])
"""
    path = tmp_path / "program.py"
    path.write_text(text)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "['tie-error']"


def test_an_array_of_an_array_is_the_same_memory(tmp_path):
    text = "import torch\nx = torch.zeros(3)\nbest = torch.from_numpy(x.numpy())\nx.add_(1)\nprint(best)\n"
    ties = record_program(text, tmp_path).history.get(Ties).found
    assert any("best" in tie.shows for tie in ties)
