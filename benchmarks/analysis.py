"""What the analysis of a recording costs: microseconds an event, each phase by itself.

``python benchmarks/analysis.py [--steps N] [--json FILE]``: a small transformer is trained for N
steps under the recorder, once as it is and once with a detach that cuts off its embedding, so that
the data flow has to be followed as well.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

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


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result


def phases(steps: int, *, cut: bool) -> dict[str, float]:
    """Microseconds an event of each phase."""
    session = Session()
    session.start()
    train(steps, cut=cut)
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
    return {name: value * 1e6 / len(trace.events) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {"torch": torch.__version__, "steps": options.steps}
    for title, cut in (("a sound model", False), ("a cut to explain", True)):
        report[title] = phases(options.steps, cut=cut)
        print(f"{title}, {options.steps} steps:")
        for name, value in report[title].items():
            unit = "bytes" if name == "bytes on disk" else "us"
            print(f"  {name:24s} {value:8.2f} {unit} an event")
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
