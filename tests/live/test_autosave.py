"""A killed program leaves a recording: all but the last second, and it says so."""

import os
import signal
import subprocess
import threading
import time
from itertools import pairwise
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch

from tether.facts import ArrayFact, Gap, Trace
from tether.record import autosave
from tether.record.session import Session
from tether.record.tape import Tape
from tether.store import frames
from tether.store.file import RecordingError, load
from tether.store.frames import MAGIC
from tether.store.layout import TABLES
from warm import Child, python, tether


def work(rounds=30):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    kept = []
    for number in range(rounds):
        x = torch.randn(5, 4)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        a = x.numpy()
        kept.append(torch.from_numpy(a)[number % 4 :])
        try:
            x @ x
        except RuntimeError:
            continue
    return model, kept


def recorded(path, monkeypatch, run=work, every=0.0, **options):
    """The facts of one session, and those that its file has."""
    monkeypatch.setattr(autosave, "EVERY", every)
    session = Session(**options)
    session.save_as_it_grows(str(path), ["train.py"], "/home/me")
    session.start()
    held = run()
    session.mute()
    trace = session.recorder.trace()
    del held
    return trace, load(path)


def same_facts(trace, saved):
    names = {*TABLES, "events", "tensors", "storages", "dropped", "kept"} - {"gaps"}
    for name in sorted(names):
        assert getattr(saved, name) == getattr(trace, name), name
    assert saved.gaps[1:] == trace.gaps


@pytest.mark.parametrize("memory", [False, True])
def test_the_file_has_every_fact(tmp_path, monkeypatch, memory):
    trace, saved = recorded(tmp_path / "run.tether", monkeypatch, memory=memory)
    same_facts(trace, saved)
    assert saved.outcome == "unfinished"
    assert saved.gaps[0].code == "killed"
    assert (saved.program, saved.folder) == (["train.py"], "/home/me")
    assert saved.torch == torch.__version__
    assert len(saved.events) > 400
    assert __file__ in saved.sources


def test_one_batch_or_many_are_the_same_file_to_the_reader(tmp_path, monkeypatch):
    trace, saved = recorded(tmp_path / "run.tether", monkeypatch, every=1e9)
    same_facts(trace, saved)


def test_under_a_limit_what_was_forgotten_leaves_the_file_too(tmp_path, monkeypatch):
    trace, saved = recorded(
        tmp_path / "run.tether", monkeypatch, lambda: work(400), every=0.0, limit=500
    )
    assert trace.dropped > 4000
    assert trace.kept
    same_facts(trace, saved)
    assert any(gap.code == "forgotten" for gap in saved.gaps)


