"""What ``tether run --sample`` costs over a long run, as ratios within one run.

``python benchmarks/sampling.py [--rounds N] [--json FILE]``: thousands of steps of a model whose
steps take a third of a millisecond, the worst case, and hundreds of a transformer's of 12 blocks;
bare, sampled and bare again, in turns, on one thread. The figures are ratios of processor time, of
the sum over all rounds; that of bare to bare says how noisy the machine is.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from recording import training_step
from torch import nn

from tether.record.session import Session


def small_step() -> Callable[[], None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None], count: int, *, sampled: bool) -> float:
    began = time.process_time()
    session = Session(sample=True) if sampled else None
    if session is not None:
        session.start()
    for _ in range(count):
        step()
    if session is not None:
        session.mute()
    return time.process_time() - began


def ratios(step: Callable[[], None], count: int, rounds: int) -> dict[str, float]:
    """Return how much longer sampled steps take than bare ones, and bare ones than bare ones."""
    total = {"bare": 0.0, "sampled": 0.0, "bare again": 0.0}
    seconds(step, count // 10, sampled=True)
    for _ in range(rounds):
        for name in total:
            total[name] += seconds(step, count, sampled=name == "sampled")
    return {name: total[name] / total["bare"] for name in total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    torch.set_num_threads(1)
    programs = {
        "20,000 steps of a small model": (small_step(), 20_000),
        "600 steps of 12 blocks": (training_step(64, 12, 4, 32), 600),
    }
    figures = {}
    for name, (step, count) in programs.items():
        figures[name] = ratios(step, count, given.rounds)
        print(name, {key: round(value, 3) for key, value in figures[name].items()})
    if given.json:
        Path(given.json).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
