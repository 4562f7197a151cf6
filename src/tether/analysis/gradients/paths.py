"""The paths from tensors that should train to a loss, and where they are cut.

All tensors are followed at once, a bit each. Three masks travel with every value: ``reaches`` (the
value of the tensor went into it), ``live`` (a gradient could come back that way) and ``smooth``
(and not only through step functions, whose derivative is zero everywhere).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tether.analysis.dataflow import Edge
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, losses_of
from tether.facts import Event, Operand
from tether.operations.table import operation
from tether.regions import overlaps

MOST = 2_000_000
"""Events times cuts up to which it is found out which cuts every way passes: a second or two."""


@dataclass
class Paths:
    """What was found of the paths to one loss."""

    tensors: list[int]
    backward: int  # position of the backward pass
    reaches: int = 0  # bit i: the value of tensors[i] reaches the loss
    live: int = 0  # a gradient can come back
    smooth: int = 0  # ... and not only through step functions
    cuts: dict[int, int] = field(default_factory=dict)  # position -> bits of tensors cut there
    later: dict[int, int] = field(default_factory=dict)  # explicit cuts after a first one
    always: dict[int, int] = field(default_factory=dict)  # of both, those that every way passes
    steps: dict[int, int] = field(default_factory=dict)  # step functions met while live
    functions: dict[int, int] = field(default_factory=dict)  # custom Functions met while live
    likely: int = 0  # bits whose path goes over a bridge that is not certain

    def bit(self, tensor: int) -> int:
        """Return the bit of a tensor in the masks."""
        return 1 << self.tensors.index(tensor)

    def lets(self, tensor: int) -> bool:
        """Whether a gradient could come back to a tensor."""
        return bool(self.live & self.bit(tensor))

    def of(self, mapping: dict[int, int], tensor: int) -> list[int]:
        """Positions in one of the mappings that concern a tensor, in the program's order."""
        bit = self.bit(tensor)
        return sorted(position for position, bits in mapping.items() if bits & bit)


def follow(history: History, tensors: list[int], backward: int) -> Paths:
    """Follow the values of `tensors` to the loss of one backward pass."""
    return _Walk(history, tensors, backward).run()


