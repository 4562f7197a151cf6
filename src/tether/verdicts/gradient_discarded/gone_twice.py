"""Iterators that the program itself goes through twice: the second time there is nothing.

That a variable has an iterator, and at which lines it had ended, was looked at while the program
ran. The text says where the variable is gone through, and what was recorded whether that was
reached, and whether anything was ever done with an element there.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.facts import MOST_REACHED, IteratorHeld, Site
from tether.source.going_through import (
    Assigned,
    ProgramTexts,
    Reading,
    Scope,
    argument,
    assigned_once,
    kept_as,
    readings,
    stretch,
    turns,
)
from tether.source.on_the_way import (
    Order,
    beside,
    decided,
    end,
    follows,
    leaves,
    loops_around,
    start,
)
from tether.source.syntax import Source, site_of_node
from tether.verdicts.gradient_discarded.what_ran import RanWithin

_MOST_LOOKED_AT = 256  # events of which the tensors are listed


class GoneTwice(NamedTuple):
    """An iterator that gave nothing when it was gone through again."""

    name: str
    made: Site | None  # what the name was given, if the text says so
    first: Site  # that goes through it
    again: tuple[Site, ...]  # that find nothing left
    turn: Site | None  # the loop, or the function, whose later turns are the ones that find nothing
    known: bool  # that the program came there again
    certain: bool  # and that something would have been done with what was left
    tensors: tuple[int, ...]  # parameters that it gave the first time


def gone_twice(history: History) -> Iterator[GoneTwice]:
    """Yield the iterators, one finding for each name of a function."""
    if history.in_part or len(history.trace.reached) >= MOST_REACHED:
        return  # that nothing was done with an element is not known
    by_name: dict[tuple[str, str, int, str], list[IteratorHeld]] = defaultdict(list)
    for fact in history.trace.iterators_held:
        site = history.site(fact.site)
        by_name[*site.definition, fact.name].append(fact)
    seen = set[tuple[Site, ...]]()
    for facts in by_name.values():
        for found in list(_Name.of(history, facts))[:1]:
            if found.again not in seen:
                seen.add(found.again)
                yield found


class _Name:
    """A name that had an iterator in a function."""

    @staticmethod
    def of(history: History, facts: list[IteratorHeld]) -> Iterator[GoneTwice]:
        site = history.site(facts[0].site)
        texts = history.get(_Texts).program
        source = texts.sources.get(site.file)
        scope = source.scope_at(site) if source is not None else None
        if source is None or scope is None:
            return
        assigned = assigned_once(source, scope, facts[0].name)
        if assigned is not None:
            name = _Name(history, facts, source, scope, assigned)
            yield from sorted(name.found(), key=lambda one: not one.certain)

    def __init__(
        self,
        history: History,
        facts: list[IteratorHeld],
        source: Source,
        scope: Scope,
        assigned: Assigned,
    ) -> None:
        self._history, self._facts = history, facts
        self._source, self._scope, self._assigned = source, scope, assigned
        self._site = history.site(facts[0].site)
        self._name = facts[0].name
        self._ran = history.get(RanWithin)
        self._program = history.get(_Texts).program
        # A program of its own, and no block of one, after whose end nothing is heard.
        self._whole = history.whole and bool(history.trace.program)
        self._readings = readings(self._program, self._site.file, scope, self._name)

    def found(self) -> Iterator[GoneTwice]:
        """Yield what goes through what has been gone through."""
        for number, second in enumerate(self._readings):
            for first in self._readings[:number]:
                order = follows(self._source, first.node, second.node, self._scope)
                if order is not None and self._emptied(first, second, order):
                    yield from self._told(first, second, order)
        yield from self._left_by_others()
        yield from self._kept()
        for reading, scope in (*self._here(), *self._called()):
            turn = self._turned(reading, scope)
            if turn is not None:
                line = self._place(reading)
                yield self._is(line, (line,), reading, turn=turn, known=True, certain=True)

    # -- one after the other ---------------------------------------------------------------------

    def _emptied(self, first: Reading, second: Reading, order: Order) -> bool:
        """Whether a reading had left nothing when the program came to another one."""
        if len(self._ran.reading(second.within)):
            return False
        between = [one.ended for one in self._facts if end(first.node) <= self._at(one)
                   and self._at(one) < start(second.node)]  # fmt: skip
        ran, sure = len(self._ran.reading(first.within)) > 0, first.whole and order.sure
        if any(between):
            return ran or sure
        # A generator that was seen to go on was not gone through then.
        return ran and sure and (not between or not self._tells_its_end)

    @property
    def _tells_its_end(self) -> bool:
        return any(one.ended for one in self._facts) or self._facts[0].kind.startswith("Module.")

    def _told(self, first: Reading, second: Reading, order: Order) -> Iterator[GoneTwice]:
        known = self._reached(second, order)
        asks = any(_names(one, self._name) for one in order.decided)  # isinstance(params, list)
        if not second.lent and (known or (second.shown and not asks)):
            certain = known and second.shown
            yield self._is(*self._places(first, second), first, known=known, certain=certain)

    def _left_by_others(self) -> Iterator[GoneTwice]:
        """Yield a method's reading of an attribute that had ended when the method was called."""
        for second in self._readings if "." in self._name else ():
            ended = any(one.ended for one in self._facts)
            conditions = decided(self._source, second.node, self._scope)
            order = Order(True, conditions, self._is_left(second))
            if ended and not len(self._ran.reading(second.within)) and not second.lent:
                first = self._before()
                if first is not None and second.shown and self._reached(second, order):
                    yield self._is(*self._places(first, second), first, known=True, certain=True)

    def _kept(self) -> Iterator[GoneTwice]:
        """Yield a method's reading of an attribute that was given what is gone through here."""
        whole = [one for one in self._readings if one.whole]
        sure = [one for one in whole if not decided(self._source, one.node, self._scope)]
        first = next((one for one in sure if len(self._ran.reading(one.within))), None)
        kind = self._source.around(self._scope, (ast.ClassDef, ast.Module))
        for name in kept_as(self._scope, self._name) if first is not None else ():
            for method in getattr(kind, "body", ()):
                once = isinstance(method, ast.FunctionDef) and method is not self._scope
                if first is not None and once and assigned_once(self._source, method, name):
                    yield from self._in_method(name, first, method)

    def _in_method(self, name: str, first: Reading, method: ast.FunctionDef) -> Iterator[GoneTwice]:
        """Yield what a method, which the program has called, finds gone in an attribute."""
        for second in readings(self._program, self._site.file, method, name):
            sure = second.shown and not second.lent and not len(self._ran.reading(second.within))
            if decided(self._source, second.node, method) or self._is_left(second) or not sure:
                continue
            if any(self._is_passed(call, file) for file, call in self._program.calls(method)):
                found = self._is(*self._places(first, second), first, known=True, certain=True)
                yield found._replace(name=name)

    def _before(self) -> Reading | None:
        """Return what goes through the variable that an attribute was given, if it ran."""
        value = self._assigned.value
        scope = self._source.around(self._assigned.statement, (ast.FunctionDef, ast.Module))
        if not isinstance(value, ast.Name) or not isinstance(scope, (ast.FunctionDef, ast.Module)):
            return None
        found = readings(self._program, self._site.file, scope, value.id)
        return next((one for one in found if len(self._ran.reading(one.within))), None)

    def _is_left(self, second: Reading) -> bool:
        before = beside(self._source, second.node)[0]
        return any(leaves(self._source, one) for one in before)

    def _reached(self, second: Reading, order: Order) -> bool:
        """Whether the program came to the later of two readings."""
        if not order.decided and not order.leaves and self._whole:
            return True
        if self._history.trace.outcome != "finished":
            return False
        plain = all(isinstance(one, ast.stmt) for one in order.decided)
        return self._was_true(second, order) or (plain and self._is_passed(second.node))

    def _was_true(self, second: Reading, order: Order) -> bool:
        """Whether the one condition of a reading is a tensor's truth, and was true."""
        test = order.decided[0] if len(order.decided) == 1 and not order.leaves else None
        if not isinstance(test, ast.If):
            return False
        within = any(second.node in ast.walk(one) for one in test.body)
        return within and self._ran.true(stretch(self._site.file, test.test))

    def _is_passed(self, node: ast.AST, file: str = "") -> bool:
        """Whether something else of the block of a node has run: then this was reached, too."""
        file = file or self._site.file
        source = self._program.sources[file]
        before, after = beside(source, node)
        left = any(leaves(source, one) for one in before)
        return any(
            len(self._ran.any_of(stretch(file, one)))
            for one in ([] if left else before) + after
            if one is not self._assigned.statement and not self._goes_through(one)
        )

    def _goes_through(self, statement: ast.stmt) -> bool:
        """Whether a statement has the first reading, which says nothing of what comes after it."""
        return any(one.node in ast.walk(statement) for one in self._readings)

    # -- turn by turn ----------------------------------------------------------------------------

    def _here(self) -> Iterator[tuple[Reading, Scope]]:
        for one in self._readings:
            yield one, self._scope

    def _called(self) -> Iterator[tuple[Reading, Scope]]:
        """Yield the calls of a method that goes through an attribute, as the callers' readings."""
        for fact in self._facts if "." in self._name else ():
            site = self._history.site(fact.given)
            source = self._program.sources.get(site.file)
            node = source.node_at(site) if source is not None else None
            scope = source.scope_at(site) if source is not None else None
            if not isinstance(node, ast.Call) or scope is None:
                continue
            for one in self._readings:
                within = (stretch(site.file, node), *one.within)
                yield one._replace(node=node, within=within), scope

    def _turned(self, reading: Reading, scope: Scope) -> Site | None:
        """Return the loop whose later turns find nothing; or the function, of an attribute."""
        ran = self._ran.reading(reading.within)
        ended = any(one.ended for one in self._facts)
        if reading.partial or not (reading.whole or ended) or not len(ran):
            return None
        file = reading.within[0].file
        source = self._program.sources[file]
        loops = list(loops_around(source, reading.node, scope))
        own = "." in self._name and scope is self._scope and self._assigned.statement not in set(
            ast.walk(scope))  # fmt: skip
        for around in (*loops, *([scope] if own else [])):
            inside = self._assigned.statement in set(ast.walk(around))
            if not inside and self._came_again(source, file, reading, around, int(ran[-1])):
                return site_of_node(file, around, source.lines)._replace(  # type: ignore[arg-type]
                    function=getattr(around, "name", ""), expression=""
                )
        return None

    def _came_again(
        self, source: Source, file: str, reading: Reading, around: ast.AST, last: int
    ) -> bool:
        """Whether a loop came to a reading again after the last time that it found something."""
        inside = set(ast.walk(around))
        before, after = ([one for one in some if one in inside]
                         for some in beside(source, reading.node))  # fmt: skip
        if not any(leaves(source, one) for one in before):
            # What comes before it ran once more; or what comes after it ran twice.
            again = (self._ran.any_of(stretch(file, one)) for one in before)
            if any((one > last).any() for one in again):
                return True
            if any(self._ran.turns(source, stretch(file, one), last) > 1 for one in after):
                return True
        sure = self._whole and not decided(source, reading.node, around)
        return sure and turns(source, around) > 1

    # -- what is said ----------------------------------------------------------------------------

    def _at(self, fact: IteratorHeld) -> tuple[int, int]:
        site = self._history.site(fact.site)
        return (self._source.key(site) or (site.line, 0))[:2]

    def _place(self, reading: Reading) -> Site:
        """Return the line that goes through the iterator, in whichever function."""
        file, node = reading.at
        return site_of_node(file, node, self._program.sources[file].lines)

    def _places(self, first: Reading, second: Reading) -> tuple[Site, tuple[Site, ...]]:
        """Return the lines of two readings; where they are one, those that call its function."""
        places = [self._place(one) for one in (first, second)]
        if places[0] == places[1]:
            file, lines = first.within[0].file, self._source.lines
            nodes = [one.node for one in (first, second)]
            places = [site_of_node(file, one, lines) for one in nodes]  # type: ignore[arg-type]
        return places[0], (places[1],)

    def _is(
        self,
        first: Site,
        again: tuple[Site, ...],
        reading: Reading,
        *,
        known: bool,
        certain: bool,
        turn: Site | None = None,
    ) -> GoneTwice:
        tensors = self._given(reading) if self._facts[0].kind.startswith("Module.") else ()
        return GoneTwice(self._name, self._made(), first, again, turn, known, certain, tensors)

    def _given(self, reading: Reading) -> tuple[int, ...]:
        """Return the parameters that were read where an iterator was gone through."""
        events = self._history.events.at(self._ran.reading(reading.within)[:_MOST_LOOKED_AT])
        return tuple(
            dict.fromkeys(
                one.tensor for _, event in events for one in event.reads
                if one.leaf and one.requires_grad
            )
        )  # fmt: skip

    def _made(self) -> Site | None:
        """Return the expression that a name was given."""
        value, file = self._assigned.value, self._site.file
        if value is None:
            given = self._history.site(self._facts[0].given)
            value = argument(self._program, given, self._scope, self._name)
            file = given.file
        if value is None:
            return None
        return site_of_node(file, value, self._program.sources[file].lines)


def _names(node: ast.AST, name: str) -> bool:
    test = node.test if isinstance(node, (ast.If, ast.While, ast.IfExp)) else node
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(test))


class _Texts:
    """The program's texts, those of libraries left out."""

    def __init__(self, history: History) -> None:
        surroundings = history.get(Surroundings)
        files = {one.file for one in history.trace.sites if one.user}
        kept = [one for one in history.trace.sources if one in files]
        self.program = ProgramTexts({file: surroundings.source(file) for file in kept})
