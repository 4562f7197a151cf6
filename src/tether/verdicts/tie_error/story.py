"""The story of an error, from facts alone: its operands, who made, wrote and freed them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.leaving import left_the_graph
from tether.analysis.gradients.paths import follow
from tether.analysis.gradients.recomputed import Recomputed, recomputed
from tether.analysis.history import History, losses_of
from tether.analysis.sharing.shared_memory import Sharing
from tether.analysis.surroundings import Surroundings, WaysThere
from tether.analysis.training.frozen import frozen_for_its_value, taken_off
from tether.facts import GRAD_INFERENCE, GRAD_ON, UNKNOWN, Event, Operand, Raised, Site
from tether.finding import CallOf, Sentence, Step, Tensor, named, say
from tether.operations.table import operation
from tether.source.reading import assigned
from tether.source.syntax import Source
from tether.verdicts.tie_error.groups import (
    given_twice,
    tied_by_names,
    told_of_gathering,
    told_of_groups,
)
from tether.verdicts.tie_error.messages import entry_of
from tether.verdicts.tie_error.second_pass import SecondPass, kept_from, second_pass, told_twice
from tether.verdicts.tie_error.views import made_in_no_grad, told_of_hooks

MOST = 4
"""Operands whose making is told: further ones rarely differ."""

_WORD = re.compile(r"[^\W\d]\w*")
_WRITES = 3  # the last writes that are told of one memory
_WRITTEN = re.compile(r"in-?place|view|version|overlap|resiz|storage|moved|detached", re.I)
_FREED = re.compile(r"second time|freed|no longer")
_NO_GRAPH = re.compile(
    r"does not require grad|not have been used in the graph|doesn't require grad|can't retain_grad"
    r"|None of the inputs have requires_grad|NoneType"
)
_TWO_GROUPS = re.compile(r"appear in more than one parameter group")
_INDEX = re.compile(r"differentiated Tensor at index (\d+)")
_SECOND = re.compile(r"marked with @once_differentiable|derivative for \S+ is not implemented")
_DEVICES = re.compile(r"device|Input type", re.I)


class Story:
    """One error: the call that raised, its operands, and what led to it."""

    def __init__(
        self, history: History, fact: Raised, operands: tuple[Operand, ...] | None = None
    ) -> None:
        self.history = history
        self.fact = fact
        self.at = _position(history, fact)
        self.event: Event | None = history.events[self.at] if self.at >= 0 else None
        self.until = self.at if self.at >= 0 else history.position(fact.at)
        self.missing = self._missing()
        self.operands = self._operands() if operands is None else operands
        self.steps: list[Step] = []

    def _missing(self) -> Operand | None:
        """Return the leaf whose gradient the line had read as None, where Python fails on None."""
        if "NoneType" not in self.fact.message:
            return None
        for at, event in self._last_at_the_line(self.until):
            if event.none and event.operation == "grad.__get__" and event.reads[0].leaf:
                self.until = at
                return event.reads[0]
        return None

    def _last_at_the_line(self, until: int) -> Iterator[tuple[int, Event]]:
        """Yield the calls that the line of the error had made last, the latest first.

        On its way out an error passes the ends of ``with`` blocks, whose switches have no operands.
        """
        line = self._line(self.fact.site)
        for at in range(min(until, len(self.history.events) - 1), -1, -1):
            event = self.history.events[at]
            if self._line(event.site) == line:
                yield at, event
            elif event.reads or event.results or event.writes:
                break

    def _line(self, site: int) -> tuple[str, int]:
        place = self.history.site(site)
        return place.file, place.line

    def _operands(self) -> tuple[Operand, ...]:
        if self.missing is not None:
            return (self.missing,)
        if self.doubled or _TWO_GROUPS.search(self.fact.message):
            return self.doubled  # of an iterator's parameters it is not known which one it is
        if self.event is not None and self.event.reads:
            found: Sequence[Operand] = self.event.reads
        else:
            found = list(self._on_the_line())
        return tuple({one.tensor: one for one in found}.values())

    def _on_the_line(self) -> Iterator[Operand]:
        """Yield what PyTorch last met at the line, and what the names in it stand for.

        An error may come from Python, from NumPy or from an attribute: no call was heard then.
        """
        history = self.history
        for _, event in self._last_at_the_line(self.until - 1):
            yield from event.reads[:1]
        for word in self._words():
            called = [one for one in history.tensors_called(word) if self._made(one) < self.until]
            operand = history.operand_of(called[-1]) if called else None
            if operand is not None:
                yield operand

    def _words(self) -> list[str]:
        """Return the names that stand in the line of the error."""
        line = self.history.site(self.fact.site)
        text = self._source(line).line(line.line) if line.line > 0 else ""
        return list(dict.fromkeys(_WORD.findall(text)))

    def _source(self, site: Site) -> Source:
        return self.history.get(Surroundings).source(site.file)

    def _made(self, tensor: int) -> int:
        return self.history.made_at(tensor)

    @cached_property
    def spoken_of(self) -> tuple[Operand, ...]:
        """The operands that PyTorch's message speaks of, where it is known."""
        entry, event = entry_of(self.fact.message), self.event
        if event is not None:
            index = _INDEX.search(self.fact.message)
            asked = event.reads[len(losses_of(event)) :]
            if index is not None and int(index[1]) < len(asked):
                return (asked[int(index[1])],)
            if entry is not None and entry.of_written:
                return (event.writes or event.reads)[:1]
            if self.doubled:
                return self.doubled
        return tuple(
            one for one in self.operands if entry is None or entry.which(self.history, one)
        )

    @property
    def chosen(self) -> Operand | None:
        """The operand to tell of: of a call that was not heard only one that the message fits."""
        unheard = self.event is None and entry_of(self.fact.message) is not None
        return next(iter(self.spoken_of or (() if unheard else self.operands)), None)

    @cached_property
    def doubled(self) -> tuple[Operand, ...]:
        """The parameters with two places, where the error is about those."""
        if self.event is None:
            return tied_by_names(self.history, self.fact)
        return given_twice(self.history, self.fact, self.at)

    @property
    def concerned(self) -> tuple[Operand, ...]:
        """The operands whose making is told: others are beside the point."""
        entry = entry_of(self.fact.message)
        return self.operands if entry is None or entry.all_told else self.spoken_of or self.operands

    # -- what led to it --------------------------------------------------------------------------

    def told(self) -> tuple[Step, ...]:
        """Return the steps that led to the error, in the program's order, and the error."""
        self._led_there()
        message = self.fact.message
        if _SECOND.search(message):
            self._functions()
        if _WRITTEN.search(message):
            self._writes()
        if _NO_GRAPH.search(message):
            self._cuts()
        first = message.split("\n", 1)[0]
        text = first if len(first) <= 120 else first[:119] + "…"
        steps = {(one.role, one.site): one for one in reversed(self.steps)}  # the first of a line
        return (
            *reversed(steps.values()),
            Step("raised", self.fact.site, say("{text}", text=text)),
        )

    def _led_there(self) -> None:
        """Tell of the operands, or of the block or the pass that the error is about."""
        if self.block is not None:
            self.steps += self.block.told()
        elif self.second is not None:
            self.steps += told_twice(self.history, self.second)
        for operand in () if self.steps else self.concerned[:MOST]:
            self._making(operand)
            self.steps += told_of_hooks(self.history, self.fact, operand)
        if not self.operands and not self.fact.elsewhere:
            self._assignments()
        for operand in self.doubled:
            self.steps += told_of_groups(self.history, operand)
        if self.doubled and self.at >= 0:
            self.steps += told_of_gathering(self.history, self.at)

    def _add(self, role: str, position: int, said: Sentence) -> None:
        if position >= 0:
            self.steps.append(Step(role, self.history.events[position].site, said))

    def _making(self, operand: Operand) -> None:
        at = self._made(operand.tensor)
        if not 0 <= at < self.until:
            return
        name = Tensor(operand.tensor)
        self._add("made", at, say("{x} is made here{how}", x=name, how=self._how(operand, at)))
        event = self.history.events[at]
        for later in self.history.on_storage(operand):
            if at < later < self.until and self._returned(later, operand):
                self._add("made", later, say("{x} is returned by {f}", x=name, f=CallOf(later)))
            if at < later < self.until and _gives_memory(self.history.events[later], operand):
                self._add("shared", later, say("{x} is given other memory here", x=name))
        if self._is_from_elsewhere(at):
            self._seen(at)
            self.steps += kept_from(self.history, operand.tensor)
        off = not operand.requires_grad or made_in_no_grad(self.fact)
        if event.grad_mode != GRAD_ON and off:
            self._mode(at)
        elif operand.version == UNKNOWN:
            self._inference(operand)

    def _seen(self, at: int) -> None:
        """Tell at which line the function that met the error, or one that called it, had a call."""
        event = self.history.events[at]
        line = self.history.get(WaysThere).seen_by(at, self.at) if self.at >= 0 else event.site
        if line != event.site:
            self.steps.append(Step("called", line, say("that is called from here")))

    def _inference(self, operand: Operand) -> None:
        """Tell where the memory was made that a view of it shows outside of inference mode."""
        chain = self.history.get(Sharing).chain(operand.tensor)
        at = self._made(chain[-1].source) if chain else UNKNOWN
        if at >= 0 and self.history.events[at].grad_mode == GRAD_INFERENCE:
            said = say("{x} is made here, in inference mode", x=Tensor(chain[-1].source))
            self._add("made", at, said)
            self._mode(at)

    def _mode(self, at: int) -> None:
        """Tell which line had turned gradients off at a call."""
        text = "gradients are off from this line on"
        if self.history.events[at].grad_mode == GRAD_INFERENCE:
            text = "inference mode is on from this line on"
        self._add("mode", self.history.switch_in_force(at), say(text))

    def _is_from_elsewhere(self, at: int) -> bool:
        """Whether another function than that of the error made a call."""
        made, failed = (self.history.site(one) for one in (self.history.events[at].site,
                                                           self.fact.site))  # fmt: skip
        return made.scope != failed.scope

    def _device(self, operand: Operand | None) -> str:
        fact = self.history.trace.storages.get(operand.storage) if operand is not None else None
        return fact.device if fact is not None else "an unknown device"

    def elsewhere(self, operand: Operand | None) -> str:
        """Return the device of another operand, as it differs from that of the given one."""
        mine = self._device(operand)
        others = (self._device(one) for one in self.operands)
        return next((one for one in others if one != mine), mine)

    def _returned(self, at: int, operand: Operand) -> bool:
        """Whether a custom Function returned a tensor that its own forward had made."""
        event = self.history.events[at]
        made = [one.tensor for one in event.results]
        return event.operation == "apply" and operand.tensor in made

    def _assignments(self) -> None:
        """Tell where what stands in the line was assigned: an array that no call here has heard."""
        here = self.history.site(self.fact.site)
        source = self._source(here)
        for word in self._words():
            line = assigned(source, word, here.line)
            if line:
                said = say("{name} is assigned here", name=named(word))
                self.steps.append(Step("made", here._replace(line=line, end_line=line), said))

    def _how(self, operand: Operand, at: int) -> Sentence:
        """Say in which state a tensor was made: what makes the error understandable."""
        event = self.history.events[at]
        if _DEVICES.search(self.fact.message):
            return say(", on {device}", device=self._device(operand))
        shown = next((one for one in event.reads if one.storage == operand.storage
                      and one.tensor != operand.tensor), None)  # fmt: skip
        if event.grad_mode == GRAD_INFERENCE and operand.version == UNKNOWN:
            return say(", in inference mode")
        if shown is not None:
            return say(", on the memory of {base}", base=Tensor(shown.tensor))
        if operand.requires_grad and operand.leaf:
            return say(": a leaf that requires grad")
        if operand.requires_grad:
            return say(", with the graph of how it was computed")
        if event.grad_mode != GRAD_ON:
            return say(", while gradients are off")
        return say("")

    def _writes(self) -> None:
        """Tell the last writes to the memory of the operands and of what lies in their graphs."""
        written: list[int] = []
        behind = self._behind() if self._is_backward() else frozenset()
        for operand in self._involved():
            since = self._made(operand.tensor)
            written += [
                at
                for at in self.history.on_storage(operand)
                if since < at < self.until and self._wrote(at, operand)
            ]
        for at in sorted(set(written))[-_WRITES:]:
            by = self.history.events[at].writes or self.history.events[at].reads
            name = Tensor(by[0].tensor)
            users = [one for one in sorted(behind) if one < at and self._reads(one, by[0])]
            if users:
                self._add("used", users[-1], say("{x} goes into the graph here", x=name))
            self._add("written", at, say("{call} writes to {x}", call=CallOf(at), x=name))

    def _wrote(self, at: int, operand: Operand) -> bool:
        event = self.history.events[at]
        if event.raised:
            return False
        if any(one.storage == operand.storage for one in event.writes):
            return True
        return operation(event.operation).own.startswith("is cut from") and any(
            one.tensor == operand.tensor for one in event.reads
        )

    def _reads(self, at: int, operand: Operand) -> bool:
        return any(one.storage == operand.storage for one in self.history.events[at].reads)

    def _involved(self) -> Iterator[Operand]:
        yield from self.operands
        if self._is_backward():
            for at in self._behind():
                yield from self.history.events[at].reads

    # -- blocks that run twice -------------------------------------------------------------------

    @cached_property
    def block(self) -> Recomputed | None:
        """Return the block under activation checkpointing that ran again, and went another way."""
        return recomputed(self.history, self.fact)

    # -- backward passes -------------------------------------------------------------------------

    @cached_property
    def second(self) -> SecondPass | None:
        """Return what an earlier pass had freed, and this call goes through again."""
        freed = self.history.get(Graph).freed(self.at) if self._is_backward() else frozenset()
        if self.event is None or not (freed or _FREED.search(self.fact.message)):
            return None
        return second_pass(self.history, self.at, self._behind(), freed)

    def _is_backward(self) -> bool:
        return self.event is not None and self.event.is_backward

    def _behind(self) -> frozenset[int]:
        """Return the calls in the graph of the backward pass, or of the operands."""
        graph = self.history.get(Graph)
        if self._is_backward():
            return graph.behind(self.at)
        made = [at for one in self.operands for at in graph.makers_of(one, self.until)]
        return frozenset(made).union(*[graph.behind(at) for at in made])

    def _functions(self) -> None:
        """Tell which calls of custom Functions the pass goes through, and those before it."""
        events, graph = self.history.events, self.history.get(Graph)
        before = [graph.behind(at) for at in self._behind()]  # what a first derivative went through
        for at in sorted(self._behind().union(*before)):
            event = events[at]
            if event.operation == "autograd.grad":
                self._add("gradient", at, say("this pass makes the first gradient"))
            elif event.operation == "apply":
                name = named(event.detail)
                self._add("used", at, say("the gradient goes through {function}", function=name))

    # -- what has no graph -----------------------------------------------------------------------

    def _cuts(self) -> None:
        """Tell where the values of the operands left the graph, or who turned their leaves off."""
        for at in self.cuts():
            event = self.history.events[at]
            taken = taken_off(event)
            said = say("{call} gives values without a graph", call=CallOf(at))
            if taken is not None:
                said = say("{x} itself requires no grad from here on", x=Tensor(taken.tensor))
            self._add("cut", at, said)
            if event.grad_mode != GRAD_ON:
                self._mode(at)
            if event.operation == "grad.__get__":
                before = [one for one in self.history.backwards if one < at]
                if before:
                    self._add("gradient", before[-1], say("this pass makes that gradient"))

    def cuts(self) -> list[int]:
        """Return the calls, in order, at which values left the graph, or were switched off."""
        leaves = [int(one.tensor) for one in self._asked()]
        if leaves:
            before = [at for at in self.history.backwards if at <= self.until]
            if not before:
                return []
            return sorted(follow(self.history, leaves, before[-1]).cuts)[:MOST]
        left = left_the_graph(self.history, self.until) if self.event is not None else ()
        return sorted(left)[:MOST]

    @cached_property
    def taken_off(self) -> tuple[int, Operand] | None:
        """Return the call after which a value that was needed had no graph, and that value."""
        events = self.history.events
        for at in self.cuts() if _NO_GRAPH.search(self.fact.message) else ():
            taken = taken_off(events[at])
            if taken is not None and frozen_for_its_value(self.history, at):
                return at, taken
        return None

    def _asked(self) -> tuple[Operand, ...]:
        """Return the leaves whose gradients were asked for, or found to be None."""
        if self.missing is not None:
            return (self.missing,)
        event = self.event
        asked = event.reads[len(losses_of(event)) :] if event is not None else ()
        return tuple(one for one in asked if one.requires_grad)


def _gives_memory(event: Event, operand: Operand) -> bool:
    """Whether a call gave a tensor the memory of another one in place of its own."""
    rebinds = operation(event.operation).rebinds
    return rebinds and bool(event.reads) and event.reads[0].tensor == operand.tensor


def _position(history: History, fact: Raised) -> int:
    """Return the position of the call that an error passed through, or -1."""
    if fact.event != UNKNOWN:
        return history.position(fact.event)
    at = history.position(fact.at)
    for number in range(min(at + 1, len(history.events) - 1), max(at - 4, -1), -1):
        event = history.events[number]
        if event.raised and event.site == fact.site:
            return number
    return UNKNOWN
