"""The abstract machine: runs calls by the rulebook's data, over tensors without numbers.

Each call looks its rule up, asks it for the effect on this source, and does what it says: shares
or makes memory, keeps or cuts the gradient, moves a version. What a rule does not hold is where
the elements lie (`layout`) and how nodes are wired (`graph`). Every call leaves an `Event`, as the
recorder would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from predictor import graph
from predictor.graph import Counter, Memory, Node, Refused, Tensor
from predictor.layout import (
    Layout,
    fresh,
    overlaps_itself,
    overlaps_partly,
    preserved,
)
from tether.facts import (
    GRAD_OFF,
    GRAD_ON,
    NAMED,
    ON,
    RAISED,
    RETAIN_GRAPH,
    UNKNOWN,
    Bridge,
    Event,
    Operand,
    Unseen,
)
from tether.operations.rule import Effect, Rule
from tether.operations.rulebook import BY_SLUG

_ONE_PLACE = "unsupported operation: {} of"


class Unknown(Exception):
    """The rulebook cannot say what happens here; the text says why."""


class Array:
    """A NumPy array on a tensor's memory, or on its own."""

    def __init__(self, memory: Memory, layout: Layout, dtype: str, event: int) -> None:
        self.memory, self.layout, self.dtype = memory, layout, dtype
        self.event = event  # that exported it


