"""What `tether.copy` costs beside the other ways, as medians of interleaved runs.

    python benchmarks/copying.py [one] [first] [busy] [trees] [numpy] [cuda] [--quick] [--json FILE]

Every table runs its ways in turn, round after round, in an order of dice, so that what else the
machine does falls on all of them alike. Times are medians; a ratio is the median of the rounds' own
ratios, with their quartiles in brackets. "memory" is the memory's own speed: `copy_` into memory
that is mapped already, with the better thread count. `--json` writes every time's quartiles, in
microseconds.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

import tether
from tether.copying import threads

warnings.filterwarnings("ignore", message="To copy construct")
SETTINGS = {"quick": False}  # quick: a few rounds only, to see that all of it runs
WARM_UP = 150  # calls of each way before it counts; for what takes long two are enough
Ways = dict[str, Callable[[], object]]


class Measured:
    """The times of one call of each way, in microseconds, one for each round."""

    def __init__(self, times: dict[str, list[float]]) -> None:
        self.times = times

    def __getitem__(self, name: str) -> float:
        """Return the median time of this way."""
        return statistics.median(self.times[name])

    def best(self, names: Iterable[str]) -> str:
        """Return the quickest of these ways."""
        return min(names, key=self.__getitem__)

    def ratio(self, one: str, other: str) -> str:
        """Return how long `one` takes in times of `other`: "1.05 [1.02, 1.11]"."""
        rounds = [x / y for x, y in zip(self.times[one], self.times[other], strict=True)]
        low, middle, high = quartiles(rounds)
        return f"{middle:.2f} [{low:.2f}, {high:.2f}]"

    def figures(self) -> dict[str, dict[str, float]]:
        """Return way -> the quartiles of its time."""
        names = ("low_us", "median_us", "high_us")
        return {
            way: dict(zip(names, quartiles(times), strict=True))
            for way, times in self.times.items()
        }


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile of at least two values."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


FIGURES: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
"""Table -> row -> way -> quartiles."""


def record(table: str, row: str, found: Measured) -> None:
    """Keep what was measured for the file that `--json` writes."""
    FIGURES.setdefault(table, {})[row] = found.figures()


def measure(ways: Ways, rounds: int, calls: int = 1) -> Measured:
    """Return the time of one call of each way in every round; results die within the round.

    Every round has an order of its own: what the way before leaves in the caches falls on all.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(WARM_UP if rounds > 15 else 2):  # steady state: what is learnt is learnt
        for way in ways.values():
            way()
    gc.collect()
    order, dice = list(ways.items()), random.Random(0)
    for _ in range(rounds):
        dice.shuffle(order)
        for name, way in order:
            start = time.perf_counter()
            for _ in range(calls):
                kept = way()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
            del kept
    return Measured(times)


def five_ways(x: torch.Tensor) -> Ways:
    return {
        "new_tensor": lambda: x.new_tensor(x),
        "clone.detach": lambda: x.clone().detach(),
        "empty_like.copy_": lambda: torch.empty_like(x).copy_(x),
        "tensor": lambda: torch.tensor(x),
        "detach.clone": lambda: x.detach().clone(),
    }


