"""What kind of cut a call is, in words: what it did to the gradient, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, shortened
from tether.analysis.libraries import hands_out_state, made_by
from tether.analysis.surroundings import WaysThere, at_line
from tether.analysis.training.frozen import taken_off
from tether.facts import GRAD_ON, INFERENCE, UNKNOWN, Event, Operand, Site, SiteId
from tether.finding import At, CallOf, Code, Sentence, Step, Tensor, Where, named, say, typed
from tether.operations.table import operation
from tether.source.calls import with_method
from tether.source.reading import outcomes_of
from tether.source.syntax import source_of


class Cut(NamedTuple):
    """A call that cut the gradient: where to point, and what to say."""

    at: int  # position of the call
    site: Where
    operation: str
    what: Sentence  # completes "...is cut: "
    fix: Sentence  # what to do, without a full stop
    story: tuple[Step, ...]


class _Call(NamedTuple):
    """The call that is asked about."""

    history: History
    at: int
    event: Event

    @property
    def inner(self) -> Site:
        """The innermost line: that of the library, where one made the call."""
        return self.history.site(self.event.inner)

    def said(self, text: str, **parts: Any) -> Sentence:
        """Make a sentence; ``{code}`` is the text of the call, ``{here}`` its line."""
        return say(text, **{"code": Code(self.event.site), "here": At(self.event.site)} | parts)

    def gives(self, what: str, fix: str, fact: str, **parts: Any) -> Cut:
        """Return the cut by what a call gives: in a library the line of the user gives another."""
        if self.inner.user:
            return self.cut(what, fix, fact, **parts)
        site = self.event.site
        made = say("{call} inside {text}", call=CallOf(self.at), text=Code(site))
        found = self.cut(what, fix, fact, code=made, **parts)
        inside = Step("inside", self.event.inner, say("it is called here"))
        return found._replace(story=(*found.story, inside))

    def cut(self, what: str, fix: str, fact: str = "", name: str = "", **parts: Any) -> Cut:
        """Return the cut; `fact` is what happened at its line, where that is not `what`."""
        site, said = self.event.site, self.said(fact or what, **parts)
        return Cut(
            self.at, site, name or self.event.operation, self.said(what, **parts),
            self.said(fix, **parts), (Step("cut", site, said),),
        )  # fmt: skip


def described(history: History, position: int) -> Cut:
    """Put a cut into words, from what the facts say of the call."""
    call = _Call(history, position, history.events[position])
    for kind in _KINDS:
        found = kind(call)
        if found is not None:
            return found
    return call.cut(
        "the result of {code} has no gradient path to its input",
        "Replace {code} by a differentiable operation",
        "{code} returns a tensor that does not require grad",
    )


def _detached(call: _Call) -> Cut | None:
    if call.event.operation not in ("detach", "detach_"):
        return None
    if hands_out_state(call.history, call.event):
        return call.cut(
            "{code} returns detached tensors",
            "Take the parameters themselves: `dict(module.named_parameters())`, or"
            " `module.state_dict(keep_vars=True)`",
            "state_dict() hands out each parameter detached from the graph",
            name="state_dict",
        )
    if not call.inner.user:
        return call.cut(
            "{code} detaches inside the library ({function})",
            "Where gradients are to flow, use another call than {code} at {here}: {function}"
            " detaches what it is given",
            "{function} calls detach()",
            function=call.inner.function,
        )
    taken = taken_off(call.event)
    if taken is not None:
        return call.cut(
            "{code} takes {x} itself off the graph, for all that uses {x} afterwards",
            "Use detach() at {here}, which leaves {x} as it is",
            "{x} itself requires no grad from here on",
            x=Tensor(taken.tensor),
        )
    return call.cut(
        "{code} shares the values but not the graph",
        "Drop the detach at {here} if gradients are to flow through it",
        "detach() returns a tensor outside the graph",
    )


def _data(call: _Call) -> Cut | None:
    if call.event.operation == "data.__set__":
        return call.cut(
            "assigning .data takes over the values and not the graph",
            "Use the computed tensor itself instead of assigning it to .data at {here}",
            "assigning .data replaces the values; the graph of the right-hand side is dropped",
            name=".data =",
        )
    if call.event.operation != "data.__get__":
        return None
    if not call.inner.user:
        return call.cut(
            "{code} takes the values without the graph ({function})",
            "Use the tensor itself where gradients are to flow, at {here}",
            "the library reads .data, which is outside the graph",
            name="data",
            function=call.inner.function,
        )
    return call.cut(
        "{code} is outside the graph",
        "Drop .data at {here}",
        ".data returns the values without the graph",
        name=".data",
    )


def _derivative(call: _Call) -> Cut | None:
    if call.event.operation != "autograd.grad":
        return None
    return call.cut(
        "{code} returns gradients that are outside the graph",
        "Pass create_graph=True at {here} where a gradient is to flow through a gradient",
        "without create_graph=True the result does not require grad",
    )


def _function(call: _Call) -> Cut | None:
    if call.event.operation != "apply":
        return None
    if any(operand.requires_grad for operand in call.event.reads):
        what = "{function}.backward returns no gradient for it"
        fix = "Return its gradient from {function}.backward (not None), at the input's position"
    else:
        what = (
            "{function}.forward uses it, but it is not among the tensors given to {function}.apply,"
            " and none of those requires grad"
        )
        fix = "Pass it to {function}.apply as a tensor argument and return its gradient"
    name = call.event.detail
    found = call.cut(what, fix, name=f"{name}.apply", function=name)
    return found._replace(story=(*found.story, *_kept(call, name), *_used_inside(call)))


def _kept(call: _Call, name: str) -> Iterator[Step]:
    """Yield the lines at which a custom backward decides what it returns."""
    texts, site = call.history.trace.sources, call.history.site_of(call.event)
    said = say("{function}.backward decides here what it returns", function=name)
    for file in dict.fromkeys([site.file, *texts]):
        for line in outcomes_of(source_of(file, texts.get(file, "")), name, "backward"):
            yield Step("kept", at_line(site._replace(file=file), line), said)


def _used_inside(call: _Call) -> Iterator[Step]:
    """Yield the first line of a custom forward that uses what requires grad."""
    history = call.history
    for span in history.trace.spans:
        if span.kind == "function" and history.position(span.event) == call.at:
            for event in history.events[max(0, history.position(span.first)) : call.at]:
                if any(operand.requires_grad for operand in event.reads):
                    said = say("used inside {function}.forward", function=call.event.detail)
                    yield Step("used", event.site, said)
                    return


def _exported(call: _Call) -> Cut | None:
    known = operation(call.event.operation)
    if not known.exports:
        return None
    what = "{code} turns the tensor into a Python number"
    fix = "Keep the tensor: do without {how} at {here}"
    if known.leaves in ("array", "capsule"):
        what = "{code} hands the values {through}, which keeps no graph"
        fix = "Compute with torch functions instead of NumPy from {here} on"
    found = call.cut(
        what,
        fix,
        "the values leave the graph here",
        how=known.shown or f".{known.name}()",
        through="to NumPy" if known.leaves == "array" else "on through DLPack",
    )
    return found._replace(story=(*found.story, *_re_entry(call)))


def _re_entry(call: _Call) -> Iterator[Step]:
    history = call.history
    for bridge in history.trace.bridges:
        if history.position(bridge.exit) == call.at:
            said = say(
                "{sure}they come back as a new leaf{through}",
                sure="" if bridge.certain else "likely ",
                through=f", through {bridge.via}" if bridge.via else "",
            )
            yield Step("re-entry", history.events[history.position(bridge.entry)].site, said)
            return


def _rebuilt(call: _Call) -> Cut | None:
    if not operation(call.event.operation).rebuilds:
        return None
    fix = "Use the computed tensor itself at {here}"
    if len(call.event.reads) != 1:  # made of numbers, or of several tensors
        fix = "Use torch.stack or torch.cat on the tensors themselves at {here}"
    return call.cut("{code} makes a new leaf of the values", fix)


def _mode(call: _Call) -> Cut | None:
    history, event = call.history, call.event
    if event.grad_mode == GRAD_ON:
        return None
    switch = history.switch_in_force(call.at)
    if switch == UNKNOWN:
        return call.cut(
            "{code} ran while gradients were switched off",
            "Switch gradients on around it (torch.enable_grad())",
            "gradients were off before the recording began",
        )
    where, inference = history.events[switch].site, history.events[switch].flags & INFERENCE
    if event.site == where or not history.site(where).user:
        return _switched_inside(call)
    fix = "Move {code} out of the block that begins at {there}"
    if "set_grad_enabled" in history.site(where).expression:
        fix = (
            "Use `with torch.no_grad():` at {there}, which ends with its block; a plain call stays"
            " in force"
        )
    elif _has_left(history, call.at, where):
        fix = (
            "Let the block that begins at {there} end before {function} gives control back (a"
            " generator does, where it yields), or run {code} when that block has ended"
        )
    mode = "inference mode" if inference else "gradients switched off"
    found = call.cut(
        "{code} ran with {mode} by {switch}",
        fix,
        "{code} builds no graph",
        name="inference_mode" if inference else "no_grad",
        mode=mode,
        switch=Code(where),
        there=At(where),
        function=named(history.site(where).function),
    )
    said = say("gradients are off from here: {switch}", switch=Code(where))
    return found._replace(site=where, story=(Step("mode", where, said), *found.story))


def _has_left(history: History, at: int, switch: SiteId) -> bool:
    """Whether a call was made by none of what the function of a switch calls, nor by itself."""
    ways = history.get(WaysThere)
    around = [history.site(one) for one in (history.events[at].site, *ways.above(at))]
    whole = around[-1].function == "<module>" and bool(history.site(switch).expression)
    return whole and history.site(switch).scope not in {one.scope for one in around}


def _switched_inside(call: _Call) -> Cut:
    """Return the cut by a library's call that switches gradients off for itself."""
    fix, parts = _drawn_with_a_graph(call) or (
        "Use a call that keeps the graph; {code} at {here} gives values only",
        {},
    )
    found = call.cut(
        "{code} runs without gradients, which the library switches off inside it",
        fix,
        "{code} builds no graph",
        **parts,
    )
    if call.event.inner == call.event.site:
        return found
    inside = Step("inside", call.event.inner, say("it does so here, where gradients are off"))
    return found._replace(story=(*found.story, inside))


