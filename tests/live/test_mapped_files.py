"""Files that are written through an array which was opened without a mode."""

import pytest

from programs import record_program

HEAD = """\
import os, tempfile
import numpy as np
import torch

path = os.path.join(tempfile.mkdtemp(), "rows.bin")
np.arange(8192, dtype=np.float32).tofile(path)
"""
OPENED = {
    "no mode": ("np.memmap(path, np.float32)", "x.sub_(x.mean())", True),
    "no mode, by words": ("np.memmap(path, dtype=np.float32, shape=(64, 128))", "x[3] = 0", True),
    "written by NumPy": ("np.memmap(path, np.float32)", "rows[:9] = -1", True),
    "a part": ("np.memmap(path, np.float32, shape=8192)", "x[:100].mul_(2)", True),
    "read alone": ("np.memmap(path, np.float32)", "print(x.mean())", False),
    "asked for": ("np.memmap(path, np.float32, 'r+')", "x.sub_(x.mean())", False),
    "asked for, by word": ("np.memmap(path, np.float32, mode='r+')", "x[3] = 0", False),
    "a private copy": ("np.memmap(path, np.float32, 'c')", "x.sub_(x.mean())", False),
    "told to be written": ("np.memmap(path, np.float32)", "x[3] = -1; rows.flush()", False),
    "a new file": ("np.memmap(path + '.new', np.float32, 'w+', shape=8192)", "x[3] = 1", False),
}


@pytest.mark.parametrize("name", OPENED)
def test_a_file_that_an_array_writes_to(name, tmp_path):
    opened, written, told = OPENED[name]
    text = f"{HEAD}rows = {opened}\nx = torch.from_numpy(rows)\n{written}\n"
    found = [one for one in record_program(text, tmp_path).findings if "is the file" in one.message]
    assert [one.severity for one in found] == ["note"] * told
    lines = {step.site.line for one in found for step in one.evidence}
    assert lines == ({7} | ({9} if "x" in written else set()) if told else set())
