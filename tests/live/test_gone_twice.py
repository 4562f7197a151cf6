"""Iterators that a program goes through twice, and what looks like it."""

import pytest
import torch

import tether
from programs import record_program

BEGIN = """\
import itertools
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
xs, ys = torch.randn(3, 4, 3), torch.randn(3, 4, 1)

def loss_of(x, y):
    return (net(x) - y).pow(2).mean()
"""

TRAIN = """
for step in range(4):
    opt.zero_grad()
    loss_of(xs[0], ys[0]).backward()
    CLIP
    opt.step()
"""

# Each line with "#!" goes through an iterator that gives nothing any more; "#? " is a note.
BROKEN = {
    "a norm, then a scaling": """
def grad_clipping(params, theta):
    norm = torch.sqrt(sum(torch.sum(p.grad ** 2) for p in params))
    if norm > theta:
        for p in params:  #!
            p.grad[:] *= theta / norm
""" + TRAIN.replace("CLIP", "grad_clipping(net.parameters(), 1e-3)"),
    "the norm in a loop, by numbers alone": """
def bounded(weights, most):
    total = 0.0
    for one in weights:
        total += one.grad.norm().item() ** 2
    scale = most / (total ** 0.5 + 1e-6)
    for one in weights:  #!
        one.grad.mul_(min(scale, 1.0))
""" + TRAIN.replace("CLIP", "bounded(net.parameters(), 0.01)"),
    "a condition on numbers is a note": """
def bounded(weights, most):
    total = 0.0
    for one in weights:
        total += one.grad.norm().item() ** 2
    if total > most:
        for one in weights:  #?
            one.grad.mul_(most / total)
""" + TRAIN.replace("CLIP", "bounded(net.parameters(), 1e-9)"),
    "a condition that another line shows to have been true": """
def bounded(weights, most):
    total = sum(one.grad.norm().item() for one in weights)
    if total > most:
        factor = torch.tensor(most / total)
        for one in weights:  #!
            one.grad.mul_(factor)
""" + TRAIN.replace("CLIP", "bounded(net.parameters(), 1e-9)"),
    "a method, given a filter": """
class Trainer:
    def limit(self, given):
        largest = max(one.grad.abs().max() for one in given)
        for one in given:  #!
            one.grad.div_(largest)

trainer = Trainer()
""" + TRAIN.replace("CLIP", "trainer.limit(filter(lambda one: one.requires_grad, net.parameters()))"),
    "pairs of names and parameters": """
def noisy(named, amount):
    found = {name: one.grad.std() for name, one in named}
    for name, one in named:  #!
        one.grad.add_(torch.randn_like(one.grad), alpha=amount * float(found[name]))
""" + TRAIN.replace("CLIP", "noisy(net.named_parameters(), 0.1)"),
    "a variable of the training loop": """
params = net.parameters()
for step in range(4):
    opt.zero_grad()
    penalty = sum(p.pow(2).sum() for p in params)  #!
    (loss_of(xs[0], ys[0]) + 0.1 * penalty).backward()
    opt.step()
""",
    "a helper that is given it at each step": """
def penalty(weights):
    total = torch.zeros(())
    for one in weights:  #!
        total = total + one.abs().sum()
    return total

weights = (one for one in net.parameters() if one.dim() > 1)
for step in range(4):
    opt.zero_grad()
    (loss_of(xs[0], ys[0]) + penalty(weights)).backward()
    opt.step()
""",
    "a function that reads a variable of the program": """
every = net.parameters()

def penalty():
    return sum(one.pow(2).sum() for one in every)  #!

for step in range(4):
    opt.zero_grad()
    (loss_of(xs[0], ys[0]) + penalty()).backward()
    opt.step()
""",
    "PyTorch's clipping at each step": """
params = net.parameters()
for step in range(4):
    opt.zero_grad()
    loss_of(xs[0], ys[0]).backward()
    nn.utils.clip_grad_norm_(params, 0.1)  #!
    opt.step()
""",
    "batches, in the first epoch only": """
batches = zip(xs, ys)
for epoch in range(3):
    for x, y in batches:  #!
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
""",
    "batches of a function, with an evaluation after each epoch": """
def train(batches, epochs):
    for epoch in epochs:
        net.train()
        for number, (x, y) in enumerate(batches):  #!
            opt.zero_grad()
            loss_of(x, y).backward()
            opt.step()
        with torch.no_grad():
            print(loss_of(xs[0], ys[0]).item())

train(map(lambda one: one, list(zip(xs, ys))), list(range(3)))
""",
    "the iterator of a loader": """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(xs, ys))
it = iter(loader)
for epoch in range(3):
    for x, y in it:  #!
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
""",
    "two losses of one iterator": """
params = net.parameters()
first = sum(one.pow(2).sum() for one in params)
second = sum(one.abs().sum() for one in params)  #!
(first + second).backward()
opt.step()
""",
    "an average that keeps the iterator": """
class Average:
    def __init__(self, parameters):
        self.parameters = parameters
        self.kept = [one.detach().clone() for one in parameters]

    def update(self):
        rate = torch.tensor(0.9)
        for one, kept in zip(self.parameters, self.kept):  #!
            kept.mul_(rate).add_(one.detach(), alpha=0.1)

average = Average(net.parameters())
""" + TRAIN.replace("CLIP", "average.update()"),
    "an attribute that is gone through at each call": """
class Limit:
    def __init__(self, net):
        self.weights = net.parameters()

    def __call__(self):
        return self.apply()

    def apply(self):
        for one in self.weights:  #!
            one.grad.clamp_(-0.01, 0.01)

limit = Limit(net)
for step in range(4):
    opt.zero_grad()
    loss_of(xs[0], ys[0]).backward()
    limit.apply()
    opt.step()
""",
    "with both in one expression": """
def ratio(weights):
    return sum(one.grad.norm() for one in weights) / (1 + sum(one.norm() for one in weights))  #!
""" + TRAIN.replace("CLIP", "print(float(ratio(net.parameters())))"),
    "a generator of the user's": """
def trained(net):
    for one in net.parameters():
        if one.requires_grad:
            yield one

def bounded(weights):
    norm = torch.stack([one.grad.norm() for one in weights]).norm()
    for one in weights:  #!
        one.grad.div_(norm)
""" + TRAIN.replace("CLIP", "bounded(trained(net))"),
}  # fmt: skip

