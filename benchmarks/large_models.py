"""Recording models that fit into no machine: Llama's 70B and 405B shapes, under FakeTensorMode.

``python benchmarks/large_models.py [NAME...] [--json FILE]``: one forward, backward and step of
AdamW, then the judged report; seconds of the program as it is and of the whole of ``tether run``,
and the most memory that either held. The configurations are those of Meta's own files, given here
by their numbers; needs transformers.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SHAPES = {
    "70B": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256},
    "405B": {"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
             "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256},
}  # fmt: skip

PROGRAM = """\
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import LlamaConfig, LlamaForCausalLM

with FakeTensorMode():
    model = LlamaForCausalLM(LlamaConfig(use_cache=False, **{shape!r}))
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 1000, (1, 512))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(sum(one.numel() for one in model.parameters()))
"""


def run(command: list[str]) -> dict[str, Any]:
    """Run a command; return its seconds, the most memory it held in GiB, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return {"seconds": seconds, "GiB": peak, "text": done.stdout}


def measured(shape: dict[str, int]) -> dict[str, Any]:
    """Return what recording a model of a shape costs, beside the program as it is."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "train.py"
        program.write_text(PROGRAM.format(shape=shape))
        bare = run([sys.executable, str(program)])
        # The second may only have held more: the system tells the most of all children.
        whole = run([sys.executable, "-m", "tether", "run", str(program)])
    return {
        "parameters": int(bare["text"]),
        "bare s": bare["seconds"],
        "recorded and judged s": whole["seconds"],
        "GiB at most": whole["GiB"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SHAPES), help="70B, 405B")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    figures = {}
    for name in given.names:
        figures[name] = found = measured(SHAPES[name])
        print(f"{name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in found.items()))
    if given.json:
        Path(given.json).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
