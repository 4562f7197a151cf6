"""A program under `tether run` ends as it would have, whatever it left running or broke."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tether.record import running
from tether.record.session import Session
from warm import Child, python, tether

EXECUTOR = """\
import torch
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
print(pool.submit(lambda: torch.ones(3).sum().item()).result())
"""


def test_an_executor_that_nobody_shut_down(tmp_path):
    (tmp_path / "pool.py").write_text(EXECUTOR)
    done = tether("run", "pool.py", folder=tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (0, "3.0\n")


DEBUGGED = """\
import torch
x = torch.ones(3)
import pdb; pdb.set_trace(); y = x + 1
z = y * 2

def double(t):
    return t * 2

print(double(z))
"""


def test_pdb_steps_through_the_program_alone(tmp_path):
    (tmp_path / "bug.py").write_text(DEBUGGED)
    keys = "n\nn\ns\ns\np t\nr\nc\n"
    bare = python("bug.py", folder=tmp_path, input=keys)
    recorded = tether("run", "-q", "bug.py", folder=tmp_path, input=keys)
    assert "tether" not in recorded.stdout
    assert recorded.stdout == bare.stdout


def finish_is_interrupted(_ending):
    raise KeyboardInterrupt


def test_ctrl_c_during_the_report_is_one_line(tmp_path, capfd):
    (tmp_path / "train.py").write_text("import torch\ntorch.ones(3).neg()\n")
    program = running.Program("script", str(tmp_path / "train.py"))
    argv, path, main = sys.argv, sys.path[:], sys.modules["__main__"]
    try:
        code = running.run(program, Session(), finish_is_interrupted)
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main
    assert code == 130
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "nothing was saved" in said


def test_ctrl_c_during_the_report_names_the_file_that_is_there(tmp_path, capfd):
    text = "import torch, time\nend = time.time() + 1.5\nwhile time.time() < end: torch.ones(3)\n"
    (tmp_path / "train.py").write_text(text)
    program, file = running.Program("script", str(tmp_path / "train.py")), tmp_path / "run.tether"
    argv, path, main = sys.argv, sys.path[:], sys.modules["__main__"]
    try:
        running.run(program, Session(), finish_is_interrupted, str(file))
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main
    assert f"`tether report {file}`" in capfd.readouterr().err
    assert tether("report", str(file), folder=tmp_path).returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM is POSIX's")
def test_a_terminated_program_says_so_in_words_of_its_own(tmp_path):
    text = "import torch, time\ntorch.ones(3).neg()\nprint('up', flush=True)\ntime.sleep(60)\n"
    (tmp_path / "train.py").write_text(text)
    process = Child(
        "-m", "tether", "run", "train.py", folder=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == b"up\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert b"raised  SIGTERM" in said
    assert b"_Terminated" not in said


# -- what was not recorded is said first -----------------------------------------------------------

SPAWNS = """\
import subprocess, sys
import torch
import torch.multiprocessing as mp


def work(number):
    torch.ones(3).neg()


if __name__ == "__main__":
    context = mp.get_context("spawn")
    process = context.Process(target=work, args=(1,))
    process.start()
    process.join()
    subprocess.run([sys.executable, "-c", "print(1)"], check=True)
"""


def test_children_that_were_not_recorded_are_counted_in_the_first_line(tmp_path):
    (tmp_path / "spawn.py").write_text(SPAWNS)
    done = tether("run", "spawn.py", folder=tmp_path)
    line = " ".join(done.stderr.splitlines()[1:3])
    said = "no PyTorch call was recorded; 2 child processes ran and were not recorded"
    assert line == f"{said} (`tether run --children` records what they do with PyTorch)"


def test_nothing_recorded_is_no_success_where_a_gate_was_asked_for(tmp_path):
    (tmp_path / "empty.py").write_text("print(1)\n")
    done = tether("run", "--fail-on", "warning", "empty.py", folder=tmp_path)
    assert done.returncode == 4
    assert "no PyTorch call was recorded" in done.stderr
    assert tether("run", "empty.py", folder=tmp_path).returncode == 0


DRAWING = """\
import atexit
import random
import numpy as np
import torch

random.seed(1)
np.random.seed(1)
torch.manual_seed(1)
x = torch.rand(400)
values = [one.item() for one in x]
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    opt.zero_grad()
    net(torch.rand(5, 3)).sum().backward()
    opt.step()
atexit.register(lambda: print(random.random(), np.random.rand(), torch.rand(1).item()))
"""


def test_what_a_program_draws_as_it_exits_is_what_it_would_have_drawn(tmp_path):
    (tmp_path / "drawing.py").write_text(DRAWING)
    bare = python("drawing.py", folder=tmp_path)
    recorded = tether("run", "--json", "r.json", "drawing.py", folder=tmp_path)
    assert recorded.stdout == bare.stdout != ""
