"""A parameter that a function writes on the way to its result, and that trains on: `alias-write`.

``grid = make_grid(conv.weight.data, normalize=True)`` in a loop that trains: each picture of the
weights brings them into the range of a picture. It is a note, for a function may be called for
both. Nothing is said of one whose result nobody uses, of values that were handed in beside the
parameter, of what is written before the first step or after the last one, and where the result
goes back into the parameter or into a loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.given_parameters import GivenParameter, given_parameters
from tether.analysis.history import History
from tether.analysis.shared_memory import Sharing
from tether.facts import SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.verdicts.alias_write.telling import written


def given_parameter(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that hands a parameter to a function which writes it."""
    told = set[SiteId]()
    for found in given_parameters(history):
        if found.call not in told:
            told.add(found.call)
            yield _claim(history, found)


def _claim(history: History, found: GivenParameter) -> Claim:
    write, read, step = (history.events[at] for at in (found.write, found.read, found.step))
    parts = {
        "p": Tensor(found.parameter), "code": Code(found.call), "line": At(found.call),
        "function": f"`{found.function}`", "call": CallOf(found.write), "write": At(write.site),
        "step": CallOf(found.step), "at": At(step.site), "read": At(read.site),
    }  # fmt: skip
    taken = history.get(Sharing).chain(write.writes[0].tensor)
    since = [history.events[one.at].site for one in taken[-1:]]
    return Claim(
        tensors=(found.parameter,),
        cause=("given parameter", found.call),
        site=found.call,
        operation=write.operation,
        severity="note",
        message=say(
            "{code} at {line} changes {p} while it trains: {function} is given its memory, {call}"
            " at {write} writes it, and {step} at {at} goes on from there. What the function"
            " computed from it is used at {read}.",
            **parts,
        ),
        story=(
            *(Step("shared", one, say("this shows the memory of {p} itself", **parts))
              for one in since),
            Step("shared", found.call, say("{function} is given {p}", **parts)),
            written(history, found.write),
            Step("read", read.site, say("the result is used here", **parts)),
            Step("step", step.site, say("{p} trains on from what was written", **parts)),
        ),
        repair=Repair(say("If {p} is to keep its values, hand in a copy at {line}: .clone() of what"
                          " is handed in.", **parts)),
    )  # fmt: skip
