"""Optimizers: what they hold, when they step, and the closures that they call."""

from __future__ import annotations

import collections
import functools
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.optim.optimizer as optimizer_module
from torch.optim import Optimizer

from tether.facts import (
    KEEPS,
    NONE,
    GivenTwice,
    GradientStatus,
    IteratorTaken,
    Moment,
    OptimizerFact,
    SiteId,
    TensorId,
)
from tether.record.gradients.gradients import gradient_of
from tether.record.identity import version_of, versions_of
from tether.record.listener import Listener
from tether.record.mode_stack import muted, off_the_stack
from tether.record.objects import attributes_of, locals_of
from tether.record.patches.replacing import Original, Replacements, Tell
from tether.record.patches.schedules import Schedules, rate_of, rates_of
from tether.record.patches.shared_rates import SharedRates
from tether.record.recorder import Recorder
from tether.record.sites import here, user_frames
from tether.record.tape import NOWHERE, Tape
from tether.record.training.movement import Still, Sums
from tether.record.training.open_steps import leave_stale_steps, stepping
from tether.record.training.saved_states import held_by, wrapped_by

__tracebackhide__ = True

_ITERATORS = (filter, map, zip, itertools.chain, types.GeneratorType)
"""What gives its elements once; an optimizer takes them all."""

_MOST_TWICE = 64  # times that it is noted

GREAT = 16
"""Times by which a learning rate has grown or fallen since it was noted, to be noted again."""