BROKEN |= {
    "one function, called twice": """
def size(weights):
    return sum(one.pow(2).sum() for one in weights)

every = net.parameters()
before = size(every)
loss_of(xs[0], ys[0]).backward()
opt.step()
print(float(before), float(size(every)))  #!
""",
    "counted before they are frozen": """
weights = net[0].parameters()
print(sum(one.numel() for one in weights))
loss_of(xs[0], ys[0]).backward()
for one in weights:  #!
    one.requires_grad = False
opt.step()
""",
    "an average whose method calls nothing else": """
class Follower:
    def __init__(self, given):
        self.given = given
        self.kept = [one.detach().clone() for one in given]

    def follow(self):
        for one, kept in zip(self.given, self.kept):  #!
            kept.mul_(0.9).add_(one.detach(), alpha=0.1)

follower = Follower(net.parameters())
""" + TRAIN.replace("CLIP", "follower.follow()"),
    "a while loop": """
batches = enumerate(zip(xs, ys))
epoch = 0
while True:
    net.zero_grad()
    for number, (x, y) in batches:  #!
        loss_of(x, y).backward()
    opt.step()
    epoch += 1
    if epoch == 3:
        break
""",
}  # fmt: skip

CLIPPING = """
def grad_clipping(params, theta):
    BEFORE
    norm = torch.sqrt(sum(torch.sum(p.grad ** 2) for p in params))
    if norm > theta:
        for p in params:
            p.grad[:] *= theta / norm
""" + TRAIN.replace("CLIP", "grad_clipping(GIVEN, 1e-3)")  # fmt: skip

