"""Needless copies that cost next to nothing are listed, and no note speaks of them."""

import pytest

from programs import record_program

SMALL = {
    "a number cast there and back": """\
t = torch.tensor(0.5)
for _ in range(6):
    print(t.double().float() + x.sum())
""",
    "a number cloned to be printed": """\
t = x.mean()
for _ in range(6):
    told = t.clone()
    print(told.item(), t.item())
""",
    "a few numbers joined and taken apart": """\
for _ in range(6):
    a, b, c = torch.stack([x[0, 0], x[1, 1], x[7, 2]])
    print(a * b * c)
""",
    "what a distribution copies for itself": """\
from torch.distributions import MultivariateNormal
flow = MultivariateNormal(torch.zeros(2), torch.eye(2))
for _ in range(4):
    print(flow.log_prob(x[:, :2]).sum())
""",
}
TOLD = {
    "a matrix cloned to be read": "    print((x.clone() @ x.t()).sum())  #!\n",
    "a row cloned to be read": "    print((x[0].clone() * 2).sum())  #!\n",
    "a number cloned very often": """\
    for _ in range(2000):
        told = x[0, 0].clone()  #!
        told.item()
""",
    "large parts joined": """\
    a, b = torch.stack([x, x + 1])  #!
    print((a * b).sum())
""",
}
START = "import torch\n\ntorch.manual_seed(0)\nx = torch.rand(100, 40)\n"


def lines(text, folder):
    found = record_program(START + text, folder).findings
    return [one.site.line for one in found if one.slug == "needless-copy"]


@pytest.mark.parametrize("case", SMALL)
def test_what_costs_nothing_is_no_note(case, tmp_path):
    assert lines(SMALL[case], tmp_path) == []


@pytest.mark.parametrize("case", TOLD)
def test_what_costs_is_one(case, tmp_path):
    text = f"for _ in range(2):\n{TOLD[case]}"
    marked = [n for n, line in enumerate((START + text).splitlines(), 1) if line.endswith("#!")]
    assert lines(text, tmp_path) == marked
