"""Functions that write into a view which they take of what they are handed; and look-alikes."""

import pytest

from programs import check_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
"""

BROKEN = {
    "the real part of a spectrum": """\
def magnitude(spectrum):
    real, imag = spectrum.real, spectrum.imag
    return real.pow_(2).add_(imag.pow(2)).sqrt()

def denoise(wave):
    spectrum = torch.fft.rfft(wave)
    size = magnitude(spectrum)  #! alias-write spectrum (note)
    return torch.fft.irfft(torch.polar(size.relu(), spectrum.angle()))

for _ in range(3):
    print(magnitude(torch.fft.rfft(torch.randn(8))).sum())
print(denoise(torch.randn(8)).sum())
""",
    "the columns of a table": """\
def spread(table):
    columns = table[:, 1:]
    columns -= columns.mean(0)
    return columns.square().mean().sqrt()

def scaled(table):
    size = spread(table)  #! alias-write table (note)
    return table / size

print(scaled(torch.randn(6, 3)).sum())
""",
}

RIGHT = {
    "the result takes its place": """\
def centred(table):
    columns = table[:, 1:]
    columns -= columns.mean(0)
    return table

def scaled(table):
    table = centred(table)
    return table / table.norm()

print(scaled(torch.randn(6, 3)).sum())
""",
    "called for what it writes": """\
def centre(table):
    columns = table[:, 1:]
    columns -= columns.mean(0)

def scaled(table):
    centre(table)
    return table / table.norm()

print(scaled(torch.randn(6, 3)).sum())
""",
    "a name that says so": """\
def centre_(table):
    columns = table[:, 1:]
    columns -= columns.mean(0)
    return columns.norm()

def scaled(table):
    size = centre_(table)
    return table / size

print(scaled(torch.randn(6, 3)).sum())
""",
    "a place that is filled with what is handed in": """\
def put(canvas, patch, row):
    place = canvas[row]
    place += patch
    return place.sum()

def drawn(canvas):
    total = put(canvas, torch.ones(3), 1)
    return canvas / total

print(drawn(torch.zeros(2, 3)).sum())
""",
    "read no more": """\
def spread(table):
    columns = table[:, 1:]
    columns -= columns.mean(0)
    return columns.square().mean().sqrt()

def size(table):
    found = spread(table)
    return found * 2

print(size(torch.randn(6, 3)))
""",
    "a copy of the columns": """\
def spread(table):
    columns = table[:, 1:].clone()
    columns -= columns.mean(0)
    return columns.square().mean().sqrt()

def scaled(table):
    size = spread(table)
    return table / size

print(scaled(torch.randn(6, 3)).sum())
""",
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_caller_reads_what_was_written(name, tmp_path):
    check_program(HEAD + BROKEN[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_of_others_nothing_is_said(name, tmp_path):
    assert not [one for one in check_program(HEAD + RIGHT[name], tmp_path).findings
                if one.slug == "alias-write"]  # fmt: skip
