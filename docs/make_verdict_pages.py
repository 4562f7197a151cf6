# ruff: noqa: INP001  (a script, not part of a package)
"""Writes docs/verdicts/ from the verdicts' own pages: one page each, and the list of them.

`python docs/make_verdict_pages.py`, or `make docs`; tests/meta/test_pages.py keeps them fresh.
"""

from pathlib import Path

from tether.verdicts import VERDICTS

FOLDER = Path(__file__).parent / "verdicts"
NOTE = "<!-- Generated from src/tether/verdicts/{}.py by `make docs`. Do not edit. -->\n\n"


def pages() -> dict[str, str]:
    """Return the text of every page, by file name."""
    made = {
        f"{verdict.slug}.md": NOTE.format(verdict.slug.replace("-", "_"))
        + verdict.page.strip()
        + "\n"
        for verdict in VERDICTS
    }
    rows = "".join(
        f"| [{verdict.slug}]({verdict.slug}.md) | {verdict.severity} | {verdict.summary} |\n"
        for verdict in VERDICTS
    )
    head = "# Verdicts\n\n| slug | gravest | says |\n|---|---|---|\n"
    return {"README.md": NOTE.format("*") + head + rows, **made}


def main() -> None:
    """Write the pages, and remove those whose verdict is gone."""
    FOLDER.mkdir(exist_ok=True)
    wanted = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
