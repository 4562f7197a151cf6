"""The words that verdicts share: a line, a name and how many more, an event as evidence."""

from __future__ import annotations

from tether.analysis.history import History
from tether.facts import Event, Site
from tether.finding import Evidence


def place(site: Site) -> str:
    """Return a site as a reader names it in a sentence."""
    return f"line {site.line}" if site.line else "an unknown line"


def evidence(history: History, role: str, event: Event, text: str) -> Evidence:
    """Return an event as evidence, at the user's line."""
    return Evidence(role, history.site_of(event), text)


def and_more(names: list[str]) -> str:
    """Return the first of several names, and how many more there are: `a` and 4 more."""
    return f"`{names[0]}`" if len(names) == 1 else f"`{names[0]}` and {len(names) - 1} more"


def listed(names: list[str], most: int = 3) -> str:
    """Return names as prose: a, b and 4 more."""
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
