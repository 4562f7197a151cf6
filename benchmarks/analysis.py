"""What the analysis of a recording costs: microseconds an event, each phase by itself.

``python benchmarks/analysis.py [--steps N] [--json FILE]``: a small transformer is trained for N
steps under the recorder, once as it is and once with a detach that cuts off its embedding, so that
the data flow has to be followed as well. A third program trains a small network by batches of a
loader. Of each recording a fresh process then tells how much memory it takes to load it, and to
find what it tells; ``--of FILE`` tells that of a recording that is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tether.record.session import Session
from tether.report.recording import Recording
from tether.store.file import load, save


def train(steps: int, *, cut: bool) -> None:
    torch.manual_seed(0)
    embed = nn.Embedding(64, 32)
    blocks = nn.ModuleList(nn.Linear(32, 32) for _ in range(8))
    head = nn.Linear(32, 64)
    optimizer = torch.optim.AdamW([*embed.parameters(), *blocks.parameters(), *head.parameters()])
    ids = torch.randint(0, 64, (4, 17))
    for _ in range(steps):
        x = embed(ids[:, :-1])
        x = x.detach() if cut else x
        for block in blocks:
            x = x + torch.tanh(block(x))
        loss = nn.functional.cross_entropy(head(x).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_by_batches(steps: int) -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(640, 16), torch.randint(0, 4, (640,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(max(1, steps // len(loader))):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result


def phases(program: Callable[[], None], *, cut: bool) -> dict[str, float]:
    """Microseconds an event of each phase, and bytes."""
    session = Session()
    session.start()
    program()
    seconds, trace = timed(session.stop)
    found = {"facts from the record": seconds}
    found["source text"], recording = timed(lambda: Recording(trace))
    found["verdicts"], findings = timed(lambda: recording.findings)
    assert any(one.slug == "gradient-cut" for one in findings) == cut
    found["tables"], _ = timed(lambda: (recording.copies, recording.gradients))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.tether"
        found["save"], _ = timed(lambda: save(trace, file))
        found["load"], _ = timed(lambda: load(file))
        found["bytes on disk"] = file.stat().st_size / 1e6  # shown per event, as the rest
        found |= {name: size / 1e6 for name, size in memory_of(file).items()}
    return {name: value * 1e6 / len(trace.events) for name, value in found.items()}


def memory_of(file: Path) -> dict[str, int]:
    """Return the bytes that a fresh process takes for a recording."""
    command = [sys.executable, __file__, "--of", str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def memory_here(file: Path) -> dict[str, int]:
    """Return the bytes that this process takes at most, loading a recording and judging it.

    Each beyond what was taken as it began; Linux tells.
    """
    for module in ("tether.verdicts", "tether.analysis.copies.needs"):  # they are no part of it
        import_module(module)
    before = _taken()
    trace = load(file)
    trace.concluded = ""  # what the file says was found is found again
    loading, loaded = _most_taken() - before, _taken()
    Path("/proc/self/clear_refs").write_text("5")  # the most that was taken is counted anew
    Recording(trace, prepared=True).findings  # noqa: B018
    judging = _most_taken() - loaded
    return {"bytes to load": loading, "bytes to judge": judging}


def _taken() -> int:
    return _status("VmRSS")


def _most_taken() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--json")
    parser.add_argument("--of", type=Path, help="a recording, of which only the memory is measured")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.of:
        print(json.dumps(memory_here(options.of)))
        return
    report: dict[str, Any] = {"torch": torch.__version__, "steps": options.steps}
    programs: list[tuple[str, Callable[[], None], bool]] = [
        ("a sound model", lambda: train(options.steps, cut=False), False),
        ("a cut to explain", lambda: train(options.steps, cut=True), True),
        ("batches of a loader", lambda: train_by_batches(options.steps), False),
    ]
    for title, program, cut in programs:
        report[title] = phases(program, cut=cut)
        print(f"{title}, {options.steps} steps:")
        for name, value in report[title].items():
            unit = "bytes" if name.startswith("bytes") else "us"
            print(f"  {name:24s} {value:8.2f} {unit} an event")
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
