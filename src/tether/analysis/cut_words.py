"""What kind of cut a call is, in words: what it did to the gradient, and what to write instead."""

from __future__ import annotations

from typing import NamedTuple

from tether.analysis.history import History, shortened
from tether.analysis.surroundings import at_line
from tether.analysis.wording import place
from tether.facts import GRAD_ON, INFERENCE, UNKNOWN, Event, Operand, Site
from tether.finding import Evidence
from tether.source.reading import outcomes_of
from tether.source.syntax import source_of


class Cut(NamedTuple):
    """A call that cut the gradient: where to point, and what to say."""

    site: Site
    operation: str
    what: str  # completes "...is cut: "
    fix: str
    evidence: tuple[Evidence, ...]
    at: int = UNKNOWN  # position of the call


_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
_NUMBERS = {
    "item": ".item()",
    "__float__": "float()",
    "__int__": "int()",
    "__bool__": "bool()",
    "__index__": "an index",
    "__complex__": "complex()",
    "tolist": ".tolist()",
}
_COMPARISONS = frozenset(
    {"gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal", "less_equal"}
    | {"isclose", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_not"}
    | {"__gt__", "__lt__", "__ge__", "__le__", "__eq__", "__ne__", "not_equal"}
)
_INDICES = frozenset(
    {"argmax", "argmin", "argsort", "topk", "max", "min", "sort", "median", "mode", "kthvalue"}
    | {"searchsorted", "bucketize", "nonzero", "multinomial", "argwhere", "msort", "unique"}
)
_REBUILDS = {
    "tensor": (
        "torch.tensor() copies the numbers into a new leaf",
        "use torch.stack or torch.cat on the tensors themselves",
    ),
    "new_tensor": ("new_tensor() copies the numbers into a new leaf", "use x.clone()"),
    "as_tensor": (
        "as_tensor() of Python numbers makes a new leaf",
        "use torch.stack on the tensors themselves",
    ),
    "Parameter": (
        "nn.Parameter() makes a new leaf of the computed value",
        "keep the computed tensor, and make Parameters only of what is trained itself",
    ),
}


def described(history: History, position: int) -> Cut:
    """Put a cut into words, from what the facts say of the call."""
    event = history.events[position]
    site = history.site_of(event)
    expression = f"`{shortened(site.expression)}`" if site.expression else event.operation
    for kind in _KINDS:
        found = kind(history, position, event, expression)
        if found is not None:
            return found._replace(at=position)
    return Cut(
        site,
        event.operation,
        f"the result of {expression} has no gradient path to its input",
        f"replace {expression} by a differentiable operation",
        (Evidence("cut", site, f"{expression} returns a tensor that does not require grad"),),
        position,
    )


def _simple(site: Site, operation: str, what: str, fix: str, text: str) -> Cut:
    return Cut(site, operation, what, fix, (Evidence("cut", site, text),))


def _explicit(history: History, _at: int, event: Event, expression: str) -> Cut | None:
    site, operation = history.site_of(event), event.operation
    if operation in ("detach", "detach_"):
        inner = history.site(event.inner)
        if not inner.user and "state_dict" in site.expression:
            return _simple(
                site, "state_dict",
                f"{expression} returns detached tensors",
                "take the parameters themselves: dict(module.named_parameters()), or"
                " state_dict(keep_vars=True)",
                "state_dict() hands out each parameter detached from the graph",
            )  # fmt: skip
        if not inner.user and "detach" not in site.expression:
            return _simple(
                site, operation,
                f"{expression} detaches inside the library ({inner.function})",
                f"do without {expression} where gradients are to flow, or pass it tensors whose"
                " gradient nobody needs",
                f"{inner.function} calls detach()",
            )  # fmt: skip
        return _simple(
            site, operation,
            f"{expression} shares the values but not the graph",
            f"drop the detach at {place(site)} if gradients are to flow through it",
            "detach() returns a tensor outside the graph",
        )  # fmt: skip
    if operation == "data.__get__" and not history.site(event.inner).user:
        inside = history.site(event.inner).function
        return _simple(
            site, "data", f"{expression} takes the values without the graph ({inside})",
            f"use the tensor itself where gradients are to flow, at {place(site)}",
            "the library reads .data, which is outside the graph",
        )  # fmt: skip
    if operation == "data.__get__":
        return _simple(
            site, ".data", f"{expression} is outside the graph",
            f"drop .data at {place(site)}", ".data returns the values without the graph",
        )  # fmt: skip
    if operation == "data.__set__":
        return _simple(
            site, ".data =", "assigning .data takes over the values and not the graph",
            f"use the computed tensor itself instead of assigning it to .data at {place(site)}",
            "assigning .data replaces the values; the graph of the right-hand side is dropped",
        )  # fmt: skip
    return None


def _derivative(history: History, _at: int, event: Event, expression: str) -> Cut | None:
    if event.operation != "autograd.grad":
        return None
    site = history.site_of(event)
    return _simple(
        site,
        event.operation,
        f"{expression} returns gradients that are outside the graph",
        f"pass create_graph=True at {place(site)} where a gradient is to flow through a gradient",
        "without create_graph=True the result does not require grad",
    )


def _function(history: History, at: int, event: Event, _expression: str) -> Cut | None:
    if event.operation != "apply":
        return None
    site, name = history.site_of(event), event.detail
    if any(operand.requires_grad for operand in event.reads):
        what = f"{name}.backward returns no gradient for it"
        fix = f"return its gradient from {name}.backward (not None), at the position of the input"
    else:
        what = (
            f"{name}.forward uses it, but it is not among the tensors given to {name}.apply,"
            " and none of those requires grad"
        )
        fix = f"pass it to {name}.apply as a tensor argument and return its gradient from backward"
    found = [Evidence("cut", site, what)]
    texts = history.trace.sources
    for file in [site.file, *(one for one in texts if one != site.file)]:
        lines = outcomes_of(source_of(file, texts.get(file, "")), name, "backward")
        said = f"{name}.backward decides here what it returns"
        found += [Evidence("kept", at_line(site._replace(file=file), line), said) for line in lines]
    inner = _first_inside(history, at)
    if inner is not None:
        found.append(Evidence("used", inner, f"used inside {name}.forward"))
    return Cut(site, f"{name}.apply", what, fix, tuple(found))


def _first_inside(history: History, at: int) -> Site | None:
    for span in history.trace.spans:
        if span.kind == "function" and history.position(span.event) == at:
            first = max(0, history.position(span.first))
            for event in history.events[first:at]:
                if any(operand.requires_grad for operand in event.reads):
                    return history.site_of(event)
    return None


def _numbers(history: History, at: int, event: Event, expression: str) -> Cut | None:
    site, operation = history.site_of(event), event.operation
    if operation in _NUMBERS:
        what = f"{expression} turns the tensor into a Python number"
        fix = f"keep the tensor: do without {_NUMBERS[operation]} at {place(site)}"
    elif operation in ("numpy", "__array__", "__dlpack__"):
        what = f"{expression} hands the values to NumPy, which keeps no graph"
        fix = f"compute with torch functions instead of NumPy from {place(site)} on"
        if operation == "__dlpack__":
            what = f"{expression} hands the values on through DLPack, which keeps no graph"
    else:
        return None
    found = [Evidence("cut", site, "the values leave the graph here")]
    for bridge in history.trace.bridges:
        if history.position(bridge.exit) == at:
            entry = history.site_of(history.events[history.position(bridge.entry)])
            sure = "" if bridge.certain else "likely "
            through = f", through {bridge.via}" if bridge.via else ""
            found.append(
                Evidence("re-entry", entry, f"{sure}they come back as a new leaf{through}")
            )
            break
    return Cut(site, operation, what, fix, tuple(found))


def _rebuilt(history: History, _at: int, event: Event, _expression: str) -> Cut | None:
    if event.operation not in _REBUILDS:
        return None
    site = history.site_of(event)
    what, fix = _REBUILDS[event.operation]
    return _simple(site, event.operation, what, f"{fix} at {place(site)}", what)


def _mode(history: History, at: int, event: Event, expression: str) -> Cut | None:
    if event.grad_mode == GRAD_ON:
        return None
    site = history.site_of(event)
    switch = history.switch_in_force(at)
    if switch == UNKNOWN:
        return _simple(
            site, event.operation, f"{expression} ran while gradients were switched off",
            "switch gradients on around it (torch.enable_grad())",
            "gradients were off before the recording began",
        )  # fmt: skip
    event_of_switch = history.events[switch]
    where = history.site_of(event_of_switch)
    if event.site == event_of_switch.site or not where.user:
        return _switched_inside(history, event, expression)
    how = f"`{shortened(where.expression)}`" if where.expression else "a switch"
    mode = "inference mode" if event_of_switch.flags & INFERENCE else "gradients switched off"
    fix = f"move {expression} out of the block that begins at {place(where)}"
    if "set_grad_enabled" in where.expression:
        fix = (
            f"use `with torch.no_grad():` at {place(where)}, which ends with its block; a plain"
            " call stays in force"
        )
    return Cut(
        where,
        "inference_mode" if event_of_switch.flags & INFERENCE else "no_grad",
        f"{expression} ran with {mode} by {how}",
        fix,
        (
            Evidence("mode", where, f"gradients are off from here: {how}"),
            Evidence("cut", site, f"{expression} builds no graph"),
        ),
    )


def _switched_inside(history: History, event: Event, expression: str) -> Cut:
    """Return the cut by a library's call that switches gradients off for itself."""
    site, inner = history.site_of(event), history.site(event.inner)
    what = f"{expression} runs without gradients, which the library switches off inside it"
    fix = f"use a call that keeps the graph; {expression} at {place(site)} gives values only"
    if "/torch/distributions/" in inner.file.replace("\\", "/") and ".sample(" in expression:
        fix = (
            f"draw with {expression.replace('.sample(', '.rsample(')} at {place(site)}, through"
            " which gradients reach the distribution's parameters, if it has rsample; if not, weigh"
            " its log_prob"
        )
    found = [Evidence("cut", site, f"{expression} builds no graph")]
    if inner != site:
        found.append(Evidence("inside", inner, "it does so here, where gradients are off"))
    return Cut(site, event.operation, what, fix, tuple(found))


def _by_dtype(history: History, _at: int, event: Event, expression: str) -> Cut | None:
    site = history.site_of(event)
    outputs: tuple[Operand, ...] = (*event.writes, *event.results)
    whole = [one for one in outputs if one.dtype in _INTEGERS]
    if not whole or any(one.requires_grad for one in outputs):
        return None
    if event.operation in _COMPARISONS or event.operation in _INDICES:
        return None
    dtype = whole[0].dtype
    found = [Evidence("cut", site, f"the values become {dtype}, which has no gradient")]
    fix = f"keep a floating-point dtype at {place(site)}"
    if event.writes:
        made = history.made_at(event.writes[0].tensor)
        maker = _maker_of_memory(history, event.writes[0], made)
        if maker is not None:
            found.append(Evidence("made", maker, f"this {dtype} tensor is made here"))
            fix = f"make it with a floating-point dtype at {place(maker)}"
            what = f"{expression} writes into a tensor of dtype {dtype}, made at {place(maker)}"
            # The repair belongs where the dtype was chosen.
            return Cut(maker, event.operation, what, fix, tuple(reversed(found)))
    what = f"{expression} writes into a tensor of dtype {dtype}"
    if not event.writes:
        what = f"{expression} gives {dtype}"
    return Cut(site, event.operation, what, fix, tuple(found))


def _maker_of_memory(history: History, operand: Operand, position: int) -> Site | None:
    """Site of the call that made the memory behind an operand: not of a view on it."""
    for at in history.on_storage(operand):
        event = history.events[at]
        if any(one.storage == operand.storage for one in event.results) and not any(
            one.storage == operand.storage for one in event.reads
        ):
            return history.site_of(event)
    return history.site_of(history.events[position]) if position >= 0 else None


def _selection(history: History, _at: int, event: Event, expression: str) -> Cut | None:
    site, operation = history.site_of(event), event.operation
    if operation in _COMPARISONS:
        return _simple(
            site, operation, f"{expression} is a comparison, which has no gradient",
            "use a smooth stand-in for the comparison (a sigmoid of the difference)",
            "the result is true or false",
        )  # fmt: skip
    if operation in _INDICES:
        return _simple(
            site, operation, f"{expression} gives indices, which have no gradient",
            "use the values instead of the indices, or a soft selection (softmax weights)",
            "indices are whole numbers",
        )  # fmt: skip
    return None


# In this order: what was written there goes before the mode it ran in, and both before its dtype.
_KINDS = (
    _explicit,
    _derivative,
    _function,
    _numbers,
    _rebuilt,
    _mode,
    _by_dtype,
    _selection,
)
