"""Proof by running again: the program with a copy left out or put in, against the program as is.

A `needless-copy` finding says that nothing would change without the copy. `prove` runs the program
twice unchanged and once with every such copy replaced by its source, each time in a process of its
own, and holds everything that was handed out against the unchanged run, bit for bit (what that is,
`tether.measure.rerun` says; the lines on stdout and the exit code too). Lines that differ between
the two unchanged runs (times, say) are the program's own doing and are left out; where values
differ nothing can be proven. When the changed run differs, the copies are halved until those that
make the difference are found: their findings are withdrawn and kept as defects, which is what they
are.

An `alias-write` finding asks for a copy: the program runs with it, and the finding tells what
changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tether.analysis.copies.needs import Key, left_out_with, needs
from tether.analysis.history import History
from tether.facts import UNKNOWN, Site
from tether.finding import Evidence, Finding

if TYPE_CHECKING:
    from tether.record.running import Program

INSERTS = 5
"""Findings of `alias-write` that are tried, each in a run of its own."""
RERUNS = 16
"""Runs at most to find the copies that make a difference."""


class CannotProveError(Exception):
    """The program cannot be held against itself; the message says why, in one line."""


class Outcome(NamedTuple):
    """One run: what it handed out, and its stdout."""

    values: list[list[str]]  # of what, line, sum
    applied: list[int]
    spent: list[float]  # seconds in the calls that were timed
    exit_code: int
    error: str
    lines: list[str]
    seconds: float


class Noise(NamedTuple):
    """What two unchanged runs hand out differently, by number: times and speeds, say."""

    lines: set[int]
    values: set[int]


Run = Callable[[Sequence[list[Any]], float], Outcome]
"""Runs the program with some changes (rows of `tether.measure.rerun.CallChange`), within a time."""


def prove(
    findings: Sequence[Finding], history: History, run: Run, tell: Callable[[str], None]
) -> tuple[list[Finding], list[Finding]]:
    """Try every finding that a run can prove; return them with what came of it, and the refuted.

    `tell` is given a line before each run. Raises `CannotProveError`.
    """
    drops = {n: changes for n, one in enumerate(findings) if (changes := _drops(history, one))}
    inserts = [n for n, one in enumerate(findings) if one.slug == "alias-write"][:INSERTS]
    if not drops and not inserts:
        return list(findings), []
    trial = _Trial(drops, run, tell)
    trial.search()
    kept, defects = [], []
    for n, one in enumerate(findings):
        proven, why = trial.told.get(n, (None, ""))
        if proven is False:
            defects.append(replace(one, proven=False, assumes=(*one.assumes, why)))
        elif proven:
            kept.append(_proven(one, trial.spent[n], len(trial.noise.values)))
        else:
            kept.append(trial.with_copy(one) if n in inserts else one)
    return kept, defects


def _proven(finding: Finding, seconds: float, noise: int) -> Finding:
    """Return a finding of a copy without which a run was the same."""
    text = "without it every value is the same, bit for bit"
    text += f", but for {noise:,} that unchanged runs hand out differently as well" if noise else ""
    text += f"; it took {seconds * 1e3:.3g} ms of this run" if seconds else ""
    return replace(
        finding,
        proven=True,
        fix=replace(finding.fix, safe=True) if finding.fix is not None else None,
        evidence=(*finding.evidence, Evidence("proof", finding.site, text)),
    )


class _Trial:
    """The program as it is, and what its changed runs are compared with."""

    def __init__(
        self, drops: dict[int, list[list[Any]]], run: Run, tell: Callable[[str], None]
    ) -> None:
        self.drops, self._run, self._tell = drops, run, tell
        tell("running the program twice as it is")
        timed = [["time", *change[1:]] for changes in drops.values() for change in changes]
        self._plain, again = run(timed, 0), run([], 0)
        self.noise = noise_of(self._plain, again)
        self._limit = 60 + 10 * max(self._plain.seconds, again.seconds)
        self.spent = _spent(self._plain, drops)
        self.told: dict[int, tuple[bool | None, str]] = {}  # whether it was proven, or why not

    def without(self, numbers: Sequence[int]) -> tuple[list[str], Outcome]:
        """Run without the copies of some findings; return what differs, and the run."""
        changes = [change for n in numbers for change in self.drops[n]]
        self._tell(f"running it without {len(numbers)} of the copies")
        found = self._run(changes, self._limit)
        return differences(self._plain, found, self.noise), found

    def with_copy(self, finding: Finding) -> Finding:
        """Run with the copy that a finding asks for; return the finding with what changes."""
        self._tell(f"running it with the copy that {finding.subject} asks for")
        change = ["insert", finding.operation, list(finding.site[:5]), None]
        found = self._run([change], self._limit)
        return _with_effect(finding, differences(self._plain, found, self.noise), found)

    def search(self) -> None:
        """Find which copies make a difference, by halves; what is not reached stays unproven."""
        queue, runs = [list(self.drops)] if self.drops else [], 0
        while queue and runs < RERUNS:
            some = queue.pop(0)
            found, outcome = self.without(some)
            runs += 1
            if not found:
                self._note_made(some, outcome)
            elif len(some) == 1:
                self.told[some[0]] = (False, f"without it {found[0]}")
            else:
                half = len(some) // 2
                queue += [some[:half], some[half:]]
        self._try_together()

    def _note_made(self, numbers: Sequence[int], outcome: Outcome) -> None:
        """Note as proven the copies that a run left out, where it met them."""
        at = 0
        for n in numbers:
            made = sum(outcome.applied[at : at + len(self.drops[n])])
            at += len(self.drops[n])
            self.told[n] = (True if made else None, "")

    def _try_together(self) -> None:
        """Each half went by itself: where one was refuted, the others are proven only together."""
        answers = {n: answer for n, (answer, _) in self.told.items()}
        proven = [n for n, answer in answers.items() if answer]
        if False in answers.values() and len(proven) > 1 and self.without(proven)[0]:
            self.told |= dict.fromkeys(proven, (None, ""))


def _spent(plain: Outcome, drops: dict[int, list[list[Any]]]) -> dict[int, float]:
    """Return the seconds that each finding's copies took."""
    found, at = {}, 0
    for n, changes in drops.items():
        found[n] = sum(plain.spent[at : at + len(changes)])
        at += len(changes)
    return found