def _drawn_with_a_graph(call: _Call) -> tuple[str, dict[str, Any]] | None:
    """Return how to draw so that gradients flow, where a distribution of PyTorch's drew."""
    if not made_by(call.history, call.event, "torch.distributions"):
        return None
    written = call.history.site_of(call.event).expression
    drawn = with_method(written, "sample", "rsample")
    how = "with `rsample` in place of `sample` at {here}"
    if drawn and shortened(drawn) == drawn:
        how = "with {drawn} at {here}"
    fix = (
        f"Draw {how}, through which gradients reach the distribution's parameters, if the"
        " distribution has `rsample`; if it has none, weigh its `log_prob`"
    )
    return fix, {"drawn": typed(drawn)}


def _by_dtype(call: _Call) -> Cut | None:
    """Return the cut by a result of whole numbers; it belongs where that dtype was chosen."""
    history, event = call.history, call.event
    outputs = (*event.writes, *event.results)
    whole = [one for one in outputs if one.whole]
    if not whole or any(one.requires_grad for one in outputs) or operation(event.operation).selects:
        return None
    dtype = whole[0].dtype
    fact = "the values become {dtype}, which has no gradient"
    if not event.writes:
        fix = "Keep a floating-point dtype at {here}"
        return call.gives("{code} gives {dtype}", fix, fact, dtype=dtype)
    maker = _maker_of_memory(history, event.writes[0])
    if maker == UNKNOWN:
        what = "{code} writes into a tensor of dtype {dtype}"
        return call.cut(what, "Keep a floating-point dtype at {here}", fact, dtype=dtype)
    found = call.cut(
        "{code} writes into a tensor of dtype {dtype}, made at {made}",
        "Make it with a floating-point dtype at {made}",
        fact,
        dtype=dtype,
        made=At(maker),
    )
    made = Step("made", maker, say("this {dtype} tensor is made here", dtype=dtype))
    return found._replace(site=maker, story=(made, *found.story))