class Optimizers:
    """Hears of every optimizer that is made and every step that is taken."""

    def __init__(self, replacements: Replacements, recorder: Recorder) -> None:
        self._replacements = replacements
        self._recorder = recorder
        self._tape = recorder.tape
        self._handles: list[Any] = []  # of the hooks around steps
        self._schedules = Schedules(replacements, recorder.resumptions)
        self._shared_rates = SharedRates(replacements, self._numbers)
        recorder.resumptions.numbered = lambda one, site: self._know(wrapped_by(one), site).fact
        self.on_step: Callable[[Optimizer], None] = lambda _: (
            None
        )  # after each step, recorded or not
        self._known: weakref.WeakKeyDictionary[Optimizer, _Known] = weakref.WeakKeyDictionary()
        # Where each parameter group came in. A constructor adds its own, one by one.
        self._added: weakref.WeakKeyDictionary[Optimizer, list[SiteId]] = (
            weakref.WeakKeyDictionary()
        )
        self._steps: dict[int, _Step] = {}  # span -> the step that runs

    # -- in place, and back ----------------------------------------------------------------------

    def install(self) -> None:
        """Put the replacements in place."""
        replace = self._replacements.replace
        replace(Optimizer, "__init__", self._init)
        self._schedules.install()
        self._shared_rates.install()
        replace(
            Optimizer,
            "add_param_group",
            self._replacements.telling(self._extended, self._extending),
        )
        for owner in (Optimizer, torch.nn.Module):
            replace(owner, "zero_grad", self._zero_grad)
        replace(Optimizer, "state_dict", self._replacements.telling(self._saved))
        replace(Optimizer, "load_state_dict", self._replacements.telling(self._loaded))
        for owner, name in _internals():
            replace(owner, name, functools.partial(unheard, self._replacements))

    def hook(self) -> None:
        """Hear of optimizer steps; costs next to nothing while nothing is recorded."""
        if not self._handles and not stepping():
            before = optimizer_module.register_optimizer_step_pre_hook(self._before_step)
            after = optimizer_module.register_optimizer_step_post_hook(self._after_step)
            self._handles += [before, after]

    def unhook(self) -> None:
        """Hear of steps no more; hooks that are being run stay, PyTorch is iterating over them."""
        if not stepping():
            while self._handles:
                self._handles.pop().remove()

    # -- what they hold --------------------------------------------------------------------------

    def _init(self, original: Original) -> Original:
        @functools.wraps(original)
        def __init__(  # noqa: N807 -- what it replaces is called so
            optimizer: Optimizer, *args: Any, **kwargs: Any
        ) -> None:
            try:
                original(optimizer, *args, **kwargs)
            except Exception as error:
                self._replacements.refused(type(optimizer), error, (*args, *kwargs.values()))
                raise
            listener = self._replacements.listener()
            if listener is not None:
                with muted(listener):
                    site = self._tape.places.user_place(here(2))[0]
                    self._know(optimizer, site)
                    given = args[0] if args else kwargs.get("params")
                    if type(given) in _ITERATORS:
                        self._gone_through(given, type(optimizer).__name__, SiteId(site))
                    self._recorder.resumptions.made(optimizer, site)
                    self._recorder.naming.maybe_search(here(2))

        return __init__

    def _gone_through(self, given: Any, kind: str, site: SiteId) -> None:
        """Note an iterator that gives nothing any more, if the program has a name for it."""
        frame = next(user_frames(here(3)), None)
        for name, value in locals_of(frame) if frame is not None else ():
            own = attributes_of(value) if name == "self" else ()
            for called, one in ((name, value), *((f"self.{part}", it) for part, it in own)):
                if one is given:
                    moment = Moment(self._tape.now())
                    self._tape.iterators_taken.append(IteratorTaken(moment, site, kind, called))
                    return

    def _extending(self, args: tuple[Any, ...]) -> None:
        """Note what an optimizer is given that it has by then, or twice in one group."""
        optimizer, group = args[0], args[1] if len(args) > 1 else None
        given = group.get("params") if isinstance(group, dict) else None
        if isinstance(given, (list, tuple)) and len(self._tape.given_twice) < _MOST_TWICE:
            count = collections.Counter(map(id, (*given, *held_by(optimizer))))
            twice = {id(one): one for one in given if count[id(one)] > 1}
            known = [self._tape.who.find(one) for one in twice.values()]
            if twice:
                site = SiteId(self._tape.places.user_place(here(3))[0])
                serials = tuple(TensorId(one.serial) for one in known if one is not None)
                self._tape.given_twice.append(GivenTwice(Moment(self._tape.now()), site, serials))

    def _extended(
        self, _: Listener, place: tuple[int, int], args: tuple[Any, ...], *_rest: Any
    ) -> None:
        """Note where a parameter group came in."""
        self._added.setdefault(args[0], []).append(SiteId(place[0]))

    def _saved(
        self, listener: Listener, place: tuple[int, int], args: tuple[Any, ...], *rest: Any
    ) -> None:
        """Note a state that is handed out."""
        _state_of("state_dict")(listener, place, args, *rest)
        self._recorder.saved_states.saved(args[0], place[0])
        self._recorder.resumptions.saved(args[0], place[0])

    def _loaded(
        self, listener: Listener, place: tuple[int, int], args: tuple[Any, ...],
        kwargs: dict[str, Any], result: Any,
    ) -> None:  # fmt: skip
        """Note a state that was loaded, which holds learning rates too."""
        _state_of("load_state_dict")(listener, place, args, kwargs, result)
        self._recorder.saved_states.loaded(args[0], place[0])
        self._recorder.resumptions.loaded(args[0])
        self._schedules.set_by("load_state_dict", args[0], place[0], after=rates_of(args[0]))

    def _numbers(self) -> list[tuple[Optimizer, int]]:
        """Return the optimizers, with the number of the latest fact of each."""
        return [(optimizer, known.fact) for optimizer, known in self._known.items()]

    def _know(
        self, optimizer: Optimizer, site: int, held: list[torch.Tensor] | None = None
    ) -> _Known:
        """Return what is known of an optimizer; a changed set of tensors is a new fact."""
        facts, held = self._tape.optimizers, held_by(optimizer) if held is None else held
        known = self._known.get(optimizer)
        if known is not None and facts[known.fact].tensors == self._tape.who.known(held):
            return known
        tensors = tuple(self._recorder.gradients.hold(one) for one in held)
        if known is None:
            known = self._known[optimizer] = _Known(len(facts), site)
        elif facts[known.fact].tensors == tensors:
            return known
        groups = tuple(len(group["params"]) for group in optimizer.param_groups)
        now = Moment(self._tape.now())
        known.fact = len(facts)
        kind, place, rates = type(optimizer).__name__, SiteId(known.site), rates_of(optimizer)
        added = self._added.get(optimizer, [])
        lines = tuple(added) if len(added) == len(groups) else ()
        facts.append(OptimizerFact(kind, place, now, tensors, groups, rates, lines))
        return known

    def _zero_grad(self, original: Original) -> Original:
        @functools.wraps(original)
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> Any:
            place, filled = NOWHERE, list[torch.Tensor]()
            listener = self._replacements.listener()
            if listener is None:
                return original(owner, *args, **kwargs)
            with muted(listener):
                place = self._tape.places.user_place(here(2))
                held = held_by(owner) if isinstance(owner, Optimizer) else owner.parameters()
                filled = [one for one in held if one.is_leaf and gradient_of(one) is not None]
            with off_the_stack(listener):
                result = original(owner, *args, **kwargs)
            with muted(listener):
                cleared = bool(args[0]) if args else bool(kwargs.get("set_to_none", True))
                gradients = self._recorder.gradients
                written = [] if cleared else gradients.written(gradients.trained())
                event = listener.note(
                    "zero_grad", place, filled, writes=written, flags=NONE if cleared else 0
                )
                if written:
                    self._recorder.holders.reached(written, event, place[0])
            return result

        return zero_grad

    # -- steps -----------------------------------------------------------------------------------

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if not self._tape.active:
            return None
        try:
            return self._begins(optimizer, args, kwargs)
        except Exception as error:  # noqa: BLE001
            self._tape.failed("optimizer step", error)
            return None

    def _begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        recorder, tape = self._recorder, self._tape
        listener = self._replacements.listener()
        if listener is None:
            return None
        step = None
        with muted(listener):
            place = tape.places.user_place(here(3))
            leave_stale_steps(listener, here(2))
            tensors = held_by(optimizer)
            known = self._know(optimizer, place[0], tensors)
            known.steps += 1
            if recorder.arrays.watched:
                recorder.arrays.compare_all(place[0])
            self._name(known, tensors)
            kind = type(optimizer).__name__
            step = _Step(recorder, listener, known, tensors)
            recorder.saved_states.steps(optimizer, known.fact)
            recorder.resumptions.steps(optimizer, known.fact)
            self._shared_rates.of_others.steps(optimizer, known.fact)
            step.begins(optimizer)
            span = tape.open_span("step", kind, place[0], listener.span)
            self._steps[span] = step
            listener.span = span
            listener.steps.append(span)
        return _with_closure(step, args, kwargs) if step is not None else None

    def _name(self, known: _Known, tensors: list[torch.Tensor]) -> None:
        """Look for names where it is due, and at the first step of each on tensors without any."""
        naming = self._recorder.naming
        if known.steps == 1 and not all(map(naming.knows, tensors)):
            naming.search_now(here(3))
        else:
            naming.maybe_search(here(3))

    def _after_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._tape.active:
            try:
                self._ends(optimizer)
            except Exception as error:  # noqa: BLE001
                self._tape.failed("optimizer step", error)
            self._tape.on_beat()
        self.on_step(optimizer)

    def _ends(self, optimizer: Optimizer) -> None:
        recorder, tape = self._recorder, self._tape
        listener = self._replacements.listener()
        if listener is None or not listener.steps or listener.span != listener.steps[-1]:
            return
        with muted(listener):
            place = tape.places.user_place(here(3))
            span = listener.steps.pop()
            listener.span = tape.spans[span].parent
            step = self._steps.pop(span)
            step.finished(place[0])
            kind = type(optimizer).__name__
            written = [*step.written(), *_state_written(tape, optimizer)]
            flags = KEEPS if step.first and any(True for _ in _state(optimizer)) else 0
            event = listener.note("step", place, writes=written, flags=flags, detail=kind)
            tape.close_span(span, event)
            recorder.holders.stepped(written, event, place[0])
            recorder.arrays.wrote_any()
            if recorder.memory is not None:
                recorder.memory.after_step(place[0], optimizer)