RIGHT = {
    "a list": CLIPPING.replace("GIVEN", "list(net.parameters())").replace("BEFORE", "pass"),
    "a list of an attribute": CLIPPING.replace("GIVEN", "opt.param_groups[0]['params']").replace("BEFORE", "pass"),
    "made a list of in the function": CLIPPING.replace("GIVEN", "net.parameters()").replace("BEFORE", "params = list(params)"),
    "made a list of where it is none": CLIPPING.replace("GIVEN", "net.parameters()").replace(
        "BEFORE", "if not isinstance(params, list): params = [*params]"),
    "a parameter list": CLIPPING.replace("GIVEN", "nn.ParameterList(net.parameters())").replace("BEFORE", "pass"),
    "a class whose objects begin anew": """
class Every:
    def __init__(self, net):
        self.net = net

    def __iter__(self):
        return self.net.parameters()
""" + CLIPPING.replace("GIVEN", "Every(net)").replace("BEFORE", "pass"),
    "a method of the user's that gives a list": """
class Net(nn.Linear):
    def parameters(self, recurse=True):
        return list(super().parameters(recurse))

net = Net(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
""" + CLIPPING.replace("GIVEN", "net.parameters()").replace("BEFORE", "pass"),
    "asked for anew at each step": TRAIN.replace(
        "CLIP", "params = net.parameters(); print(float(sum(p.grad.norm() for p in params)))"),
    "a copy by tee": """
def bounded(weights):
    weights, again = itertools.tee(weights)
    norm = torch.stack([one.grad.norm() for one in weights]).norm()
    for one in again:
        one.grad.div_(norm)
""" + TRAIN.replace("CLIP", "bounded(net.parameters())"),
    "a search, and then the rest": """
def first_and_rest(weights):
    for one in weights:
        if one.grad is not None:
            break
    for other in weights:
        other.grad.clamp_(-0.1, 0.1)
""" + TRAIN.replace("CLIP", "first_and_rest(net.parameters())"),
    "a search that finds nothing": """
def first_and_rest(weights):
    for one in weights:
        if one.grad.dim() > 5:
            break
    for other in weights:
        other.grad.clamp_(-0.1, 0.1)
""" + TRAIN.replace("CLIP", "first_and_rest(list(net.parameters()))"),
    "one way or the other": """
def bounded(weights, by_norm):
    if by_norm:
        for one in weights:
            one.grad.div_(one.grad.norm())
    else:
        for one in weights:
            one.grad.clamp_(-0.1, 0.1)
""" + TRAIN.replace("CLIP", "bounded(net.parameters(), True)"),
    "one way that returns": """
def bounded(weights, by_norm):
    if by_norm:
        for one in weights:
            one.grad.div_(one.grad.norm())
        return
    for one in weights:
        one.grad.clamp_(-0.1, 0.1)
""" + TRAIN.replace("CLIP", "bounded(net.parameters(), True)"),
    "another way where it is no list": """
def bounded(weights):
    norm = sum(one.grad.norm() for one in weights)
    if isinstance(weights, list):
        for one in weights:
            one.grad.div_(norm)
""" + TRAIN.replace("CLIP", "bounded(net.parameters())"),
    "an average that keeps a list": """
class Average:
    def __init__(self, parameters):
        parameters = list(parameters)
        self.parameters = parameters
        self.kept = [one.detach().clone() for one in parameters]

    def update(self):
        for one, kept in zip(self.parameters, self.kept):
            kept.mul_(0.9).add_(one.detach(), alpha=0.1)

average = Average(net.parameters())
""" + TRAIN.replace("CLIP", "average.update()"),
    "an average that is given them at each step": """
class Average:
    def __init__(self, parameters):
        self.kept = [one.detach().clone() for one in parameters]

    def update(self, parameters):
        for one, kept in zip(parameters, self.kept):
            kept.mul_(0.9).add_(one.detach(), alpha=0.1)

average = Average(net.parameters())
""" + TRAIN.replace("CLIP", "average.update(net.parameters())"),
    "an average that is never updated": """
class Average:
    def __init__(self, parameters):
        self.parameters = parameters
        self.kept = [one.detach().clone() for one in parameters]

    def update(self):
        for one, kept in zip(self.parameters, self.kept):
            kept.mul_(0.9).add_(one.detach(), alpha=0.1)

average = Average(net.parameters())
""" + TRAIN.replace("CLIP", "pass"),
    "a sum that is shown at some calls": """
def bounded(weights, show):
    if show:
        print(sum(float(one.grad.norm()) for one in weights))
    for one in weights:
        one.grad.clamp_(-0.1, 0.1)
""" + TRAIN.replace("CLIP", "bounded(net.parameters() if step else list(net.parameters()), step == 0)"),
    "a name of two functions": """
def norm_of(params):
    return torch.stack([one.grad.norm() for one in params]).norm()

def divided(params, norm):
    for one in params:
        one.grad.div_(norm)
""" + TRAIN.replace("CLIP", "divided(net.parameters(), norm_of(net.parameters()))"),
    "batches taken one by one": """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(xs, ys))
it = iter(loader)
for step in range(7):
    try:
        x, y = next(it)
    except StopIteration:
        it = iter(loader)
        x, y = next(it)
    opt.zero_grad()
    loss_of(x, y).backward()
    opt.step()
""",
    "the first by next, the others in a loop": """
batches = zip(xs, ys)
x, y = next(batches)
loss_of(x, y).backward()
for x, y in batches:
    loss_of(x, y).backward()
opt.step()
""",
    "a loader, in each epoch": """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(xs, ys))
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
    print(loss_of(xs[0], ys[0]).item())
""",
    "batches made in each epoch": """
for epoch in range(3):
    batches = zip(xs, ys)
    for x, y in batches:
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
    print(loss_of(xs[0], ys[0]).item())
""",
    "a zip that is gone through once": """
pairs = zip(net.parameters(), [one.detach().clone() for one in net.parameters()])
far = sum((one - old).pow(2).sum() for one, old in pairs)
(loss_of(xs[0], ys[0]) + far).backward()
opt.step()
""",
    "some batches of an endless stream in each epoch": """
stream = itertools.cycle(zip(xs, ys))
for epoch in range(3):
    for x, y in itertools.islice(stream, 2):
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
    print(loss_of(xs[0], ys[0]).item())
""",
    "a part of the batches in each epoch": """
batches = iter([*zip(xs, ys)] * 2)
for epoch in range(3):
    for number, (x, y) in enumerate(batches):
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
        if number == 1:
            break
    print(loss_of(xs[0], ys[0]).item())
""",
    "one epoch": """
batches = zip(xs, ys)
for epoch in range(1):
    for x, y in batches:
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
    print(loss_of(xs[0], ys[0]).item())
""",
    "batches in pairs": """
batches = iter(xs)
for one, other in zip(batches, batches):
    loss_of(one, ys[0]).backward()
opt.step()
""",
    "a loop in a loop that shares its iterator": """
batches = zip(xs, ys)
for x, y in batches:
    loss_of(x, y).backward()
    for other, wanted in batches:
        loss_of(other, wanted).backward()
opt.step()
""",
    "a reading under a condition that never holds": """
def bounded(weights, verbose=False):
    total = sum(one.grad.norm() for one in weights)
    if verbose:
        print([one.shape for one in weights])
    return total
""" + TRAIN.replace("CLIP", "bounded(net.parameters())"),
    "a generator that the caller drives": """
def stages(items):
    for one in items:
        yield one

batches = stages(zip(xs, ys))
for x, y in batches:
    loss_of(x, y).backward()
opt.step()
for x, y in stages(zip(xs, ys)):
    print(loss_of(x, y).item())
""",
    "a function that is called once with a list and once not": """
def total(weights):
    return sum(one.pow(2).sum() for one in weights)

every = list(net.parameters())
for step in range(3):
    opt.zero_grad()
    (loss_of(xs[0], ys[0]) + total(every)).backward()
    opt.step()
print(total(net.parameters()).item())
""",
}  # fmt: skip


