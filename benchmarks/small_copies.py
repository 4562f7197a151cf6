"""What small copies cost beside the calls of a run: by size, and as a share of a training step.

``python benchmarks/small_copies.py [--json FILE]``: the time of ``x.clone()`` and ``x[index]``
by the bytes that they copy, and how much of a training step's time such copies take where they are
one in `SHARE` of its calls. On one thread; each time is the least of several rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from recording import training_step

from tether.record.session import Session
from tether.report.document.grouping import SHARE, SLIGHT

SIZES = (4, 64, 1024, SLIGHT, 4 * SLIGHT, 16 * SLIGHT, 64 * SLIGHT)


def each(call: Callable[[], object], count: int = 2000) -> float:
    """Return the seconds of one call, the least of several rounds."""
    least = float("inf")
    for _ in range(9):
        began = time.perf_counter()
        for _ in range(count):
            call()
        least = min(least, (time.perf_counter() - began) / count)
    return least


def calls_of(step: Callable[[], None]) -> int:
    """Return how many calls of PyTorch a step makes, as a recording counts them."""
    step()
    session = Session()
    session.start()
    step()
    return len(session.stop().events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    by_size = []
    for nbytes in SIZES:
        x, index = torch.zeros(nbytes // 4), torch.arange(nbytes // 4)
        row = {"nbytes": nbytes, "clone": each(x.clone), "index": each(lambda: x[index])}  # noqa: B023
        by_size.append(row)
        print(f"{nbytes:>8} bytes  clone {row['clone'] * 1e6:6.2f} us  x[index] "
              f"{row['index'] * 1e6:6.2f} us")  # fmt: skip
    step = training_step(32, 4, 2, 16)
    calls = calls_of(step)
    copies = calls / (SHARE - 1)
    small, all_of_it = torch.zeros(SLIGHT // 4), torch.arange(SLIGHT // 4)
    ways = {"clone": small.clone, "index": lambda: small[all_of_it]}
    whole = each(step, 40)
    share = {name: copies * each(way) / whole for name, way in ways.items()}
    print(f"{calls} calls a step, of {whole * 1e6:,.0f} us; where one in {SHARE} copies {SLIGHT:,} "
          f"bytes: {share['clone']:.4f} of its time, by an index {share['index']:.4f}")  # fmt: skip
    if options.json:
        figures = {"by_size": by_size, "share": share}
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
