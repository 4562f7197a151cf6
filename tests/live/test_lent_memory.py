"""Weights put aside while others are read in their place, and look-alikes that need the copies."""

import pytest

from programs import record_program

PROGRAM = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 300), nn.BatchNorm1d(300), nn.Linear(300, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = copy.deepcopy(model.state_dict())
parameters = list(model.parameters())
means = [p.detach().clone() for p in parameters]
x, kept = torch.randn(32, 64), []

{evaluate}

for step in range(6):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
    with torch.no_grad():
        for name, one in model.state_dict().items():
            average[name].copy_(0.9 * average[name] + 0.1 * one)
        for one, p in zip(means, parameters):
            one.lerp_(p, 0.1)
    model.eval()
    print(evaluate())
    model.train()
print(kept)
"""

LENT = {
    "a state, deep-copied": """
        def evaluate():
            backup = copy.deepcopy(model.state_dict())  #!
            model.load_state_dict(average)
            with torch.no_grad():
                score = model(x).pow(2).mean().item()
            model.load_state_dict(backup)
            return score
        """,
    "parameters, cloned one by one": """
        @torch.no_grad()
        def evaluate():
            backup = [p.clone() for p in parameters]  #!
            for p, one in zip(parameters, means):
                p.copy_(one)
            score = model(x).pow(2).mean().item()
            for p, one in zip(parameters, backup):
                p.copy_(one)
            return score
        """,
    "parameters, by way of their data": """
        def evaluate():
            backup = [p.data.clone() for p in parameters]  #!
            for p, one in zip(parameters, means):
                p.data.copy_(one)
            with torch.no_grad():
                score = model(x).pow(2).mean().item()
            for p, one in zip(parameters, backup):
                p.data.copy_(one)
            return score
        """,
    "several values, one after the other": """
        def evaluate():
            backup = copy.deepcopy(model.state_dict())  #!
            scores = []
            for values in (average, {name: 0 * one for name, one in average.items()}):
                model.load_state_dict(values)
                with torch.no_grad():
                    scores.append(model(x).pow(2).mean().item())
            model.load_state_dict(backup)
            return scores
        """,
    "a table that no module holds": """
        table, other = torch.randn(300, 300), torch.randn(300, 300)
        def evaluate():
            saved = table.clone()  #!
            table.copy_(other)
            score = (x[:, :1] * table[0]).sum().item()
            table.copy_(saved)
            return score + table.sum().item()
        """,
}

QUIET = {
    "trained from there, and put back": """
        def evaluate():
            backup = copy.deepcopy(model.state_dict())
            model.load_state_dict(average)
            probe = torch.optim.SGD(model.parameters(), lr=0.01)
            model(x).pow(2).mean().backward()
            probe.step()
            model.load_state_dict(backup)
        """,
    "moved a little, and put back": """
        @torch.no_grad()
        def evaluate():
            backup = [p.clone() for p in parameters]
            for p in parameters:
                p.add_(0.01)
            score = model(x).pow(2).mean().item()
            for p, one in zip(parameters, backup):
                p.copy_(one)
            return score
        """,
    "statistics that the forward pass moves": """
        def evaluate():
            backup = copy.deepcopy(model.state_dict())
            model.load_state_dict(average)
            model.train()
            with torch.no_grad():
                score = model(x).pow(2).mean().item()
            model.load_state_dict(backup)
            return score
        """,
    "gradients of other values": """
        def evaluate():
            backup = copy.deepcopy(model.state_dict())
            model.load_state_dict(average)
            score = model(x).pow(2).mean()
            slopes = torch.autograd.grad(score, parameters)
            model.load_state_dict(backup)
            return sum(one.sum().item() for one in slopes)
        """,
    "the other values move while they stand in": """
        def evaluate():
            backup = copy.deepcopy(model.state_dict())
            model.load_state_dict(average)
            with torch.no_grad():
                for one in average.values():
                    one.mul_(2)
                score = model(x).pow(2).mean().item()
            model.load_state_dict(backup)
            return score
        """,
    "values that are compared with those put aside": """
        def evaluate():
            backup = copy.deepcopy(model.state_dict())
            model.load_state_dict(average)
            with torch.no_grad():
                score = model(x).pow(2).mean().item()
                score += sum((a - b).abs().sum().item()
                             for a, b in zip(backup.values(), model.state_dict().values()))
            model.load_state_dict(backup)
            return score
        """,
    "put back in some runs only": """
        def evaluate():
            backup = copy.deepcopy(model.state_dict())
            model.load_state_dict(average)
            with torch.no_grad():
                score = model(x).pow(2).mean().item()
            if len(kept) % 2:
                model.load_state_dict(backup)
            kept.append(score)
            return score
        """,
    "an array of what stands in, that is kept": """
        def evaluate():
            backup = copy.deepcopy(model.state_dict())
            model.load_state_dict(average)
            with torch.no_grad():
                score = model(x).pow(2).mean().item()
            kept.append(parameters[0].detach().numpy())
            model.load_state_dict(backup)
            return score + kept[0].sum()
        """,
    "seldom": """
        def evaluate():
            if step % 4:
                return 0.0
            backup = copy.deepcopy(model.state_dict())
            model.load_state_dict(average)
            with torch.no_grad():
                score = model(x).pow(2).mean().item()
            model.load_state_dict(backup)
            return score
        """,
}


def program(evaluate: str) -> str:
    import textwrap

    return PROGRAM.format(evaluate=textwrap.dedent(evaluate).strip())


def lines_told(text: str, folder) -> list[int]:
    """Return the lines of which it is told that values stand in for others."""
    recording = record_program(text, folder)
    assert recording.error is None
    return [
        one.site.line
        for one in recording.findings
        if one.slug == "slow-copy" and "put back" in one.message
    ]


@pytest.mark.parametrize("name", LENT)
def test_values_that_stand_in_are_read_where_they_are(name, tmp_path):
    text = program(LENT[name])
    (line,) = (number for number, one in enumerate(text.splitlines(), 1) if "#!" in one)
    assert lines_told(text, tmp_path) == [line]


@pytest.mark.parametrize("name", QUIET)
def test_values_that_have_to_be_put_aside(name, tmp_path):
    assert not lines_told(program(QUIET[name]), tmp_path)
