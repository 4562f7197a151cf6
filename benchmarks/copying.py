"""What `tether.copy` costs beside the other ways, as medians of interleaved runs.

    python benchmarks/copying.py [one] [busy] [trees] [numpy] [snapshot] [cuda] [--quick]

Every table runs its ways in turn, round after round, so that what else the machine does falls on
all of them alike; the figures are medians, and the last columns ratios within one run. "memory" is
the memory's own speed: `copy_` into memory that is mapped already, with the better thread count.
"""

from __future__ import annotations

import copy
import gc
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import torch

import tether
from tether.live import threads

warnings.filterwarnings("ignore", message="To copy construct")
QUICK = "--quick" in sys.argv
WARM_UP = 20
Ways = dict[str, Callable[[], object]]


def measure(ways: Ways, rounds: int, calls: int = 1) -> dict[str, float]:
    """Return each way's median time of one call in microseconds; results die within the round."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(WARM_UP if rounds > 15 else 2):  # steady state: what is learnt is learnt
        for way in ways.values():
            way()
    gc.collect()
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            for _ in range(calls):
                kept = way()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
            del kept
    return {name: statistics.median(found) for name, found in times.items()}


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
    return (max(3, rounds // 4), calls) if QUICK else (rounds, calls)


def one(sizes: list[int], title: str) -> None:
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
        best = min(five, key=found.__getitem__)
        memory = min(found["mapped"], found["mapped alone"])
        print(
            f"| {nbytes} | {best} | {found[best]:.2f} | {found['clone']:.2f} | "
            f"{found['tether']:.2f} | {memory:.2f} | {found['tether'] / found[best]:.2f} | "
            f"{memory / found['tether']:.2f} |",
            flush=True,
        )
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
            f"{found['tether'] / found['clone']:.2f} |",
            flush=True,
        )


def busy() -> None:
    """Measure with every core but one kept busy by other processes."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(max(1, (os.cpu_count() or 2) - 1))]
    time.sleep(0.5)
    try:
        one([1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20], "With the other cores kept busy")
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


def tree_table(title: str, tree: dict[str, torch.Tensor], rounds: int) -> None:
    import optree

    held = {name: tensor.clone() for name, tensor in tree.items()}
    previous = tether.copy(tree)
    snapshot = tether.Snapshot(tree)
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
    try:
        from tensordict import TensorDict

        tensordict = TensorDict(tree)
        ways["TensorDict.clone"] = tensordict.clone
    except ImportError:
        pass
    found = measure(ways, 3 if QUICK else rounds)
    base = found["{k: v.detach().clone()}"]
    memory = min(found["memory"], found["memory, one call"])
    print(f"\n{title}\n\n| way | ms | dict comprehension / it | memory / it |")
    print("|---|---:|---:|---:|")
    for name, spent in found.items():
        print(
            f"| {name} | {spent / 1e3:.3f} | {base / spent:.2f} | {memory / spent:.2f} |",
            flush=True,
        )


def trees_tables() -> None:
    small = {f"k{i}": torch.randn(64) for i in range(2000)}
    tree_table("2,000 tensors of 64 floats", small, 41)
    del small
    gpt2 = {f"k{i}": torch.randn(shape) for i, shape in enumerate(gpt2_shapes())}
    tree_table("The 148 tensors of GPT-2, 498 MB", gpt2, 9)


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
                "a": lambda x=x: x.detach().numpy().copy(),
                "b": lambda x=x: x.clone().detach().numpy(),
                "c": lambda x=x: x.detach().clone().numpy(),
                "tether": lambda x=x: tether.copy(x, to="numpy"),
            },
            *rounds_for(nbytes),
        )
        best = min(found[name] for name in "abc")
        print(
            f"| {nbytes} | "
            + " | ".join(f"{v:.2f}" for v in found.values())
            + f" | {found['tether'] / best:.2f} |",
            flush=True,
        )


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
        for name, spent in found.items():
            print(f"| {name} | {spent / 1e3:.3f} | {total / spent / 1e3:.1f} |")
        del tree, flat, pinned


def main() -> None:
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    sizes = [4, 256, 4 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 16 << 20]
    sizes += [32 << 20, 64 << 20, 256 << 20, 1 << 30]
    tables: dict[str, Callable[[], None]] = {
        "one": lambda: one(sizes[:-1] if QUICK else sizes, "One tensor, own and cut"),
        "first": first_use,
        "busy": busy,
        "trees": trees_tables,
        "numpy": to_numpy,
        "cuda": cuda,
    }
    for name, table in tables.items():
        if not wanted or name in wanted:
            table()


if __name__ == "__main__":
    main()
