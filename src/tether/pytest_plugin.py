"""``pytest --tether``: each test is recorded, fails on findings, and a failure is explained.

Without ``--tether`` only what a test asks for is recorded; torch is imported when a test is.

- ``--tether-fail-on {error,warning,note,never}`` (default warning)
- ``--tether-limit N`` keeps the last N calls of a test (default 20,000)
- ``@pytest.mark.tether`` records a test, also without ``--tether``
- ``@pytest.mark.tether_allow("slug", ...)`` accepts findings of these slugs in a test
- ``@pytest.mark.tether_limit(copies=N, bytes=N)`` fails a test that copies more than that
- the fixture ``tether_recording`` is the recording of the test
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tether.api import record

_RECORDING = pytest.StashKey["record"]()
_MANY_LINES = 20  # of the summary
_MARKERS = (
    "tether: record this test, and fail it on findings",
    "tether_allow(*slugs): findings that are accepted in this test",
    "tether_limit(copies=None, bytes=None): what a test may copy at most",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("tether", "ties of PyTorch tensors")
    group.addoption("--tether", action="store_true", help="record each test, fail on findings")
    group.addoption(
        "--tether-fail-on",
        choices=("error", "warning", "note", "never"),
        default="warning",
        help="the least severity that fails a test (default: %(default)s)",
    )
    group.addoption(
        "--tether-limit",
        type=int,
        default=20_000,
        metavar="N",
        help="keep the last N calls of each test (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)


@pytest.fixture
def tether_recording(request: pytest.FixtureRequest) -> record:
    """Return the recording of this test; ``stop()`` ends it, so that its findings can be asked."""
    return _recording_of(request.node)


def _recording_of(item: pytest.Item) -> record:
    """Return the recording of a test, which begins when the test is called."""
    from tether.api import record

    if _RECORDING not in item.stash:
        item.stash[_RECORDING] = record(item.config.getoption("--tether-limit"))
    return item.stash[_RECORDING]


def _judged(item: pytest.Item) -> bool:
    """Say whether findings of a test fail it."""
    return bool(item.config.getoption("--tether") or item.get_closest_marker("tether"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Record the call of a test, and judge what was recorded when it has passed."""
    if not _judged(item) and _RECORDING not in item.stash:
        yield
        return
    recording = _recording_of(item)
    recording.__enter__()
    outcome = yield
    error = _error_of(item, outcome)
    recording.stop(error)
    recording.trace.folder = str(item.config.rootpath)  # from where its files are named
    if error is None and _judged(item):
        told = _told(item, recording)
        if told:
            outcome.force_exception(pytest.fail.Exception("\n".join(told), pytrace=False))


def _error_of(item: pytest.Item, outcome: Any) -> BaseException | None:
    """Return what a test raised, without frames of tether's."""
    from tether.record.ending import strip

    kept = getattr(item, "_excinfo", None)  # where a `unittest.TestCase` keeps it for pytest
    raised: BaseException | None = outcome.excinfo[1] if outcome.excinfo is not None else None
    if not kept:
        if raised is not None:
            strip(raised)
            outcome.force_exception(raised)  # with the traceback that it has now
        return raised
    error: BaseException = kept[0].value
    strip(error)
    kept[0] = pytest.ExceptionInfo.from_exception(error)
    return error


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Add what was found in a test to its report, where a worker's is read as well."""
    outcome = yield
    recording = item.stash.get(_RECORDING, None)
    if call.when == "teardown" and recording is not None:
        del item.stash[_RECORDING]  # the items live as long as all tests, and it is large
    if call.when != "call" or recording is None or not recording.ended:
        return
    made = outcome.get_result()
    made.tether = _lines(recording)
    if made.failed:
        text = _explained(recording)
        made.sections += [("tether", text)] if text else []


def _lines(recording: record) -> list[tuple[str, str]]:
    """Return the severity of each finding and its line."""
    stream = io.StringIO()
    recording.lines(stream, recording.trace.folder)
    severities = [one.severity for one in recording.findings]
    return list(zip(severities, stream.getvalue().splitlines(), strict=False))


def _explained(recording: record) -> str:
    """Return the findings of a test that are no mere notes, with their places in the source."""
    from tether.report.document import text
    from tether.report.document.blocks import Document
    from tether.report.document.compose import finding_block

    graver = [one for one in recording.findings if one.severity != "note"]
    blocks = [finding_block(n, one, recording.about) for n, one in enumerate(graver, 1)]
    return text.render(Document("tether", [*blocks])) if blocks else ""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what was found in all tests, each finding once."""
    from tether.finding import SEVERITIES
    from tether.report.document.findings import counted

    reports = {id(one): one for listed in terminalreporter.stats.values() for one in listed}
    recorded = [one.tether for one in reports.values() if hasattr(one, "tether")]
    if not recorded:
        return
    found = Counter(one for lines in recorded for one in {tuple(line): None for line in lines})
    order = sorted(found, key=lambda one: (SEVERITIES.index(one[0]), -found[one]))
    terminalreporter.section("tether")
    for one in order[:_MANY_LINES]:
        tests = f" ({found[one]} tests)" if found[one] > 1 else ""
        terminalreporter.write_line(one[1] + tests)
    if order[_MANY_LINES:]:
        terminalreporter.write_line(f"... and {len(order) - _MANY_LINES} more")
    counts = f"{counted(len(found), 'finding')} in {counted(len(recorded), 'test')} recorded"
    terminalreporter.write_line(counts)


def _told(item: pytest.Item, recording: record) -> list[str]:
    """Return why a test that passed is to fail."""
    from tether.testing import graver

    fail_on = item.config.getoption("--tether-fail-on")
    allowed = [slug for mark in item.iter_markers("tether_allow") for slug in mark.args]
    told = graver(recording.findings, fail_on, allowed) if fail_on != "never" else []
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