def _drops(history: History, finding: Finding) -> list[list[Any]]:
    """Return the changes that leave a finding's copies out."""
    if finding.slug != "needless-copy":
        return []
    inner_sites = {one.site for one in finding.evidence if one.role == "made"}
    library = _of_library(finding)
    keys: dict[Key, None] = {}
    for key in needs(history):
        site, inner, operation = key
        if not _same(history.site(site), finding.site) or library == (inner == UNKNOWN):
            continue
        if history.site(inner) in inner_sites if library else operation == finding.operation:
            keys |= dict.fromkeys(left_out_with(history, key))
    return [_drop(history, *key) for key in keys]


def _drop(history: History, site: int, inner: int, operation: str) -> list[Any]:
    where = list(history.site(inner)[:5]) if inner != UNKNOWN else None
    return ["drop", operation, list(history.site(site)[:5]), where]


def _of_library(finding: Finding) -> bool:
    return not any(one.role == "made" and _same(one.site, finding.site) for one in finding.evidence)


def _same(one: Site, other: Site) -> bool:
    return one[:5] == other[:5]


def noise_of(one: Outcome, other: Outcome) -> Noise:
    """Return which lines and numbers two unchanged runs hand out differently: times, say.

    Raises `CannotProveError` where a loss, a gradient or a parameter differs, or every value: then
    nothing can be held against them.
    """
    if one.error != other.error or one.exit_code != other.exit_code:
        raise CannotProveError(
            f"two unchanged runs ended differently ({other.error or 'no error'})"
        )
    if len(one.values) != len(other.values):
        raise CannotProveError("two unchanged runs handed out different numbers of values")
    pairs = enumerate(zip(one.values, other.values, strict=True))
    values = {n for n, (a, b) in pairs if a != b}
    numbers = all(_is_number(one.values[n], other.values[n]) for n in values)
    if values and (not numbers or len(values) == len(one.values)):
        raise CannotProveError(
            f"{len(values):,} of {len(one.values):,} values differ between two unchanged runs;"
            " set every seed (and torch.use_deterministic_algorithms)"
        )
    if len(one.lines) != len(other.lines):
        raise CannotProveError("two unchanged runs printed different numbers of lines")
    lines = {n for n, (a, b) in enumerate(zip(one.lines, other.lines, strict=True)) if a != b}
    return Noise(lines, values)


