"""A block under activation checkpointing whose second run, in a pass, goes another way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from tether.analysis.gradients.both_runs import (
    BothRuns,
    Parting,
    calls_in,
    drawn_for,
    pass_of,
    run_behind,
)
from tether.analysis.history import History, losses_of
from tether.analysis.surroundings import CALLED, Surroundings, WaysThere
from tether.analysis.training.frozen import taken_off
from tether.facts import UNKNOWN, Operand, Raised, RunAgain, Site
from tether.finding import At, CallOf, Code, Repair, Sentence, Step, Tensor, named, say
from tether.source.changing import StateChange, changes_of, states_behind

_MOST = 2
"""Lines that are told of what changes one state."""

_RUNS = {
    ("more", False): "the recomputation runs {call}, which the forward did not run",
    ("more", True): "the recomputation runs {call} more often than the forward did",
    ("fewer", False): "the forward ran {call}, which the recomputation does not run",
    ("fewer", True): "the forward ran {call} more often than the recomputation does",
    ("other", False): "the forward ran {before} at {line}, the recomputation runs {call}",
}


class Lead(NamedTuple):
    """A line that led to the parting."""

    site: Site
    said: Sentence  # what it does: "changes `self.keys`"
    between: bool  # between the runs; else in the block


class Recomputed:
    """What is known of a block that ran again, as a pass failed at it."""

    def __init__(self, history: History, run: RunAgain, parted: Parting | None) -> None:
        self.history, self.run, self.parted = history, run, parted
        self.passed = pass_of(history, run)
        self._passed = history.events[self.passed].site

    # -- what led to it --------------------------------------------------------------------------

    @cached_property
    def leads(self) -> list[Lead]:
        """The lines that made the second run go another way, as far as they are known."""
        if self.parted is None:
            return []
        ways = (self._frozen, self._drawn, self._changed, self._switched)
        return next(filter(None, (list(way(self.parted)) for way in ways)), [])

    def _between(self, at: int) -> bool:
        first_after = self.history.trace.first_after
        return first_after(self.run.last) <= at < first_after(self.run.again)

    def _frozen(self, parted: Parting) -> Iterator[Lead]:
        """Yield the call that took off the graph what had required grad."""
        if parted.differs == "requires grad" and parted.before is not None:
            for at in self.history.reads_of(parted.before.tensor):
                event = self.history.events[at]
                if self._between(at) and taken_off(event) is not None:
                    said = say("takes {x} off the graph", x=Tensor(parted.before.tensor))
                    yield Lead(self.history.site_of(event), said, between=True)

    def _drawn(self, parted: Parting) -> Iterator[Lead]:
        """Yield the call that drew the numbers on which the parting hangs."""
        at = drawn_for(self.history, parted, self.run)
        if at != UNKNOWN:
            site = self.history.site_of(self.history.events[at])
            yield Lead(site, say("draws other numbers the second time"), between=False)

    def _changed(self, parted: Parting) -> list[Lead]:
        """Return the lines that change a state which the parting hangs on."""
        known = [one for site in self._way for one in changes_of(self.history.trace.sources,
                 self._states(site, parted))]  # fmt: skip
        for chosen, between in ((self._in_block, False), (self._in_between, True)):
            found = [one for one in known if chosen(one)]
            if found:
                state = named(found[0].state)
                sites = [one.site for one in found if one.state == found[0].state][:_MOST]
                return [Lead(one, say("changes {state}", state=state), between) for one in sites]
        return []

    def _states(self, site: Site, parted: Parting) -> list[str]:
        reached = (parted.differs, False) in _RUNS
        source = self.history.get(Surroundings).source(site.file)
        return states_behind(source, site, reached=reached)

    @cached_property
    def _way(self) -> list[Site]:
        """The line at which the runs part, and those of the block that led to it."""
        assert self.parted is not None
        return [self.history.site(one) for one in self._own_lines(self.parted.at)]

    def _own_lines(self, at: int) -> Iterator[int]:
        """Yield the lines of the block that led to a call, its own first."""
        above = self.history.get(WaysThere).above(at)
        for one in (self.history.events[at].site, *above):
            if one in (self.run.site, self._passed):
                return
            yield one

    @cached_property
    def _lines(self) -> list[Site]:
        """The lines of the program's that ran in the block."""
        calls = calls_in(self.history, self.run)
        return [
            self.history.site(one) for one in {one for at in calls for one in self._own_lines(at)}
        ]

    def _in_block(self, change: StateChange) -> bool:
        """Whether a line is in a function that ran in the block."""
        return any(change.is_in(one) for one in self._lines)

    def _in_between(self, change: StateChange) -> bool:
        """Whether a line stands between forward and pass, in the function that ran both."""
        passed = self.passed
        first = next(calls_in(self.history, self.run), passed)
        forward = self.history.site(self.history.get(WaysThere).seen_by(first, passed))
        back = self.history.site(self._passed)
        same = forward.function == back.function and change.is_in(forward) and change.is_in(back)
        return same and forward.line <= change.site.line <= back.line

    def _switched(self, parted: Parting) -> Iterator[Lead]:
        """Yield the line that put the block into another mode, where the mode may matter."""
        event = self.history.events[parted.at]
        asked = any(".training" in self._states(one, parted) for one in self._way)
        if parted.differs != "does" and event.inner == event.site and not asked:
            return
        calls = (self.history.events[at] for at in calls_in(self.history, self.run))
        read = {one.tensor for call in calls for one in call.reads}
        run, switches = self.run, self.history.trace.mode_switches
        found = [one for one in switches if run.last <= one.at <= run.again]
        found = [one for one in found if not read.isdisjoint(one.tensors)]
        if found and found[0].training == found[-1].training:  # else it was put back
            yield Lead(self.history.site(found[0].site), say("switches the mode"), between=True)

    # -- in words --------------------------------------------------------------------------------

    @property
    def loss(self) -> Operand | None:
        """What the pass started from."""
        return next(iter(losses_of(self.history.events[self.passed])), None)

    def told(self) -> Iterator[Step]:
        """Yield the line of the checkpoint, what led to it, and where the runs part."""
        yield Step("checkpoint", self.run.site, say("this block is checkpointed: it runs twice"))
        for one in self.leads:
            yield Step("written", one.site, say("this {said}", said=one.said))
        if self.parted is not None:
            how = self._how(self.parted)
            yield Step("read", self._site(self.parted), say("the runs part here: {how}", how=how))
            for site in self._way[1:2]:
                yield Step("called", site, CALLED)

    def _site(self, parted: Parting) -> int:
        """Return where the runs part: the line of the checkpoint for what a library does in it."""
        sites = [self.history.events[at].site for at in parted.calls]
        return next((one for one in sites if one != self._passed), self.run.site)

    def _how(self, parted: Parting) -> Sentence:
        """Say how the second run differs where the runs part."""
        events = self.history.events
        parts: dict[str, Any] = {"call": self._call(parted.at)}
        text = _RUNS.get((parted.differs, parted.repeated), "")
        if parted.differs == "other":
            parts |= {"before": self._call(parted.first), "line": At(events[parted.first].site)}
        elif parted.differs == "does":
            text = "{call} does not do what it did in the forward"
        elif not text:
            now, was = (self._value(parted, one) for one in (True, False))
            parts |= {"now": now, "was": was}
            text = "{call} is given {now} now, and was given {was} in the forward"
            if parted.result:
                text = "{call} gives {now} now, and gave {was} in the forward"
            if parted.differs == "truth":
                text = "{call} is {now} now, and was {was} in the forward"
        return say(text, **parts)

    def _value(self, parted: Parting, now: bool) -> Sentence:
        """Say what differs, as it is in the second run or was in the forward."""
        event = self.history.events[parted.again if now else parted.first]
        one = parted.now if now else parted.before
        if parted.differs == "truth":
            return say("true" if event.on else "false")
        if one is None:
            met = event.results if parted.result else event.reads
            return say("{number} tensor" + "s" * (len(met) != 1), number=len(met))
        text = {
            "shape": "of shape {shape}", "dtype": "of {dtype}", "device": "on {device}",
            "requires grad": "that requires grad" if one.requires_grad else "that requires no grad",
        }[parted.differs]  # fmt: skip
        device = self.history.trace.storages[one.storage].device
        text = ("a tensor " if now else "one ") + text
        return say(text, shape=str(one.shape), dtype=one.dtype, device=device)

    def _call(self, at: int) -> Code | CallOf:
        """Name a call by the program's text; one that a library makes for it, by its operation."""
        site = self.history.events[at].site
        return CallOf(at) if site in (self.run.site, self._passed) else Code(site)

    def why(self, message: str) -> Sentence:
        """Say that the block went another way the second time, where, and what led to it."""
        text, line = "the block that {line} checkpoints runs again in this pass", At(self.run.site)
        if self.parted is None:
            return say(text + ': PyTorch says "{message}".', line=line, message=message)
        at, how, led = At(self._site(self.parted)), self._how(self.parted), say("")
        for one in self.leads[:1]:
            when = "between the two runs" if one.between else "in the block"
            led = say("; {line} {said}, {when}", line=At(one.site), said=one.said, when=when)
        text += ", and goes another way at {at}: {how}{led}."
        return say(text, line=line, at=at, how=how, led=led)

    def repair(self) -> Repair:
        """Say how both runs come to make the same calls."""
        lead = next(iter(self.leads), None)
        if self.parted is not None and any(self._drawn(self.parted)):
            text = "Omit preserve_rng_state=False: both runs draw the same numbers then."
        elif lead is not None and lead.between:
            text = "Do what {line} does only after the backward pass: the block runs again in it."
        else:
            text = "The function that is checkpointed runs twice: give it no state that its own run"
            text += " changes." if lead else " changes, or that changes before the backward pass."
        return Repair(say(text, line="" if lead is None else At(lead.site)))


def recomputed(history: History, fact: Raised) -> Recomputed | None:
    """Return what is known of the block that ran again as an error was raised, if it is about it.

    Another error than PyTorch's own is about it if its two runs differ.
    """
    run = run_behind(history, fact)
    if run is None or history.position(run.event) < 0:
        return None
    found = BothRuns(history, run).parting
    return Recomputed(history, run, found) if found or fact.type == "CheckpointError" else None
