"""The report inside a notebook: the page in a frame, and the text for who cannot show it.

The frame is sandboxed: the page's styles and script touch nothing of the notebook.
"""

from __future__ import annotations

from html import escape

from tether.report.document.blocks import Document, Paragraph
from tether.report.document.text import render
from tether.report.page.html import blocks

HEIGHT = 640  # pixels; the reader may pull the frame larger


def html(document: Document, page: str) -> str:
    """Return a report as HTML to stand inside another page.

    A viewer that shows no frames (one that does not trust the notebook) shows the rest: the
    summary, and the whole report as text in a fold.
    """
    summary = Document("", [one for one in document.blocks[1:3] if isinstance(one, Paragraph)])
    shown = "".join(blocks(summary))
    return (
        f"<div>{shown}"
        f'<iframe title="tether report" sandbox="allow-scripts" srcdoc="{escape(page)}" '
        f'style="width:100%;height:{HEIGHT}px;border:1px solid #8886;resize:vertical">'
        "</iframe><details><summary>as text</summary>"
        f"<pre>{escape(render(document))}</pre></details></div>"
    )
