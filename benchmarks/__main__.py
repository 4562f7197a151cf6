"""Run the project's benchmarks and write one file that a later run can be compared with.

    python -m benchmarks [NAME...] [--out FILE] [--compare FILE] [--seconds N]

A benchmark is a module in this folder: ``copying``, ``recording``, ``analysis``, ... Each is run as
a program of its own, so that none warms up or disturbs another; its tables go to the file as they
were printed, and every figure that it writes by ``--json`` as a number. ``ways`` is what
``tether bench`` measures. The file holds one flat table, "name: number", beside the machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
SCHEMA = 1


def found() -> list[str]:
    """Return the benchmarks in this folder, by file."""
    return sorted(file.stem for file in FOLDER.glob("*.py") if not file.stem.startswith("_"))


def command(name: str, file: Path, seconds: float) -> list[str]:
    """Return what runs the benchmark `name`, writing its figures to `file` where it can."""
    if name == "ways":
        start = [sys.executable, "-m", "tether", "bench", "--seconds", str(seconds)]
        return [*start, "--save", str(file)]
    program = FOLDER / f"{name}.py"
    start = [sys.executable, str(program)]
    return [*start, "--json", str(file)] if "--json" in program.read_text() else start


def flat(value: Any, path: str = "") -> dict[str, float]:
    """Return every number within `value` under the path to it: "costs/x.clone()/4096/seconds"."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return {}
    if isinstance(value, int | float):
        return {path: float(value)}
    figures: dict[str, float] = {}
    if not isinstance(value, dict):
        value = {label(index, item): item for index, item in enumerate(value)}
    for key, item in value.items():
        figures |= flat(item, f"{path}/{key}" if path else str(key))
    return figures


def label(index: int, item: Any) -> str:
    """Return what tells `item` apart in a list: its words and size, or else its place."""
    if not isinstance(item, dict):
        return str(index)
    words = [str(item[key]) for key in ("family", "way", "name", "nbytes") if key in item]
    return "/".join(words) or str(index)


def run(name: str, seconds: float) -> dict[str, Any]:
    """Run one benchmark and return what it said and measured."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        print(f"-- {name}", flush=True)
        program = command(name, file, seconds)
        done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, flush=True)
        figures = flat(json.loads(file.read_text())) if file.exists() else {}
    return {"status": done.returncode, "figures": figures, "text": done.stdout.splitlines()}


def compare(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Print every figure that moved by more than a fifth, largest change first."""
    moved = []
    for name, result in new["benchmarks"].items():
        before = old.get("benchmarks", {}).get(name, {}).get("figures", {})
        for key, value in result["figures"].items():
            if before.get(key) and value and not 0.8 < value / before[key] < 1.25:
                moved.append((value / before[key], f"{name}/{key}"))
    print(f"{len(moved)} figures moved by more than a fifth")
    for ratio, key in sorted(moved, key=lambda pair: -max(pair[0], 1 / pair[0])):
        print(f"  {ratio:8.2f}x  {key}")


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [*found(), "ways"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--out", default="benchmarks.json")
    parser.add_argument("--compare", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the benchmark `ways`")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    old = json.loads(Path(options.compare).read_text()) if options.compare else None
    results = {name: run(name, options.seconds) for name in options.names or names}
    report = {
        "schema": SCHEMA,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "benchmarks": results,
    }
    Path(options.out).write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {options.out}")
    if old is not None:
        compare(report, old)
    if any(result["status"] for result in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
