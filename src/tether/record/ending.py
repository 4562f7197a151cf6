"""How a recorded stretch of a program ended: the exception that left it, as a fact."""

from __future__ import annotations

from tether.facts import UNKNOWN, Raised, Site, SiteId, Trace
from tether.record.processes.elsewhere import elsewhere
from tether.record.sites import CodePlaces, is_worn, site_at, without_our_frames
from tether.record.tape import Tape, cut, text_of


class Terminated(BaseException):
    """SIGTERM arrived."""


def ended_with(trace: Trace, tape: Tape, error: BaseException) -> None:
    """Say in the facts that this exception ended the recording.

    One that was noted when it passed through a recorded call is not told twice.
    """
    interrupted = isinstance(error, (KeyboardInterrupt, Terminated))
    trace.outcome = "interrupted" if interrupted else "raised"
    site = _site_of(trace, error)
    noted = _noted(trace, tape, error)
    if noted != UNKNOWN:
        one = trace.raised[noted]
        known = _is_users(trace, one.site)
        trace.raised[noted] = one._replace(fatal=True, site=one.site if known else site)
        return
    kind = "SIGTERM" if isinstance(error, Terminated) else type(error).__name__
    said, lines = elsewhere(error, text_of(error))
    known_lines = tuple(_number_of(trace, one) for one in lines)
    trace.raised.append(
        Raised(trace.ended, kind, text_of(error), site, True, elsewhere=said, lines=known_lines)
    )


def _noted(trace: Trace, tape: Tape, error: BaseException) -> int:
    """Return which of the errors that were noted this one is.

    It may have come from a thread of a library's that met several of one kind.
    """
    if trace.raised and tape.is_last_error(error):
        return len(trace.raised) - 1
    said = type(error).__name__, cut(text_of(error))
    same = (
        number
        for number, one in enumerate(trace.raised)
        if (one.type, one.message) == said and not _is_users(trace, one.site)
    )
    return next(same, UNKNOWN)


def _is_users(trace: Trace, site: int) -> bool:
    return site != UNKNOWN and trace.sites[site].user


def _number_of(trace: Trace, line: Site) -> SiteId:
    """Return the number of a site at a line; a new one if no call was recorded there."""
    rows = ((number, site.row) for number, site in enumerate(trace.sites))
    known = next((number for number, row in rows if row == line.row), UNKNOWN)
    if known == UNKNOWN:
        trace.sites.append(line)
        known = len(trace.sites) - 1
    return SiteId(known)


def strip(error: BaseException | None) -> None:
    """Take tether's frames out of an exception and out of those that led to it."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = without_our_frames(one.__traceback__, is_worn)
            waiting += (one.__cause__, one.__context__)


def _site_of(trace: Trace, error: BaseException) -> SiteId:
    """Site of the innermost line of the user's that the exception passed; a new one if need be."""
    last: Site | int = UNKNOWN
    traceback = error.__traceback__
    by_line = {(site.file, site.line): n for n, site in enumerate(trace.sites) if site.user}
    by_call = {site.position: n for n, site in enumerate(trace.sites) if site.user}
    while traceback is not None:
        call = site_at(CodePlaces(traceback.tb_frame.f_code), traceback.tb_lasti)
        known = by_call.get(call.position, by_line.get((call.file, call.line)))
        last = known if known is not None else call if call.user else last
        traceback = traceback.tb_next
    if isinstance(last, Site):
        trace.sites.append(last)
        last = len(trace.sites) - 1
    return SiteId(last)
