"""Arrays in several places that are met as the variables are looked through, beside a write.

The write has nothing to do with them: it is not said to change them. Nor does an assignment change
the array that it is given. Where the memory is an array's, and it lives on, it is said.
"""

import pytest

from programs import check_program, record_program
from tether.analysis.sharing.holding import Holding
from tether.analysis.ties import Ties

TIDES = """
import numpy as np
import torch

class Tides:
    def __init__(self, heights):
        self.heights = heights
        self.levels = torch.zeros(8)
        for hour in range(200):
            WRITE

tides = np.linspace(0.0, 3.0, 400)
gauge = tides
found = Tides(gauge)
print(found.levels.sum(), tides.sum(), gauge.max())
"""

APART = {
    "a tensor that counts": "self.levels[hour % 8] += 1",
    "a method in place": "self.levels.add_(1)",
    "numbers at an index": "self.levels[hour % 8] = hour",
    "a copy of its part": """
            if hour == 0:
                self.levels = torch.tensor(self.heights[:8])
            self.levels *= 0.5""",
    "a copy that another number format asks for": """
            if hour == 0:
                self.levels = torch.Tensor(self.heights[:8])
            self.levels.mul_(0.5)""",
    "what it is given": """
            self.heights[hour] += 1
            self.levels[:] = torch.from_numpy(self.heights[:8].astype(np.float32))""",
}


@pytest.mark.parametrize("write", APART.values(), ids=APART)
def test_arrays_that_are_met_are_not_what_was_written(write, tmp_path):
    recording = record_program(TIDES.replace("WRITE", write), tmp_path)
    history = recording.history
    arrays = [one for one in history.trace.holders if one.sought == "met"]
    assert {one.name for one in arrays} >= {"heights", "self.heights", "tides", "gauge"}
    assert not history.get(Holding).all
    assert not [one for one in recording.findings if one.slug == "alias-write"]
    shown = {name for one in history.get(Ties).found for name in one.shows}
    assert not shown & {one.name for one in arrays}


SHARED = {
    "the array itself": """
levels = torch.from_numpy(tides)  #! alias-write levels (note)
for hour in range(200):
    levels.add_(1)
print(tides.sum(), gauge.max(), levels.sum())
""",
    "a view of it": """
levels = torch.as_tensor(tides[:8])  #! alias-write levels (note)
for hour in range(200):
    levels[hour % 8] = 0
print(tides.sum(), gauge.max(), levels.sum())
""",
}


@pytest.mark.parametrize("text", SHARED.values(), ids=SHARED)
def test_an_array_that_was_written_is_named(text, tmp_path):
    text = TIDES.replace("WRITE", "self.levels.add_(1)").partition("found =")[0] + text
    recording = check_program(text, tmp_path)
    (note,) = [one for one in recording.findings if one.slug == "alias-write"]
    assert "is the memory of the array `tides`" in str(note.message)
