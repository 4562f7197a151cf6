"""Several threads that train at once: no look at a gradient that another thread is working on."""

import pytest

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
