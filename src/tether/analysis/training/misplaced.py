"""Tensors that optimizers hold in place of those that train, and those that none of them holds.

Only facts are compared: names, owners and shapes, who got a gradient, who was made when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.ungraded import Missing
from tether.analysis.history import History, following
from tether.analysis.training.following import read_behind
from tether.analysis.training.loaded_over import by_step
from tether.analysis.training.no_longer import LastSteps, ceased
from tether.facts import UNKNOWN, Name, OptimizerFact, TensorId


class Replaced(NamedTuple):
    """A tensor that an optimizer steps, and the one that trains in its place."""

    tensor: int
    new: int
    name: str  # that both bore; "": the new one was made of its values
    twin: str = ""  # the model of the same make that the loss is computed with, if it is that
    since: int = 0  # steps, up to the last, without a gradient; 0: it had none at any step


class Unheld(NamedTuple):
    """A parameter that got a gradient, whose model some optimizer holds, without it."""

    tensor: int
    site: int  # where it was made, as far as it is known
    holder: OptimizerFact


class Misplaced:
    """What optimizers and models do not have in common."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._free = sorted(history.had_gradient - history.held)  # trains, and nothing steps it
        self.replaced = [
            *self._replaced(), *self._replaced_later(), *self._made_of_old(), *self._twins()
        ]  # fmt: skip
        self.unheld = list(self._unheld()) if history.steps else []
        self.sites = {one.site for one in self.unheld}

    def holder(self, tensor: int) -> OptimizerFact:
        """Return the first optimizer that holds a tensor."""
        return next(one for one in self._history.trace.optimizers if tensor in one.tensors)

    def made_on(self, tensor: int) -> int:
        """Return the line that made a tensor, or UNKNOWN."""
        position = self._history.made_at(tensor)
        return self._history.events[position].site if position != UNKNOWN else UNKNOWN

    def is_of_modules(self, tensor: int) -> bool:
        """Whether a tensor is of a class that modules register: a parameter, a buffer."""
        return self._history.trace.tensors[tensor].kind != "Tensor"

    # -- another tensor in its place -------------------------------------------------------------

    def _held_without_gradient(self) -> list[int]:
        missing = self._history.get(Missing)
        return [one for one in missing.none if one in self._history.held]

    def _replaced(self) -> Iterator[Replaced]:
        """Yield tensors whose name another one bears now."""
        history = self._history
        for tensor in self._held_without_gradient():
            reaching = bool(history.get(Missing).reaching(tensor))
            for name in history.names_of(tensor):
                others = [one for one in self._bearers[name] if one != tensor and one in self._read]
                new = next((one for one in reversed(others) if one not in history.held), None)
                if new is None:
                    continue
                if reaching and (len(others) > 1 or new not in history.had_gradient):
                    continue  # replaced at every step by what is made of it: that is a cut
                if self.is_generated(new):
                    continue
                yield Replaced(tensor, new, name)
                break

    def is_generated(self, tensor: int) -> bool:
        """Whether a tensor is computed of what an optimizer trains: a hypernetwork's weight."""
        made = self._history.made_at(tensor)
        behind = self._history.get(Graph).leaves_behind(made) if made >= 0 else frozenset[int]()
        return not behind.isdisjoint(self._history.held & self._history.had_gradient)

    def _replaced_later(self) -> Iterator[Replaced]:
        """Yield tensors that trained until another one, made then, got their name and gradients.

        Not where the program takes the other one's gradient itself: it may step it so.
        """
        history, free = self._history, {*self._free}.difference(self._history.asked)
        for tensor, steps in ceased(history) if free else ():
            for name in history.names_of(tensor):
                others = [one for one in self._bearers[name] if one in free]
                if others and steps.since > 1 and self._goes_on(others[-1], steps):
                    yield Replaced(tensor, others[-1], name, since=steps.since)
                    break

    def _made_of_old(self) -> Iterator[Replaced]:
        """Yield tensors that trained until a parameter was made of their values, and is used since.

        As where a norm of the weights is taken out of a model whose training goes on.
        """
        for tensor, steps in ceased(self._history):
            for at, new, behind in self._made_unheld if steps.since > 1 else ():
                if steps.last < at < steps.first and tensor in behind:
                    yield Replaced(tensor, new, "", since=steps.since)
                    break

    @cached_property
    def _made_unheld(self) -> list[tuple[int, int, set[int]]]:
        """Tensors of modules that no optimizer holds, made after a step: when, and made of what."""
        history, found = self._history, list[tuple[int, int, set[int]]]()
        first = min((history.position(one.at) for one in history.steps), default=0)
        placed = {int(fact.tensor) for fact in history.trace.names if fact.module}
        for tensor in sorted(placed & self._read - history.held):
            at = history.made_at(tensor)
            if at > first:
                found.append((at, tensor, {int(one.tensor) for one in read_behind(history, at)}))
        return found

    def _goes_on(self, new: int, steps: LastSteps) -> bool:
        """Whether a tensor was made after some steps and got gradients in each pass since."""
        history = self._history
        passes = [one for one in history.after_backward if history.position(one.at) > steps.last]
        got = [one.status.get(TensorId(new)) not in (None, "none") for one in passes]
        life = history.trace.tensors.get(new)
        return life is not None and history.position(life.born) > steps.last and all(got)

    @cached_property
    def _bearers(self) -> dict[str, list[int]]:
        bearers: dict[str, list[int]] = defaultdict(list)
        for fact in sorted(self._history.trace.names, key=lambda one: one.at):
            bearers[fact.name].append(fact.tensor)
        return bearers

    @cached_property
    def _read(self) -> set[int]:
        found = self._history.events.where(lambda name: name not in ("step", "zero_grad"))
        return {int(one.tensor) for _, event in found for one in event.reads}

    def _twins(self) -> Iterator[Replaced]:
        """Yield tensors of a model that is stepped while the loss is computed with its twin.

        The other's parameters have the same names below its own, the same shapes and classes; they
        get the gradients, and no optimizer holds them.
        """
        history = self._history
        twins: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for tensor in self._free:
            make = self._make(tensor)
            if make is not None:
                twins[make].append(tensor)
        for tensor in self._held_without_gradient():
            make = self._make(tensor)
            name = history.name_of(tensor)
            root, _, below = name.partition(".")
            for twin in twins.get(make, ()) if make is not None else ():
                other = history.name_of(twin).removesuffix(f".{below}")
                if other not in (root, history.name_of(twin)):
                    yield Replaced(tensor, twin, name, other)
                    break

    def _make(self, tensor: int) -> tuple[str, tuple[int, ...]] | None:
        """Return the class of the module that holds a parameter, and its shape."""
        fact, operand = self._history.facts_of_name(tensor), self._history.operand_of(tensor)
        if fact is None or operand is None or not fact.module:
            return None
        return fact.owner, operand.shape

    # -- in no optimizer -------------------------------------------------------------------------

    def _unheld(self) -> Iterator[Unheld]:
        explained = {one.name for one in self.replaced}
        for tensor in self._free:
            fact = self._history.facts_of_name(tensor)
            if fact is None or fact.name in explained:
                continue
            holder = self._roots.get(fact.name.split(".")[0])
            if holder is None or self._left_out(tensor, fact, holder):
                continue
            if not self._should_train(tensor, holder) or self._made_of_trained(tensor):
                continue
            if not self._is_led(tensor):
                site = self.made_on(tensor)
                yield Unheld(tensor, site if site != UNKNOWN else holder.site, holder)

    @cached_property
    def _roots(self) -> dict[str, OptimizerFact]:
        """The models that optimizers hold parameters of, by name, with the first optimizer."""
        roots: dict[str, OptimizerFact] = {}
        for optimizer in self._history.trace.optimizers:
            for tensor in optimizer.tensors:
                fact = self._history.facts_of_name(tensor)
                if fact is not None and fact.module:
                    roots.setdefault(fact.name.split(".")[0], optimizer)
        return roots

    def _should_train(self, tensor: int, holder: OptimizerFact) -> bool:
        """Whether a tensor of a module is there to be trained, as far as anyone can tell.

        A plain one was made once, required grad before the optimizer was made, and the program
        does nothing with its gradient: an input that is made anew for each step, or one that an
        attack or a physical loss differentiates by, is none.
        """
        if self.is_of_modules(tensor):
            return True
        history = self._history
        at, made = history.position(holder.at), history.made_at(tensor)
        asked_before = any(
            one.tensor == tensor and one.requires_grad
            for event in history.events[: max(at, 0)]
            for one in (*event.reads, *event.results, *event.writes)
        )
        once = made != UNKNOWN and history.times(made) == 1
        return once and asked_before and tensor not in history.asked

    def _left_out(self, tensor: int, fact: Name, holder: OptimizerFact) -> bool:
        """Whether `parameters()` listed a tensor as the optimizer was made: not by mistake then."""
        life = self._history.trace.tensors.get(tensor)
        after = life is not None and life.born >= holder.at
        return fact.listed and not (fact.module and after)

    def _made_of_trained(self, tensor: int) -> bool:
        """Whether a call made it of a trained value, each time anew: that is a cut."""
        events, position = self._history.events, self._history.made_at(tensor)
        return position != UNKNOWN and any(one.requires_grad for one in events[position].reads)

    def _is_led(self, tensor: int) -> bool:
        """Whether the program writes trained values to a tensor, again after a step: a target."""
        history, operand, stepped = self._history, self._history.operand_of(tensor), UNKNOWN
        steps = [history.position(one.at) for one in history.steps]
        for at in history.writes_to(operand) if operand is not None else ():
            if by_step(history, at) or not self._takes_trained(at):
                continue
            if 0 <= stepped < at:
                return True
            stepped = stepped if stepped >= 0 else following(steps, at)
        return False

    def _takes_trained(self, at: int) -> bool:
        """Whether a call reads what trains, or what was computed of it a few calls before."""
        held = self._history.held
        return any(one.tensor in held for one in read_behind(self._history, at))

    def copied(self, cut: int) -> int:
        """Return the tensor that gets gradients of several passes and is made of what a call cut.

        -1 for none. It trains in the place of what it was made of, and nothing steps it.
        """
        history = self._history
        for tensor in self._free:
            if self._is_made_of(tensor, cut):
                passes = (one.status.get(TensorId(tensor)) for one in history.after_backward)
                if sum(status not in (None, "none") for status in passes) > 1:
                    return tensor
        return UNKNOWN

    def is_trained_apart(self, cut: int) -> bool:
        """Whether what a call cut became a parameter that an optimizer holds, with gradients."""
        trained = self._history.held & self._history.had_gradient
        return any(self._is_made_of(tensor, cut) for tensor in trained)

    def _is_made_of(self, tensor: int, cut: int) -> bool:
        made = self._history.made_at(tensor)
        return made == cut or (made > cut and cut in self._history.flow.behind(made, most=1000))
