"""Which tensors should have trained and did not, and the paths from them to the losses.

Computed once for the verdicts that share it. A tensor counts only if an optimizer holds it or the
program read its gradient; it is missing only if it had no gradient at any step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property

from tether.analysis.gradients.chances import Chances, PassesOfSteps
from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.paths import Paths, follow
from tether.analysis.history import History, losses_of
from tether.facts import UNKNOWN, Gradients, Operand, Span, TensorId
from tether.regions import overlaps


class Missing:
    """The tensors without a gradient, sorted by what the facts say of them."""

    def __init__(self, history: History) -> None:
        self._history = history
        # Requiring grad, and None at every step; held, and not requiring grad.
        self.none: list[int] = []
        self.frozen: list[int] = []
        unasked = history.get(Unasked).passes
        for tensor in history.without_gradient:
            if tensor in unasked or self._trains_by_another(tensor):
                continue  # the graph reaches it: `parameter-unmoved` tells it; or its values train
            if self._is_frozen(tensor):
                self.frozen.append(tensor)
            elif tensor not in history.had_gradient or tensor not in history.held:
                self.none.append(tensor)
        # Exactly zero whenever it was looked into.
        seen = history.trained.items()
        self.zero = [tensor for tensor, some in seen if "zero" in some and "some" not in some]
        # Of none, zero and stopped: the paths to the losses of some passes.
        self.paths = [follow(history, self._followed, at) for at in self._chosen]

    def _is_frozen(self, tensor: int) -> bool:
        """Whether a tensor did not require grad at any pass that could have given it a gradient."""
        if self._history.operand_of(tensor) is None:
            return False
        chances = self._history.get(Chances)
        if not chances.passes_of(tensor):
            return not chances.requires_grad(tensor)
        return not chances.had_one(tensor)

    def _trains_by_another(self, tensor: int) -> bool:
        """Whether another parameter, which has gradients, lies on a tensor's elements.

        As where a module was given `nn.Parameter(weight.data)` in the place of its weight.
        """
        own = self._history.operand_of(tensor)
        others = self._with_gradient.get(own.storage, ()) if own is not None else ()
        return any(own and one.tensor != tensor and overlaps(own, one) for one in others)

    @cached_property
    def _with_gradient(self) -> dict[int, list[Operand]]:
        """Parameters that an optimizer holds and that had gradients, by their storages."""
        history, found = self._history, defaultdict[int, list[Operand]](list)
        for tensor in history.held & history.had_gradient:
            operand = history.operand_of(tensor)
            if operand is not None:
                found[operand.storage].append(operand)
        return found

    @cached_property
    def stopped(self) -> list[int]:
        """Held tensors where a backward raised, since its loss had no graph."""
        history, known = self._history, {*self.none, *self.zero, *self.frozen}
        found = sorted(history.held - known, key=lambda one: history.order.get(one, 0))
        return found if self._failed else []

    @cached_property
    def _failed(self) -> list[int]:
        events = self._history.events
        return [
            at
            for at in self._history.backwards
            if events[at].raised and not any(one.requires_grad for one in losses_of(events[at]))
        ]

    @cached_property
    def _followed(self) -> list[int]:
        return [*self.none, *self.zero, *self.stopped]

    @property
    def _chosen(self) -> list[int]:
        chosen = [*self._failed[:1], *representative(self._history)]
        return list(dict.fromkeys(chosen)) if self._followed else []

    def reaching(self, tensor: int) -> list[Paths]:
        """Return the paths on which the value of a tensor reaches the loss, its own losses first.

        Its own are those of the passes that the steps of its optimizer came right after, and then
        those of their lines.
        """
        history, before = self._history, self._history.get(PassesOfSteps)
        if tensor not in self._followed:
            return []
        holders = set(history.holders_of(tensor))
        lines = set[int]().union(*(before.lines[number] for number in holders))
        reached = [one for one in self.paths if one.reaches & one.bit(tensor)]

        def others(one: Paths) -> tuple[bool, bool]:
            own = not holders.isdisjoint(before.steppers.get(one.backward, ()))
            return not own, history.events[one.backward].site not in lines

        return sorted(reached, key=others)


def representative(history: History) -> list[int]:
    """Choose a few finished backward passes that stand for all: of each kind second, last, first.

    A kind is a line, and the optimizers that step right after: one line may serve several in turn.
    The first pass of a run sees initialisation, so it is asked last; the cost stays linear for a
    run of a million steps.
    """
    steppers = history.get(PassesOfSteps).steppers
    kinds: dict[tuple[int, frozenset[int]], list[int]] = defaultdict(list)
    for position in history.backwards:
        if not history.events[position].raised:
            after = steppers.get(position, frozenset())
            kinds[history.events[position].site, after].append(position)
    chosen: list[int] = []
    for positions in list(kinds.values())[:12]:
        chosen += [positions[min(1, len(positions) - 1)], positions[-1], positions[0]]
    return list(dict.fromkeys(chosen))


class Unasked:
    """Which tensors passes could have given a gradient, that all asked for others only."""

    def __init__(self, history: History) -> None:
        graph = history.get(Graph)
        self.passes: dict[int, list[int]] = defaultdict(list)  # tensor -> those passes
        reached: set[int] = set()
        for at in history.backwards:
            leaves, asked = graph.leaves(at) or frozenset(), graph.asked(at)
            reached |= asked or leaves
            for leaf in leaves - asked if asked else ():
                self.passes[leaf].append(at)
        for leaf in reached:
            self.passes.pop(leaf, None)


def not_handed(history: History, tensor: int, backward: int) -> int:
    """Return a call of a custom Function that computes with a tensor and is not handed it; or -1.

    Its backward asks for the gradients of what it was handed: a pass within it did not ask for the
    tensor's. The calls in a forward have no graph, but what they read may.
    """
    graph, events = history.get(Graph), history.events
    if history.inside(events[backward], "backward") < 0:
        return -1
    first: dict[int, Span] = {}  # line -> its first call of a Function
    for span in history.trace.spans:
        if span.kind == "function" and span.event != UNKNOWN:
            first.setdefault(span.site, span)
    for span in first.values():
        call = history.position(span.event)
        calls = range(history.position(span.first), call)
        known = 0 <= calls.start < backward and tensor not in graph.leaves_behind(call)
        if known and any(tensor in graph.leaves_behind(at) for at in calls if events[at].reads):
            return call
    return -1


def without_backward(history: History, tensor: int) -> bool:
    """Whether steps held a tensor and no backward pass ran before any of them."""
    passes, holders = history.get(PassesOfSteps), history.holders_of(tensor)
    return bool(holders) and not any(passes.lines[one] for one in holders)


def in_how_many(history: History, tensor: int) -> str:
    """Say over how many steps it was missing, in words."""
    steps = len(history.steps_of(tensor))
    if steps == 0:
        return "in the backward pass" if len(history.backwards) == 1 else "in any backward pass"
    return "in the one step" if steps == 1 else f"in any of {steps} steps"


def zero_when(history: History, tensor: int) -> str:
    """Say when a gradient was zero, in words; nothing of steps that were not looked into."""
    facts, at, one, many = _looks_at(history, TensorId(tensor))
    seen = Counter(fact.status[TensorId(tensor)] for fact in facts)
    if not seen["none"] and not seen["unchecked"]:
        return f"{at} every {one}"
    looked = bool(seen["unchecked"])
    if seen["zero"] == 1:
        return f"{at} the one {one} that {'was looked at' if looked else 'gave it one'}"
    which = "were looked at" if looked else "gave it one"
    return f"{at} each of the {seen['zero']:,} {many} that {which}"


def _looks_at(history: History, tensor: TensorId) -> tuple[list[Gradients], str, str, str]:
    """Return the looks at a gradient, those of steps if there are any, and what they are of."""
    steps = [fact for fact in history.steps if tensor in fact.status]
    if steps:
        return steps, "at", "step", "steps"
    passes = [fact for fact in history.after_backward if tensor in fact.status]
    return passes, "after", "backward pass", "backward passes"