class _Known:
    """What is known of one optimizer."""

    def __init__(self, fact: int, site: int) -> None:
        self.fact = fact  # its latest, among the facts
        self.site = site  # where it was made
        self.steps = 0  # taken so far
        self.frozen = 0  # most tensors that did not require grad, at any step


class _Step:
    """One step of an optimizer while it runs.

    Values are looked at around the 1st, 2nd, 4th... and where more is frozen than before.
    """

    def __init__(
        self,
        recorder: Recorder,
        listener: Listener,
        known: _Known,
        tensors: list[torch.Tensor],
    ) -> None:
        self.recorder = recorder
        self.listener = listener
        self.optimizer = known.fact
        self.tensors = tensors
        self.numbers = recorder.tape.optimizers[known.fact].tensors  # the serial numbers
        self.first = known.steps == 1
        frozen = [one.requires_grad for one in tensors].count(False)
        self._looks = known.steps & (known.steps - 1) == 0 or frozen > known.frozen
        known.frozen = max(frozen, known.frozen)
        self._versions = versions_of(tensors)
        self._status: dict[TensorId, GradientStatus] = {}
        self._carried: list[TensorId] = []
        self._before: Sums | None = None
        self._still: dict[TensorId, Still] = {}

    def begins(self, optimizer: Optimizer) -> None:
        """Look at what the step is about to use: values, gradients, learning rates."""
        self.look()
        self._carried = self.recorder.carried.steps(self.optimizer, self._held)
        if self._looks:
            held = self._held()
            self._before = self.recorder.movement.before_step(held)
            self._still = self.recorder.drift.before_step(held)
            self.recorder.alike.before_step(held)
        self._note_rates(optimizer)

    def look(self) -> None:
        """Look at the gradients that the step is about to use."""
        gradients = self.recorder.gradients
        self._status = gradients.before_step(self.tensors, self.numbers, look=self._looks)

    def finished(self, site: int) -> None:
        """Record what the step has used and what it changed."""
        recorder = self.recorder
        recorder.gradients.stepped(site, self.optimizer, self._status)
        if self._carried:
            recorder.gradients.carried(site, self.optimizer, self._carried)
        if self._looks:
            recorder.carried.stepped(self.optimizer, self.tensors)
        else:
            recorder.movement.stepped_between(self.numbers, self.tensors, site, self.optimizer)
        if self._before is not None or self._still:
            held = self._held()
            if self._before is not None:
                recorder.movement.stepped(self._before, held, site, self.optimizer)
            recorder.drift.stepped(self._still, held, site, self.optimizer)

    def _held(self) -> dict[TensorId, torch.Tensor]:
        return dict(zip(self.numbers, self.tensors, strict=True))

    def _note_rates(self, optimizer: Optimizer) -> None:
        tape = self.recorder.tape
        for number, group in enumerate(optimizer.param_groups):
            rate = rate_of(group)
            last = tape.last_rates.get((self.optimizer, number))
            if rate is None or rate == last:
                continue
            if last is None or self._looks or not last / GREAT < rate < last * GREAT:
                tape.note_rate(self.optimizer, number, rate)

    def written(self) -> list[torch.Tensor]:
        """Return the tensors that the step wrote."""
        who, found = self.recorder.tape.who, []
        if who.dead:
            who.bury()
        after = versions_of(self.tensors)
        for one, before, now in zip(self.tensors, self._versions, after, strict=True):
            # A closure may have looked since: the version before the step counts as well.
            ref = who.tensors.get(id(one))
            if ref is not None and not now == before == ref.snapshot[2]:
                found.append(one)
        return found


