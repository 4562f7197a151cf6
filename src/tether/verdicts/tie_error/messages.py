"""PyTorch's messages, of 2.9 to 2.15: which operand each speaks of, why, and what works instead.

Whether an error is reported does not depend on this table, nor what led to it: both come from the
facts. A message that is not here, or is worded anew, only goes without its sentence of repair.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import overlaps_itself
from tether.facts import UNKNOWN, Operand

Which = Callable[[History, Operand], bool]


class Entry(NamedTuple):
    """What is said of one message.

    ``{subject}`` is the operand that it speaks of, ``{there}`` the device of another one.
    """

    pattern: str
    why: str
    repair: str
    which: Which = lambda *_: True
    all_told: bool = False  # where the other operands were made is told as well
    of_written: bool = False  # it speaks of what the call was to write


def _graphed(_: History, one: Operand) -> bool:
    return one.requires_grad


def _leaf(_: History, one: Operand) -> bool:
    return one.requires_grad and one.leaf


def _computed(_: History, one: Operand) -> bool:
    return one.requires_grad and not one.leaf


GRAPHED = (_graphed, _leaf, _computed)
"""Of messages about a tensor that requires grad: which one it is."""


def _graphless(_: History, one: Operand) -> bool:
    return not one.requires_grad


def _inference(_: History, one: Operand) -> bool:
    return one.version == UNKNOWN


def _overlapping(_: History, one: Operand) -> bool:
    return overlaps_itself(one)


def _on_the_cpu(history: History, one: Operand) -> bool:
    fact = history.trace.storages.get(one.storage)
    return bool(one.shape) and fact is not None and fact.device == "cpu"


_OUT_OF_PLACE = (
    "To update it outside the graph, write inside `with torch.no_grad():`; to compute with a"
    " changed value, write into a copy (`{subject!s}.clone()`), which keeps the gradient. Do not"
    " write through `{subject!s}.data`: nothing would tell that a gradient was computed from the"
    " old value."
)

TABLE = (
    Entry(
        r"leaf Variable that requires grad|leaf variable that requires grad",
        "{subject} is a leaf that requires grad, or a view of one: a write in place would change"
        " what its gradient is taken of.",
        _OUT_OF_PLACE,
        _graphed,
    ),
    Entry(
        r"Can't call numpy\(\) on Tensor that requires grad",
        "{subject} requires grad, and an array has no graph.",
        "`{subject!s}.detach().numpy()` shares its memory; `{subject!s}.detach().numpy().copy()`,"
        ' or `tether.copy({subject!s}, to="numpy")`, is independent.',
        _graphed,
    ),
    Entry(
        r"can't convert \S+ device type tensor to numpy",
        "{subject} is on a device whose memory NumPy cannot reach.",
        "`{subject!s}.detach().cpu().numpy()`: the copy to the CPU is one already, no clone is"
        " needed.",
    ),
    Entry(
        r"Can't call numpy\(\) on Tensor that has (conjugate|negative) bit",
        "{subject} is a view whose elements are computed as they are read, and an array reads the"
        " memory.",
        "`{subject!s}.resolve_conj().resolve_neg().numpy()` writes the elements out first.",
    ),
    Entry(
        r"negative strides?|strides? .* negative",
        "The array runs backwards through its memory, and a tensor cannot.",
        "Copy the array first: array.copy() runs forwards.",
    ),
    Entry(
        r"Can't export tensors that require gradient|__dlpack__.*requires? grad",
        "{subject} requires grad, and DLPack has no graph.",
        "Export `{subject!s}.detach()`, which shares its memory.",
        _graphed,
    ),
    Entry(
        r"through the graph a second time|saved tensors after they have already been freed",
        "Two backward passes go through one graph, and the first one freed what it had saved.",
        "If {subject} is carried over from an earlier step, cut it there:"
        " `{subject!s} = {subject!s}.detach()`. If both losses belong to one step, add them and"
        " call backward once, compute what they share again, or pass retain_graph=True to the first"
        " call.",
    ),
    Entry(
        r"[Ii]nference tensor|inference mode|InferenceMode",
        "{subject} is an inference tensor, and autograd cannot use one outside of inference mode.",
        "Compute its values under torch.no_grad() instead of inference_mode(), or use"
        " `{subject!s}.clone()` outside.",
        _inference,
    ),
    Entry(
        r"Only Tensors created explicitly by the user",
        "{subject} was computed, and copy.deepcopy copies no graph.",
        "`{subject!s}.detach().clone()` copies its values, tether.copy(...) the object that holds"
        " it.",
        _computed,
    ),
    Entry(
        r"Cowardly refusing to serialize non-leaf tensor",
        "{subject} was computed and requires grad, and no graph goes to another process.",
        "Send `{subject!s}.detach()`, or compute {subject} under torch.no_grad().",
        _computed,
    ),
    Entry(
        r"element \d+ of tensors does not require grad",
        "{subject} has no gradient graph: none of the values that it was computed from requires"
        " grad, or their graph was cut on the way.",
        "Compute {subject} with gradients on, from tensors that require grad, without detach, data,"
        " item or NumPy between.",
        _graphless,
    ),
    Entry(
        r"differentiated Tensor at index \d+ appears to not have been used in the graph",
        "{subject}, whose gradient was asked for, is not part of the graph of the loss.",
        "Compute the loss from {subject} without a cut between; or pass allow_unused=True, if None"
        " is a good answer.",
        all_told=True,
    ),
    Entry(
        r"not have been used in the graph",
        "A tensor whose gradient was asked for is not part of the graph of the loss.",
        "Compute the loss from it without a cut between; or pass allow_unused=True, if None is a"
        " good answer.",
        _leaf,
    ),
    Entry(
        r"marked with @once_differentiable",
        "The pass takes the gradient of a gradient, which the backward of a custom Function on the"
        " way does not give: it is marked with once_differentiable.",
        "Leave once_differentiable out, and compute in that backward by calls that autograd can"
        " follow; or take the first gradient without create_graph, if no loss is to use it.",
    ),
    Entry(
        r"multiple values for keys .*, which are tied",
        "{subject} is one parameter with several names, and each of them was given a tensor of its"
        " own.",
        "Give a tensor by one of the names: named_parameters() has each parameter once,"
        " state_dict() has it by all its names. Or pass tie_weights=False: each place has its own.",
    ),
    Entry(
        r"derivative for \S+ is not implemented|not implemented for derivatives",
        "The pass takes the gradient of a gradient, and PyTorch has none for a call on the way.",
        "Use another way to compute it where this second derivative is wanted (for attention"
        " `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`); or take the first gradient without"
        " create_graph, if no loss is to use it.",
    ),
    Entry(
        r"appear in more than one parameter group|contains duplicate|duplicate parameters",
        "A parameter would be in the optimizer twice, and each step would move it twice.",
        "Give it to one group only: where modules share a parameter, leave it out by identity"
        " (`id(parameter)`).",
    ),
    Entry(
        r"grad can be implicitly created only for scalar outputs",
        "{subject} has several elements, so backward needs to know with which weights they count.",
        "Reduce it first (`{subject!s}.sum()` or .mean()), or pass a gradient of its shape.",
    ),
    Entry(
        r"is a view and is being modified inplace|view was created|output of a function that"
        r" returns multiple views|its base or another view of its base has been modified",
        "{subject} is a view that autograd cannot rewrite after a write in place.",
        "Write out of place, or make {subject} a clone of what it shows.",
        of_written=True,
    ),
    Entry(
        r"more than one element of the written-to tensor refers to a single memory location",
        "Several elements of {subject} are one place in memory.",
        "Give each its own where {subject} gets its memory: `.expand(...).clone()`, or"
        " `.repeat(...)`.",
        _overlapping,
        of_written=True,
    ),
    Entry(
        r"some elements of the input tensor and the written-to tensor refer to a single memory",
        "The call reads {subject} where it writes.",
        "Read from a copy: pass `{subject!s}.clone()`, or write to memory of its own.",
    ),
    Entry(
        r"can't optimize a non-leaf Tensor",
        "{subject} was computed, and an optimizer trains leaves only.",
        "Give the optimizer the leaf that {subject} is computed from; or make it a leaf where it is"
        " made: `{subject!s} = {subject!s}.detach().requires_grad_()`.",
        _computed,
    ),
    Entry(
        r"only change requires_grad flags of leaf",
        "{subject} was computed, and its requires_grad follows from what it was computed from.",
        "For its values without the graph take `{subject!s}.detach()`.",
        _computed,
    ),
    Entry(
        r"don't support automatic differentiation, but one of the arguments requires grad",
        "The call writes into a given tensor (out=), which has no place in the graph.",
        "Leave out= away, or run the call inside `with torch.no_grad():`.",
        _graphed,
    ),
    Entry(
        r"view size is not compatible with input tensor's size and stride",
        "The elements of {subject} do not lie in the order of the wanted shape, so no view can show"
        " them.",
        "`{subject!s}.reshape(...)` shares where it can and copies where it cannot.",
    ),
    Entry(
        r"cannot resize variables that require grad",
        "{subject} requires grad, and its graph knows its size.",
        "Make a new tensor, or resize `{subject!s}.detach()` before it is used.",
        _graphed,
    ),
    Entry(
        r"Can't detach views in-?place",
        "{subject} is a view, and shares its place in the graph with its base.",
        "Use `{subject!s} = {subject!s}.detach()`.",
    ),
    Entry(
        r"cannot register a hook on a tensor that doesn't require gradient|can't retain_grad",
        "{subject} does not require grad, so it gets no gradient.",
        "Do it on a tensor that requires grad, before it is detached.",
        _graphless,
    ),
    Entry(
        r"Expected all tensors to be on the same device|is not on the expected device"
        r"|Input type \(\S+\) and weight type \(\S+\) should be the same",
        "{subject} and the other operands are on different devices or of different types.",
        "Move or convert it once, where it is made: `{subject!s} = {subject!s}.to('{there}')`.",
        _on_the_cpu,
        all_told=True,
    ),
    Entry(
        r"Expected to have finished reduction in the prior iteration",
        "Some parameters of the module took no part in the loss, so DDP still waits for their"
        " gradients.",
        "See gradient-unused and gradient-cut for which ones and why; where that is meant, pass"
        " find_unused_parameters=True to DistributedDataParallel.",
    ),
    Entry(
        r"cannot assign .* as parameter",
        "{subject} was computed, and a module's parameter has to be a leaf of the class Parameter.",
        "Write the values in (`parameter.copy_({subject!s})` under torch.no_grad()), or compute"
        " from the parameter in forward.",
        _computed,
    ),
)


def entry_of(message: str) -> Entry | None:
    """Return what is said of a message; None for one that is not in the table."""
    return next((one for one in TABLE if re.search(one.pattern, message)), None)


_TIES = re.compile(
    r"\bgrad|differentiat|\bleaf\b|\bgraph\b|backward|in-?place|\bversion|\bviews?\b|storage|memory|strid"
    r"|contiguous|same device|expected device|device type|numpy|dlpack|[Ii]nference|autograd|detach"
    r"|deepcopy|\bsaved\b|resiz|\bconj|negative|overlap|Parameter|requires_grad",
    re.IGNORECASE,
)
_OTHER = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


def of_ties(message: str) -> bool:
    """Whether a message speaks of graphs, memory or devices, and not of how much there is."""
    return _TIES.search(message) is not None and _OTHER.search(message) is None
