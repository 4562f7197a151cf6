"""Assignments to an index write what it names, and change what shows that and nothing else."""

import numpy as np
import pytest
import torch

from programs import record_program
from tether.analysis.ties import Ties
from tether.record.values.indexed import region_of

PROGRAM = """\
import torch

board, kept = torch.zeros(8, 4), []
for n in range(8):
    board[WHERE] = torch.randn(SHAPE)
    kept.append(board[n])
print(torch.stack(kept).sum())
"""


@pytest.mark.parametrize(
    ("where", "shape", "ties"),
    [("n", "4", 0), ("n, 1:3", "2", 0), (":, 1:3", "8, 2", 1), ("...", "8, 4", 1), ("-1", "4", 0)],
)
def test_a_row_that_was_kept_is_changed_by_writes_to_it_alone(where, shape, ties, tmp_path):
    recording = record_program(PROGRAM.replace("WHERE", where).replace("SHAPE", shape), tmp_path)
    assert len(recording.history.get(Ties).found) == ties


KEYS = [
    2, -1, (1, 2), (0, -2, 1), slice(1, 3), slice(None, None, 2), (slice(None), 2), ...,
    (..., 1), (1, ...), (slice(-2, None), ..., slice(0, 1)), (1, ..., 0), (), slice(3, 1), None,
    (0, None), (None, slice(1, 3), None, 2), (..., None),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_the_region_of_an_index_is_that_of_the_view(key):
    tensor = torch.arange(4 * 3 * 5.0).reshape(5, 4, 3).permute(1, 2, 0)[:, :, 1:]
    offset, shape, strides = region_of(tensor, key)
    view = tensor[key]
    assert (offset, shape) == (view.storage_offset(), tuple(view.shape))
    shown = torch.as_strided(torch.arange(60.0), shape, strides, offset)
    assert torch.equal(shown, view)


@pytest.mark.parametrize("key", [True, [0, 1], torch.tensor(1), np.int64(1)], ids=str)
def test_an_index_of_another_kind_is_not_looked_into(key):
    assert region_of(torch.zeros(4, 3), key) is None