def _told(text, tmp_path):
    recording = record_program(text, tmp_path)
    assert recording.error is None
    return recording.findings, sorted(
        (one.site.line, one.severity)
        for one in recording.findings
        if one.slug == "gradient-discarded" and "terator" in one.message
    )


def _expected(text):
    marks = {"#!": "warning", "#?": "note"}
    lines = enumerate(text.splitlines(), 1)
    return [(number, marks[line[-2:]]) for number, line in lines if line[-2:] in marks]


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_gone_through_again_is_found(name, tmp_path):
    text = BEGIN + BROKEN[name]
    findings, told = _told(text, tmp_path)
    assert told == _expected(text), [(one.site.line, one.message) for one in findings]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_gone_through_once_is_not(name, tmp_path):
    findings, told = _told(BEGIN + RIGHT[name], tmp_path)
    assert not told, [(one.site.line, one.message) for one in findings]


def test_the_parameters_that_it_gave_are_named(tmp_path):
    findings, _ = _told(BEGIN + BROKEN["a norm, then a scaling"], tmp_path)
    (found,) = [one for one in findings if one.slug == "gradient-discarded"]
    assert found.subject == "params"
    assert set(found.also) == {f"net.{at}.{part}" for at in (0, 2) for part in ("weight", "bias")}
    assert found.message == (
        "`params` is an iterator (`net.parameters()`, line 22): line 14 has gone through it, and"
        " line 16 finds nothing left."
    )


def test_what_comes_after_a_recording_is_not_known():
    net = torch.nn.Linear(3, 1)
    weights = net.parameters()
    with tether.record() as recording:
        total = sum(one.abs().sum() for one in weights) + 1
    for one in weights:
        one.data.div_(total)
    assert all(one.severity == "note" for one in recording.findings)


def test_letters_of_any_alphabet_count_as_one(tmp_path):
    text = """
def begrenzt(größen):
    große = sum(größe.grad.norm() for größe in größen); für = 1 / große
    for größe in größen:  #!
        größe.grad.mul_(für)
""" + TRAIN.replace("CLIP", "begrenzt(net.parameters())")
    _, told = _told(BEGIN + text, tmp_path)
    assert told == _expected(BEGIN + text)
