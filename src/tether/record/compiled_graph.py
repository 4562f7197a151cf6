"""What happens inside compiled regions, told from the graphs that dynamo made.

Dynamo hands each graph that it has traced to a backend, with a fake tensor beside each call: its
shape, whether it requires grad, whose memory it shares; and the line that the call came from. The
graph is read once, as it is compiled. When what the backend made of it runs, its calls are
appended as events, between the real tensors that go in and come out; the tensors in between stand
in for memory that a backend may never take, so they have no bytes. Nothing is traced again.
"""

from __future__ import annotations

import functools
import linecache
import operator
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from tether.facts import GRAD_OFF, GRAD_ON, ON, UNKNOWN, Site
from tether.record.mode_stack import muted
from tether.record.sites import is_user_file

if TYPE_CHECKING:
    from tether.record.functions import Function
    from tether.record.identity import Snapshot
    from tether.record.listener import Functions, Listener
    from tether.record.sites import Places
    from tether.record.tape import Tape

ALWAYS = 8
"""Runs of a graph that are told call by call; from then on each of which the number doubles."""

_FRAME = re.compile(r'  File "(.*)", line (\d+), in (.*)\n    (.*)\n(?:    ( *)([~^]+))?')


class _Shown(NamedTuple):
    """A tensor of a graph, as the fake one beside it shows it; known by its number in the graph."""

    number: int
    memory: int  # number of the memory that it shows
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool
    leaf: bool


class _GraphCall(NamedTuple):
    """One call of a graph."""

    operation: int  # number of its name in the log
    place: tuple[int, int]
    mode: int
    flags: int
    reads: tuple[_Shown, ...]
    results: tuple[_Shown, ...]
    writes: tuple[_Shown, ...]


class TracedGraph:
    """A graph that dynamo made: its calls, and which fake tensors go in and come out."""

    def __init__(self, graph: torch.fx.Graph, functions: Functions, tape: Tape) -> None:
        self.runs = 0
        self._numbers: dict[int, int] = {}  # id of a fake tensor -> its number
        self._memories: dict[int, int] = {}  # id of a fake storage -> its number
        self._kept: list[Any] = []  # what the ids are of, as long as the graph is read
        self._grad = torch.is_grad_enabled()
        self.inputs: list[_Shown | None] = []
        self.outputs: list[_Shown | None] = []
        self.steps: list[_GraphCall] = []
        nodes = list(graph.nodes)
        self._places = _traces(nodes)
        for node in nodes:
            if node.op == "placeholder":
                self.inputs.append(next(iter(self._of(node)), None))
            elif node.op == "output":
                given = node.args[0] if isinstance(node.args[0], (tuple, list)) else node.args[:1]
                self.outputs += [next(iter(self._of(one)), None) for one in given]
            elif node.op in ("call_function", "call_method") and not self._chooses(node):
                self._step(node, functions, tape)
        self._kept.clear()
        self._places.clear()

    def due(self) -> bool:
        """Count a run; whether it is to be told call by call."""
        self.runs += 1
        return self.runs <= ALWAYS or self.runs & (self.runs - 1) == 0

    # -- reading the graph -----------------------------------------------------------------------

    def _step(self, node: torch.fx.Node, functions: Functions, tape: Tape) -> None:
        what = _function(node, functions)
        if what.silent and not what.switches:
            return
        flags = 0
        if what.switches and node.args and isinstance(node.args[0], bool):
            self._grad = node.args[0]
            flags = ON if self._grad else 0
        reads = tuple(one for given in node.all_input_nodes for one in self._of(given, deep=True))
        self.steps.append(
            _GraphCall(
                what.number,
                _place(self._places[node], tape.places, whole=what.switches),
                GRAD_ON if self._grad else GRAD_OFF,
                flags,
                reads,
                self._of(node, deep=True),
                reads[:1] if what.writes else (),
            )
        )

    def _chooses(self, node: torch.fx.Node) -> bool:
        """Whether a node takes one of several results, which is no call of PyTorch's."""
        return node.target is operator.getitem and not self._of(node.args[0])

    def _of(self, node: Any, *, deep: bool = False) -> tuple[_Shown, ...]:
        """Return the tensor that a node gives; with `deep`, also those of several results."""
        value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
        values = value if deep and isinstance(value, (tuple, list)) else (value,)
        return tuple(self._shown(one) for one in values if isinstance(one, torch.Tensor))

    def _shown(self, fake: torch.Tensor) -> _Shown:
        storage = fake.untyped_storage()
        self._kept += (fake, storage)
        number = self._numbers.setdefault(id(fake), len(self._numbers))
        memory = self._memories.setdefault(id(storage), len(self._memories))
        sizes, strides = (
            tuple(_number(one) for one in some) for some in (fake.shape, fake.stride())
        )
        # What requires grad inside a graph was computed: what goes in is seen as it really is.
        offset, tracked = _number(fake.storage_offset()), bool(fake.requires_grad)
        return _Shown(number, memory, offset, sizes, strides, fake.dtype, tracked, leaf=not tracked)


def _function(node: torch.fx.Node, functions: Functions) -> Function:
    """Return what the recorder knows of the function that a node calls."""
    target = node.target
    if node.op == "call_method":
        target = getattr(torch.Tensor, str(target), target)
    return functions.known.get(target) or functions.learn(target)


def _traces(nodes: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, str]:
    """Return where each node comes from: a switch of gradients, from where they are off.

    Dynamo keeps no traceback beside a switch; the next call of the graph has one.
    """
    found: dict[torch.fx.Node, str] = {}
    last = ""
    for node in reversed(nodes):
        last = found[node] = node.meta.get("stack_trace") or last
    return found


