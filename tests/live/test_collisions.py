"""Values that an index lost: it is read again as PyTorch wrote through it."""

import random

import numpy as np
import pytest
import torch

from programs import record_program
from tether.record.values.collisions import _numbers

PARTS = {
    "slice": lambda size: slice(None),
    "step": lambda size: slice(0, None, 2),
    "new": lambda size: None,
    "rest": lambda size: ...,
    "list": lambda size: [0, 1],
    "number": lambda size: 1,
    "mask": lambda size: torch.rand(size) > 0.5,
    "one": lambda size: torch.tensor(1),
    "row": lambda size: torch.randint(0, 2, (3,)),
    "table": lambda size: torch.randint(0, 2, (2, 3)),
}


def test_an_index_means_to_numpy_what_it_means_to_pytorch():
    draw, read = random.Random(7), 0
    torch.manual_seed(7)
    for _ in range(6_000):
        shape = [draw.choice([2, 3]) for _ in range(draw.randint(1, 4))]
        x = torch.arange(float(np.prod(shape))).reshape(shape)
        kinds = [draw.choice(list(PARTS)) for _ in range(draw.randint(1, len(shape) + 1))]
        if kinds.count("rest") > 1:
            continue  # NumPy refuses it
        key = tuple(PARTS[kind](draw.choice(shape)) for kind in kinds)
        try:
            wanted = x[key].numpy()
        except (IndexError, ValueError):
            continue
        found = _numbers(key)
        if found is not None:
            read += 1
            assert np.array_equal(x.numpy()[found], wanted), kinds
    assert read > 500


@pytest.mark.parametrize(
    ("write", "lost"),
    [
        ("x[i] = v", (1, 3)),
        ("x[..., i] = v", (3, 9)),
        ("x[:, i] += v", (3, 9)),
        ("x[[0, 0, 2]] = torch.eye(3)", (2, 9)),
        ("x.index_copy_(0, i, torch.eye(3))", (2, 9)),
        ("x.index_put_((i, i), v)", (1, 3)),
        ("x[:] = torch.arange(9.0).view(3, 3); x[:, 1:] = x[:, :-1]", (3, 6)),
        ("x[:] = torch.arange(9.0).view(3, 3); x[:, :-1] = x[:, 1:]", None),
        ("x[:] = torch.arange(9.0).view(3, 3); x[:, 1:] = x[:, :-1].clone()", None),
        ("x[0] = x[1]; x[:, [0, 1]] = x[:, [1, 0]]", None),
        ("x.scatter_(0, i[None], v[None])", None),
        ("x.index_put_((i, i), v, accumulate=True)", None),
        ("x[0, :, None] = v[:, None]", None),
        ("x[i] = 1.0", None),
        ("x[i] = torch.ones(3)", None),
        ("x[x > 0] = 2", None),
        (
            "torch.zeros(2, 3, 3)[0, :, torch.tensor([1, 0, 2])] = torch.arange(9.0).view(3, 3)",
            None,
        ),
    ],
)
def test_what_is_lost_is_counted(write, lost, tmp_path):
    start = (
        "import torch\nx, i, v = torch.zeros(3, 3), torch.tensor([0, 0, 2]), torch.arange(1.0, 4)\n"
    )
    if write == "x[i] = v":
        start += "x = x[0]\n"
    found = record_program(start + write, tmp_path).trace.collisions
    assert [(one.lost, one.given) for one in found] == ([] if lost is None else [lost])


def test_values_of_a_write_that_was_refused_are_not_compared_with_those_of_the_next(tmp_path):
    program = """
import torch
x, y, v = torch.zeros(3, 3), torch.arange(9.0).view(3, 3), torch.tensor([5.0, 6.0, 7.0])
try:
    y[:, 1:] = y[0]
except RuntimeError:
    x[0] = v
"""
    assert record_program(program, tmp_path).trace.collisions == []
