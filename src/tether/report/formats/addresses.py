"""Where the page of a verdict is published, for those who read a report elsewhere.

The address of the site is the project's own, from the metadata of the installed package; whoever
builds the site for themselves names theirs in TETHER_DOCS_URL. Without either there is none.
"""

from __future__ import annotations

import importlib.metadata
import os
from functools import cache

from tether.verdicts import VERDICTS

_SLUGS = {one.slug for one in VERDICTS}


def page_of(slug: str) -> str:
    """Return the address of a verdict's page; "" where the site's is not known, or no page is."""
    site = os.environ.get("TETHER_DOCS_URL") or _published()
    return f"{site.rstrip('/')}/verdicts/{slug}/" if site and slug in _SLUGS else ""


@cache
def _published() -> str:
    try:
        listed: list[str] = importlib.metadata.metadata("tether").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    named = dict(one.split(", ", 1) for one in listed if ", " in one)
    return named.get("Documentation", "")
