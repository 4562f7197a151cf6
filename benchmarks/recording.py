"""What recording costs, as ratios within one run.

``python benchmarks/recording.py [--rounds N] [--json FILE]``: training steps of a 12-block
transformer of width 64, of a model whose steps take a tenth of a second and of a network of three
small layers, a forward and backward pass without an optimizer, and single calls on 64x64 tensors,
all on one thread; bare, under an
empty function mode, under the recorder, under an empty dispatch mode, and under DebugMode and
TorchLens where they can be imported. Runs are interleaved, so that a noisy machine is noisy for
all; the figures are medians, and the bytes an event takes.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tether.record.session import Session


class EmptyFunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class EmptyDispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Recorded:
    """The recorder, as a context manager."""

    def __enter__(self) -> Recorded:
        self.session = Session()
        self.session.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.session.mute()


class Block(nn.Module):
    """Pre-norm attention and feed-forward, written out as people write it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A small language model."""

    def __init__(self, width: int, blocks: int, heads: int = 4, vocabulary: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def training_step(width: int, blocks: int, batch: int, length: int) -> Callable[[], None]:
    torch.manual_seed(0)
    model = Transformer(width, blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, 256, (batch, length))

    def step() -> None:
        optimizer.zero_grad()
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    return step


def small_step(make: Callable[..., torch.optim.Optimizer]) -> Callable[[], None]:
    """Return a step of a quarter of a millisecond, whose loss is read as people log it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )
    optimizer, loss_of = make(model.parameters(), lr=1e-3), nn.CrossEntropyLoss()
    inputs, targets = torch.randn(32, 16), torch.randint(0, 4, (32,))

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def repeated(call: Callable[[], Any], count: int = 1000) -> Callable[[], None]:
    def step() -> None:
        for _ in range(count):
            call()

    return step


def single_calls() -> dict[str, Callable[[], Any]]:
    """Return calls by what they make: nothing, a view, new memory, or more than one operation."""
    x, w, b = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True), torch.randn(64)
    scale = torch.ones(64)
    return {
        "x.mul_(1.0)": lambda: x.mul_(1.0),
        "x[0]": lambda: x[0],
        "x.clone()": x.clone,
        "F.linear(x, w, b)": lambda: nn.functional.linear(x, w, b),
        "F.layer_norm(x, (64,), scale, b)": lambda: nn.functional.layer_norm(x, (64,), scale, b),
        "F.dropout(x)": lambda: nn.functional.dropout(x),
        "torch.einsum('ij,jk->ik', x, w)": lambda: torch.einsum("ij,jk->ik", x, w),
    }


def forward_and_backward(width: int, blocks: int, batch: int, length: int) -> Callable[[], None]:
    torch.manual_seed(0)
    model = Transformer(width, blocks)
    ids = torch.randint(0, 256, (batch, length))

    def step() -> None:
        model(ids).logsumexp(-1).sum().backward()
        model.zero_grad()

    return step


def watchers() -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    found: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "bare": contextlib.nullcontext,
        "empty function mode": EmptyFunctionMode,
        "tether": Recorded,
        "empty dispatch mode": EmptyDispatchMode,
    }
    with contextlib.suppress(ImportError):
        from torch.utils._debug_mode import DebugMode

        found["DebugMode"] = DebugMode
    return found


def measure(
    step: Callable[[], None], rounds: int, repeat: int, warm: int
) -> dict[str, list[float]]:
    """Seconds of a step under each watcher, over `repeat`, `rounds` times, interleaved.

    After `warm` steps: the recorder looks for names at the first, second, fourth, eighth... time
    that it is told of a step or a backward pass, for a third of a second at most.
    """
    times: dict[str, list[float]] = {name: [] for name in watchers()}
    step()
    for _ in range(rounds):
        for name, watcher in watchers().items():
            gc.collect()
            with watcher():
                for _ in range(warm):
                    step()
                began = time.perf_counter()
                for _ in range(repeat):
                    step()
                times[name].append((time.perf_counter() - began) / repeat)
    return times


def forward_ratios(rounds: int) -> dict[str, float]:
    """Forward pass against bare under tether and, where it is installed, TorchLens."""
    torch.manual_seed(0)
    model = Transformer(64, 12)
    ids = torch.randint(0, 256, (4, 32))
    ways: dict[str, Callable[[], Any]] = {"bare": lambda: model(ids)}

    def recorded() -> None:
        with Recorded():
            model(ids)

    ways["tether, started and stopped"] = recorded
    with contextlib.suppress(ImportError):
        import torchlens

        ways["TorchLens"] = lambda: torchlens.trace(model, ids)  # log_forward_pass before 2.0
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if number:
                times[name].append(time.perf_counter() - began)
    bare = statistics.median(times.pop("bare"))
    return {name: statistics.median(found) / bare for name, found in times.items()}


def bytes_per_event(steps: int = 20) -> tuple[float, int]:
    """Memory that the record of a training loop takes, per event."""
    step = training_step(64, 12, 4, 32)
    step()
    session = Session()
    gc.collect()
    tracemalloc.start()
    session.start()
    try:
        step()
        events, before = session.recorder.tape.log.count, tracemalloc.get_traced_memory()[0]
        for _ in range(steps):
            step()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        count = session.recorder.tape.log.count - events
    finally:
        session.mute()
        tracemalloc.stop()
    return (after - before) / count, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = {
        "transformer, 12 blocks of width 64, one step": (training_step(64, 12, 4, 32), 6, 18),
        "transformer, 4 blocks of width 256, one step": (training_step(256, 4, 8, 64), 2, 5),
        "12 blocks of width 64, forward and backward": (
            forward_and_backward(64, 12, 4, 32),
            10,
            18,
        ),
        "three small layers with SGD, one step": (small_step(torch.optim.SGD), 200, 260),
        "three small layers with Adam, one step": (small_step(torch.optim.Adam), 200, 260),
        **{f"1000 times {text}": (repeated(call), 3, 1) for text, call in single_calls().items()},
    }
    report: dict[str, Any] = {"torch": torch.__version__, "python": sys.version.split()[0]}
    for title, (step, repeat, warm) in cases.items():
        times = measure(step, options.rounds, repeat, warm)
        bare = statistics.median(times["bare"])
        print(f"{title}: {bare * 1e3:.2f} ms bare")
        report[title] = {"bare_seconds": bare}
        for name, seconds in times.items():
            ratios = [a / b for a, b in zip(seconds, times["bare"], strict=True)]
            ratio = statistics.median(ratios)
            report[title][name] = ratio
            print(f"  {name:24s} {ratio:6.2f}x")
    size, count = bytes_per_event()
    report["bytes_per_event"] = size
    print(f"memory: {size:.0f} bytes an event, over {count} events")
    report["forward"] = forward_ratios(5)
    for name, ratio in report["forward"].items():
        print(f"forward pass alone, {name}: {ratio:.1f}x")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
