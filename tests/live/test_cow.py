"""Tensors that share their memory until one of them is written: a recording leaves them so."""

from programs import record_program

PROGRAM = """
from pathlib import Path

import torch

x = torch.ones(1 << 18)
y = torch._lazy_clone(x)
kept = [x, y, torch._lazy_clone(x), torch._lazy_clone(x)]
for _ in range(40):
    z = torch.arange(1 << 18) + 1.0
    total = (z * y).sum()
    last = z.clone()
Path("said").write_text(f"{torch._C._is_cow_tensor(y)} {total.item()}")
"""


def test_they_stay_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAM, "bare.py", "exec"), {})
    bare = (tmp_path / "said").read_text()
    record_program(PROGRAM, tmp_path, "cow.py")
    assert (tmp_path / "said").read_text() == bare
    assert bare.startswith("True")
