"""What was concluded of a recording, kept in its file so that it is not worked out again.

It is believed only from the very code that would work it out, and every value is checked for its
type as in the rest of the file; anything else is as if nothing had been kept.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import tether
from tether.analysis.gradients.cuts import ActedCut
from tether.analysis.memory import Growth
from tether.analysis.ties import ActedTie
from tether.facts import Trace
from tether.finding import Finding, Said, Segment
from tether.report.tables.copies import Needed
from tether.store.layout import Damage, decoder, list_of, parse, string, table_of

_ROOMS = ("analysis", "facts", "operations", "source", "store", "verdicts")
_FILES = ("finding.py", "regions.py")


class NeededAt(NamedTuple):
    """Whether the copies of an operation at a site were needed, and why."""

    site: int
    operation: str
    needed: Needed
    reason: str


@dataclass
class Conclusions:
    """What takes long to work out."""

    findings: tuple[Finding, ...]  # of all files and verdicts, none silenced
    needed: tuple[NeededAt, ...]
    ties: tuple[ActedTie, ...]
    cuts: tuple[ActedCut, ...]
    growth: Growth | None


@lru_cache(maxsize=1)
def author() -> str:
    """Return a number for the code that draws the conclusions."""
    known = hashlib.sha256(tether.__version__.encode())
    package = resources.files("tether")
    for file in _FILES:
        known.update(package.joinpath(file).read_bytes())
    for room in _ROOMS:
        _read(package.joinpath(room), known)
    return known.hexdigest()


def _read(folder: Any, into: Any) -> None:
    for item in sorted(folder.iterdir(), key=lambda one: str(one.name)):
        if item.is_dir() and item.name != "__pycache__":
            _read(item, into)
        elif item.name.endswith((".py", ".json")):
            into.update(item.read_bytes())


def written(conclusions: Conclusions) -> str:
    """Return conclusions as text for a recording's file."""
    values = {"author": author(), "conclusions": _plain(conclusions)}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def read(trace: Trace) -> Conclusions | None:
    """Return what a recording's file has kept; None where it is of other code, or damaged."""
    if not trace.concluded:
        return None
    try:
        values = table_of(parse(trace.concluded.encode("utf-8", "surrogatepass")))
        if values.get("author") != author():
            return None
        found: Conclusions = decoder(Conclusions, _text)(values.get("conclusions"))
    except (Damage, ValueError, RecursionError):
        return None
    return found


# -- values ----------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; a sentence keeps its parts."""
    if isinstance(value, Said):
        return {"said": [list(one) for one in value.segments]}
    if is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _text(value: object) -> str:
    if not isinstance(value, dict):
        return string(value)
    segment = decoder(Segment)
    return Said(segment(one) for one in list_of(value.get("said")))
