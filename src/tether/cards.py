"""What a notebook shows of an answer: a card with a title and rows, and chips in its sentences.

Styles stand on the elements themselves, and colours are the notebook's own but for one edge: a
notebook is light or dark, and nothing outside a card may change.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_BOX = (
    "border:1px solid #8886;border-left:4px solid {edge};border-radius:6px;padding:.3em .8em;"
    "margin:.3em 0;max-width:60em;overflow-wrap:anywhere"
)
_CHIP = (
    "font-family:ui-monospace,monospace;border:1px solid #8886;border-radius:9px;padding:0 .5em;"
    "margin-right:.3em;white-space:nowrap"
)
_LABEL = "opacity:.65;flex:none;min-width:5.5em"

EDGES = {"good": "#2da44e", "bad": "#cf222e", "warning": "#bf8700", "note": "#0969da"}


def chip(text: object) -> str:
    """Return a few words as a chip."""
    return f'<span style="{_CHIP}">{escape(str(text))}</span>'


def code(text: object) -> str:
    """Return a piece of code."""
    return f'<code style="white-space:pre-wrap">{escape(str(text))}</code>'


def card(title: str, rows: Iterable[tuple[str, str]], edge: str = "note") -> str:
    """Return a card; `title` and the second of each row are HTML, made by the functions here."""
    shown = "".join(
        f'<div style="display:flex;gap:.6em"><span style="{_LABEL}">{escape(label)}</span>'
        f"<span>{body}</span></div>"
        if label
        else f"<div>{body}</div>"
        for label, body in rows
    )
    return f'<div style="{_BOX.format(edge=EDGES[edge])}"><div>{title}</div>{shown}</div>'


def words(text: object) -> str:
    """Return plain words, with what stands between backticks as code."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:
        return escape(str(text))
    return "".join(code(part) if n % 2 else escape(part) for n, part in enumerate(parts))