def _maker_of_memory(history: History, operand: Operand) -> int:
    """Return the line of the call that made the memory behind an operand: not of a view on it."""
    for at in history.on_storage(operand):
        event = history.events[at]
        if any(one.storage == operand.storage for one in event.results) and not any(
            one.storage == operand.storage for one in event.reads
        ):
            return event.site
    made = history.made_at(operand.tensor)
    return history.events[made].site if made >= 0 else UNKNOWN


def _selection(call: _Call) -> Cut | None:
    selects = operation(call.event.operation).selects
    if selects == "comparison":
        return call.gives(
            "{code} is a comparison, which has no gradient",
            "Use a smooth stand-in for the comparison (a sigmoid of the difference)",
            "the result is true or false",
        )
    if selects == "index":
        return call.gives(
            "{code} gives indices, which have no gradient",
            "Use the values instead of the indices, or a soft selection (softmax weights)",
            "indices are whole numbers",
        )
    return None


def _no_formula(call: _Call) -> Cut | None:
    """Return the cut by a call that has a graph, which does not lead to one of its arguments."""
    nothing = call.history.get(Graph).given_nothing(call.at)
    if not nothing:
        return None
    given = Tensor(min(nothing))
    return call.cut(
        "{code} has no gradient for {given}",
        "Use another function than {code} where a gradient is to flow to {given}",
        "its result leads back to other arguments alone",
        given=given,
    )


# The first that fits speaks. What the call is by its name goes before the mode that it ran in: a
# detach cuts under either. The mode goes before the graph and the dtype, since what runs without
# gradients has no graph, whatever it gives. `_by_dtype` leaves to `_selection` what selects.
_KINDS = (
    _detached,
    _data,
    _derivative,
    _function,
    _exported,
    _rebuilt,
    _mode,
    _no_formula,
    _by_dtype,
    _selection,
)
