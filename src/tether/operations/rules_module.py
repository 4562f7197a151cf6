"""Parameters, modules, state dicts and optimizers."""

from __future__ import annotations

from tether.operations.effects import (
    ALIAS,
    FRESH,
    GRAD,
    SAME,
    WRITE,
    but,
    family,
    rule,
    when,
)
from tether.operations.rule import COMPLEX, FLOATS, When

_LEAF = When(dtype=FLOATS, leaf=True)
_TRAINED = When(dtype=("float32", "float64"), leaf=True, requires_grad=True)
_HELD = "module = holder(x)"
_MODULE = {"setup": _HELD, "source": "module.weight", "result": "module.weight"}
_MOVED = but(SAME, memory="moved", layout="view", allocations=1)

# fmt: off
MODULE_RULES = (
    *family("Parameters and modules",
        rule("Parameter", "torch.nn.Parameter(x)",
             "A new leaf that requires grad on the tensor's own memory: it follows writes to the"
             " tensor, and no gradient flows back to it.",
             but(ALIAS, requires_grad="yes", leaf="yes"), only=When(dtype=FLOATS + COMPLEX),
             better="torch.nn.Parameter(tether.copy(x)) for memory of its own"),
        rule("Parameter:frozen", "torch.nn.Parameter(x, requires_grad=False)",
             "A Parameter on the tensor's own memory that is not trained.",
             but(ALIAS, requires_grad="no", leaf="yes")),
        rule("Buffer", "torch.nn.Buffer(x)",
             "A buffer is on the tensor's own memory, a leaf that requires grad when the tensor"
             " does, with no way back to it.",
             when(GRAD, but(ALIAS, requires_grad="yes", leaf="yes")), ALIAS),
        rule("register_buffer", "module.register_buffer('b', x) or module.b",
             "A buffer is the very tensor given, gradient and all.", SAME,
             setup="module = torch.nn.Module()"),
        rule("register_parameter", "module.register_parameter('p', source) or module.p",
             "A parameter is the very Parameter given.", SAME,
             setup="module = torch.nn.Module(); source = torch.nn.Parameter(x)", source="source",
             only=_LEAF._replace(requires_grad=True)),
        rule("chain:parameter-data", "torch.nn.Parameter(x).data",
             "The parameter's memory outside the graph, with a version counter of its own.",
             but(ALIAS, version="own"), only=_LEAF),
        rule("state_dict", "module.state_dict()['weight']",
             "Shares memory with the parameters: the values in it go on changing as the model"
             " trains.",
             ALIAS, setup=_HELD, source="module.weight", only=_LEAF,
             better="tether.copy(module.state_dict())"),
        rule("state_dict:deepcopy", "copy.deepcopy(module.state_dict())['weight']",
             "A copy that training leaves alone.", but(FRESH, starts=1), setup=_HELD,
             source="module.weight", only=_LEAF),
        rule("load_state_dict", "module.load_state_dict({'weight': other})",
             "Copies the values into the parameters in place: ties and optimizers stay, the"
             " version is bumped.",
             WRITE, only=_LEAF, **{**_MODULE, "setup": _HELD + "; other = torch.ones_like(x)"}),
        rule("load_state_dict:assign", "module.load_state_dict({'weight': other}, assign=True)",
             "Puts the tensors given in the parameters' place: new Parameters on the dict's"
             " memory; an optimizer goes on stepping the old ones, and tied weights part.",
             when(GRAD, but(FRESH, requires_grad="yes", leaf="yes", allocations=0, layout="view")),
             but(FRESH, allocations=0, layout="view"), only=_LEAF,
             better="without assign, or make the optimizer afterwards",
             **{**_MODULE, "setup": _HELD + "; other = torch.ones_like(x.detach())"}),
        rule("Module.to", "module.to(torch.float64)",
             "The same Parameters on converted memory: what shared the old memory no longer"
             " follows; nothing when the type is right already.",
             when(When(dtype=("float64",)), SAME), but(_MOVED, dtype="float64", grad="same"),
             only=_LEAF, **_MODULE),
        rule("Module.double", "module.double()",
             "The same Parameters on converted memory: an optimizer keeps them, a state_dict taken"
             " before keeps the old values.",
             when(When(dtype=("float64",)), SAME), but(_MOVED, dtype="float64"), only=_LEAF,
             names="Module.float Module.half Module.bfloat16 Module.cuda Module.cpu Module.type",
             **_MODULE),
        rule("Module.to_empty", "module.to_empty(device=x.device)",
             "New memory without values; tied weights part.", but(_MOVED, layout="view"),
             only=_LEAF, **_MODULE),
        rule("Module.share_memory", "module.share_memory()",
             "Moves the parameters' storages into memory that other processes can map; every"
             " tensor on them follows.",
             but(SAME, allocations=1), only=_LEAF, **_MODULE),
        rule("Module.requires_grad_", "module.requires_grad_(False)",
             "Freezes every parameter: calls from here on leave them out of the graph.",
             but(SAME, gradient="cut", requires_grad="no", leaf="yes"), only=_LEAF, **_MODULE),
        rule("Module.deepcopy", "copy.deepcopy(module).weight",
             "A copy of the whole module, ties inside it kept, not the .grad of its parameters; a"
             " non-leaf anywhere in it raises.",
             when(GRAD, but(FRESH, requires_grad="yes", leaf="yes")), FRESH, setup=_HELD,
             source="module.weight", only=_LEAF),
        rule("__deepcopy__:parameter", "copy.deepcopy(module.weight)",
             "A Parameter is copied with its memory and its requires_grad, and without its .grad"
             " (a plain leaf is copied with it).",
             when(GRAD, but(FRESH, requires_grad="yes", leaf="yes")), FRESH, setup=_HELD,
             source="module.weight", only=_LEAF),
        rule("Parameter.data.__set__", "module.weight.data = other",
             "The same Parameter on other memory: tied weights part, and the version is not"
             " bumped.",
             but(SAME, memory="moved", layout="view"), only=_LEAF,
             **{**_MODULE, "setup": _HELD + "; other = torch.zeros_like(x)"},
             better="module.weight.data.copy_(other)"),
        rule("Parameter.data.copy_", "module.weight.data.copy_(other)",
             "Writes into the parameter's memory: ties stay, and no version tells.",
             but(WRITE, writes="unseen"), only=_LEAF,
             **{**_MODULE, "setup": _HELD + "; other = torch.zeros_like(x)"}),
        rule("zero_grad", "module.zero_grad()",
             "Sets every .grad to None: one held elsewhere keeps its values.", but(SAME, grad="no"),
             only=_LEAF._replace(requires_grad=True), **_MODULE),
        rule("zero_grad:zeros", "module.zero_grad(set_to_none=False)",
             "Writes zeros into every .grad: one held elsewhere is zeroed with it.", SAME,
             only=_LEAF._replace(requires_grad=True), **_MODULE),
        rule("init.zeros_", "torch.nn.init.zeros_(module.weight)",
             "Writes in place under no_grad: the version is bumped, the leaf stays a leaf.", WRITE,
             only=_LEAF,
             names="zeros_ ones_ constant_ xavier_uniform_ xavier_normal_ kaiming_uniform_"
                   " kaiming_normal_ orthogonal_", **_MODULE)),
    *family("Optimizers",
        rule("step", "optimizer.step()",
             "Writes the parameters in place under no_grad: the version is bumped, and whoever"
             " shares the memory follows.",
             WRITE, only=_TRAINED, setup="optimizer = torch.optim.SGD([x], lr=0.1)", result="x"),
        rule("step:adam", "optimizer.step()",
             "Writes the parameters in place, and keeps averages of their gradients in memory of"
             " its own.",
             but(WRITE, allocations=4), only=_TRAINED,
             setup="optimizer = torch.optim.Adam([x], lr=0.1)", result="x"),
        rule("step:foreach", "optimizer.step()",
             "The foreach form writes the parameters in place too.", WRITE, only=_TRAINED,
             setup="optimizer = torch.optim.SGD([x], lr=0.1, foreach=True)", result="x"),
        rule("Optimizer.zero_grad", "optimizer.zero_grad()",
             "Sets every .grad to None: one held elsewhere keeps its values.", but(SAME, grad="no"),
             only=_TRAINED, setup="optimizer = torch.optim.SGD([x], lr=0.1)", result="x"),
        rule("clip_grad_norm_", "torch.nn.utils.clip_grad_norm_([x], 1.0)",
             "Writes the gradients in place, not the parameters.", SAME, only=_TRAINED, result="x",
             names="clip_grad_value_"),
        rule("average", "torch.optim.swa_utils.AveragedModel(module).module.weight",
             "An averaged model starts as a deep copy.",
             when(GRAD, but(FRESH, requires_grad="yes", leaf="yes")), FRESH, setup=_HELD,
             source="module.weight", only=_LEAF, names="AveragedModel")),
)
