"""Several threads that train at once: no look at a gradient that another thread is working on."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from tether import record
from tether.record.arrays.watch import ArrayWatch
from warm import tether

OWN = """
import threading, torch
def work():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    o = torch.optim.Adam(model.parameters())
    for _ in range(150):
        loss = model(torch.randn(5, 4)).square().mean()
        o.zero_grad(); loss.backward(); o.step()
"""
SHARED = """
import threading, torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
def work():
    for _ in range(40):
        model(torch.randn(5, 4)).square().mean().backward()
"""
START = """
threads = [threading.Thread(target=work) for _ in range(4)]
[one.start() for one in threads]; [one.join() for one in threads]
print("done")
"""


@pytest.mark.parametrize("program", [OWN, SHARED], ids=["models of their own", "one model"])
def test_they_do_not_crash(tmp_path, program):
    (tmp_path / "train.py").write_text(program + START)
    for _ in range(3):
        done = tether("run", "train.py", folder=tmp_path)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert "gradient-" not in done.stderr


AS_DYNAMO_IS_IMPORTED = """
import sys, threading, torch

def work():
    started.wait(60)
    print((torch.ones(3) * 7).sum().item())

class Start:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._dynamo.trace_rules" and not threads[0].is_alive():
            threads[0].start()
            started.set()
            threads[0].join()

started, threads = threading.Event(), [threading.Thread(target=work)]
sys.meta_path.insert(0, Start())
assert "torch._dynamo" not in sys.modules
torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1).step()
"""


@pytest.mark.rest
def test_a_thread_that_starts_while_dynamo_is_imported_is_heard(tmp_path):
    """The replacements of PyTorch's functions are taken back meanwhile."""
    (tmp_path / "train.py").write_text(AS_DYNAMO_IS_IMPORTED)
    run = [sys.executable, "-m", "tether", "run", "--json", "out.json", "train.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "21.0\n"), done.stderr
    copies = json.loads((tmp_path / "out.json").read_text())["copies"]
    assert [one["site"]["line"] for one in copies if one["operation"] == "item"] == [6]


def test_what_a_thread_reads_and_then_fills_anew_while_it_is_compared_was_read_as_it_was(
    monkeypatch,
):
    block, weight = np.zeros(4000, np.float32), torch.ones(3, requires_grad=True)
    kept, original, due = [], ArrayWatch._sum, []

    def other():
        kept.append(shown.clone())
        block[0] = 1.0

    def summing(watch, storage):
        if due:
            due.clear()
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return original(watch, storage)

    monkeypatch.setattr(ArrayWatch, "_sum", summing)
    with record() as recording:
        shown = torch.from_numpy(block)
        shown.sum()
        due.append(True)
        weight.sum().backward()
    assert not due
    assert recording.trace.unseen
    assert [one.slug for one in recording.findings if one.severity != "note"] == []