def _number(size: Any) -> int:
    """Return a size that may be a symbol: the one that it was traced with."""
    return size if isinstance(size, int) else int(getattr(size.node, "hint", None) or 0)


def _place(text: str, places: Places, *, whole: bool) -> tuple[int, int]:
    """Return the user's line and the innermost one of a traceback as dynamo keeps it.

    `whole`: the lines as such, and no part of them.
    """
    found = list(_sites(text, whole=whole))
    if not found:
        return UNKNOWN, UNKNOWN
    inner = places.add_site(found[-1])
    user = next((places.add_site(one) for one in reversed(found) if one.user), inner)
    return user, inner


def _sites(text: str, *, whole: bool) -> Iterator[Site]:
    for file, line, function, source, before, marks in _FRAME.findall(text):
        first = last = 0
        if marks and not whole:  # under the part of the line that made the call
            text_of_line = linecache.getline(file, int(line))
            first = text_of_line.find(source) + len(before) + 1
            last = first + len(marks)
        yield Site(file, int(line), first, int(line), last, function, 0, is_user_file(file))


# -- running ---------------------------------------------------------------------------------------


class _Telling:
    """One run of a graph that is being told."""

    def __init__(self, listener: Listener, graph: TracedGraph, given: Sequence[Any]) -> None:
        self._listener, self._graph = listener, graph
        self._who = listener.who
        self._rows: dict[int, int] = {}  # number of a tensor of the graph -> its row
        self._memories: dict[int, int] = {}  # number of a memory of the graph -> its storage
        self._made: list[int] = []
        self._given = [
            (shown, one)
            for shown, one in zip(graph.inputs, given, strict=False)
            if shown is not None and isinstance(one, torch.Tensor)
        ]
        for shown, one in self._given:
            self._stands_for(shown, self._who.snapshot(one))

    def _stands_for(self, shown: _Shown, seen: Snapshot) -> None:
        self._rows[shown.number] = seen[5]
        self._memories.setdefault(shown.memory, seen[1])

    def ran(self, made: Sequence[Any]) -> set[int]:
        """Append the events; return the numbers of the tensors that are told of as results."""
        told = set[int]()
        for shown, one in zip(self._graph.outputs, made, strict=False):
            if shown is not None and isinstance(one, torch.Tensor):
                seen = self._who.snapshot(one)
                self._stands_for(shown, seen)
                told.add(seen[0])
        now = {shown.number: self._who.snapshot(one)[5] for shown, one in self._given}
        born = self._listener.tape.now()
        for step in self._graph.steps:
            reads = [self._row(one) for one in step.reads]
            self._rows |= {one.number: now[one.number] for one in step.writes if one.number in now}
            results, writes = ([self._row(one) for one in some] for some in step[-2:])
            self._listener.tape.log.add(
                (
                    step.operation, step.place[0], step.mode, self._listener.span, step.place[1],
                    self._listener.thread, step.flags, 0, 0, UNKNOWN, 0, len(reads), len(results),
                    len(writes),
                ),
                (*reads, *results, *writes),
            )  # fmt: skip
        self._who.stood_in(self._made, born)
        return told

    def _row(self, shown: _Shown) -> int:
        row = self._rows.get(shown.number)
        if row is None:
            memory = self._memories.get(shown.memory)
            if memory is None:
                memory = self._memories[shown.memory] = self._who.stand_in_memory()
            serial, row = self._who.stand_in(memory, *shown[2:])
            self._made.append(serial)
            self._rows[shown.number] = row
        return row


class Region(Protocol):
    """A compiled region that is running."""

    listener: Listener
    known: bool  # whether a graph that runs in it was read
    told: set[int]  # numbers of the results of graphs whose calls were told
    made: Sequence[Any]  # what the last of its graphs gave


class RegionGraphs:
    """Reads the graphs that dynamo makes while recording, and tells of their runs.

    `here` returns the compiled region that runs in this thread.
    """

    def __init__(self, tape: Tape, functions: Functions, here: Callable[[], Region | None]) -> None:
        self._tape = tape
        self._functions = functions
        self._here = here

    def watching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the place of the method by which dynamo calls a backend."""

        @functools.wraps(original)
        def call_user_compiler(self_: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
            graph = None
            try:
                if self._tape.active:
                    graph = TracedGraph(module.graph, self._functions, self._tape)
            except Exception as error:  # noqa: BLE001 -- it stays one call
                self._tape.failed("the graph of a compiled region", error)
            compiled = original(self_, module, *args, **kwargs)
            # What is kept in a package, or was made as an object, is asked for its class.
            plain = isinstance(compiled, (types.FunctionType, types.MethodType))
            if graph is None or not plain or getattr(self_, "package", None) is not None:
                return compiled
            return self._telling(compiled, graph)

        return call_user_compiler

    def _telling(self, compiled: Callable[..., Any], graph: TracedGraph) -> Callable[..., Any]:
        @functools.wraps(compiled)
        def run(*args: Any) -> Any:
            region = self._here() if self._tape.active else None
            if region is None:
                return compiled(*args)
            region.known = True
            telling = None
            if graph.due():
                with muted(region.listener):
                    telling = _Telling(region.listener, graph, args)
            result = compiled(*args)
            region.made = made = result if isinstance(result, (tuple, list)) else (result,)
            if telling is not None:
                with muted(region.listener):
                    region.told |= telling.ran(made)
            return result

        return run
