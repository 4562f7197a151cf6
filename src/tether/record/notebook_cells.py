"""What the cells of a notebook are called: ``cell 3`` in place of a file that nobody wrote.

IPython compiles each cell under a made-up file name and knows which cell that was; its own
tracebacks ask in the same way.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from tether.facts import Trace

_NUMBERED = re.compile(r"In\[(\d+)\]")
_OWN = re.compile(r"In|Out|exit|quit|open|get_ipython|_+|_[iod]h|_i+|_i?\d+")


def shell() -> Any:
    """Return the running IPython shell (a notebook's kernel has one), or None."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def called(file: str) -> str:
    """Return ``cell 3`` for the file name under which that cell was compiled, "" for another."""
    name = getattr(getattr(shell(), "compile", None), "format_code_name", None)
    found = name(file) if name is not None else None
    number = _NUMBERED.search(found[1]) if found else None
    return f"cell {number[1]}" if number else ""


def name_cells(trace: Trace, known: Mapping[str, str]) -> None:
    """Let the sites and texts of a trace that was just recorded speak of cells.

    `known` says of some files which cells they are.
    """
    files = {site.file for site in trace.sites} | set(trace.sources)
    cells = {file: known.get(file) or called(file) for file in files}
    cells = {file: cell for file, cell in cells.items() if cell}
    if cells:
        trace.sites = [site._replace(file=cells.get(site.file, site.file)) for site in trace.sites]
        trace.sources = {cells.get(file, file): text for file, text in trace.sources.items()}


def of_the_user(variables: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the variables without those by which IPython remembers what cells gave."""
    if shell() is None:
        return list(variables)
    return [pair for pair in variables if not _OWN.fullmatch(pair[0])]
