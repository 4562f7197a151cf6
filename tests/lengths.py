"""How long a law runs: a sample by default, all with ``pytest --long``.

``TETHER_PROGRAMS`` sets how many programs each law of random programs tries, at night a million.
"""

import os

LONG = bool(os.environ.get("TETHER_LONG"))

PATIENCE = 0 if {"TETHER_PROGRAMS", "TETHER_ALL", "TETHER_FUZZ"} & os.environ.keys() else 600
"""Seconds that one test may take before it counts as hanging; 0 where its length was asked for."""


def programs(short: int, long: int) -> int:
    """Return how many random programs to try."""
    return int(os.environ.get("TETHER_PROGRAMS", long if LONG else short))


def sampled(cases: list, short: int) -> list:
    """Return cases spread over a list: about so many of them, or all."""
    return cases if LONG else cases[:: max(1, len(cases) // short)]


def at_length(*cases) -> list:
    """Return cases that are tried only at full length."""
    return list(cases) if LONG else []
