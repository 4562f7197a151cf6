"""Errors that another process had raised: what they had said there, and where.

The process that waits for the other one raises them anew. The traceback is text by then, in the
message or with the cause, and is read as such: a fact about a process that was not recorded.
"""

from __future__ import annotations

import re

from tether.facts import Site
from tether.record.sites import is_user_file

MOST = 16
"""Lines of the user's that are kept, the innermost."""

_AGAIN = re.compile(
    r"Caught \w+ in DataLoader worker process \d+\.\nOriginal Traceback"
    r"|\s*-- Process \d+ terminated with the following error:\nTraceback"
)
_CAUSES = ("RemoteTraceback", "_RemoteTraceback")  # of multiprocessing.pool, concurrent.futures
_BEGINS = re.compile(r"Traceback \(most recent call last\):\n")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.M)
_SAID = re.compile(r"^[\w.]+: ?(.*)\Z", re.M | re.S)


def elsewhere(error: BaseException, text: str) -> tuple[str, list[Site]]:
    """Return what an error had said in another process, and the user's lines there.

    The outermost is the first. "" and nothing for an error of this process.
    """
    if type(error).__name__ == "MaybeEncodingError":  # it could not send back what it had computed
        return str(getattr(error, "exc", "")), []
    cause = error.__cause__
    told = getattr(cause, "tb", None) if type(cause).__name__ in _CAUSES else None
    if not isinstance(told, str):
        told = text if _AGAIN.match(text) else ""
    if not told:
        return "", []
    last = _BEGINS.split(told)[-1]  # of errors that led to one another
    said = _SAID.search(last)
    frames = [(file, int(line), name) for file, line, name in _FRAME.findall(last)]
    users = [Site(file, line, function=name) for file, line, name in frames if is_user_file(file)]
    return (said[1].strip() if said else last.strip()), list(dict.fromkeys(users))[-MOST:]
