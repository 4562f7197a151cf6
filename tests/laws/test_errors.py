"""PyTorch's own errors about ties are explained wherever they are raised.

Each program has one statement that PyTorch refuses, marked `#!`, and the lines that led there,
marked `#<`. It is put at the top of a module, in a function, a loop, the forward of a module, the
closure of an optimizer, a thread, and where the program swallows it. One finding has to name the
lines that led there, or, where there are none, the line that raises. The model that would have been
trained afterwards was never reached, so nothing may be claimed of it.
"""

import linecache
import textwrap
import threading
import warnings

import pytest
import torch

import tether
from lengths import LONG
from operators import lines_of

ERRORS = {
    "a second backward": """
energy = (weight ** 2).sum()  #<
energy.backward()  #<
energy.backward()  #!""",
    "two losses on one trunk": """
trunk = weight.exp()  #<
first, second = trunk.sum(), (trunk * 2).sum()
first.backward()  #<
second.backward()  #!""",
    "a state carried over": """
state = torch.zeros(3)
for _ in range(2):
    state = torch.sigmoid(state * weight)  #<
    state.sum().backward()  #!""",
    "a gradient asked for twice": """
energy = (weight ** 3).sum()  #<
torch.autograd.grad(energy, weight)  #<
torch.autograd.grad(energy, weight)  #!""",
    "a saved input written": """
hidden = weight + 0
squares = hidden.pow(2)  #<
hidden.mul_(3)  #<
squares.sum().backward()  #!""",
    "a saved result written": """
hidden = torch.sigmoid(weight)  #<
hidden += 1  #<
hidden.sum().backward()  #!""",
    "a saved input written at an index": """
hidden = weight + 0
squares = hidden * hidden  #<
hidden[1] = 4.0  #<
squares.sum().backward()  #!""",
    "a saved input written under no_grad": """
scale = torch.ones(3)
scaled = weight * scale  #<
with torch.no_grad():
    scale.fill_(2)  #<
scaled.sum().backward()  #!""",
    "a saved index written": """
chosen = torch.tensor([2, 0])
taken = weight[chosen]  #<
chosen.zero_()  #<
taken.sum().backward()  #!""",
    "a saved input written by an activation": """
hidden = weight * 2
squares = hidden * hidden  #<
torch.nn.functional.relu(hidden, inplace=True)  #<
squares.sum().backward()  #!""",
    "a parameter stepped between forward and backward": """
loss = layer(layer(weight)).sum()  #<
loss.backward(retain_graph=True)
torch.optim.SGD(layer.parameters(), lr=0.1).step()  #<
loss.backward()  #!""",
    "a parameter loaded between forward and backward": """
loss = (layer(weight) @ layer.weight).sum()  #<
layer.load_state_dict({name: one * 2 for name, one in layer.state_dict().items()})  #<
loss.backward()  #!""",
    "what a Function saved": """
hidden = weight + 0
squares = Square.apply(hidden)  #<
hidden.sub_(1)  #<
squares.sum().backward()  #!""",
    "a leaf written": "weight.mul_(2)  #!",
    "a leaf written at an index": "weight[0] = 1.0  #!",
    "a parameter written": "layer.bias -= 0.1  #!",
    "a leaf written by a module": "torch.nn.ReLU(inplace=True)(weight)  #!",
    "a leaf as out=": "torch.mul(other.detach(), 2, out=weight)  #!",
    "a view of a leaf written": """
first = weight[:2]  #<
first.zero_()  #!""",
    "one of several views written": """
hidden = weight * 2
parts = hidden.split(1)  #<
parts[0].mul_(2)  #!""",
    "a view made under no_grad": """
hidden = weight * 2
with torch.no_grad():
    half = hidden[1:]  #<
half.add_(1)  #!""",
    "an expanded tensor written": """
wide = torch.zeros(1).expand(4)  #<
wide.add_(1)  #!""",
    "inference tensors saved": """
with torch.inference_mode():
    features = torch.ones(3) + 1  #<
scaled = weight * features  #!""",
    "inference tensors written": """
with torch.inference_mode():
    features = torch.ones(3) + 1  #<
features.mul_(2)  #!""",
    "inference tensors that are to require grad": """
with torch.inference_mode():
    features = torch.ones(3) + 1  #<
features.requires_grad_(True)  #!""",
    "an array of what requires grad": """
scaled = weight * 3  #<
scaled.numpy()  #!""",
    "an array of what requires grad, by NumPy": """
scaled = weight * 3  #<
numpy.asarray(scaled)  #!""",
    "an array of a conjugate": """
waves = torch.tensor([1j, 2.0]).conj()  #<
waves.numpy()  #!""",
    "an array read backwards": """
values = numpy.arange(4.0)[::-1]  #<
torch.from_numpy(values)  #!""",
    "DLPack of what requires grad": """
scaled = weight * 3  #<
torch.from_dlpack(scaled)  #!""",
    "a copy of what has a graph": """
scaled = weight * 3  #<
copy.deepcopy(scaled)  #!""",
    "a module that holds what has a graph": """
layer.kept = layer.weight + 1  #<
copy.deepcopy(layer)  #!""",
    "a loss that was detached": """
loss = (weight * 3).detach().sum()  #<
loss.backward()  #!""",
    "a loss under no_grad": """
with torch.no_grad():
    loss = (weight * 3).sum()  #<
loss.backward()  #!""",
    "a loss that was a number": """
loss = torch.tensor((weight * 3).sum().item())  #<
loss.backward()  #!""",
    "a loss of places": """
loss = (weight * 3).argmax().float()  #<
loss.backward()  #!""",
    "a loss of frozen parameters": """
layer.requires_grad_(False)  #<
loss = layer(torch.ones(2, 3)).sum()
loss.backward()  #!""",
    "a gradient without a graph": """
energy = (weight ** 3).sum()
slope = torch.autograd.grad(energy, weight)[0]  #<
slope.pow(2).sum().backward()  #!""",
    "a gradient of what the loss has not": """
aside = torch.ones(3, requires_grad=True)  #<
torch.autograd.grad((weight * 3).sum(), aside)  #!""",
    "a gradient of what requires none": """
aside = torch.ones(3)  #<
torch.autograd.grad((weight * aside).sum(), aside)  #!""",
    "a loss of several numbers": """
losses = weight * 3  #<
losses.backward()  #!""",
    "a hook on what requires no grad": """
features = torch.ones(3)  #<
features.register_hook(print)  #!""",
    "a gradient kept of what requires none": """
features = (weight * 3).detach()  #<
features.retain_grad()  #!""",
    "a flag of what has a graph": """
scaled = weight * 3  #<
scaled.requires_grad = False  #!""",
    "whole numbers that are to require grad": """
steps = torch.arange(3)  #<
steps.requires_grad_()  #!""",
    "an optimizer of what has a graph": """
moved = torch.ones(3, requires_grad=True).double()  #<
torch.optim.Adam([moved])  #!""",
    "the gradient of what is no leaf": """
scaled = weight * 3  #<
scaled.sum().backward()
scaled.grad.zero_()  #!""",
    "a gradient before any backward": "weight.grad.zero_()  #!",
    "a gradient of another shape": "weight.grad = torch.ones(2)  #!",
    "a parameter that is a result": "layer.weight = layer.weight * 2  #!",
    "a view of what is not contiguous": """
turned = torch.ones(2, 3).t()  #<
turned.view(6)  #!""",
    "a resize of what requires grad": """
scaled = weight * 3  #<
scaled.resize_(6)  #!""",
    "overlapping operands": """
row = torch.arange(4.0)
torch.add(row[1:], 1, out=row[:-1])  #!""",
}

