"""Copying and converting: memory of its own, or the same tensor when there is nothing to do."""

from __future__ import annotations

from typing import Any

from tether.operations.effects import (
    ALIAS,
    CLONE,
    FRESH,
    GRAD,
    INNER,
    NEW,
    SAME,
    but,
    family,
    raises,
    rule,
    when,
)
from tether.operations.rule import COMPLEX, FLOATS, WHOLE, Case, Effect, Rule, When

_NOT_COMPLEX = When(dtype=FLOATS + WHOLE)


def _to(dtype: str) -> tuple[Case | Effect, ...]:
    """Say what a conversion to a floating type does: nothing to a tensor that has it."""
    return (
        when(When(dtype=(dtype,)), SAME),
        but(CLONE, dtype=dtype),
    )


def _cast(slug: str, call: str, dtype: str, **more: Any) -> Rule:
    """Rule of a conversion that is named after its type."""
    copied = CLONE if dtype in FLOATS else FRESH  # integers have no gradient
    return rule(
        slug,
        call,
        f"Returns the tensor itself when it is {dtype} already, else a converted copy"
        + (" in the graph." if dtype in FLOATS else ", and integers and bools have no gradient."),
        when(When(dtype=(dtype,)), SAME),
        but(copied, dtype=dtype),
        only=_NOT_COMPLEX,
        **more,
    )


