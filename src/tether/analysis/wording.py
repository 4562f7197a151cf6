"""The words that verdicts share: a line, a name and how many more, an event as evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tether.facts import Site


def place(site: Site) -> str:
    """Return a site as a reader names it in a sentence."""
    return f"line {site.line}" if site.line else "an unknown line"


def and_more(names: list[str]) -> str:
    """Return the first of several names, and how many more there are: `a` and 4 more."""
    return f"`{names[0]}`" if len(names) == 1 else f"`{names[0]}` and {len(names) - 1} more"


def listed(names: list[str], most: int = 3) -> str:
    """Return names as prose: a, b and 4 more."""
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def named(labels: Iterable[str]) -> str:
    """Return ``ranks 0 and 2``, ``ranks 0-7``, ``rank 1 and Process-2``."""
    labels = list(dict.fromkeys(labels))
    ranks = sorted(int(one[5:]) for one in labels if one.startswith("rank "))
    others = [one for one in labels if not one.startswith("rank ")]
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    said = [text for run in runs for text in _run(run)]
    if said:
        said[0] = f"rank{'s' if len(ranks) > 1 else ''} {said[0]}"
    return listed([*said, *others])


def _run(run: Sequence[int]) -> list[str]:
    return [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(one) for one in run]