class Machine:
    """Tensors, storages, versions and graph of one predicted program, and its events."""

    def __init__(self, rules: dict[str, Rule] | None = None) -> None:
        self.rules = BY_SLUG if rules is None else rules
        self.events: list[Event] = []
        self.tensors: list[Tensor] = []
        self.memories: list[Memory] = []
        self.bridges: list[Bridge] = []
        self.unseen: list[Unseen] = []
        self.grad = True
        self.site = 0
        self._exports: dict[int, int] = {}  # storage -> event that lent it out
        self._changed: dict[int, int] = {}  # storage -> events when it was written unheard

    # -- making ----------------------------------------------------------------------------

    def memory(self, layout: Layout, dtype: str, region: int = -1) -> Memory:
        """Make a storage that holds such a tensor."""
        serial = len(self.memories)
        span = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) + 1
        nbytes = (span if layout.numel else 0) * graph.SIZES[dtype]
        self.memories.append(Memory(serial, nbytes, region=region))
        return self.memories[-1]

    def _copied(self, memory: Memory) -> Memory:
        self.memories.append(Memory(len(self.memories), memory.nbytes, memory.device))
        return self.memories[-1]

    def tensor(
        self, layout: Layout, dtype: str, memory: Memory | None = None, version: int = 0
    ) -> Tensor:
        """Make a tensor; in memory of its own unless some is given."""
        memory = memory or self.memory(layout, dtype)
        made = Tensor(len(self.tensors), memory, Counter(version), layout, dtype)
        self.tensors.append(made)
        return made

    def create(self, operation: str, layout: Layout, dtype: str, *, marked: bool = False) -> Tensor:
        """Run a call that makes a tensor of nothing: ``torch.ones``."""
        made = self.tensor(layout, dtype)
        made.marked = marked
        self._event(operation, results=(made,))
        return made

    # -- calls -----------------------------------------------------------------------------

    def effect(self, slug: str, source: Tensor, contiguous: bool | None = None) -> Effect:
        """Return what the rule says of this source. Raises `Refused` where it says so."""
        rule = self.rules[slug]
        asked = source.source
        if contiguous is not None:
            asked = asked._replace(contiguous=contiguous)
        effect = rule.effect(asked)
        if effect is None:
            raise Unknown(f"the rule {slug} has no case for {source.source}")
        if effect.raises:
            kind, _, text = effect.raises.partition(": ")
            raise Refused(kind, text)
        return effect

    def derive(
        self,
        operation: str,
        slug: str,
        source: Tensor,
        layout: Layout | None = None,
        *,
        others: Sequence[Tensor] = (),
        dtype: str = "",
        contiguous: bool | None = None,
        whole: bool = False,
    ) -> Tensor:
        """Run a call that returns a tensor made from `source`.

        `layout` is where the result lies: in the source's storage for a view. `contiguous`
        answers the rule's question where it depends on more than the source: a reshape asks
        whether the strides allow it. `whole` copies the storage, and not just the elements.
        """
        return self.derive_all(
            operation,
            slug,
            source,
            (layout,),
            others=others,
            dtype=dtype,
            contiguous=contiguous,
            whole=whole,
        )[0]

    def derive_all(
        self,
        operation: str,
        slug: str,
        source: Tensor,
        layouts: Sequence[Layout | None],
        *,
        others: Sequence[Tensor] = (),
        dtype: str = "",
        contiguous: bool | None = None,
        multi: bool = False,
        whole: bool = False,
    ) -> tuple[Tensor, ...]:
        """Run a call with several results; `multi` when they are views that refuse writes."""

        def run() -> tuple[Tensor, ...]:
            if whole:
                source.gradient_node()  # asked for first: some views refuse to say
            try:
                effect = self.effect(slug, source, contiguous)
            except Refused:
                if self.grad and self._keeps(slug):  # autograd looks at the operands first
                    graph.edges((source, *others))
                raise
            if effect.memory == "same":
                return (source,)
            type_ = effect.dtype or dtype or source.dtype
            made = []
            for one in layouts:
                wanted = source.layout if whole else self._layout(effect, source, one)
                memory = self._copied(source.memory) if whole else None
                made.append(
                    self._result(
                        effect=effect,
                        source=source,
                        layout=wanted,
                        dtype=type_,
                        others=others,
                        multi=multi,
                        memory=memory,
                    )
                )
            return tuple(made)

        return self._call(operation, (source, *others), run)

    def write(
        self,
        operation: str,
        slug: str,
        target: Tensor,
        others: Sequence[Tensor] = (),
        *,
        part: Layout | None = None,
        returns: bool = True,
        idempotent: bool = False,
    ) -> Tensor:
        """Run a call that writes `target` in place, or the `part` of it.

        A call that is not `idempotent` (as filling is) refuses to write one place twice.
        """

        def run() -> tuple[Tensor, ...]:
            if self.grad:
                written = target if part is None else self._window(target, part)
                graph.check_write(written, [*others])
                graph.edges([written, *others])  # which asks views whether they may follow
                effect = self.effect(slug, target)
            else:
                effect = self.rules[slug].cases[-1].effect  # without grad mode nothing is refused
            if not idempotent and overlaps_itself(target.layout if part is None else part):
                raise Refused("RuntimeError", _ONE_PLACE.format("more than one element"))
            for other in others:
                if other.memory is target.memory and overlaps_partly(
                    target.layout if part is None else part, other.layout
                ):
                    raise Refused("RuntimeError", _ONE_PLACE.format("some elements"))
            self._record_write(effect, target, others, part)
            return (target,)

        self._call(operation, (target, *others), run, returns=returns, part=part)
        return target

    def mark(self, target: Tensor, *, on: bool, operation: str = "requires_grad_") -> Tensor:
        """Run ``requires_grad_``."""

        def run() -> tuple[Tensor, ...]:
            if on and not target.differentiable:
                raise Refused("RuntimeError", "only Tensors of floating point")
            self.effect("requires_grad_" if on else "requires_grad_:off", target)
            if target.node is None:
                target.marked = on
            return (target,)

        self._call(operation, (target,), run, flags=ON if on else 0)
        return target

    def detach_(self, target: Tensor) -> Tensor:
        """Run ``detach_``."""

        def run() -> tuple[Tensor, ...]:
            self.effect("detach_", target)
            if target.base is not None:
                raise Refused("RuntimeError", "Can't detach views in-place.")
            target.node, target.marked = None, False
            return (target,)

        self._call("detach_", (target,), run)
        return target

    def set_data(self, target: Tensor, other: Tensor) -> None:
        """Run ``target.data = other``."""

        def run() -> tuple[Tensor, ...]:
            effect = self.effect("data.__set__", target)
            if effect.memory == "moved":
                target.memory, target.layout = other.memory, other.layout
            return ()

        self._call("data.__set__", (target, other), run)

    def parameter(self, source: Tensor, *, on: bool = True) -> Tensor:
        """Run ``torch.nn.Parameter(source, requires_grad=on)``."""
        made = self.derive("Parameter", "Parameter" if on else "Parameter:frozen", source)
        made.kind = "Parameter"
        return made

    def backward(self, root: Tensor, *, retain: bool = False) -> None:
        """Run ``root.backward()``."""

        def run() -> tuple[Tensor, ...]:
            graph.backward(root, retain=retain)
            return ()

        self._notice(list(self._changed))  # no argument tells what a backward pass reads
        self._call("backward", (root,), run, flags=RETAIN_GRAPH if retain else 0, losses=1)

    def leave(self, operation: str, slug: str, source: Tensor) -> Array | None:
        """Run a call whose result is no tensor: an `Array`, or None for Python numbers."""
        array: list[Array] = []

        def run() -> tuple[Tensor, ...]:
            effect = self.effect(slug, source)
            if effect.memory == "bridge":
                self._region(source.memory)
                self._exports[source.memory.serial] = len(self.events)
                array.append(Array(source.memory, source.layout, source.dtype, len(self.events)))
            elif effect.memory == "own":
                layout = preserved(source.layout)
                array.append(Array(Memory(-1, 0), layout, source.dtype, len(self.events)))
            return ()

        self._call(operation, (source,), run)
        return array[0] if array else None

    def enter(self, operation: str, slug: str, array: Array) -> Tensor:
        """Run a call that makes a tensor on an array's memory, as the rule says."""
        effect = self.rules[slug].cases[-1].effect
        if effect.memory != "bridge":
            raise Unknown(f"the rule {slug} makes no tensor on the array's memory")
        layout = array.layout._replace(offset=0)  # the new storage begins at the array
        region = self._region(array.memory)
        made = self.tensor(layout, array.dtype, self.memory(layout, array.dtype, region))
        self.bridges.append(Bridge(array.event, len(self.events), True, "the NumPy array"))
        self._event(operation, results=(made,))
        return made

    def write_array(self, array: Array) -> None:
        """Write through an array: no event, and every storage on those bytes changes."""
        self._touch(array.memory.region, None)

    def grad_mode(self, *, on: bool) -> None:
        """Switch grad mode."""
        if self.grad != on:
            self.grad = on
        self._event("set_grad_enabled", flags=ON if on else 0)

    # -- one call --------------------------------------------------------------------------

    def _call(
        self,
        operation: str,
        reads: Sequence[Tensor],
        run: Callable[[], tuple[Tensor, ...]],
        *,
        flags: int = 0,
        losses: int = 0,
        returns: bool = True,
        part: Layout | None = None,
    ) -> tuple[Tensor, ...]:
        """Note the operands, run the call, note what came of it: it may write a part of the first."""
        self._notice([tensor.memory.serial for tensor in reads])
        before = tuple(map(operand, reads))
        versions = [tensor.counter.value for tensor in reads]
        try:
            results = run()
        except Refused:
            self._append(operation, before, (), (), RAISED | flags, losses)
            raise
        written = [t for t, v in zip(reads, versions, strict=True) if t.counter.value != v]
        for tensor in written:
            self._touch(tensor.memory.region, tensor.memory)
        shown = tuple(map(operand, results)) if returns else ()
        writes = [operand(one, part if one is reads[0] else None) for one in written]
        if operation == "__setitem__":  # here all indexes are numbers and slices
            flags |= NAMED
        self._append(operation, before, shown, tuple(writes), flags, losses)
        return results

    def _keeps(self, slug: str) -> bool:
        """Whether the call, where it returns, is in the graph."""
        effects = [case.effect for case in self.rules[slug].cases]
        return any(one.gradient == "keep" and not one.raises for one in effects)

    def _region(self, memory: Memory) -> int:
        if memory.region < 0:
            memory.region = memory.serial
        return memory.region

    def _touch(self, region: int, heard: Memory | None) -> None:
        """Note that storages of a region changed; the one that the write was heard on did not."""
        for memory in self.memories:
            if region >= 0 and memory.region == region and memory is not heard:
                self._changed.setdefault(memory.serial, len(self.events))

    def _notice(self, storages: Sequence[int]) -> None:
        """Note the unheard writes to storages that are about to be read."""
        for serial in storages:
            since = self._changed.pop(serial, None)
            if since is not None:
                export = self._exports.get(serial, UNKNOWN)
                now = len(self.events)
                self.unseen.append(Unseen(serial, since, now, export, self.site))

    def unheard(self) -> list[Unseen]:
        """Return the unheard writes, those included that nothing has read yet."""
        now = len(self.events)
        return self.unseen + [
            Unseen(serial, since, now, self._exports.get(serial, UNKNOWN), UNKNOWN)
            for serial, since in self._changed.items()
        ]

    def _event(self, operation: str, *, results: Sequence[Tensor] = (), flags: int = 0) -> None:
        self._append(operation, (), tuple(map(operand, results)), (), flags)

    def _append(
        self,
        operation: str,
        reads: tuple[Operand, ...],
        results: tuple[Operand, ...],
        writes: tuple[Operand, ...],
        flags: int,
        losses: int = 0,
    ) -> None:
        mode = GRAD_ON if self.grad else GRAD_OFF
        self.events.append(
            Event(
                operation,
                self.site,
                reads,
                results,
                writes,
                mode,
                flags=flags,
                inner=self.site,
                losses=losses,
            )
        )

    def _layout(self, effect: Effect, source: Tensor, layout: Layout | None) -> Layout:
        if effect.memory == "share":
            return source.layout if layout is None else layout
        wanted = source.layout if layout is None else layout
        return preserved(wanted) if effect.layout == "source" else fresh(wanted.shape)

    def _result(
        self,
        *,
        effect: Effect,
        source: Tensor,
        layout: Layout,
        dtype: str,
        others: Sequence[Tensor],
        multi: bool,
        memory: Memory | None,
    ) -> Tensor:
        shares = effect.memory == "share"
        made = self.tensor(layout, dtype, source.memory if shares else memory, effect.starts)
        if effect.version == "shared":
            made.counter = source.counter
        made.seen = made.counter.value
        made.reached = effect.grad == "copied" and source.reached
        if shares and effect.gradient == "keep":
            self._make_view(made, source, multi=multi)
        if effect.gradient == "cut":
            made.marked = effect.result_requires_grad(source.source)
        elif self.grad and made.differentiable:
            inputs = [one for one in (source, *others) if one.requires_grad]
            if inputs:
                made.node = Node(graph.edges(inputs))
                self._save(effect, made, source, others)
        return made

    def _make_view(self, made: Tensor, source: Tensor, *, multi: bool) -> None:
        made.base = source.base or source
        if not self.grad:
            made.created = "no_grad"
        elif multi:
            made.created = "multi"
        else:
            made.created = source.created if source.base is not None else ""

    def _save(self, effect: Effect, made: Tensor, source: Tensor, others: Sequence[Tensor]) -> None:
        node = made.node
        assert node is not None
        if "result" in effect.saves:
            node.save(made, result=True)
        node.keeps = node.keeps or ("own" in effect.saves and bool(node.edges))
        if "x" in effect.saves:
            node.save(source)
        if "other" in effect.saves:  # a product: each side's gradient needs the other side
            for one, other in ((source, others[0]), (others[0], source)):
                if graph.edges([one]):
                    node.save(other)

    def _record_write(
        self,
        effect: Effect,
        target: Tensor,
        others: Sequence[Tensor],
        part: Layout | None,
    ) -> None:
        """Move the version, and wire the node of a write."""
        node = None
        if self.grad and any(one.requires_grad for one in (target, *others)):
            written = target.base or target
            node = Node(
                graph.edges((written, *others)), keeps=part is not None or "own" in effect.saves
            )
            if "other" in effect.saves:
                node.keeps = True  # of the target, if need be, a copy is saved
                if graph.edges([target]):
                    node.save(others[0])
        if effect.writes == "seen":
            target.counter.value += 1
        if node is None:
            return
        if "result" in effect.saves:
            node.save(target, result=True)
        graph.rebase(target, node)

    def _window(self, target: Tensor, part: Layout) -> Tensor:
        """Return the view that an indexed write goes to."""
        window = Tensor(-1, target.memory, target.counter, part, target.dtype)
        window.base = target.base or target
        window.created = target.created
        window.seen = target.counter.value
        if target.requires_grad:
            window.node = Node(graph.edges([target]))
        return window


def operand(tensor: Tensor, part: Layout | None = None) -> Operand:
    """Return a tensor, or a part of it, as it is now, as the recorder notes it."""
    layout = tensor.layout if part is None else part
    requires_grad = tensor.requires_grad
    return Operand(
        tensor.serial,
        tensor.memory.serial,
        tensor.counter.value,
        layout.offset,
        layout.shape,
        layout.strides,
        tensor.dtype,
        requires_grad,
        tensor.leaf,
    )
