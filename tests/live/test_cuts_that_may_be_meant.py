"""Parameters without a gradient that the program gives values of others, and switches left on.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

MOMENTUM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.mix = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, one, other):
        with torch.no_grad():{cut}
            other = self.key(other)
        return self.mix(self.query(one)) @ other.T

    def follow(self):
        for a, b in zip(self.query.parameters(), self.key.parameters()):
            b.data.mul_(0.9).add_(a.data, alpha=0.1)


model = Contrast()
opt = torch.optim.Adam(model.parameters())
for _ in range(6):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 4), torch.randn(8, 4)), torch.arange(8))
    opt.zero_grad()
    loss.backward()
    opt.step()
    {follow}
"""


def test_a_cut_is_a_note_where_the_program_gives_the_values_of_others(tmp_path):
    cut = "  #! gradient-cut model.key.weight (note)"
    found = check_program(MOMENTUM.format(cut=cut, follow="model.follow()"), tmp_path)
    assert found.findings[0].fix.text.startswith("Nothing, where that is meant")


def test_a_cut_is_a_warning_where_nothing_gives_the_parameters_values(tmp_path):
    cut = "  #! gradient-cut model.key.weight"
    check_program(MOMENTUM.format(cut=cut, follow="pass"), tmp_path)


FOLDS = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)


class Curve(nn.Module):
    def __init__(self):
        super().__init__()
        self.height = nn.Parameter(torch.ones(3))
        self.width = nn.Parameter(torch.ones(()))
        self.terms = [self.small, self.narrow]

    def small(self):
        return self.height.pow(2).sum() * self.width.exp()

    def narrow(self):
        return (self.width - 1).pow(2)

    def cost(self, x):
        return (x @ self.height - 1).pow(2).mean() + sum(term() for term in self.terms)


def fit(curve, x):
    opt = torch.optim.Adam(curve.parameters(), lr=0.05)
    for _ in range(5):
        opt.zero_grad()
        curve.cost(x).backward()
        opt.step()
    return curve


start = Curve()
fitted = []
for x in torch.randn(3, 8, 3):
    curve = fit(copy.deepcopy(start), x)
    fitted.append((curve, curve.cost(x).item()))
print([round(cost, 3) for _, cost in fitted], start.height.grad is None)
"""


def test_bound_methods_go_with_a_deep_copy(tmp_path):
    findings = record_program(FOLDS, tmp_path).findings
    assert [one.slug for one in findings if one.severity != "note"] == []
    assert "tie-lost" not in {one.slug for one in findings}


LEFT_ON = """\
import torch
from torch import nn

torch.manual_seed(0)
teacher, student, adapt = nn.Linear(4, 3), nn.Linear(4, 2), nn.Linear(2, 3)
opt = torch.optim.SGD([*student.parameters(), *adapt.parameters()], lr=0.1)


def answers(batches):
    for x in batches:
        with torch.no_grad():  #! gradient-cut adapt.weight
            yield teacher(x)


@torch.enable_grad()
def losses(x, source):
    h = student(x)
    size = h.pow(2).mean()
    target = next(source)
    return size, (adapt(h) - target).pow(2).mean()


batches = list(torch.randn(4, 8, 4))
source = answers(batches)
for x in batches:
    size, gap = losses(x, source)
    opt.zero_grad()
    (size + gap).backward()
    opt.step()
"""


def test_a_switch_in_a_generator_that_waits_is_named_by_its_own_line(tmp_path):
    recording = check_program(LEFT_ON, tmp_path)
    cut = next(one for one in recording.findings if one.slug == "gradient-cut")
    assert "before `answers` gives control back" in cut.fix.text


@pytest.mark.parametrize("ended", ["        yield told", "        del told\n        yield x"])
def test_nothing_is_said_where_the_block_has_ended(ended, tmp_path):
    text = LEFT_ON.replace("  #! gradient-cut adapt.weight", "")
    text = text.replace("            yield teacher(x)", f"            told = teacher(x)\n{ended}")
    text = text.replace("- target)", "- target.mean())")
    check_program(text, tmp_path)
