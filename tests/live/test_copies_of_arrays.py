"""Copies of arrays: needless where the array goes first, however few of them could be looked at."""

import dataclasses

import pytest

from programs import record_program
from tether.report.recording import Recording

ITEMS = """\
import numpy as np
import torch

raw = np.random.default_rng(0).integers(0, 255, (200, 64, 64), dtype=np.uint8)
kept = []

def item(number):
    scaled = raw[number].astype(np.float32) / 255
    {made}

total = 0.0
for number in range({runs}):
    total += float(item(number).sum())
print(total, len(kept))
"""
PLAIN = "return torch.tensor(scaled)"

MADE = {
    "an array that nobody keeps": (PLAIN, "no", ""),
    "the same, laid out in another way": ("return torch.tensor(scaled).t()", "no", ""),
    "of a dimension that NumPy adds": ("return torch.tensor(scaled[None])", "no", ""),
    "of a dimension that NumPy adds behind": (
        "planes = np.expand_dims(scaled, -1); kept.append(planes); return torch.tensor(planes)",
        "no", "",
    ),
    "of two that NumPy adds": (
        "return torch.tensor(scaled[np.newaxis, :, None])", "no", "",
    ),
    "of a dimension that NumPy adds, and written afterwards": (
        "made = torch.tensor(scaled[None]); scaled[5] = 0; kept.append(scaled.sum()); return made",
        "yes", "the array that it was made of was written",
    ),
    "of a dimension that NumPy adds, and the tensor is written": (
        "made = torch.tensor(scaled[None]); kept.append(scaled); return made.sub_(1)",
        "yes", "while its array lives",
    ),
    "of a dimension that NumPy repeats": (
        "return torch.tensor(np.broadcast_to(scaled, (3, 64, 64)))", "unknown", "",
    ),
    "an array that is kept as well": ("kept.append(scaled); return torch.tensor(scaled)", "no", ""),
    "an array that is written while the tensor lives": (
        "made = torch.tensor(scaled); scaled *= 2; kept.append(scaled.sum()); return made",
        "yes", "the array that it was made of was written",
    ),
    "a tensor that is written while the array is kept": (
        "made = torch.tensor(scaled); kept.append(scaled); return made.mul_(2)",
        "yes", "while its array lives",
    ),
    "a tensor that is written when its array has gone": (
        "made = torch.tensor(scaled); del scaled; return made.mul_(2)", "no", "",
    ),
    "an array that is written when the tensor has gone": (
        "made = torch.tensor(scaled).sum(); scaled *= 2; kept.append(scaled.sum()); return made",
        "no", "",
    ),
    "a part of a larger array": (
        "return torch.tensor(np.stack([scaled] * 40)[3])", "yes", "beside it be freed",
    ),
    "another type": ("return torch.tensor(scaled, dtype=torch.float64)", "unknown", ""),
    "another order": ("return torch.tensor(scaled.T)", "unknown", ""),
}  # fmt: skip


def row_of(recording: Recording) -> tuple[str, str]:
    """Return whether the copies of the function's line were needed, and why."""
    rows = [one for one in recording.copies if one.operation == "tensor" and one.site.line == 9]
    return (rows[0].needed or "", rows[0].reason) if rows else ("", "")


@pytest.mark.parametrize("name", MADE)
def test_an_array_that_became_a_tensor(name, tmp_path):
    made, needed, why = MADE[name]
    found, reason = row_of(record_program(ITEMS.format(made=made, runs=40), tmp_path))
    assert found == needed
    assert why in reason


@pytest.mark.parametrize(
    ("looked", "longer", "needed"), [(40, 0, "no"), (40, 1, "unknown"), (8, 0, "unknown")]
)
def test_arrays_that_were_not_looked_at_go_the_way_of_the_others(looked, longer, needed, tmp_path):
    """There is not time to look at all of them: those that live no longer are judged alike."""
    trace = record_program(ITEMS.format(made=PLAIN, runs=60), tmp_path).trace
    taken = [
        one if number < looked
        else one._replace(changed="unknown", released=one.released + longer)
        for number, one in enumerate(trace.taken)
    ]  # fmt: skip
    recording = Recording(dataclasses.replace(trace, taken=taken))
    assert row_of(recording)[0] == needed
    told = [one.message for one in recording.findings if one.slug == "needless-copy"]
    assert ["each of the 40 runs that were looked at" in one for one in told] == (
        [True] if needed == "no" else []
    )


def test_an_array_that_is_written_in_one_run_of_many_is_not_called_needless(tmp_path):
    made = "made = torch.tensor(scaled); scaled *= 1 + (number == 50); return made"
    found, reason = row_of(record_program(ITEMS.format(made=made, runs=60), tmp_path))
    assert found == "yes"
    assert "was written" in reason


def test_bytes_are_compared_to_the_last(tmp_path):
    """Eight at a time, and the rest."""
    text = """\
    import numpy as np
    import torch

    def made(write):
        array = np.arange(13, dtype=np.uint8)
        tensor = torch.tensor(array)
        array[12] += write
        return tensor

    first, *rest = (made(False) for _ in range(2))
    {more}
    print(first, rest)
    """
    for more, changed in (("", "no"), ("made(True); rest.append(made(True))", "yes")):
        trace = record_program(text.format(more=more), tmp_path, f"p{changed}.py").trace
        assert trace.taken[-1].changed == changed
