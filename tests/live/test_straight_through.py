"""Straight-through estimators that hand no gradient on, those with their values changed, right ones.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

QUANTIZED = """\
import torch
from torch import nn

torch.manual_seed(0)
enc, dec, codes = nn.Linear(4, 3), nn.Linear(3, 4), nn.Embedding(5, 3)
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *codes.parameters()], 1e-2)


def quantize(z):
    with torch.no_grad():
        index = torch.cdist(z, codes.weight).argmin(1)
    q = codes(index)
    fit = (z - q.detach()).pow(2).mean() + (q - z.detach()).pow(2).mean()
    out = {way}
    return out, fit


for x in torch.randn(4, 16, 4):
    h = enc(x)
    q, fit = quantize(h)
    loss = (dec(q) - x).pow(2).mean() + fit
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

WRONG = {
    "cut as a whole": "(z + (q - z)).detach()",
    "with all of its graph": "z + (q - z)",
    "the difference first, with all of its graph": "(q - z) + z",
    "both parts cut": "z.detach() + (q - z).detach()",
    "the added one cut": "z.detach() + (q - z)",
}

RIGHT = {
    "the difference cut": "z + (q - z).detach()",
    "the difference cut, and first": "(q - z).detach() + z",
    "by data": "z + (q - z).data",
    "half the way, by hand": "torch.add(z, q - z, alpha=0.5)",
    "half the way": "z + 0.5 * (q - z)",
}


@pytest.mark.parametrize("way", WRONG.values(), ids=WRONG)
def test_no_gradient_comes_back_to_what_is_added_and_taken_away(way, tmp_path):
    check_program(QUANTIZED.format(way=f"{way}  #! gradient-lost h"), tmp_path)


def test_of_values_that_have_changed_places_a_note_tells(tmp_path):
    check_program(
        QUANTIZED.format(way="q + (z - q).detach()  #! gradient-lost h, q (note)"), tmp_path
    )


@pytest.mark.parametrize("way", RIGHT.values(), ids=RIGHT)
def test_of_right_estimators_nothing_is_said(way, tmp_path):
    check_program(QUANTIZED.format(way=way), tmp_path)


def test_a_gradient_that_is_scaled_keeps_its_values(tmp_path):
    check_program(QUANTIZED.format(way="0.1 * z + (z - 0.1 * z).detach() + 0 * q"), tmp_path)


def test_what_has_no_gradient_to_lose_may_be_added_and_taken_away(tmp_path):
    text = QUANTIZED.format(way="mean + (q - mean)")
    check_program(text.replace("(z):", "(z, mean=torch.ones(1, 3)):"), tmp_path)