class _Walk:
    def __init__(self, history: History, tensors: list[int], backward: int) -> None:
        self.history = history
        self.flow = history.flow
        self.paths = Paths(tensors, backward)
        self.bits = {tensor: 1 << n for n, tensor in enumerate(tensors)}
        kinds = {one: history.trace.tensors.get(one) for one in tensors}
        self.sharded = sum(  # of a class that shows another tensor's values
            self.bits[one]
            for one, fact in kinds.items()
            if fact is not None and fact.kind not in ("Tensor", "Parameter")
        )
        self.by_storage: dict[int, list[Operand]] = defaultdict(list)
        for tensor in tensors:
            operand = history.operand_of(tensor)
            if operand is not None:
                self.by_storage[operand.storage].append(operand)
        self.reaches: dict[int, int] = defaultdict(int)
        self.live: dict[int, int] = defaultdict(int)
        self.smooth: dict[int, int] = defaultdict(int)
        self.uncertain = {
            history.position(bridge.entry) for bridge in history.trace.bridges if not bridge.certain
        }
        self.uncertain_bits: dict[int, int] = defaultdict(int)
        self.graph = history.get(Graph)
        self.only: dict[tuple[int, int], int] = {}  # call and one of its results -> bits in that

    def run(self) -> Paths:
        paths, events = self.paths, self.history.events
        for position in self.flow.behind(paths.backward):
            if self.flow.carries[position]:
                self._through(position, events[position])
        losses = losses_of(events[paths.backward])
        edges = [one for one in self.flow.edges[paths.backward] if one.operand in losses]
        paths.reaches, paths.live, paths.smooth, paths.likely = self._into(paths.backward, edges)
        self._find_always(edges)
        missing = paths.reaches & ~paths.smooth
        for mapping in (paths.cuts, paths.later, paths.steps):
            for position in list(mapping):
                mapping[position] &= missing
                if not mapping[position]:
                    del mapping[position]
        return paths

    def _find_always(self, ends: Sequence[Edge]) -> None:
        """Find which cuts lie on every way of a tensor that is cut at more than one."""
        paths = self.paths
        once = several = 0
        for bits in paths.cuts.values():
            once, several = once | bits, several | once & bits
        if not several:
            return
        # A line that cuts again and again cuts as one: all its calls are opened together.
        lines: dict[tuple[str, int], set[int]] = defaultdict(set)
        for at in (*paths.cuts, *paths.later):
            event = self.history.events[at]
            lines[event.operation, event.site].add(at)
        behind = self.flow.behind(paths.backward)
        if len(behind) * len(lines) > MOST:
            return
        for line in lines.values():
            bits = several & ~self._past(line, behind, ends)
            paths.always.update((at, bits) for at in line if bits)

    def _past(self, cuts: set[int], behind: Sequence[int], ends: Sequence[Edge]) -> int:
        """Return the tensors whose values reach the loss by a way that passes none of the cuts."""
        reaches: dict[int, int] = {}
        for position in behind:
            if position not in cuts and self.flow.carries[position]:
                reaches[position] = self._reaching(self.flow.edges[position], reaches)
        return self._reaching(ends, reaches)

    def _reaching(self, edges: Sequence[Edge], reaches: dict[int, int]) -> int:
        bits = 0
        for edge in edges:
            bits |= reaches.get(edge.source, 0) & self._within(edge)
            if edge.operand is not None:
                bits |= self._own_bits(edge.operand)
        return bits

    def _through(self, position: int, event: Event) -> None:
        """Carry the masks through one event."""
        reaches, live, smooth, uncertain = self._into(position, self.flow.edges[position])
        if not reaches:
            return
        if live and is_step(self.history, event):
            self.paths.steps[position] = live
            smooth = 0
        if event.operation == "apply" and live:
            self.paths.functions[position] = live
        if reaches & ~live and _always_cuts(event):
            self.paths.later[position] = reaches & ~live
        if position in self.uncertain:
            uncertain |= reaches
        self.reaches[position], self.live[position] = reaches, live
        self.smooth[position], self.uncertain_bits[position] = smooth, uncertain
        if len(event.results) > 1:
            self._part(position, event)

    def _part(self, position: int, event: Event) -> None:
        """Tell apart what goes into each result of a call that has several.

        A graph knows of what requires grad only: a result behind which all of that stands may hold
        the values of the other operands as well. One that is an operand itself is handed on alone.
        """
        asked = {one.tensor for one in event.reads if one.requires_grad}
        given = {one.tensor for one in event.reads} if not event.writes else set()
        for result in event.results:
            handed = {result.tensor} & given
            behind = handed or self.graph.behind_result(position, result.tensor)
            if behind is not None and not asked <= set(behind):
                edges = [
                    one
                    for one in self.flow.edges[position]
                    if one.operand is not None and one.operand.tensor in behind
                ]
                self.only[position, result.tensor] = self._reaching(edges, self.reaches)

    def _into(self, position: int, edges: Sequence[Edge]) -> tuple[int, int, int, int]:
        """Masks of all that goes into an event; what was cut on the way there is noted."""
        function, nothing = self._function_around(position), self.graph.given_nothing(position)
        reaches, live, idle = self._own(edges, nothing)
        smooth, uncertain = live, 0
        lost = [(position, idle)]
        for edge in edges:
            operand, source = edge.operand, edge.source
            if source < 0:
                continue
            only = self._within(edge)
            reaches |= self.reaches[source] & only
            uncertain |= self.uncertain_bits[source]
            # Within one forward of a custom Function nothing is decided: its `apply` decides.
            within = function >= 0 and function == self._function_around(source)
            given = operand is None or operand.tensor not in nothing
            if within or (given and _tracked(operand)):
                live |= self.live[source] & only
                smooth |= self.smooth[source] & only
            else:
                lost.append((source if given else position, self.live[source] & only))
        for source, bits in lost:
            if bits & ~live:
                cut = self._blamed(source, position)
                self.paths.cuts[cut] = self.paths.cuts.get(cut, 0) | bits & ~live
        return reaches, live, smooth, uncertain

    def _within(self, edge: Edge) -> int:
        """Return the tensors whose values can be in what comes over an edge; -1: all."""
        operand = edge.operand
        return -1 if operand is None else self.only.get((edge.source, operand.tensor), -1)

    def _own(self, edges: Sequence[Edge], nothing: frozenset[int]) -> tuple[int, int, int]:
        """Masks of what operands are themselves: shown, given a gradient, and given none.

        Its own gradient an operand is asked for where it is one of the tensors, or its shards.
        """
        shown = given = idle = 0
        for operand in [edge.operand for edge in edges if edge.operand is not None]:
            own = self.bits.get(operand.tensor, 0) if operand.requires_grad else 0
            begins = own | self._stands_for(operand)
            shown |= self._own_bits(operand)
            if operand.tensor in nothing:
                idle |= begins
            else:
                given |= begins
        return shown, given, idle

    def _blamed(self, source: int, position: int) -> int:
        """Return the call that cut: an `apply` for what happened inside its forward."""
        function = self._function_around(source)
        if function >= 0:
            outer = self.history.position(self.history.trace.spans[function].event)
            if 0 <= outer <= position:
                return outer
        return source

    def _own_bits(self, operand: Operand) -> int:
        bits = self.bits.get(operand.tensor, 0)
        for one in self.by_storage.get(operand.storage, ()):
            if one.tensor != operand.tensor and overlaps(one, operand):
                # Another tensor on the same bytes: made from it by a view or `.data`, which is
                # then the source of this edge; or a second owner of the memory.
                bits |= self.bits[one.tensor]
        return bits

    def _stands_for(self, operand: Operand) -> int:
        """Return the sharded tensors that a library made a parameter from, to be used for them.

        A sharded parameter is gathered into one that forward uses; its gradient is handed back.
        """
        if not operand.leaf or not operand.requires_grad or operand.tensor in self.bits:
            return 0
        made = self.history.made_at(operand.tensor)
        if made < 0 or not operation(self.history.events[made].operation).wraps:
            return 0
        inner = self.history.events[made].inner
        return self.reaches[made] & self.sharded if not self.history.site(inner).user else 0

    def _function_around(self, position: int) -> int:
        return self.history.inside(self.history.events[position], "function")


def _tracked(operand: Operand | None) -> bool:
    return operand is not None and operand.requires_grad and not operand.leaf


def is_step(history: History, event: Event) -> bool:
    """Whether the call is a step function, by its name or by the rounding mode it was given."""
    if operation(event.operation).flat:
        return True
    return event.kind >= 0 and history.trace.kinds[event.kind].rounds


def _always_cuts(event: Event) -> bool:
    """Whether no gradient could come back through a call, had one come as far."""
    known = operation(event.operation)
    places = known.selects == "index" and all(one.whole for one in event.results)
    return known.cuts or known.rebuilds or known.exports or places