def _with_closure(step: _Step, args: Any, kwargs: Any) -> Any:
    """Return the arguments of a step with its closure heard as the program's own lines."""
    place = 1 if len(args) > 1 and callable(args[1]) else None
    closure = args[1] if place else kwargs.get("closure")
    if not callable(closure):
        return None

    @functools.wraps(closure)
    def heard(*inner: Any, **named: Any) -> Any:
        listener, tape = step.listener, step.recorder.tape
        outer, steps = listener.span, listener.steps
        site = tape.places.add_definition(closure.__code__) if hasattr(closure, "__code__") else -1
        listener.span = tape.open_span("closure", "", site, outer)
        listener.steps = []
        try:
            return closure(*inner, **named)
        finally:
            tape.close_span(listener.span)
            listener.span, listener.steps = outer, steps
            with muted(listener):
                step.look()

    if place:
        return (*args[:1], heard, *args[2:]), kwargs
    return args, {**kwargs, "closure": heard}


def _state_of(name: str) -> Tell:
    """Tell of a call that hands out, or takes in, the very tensors of an optimizer's state."""

    def tell(listener: Listener, place: Any, args: tuple[Any, ...], *_: Any) -> None:
        shown = list(_state(args[0]))
        if shown:
            listener.note(name, place, results=shown)
            listener.recorder.holders.again()

    return tell


def _state(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for state in list(optimizer.state.values()):
        if isinstance(state, dict):
            yield from (one for one in list(state.values()) if isinstance(one, torch.Tensor))


def _state_written(tape: Tape, optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the tensors of an optimizer's state that the program has met, and that it wrote."""
    known, found = tape.who.tensors, []
    for one in _state(optimizer):
        ref = known.get(id(one))  # of nearly all none: PyTorch has made them, and keeps them
        if ref is not None and version_of(one) != ref.snapshot[2]:
            found.append(one)
    return found


def unheard(replacements: Replacements, original: Original, gap: str = "") -> Original:
    """Run a function without the mode; an optimizer's thousands of calls are one event."""

    @functools.wraps(original)
    def aside(*args: Any, **kwargs: Any) -> Any:
        listener = replacements.listener()
        if listener is None:
            return original(*args, **kwargs)
        if gap:
            with muted(listener):
                tape = replacements.tape
                tape.gap("traced", gap, tape.places.user_place(here(2))[0])
        with off_the_stack(listener):
            return original(*args, **kwargs)

    return aside


def _internals() -> Iterator[tuple[Any, str]]:
    """Where PyTorch's optimizers gather their tensors, and where they compute.

    Neither calls anything of the user's: closures and hooks run around them.
    """
    for name, module in list(sys.modules.items()):
        if not name.startswith("torch.optim."):
            continue
        for attribute, value in list(vars(module).items()):
            if getattr(value, "__module__", None) != name:
                continue
            if isinstance(value, types.FunctionType) and name.endswith("." + attribute):
                yield module, attribute  # torch.optim.adam.adam
            elif isinstance(value, type) and "_init_group" in vars(value):
                yield value, "_init_group"