def test_threads_at_it_together(tmp_path, monkeypatch):
    def several():
        threads = [threading.Thread(target=work, args=(40,)) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    trace, saved = recorded(tmp_path / "run.tether", monkeypatch, several)
    assert saved.events == trace.events
    assert saved.tensors == trace.tensors
    assert len({event.thread for event in saved.events}) == 4


def test_a_batch_that_is_broken_off_is_written_again(tmp_path, monkeypatch):
    write, calls = autosave._write_all, []

    def stumbles(handle, data):
        calls.append(len(data))
        if len(calls) == 3:
            write(handle, data[: len(data) // 2])
            raise KeyboardInterrupt
        write(handle, data)

    monkeypatch.setattr(autosave, "_write_all", stumbles)

    def run():
        kept = []
        for _ in range(3):
            try:
                kept.append(work())
            except KeyboardInterrupt:
                calls.append(0)
        return kept

    trace, saved = recorded(tmp_path / "run.tether", monkeypatch, run)
    assert calls.count(0) == 1
    same_facts(trace, saved)


def cut(path, length):
    os.truncate(path, length)
    try:
        return load(path)
    except RecordingError as error:
        said = str(error)
    assert "\n" not in said
    return said


def test_cut_off_anywhere_it_opens_up_to_there(tmp_path, monkeypatch):
    path = tmp_path / "run.tether"
    _, whole = recorded(path, monkeypatch, lambda: work(3))
    seen, refused = set(), False
    for length in reversed(range(0, path.stat().st_size, 37)):
        answer = cut(path, length)
        if isinstance(answer, Trace):
            assert not refused, "once it opens, more of it opens too"
            seen.add(len(answer.events))
            assert answer.events == whole.events[: len(answer.events)]
        else:
            refused = True
    assert len(seen) > 3


# -- rows that change ------------------------------------------------------------------------------


def value(hint, n):
    """A value of an annotation: number `n` of however many."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return inner[n % len(inner)]
    if origin is dict:
        return {value(inner[0], n): value(inner[1], n)}
    if origin is tuple:
        return tuple(value(one, n) for one in inner if one is not ...) * (n % 3)
    if hasattr(hint, "_fields"):
        return hint(*(value(one, n) for one in get_type_hints(hint).values()))
    kind = getattr(hint, "__supertype__", hint)
    return f"text {n}" if kind is str else n % 2 == 1 if kind is bool else kind(n)


STATES = [
    [], [1], [1, 2, 3], [1, 2, 3], [1, 4, 3], [1, 4, 3, 5], [7, 8, 9, 5, 6], [8, 5, 6], [6, 5, 8],
    [1, 6, 5, 8], [], [2, 3], [2, 3, 4, 5, 6], [3, 4],
]  # fmt: skip
"""What rows a table has from batch to batch: it grows, changes, comes in between, shrinks."""


@pytest.mark.parametrize("forgets", [False, True])
def test_a_table_is_in_the_file_as_it_is_by_now(tmp_path, monkeypatch, forgets):
    """Each table there is, whatever becomes of its rows from batch to batch."""
    monkeypatch.setattr(frames, "check", lambda _: None)  # the rows point nowhere
    tape, rows = Tape(), []

    def tables():
        kinds = {name: kind for name, kind in TABLES.items() if name != "sites"}
        return {name: [value(kind, n) for n in rows] for name, kind in kinds.items()}

    saving = autosave.Autosave(tape, tables, str(tmp_path / "run.tether"), Trace())
    for number, state in enumerate(STATES):
        rows = state
        tape.log.rewritten += forgets and number % 3 == 2
        saving.flush()
        saved = load(tmp_path / "run.tether")
        for name, facts in tables().items():
            assert [one for one in getattr(saved, name) if one != Gap("killed")] == facts, name
    assert not tape.gaps


def test_what_has_not_changed_is_not_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "check", lambda _: None)
    tape, count = Tape(), 200

    def tables():  # made anew each time, as some are
        return {name: [value(TABLES[name], n) for n in range(count)] for name in TABLES} | {
            "arrays": [ArrayFact(n, 7 if n in gone else -1) for n in range(count)]
        }

    gone, sizes = set(), []
    saving = autosave.Autosave(tape, tables, str(tmp_path / "run.tether"), Trace())
    for one in (-1, -1, 100, 100, 101):
        gone.add(one)
        saving.flush()
        sizes.append(saving.size)
    first, *steps = (then - one for one, then in pairwise([0, *sizes]))
    assert first > 4_000
    assert max(steps) < 300
    assert load(tmp_path / "run.tether").arrays == tables()["arrays"]


def hooks(rounds=12):
    """A hook that is registered again in each step, and a schedule that goes on."""
    model = torch.nn.Linear(3, 1)
    model.requires_gradient = False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for _ in range(rounds):
        model.weight.register_hook(lambda gradient: gradient * 2)
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    return model, schedule


class Filter(torch.nn.Module):
    def __init__(self, taps=torch.ones(3)):  # noqa: B008 -- which is what is looked for
        super().__init__()
        self.taps = taps


def arrays(rounds=400):
    """Arrays that are copied, drawn from and kept, and modules that share a default."""
    table, kept, filters = np.random.default_rng(0).random((64, 512)), [], []
    for number in range(rounds):
        row = table[number % 64]
        made = torch.tensor(row.astype(np.float32))
        again = torch.from_numpy(np.copy(row))
        torch.tensor(table[:32])
        again.mul_(made.sum().item())
        kept.append(again.numpy()[:4])
        if number % 100 == 0:
            filters.append(Filter())
            filters[-1].taps + 1
    return table, kept, filters


def swaps(rounds=300):
    """A parameter that becomes another object's tensor, once the file has it."""
    weight, other = torch.nn.Parameter(torch.ones(3)), torch.ones(3)
    weight * other
    for _ in range(rounds):
        (weight * 2).sum()
    torch.utils.swap_tensors(weight, other)
    for _ in range(rounds):
        (other * 2).sum()
    return weight, other


@pytest.mark.parametrize("limit", [None, 300])
@pytest.mark.parametrize("run", [hooks, arrays, swaps])
def test_rows_that_change_are_in_the_file_as_they_are_by_now(tmp_path, monkeypatch, run, limit):
    trace, saved = recorded(tmp_path / "run.tether", monkeypatch, run, limit=limit)
    same_facts(trace, saved)
    if run is hooks:
        assert [len(one.at) for one in saved.hooks] == [12]
        assert [one.steps for one in saved.schedules] == [12]
    elif run is arrays:
        assert saved.array_lines
        assert saved.arrays


def written_late(*, late=True, rounds=600):
    """Arrays that are written, or are not, long after they were copied."""
    rows = [np.arange(1 << 17, dtype=np.float32) + n for n in range(3)]
    made = [torch.tensor(row) for row in rows]
    copied = np.copy(rows[1])
    shown = torch.from_numpy(copied)
    for _ in range(rounds):
        made[0].sum() + shown.sum()
    if late:
        for one in rows:
            one[:] = 7
    for _ in range(rounds):
        made[0].sum() + shown.sum()
    return rows, made, copied, shown


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("every", [0.0, 1e9])
def test_whether_it_is_saved_changes_no_fact(tmp_path, monkeypatch, every, late):
    """An array may be written after the first batch: nothing is decided while the program runs."""
    monkeypatch.setattr(autosave, "EVERY", every)
    session = Session()
    session.save_as_it_grows(str(tmp_path / "run.tether"), [], "")
    session.start()
    held = written_late(late=late)
    trace = session.stop()
    del held
    found = [*trace.taken, *trace.arrays_copied, *trace.array_calls]
    assert min(map(len, (trace.taken, trace.arrays_copied, trace.array_calls))) > 0
    assert {one.changed for one in found} == {"yes" if late else "no"}
    growing = load(tmp_path / "run.tether")
    lives = [one for one in (*growing.taken, *growing.arrays_copied) if one.released < 0]
    assert {one.changed for one in lives} == {"unknown"}


# -- as a user meets it ----------------------------------------------------------------------------

LOOP = """\
import torch, time, sys, os
w = torch.ones(3, requires_grad=True); b = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
log = open("steps", "w", buffering=1)
for step in range(100000):
    opt.zero_grad(); loss = (w.detach() * b).sum(); loss.backward(); opt.step()
    print(step, time.time(), file=log)
    time.sleep(0.002)
    {inside}
"""


def killed_after(seconds, folder, inside="pass"):
    """Run the loop, kill it, and return how many steps it had done a second and a half before."""
    (folder / "train.py").write_text(LOOP.format(inside=inside))
    process = Child("-m", "tether", "run", "-o", "run.tether", "train.py", folder=folder)
    for _ in range(300):
        time.sleep(0.1)
        if (folder / "steps").exists() and (folder / "steps").stat().st_size:
            break
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    died = time.time()
    rows = [line.split() for line in (folder / "steps").read_text().splitlines()[:-1]]
    return sum(float(at) < died - 1.5 for _, at in rows)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")
def test_kill_9_leaves_all_but_the_last_second(tmp_path):
    steps = killed_after(3.5, tmp_path)
    assert steps > 100
    done = tether("report", "run.tether", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "partial: the program was killed, or is still running" in " ".join(done.stdout.split())
    assert "gradient-cut" in done.stdout
    assert "w.detach()" in done.stdout  # from the text that the recording holds
    saved = load(tmp_path / "run.tether")
    assert sum(event.operation == "step" for event in saved.events) >= steps
    assert [one.name for one in tmp_path.glob("run*")] == ["run.tether"]
    why = tether("why", "w", "run.tether", folder=tmp_path)
    assert "w.detach()" in why.stdout


HOOKED = """\
import torch, time
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 50)
log = open("steps", "w", buffering=1)
for step in range(100000):
    model.weight.register_hook(lambda gradient: gradient * 0.5)
    optimizer.zero_grad(); model(torch.ones(2, 3)).sum().backward(); optimizer.step()
    schedule.step()
    print(step, file=log)
    time.sleep(0.05)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")
def test_kill_9_leaves_what_became_of_a_hook_and_a_schedule(tmp_path):
    (tmp_path / "train.py").write_text(HOOKED)
    process = Child("-m", "tether", "run", "-o", "run.tether", "train.py", folder=tmp_path)
    for _ in range(600):
        time.sleep(0.1)
        if (tmp_path / "steps").exists() and (tmp_path / "steps").read_text().count("\n") > 110:
            break
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    saved = load(tmp_path / "run.tether")
    (hooked,), (schedule,) = saved.hooks, saved.schedules
    assert len(hooked.at) > 50
    assert schedule.steps > 50  # of the first second there were some 20
    done = tether("report", "run.tether", folder=tmp_path)
    assert "hook-repeated" in done.stdout


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")
def test_a_program_that_closes_every_file_and_goes_away(tmp_path):
    (tmp_path / "away").mkdir()
    inside = (
        'if step == 20: time.sleep(1.5)\n    if step == 40: old = log; os.closerange(3, 100); log = open("steps", "a", buffering=1); '
        'os.remove(__file__); os.chdir("away")'
    )
    steps = killed_after(4.5, tmp_path, inside)
    saved = load(tmp_path / "run.tether")
    assert sum(event.operation == "step" for event in saved.events) >= steps > 50
    assert "w.detach()" in saved.sources[str(tmp_path / "train.py")]


def test_the_finished_recording_takes_the_place_of_what_was_saved(tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch, time\nend = time.time() + 1.6\n"
        "while time.time() < end: torch.ones(3).neg(); time.sleep(0.002)\n"
    )
    done = tether("run", "-q", "-o", "run.tether", "train.py", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    saved = load(tmp_path / "run.tether")
    assert saved.outcome == "finished"
    assert not saved.gaps
    assert (tmp_path / "run.tether").read_bytes().startswith(MAGIC)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run.tether", "train.py"]


FULL = """\
import resource, torch, time
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
w = torch.ones(3, requires_grad=True); b = torch.ones(3, requires_grad=True)
opt, end = torch.optim.SGD([w, b], lr=0.1), time.time() + 2.5
while time.time() < end:
    opt.zero_grad(); loss = (w.detach() * b).sum(); loss.backward(); opt.step(); time.sleep(0.002)
print("done")
"""


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX's")
@pytest.mark.parametrize("size", [0, 1 << 13])
def test_a_full_disk(tmp_path, size):
    """Nothing fits, or the first second does: the program runs on and is reported all the same."""
    (tmp_path / "train.py").write_text(FULL.format(size=size))
    done = tether("run", "-o", "run.tether", "train.py", folder=tmp_path)
    assert done.stdout == "done\n"
    assert done.returncode in (0, 2)  # 2: what there is of it was too large to be saved at the end
    assert "gradient-cut" in done.stderr
    assert "nothing was saved while the program ran: File too large" in " ".join(
        done.stderr.split()
    )
    if done.returncode == 2:
        assert "the recording was not saved" in done.stderr
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_disk_behind_a_stream(tmp_path, stream):
    """The exit code is what it would have been."""
    (tmp_path / "train.py").write_text("import torch\nprint(torch.ones(2).neg())\n")
    codes = []
    for command in (["train.py"], ["-m", "tether", "run", "train.py"]):
        with open("/dev/full", "w") as full:
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
            codes.append(python(*command, folder=tmp_path, **streams).returncode)
    assert codes[0] == codes[1]


def test_what_cannot_be_written_is_refused_before_the_program_runs(tmp_path):
    (tmp_path / "train.py").write_text("import torch\nprint(torch.ones(2).neg().sum().item())\n")
    os.mkfifo(tmp_path / "pipe")
    done = tether("run", "-o", "pipe", "train.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "pipe" in done.stderr


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder that nobody can write to")
def test_a_folder_that_cannot_be_written(tmp_path):
    """Refused at once, or, where only the attempt tells, the program runs and is reported."""
    (tmp_path / "train.py").write_text("import torch\nprint(torch.ones(2).neg().sum().item())\n")
    done = tether("run", "-o", "/proc/run.tether", "train.py", folder=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "/proc" in done.stderr
    assert (done.stdout == "-2.0\n") == ("calls recorded" in " ".join(done.stderr.split()))


def test_a_pipe_is_no_file_to_save_to(tmp_path, monkeypatch):
    monkeypatch.setattr(autosave, "EVERY", 0.0)
    os.mkfifo(tmp_path / "pipe")
    session = Session()
    session.save_as_it_grows(str(tmp_path / "pipe"), [], "")
    session.start()
    work(2)
    trace = session.stop()
    assert any(gap.code == "autosave" for gap in trace.gaps)
    assert not os.path.isfile(tmp_path / "pipe")
    assert len(os.listdir(tmp_path)) == 1
