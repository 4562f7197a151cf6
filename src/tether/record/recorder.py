"""The recorder: the tape of one recording, and everything that writes to it."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from tether.facts import UNKNOWN, Callers, EventId, Followed, Moment, OnOthers, SiteId, Trace
from tether.record.arrays.calls import ArrayCallLog
from tether.record.arrays.copies import ArrayCopyLog
from tether.record.arrays.mapped_files import MappedFiles
from tether.record.arrays.watch import ArrayWatch
from tether.record.autosave import Autosave
from tether.record.gradients.backward_hooks import BackwardHookLog
from tether.record.gradients.checkpoints import CheckpointLog
from tether.record.gradients.function_states import FunctionPasses, FunctionStates
from tether.record.gradients.given_gradients import GivenGradients
from tether.record.gradients.gradient_memory import GradientMemory
from tether.record.gradients.gradients import CarriedLog, GradientLog
from tether.record.gradients.hooks import HookLog
from tether.record.gradients.nodes import GraphLog
from tether.record.gradients.packing import PackingLog
from tether.record.listener import Functions
from tether.record.names.cached_keys import kept_by_caches
from tether.record.names.holders import HolderLog
from tether.record.names.iterators import IteratorLog
from tether.record.names.keepers import roots_of_the_nameless
from tether.record.names.made_once import MadeOnceLog
from tether.record.names.naming import Naming
from tether.record.names.reassigned import ReassignedLog
from tether.record.names.rings import RingLog
from tether.record.names.shallow_copies import ShallowCopies
from tether.record.objects import variables_of_error
from tether.record.processes.other_processes import SharingLog
from tether.record.tape import Tape
from tether.record.training.movement import AlikeLog, DriftLog, MovementLog
from tether.record.training.resumptions import Resumptions
from tether.record.training.saved_states import SavedStates
from tether.record.values.addressed import AddressLog
from tether.record.values.altered import AlteredLog
from tether.record.values.collisions import CollisionLog
from tether.record.values.kept_again import KeptAgainLog
from tether.record.values.padding import PaddingLog
from tether.record.values.read_back import ReadBackLog
from tether.record.values.refilled import RefilledArrays
from tether.record.values.repeats import ArrayAgainLog, RepeatLog
from tether.record.values.sameness import SameLog
from tether.record.ways import WayLog
from tether.store.columns import HEAD, Events, Names, Operands
from tether.store.lives import StorageLives, TensorLives
from tether.store.numbers import Numbers

_READS = HEAD.index("reads")


def _column(
    operands: Operands, rows: Numbers, firsts: Numbers, counts: Numbers, field: str
) -> tuple[Numbers, Numbers]:
    """Return for some operands of each event which event it is, and a field of the operand.

    Those of event ``i`` are ``counts[i]`` rows, from ``rows[firsts[i]]`` on.
    """
    events = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    at = operands.positions(rows[np.repeat(firsts, counts) + within])
    return events, operands.column(field)[at]


class Recorder:
    """What hears and what remembers, shared by the listeners of all threads.

    `limit` keeps the last so many events; `memory` also meets gradients and optimizers' state.
    """

    def __init__(self, limit: int | None = None, *, memory: bool = False) -> None:
        self.tape = Tape(limit)
        self.functions = Functions(self.tape)
        self.same = SameLog(self.tape)
        self.collisions = CollisionLog()
        self.addressed = AddressLog(self.tape.who)
        self.function_states = FunctionStates()
        self.function_passes = FunctionPasses(self.tape)
        self.packing = PackingLog(self.tape)
        self.given = GivenGradients(self.tape)
        self.padding = PaddingLog()
        self.repeats = RepeatLog()
        self.ways = WayLog(self.tape)
        self.iterators = IteratorLog(self.tape)
        self.arrays_again = ArrayAgainLog(self.tape.arrays)
        self.array_copies = ArrayCopyLog(self.tape)
        self.array_calls = ArrayCallLog(self.tape)
        self.read_back = ReadBackLog()
        self.arrays = ArrayWatch(self.tape, self.same)
        self.mapped_files = MappedFiles(self.tape)
        self.others = SharingLog(self.tape)
        self.checkpoints = CheckpointLog(self.tape)
        self.arrays.on_foreign = self.others.share
        self.gradients = GradientLog(self.tape)
        self.saved_states = SavedStates(self.tape)
        self.resumptions = Resumptions(self.tape)
        self.carried = CarriedLog(self.gradients)
        self.graph = GraphLog(self.tape)
        self.altered = AlteredLog(self.tape)
        made_once = MadeOnceLog(self.tape)
        self.shallow_copies = ShallowCopies(self.tape)
        self.holders = HolderLog(self.tape, made_once, self.shallow_copies)
        self.movement = MovementLog(self.tape)
        self.drift = DriftLog(self.tape)
        self.alike = AlikeLog(self.tape)
        self.kept_again = KeptAgainLog(self.tape, RefilledArrays(self.tape, self.holders))
        self.followed: list[Followed] = []
        self.rings = RingLog(self.tape)
        self.cached: list[object] = []
        self.undone: set[int] = set()  # lines of passes in which gradients undid each other
        self.naming = Naming(self.tape, self.arrays.small, made_once)
        self.reassigned = ReassignedLog(self.tape, self.naming)
        self.hooks = HookLog(self.tape, self.given)
        self.backward_hooks = BackwardHookLog(self.tape, self.naming)
        self.memory = GradientMemory(self.tape, self.gradients) if memory else None
        self.autosave: Autosave | None = None
        self.arrays.on_many = lambda: self.naming.search_now(sys._getframe(1))
        self.tape.log.on_forget = self._forget
        self.tape.log.worth_keeping = self._living

    def save_as_it_grows(self, path: str, program: list[str], folder: str) -> None:
        """Save what is recorded at the absolute `path`, about once a second, from now on."""
        trace = Trace(program, folder, torch.__version__, "unfinished")
        self.autosave = Autosave(self.tape, self.tables, path, trace)
        self.tape.on_beat = self.autosave.beat
        self.tape.log.beat(self.autosave.beat)

    # -- forgetting ----------------------------------------------------------------------------

    def _living(self, heads: Numbers, rows: Numbers) -> Numbers:
        """Return which of some old events to keep: those that living memory hangs on.

        The first that returned each tensor that is alive, and the last that wrote each storage
        that is. What is tied from long ago (a copy of the best weights that was none) acts today.
        """
        counts = heads[:, _READS:]
        ends = np.cumsum(counts.sum(axis=1, dtype=np.int64))
        who = self.tape.who
        operands = Operands(who.operand_table().T, Names())
        firsts = ends - counts[:, 1:].sum(axis=1)
        made, tensors = _column(operands, rows, firsts, counts[:, 1], "tensor")
        alive = np.isin(tensors, np.fromiter(who.living(), np.int64))
        _, first = np.unique(tensors[alive], return_index=True)
        wrote, storages = _column(operands, rows, ends - counts[:, 2], counts[:, 2], "storage")
        there = np.isin(storages, np.fromiter(who.living_storages(), np.int64))
        # The last of each is the first from behind.
        _, last = np.unique(storages[there][::-1], return_index=True)
        chosen: Numbers = np.unique(np.concatenate([made[alive][first], wrote[there][::-1][last]]))
        return chosen

    def _forget(self) -> None:
        """Let go of what hung on events that have just been forgotten."""
        tape = self.tape
        tape.forget()
        _, rows = tape.log.columns()
        tape.who.forget(np.unique(rows), tape.log.dropped, storages=self.memory is None)

    # -- what is looked at as a recording ends ---------------------------------------------------

    def ends(
        self, variables: Iterable[tuple[str, Any]], error: BaseException | None = None
    ) -> None:
        """Look for the last time: at arrays, gradients, values and names."""
        self.arrays.compare_all(UNKNOWN)  # what was written after the last call
        self._look_at_arrays()
        variables = list(variables)
        known = {(name, id(value)) for name, value in variables}
        left = [one for one in variables_of_error(error) if (one[0], id(one[1])) not in known]
        self.naming.search([*variables, *left])
        self.kept_again.look(variables)
        kept = roots_of_the_nameless(self.tape, self.naming, self.rings)
        if kept:
            self.naming.search(kept)
        self.cached += kept_by_caches(self.tape)
        self.gradients.at_end()
        self.movement.at_end(self.gradients.leaves())
        self.alike.at_end(self.gradients.leaves())

    def _look_at_arrays(self) -> None:
        """Say of arrays that live whether they were written: while a program runs they may be."""
        self.tape.arrays.look_at_all()
        for log in (self.same.taken, self.array_copies, self.array_calls):
            log.at_end()

    # -- facts ---------------------------------------------------------------------------------

    def tables(self) -> dict[str, list[object]]:
        """Return the tables of the trace that are lists of facts, but for the sites."""
        tape, memory = self.tape, self.memory
        tape.arrays.look_at_all()
        return {
            "callers": [
                Callers(SiteId(number), tuple(SiteId(one) for one in above))
                for number, above in tape.places.callers.items()
            ],
            "reached": list(self.ways.facts),
            "spans": list(tape.spans),
            "runs_again": list(self.checkpoints.facts),
            "kinds": list(self.graph.facts),
            "walks": list(self.graph.walks),
            "altered": list(self.altered.facts),
            "reassigned": list(self.reassigned.facts),  # says how many names there were
            "names": list(self.naming.facts.values()),
            "plain_flags": list(self.naming.flags.values()),
            "own_backwards": list(self.naming.own_backwards),
            "in_rings": list(self.rings.facts),
            "cache_kept": self.cached,
            "made_once": list(self.naming.made_once.facts.values()),
            "shallow_copies": list(self.shallow_copies.facts),
            "written_through": list(self.shallow_copies.writes),
            "suspended": list(self.naming.suspended.values()),
            "holders": list(self.holders.facts),
            "hooks": list(self.hooks.facts()),
            "backward_hooks": list(self.backward_hooks.facts()),
            "iterators_held": list(self.iterators.facts),
            **self._of_optimizers(),
            "gradients": list(self.gradients.facts),
            "movements": list(self.movement.facts),
            "drifts": list(self.drift.facts),
            "alike": list(self.alike.facts()),
            "followed": list(self.followed),
            "bridges": list(tape.bridges),
            "same": list(self.same.facts),
            "tried": list(self.same.laid_out.facts),
            "collisions": list(self.collisions.facts),
            "addressed_apart": list(self.addressed.facts),
            "function_states": list(self.function_states.facts),
            "kept_by_hooks": list(self.packing.facts),
            "function_passes": list(self.function_passes.facts),
            "given_written": list(self.given.facts),
            "padded": list(self.padding.facts),
            "taken": list(self.same.taken.facts()),
            "arrays_copied": list(self.array_copies.facts()),
            "array_lines": list(self.array_calls.lines()),
            "array_calls": list(self.array_calls.facts()),
            "entered": list(self.same.entered.facts),
            "on_others": [OnOthers(EventId(event)) for event in self.arrays.on_others],
            "read_back": list(self.read_back.facts),
            "unmatched": list(tape.unmatched),
            "repeated": self.repeats.facts(),
            "arrays_again": self.arrays_again.facts(),
            "drawn": list(self.same.drawn.facts()),
            "kept_again": self.kept_again.facts(),
            "rewritten": list(self.arrays.rewritten.facts()),
            "arrays": list(self.arrays.array_facts()),
            "arrays_kept": list(self.arrays.small.facts.values()),
            "unseen": list(self.arrays.facts),
            "mapped_files": list(self.mapped_files.facts()),
            "forks": list(self.others.fork_facts()),
            "inherited": list(self.others.inherited_facts()),
            "shared": list(self.others.shared_facts()),
            "raised": list(tape.raised),
            "gaps": list(tape.gap_facts()),
            "attached": list(memory.facts) if memory is not None else [],
            "allocators": list(memory.allocators()) if memory is not None else [],
        }

    def _of_optimizers(self) -> dict[str, list[object]]:
        """Return the tables of what optimizers hold, and of what sets their rates and modes."""
        tape = self.tape
        return {
            "optimizers": list(tape.optimizers),
            "rates": list(tape.rates),
            "schedules": list(tape.schedules),
            "shared_rates": list(tape.shared_rates),
            "rates_of_others": list(tape.rates_of_others.values()),
            "iterators_taken": list(tape.iterators_taken),
            "given_twice": list(tape.given_twice),
            "rates_put_back": list(tape.rates_put_back),
            "mode_switches": list(tape.mode_switches),
            "states_of_others": list(self.saved_states.facts),
            "states_left": list(self.resumptions.facts),
            "states_given": list(self.resumptions.given),
        }

    def trace(self) -> Trace:
        """Turn the raw record into facts."""
        log, who = self.tape.log, self.tape.who
        who.bury()
        trace = Trace(torch=torch.__version__)
        name = multiprocessing.current_process().name
        process = self.tape.process
        trace.process = process if name == "MainProcess" else process._replace(name=name)
        trace.dropped = Moment(log.dropped)
        trace.kept = [EventId(number) for number in log.kept]
        for name, facts in self.tables().items():
            setattr(trace, name, facts)
        trace.sites = self.tape.places.resolve()
        heads, rows = log.columns()
        names = Names(
            {number: text for text, number in log.strings.items()},
            who.texts(),
            {number: value for value, number in who.tuples.items()},
        )
        operands = Operands(who.operand_table().T, names)
        trace.events = Events(heads.T, operands.positions(rows), operands, names)
        trace.tensors = TensorLives(who.tensor_table(), names)
        trace.storages = StorageLives(who.storage_table(), names)
        return trace