START = """\
import copy
import numpy
import torch

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad

net, layer = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
weight = torch.ones(3, requires_grad=True)
other = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
TRAINING = """\
opt.zero_grad()
net(torch.ones(2, 3)).sum().backward()
opt.step()
"""
PLACES = {
    "at the top": "{body}\n",
    "in a function": "def work(weight, other, layer):\n{inside}\nwork(weight, other, layer)\n",
    "in a loop": "for turn in range(2):\n{inside}\n",
    "in a forward": """\
class Model(torch.nn.Module):
    def forward(self, weight, other, layer):
{deeper}
Model()(weight, other, layer)
""",
    "in a closure": """\
def closure():
{inside}
    return weight.sum()
torch.optim.SGD([other], lr=0.1).step(closure)
""",
    "in a thread": """\
def work():
{inside}
import threading
thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    "swallowed": "try:\n{inside}\nexcept Exception:\n    pass\n",
}
OF_PYTHON = {"a gradient before any backward", "a parameter that is a result"}
"""Errors that no call of PyTorch's raises: they are heard where they end the recording."""

CASES = [
    (error, place)
    for number, error in enumerate(ERRORS)
    for place in (PLACES if LONG else [list(PLACES)[number % len(PLACES)]])
    if error not in OF_PYTHON or place not in ("swallowed", "in a thread")
]


@pytest.mark.parametrize(("error", "place"), CASES)
def test_an_error_names_what_led_to_it(error, place, tmp_path):
    body = ERRORS[error].strip()
    inside = {"inside": textwrap.indent(body, " " * 4), "deeper": textwrap.indent(body, " " * 8)}
    text = START + PLACES[place].format(body=body, **inside) + TRAINING
    path = tmp_path / "program.py"
    path.write_text(text)
    linecache.checkcache(str(path))
    refused, hook = [], threading.excepthook
    threading.excepthook = lambda given: refused.append(given.exc_value)
    try:
        with warnings.catch_warnings(), tether.record() as made:
            warnings.simplefilter("ignore")
            exec(compile(text, str(path), "exec"), {"__name__": "program"})
    except Exception as caught:
        refused.append(caught)
    finally:
        threading.excepthook = hook
        torch.set_grad_enabled(True)
    assert refused or place == "swallowed", "PyTorch refuses nothing"
    led, raised = marked(text, "#<"), marked(text, "#!")
    told = [lines_of(one) for one in made.findings]
    assert any((led or raised) <= lines for lines in told), [one.message for one in made.findings]
    claims = [one for one in made.findings if one.severity != "note"]
    if refused and place != "in a thread":  # else the model is trained afterwards
        assert not [one.message for one in claims if one.subject.startswith("net")]


def marked(text: str, mark: str) -> set[int]:
    """Return the lines that have a mark."""
    return {number for number, line in enumerate(text.splitlines(), 1) if mark in line}
