"""How a recorded stretch of a program ended: the exception that left it, as a fact."""

from __future__ import annotations

from tether.facts import UNKNOWN, Raised, Site, SiteId, Trace
from tether.record.sites import CodePlaces, is_worn, site_at, without_our_frames
from tether.record.tape import Tape, text_of


class Terminated(BaseException):
    """SIGTERM arrived."""


def ended_with(trace: Trace, tape: Tape, error: BaseException) -> None:
    """Say in the facts that this exception ended the recording.

    One that was noted when it passed through a recorded call is not told twice.
    """
    interrupted = isinstance(error, (KeyboardInterrupt, Terminated))
    trace.outcome = "interrupted" if interrupted else "raised"
    if trace.raised and tape.is_last_error(error):
        trace.raised[-1] = trace.raised[-1]._replace(fatal=True)
        return
    kind = "SIGTERM" if isinstance(error, Terminated) else type(error).__name__
    site = _site_of(trace, error)
    trace.raised.append(Raised(trace.ended, kind, text_of(error), site, fatal=True))


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