def _is_number(one: list[str], other: list[str]) -> bool:
    """Whether two runs handed out one thing, which is no loss, gradient, parameter or file."""
    what, line, _ = one
    return one[:2] == other[:2] and line != "" and what != "backward"


def differences(plain: Outcome, changed: Outcome, noise: Noise) -> list[str]:
    """Return in words what a changed run handed out differently; nothing: the same, bit for bit."""
    found = []
    if changed.error != plain.error:
        found.append(f"it ends with {changed.error or 'no error'}")
    if changed.exit_code != plain.exit_code:
        found.append(f"its exit code is {changed.exit_code}")
    found += _other_values(plain, changed, noise)
    if len(plain.lines) != len(changed.lines):
        found.append("it prints other lines")
    else:
        pairs = enumerate(zip(plain.lines, changed.lines, strict=True))
        found += [
            f"it prints {_short(new)} instead of {_short(old)}"
            for n, (old, new) in pairs
            if old != new and n not in noise.lines
        ]
    return list(dict.fromkeys(found))


def _other_values(plain: Outcome, changed: Outcome, noise: Noise) -> Iterator[str]:
    if [one[:2] for one in plain.values] != [one[:2] for one in changed.values]:
        yield "it hands out other values, in number or order"
        return
    for n, (one, other) in enumerate(zip(plain.values, changed.values, strict=True)):
        if one[2] != other[2] and n not in noise.values:
            where = f" at {one[1]}" if one[1] else ""
            yield f"{one[0]}{where} is another value"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _with_effect(finding: Finding, found: list[str], outcome: Outcome) -> Finding:
    """Add to a finding what changes with the copy that it asks for."""
    if not sum(outcome.applied):
        return finding
    if not found:
        text = "with a copy here the program hands out the same values: this run was not harmed"
        return replace(finding, evidence=(*finding.evidence, Evidence("proof", finding.site, text)))
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    text = f"with a copy here: {'; '.join(found[:3])}{more}"
    evidence = (*finding.evidence, Evidence("proof", finding.site, text))
    return replace(finding, evidence=evidence, proven=True)


# -- running ---------------------------------------------------------------------------------------


def runner(program: Program, folder: str) -> Run:
    """Return how to run `program` in processes of its own, from `folder`."""

    def run(changes: Sequence[list[Any]], limit: float) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="tether-") as scratch:
            order, result = Path(scratch, "order.json"), Path(scratch, "result.json")
            order.write_text(
                json.dumps(
                    {
                        "kind": program.kind,
                        "target": program.target,
                        "arguments": list(program.arguments),
                        "changes": list(changes),
                        "result": str(result),
                    }
                ),
                "utf-8",
            )
            # Sets of strings come in the same order in every run.
            environment = {"PYTHONHASHSEED": "0", **os.environ}
            began = time.perf_counter()
            try:
                ended = subprocess.run(  # noqa: S603 -- what runs is the user's own program
                    [sys.executable, "-m", "tether.measure.rerun", str(order)],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=limit or None,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                late = f"nothing after {limit:.0f} s"
                return Outcome([], [0] * len(changes), [], -1, late, [], limit)
            seconds = time.perf_counter() - began
            lines = ended.stdout.decode("utf-8", "backslashreplace").splitlines()
            try:
                seen = json.loads(result.read_text("utf-8"))
            except (OSError, ValueError):
                last = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
                raise CannotProveError(
                    f"running it again failed: {last[0] if last else 'no result'}"
                ) from None
            return Outcome(seen[0], seen[1], seen[2], seen[3], seen[4], lines, seconds)

    return run
