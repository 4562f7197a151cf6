"""Questions asked of a trace.

Every verdict, explanation and report reads the facts through `History`. It holds no torch object
and changes nothing; its indexes are built when they are first needed, each in one pass.

Positions. Inside a history an event is known by its position in `History.events`; the facts' own
clock (`at`, `Bridge.exit`) counts from the start of the program: `position` converts.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from tether.analysis.dataflow import Dataflow
from tether.analysis.timelines import DistinctPairs, by_events, by_number, of_events, same_lines
from tether.facts import BACKWARDS, UNKNOWN, Event, Gradients, Name, Operand, Site, TensorId, Trace
from tether.regions import element_size, overlaps
from tether.source.binding import bound_to, is_statement, read_as
from tether.source.names import root_of
from tether.source.syntax import Source, source_of
from tether.store.columns import PLACES, columns_of
from tether.store.lives import tensors_of
from tether.store.numbers import Numbers, stable_order

_NOWHERE = Site("<unknown>", 0)
Analysis = TypeVar("Analysis")


def losses_of(event: Event) -> tuple[Operand, ...]:
    """Return the losses among the operands of a backward pass; the rest was asked for."""
    return event.reads[: event.losses] if event.operation == "autograd.grad" else event.reads


def latest(positions: Sequence[int], before: int) -> int:
    """Return the last of some positions, in order, before another one; -1 if there is none."""
    at = bisect_left(positions, before)
    return positions[at - 1] if at else -1


def following(positions: Sequence[int], after: int) -> int:
    """Return the first of some positions, in order, after another one; -1 if there is none."""
    at = bisect_right(positions, after)
    return positions[at] if at < len(positions) else -1


def _seen(fact: Gradients, status: str) -> str:
    """Return what is known of a gradient that a parameter has; what was asked for it need not."""
    return "unchecked" if fact.moment == "asked" and status != "none" else status


class History:
    """A trace, indexed.

    - calls: `events` (`store.columns.Events`: a list that `where` searches by operation, `having`
      by which operands there are, `column` as numbers), `times`
    - who: `name_of`, `names_of`, `target_of`, `tensors_called`, `order`, `operand_of`,
      `is_parameter`
    - where: `site`, `site_of`, `made_at`, `first_seen`
    - when: `position`, `backwards`, `steps`, `steps_of`, `inside`, `while_alive`
    - gradients: `held`, `asked`, `trained`, `without_gradient`, `switch_in_force`
    - memory: `flow`, `on_storage`, `readers`, `writes_to`, `saved`
    - all else: the other modules of `analysis`, each by `get(Ties)`, `get(Graph)`...; the facts
      that nothing indexes by `trace`
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events = columns_of(trace.events)
        self.memo: dict[str, Any] = {}  # what several verdicts compute from it, once
        self._analyses: dict[Any, Any] = {}
        self._writes_to: dict[Operand, array[int]] = {}

    def get(self, kind: Callable[[History], Analysis]) -> Analysis:
        """Return an analysis of this history, made when it is first asked for."""
        if kind not in self._analyses:
            self._analyses[kind] = kind(self)
        found: Analysis = self._analyses[kind]
        return found

    def know(self, kind: Callable[[History], Analysis], found: Analysis) -> None:
        """Take an analysis that was made before, so that it is not made again."""
        self._analyses[kind] = found

    # -- when --------------------------------------------------------------------------------

    def position(self, at: int) -> int:
        """Turn the facts' clock into a position in `events`; negative: forgotten."""
        return self.trace.position(at)

    def positions(self, moments: Numbers) -> Numbers:
        """Return `position` of many times."""
        kept = np.array(self.trace.kept, np.int64)
        found = moments.astype(np.int64) - self.trace.dropped + len(kept)
        early = moments < self.trace.dropped
        if not len(kept) or not early.any():
            return np.where(early, UNKNOWN, found)
        place = np.minimum(np.searchsorted(kept, moments), len(kept) - 1)
        return np.where(early, np.where(kept[place] == moments, place, UNKNOWN), found)

    @cached_property
    def backwards(self) -> list[int]:
        """Positions of the backward passes that started from a loss (``autograd.grad`` too)."""
        passes = self.events.where(BACKWARDS.__contains__)
        return [position for position, event in passes if event.reads]

    @cached_property
    def steps(self) -> list[Gradients]:
        """The gradients as each optimizer was about to step, in order."""
        return [fact for fact in self.trace.gradients if fact.moment == "step"]

    @cached_property
    def _steps_by(self) -> dict[int, list[int]]:
        steps: dict[int, list[int]] = defaultdict(list)
        for fact in self.steps:
            steps[fact.optimizer].append(self.position(fact.at))
        return steps

    def holders_of(self, tensor: int) -> list[int]:
        """Return the optimizers that hold a tensor, and have stepped, by their numbers."""
        return [number for number in self._holders.get(tensor, ()) if number in self._steps_by]

    @cached_property
    def _holders(self) -> dict[int, list[int]]:
        holders: dict[int, list[int]] = defaultdict(list)
        for number, optimizer in enumerate(self.trace.optimizers):
            for tensor in dict.fromkeys(optimizer.tensors):
                holders[tensor].append(number)
        return holders

    def steps_of(self, tensor: int) -> list[int]:
        """Return the positions of the steps whose optimizer held a tensor, in order."""
        found = [self._steps_by[number] for number in self.holders_of(tensor)]
        return found[0] if len(found) == 1 else sorted(at for one in found for at in one)

    @cached_property
    def after_backward(self) -> list[Gradients]:
        """The gradients after each backward pass, in order."""
        return [fact for fact in self.trace.gradients if fact.moment == "backward"]

    @cached_property
    def had_gradient(self) -> set[int]:
        """Tensors that had a gradient after some backward pass."""
        return {
            tensor
            for fact in self.after_backward
            for tensor, status in fact.status.items()
            if status != "none"
        }

    def graded_after(self, tensor: int) -> list[int]:
        """Return when, in order, a tensor had a gradient after a backward pass."""
        one, facts = TensorId(tensor), self.after_backward
        return [self.position(fact.at) for fact in facts if fact.status.get(one, "none") != "none"]

    @cached_property
    def gradients_replaced(self) -> dict[int, array[int]]:
        """For each tensor the calls that set its gradient or clear it, in order."""
        at, rows = self.events.touched("reads")
        first = np.diff(at, prepend=UNKNOWN) > 0
        chosen = self.events.called("zero_grad".__eq__)[at]
        chosen |= first & self.events.called("grad.__set__".__eq__)[at]
        return by_number(self._tensors(rows[chosen]), at[chosen])

    def inside(self, event: Event, *kinds: str) -> int:
        """Return the innermost span of one of these kinds around an event, or -1.

        What a step's closure does lies in no step: it is the program's own training code.
        """
        number: int = event.span
        while number != UNKNOWN:
            span = self.trace.spans[number]
            if span.kind in kinds:
                return number
            if span.kind == "closure":
                break
            number = span.parent
        return UNKNOWN

    def within(self, *kinds: str) -> Numbers:
        """Return for each event whether it is `inside` a span of one of these kinds."""
        found = np.zeros(len(self.trace.spans) + 1, bool)  # the last is no span: UNKNOWN
        for number, span in enumerate(self.trace.spans):
            # A span comes after the one around it.
            around = span.kind != "closure" and bool(found[span.parent])
            found[number] = span.kind in kinds or around
        return found[self.events.column("span")]

    @cached_property
    def by_steps(self) -> bytes:
        """For each event whether an optimizer's step made it, or is it."""
        found: Numbers = self.within("step") | self.events.called("step".__eq__)
        return found.tobytes()

    # -- where -------------------------------------------------------------------------------

    def site(self, number: int | Site) -> Site:
        """Return a site by its number; one that only the text tells of has none, and is itself."""
        if isinstance(number, Site):
            return number
        return self.trace.sites[number] if number >= 0 else _NOWHERE

    def site_of(self, event: Event) -> Site:
        """Return the user's line of an event."""
        return self.site(event.site)

    def made_at(self, tensor: int) -> int:
        """Position of the event that first returned a tensor, or -1."""
        return self._makers[tensor + 1] if tensor + 1 < len(self._makers) else UNKNOWN

    def makers(self, tensors: Numbers) -> Numbers:
        """Return `made_at` of many tensors that events had."""
        found: Numbers = np.asarray(self._makers)[tensors + 1]
        return found

    @cached_property
    def _makers(self) -> array[int]:
        """By the number of each tensor, from -1 on, the position of the event that made it."""
        events, operands = self.events.touched("results")
        return self._by_tensor(self._tensors(operands)[::-1], events[::-1])

    def first_reads(self, tensors: Numbers) -> Numbers:
        """Return for many tensors of events the first call that was given each, or past the end."""
        events, operands = self.events.touched("reads")
        found = self._by_tensor(self._tensors(operands)[::-1], events[::-1])
        first = np.asarray(found)[tensors + 1]
        return np.where(first < 0, len(self.events), first)

    def _by_tensor(self, tensors: Numbers, values: Numbers) -> array[int]:
        """Return a value for each tensor that there is, from -1 on: the last one given for it."""
        most = int(self.events.operands.column("tensor").max(initial=0))
        found = np.full(most + 2, UNKNOWN, np.int32)
        found[tensors + 1] = values
        return array("i", found.tobytes())

    def while_alive(self, tensor: int, calls: Sequence[int]) -> Sequence[int]:
        """Return those of some calls, in order, that came while a tensor was known and alive."""
        life = self.trace.tensors.get(tensor)
        if life is None:
            return calls
        first = bisect_left(calls, self.trace.first_after(life.born))
        if life.died < 0:
            return calls[first:]
        return calls[first : bisect_right(calls, self.trace.first_after(life.died))]

    @cached_property
    def left(self) -> list[int]:
        """The tensors that are alive at the end, in the order in which they were first seen."""
        lives = tensors_of(self.trace.tensors)
        found: list[int] = lives.column("serial")[lives.column("died") == UNKNOWN].tolist()
        return found

    def first_seen(self, tensor: int) -> int:
        """Position of the first event that a tensor had a part in, or -1."""
        events, operands = self.events.touched()
        found = np.flatnonzero(self._tensors(operands) == tensor)
        return int(events[found[0]]) if len(found) else UNKNOWN

    def _tensors(self, operands: Numbers) -> Numbers:
        """Return the tensors of operands, which are positions in their table."""
        found: Numbers = self.events.operands.column("tensor")[operands]
        return found

    def times(self, position: int) -> int:
        """Count how often the call at a position was made from the same place."""
        return int(self._times[self.lines[position]])

    @cached_property
    def _times(self) -> Numbers:
        return np.bincount(self.lines)

    @cached_property
    def lines(self) -> Numbers:
        """For each event a number that those of one operation have which one line made.

        The line is that of the program together with that of the library, as in `Event.inner`.
        """
        return same_lines(*(self.events.column(one) for one in ("operation", "site", "inner")))

    @cached_property
    def first_of_lines(self) -> Numbers:
        """Positions of the first event of each of `lines`, in order: one that speaks for all."""
        found = np.full(int(self.lines.max(initial=UNKNOWN)) + 1, UNKNOWN)
        found[self.lines[::-1]] = np.arange(len(self.lines))[::-1]
        return np.sort(found)

    @cached_property
    def on_given(self) -> Numbers:
        """For each result of all events whether it lies on a storage that its call was given."""
        (read_at, read), (made_at, made) = (
            self.events.touched(one) for one in ("reads", "results")
        )
        storages, found = self.events.operands.column("storage"), np.zeros(len(made), bool)
        for some, known in by_events(made_at, read_at):
            numbers, others = storages[made[some]], storages[read[known]]
            keys = of_events(made_at[some], numbers, read_at[known], others)
            found[some] = np.isin(*keys)
        return found

    # -- who ---------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> dict[int, list[Name]]:
        names: dict[int, list[Name]] = defaultdict(list)
        bearers: dict[str, set[int]] = defaultdict(set)
        for name in self.trace.names:
            names[name.tensor].append(name)
            bearers[name.name].add(name.tensor)
        loops = self._loop_variables
        for found in names.values():
            # A loop variable names many tensors in turn: any other name is better.
            found.sort(
                key=lambda name: (
                    root_of(name.name) in loops, len(bearers[name.name]) > 1, *_name_rank(name)
                )
            )  # fmt: skip
        return names

    @cached_property
    def _loop_variables(self) -> set[str]:
        """Variables of the program that nothing but loops assign to."""
        texts = [source_of(file, text) for file, text in self.trace.sources.items()]
        looped = {name for text in texts for name in text.loop_variables}
        return looped - {name for text in texts for name in text.variables}

    def is_parameter(self, tensor: int) -> bool:
        """Whether a tensor is known, and a `nn.Parameter`."""
        fact = self.trace.tensors.get(tensor)
        return fact is not None and fact.is_parameter

    def names_of(self, tensor: int) -> list[str]:
        """Return what the program calls a tensor, the best name first."""
        return list(dict.fromkeys(name.name for name in self.facts_of_names(tensor)))

    def facts_of_names(self, tensor: int) -> list[Name]:
        """Return the names of a tensor with what is known of its owners, the best one first."""
        return self._names.get(tensor, [])

    def facts_of_name(self, tensor: int) -> Name | None:
        """Return the best name of a tensor with what is known of its owner."""
        return next(iter(self.facts_of_names(tensor)), None)

    def name_of(self, tensor: int) -> str:
        """Return the best name of a tensor; a plain one is called by what its site assigns to."""
        names = self.names_of(tensor)
        return names[0] if names else self._described(tensor)

    def given_name(self, tensor: int) -> str:
        """Return the best name that the program gives a tensor, or its line or a holder; or ""."""
        names = self.names_of(tensor)
        return names[0] if names else self.target_of(tensor) or self.held_by(tensor)

    def target_of(self, tensor: int) -> str:
        """Return what the line that made a tensor assigns it to, "" when to nothing."""
        position = self.made_at(tensor)
        target = self.site_of(self.events[position]).target if position >= 0 else ""
        return "" if "," in target or self._is_put_in(tensor, position, target) else target

    def _is_put_in(self, tensor: int, made: int, target: str) -> bool:
        """Whether its elements go into those of another tensor: ``x[1:] = y.clone()``."""
        site = self.site_of(self.events[made]) if target.endswith("]") else None
        if site is None or site.expression == target:  # x[1:] += 1
            return False
        operand = self.operand_of(tensor)
        reads = () if operand is None else self.readers(operand, made)
        return any(
            self.events[at].operation == "__setitem__"
            and self.site_of(self.events[at]).row == site.row
            for at in reads
        )

    def held_by(self, tensor: int) -> str:
        """Return the first name by which a function reached a tensor as it was written, or ""."""
        return self._held_names.get(tensor, "")

    @cached_property
    def _held_names(self) -> dict[int, str]:
        held: dict[int, str] = {}
        for fact in self.trace.holders:
            if fact.kind in ("variable", "attribute", "slot"):
                held.setdefault(fact.tensor, fact.name)
        return held

    def _described(self, tensor: int) -> str:
        position = self.made_at(tensor)
        if position == UNKNOWN:
            return f"tensor {tensor}"
        if name := self.given_name(tensor) or self.called_in_text(tensor):
            return name
        site, text = self.site_of(self.events[position]), self.expression_of(tensor)
        return f"`{text}`" if text else f"line {site.line}"

    def expression_of(self, tensor: int) -> str:
        """Return the expression that made a tensor, shortened; "" where the text has none."""
        position = self.made_at(tensor)
        text = self.site_of(self.events[position]).expression if position >= 0 else ""
        return "" if is_statement(text) else shortened(text)

    def called_in_text(self, tensor: int) -> str:
        """Return the variable that a tensor is bound to, or read by, as far as the text says; "".

        For one that has no name of its own: a part of what a call returned, an item of a loop. An
        expression that made it says more than the variable of a later loop that reads it.
        """
        position, shown = self.made_at(tensor), self.operand_of(tensor)
        if position < 0 or shown is None:
            return ""
        event = self.events[position]
        site = self.site_of(event)
        source = self._source(site)
        made = [one.tensor for one in event.results]
        name = bound_to(source, site, made.index(shown.tensor), len(made))
        if name or not is_statement(site.expression):
            return name
        return self.read_as(shown, position, site)

    def _source(self, site: Site) -> Source:
        return source_of(site.file, self.trace.sources.get(site.file, ""))

    def read_as(self, shown: Operand, since: int, site: Site) -> str:
        """Return the variable by which the function of a site reads a tensor behind a call; ""."""
        source = self._source(site)
        for at in islice(self.readers(shown, since), _LOOKED_AT):
            event = self.events[at]
            there = self.site_of(event)
            first = event.reads[0].tensor == shown.tensor
            if first and there.scope == site.scope:
                name = read_as(source, event.operation, there.expression)
                if name:
                    return name
        return ""

    def tensors_called(self, name: str) -> list[int]:
        """Return the tensors that bear this very name, or whose site assigns to it."""
        found = [fact.tensor for fact in self.trace.names if fact.name == name]
        if not found:
            sites = [at for at, site in enumerate(self.trace.sites) if site.target == name]
            events, operands = self.events.touched("results")
            chosen = np.isin(self.events.column("site")[events], sites)
            found = self._tensors(operands[chosen]).tolist()
        return list(dict.fromkeys(found))

    @cached_property
    def order(self) -> dict[int, int]:
        """Rank of each trained tensor as the optimizers list them: module order."""
        ranks: dict[int, int] = {}
        for optimizer in self.trace.optimizers:
            for tensor in optimizer.tensors:
                ranks.setdefault(tensor, len(ranks))
        return ranks

    @cached_property
    def _last_operands(self) -> array[int]:
        """By the number of each tensor, from -1 on, the row in which it was last seen."""
        _, operands = self.events.touched()
        return self._by_tensor(self._tensors(operands), operands)

    def operand_of(self, tensor: int) -> Operand | None:
        """Return a tensor as it was when it was last seen."""
        rows = self._last_operands
        row = rows[tensor + 1] if tensor + 1 < len(rows) else UNKNOWN
        return None if row < 0 else self.events.operands[row]

    def last_on(self, storages: Sequence[int]) -> Numbers:
        """Return the tensors that lay on one of some storages when they were last seen."""
        rows = np.frombuffer(self._last_operands, np.int32)
        tensors = np.flatnonzero(rows >= 0)
        lying = self.events.operands.column("storage")[rows[tensors]]
        return tensors[np.isin(lying, storages)] - 1

    def had_graph(self, tensor: int) -> bool:
        """Whether a tensor had a graph when it was last seen: it required grad, and was no leaf."""
        return tensor + 1 < len(self._with_graph) and bool(self._with_graph[tensor + 1])

    @cached_property
    def _with_graph(self) -> bytes:
        """By the number of each tensor, from -1 on, whether it had a graph when last seen."""
        rows = np.frombuffer(self._last_operands, np.int32)
        kinds = self.events.operands.column("kind")
        found = rows >= 0
        found[found] = (kinds[rows[found]] & 3) == 2
        return found.tobytes()

    # -- gradients ---------------------------------------------------------------------------

    def next_pass(self, position: int) -> int:
        """Position of the first backward pass after another one; the end, if there is none."""
        at = bisect_right(self.backwards, position)
        return self.backwards[at] if at < len(self.backwards) else len(self.events)

    @cached_property
    def held(self) -> set[int]:
        """Tensors that some optimizer holds."""
        return {int(tensor) for fact in self.trace.optimizers for tensor in fact.tensors}

    @cached_property
    def asked(self) -> dict[int, int]:
        """Leaves whose gradient the program read after a backward pass: tensor -> position."""
        first = self.backwards[0] if self.backwards else len(self.events)
        asked: dict[int, int] = {}
        reads = ("autograd.grad", "grad.__get__")
        for position, event in self.events.where(reads.__contains__):
            if position < first:
                continue
            if event.operation == "autograd.grad":
                wanted = event.reads[len(losses_of(event)) :]
            elif event.operation == "grad.__get__" and event.inner == event.site:
                wanted = event.reads[:1]
            else:
                continue
            if self.inside(event, "backward") >= 0:
                continue  # a custom backward at its own work
            for leaf in wanted:
                if leaf.leaf and leaf.requires_grad:
                    asked.setdefault(leaf.tensor, position)
        return asked

    @cached_property
    def trained(self) -> dict[int, set[str]]:
        """Tensors that should have trained -> every status their gradient had.

        Those that an optimizer holds, as it was about to step; where nothing stepped, those whose
        gradient the program read, after each backward pass. What has yet to step may yet get one.
        """
        found: dict[int, set[str]] = {}
        over = self.trace.outcome != "unfinished" and not self.steps
        for fact in self.steps:
            for tensor, status in fact.status.items():
                found.setdefault(tensor, set()).add(status)
        stepped = set(found)
        for fact in self.trace.gradients:
            if fact.moment not in ("backward", "asked"):
                continue
            for tensor, status in fact.status.items():
                wanted = tensor in self.asked or (over and tensor in self.held)
                if wanted and tensor not in stepped:
                    found.setdefault(tensor, set()).add(_seen(fact, status))
        return found

    @cached_property
    def without_gradient(self) -> list[int]:
        """Tensors that should have trained and never had a gradient, in module order."""
        found = [tensor for tensor, seen in self.trained.items() if seen == {"none"}]
        return sorted(found, key=lambda tensor: self.order.get(tensor, tensor + len(self.order)))

    @cached_property
    def _switches(self) -> dict[int, tuple[list[int], list[int]]]:
        """For each thread: positions of its grad-mode switches, and the one in force from each."""
        switches: dict[int, tuple[list[int], list[int]]] = {}
        around: dict[tuple[int, int], int] = {}  # thread, line that switched on -> in force before
        for position, event in self.events.where("set_grad_enabled".__eq__):
            positions, in_force = switches.setdefault(event.thread, ([], []))
            last = in_force[-1] if in_force else UNKNOWN
            if event.on:
                around[event.thread, event.site] = last
                last = UNKNOWN
            elif last == UNKNOWN:  # where that line's block ends, the one around it goes on
                last = around.get((event.thread, event.site), UNKNOWN)
                last = position if last == UNKNOWN else last
            elif event.flags != self.events[last].flags:
                last = position  # a block inside another that is off already changes nothing
            positions.append(position)
            in_force.append(last)
        return switches

    def switch_in_force(self, position: int) -> int:
        """Position of the switch that had turned gradients off at an event, or -1."""
        positions, in_force = self._switches.get(self.events[position].thread, ([], []))
        before = bisect_left(positions, position)
        return in_force[before - 1] if before else UNKNOWN

    def elements(self, rows: Numbers) -> Numbers:
        """Return how many elements operands have, by their rows."""
        shapes = self.events.operands.column("shape")[rows]
        found: Numbers = self._elements[shapes]
        return found

    def sizes(self, rows: Numbers) -> Numbers:
        """Return how many bytes the elements of operands have, by their rows."""
        words, kinds = self.events.names.words, self.events.operands.column("kind")[rows] >> 2
        each = np.zeros(int(kinds.max(initial=0)) + 1, np.int64)
        used = np.unique(kinds)
        each[used] = [element_size(words[number]) for number in used.tolist()]
        found: Numbers = each[kinds] * self.elements(rows)
        return found

    @cached_property
    def _elements(self) -> Numbers:
        """By the number of each shape the elements of a tensor that has it."""
        tuples, used = self.events.names.tuples, np.unique(self.events.operands.column("shape"))
        found = np.zeros(int(used.max(initial=0)) + 1, np.int64)
        found[used] = [math.prod(tuples[number]) for number in used.tolist()]
        return found

    # -- memory ------------------------------------------------------------------------------

    @cached_property
    def arrays_unchecked(self) -> bool:
        """Whether some writes through NumPy arrays could not be looked for."""
        return any(gap.code.startswith("array-") for gap in self.trace.gaps)

    @cached_property
    def in_part(self) -> bool:
        """Whether stretches of the run are not in the recording: what lived then had other uses."""
        asked = any(gap.code in ("steps", "sampled") for gap in self.trace.gaps)
        return asked or bool(self.trace.dropped)

    @cached_property
    def whole(self) -> bool:
        """Whether the program ran to its end and all of it is in the recording."""
        return self.trace.outcome == "finished" and not self.in_part

    @cached_property
    def flow(self) -> Dataflow:
        """Where values flow."""
        return Dataflow(self.trace)

    @cached_property
    def memories(self) -> Numbers:
        """The memory behind each operand of the events' table."""
        return self.flow.memories(self.events.operands.column("storage"))

    def memories_of(self, tensor: int) -> list[int]:
        """Return the memories that a tensor was seen on: one, as long as nothing moved it."""
        return self._lying.on(tensor)

    @cached_property
    def _lying(self) -> DistinctPairs:
        pairs = self.events.operands.column("tensor"), self.memories
        return DistinctPairs(len(self.memories), [pairs])

    @cached_property
    def _touching(self) -> DistinctPairs:
        touched = map(self.events.touched, PLACES)
        parts = ((self.memories[operands], events) for events, operands in touched)
        return DistinctPairs(len(self.events.rows), parts)

    def on_storage(self, operand: Operand) -> list[int]:
        """Positions of the events that touch the memory behind an operand."""
        return self.on_memory(self.flow.memory(operand))

    def on_memory(self, memory: int) -> list[int]:
        """Positions of the events that touch a memory."""
        return self._touching.on(memory)

    def users(self, tensors: Numbers, since: Numbers) -> tuple[Numbers, Numbers]:
        """Return how many calls were given each of some tensors after an event, and the first."""
        return self._reading.after(tensors, since)

    def reads_of(self, tensor: int) -> list[int]:
        """Positions of the events that were given a tensor."""
        return self._reading.on(tensor)

    @cached_property
    def _reading(self) -> DistinctPairs:
        events, operands = self.events.touched("reads")
        return DistinctPairs(len(events), [(self._tensors(operands), events)])

    def readers(self, operand: Operand, since: int, until: int | None = None) -> Iterator[int]:
        """Positions of the events after `since`, and before `until`, that read this very tensor."""
        for position in self.on_storage(operand):
            inside = position > since and (until is None or position < until)
            if inside and any(one.tensor == operand.tensor for one in self.events[position].reads):
                yield position

    def saved(self, at: int) -> tuple[Operand, ...]:
        """Return the tensors that a call which saves was given.

        Pickle saves a tensor's storage by such a call of PyTorch's own, within the line that
        pickles, and asks the tensor for its strides right before.
        """
        event, before = self.events[at], self.events[at - 1] if at else None
        if event.reads or before is None or event.inner == event.site:
            return event.reads
        return before.reads[:1] if before.site == event.site else ()

    def writes_to(self, operand: Operand, after: int = UNKNOWN) -> Iterator[int]:
        """Positions of the events after `after` that wrote bytes which `operand` can see."""
        writes = self._writes_seen_by(operand)
        yield from writes[bisect_right(writes, after) :]

    def written(self, operand: Operand, without: bytes) -> list[int]:
        """Return all of `writes_to` without some events: of each one it is told whether it is."""
        writes = np.asarray(self._writes_seen_by(operand))
        found: list[int] = writes[~np.frombuffer(without, bool)[writes]].tolist()
        return found

    def _writes_seen_by(self, operand: Operand) -> array[int]:
        key = operand._replace(version=0, requires_grad=False, leaf=False)
        if key not in self._writes_to:
            self._writes_to[key] = array("q", self._find_writes(operand))
        return self._writes_to[key]

    def _find_writes(self, operand: Operand) -> list[int]:
        """Return the events that wrote bytes which an operand can see, each layout asked once."""
        storages, events, rows = self._written
        first, last = np.searchsorted(storages, [operand.storage, operand.storage + 1])
        if first == last or operand.storage == UNKNOWN:
            return []
        column, here = self.events.operands.column, rows[first:last]
        parts = [column(one)[here] for one in ("offset", "shape", "strides")]
        layouts = np.stack([*parts, column("kind")[here] >> 2], axis=1)
        _, one, which = np.unique(layouts, axis=0, return_index=True, return_inverse=True)
        operands = (self.events.operands[row] for row in here[one].tolist())
        seen = np.array([overlaps(operand, written) for written in operands])
        found: list[int] = np.unique(events[first:last][seen[which.ravel()]]).tolist()
        return found

    @cached_property
    def _written(self) -> tuple[Numbers, Numbers, Numbers]:
        """Storages in order, and beside each an event that wrote it and the operand written."""
        events, rows = self.events.touched("writes")
        storages = self.events.operands.column("storage")[rows]
        order = stable_order(storages)
        return storages[order], events[order], rows[order]


_LOOKED_AT = 16
"""Calls that read a tensor of which is asked by which name they do."""


def shortened(text: str, most: int = 60) -> str:
    """Return a text on one line, cut in the middle of what is too long."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def common_module(names: Iterable[str]) -> str:
    """Return the longest dotted path that all names begin with, or ""."""
    parts = [name.split(".") for name in names]
    if not parts:
        return ""
    common = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return ".".join(common)


def _name_rank(name: Name) -> tuple[bool, bool, bool, int, int]:
    """Order names: through a module before a loop variable, from outside before `self`, short.

    What is private to an object, as the arguments that a process was started with, comes last.
    """
    private = "._" in name.name
    return (not name.module, private, name.name.startswith("self."), len(name.name), name.at)
