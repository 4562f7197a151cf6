"""The table of copies counts what the notes of the same report name, and says what NumPy copied."""

import io
import re

import pytest

from programs import record_program

PROGRAM = """
import numpy as np
import torch

torch.manual_seed(0)
tide = torch.rand(40, 50)
for hour in range(12):
    waves = CALL
    print((waves * 2).amax() + hour, tide.mean())
"""

CALLS = {
    "repeat": "tide.repeat(3, 1, 1)",
    "tile": "tide.tile(3, 1, 1)",
    "repeat_interleave": "tide[None].repeat_interleave(3, 0)",
    "cat": "torch.cat([tide])",
    "index": "tide[torch.arange(20)]",
}


def _told(recording):
    stream = io.StringIO()
    recording.print(stream, 160)
    return stream.getvalue()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_a_note_names_is_counted(call, tmp_path):
    recording = record_program(PROGRAM.replace("CALL", call), tmp_path)
    (note,) = [one for one in recording.findings if one.slug in ("needless-copy", "slow-copy")]
    rows = [one for one in recording.copies if one.site.line == note.site.line and one.bytes]
    assert sum(one.bytes for one in rows) == note.bytes
    assert sum(one.count for one in rows) == 12
    total = re.search(r"conversions, ([\d.]+ [KM]iB) copied", _told(recording))
    assert total is not None
    assert sum(one.bytes for one in recording.copies) >= note.bytes


NUMPY = """
import numpy as np
import torch

heights = np.random.default_rng(0).random((40, 500), dtype=np.float32)
for hour in range(12):
    flat = CALL
    print(USE)
"""


@pytest.mark.parametrize("use", ["torch.from_numpy(flat).sum()", "flat.sum()"])
@pytest.mark.parametrize("call", ["heights.flatten()", "heights.copy()", "np.array(heights)"])
def test_what_numpy_copies_is_said_beside(call, use, tmp_path):
    told = _told(record_program(NUMPY.replace("CALL", call).replace("USE", use), tmp_path))
    assert use == "flat.sum()" or "beside these NumPy copied 937.5 KiB" in told


def test_a_join_that_is_needed_is_no_copy(tmp_path):
    text = PROGRAM.replace("CALL", "torch.cat([tide, tide + hour])")
    recording = record_program(text, tmp_path)
    assert not [one for one in recording.copies if one.operation == "cat"]
    assert "NumPy copied" not in _told(recording)


def test_what_the_recorder_copies_is_not_the_programs(tmp_path):
    text = NUMPY.replace("CALL", "heights.flatten()").replace("USE", "torch.from_numpy(flat).sum()")
    lines = record_program(text, tmp_path).history.trace.array_lines
    assert [one.operation for one in lines] == ["flatten"]
