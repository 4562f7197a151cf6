"""``pytest --tether``: each test is recorded, and fails on findings.

Without ``--tether`` the plugin does nothing but register its options and markers; it imports torch
only when a test is recorded.

- ``--tether-fail-on {error,warning,note}`` (default warning)
- ``@pytest.mark.tether_allow("slug", ...)`` accepts findings of these slugs in a test
- ``@pytest.mark.tether_limit(copies=N, bytes=N)`` fails a test that copies more than that
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tether.api import record


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("tether", "ties of PyTorch tensors")
    group.addoption("--tether", action="store_true", help="record each test, fail on findings")
    group.addoption(
        "--tether-fail-on",
        choices=("error", "warning", "note"),
        default="warning",
        help="the least severity that fails a test (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line(
        "markers", "tether_allow(*slugs): findings that are accepted in this test"
    )
    config.addinivalue_line(
        "markers", "tether_limit(copies=None, bytes=None): what a test may copy at most"
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Record the call of a test, and judge what was heard when it has passed."""
    if not item.config.getoption("--tether"):
        yield
        return
    from tether.api import record
    from tether.record.ending import strip

    with record() as recording:
        outcome = yield
    if outcome.excinfo is not None:
        strip(outcome.excinfo[1])
    else:
        told = _told(item, recording)
        if told:
            outcome.force_exception(pytest.fail.Exception("\n".join(told), pytrace=False))


def _told(item: pytest.Item, recording: record) -> list[str]:
    from tether.testing import graver

    allowed = [slug for mark in item.iter_markers("tether_allow") for slug in mark.args]
    told = graver(recording.findings, item.config.getoption("--tether-fail-on"), allowed)
    limit = item.get_closest_marker("tether_limit")
    if limit is not None:
        made = [row for row in recording.copies if row.memory != "shares"]
        told += _over(limit.kwargs, made)
    return told


def _over(limits: Mapping[str, Any], made: Iterable[Any]) -> list[str]:
    from tether.operations.table import operation

    rows = [
        row
        for row in made
        if operation(row.operation).copies and not operation(row.operation).writes
    ]
    totals = {"copies": sum(row.count for row in rows), "bytes": sum(row.bytes for row in rows)}
    unknown = set(limits) - set(totals)
    if unknown:
        return [f"tether_limit takes copies and bytes, not {', '.join(sorted(unknown))}"]
    told = []
    for what, most in limits.items():
        if most is not None and totals[what] > most:
            worst = max(rows, key=lambda row: row.bytes if what == "bytes" else row.count)
            told.append(
                f"{totals[what]:,} {what} copied, {most:,} allowed; most of it by"
                f" {worst.operation} at {worst.site.file}:{worst.site.line}"
            )
    return told