def rounds_for(nbytes: int) -> tuple[int, int]:
    """Return rounds and calls in each: small sizes many times, large ones a few."""
    rounds, calls = (5, 1) if nbytes >= 1 << 28 else (15, 1)
    if nbytes < 32 << 20:
        rounds, calls = 31, 1
    if nbytes < 4 << 20:
        rounds, calls = 61, 5
    if nbytes <= 1 << 18:
        rounds, calls = 61, 300
    return (max(3, rounds // 4), calls) if SETTINGS["quick"] else (rounds, calls)


def one(sizes: list[int], title: str, table: str) -> None:
    print(f"\n{title}\n")
    print(
        "| bytes | best of five | us | clone us | tether us | memory us | tether / best | "
        "memory / tether |"
    )
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for nbytes in sizes:
        x = torch.randn(max(nbytes // 4, 1))
        five = five_ways(x)
        # A target each: the second copy into one would find it in the cache.
        large = nbytes >= tether.pool.THRESHOLD
        mapped, alone = (tether.copy(x) if large else x.clone() for _ in range(2))
        ways: Ways = {
            **five,
            "clone": lambda x=x: x.clone(),
            "tether": lambda x=x: tether.copy(x),
            "mapped": lambda x=x, m=mapped: m.copy_(x),
            "mapped alone": lambda x=x, m=alone: threads.single_threaded(lambda: m.copy_(x)),
        }
        found = measure(ways, *rounds_for(nbytes))
        best = found.best(five)
        memory = found.best(["mapped", "mapped alone"])
        print(
            f"| {nbytes} | {best} | {found[best]:.2f} | {found['clone']:.2f} | "
            f"{found['tether']:.2f} | {found[memory]:.2f} | {found.ratio('tether', best)} | "
            f"{found.ratio(memory, 'tether')} |",
            flush=True,
        )
        record(table, str(nbytes), found)
        del x, mapped, alone, five, ways
        tether.pool.trim()


def first_use() -> None:
    print("\nFirst use: nothing mapped before, the pool emptied each time\n")
    print("| bytes | clone us | tether us | tether / clone |\n|---:|---:|---:|---:|")

    def fresh(x: torch.Tensor) -> torch.Tensor:
        tether.pool.trim()
        return tether.copy(x)

    for nbytes in [32 << 20, 64 << 20, 256 << 20]:
        x = torch.randn(nbytes // 4)
        found = measure({"clone": lambda x=x: x.clone(), "tether": lambda x=x: fresh(x)}, 9)
        print(
            f"| {nbytes} | {found['clone']:.0f} | {found['tether']:.0f} | "
            f"{found.ratio('tether', 'clone')} |",
            flush=True,
        )
        record("first", str(nbytes), found)


def busy() -> None:
    """Measure with every core but one kept busy by other processes."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(max(1, (os.cpu_count() or 2) - 1))]
    time.sleep(0.5)
    try:
        one(
            [1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20], "With the other cores kept busy", "busy"
        )
    finally:
        for other in others:
            other.kill()
            other.wait()


def gpt2_shapes() -> list[tuple[int, ...]]:
    """Return the shapes of GPT-2's 148 parameters, 124M elements."""
    width = 768
    block = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(50257, width), (1024, width), *(block * 12), (width,), (width,)]


def tree_table(title: str, tree: dict[str, torch.Tensor], rounds: int, floors: bool) -> None:
    import optree

    held = {name: tensor.clone() for name, tensor in tree.items()}
    previous = tether.copy(tree)
    snapshot = tether.Snapshot(tree)
    tensors = list(tree.values())
    ways: Ways = {
        "{k: v.detach().clone()}": lambda: {k: v.detach().clone() for k, v in tree.items()},
        "tether.copy": lambda: tether.copy(tree),
        "optree.tree_map": lambda: optree.tree_map(torch.Tensor.clone, tree),
        "copy.deepcopy": lambda: copy.deepcopy(tree),
        "memory": lambda: [held[k].copy_(v) for k, v in tree.items()],
        "memory, one call": lambda: torch._foreach_copy_(list(held.values()), list(tree.values())),
        "tether.copy(out=)": lambda: tether.copy(tree, out=previous),
        "Snapshot.update": snapshot.update,
    }
    if floors:
        ways["allocating alone"] = lambda: list(map(torch.empty_like, tensors))
    if floors and hasattr(torch, "_foreach_clone"):  # torch >= 2.13
        ways["one call, unchecked"] = lambda: torch._foreach_clone(tensors)
    try:
        from tensordict import TensorDict

        tensordict = TensorDict(tree)
        ways["TensorDict.clone"] = tensordict.clone
    except ImportError:
        pass
    found = measure(ways, 3 if SETTINGS["quick"] else rounds)
    memory = found.best(["memory", "memory, one call"])
    print(f"\n{title}\n\n| way | ms | dict comprehension / it | memory / it |")
    print("|---|---:|---:|---:|")
    for name in ways:
        quicker = found.ratio("{k: v.detach().clone()}", name)
        print(
            f"| {name} | {found[name] / 1e3:.3f} | {quicker} | {found.ratio(memory, name)} |",
            flush=True,
        )
    record("trees", title, found)


def trees_tables() -> None:
    small = {f"k{i}": torch.randn(64) for i in range(2000)}
    tree_table("2,000 tensors of 64 floats", small, 41, floors=True)
    del small
    gpt2 = {f"k{i}": torch.randn(shape) for i, shape in enumerate(gpt2_shapes())}
    tree_table("The 148 tensors of GPT-2, 498 MB", gpt2, 9, floors=False)


def to_numpy() -> None:
    print("\nTo an independent NumPy array\n")
    print(
        "| bytes | detach.numpy.copy | clone.detach.numpy | detach.clone.numpy | tether | "
        "tether / best |\n|---:|---:|---:|---:|---:|---:|"
    )
    for nbytes in [4, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28]:
        x = torch.randn(nbytes // 4).requires_grad_()
        found = measure(
            {
                "detach.numpy.copy": lambda x=x: x.detach().numpy().copy(),
                "clone.detach.numpy": lambda x=x: x.clone().detach().numpy(),
                "detach.clone.numpy": lambda x=x: x.detach().clone().numpy(),
                "tether": lambda x=x: tether.copy(x, to="numpy"),
            },
            *rounds_for(nbytes),
        )
        best = found.best([way for way in found.times if way != "tether"])
        print(
            f"| {nbytes} | "
            + " | ".join(f"{found[way]:.2f}" for way in found.times)
            + f" | {found.ratio('tether', best)} |",
            flush=True,
        )
        record("numpy", str(nbytes), found)


def cuda() -> None:
    if not torch.cuda.is_available():
        print("\nNo CUDA device: the device tables were not measured.")
        return
    device = torch.device("cuda")

    def synced(way: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            result = way()
            torch.cuda.synchronize()
            return result

        return run

    for title, tree in {
        "2,000 tensors of 64 floats": [torch.randn(64, device=device) for _ in range(2000)],
        "1B parameters in bfloat16": [
            torch.empty(2048, 8192, device=device, dtype=torch.bfloat16) for _ in range(60)
        ],
    }.items():
        total = sum(x.nbytes for x in tree)
        flat = torch.empty(total, dtype=torch.uint8, device=device)
        pinned = torch.empty(total, dtype=torch.uint8, pin_memory=True)
        found = measure(
            {
                "[v.cpu()]": synced(lambda t=tree: [v.cpu() for v in t]),
                "tether to host": synced(lambda t=tree: tether.copy(t, device="cpu")),
                "pinned PCIe": synced(lambda p=pinned, f=flat: p.copy_(f, non_blocking=True)),
                "[v.clone()]": synced(lambda t=tree: [v.clone() for v in t]),
                "tether on device": synced(lambda t=tree: tether.copy(t)),
            },
            9,
        )
        print(
            f"\n{title} on {torch.cuda.get_device_name()}\n\n| way | ms | GB/s |\n|---|---:|---:|"
        )
        for name in found.times:
            print(f"| {name} | {found[name] / 1e3:.3f} | {total / found[name] / 1e3:.1f} |")
        record("cuda", title, found)
        del tree, flat, pinned


def main() -> None:
    sizes = [4, 256, 4 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 16 << 20]
    sizes += [32 << 20, 64 << 20, 256 << 20]
    tables: dict[str, Callable[[], None]] = {
        "one": lambda: one(
            sizes if SETTINGS["quick"] else [*sizes, 1 << 30], "One tensor, own and cut", "one"
        ),
        "first": first_use,
        "busy": busy,
        "trees": trees_tables,
        "numpy": to_numpy,
        "cuda": cuda,
    }
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", choices=[[], *tables], metavar="TABLE")
    parser.add_argument("--quick", action="store_true", help="a few rounds only")
    parser.add_argument("--json", metavar="FILE", help="write every time measured")
    options = parser.parse_args()
    SETTINGS["quick"] = options.quick
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {load:.1f}")
    for name in options.tables or tables:
        tables[name]()
    if options.json:
        Path(options.json).write_text(json.dumps(FIGURES, indent=2) + "\n")


if __name__ == "__main__":
    main()
