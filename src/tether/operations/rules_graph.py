"""Switches of the gradient: marks, modes, functions and transforms."""

from __future__ import annotations

from tether.operations.effects import (
    ALIAS,
    CLONE,
    FREE,
    FRESH,
    GRAD,
    INNER,
    SAME,
    VIEW,
    but,
    family,
    raises,
    rule,
    when,
)
from tether.operations.rule import COMPLEX, FLOATS, When

_DIFFERENTIABLE = When(dtype=FLOATS + COMPLEX)
_LEAF_ONLY = When(dtype=FLOATS, requires_grad=True, leaf=True)

# fmt: off
GRAPH_RULES = (
    *family("Gradient",
        rule("detach_", "x.detach_()",
             "Takes the tensor itself out of the graph: it becomes a leaf that requires no grad.",
             but(SAME, gradient="cut", requires_grad="no", leaf="yes")),
        rule("requires_grad_", "x.requires_grad_()",
             "Marks the tensor itself: a leaf collects .grad from here on; to a non-leaf that"
             " requires grad it changes nothing.",
             but(SAME, requires_grad="yes"), only=_DIFFERENTIABLE, names="requires_grad.__set__"),
        rule("requires_grad_:off", "x.requires_grad_(False)",
             "Unmarks a leaf: calls from here on leave it out of the graph; a non-leaf raises.",
             raises("RuntimeError: you can only change requires_grad flags of leaf variables",
                    INNER), but(SAME, gradient="cut", requires_grad="no", leaf="yes"),
             better="x.detach()"),
        rule("retain_grad", "x.retain_grad() or x",
             "Asks a non-leaf to keep its .grad; on a leaf it does nothing, and on a tensor that"
             " does not require grad it raises.",
             raises("RuntimeError: can't retain_grad on Tensor that has requires_grad=False", FREE),
             SAME),
        rule("register_hook", "x.register_hook(print) and x",
             "Hears the gradient as it passes; copies of the tensor do not take the hook along.",
             raises("RuntimeError: cannot register a hook on a tensor that doesn't require", FREE),
             SAME),
        rule("grad.__get__", "x.grad",
             "The gradient a leaf has collected: the tensor itself, not a copy; None for a"
             " non-leaf that does not retain it.",
             but(FRESH, layout="source", allocations=0), only=_LEAF_ONLY,
             better="x.grad.clone() to keep it over zero_grad and backward"),
        rule("grad.__set__", "x.grad = other",
             "Sets the gradient: the tensor given is held, not copied.", but(SAME, grad="other"),
             setup="other = torch.zeros_like(x)", result="x", only=_LEAF_ONLY),
        rule("backward", "x.sum().backward()",
             "Adds to .grad of every leaf the gradient reaches; the values stay as they are.",
             but(SAME, allocations=1), result="x", only=_LEAF_ONLY, names="autograd.backward"),
        rule("autograd.grad", "torch.autograd.grad(x.sum(), x)[0]",
             "Returns gradients and leaves .grad alone.", but(FRESH, layout="view", allocations=0),
             only=When(dtype=FLOATS, requires_grad=True), names="grad"),
        rule("no_grad", "with torch.no_grad():\n    y = x.clone()",
             "What is made under no_grad is outside the graph.", FRESH, result="y",
             names="set_grad_enabled"),
        rule("no_grad:view", "with torch.no_grad():\n    y = x[1:]",
             "A view made under no_grad shares memory and version and is outside the graph: it"
             " says that it requires grad when its base does, as a leaf of its own, and no"
             " gradient reaches the base.",
             when(GRAD, but(ALIAS, requires_grad="yes", leaf="yes", layout="view")),
             but(ALIAS, layout="view"), result="y", better="x.detach()[1:]"),
        rule("no_grad:same", "with torch.no_grad():\n    y = x.contiguous()",
             "no_grad changes nothing about a call that returns the tensor itself.", SAME,
             result="y", only=When(contiguous=True)),
        rule("enable_grad", "with torch.no_grad(), torch.enable_grad():\n    y = x.clone()",
             "Inside no_grad, enable_grad records again.", CLONE, result="y"),
        rule("inference_mode", "with torch.inference_mode():\n    y = x.clone()",
             "What is made in inference mode can never be part of a graph, and has no version"
             " counter.",
             but(FRESH, version="none"), result="y"),
        rule("inference_mode:view", "with torch.inference_mode():\n    y = x[1:]",
             "A view of an ordinary tensor stays an ordinary tensor, outside the graph, though it"
             " says that it requires grad when its base does.",
             when(GRAD, but(ALIAS, requires_grad="yes", leaf="yes", layout="view")),
             but(ALIAS, layout="view"), result="y", better="x.detach()[1:]"),
        rule("apply", "Identity.apply(x)",
             "An autograd.Function that returns its input: another tensor on the same memory, in"
             " the graph by the Function's own backward.",
             but(VIEW, layout="source")),
        rule("apply:no-backward", "Cut.apply(x)",
             "A Function whose backward returns None cuts the gradient, though its output requires"
             " grad.",
             when(GRAD, but(CLONE, gradient="cut", requires_grad="yes", leaf="no")), CLONE,
             only=_DIFFERENTIABLE),
        rule("apply:mark_non_differentiable", "NonDifferentiable.apply(x)",
             "A Function may mark its result as outside the graph.", FRESH),
        rule("checkpoint", "checkpoint(torch.clone, x, use_reentrant=False)",
             "Runs the function, saves its inputs only, and runs it again in backward: the ties"
             " are the function's own.",
             but(CLONE, allocations=-1)),
        rule("vmap", "torch.func.vmap(torch.clone)(x)",
             "The function mapped over a dimension: a result in the graph.",
             but(CLONE, layout="view")),
        rule("functional_call", "torch.func.functional_call(module, {'weight': x}, (data,))",
             "Runs a module on the tensors given: the gradient flows to those, not to its"
             " parameters.",
             but(CLONE, saves=("own",), layout="view", allocations=0),
             setup="module = torch.nn.Linear(4, 3, bias=False, dtype=x.dtype, device=x.device);"
                   " data = torch.ones(2, 4, dtype=x.dtype, device=x.device)",
             only=When(dtype=("float32", "float64"))),
        rule("func.grad", "torch.func.grad(lambda v: (v * v).sum())(x)",
             "A gradient as a function: in the graph, so that it can be derived again.",
             but(CLONE, saves=("own",), layout="view", allocations=-1), only=When(dtype=FLOATS)),
        rule("saved_tensors_hooks", "with torch.autograd.graph.save_on_cpu():\n    y = x.clone()",
             "Changes where backward's values are kept, not the ties of the result.", CLONE,
             result="y"),
        rule("identity", "torch.nn.Identity()(x)", "Returns the very same tensor.", SAME,
             names="Identity")),
)
