"""Find the copies that nobody needed in public code, prove each by a re-run, and write the page.

    PYTHONHASHSEED=0 OMP_NUM_THREADS=1 python benchmarks/_needless.py measure DIR [NAME...]
    python benchmarks/_needless.py page DIR

Run by hand: it takes the packages that it looks at (``pip install transformers peft accelerate
lightning torch_geometric torchmetrics tensordict diffusers gpytorch kornia``; no weights or data
are fetched, every model is made from a tiny configuration) and about ten minutes. ``measure``
writes one JSON file for each program to DIR and leaves out those that are there; ``page`` makes
docs/copies-nobody-needed.md of them.

Each program is run as `tether run --prove` would: recorded once, tried twice as it is and once
without every copy judged needless. Where that makes a difference, each copy is tried by itself.
Other than `--prove` it asks about every line, however few bytes it copies. The runs are forked from
a process that has imported the packages, which spares them the seconds that the imports take.

The bytes at a real model's size are counted on the meta device, where nothing is computed: the
architecture with the defaults of its configuration class, which are those of a published model;
one sequence of 512 tokens, one image or ten seconds of sound; one forward and backward pass.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import sysconfig
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from _needless_programs import OTHER, PACKAGES, PROGRAMS, SAME, base_of, real

from tether.analysis.copies.needs import Key, Need, needs
from tether.analysis.history import History
from tether.facts import UNKNOWN
from tether.measure.proving import CannotProveError, Outcome, differences, noise_of
from tether.report.recording import prepare
from tether.store.file import load, save

PAGE = Path(__file__).parents[1] / "docs" / "copies-nobody-needed.md"
LIBRARIES = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"))
LIMIT = 600  # seconds for one run


# -- runs, each in a fork of this process ----------------------------------------------------------


def forked(work: Callable[[], Any], output: Path, limit: float = LIMIT) -> int:
    """Do some work in a child whose stdout and stderr go to files; return its exit code."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(int(limit))
            os.setsid()
            for number, name in ((1, ".out"), (2, ".err")):
                os.dup2(os.open(f"{output}{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            code = int(work() or 0)
        except BaseException:  # noqa: BLE001 -- told in the child's stderr
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def recorded(script: Path) -> History:
    """Run a script under the recorder; return its history. Raises `RuntimeError` when it fails."""
    from tether.record import running
    from tether.record.session import Session

    file = script.with_suffix(".tether")

    def finish(ending: running.Ending) -> int:
        if ending.error is not None:
            traceback.print_exception(ending.error)
        prepare(ending.trace)
        save(ending.trace, file)
        return ending.exit_code

    def work() -> int:
        return running.run(running.Program("script", str(script)), Session(), finish)

    code = forked(work, script)
    if code:
        raise RuntimeError(_last_line(Path(f"{script}.err")) or f"exit code {code}")
    return History(load(file))


def tried(script: Path, changes: Sequence[list[Any]]) -> Outcome:
    """Run a script with some changes; return what it handed out."""
    from tether.measure import rerun

    order, result = script.with_suffix(".order"), script.with_suffix(".result")
    given = {"kind": "script", "target": str(script), "arguments": [], "changes": list(changes)}
    order.write_text(json.dumps({**given, "result": str(result)}))
    result.unlink(missing_ok=True)
    code = forked(lambda: rerun.main(str(order)), script)
    lines = Path(f"{script}.out").read_text().splitlines()
    if not result.exists():
        raise RuntimeError(_last_line(Path(f"{script}.err")) or f"exit code {code}")
    values, applied, spent, exit_code, error = json.loads(result.read_text())
    return Outcome(values, applied, spent, exit_code, error, lines, 0.0)


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


# -- one program -----------------------------------------------------------------------------------


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Judge every copy of one program and try those judged needless; return what came of it."""
    script = folder / f"{name}.py"
    script.write_text(PROGRAMS[name].text)
    history = recorded(script)
    found = needs(history)
    rows = [_row(history, key, need) for key, need in found.items()]
    drops = {n: _drop(history, key) for n, key in enumerate(found) if found[key].needed == "no"}
    error = ""
    if drops:
        try:
            _prove(script, drops, rows)
        except (CannotProveError, RuntimeError) as failed:
            error = str(failed)
    return {"name": name, "rows": rows, "error": error, "events": len(history.events)}


def _row(history: History, key: Key, need: Need) -> dict[str, Any]:
    site = history.site(key[1] if key[1] != UNKNOWN else key[0])
    return {
        "file": _shown(site.file),
        "line": site.line,
        "function": site.function,
        "expression": site.expression,
        "from": history.site(key[0]).line,
        "operation": need.operation,
        "needed": need.needed,
        "reason": need.reason,
        "count": need.count,
        "bytes": need.bytes,
        "relaid": need.relaid,
        "shape": list(need.executions[0][2].shape),
        "proven": None,
    }


def _drop(history: History, key: Key) -> list[Any]:
    site, inner, operation = key
    where = None if inner == UNKNOWN else list(history.site(inner)[:5])
    return ["drop", operation, list(history.site(site)[:5]), where]


def _prove(script: Path, drops: dict[int, list[Any]], rows: list[dict[str, Any]]) -> None:
    """Try the program without all of the copies, and where that differs without each."""
    plain = tried(script, [])
    noise = noise_of(plain, tried(script, []))

    def attempt(some: list[int]) -> bool:
        outcome = tried(script, [drops[n] for n in some])
        told = differences(plain, outcome, noise)
        for n, applied in zip(some, outcome.applied, strict=True):
            if not told and applied:
                rows[n]["proven"] = True
            elif told and len(some) == 1:
                rows[n]["proven"], rows[n]["difference"] = False, told[0]
        return not told

    if not attempt(list(drops)):
        for n in drops:
            attempt([n])
    for row in rows:
        row["noise"] = len(noise.lines) + len(noise.values)
        row["values"] = len(plain.values)


def _shown(file: str) -> str:
    for one in LIBRARIES:
        if file.startswith(one):
            return file[len(one) + 1 :]
    return Path(file).name


# -- the campaign ----------------------------------------------------------------------------------


def campaign(folder: Path, names: Sequence[str]) -> None:
    """Measure the programs that are not measured yet, and keep what came of each."""
    import torch

    torch.set_num_threads(1)
    for package in PACKAGES:
        __import__(package)
    for name in names or PROGRAMS:
        kept = folder / f"{name}.json"
        if kept.exists() and not names:
            continue
        try:
            with tempfile.TemporaryDirectory() as scratch:
                found = measure(name, Path(scratch))
        except RuntimeError as failed:
            found = {"name": name, "rows": [], "error": str(failed), "failed": True}
        else:
            found["real"] = _real(name, found["rows"], folder)
        kept.write_text(json.dumps(found, indent=1))
        answers = Counter(row["needed"] for row in found["rows"])
        proof = Counter(str(row["proven"]) for row in found["rows"] if row["needed"] == "no")
        print(f"{name}: {dict(answers)} proven {dict(proof)} {found['error']}", flush=True)


def _real(name: str, rows: list[dict[str, Any]], folder: Path) -> Any:
    """Return the bytes that the proven lines copy at the real size, or why that is not known."""
    wanted = [row for row in rows if row["proven"]]
    if not wanted or PROGRAMS[name].real is None:
        return None
    output = folder / f"{name}.real"
    code = forked(lambda: print(json.dumps(real(PROGRAMS[name], wanted))), output, 240)
    text, errors = Path(f"{output}.out"), Path(f"{output}.err")
    found: Any = _last_line(errors) or f"exit code {code}"
    if not code:
        found = json.loads(text.read_text().splitlines()[-1])
    text.unlink()
    errors.unlink()
    return found


# -- the page --------------------------------------------------------------------------------------

READ = {
    ("transformers/generation", "outputs.logits[:, -1].to(copy=True"): "It keeps the last token's"
    " scores and lets those of all other tokens go; but the model is asked for the last token's"
    " alone (`logits_to_keep=1`). Needed for a model that ignores the option, computes in another"
    " dtype than float32, or whose scores a processor writes in place.",
    ("transformers/generation", "model_outputs.logits[:, -1, :].to(copy"): "The same in beam"
    " search.",
    ("transformers/generation", "running_sequences.detach()"): "The finished beams start as the"
    " running ones.",
    ("transformers/generation", "running_beam_indices.detach()"): "The finished beams' indices"
    " start as the running ones'; both are replaced, never written.",
    ("transformers/models/xlnet", "input_ids.transpose"): "Only the embedding reads it, which looks"
    " up each index by itself in whatever order they lie.",
    ("torchmetrics/functional", "thresholds.flip(0).detach()"): "None: `flip` has already made"
    " memory of its own.",
    ("torchmetrics/metric", "x.clone()"): "It guards a metric's result against whoever gets it.",
    ("torchmetrics/metric", "default.detach()"): "A metric starts again from its default value.",
    ("lightning/pytorch/core", "value.clone()"): "It guards a logged value against whoever gave"
    " it.",
    ("lightning/pytorch/trainer", "value.clone()"): "It guards against a sum over processes in"
    " place; here there was one process.",
    ("lightning/pytorch/trainer", "self.value.clone()"): "The same at the end of an epoch.",
    ("lightning/pytorch/loops", "self.closure_loss"): "It guards the loss against a gradient"
    " scaler.",
    ("kornia", "arg.clone()"): "For processes that `spawn` starts; here there were none.",
    ("tensordict", "value.clone()"): "The program asked for a copy (`clone`, `to_tensordict`).",
    ("copy.py", "copier"): "A metric's default value is copied beside the value it starts with.",
    ("trainer.py", "one.clone()"): "The program's own line: the labels of a causal model are its"
    " inputs.",
}
"""What a reader of the library found a copy to be for, by how its file and its call begin."""

HEAD = """# Copies nobody needed

Generated by `benchmarks/_needless.py`; its docstring says how to remake it.

Every copy that public code made in {programs} small programs was judged, and those judged needless
were left out and the program run again: {architectures} architectures of transformers from tiny
configurations (three training steps each), generation with {generation} of them, and training loops
of {packages}.

{versions}

Of {total} lines that copied ({calls:,} calls heard in all), {yes} were needed, {no} were not and
{unknown} are not known. Left out, {proven} of the {no} gave the same values bit for bit (losses,
gradients, parameters, what was printed), {refuted} did not, and {untried} could not be tried.

"Not needed" is said of these programs. The last column says what a reader of the library found the
copy to be for: some guard against what another program may do.

## Proven by a re-run

| library line | what is copied | programs | bytes, tiny | at the published size | what it is for |
|---|---|---|---|---|---|
"""

TAIL = """
The published size: the defaults of the architecture's configuration class, which are those of a
published model, on the meta device; one sequence of up to 512 tokens. Scores in generation: for
each new token and sequence (or beam), four bytes for each word of the vocabulary.

## Withdrawn

{withdrawn}

Not claimed, although these programs do without them as well: a library keeps both tensors, or
writes the source at other times, so that a caller in another order may need the copy. (Spectral
norm is the example: without the clone of `_u`, two forward passes before one backward pass fail.)

{guarded}

## Why the rest was needed, or is not known

| lines | answer | reason |
|---|---|---|
{reasons}
"""


def page(folder: Path) -> str:
    """Return the page of what was measured."""
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    found = [one for one in found if not one.get("failed")]
    rows = [{**row, "program": one} for one in found for row in one["rows"]]
    count = Counter(row["needed"] for row in rows)
    no = [row for row in rows if row["needed"] == "no"]
    proof = Counter(str(row["proven"]) for row in no)
    of_models = [one for one in found if one["name"] in SAME | OTHER.keys()]
    text = HEAD.format(
        programs=len(found), architectures=len(of_models), total=len(rows),
        generation=sum(one["name"].startswith("generate_") for one in found),
        packages=", ".join(PACKAGES), calls=sum(one["events"] for one in found),
        versions=", ".join(f"{one} {metadata.version(one)}" for one in PACKAGES) + ".",
        yes=count["yes"], no=count["no"], unknown=count["unknown"], proven=proof["True"],
        refuted=proof["False"], untried=proof["None"],
    )  # fmt: skip
    lines: dict[tuple[str, int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in no:
        if row["proven"]:
            lines[row["file"], row["line"], row["expression"]].append(row)
    for key, same in sorted(lines.items(), key=lambda one: -max(row["bytes"] for row in one[1])):
        text += _line(*key, same)
    refuted = [f"- `{_place(row)}`: {row['difference']}" for row in no if row["proven"] is False]
    guarded = {
        f"- `{_place(row)}`: `{_code(row['expression'])}` ({row['reason']})"
        for row in rows
        if row["reason"].endswith(("at other times", "was not seen"))
    }
    reasons = Counter(
        (row["needed"], _kind(row["reason"])) for row in rows if row["needed"] != "no"
    )
    return text + TAIL.format(
        withdrawn="\n".join(refuted) or "A re-run refuted none.",
        guarded="\n".join(sorted(guarded)),
        reasons="\n".join(f"| {n} | {key[0]} | {key[1]} |" for key, n in reasons.most_common()),
    )


def _kind(reason: str) -> str:
    """Return a reason without the names and lines of its program."""
    for pattern, word in (
        (r"[\d,]+ bytes", "n bytes"),
        (r"[\w.]+:\d+|line \d+", "a line"),
        (r"`[^`]*`", "…"),
    ):
        reason = re.sub(pattern, word, reason)
    return reason


def _place(row: dict[str, Any]) -> str:
    return f"{row['file']}:{row['line']}"


def _code(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 64 else text[:63] + "…"


def _line(file: str, line: int, expression: str, rows: list[dict[str, Any]]) -> str:
    """Return a row of the table."""
    names = sorted({row["program"]["name"] for row in rows})
    shown = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    why = next(
        (
            text
            for (folder, start), text in READ.items()
            if file.startswith(folder) and expression.startswith(start)
        ),
        "",
    )
    return (
        f"| `{file}:{line}` | `{_code(expression)}` | {shown} |"
        f" {max(row['bytes'] for row in rows):,} | {_size(expression, rows)} | {why} |\n"
    )


def _size(expression: str, rows: list[dict[str, Any]]) -> str:
    """Return the bytes at the published size, as far as they were counted."""
    if "logits[" in expression:
        import transformers

        sizes = {}
        for row in rows:
            name = row["program"]["name"].removeprefix("generate_")
            config = base_of(name) + "Config"
            sizes[base_of(name)] = 4 * getattr(transformers, config)().vocab_size
        low, high = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        return f"{sizes[low]:,} ({low}) to {sizes[high]:,} ({high}) a token"
    sizes = {}
    for row in rows:
        real = row["program"].get("real")
        key = f"{row['file']}:{row['line']}:{row['operation']}"
        if isinstance(real, dict) and key in real:
            sizes[row["program"]["name"]] = real[key][0]
    return ", ".join(f"{size:,} ({name})" for name, size in sizes.items()) or "as here"


if __name__ == "__main__":
    what, where, *names = sys.argv[1:]
    Path(where).mkdir(parents=True, exist_ok=True)
    if what == "measure":
        campaign(Path(where), names)
    else:
        PAGE.write_text(page(Path(where)), "utf-8")