# fmt: off
COPY_RULES = (
    *family("Copies",
        rule("clone", "x.clone()", "A copy in memory of its own that stays in the graph.", CLONE),
        rule("clone:contiguous", "x.clone(memory_format=torch.contiguous_format)",
             "A copy in memory of its own, contiguous whatever the source was, in the graph.", NEW),
        rule("detach", "x.detach()",
             "A second tensor on the same memory, outside the graph: a write to either shows in"
             " both, and the version counter is shared.",
             ALIAS, better="tether.copy(x) for a value that must not change"),
        rule("Variable", "torch.autograd.Variable(x)",
             "A second tensor on the same memory, outside the graph, as detach() gives it.",
             ALIAS, better="x.detach()"),
        rule("Variable:trained", "torch.autograd.Variable(x, requires_grad=True)",
             "A new leaf that requires grad on the tensor's own memory: it follows writes to the"
             " tensor, and no gradient flows back to it.",
             but(ALIAS, requires_grad="yes", leaf="yes"), only=When(dtype=FLOATS + COMPLEX),
             better="x.detach().clone().requires_grad_()"),
        rule("data.__get__", "x.data",
             "A second tensor on the same memory, outside the graph, with a version counter of its"
             " own: backward does not notice writes through it.",
             but(ALIAS, version="own"), better="x.detach(), whose writes backward notices"),
        rule("chain:detach-clone", "x.detach().clone()",
             "A copy in memory of its own, outside the graph; no autograd node is made on the way.",
             FRESH),
        rule("chain:clone-detach", "x.clone().detach()",
             "A copy in memory of its own, outside the graph; clone makes an autograd node that"
             " detach leaves behind.",
             FRESH, better="x.detach().clone(): the same result without the node"),
        rule("chain:data-clone", "x.data.clone()",
             "A copy in memory of its own, outside the graph.", FRESH, better="x.detach().clone()"),
        rule("chain:expand-clone", "x.expand(2, 3, 4).clone()",
             "A dense copy of what the expanded view shows, in the graph: the gradient comes back"
             " summed over the expanded dimension.",
             but(CLONE, layout="view")),
        rule("chain:contiguous-clone", "x.contiguous().clone()",
             "A contiguous copy in the graph; a source that was not contiguous is copied twice.",
             when(When(contiguous=True), NEW), but(NEW, allocations=2),
             better="x.clone(memory_format=torch.contiguous_format): one copy"),
        rule("contiguous", "x.contiguous()",
             "Returns the tensor itself when it is contiguous, else a contiguous copy in the"
             " graph: a layout, not a protection.",
             when(When(contiguous=True), SAME), NEW, better="x.clone() where a copy is meant"),
        rule("contiguous:channels_last",
             "x.reshape(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)",
             "A copy in another layout unless the tensor has it already; a tensor can be"
             " contiguous in both formats at once, and then comes back itself.",
             but(CLONE, layout="view", allocations=1), only=When(contiguous=True)),
        rule("__copy__", "copy.copy(x)",
             "A new Python object on the same memory: a leaf keeps its requires_grad, and backward"
             " through the new object fills its own .grad, not the source's.",
             when(GRAD, but(ALIAS, version="own", starts=1, requires_grad="yes", leaf="yes")),
             but(ALIAS, version="own", starts=1), names="copy.copy",
             better="x.detach() to share, x.clone() to copy"),
        rule("__deepcopy__", "copy.deepcopy(x)",
             "A leaf is copied with its memory, its requires_grad and its .grad, outside the"
             " graph; a non-leaf raises.",
             raises("RuntimeError: Only Tensors created explicitly by the user", INNER),
             when(GRAD,
                  but(FRESH, starts=1, requires_grad="yes", leaf="yes", grad="copied",
                      allocations=1)), but(FRESH, starts=1), names="deepcopy",
             better="tether.copy(x), which takes non-leaf tensors too"),
        rule("pickle", "pickle.loads(pickle.dumps(x))",
             "A copy by way of bytes: memory of its own, outside the graph, requires_grad kept,"
             " .grad not.",
             when(GRAD, but(FRESH, starts=1, requires_grad="yes", leaf="yes")),
             but(FRESH, starts=1), names="loads")),
    *family("Conversions",
        rule("to", "x.to(torch.float32)",
             "Returns the tensor itself when type and device are right already, else a converted"
             " copy in the graph.",
             *_to("float32"), only=_NOT_COMPLEX,
             better="x.to(..., copy=True) where a copy is meant"),
        rule("to:device", "x.to(x.device)", "On the device already: the very same tensor, no copy.",
             SAME, better="x.to(device, copy=True) where a copy is meant"),
        rule("to:copy", "x.to(x.device, copy=True)",
             "A copy in memory of its own that stays in the graph, always.", CLONE),
        rule("to:dtype-copy", "x.to(torch.float64, copy=True)",
             "A converted copy in the graph, always.", but(CLONE, dtype="float64"),
             only=_NOT_COMPLEX),
        rule("to:int", "x.to(torch.int64)",
             "To an integer type: the gradient ends here, since integers have none.",
             when(When(dtype=("int64",)), SAME), but(FRESH, dtype="int64"), only=_NOT_COMPLEX),
        rule("to:meta", 'x.to("meta")',
             "A tensor without values: the shape only, in the graph, and backward raises since"
             " there is nothing to bring back.",
             but(CLONE, gradient="raises", device="meta", allocations=0)),
        rule("to:cuda", 'x.to("cuda")',
             "To the GPU: a copy there, in the graph, and backward brings the gradient back; a"
             " tensor that is there already comes back itself. From pageable memory the program"
             " waits.",
             when(When(device="cuda"), SAME), but(CLONE, device="cuda", waits=True), needs="cuda"),
        rule("to:non_blocking", 'x.to("cuda", non_blocking=True)',
             "As without it, but the program does not wait: what is read before the copy is done"
             " is garbage when it goes from the GPU to the CPU.",
             when(When(device="cuda"), SAME), but(CLONE, device="cuda"), needs="cuda"),
        rule("to:cpu-non_blocking", 'x.to("cpu", non_blocking=True)',
             "On the CPU already: the very same tensor. From the GPU the copy may not be done when"
             " the call returns: wait before the values are read.",
             when(When(device="cpu"), SAME), but(CLONE, device="cpu"),
             better="torch.cuda.synchronize() or an event before the read"),
        rule("to:memory_format", "x.to(torch.float64, memory_format=torch.contiguous_format)",
             "Copies when type or device change, and the memory format lays that copy out; when"
             " neither does, the tensor itself comes back, also one that is not contiguous.",
             when(When(dtype=("float64",)), SAME), but(NEW, dtype="float64"), only=_NOT_COMPLEX,
             better="x.contiguous() where the layout matters"),
        rule("to:other", "x.to(other)",
             "Type and device of another tensor: the tensor itself when both are right already.",
             *_to("float32"), setup="other = torch.ones(1, device=x.device)", only=_NOT_COMPLEX),
        _cast("float", "x.float()", "float32"),
        _cast("double", "x.double()", "float64"),
        _cast("half", "x.half()", "float16"),
        _cast("bfloat16", "x.bfloat16()", "bfloat16"),
        _cast("long", "x.long()", "int64"),
        _cast("bool", "x.bool()", "bool"),
        rule("int", "x.int()", "An integer copy; integers have no gradient.",
             but(FRESH, dtype="int32"), only=_NOT_COMPLEX),
        rule("type", "x.type(torch.float32)",
             "Returns the tensor itself when it is of that type already, else a converted copy in"
             " the graph.",
             *_to("float32"), only=_NOT_COMPLEX),
        rule("type_as", "x.type_as(other)",
             "Type and device of another tensor: the tensor itself when both are right already.",
             *_to("float32"), setup="other = torch.ones(1, device=x.device)", only=_NOT_COMPLEX,
             better="x.to(other), which says the same"),
        rule("chain:expand-type_as", "x.expand(2, 3, 4).type_as(other)",
             "Stays a view of the source when the type is right already, and is a copy when not:"
             " whether a write shows elsewhere depends on the types.",
             when(When(dtype=("float32",)),
                  but(SAME, memory="share", grad="no", hooks="no", layout="view")),
             but(CLONE, dtype="float32", layout="view"),
             setup="other = torch.ones(1, device=x.device)", only=_NOT_COMPLEX),
        rule("cpu", "x.cpu()",
             "On the CPU already: the very same tensor, no copy; from a GPU: a copy in the graph,"
             " for which the program waits.",
             when(When(device="cpu"), SAME), but(CLONE, device="cpu", waits=True),
             better="tether.copy(x, device='cpu') where a copy is meant"),
        rule("cuda", "x.cuda()",
             "On that GPU already: the very same tensor, no copy; else a copy there, in the graph.",
             when(When(device="cuda"), SAME), but(CLONE, device="cuda", waits=True), needs="cuda"),
        rule("pin_memory", "x.pin_memory()",
             "A copy in page-locked memory, from which the GPU copies without waiting; in the"
             " graph; a tensor that is pinned already comes back itself, and a complex one that"
             " requires grad raises.",
             raises("RuntimeError: _pin_memory does not support automatic differentiation",
                    When(dtype=COMPLEX, requires_grad=True)),
             but(CLONE), needs="cuda", only=When(device="cpu")),
        rule("chain:float-detach", "x.float().detach()",
             "Converted first, then outside the graph: shares the source's memory when it was"
             " float32 already, else its own.",
             when(When(dtype=("float32",)), ALIAS), but(FRESH, dtype="float32"), only=_NOT_COMPLEX,
             better="x.detach().to(torch.float32, copy=True)"),
        rule("chain:detach-cpu", "x.detach().cpu()",
             "Outside the graph and on the CPU: shares the memory of a CPU tensor, and is a copy"
             " of a GPU tensor.",
             when(When(device="cpu"), ALIAS), but(FRESH, device="cpu", waits=True),
             better="tether.copy(x, device='cpu'), always a copy"),
        rule("chain:detach-cpu-clone", "x.detach().cpu().clone()",
             "Independent of the source on any device; from a GPU it copies twice.",
             when(When(device="cpu"), FRESH), but(FRESH, device="cpu", waits=True),
             better="tether.copy(x, device='cpu'): one copy")),
    *family("Constructors given a tensor",
        rule("tensor", "torch.tensor(x)",
             "A contiguous copy outside the graph, and a warning that clone().detach() says the"
             " same.",
             but(FRESH, layout="source"), better="x.detach().clone()"),
        rule("tensor:requires_grad", "torch.tensor(x, requires_grad=True)",
             "A copy outside the graph that is a new leaf requiring grad.",
             but(FRESH, requires_grad="yes", leaf="yes"), only=When(dtype=FLOATS + COMPLEX),
             better="x.detach().clone().requires_grad_()"),
        rule("new_tensor", "x.new_tensor(x)",
             "A copy outside the graph, and a warning that clone().detach() says the same.",
             but(FRESH, layout="source"), better="x.detach().clone()"),
        rule("as_tensor", "torch.as_tensor(x)",
             "The very same tensor when type and device are right already, gradient and all.",
             SAME),
        rule("as_tensor:dtype", "torch.as_tensor(x, dtype=torch.float32)",
             "Converted, in the graph; the tensor itself when it is so already.", *_to("float32"),
             only=_NOT_COMPLEX),
        rule("asarray", "torch.asarray(x)",
             "Returns the very same tensor, gradient and all; PyTorch 2.11 cut the gradient.", SAME,
             since="2.13"),
        rule("asarray:copy", "torch.asarray(x, copy=True)",
             "A copy in memory of its own that stays in the graph; PyTorch 2.11 cut the gradient.",
             CLONE, since="2.13"),
        rule("empty_like", "torch.empty_like(x)",
             "New memory of the same shape and type: no tie to the source, and no values.", FRESH,
             names="zeros_like ones_like full_like rand_like randn_like"),
        rule("chain:empty_like-copy_", "torch.empty_like(x).copy_(x)",
             "A copy in memory of its own; copy_ records the gradient as clone does.",
             but(CLONE, starts=1),
             better="x.clone(), or x.detach() in the copy_ where the gradient must end"),
        rule("zeros_like", "torch.zeros_like(x)",
             "New memory of the same shape and type, filled: no tie to the source.", FRESH),
        rule("new_zeros", "x.new_zeros(3, 4)",
             "New memory of the same type and device: no tie to the source.",
             but(FRESH, layout="contiguous"), names="new_empty new_ones new_full")),
)
