"""A second name that was to keep old values, and second names that are meant."""

import pytest

from programs import check_program

START = """\
import torch

torch.manual_seed(0)
net = torch.nn.Linear(6, 6)
kept = []


"""

FOUND = {
    "labels of a masked batch": """\
def collate(rows):
    ids = torch.stack(rows)
    labels = ids  #! alias-write labels
    ids[torch.rand(ids.shape) < 0.4] = -1
    return {"ids": ids, "labels": labels}

for _ in range(3):
    batch = collate([torch.randint(0, 9, (6,)) for _ in range(4)])
    print((net(batch["ids"].float()) - batch["labels"]).pow(2).mean().item())
""",
    "a residual whose input is scaled in place": """\
def block(x):
    skip = x  #! alias-write skip
    x *= 0.5
    return net(x) + skip

with torch.no_grad():
    print(block(torch.randn(2, 6)).sum())
""",
    "the state before a step, handed out beside the state": """\
def step(state, change):
    before = state  #! alias-write before
    if change is not None:
        state.add_(change)
    kept.append((before, state))

for _ in range(3):
    step(torch.randn(6), torch.ones(6))
print(sum((b.mean() - a.mean()).item() for a, b in kept))
""",
    "a state and a memory that are one tensor, in a list of each": """\
def turn(x, hidden, cell):
    cell.mul_(0.5).add_(x.tanh())  #! alias-write cell (note)
    torch.mul(cell.tanh(), x.sigmoid(), out=hidden)
    return hidden, cell

with torch.no_grad():
    hiddens = [net(torch.randn(2, 6))]
    cells = list(hiddens)
    for x in torch.randn(3, 2, 6):
        hiddens[0], cells[0] = turn(x, hiddens[0], cells[0])
    print(hiddens[0].norm(), cells[0].norm())
""",
    "a query that is scaled in place, and a key": """\
def attend(query, key, value):
    query *= key.shape[-1] ** -0.5  #! alias-write query (note)
    return (query @ key.mT).softmax(-1) @ value

with torch.no_grad():
    for x in torch.randn(3, 2, 6):
        h = net(x)
        print(attend(h, h, x).sum())
""",
    "a total that is logged beside its first term": """\
for _ in range(3):
    gap = net(torch.randn(2, 6)).pow(2).mean()
    total = gap  #! alias-write total (note)
    total += net.weight.pow(2).sum()
    total.backward()
    kept.append((total.item(), gap.item()))
print(kept)
""",
    "padding that is told of by the second name": """\
def targets(ids):
    labels = ids  #! alias-write labels (note)
    labels[labels == 0] = -100
    return ids, labels

ids, labels = targets(torch.randint(0, 3, (2, 6)))
print(net(ids.float()).sum(), labels.sum())
""",
}

RIGHT = {
    "a copy": """\
def collate(ids):
    labels = ids.clone()
    ids[ids > 5] = -1
    return ids, labels

ids, labels = collate(torch.randint(0, 9, (4, 6)))
print(ids.sum(), labels.sum())
""",
    "a shorter name for what is written and returned": """\
def scaled(activations):
    h = activations
    h *= 0.5
    h.clamp_(0)
    return h

print(scaled(torch.randn(6)).sum())
""",
    "the first name is not used any more": """\
def scaled(activations):
    h = activations
    activations *= 0.5
    return net(h)

with torch.no_grad():
    print(scaled(torch.randn(6)).sum())
""",
    "only the shape of the first name is asked for": """\
def flat(x):
    out = x
    x.clamp_(0)
    return out.view(x.shape[0], -1).sum()

print(flat(torch.randn(2, 6)))
""",
    "parameters that are two tensors": """\
def attend(query, key, value):
    query *= key.shape[-1] ** -0.5
    return (query @ key.mT).softmax(-1) @ value

with torch.no_grad():
    for x in torch.randn(3, 2, 6):
        h = net(x)
        print(attend(net(h), h, h).sum())
""",
    "a result that goes into the operand": """\
def clipped(values, out):
    torch.clamp(values, min=0, out=out)
    return out.sum()

with torch.no_grad():
    for x in torch.randn(3, 2, 6):
        h = net(x)
        print(clipped(h, h))
""",
    "a total that has one name": """\
for _ in range(3):
    total = net(torch.randn(2, 6)).pow(2).mean()
    gap = total.item()
    total += net.weight.pow(2).sum()
    total.backward()
    kept.append((total.item(), gap))
print(kept)
""",
    "the first name is given another tensor first": """\
def both(x):
    first = x
    x.mul_(2)
    x = net(x)
    return first, x

with torch.no_grad():
    first, x = both(torch.randn(2, 6))
    print(first.sum(), x.sum())
""",
    "the second name is given what was computed before the write": """\
def change(x):
    before = x
    before = net(before)
    x.mul_(2)
    return before, x

with torch.no_grad():
    before, x = change(torch.randn(2, 6))
    print(before.sum(), x.sum())
""",
    "a write out of place": """\
def change(x):
    before = x
    x = x * 2
    return before, x

before, x = change(torch.randn(2, 6))
print(before.sum(), x.sum())
""",
    "an accumulator that goes on by its name, kept as an attribute": """\
class Total:
    def __init__(self):
        self.sum = torch.zeros(6)

    def add(self, x):
        total = self.sum
        total += x
        return total

total = Total()
for _ in range(3):
    print(total.add(torch.ones(6)).sum(), total.sum.mean())
""",
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_a_second_name_that_shows_what_was_written(body, tmp_path):
    check_program(START + body, tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_of_second_names_that_are_meant_nothing_is_said(body, tmp_path):
    check_program(START + body, tmp_path)
