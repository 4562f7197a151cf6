"""Out of the tensors and back: NumPy, DLPack, Python numbers, files."""

from __future__ import annotations

from tether.operations.effects import (
    ARRAY,
    FRESH,
    GRAD,
    VALUES,
    but,
    family,
    raises,
    rule,
    when,
)
from tether.operations.rule import FLOATS, When

_BFLOAT = When(dtype=("bfloat16",))
# NumPy 2.5 raises BufferError.
_NO_DLPACK = raises("RuntimeError|BufferError: Unsupported dtype in DLTensor", _BFLOAT)
_NO_BFLOAT = raises("TypeError: Got unsupported ScalarType BFloat16", _BFLOAT)
_REQUIRES = raises("RuntimeError: Can't call numpy() on Tensor that requires grad", GRAD)
_CUDA = raises("TypeError: can't convert cuda", When(device="cuda"))
_PLAIN = When(
    dtype=("float16", "float32", "float64", "complex64", "int64", "bool"),
    requires_grad=False,
    device="cpu",
)
_BACK = but(ARRAY, version="own")
_LOADED = but(FRESH, allocations=-1, starts=1)  # by the reader's own buffers
_COPY = but(ARRAY, memory="own", allocations=0)

# fmt: off
BRIDGE_RULES = (
    *family("NumPy",
        rule("numpy", "x.numpy()",
             "An array on the tensor's own memory: a write to either shows in both, and no version"
             " tells; a tensor that requires grad or is on a GPU raises.",
             _CUDA, _REQUIRES, _NO_BFLOAT, ARRAY, needs="numpy",
             better="x.detach().cpu().numpy(); tether.copy(x, to='numpy') for an array of its own"),
        rule("numpy:no_grad", "with torch.no_grad():\n    y = x.numpy()",
             "Under no_grad a tensor that requires grad is let through too: an array on its own"
             " memory.",
             _CUDA, _NO_BFLOAT, ARRAY, result="y", needs="numpy",
             better="x.detach().cpu().numpy()"),
        rule("numpy:force", "x.numpy(force=True)",
             "Detaches and moves to the CPU first; on the CPU the array still shares the tensor's"
             " memory.",
             _NO_BFLOAT, when(When(device="cuda"), but(_COPY, waits=True)), ARRAY, needs="numpy",
             better="tether.copy(x, to='numpy') for an array of its own"),
        rule("__array__", "np.asarray(x)", "As numpy(): the tensor's own memory, or an error.",
             _CUDA, _REQUIRES, _NO_BFLOAT, ARRAY, needs="numpy"),
        rule("__array__:array", "np.array(x)",
             "A copy in NumPy's own memory; a tensor that requires grad raises.", _CUDA, _REQUIRES,
             _NO_BFLOAT, _COPY, needs="numpy"),
        rule("chain:detach-numpy", "x.detach().numpy()",
             "The tensor's own memory: a write to the array changes the tensor, and no version"
             " tells.",
             _CUDA, _NO_BFLOAT, ARRAY, needs="numpy", better="tether.copy(x, to='numpy')"),
        rule("chain:data-numpy", "x.data.numpy()",
             "The tensor's own memory: a write to the array changes the tensor, and no version"
             " tells.",
             _CUDA, _NO_BFLOAT, ARRAY, needs="numpy"),
        rule("chain:detach-cpu-numpy", "x.detach().cpu().numpy()",
             "From the CPU the tensor's own memory, from a GPU a copy: whether a write shows"
             " depends on the device.",
             _NO_BFLOAT, when(When(device="cuda"), but(_COPY, waits=True)), ARRAY, needs="numpy",
             better="tether.copy(x, to='numpy'), always a copy"),
        rule("chain:cpu-detach-numpy", "x.cpu().detach().numpy()",
             "As detach().cpu().numpy(), with a node of the graph made on the way from a GPU.",
             _NO_BFLOAT, when(When(device="cuda"), but(_COPY, waits=True)), ARRAY, needs="numpy",
             better="x.detach().cpu().numpy()"),
        rule("chain:detach-clone-numpy", "x.detach().clone().numpy()",
             "An array of its own: one copy, by torch.", _CUDA, _NO_BFLOAT,
             but(_COPY, allocations=1), needs="numpy"),
        rule("chain:clone-detach-numpy", "x.clone().detach().numpy()",
             "An array of its own: one copy, and a node of the graph left behind.", _CUDA,
             _NO_BFLOAT, but(_COPY, allocations=1), needs="numpy",
             better="x.detach().clone().numpy()"),
        rule("chain:detach-numpy-copy", "x.detach().numpy().copy()",
             "An array of its own: one copy, by NumPy, contiguous.", _CUDA, _NO_BFLOAT,
             but(_COPY, layout="contiguous"), needs="numpy"),
        rule("chain:clone-numpy", "x.clone().numpy()",
             "Raises when the tensor requires grad: clone keeps the gradient.", _CUDA, _REQUIRES,
             _NO_BFLOAT, but(_COPY, allocations=1), needs="numpy",
             better="x.detach().clone().numpy()"),
        rule("from_numpy", "torch.from_numpy(x.detach().numpy())",
             "A tensor on the array's memory, with a version counter of its own.", _NO_BFLOAT,
             _BACK, needs="numpy", only=When(device="cpu"),
             better="torch.tensor(array) for a copy"),
        rule("as_tensor:numpy", "torch.as_tensor(x.detach().numpy())",
             "A tensor on the array's memory, unless type or device must change.", _BACK,
             needs="numpy", only=_PLAIN, better="torch.tensor(array) for a copy"),
        rule("asarray:numpy", "torch.asarray(x.detach().numpy())",
             "A tensor on the array's memory.", _BACK, needs="numpy", only=_PLAIN),
        rule("tensor:numpy", "torch.tensor(x.detach().numpy())", "A copy of the array.", FRESH,
             needs="numpy", only=_PLAIN),
        rule("FloatTensor", "torch.FloatTensor(x.detach().numpy())",
             "A tensor on the array's memory where the array has the type of that name; else a"
             " converted copy.",
             when(When(dtype=("float32",)), _BACK), but(FRESH, dtype="float32"), needs="numpy",
             only=_PLAIN._replace(dtype=("float32", "float64", "int64")), names="Tensor",
             better="torch.as_tensor(array), or torch.tensor(array) for a copy"),
        rule("frombuffer", "torch.frombuffer(x.numpy(), dtype=x.dtype)",
             "A flat tensor on the buffer's memory, with a version counter of its own.",
             but(_BACK, layout="view"), needs="numpy", only=_PLAIN._replace(contiguous=True)),
        rule("chain:numpy-write", "x.detach().numpy()[...] = 0",
             "A write through the array changes the tensor and no version tells: a value saved for"
             " backward is changed silently, and the gradient is wrong.",
             _NO_BFLOAT,
             but(ARRAY, memory="same", gradient="keep", leaf="", version="shared", grad="same",
                 hooks="same", writes="unseen"), result="x", needs="numpy",
             only=When(device="cpu"))),
    *family("DLPack",
        rule("from_dlpack", "torch.from_dlpack(x)",
             "A tensor on the same memory through another storage, with a version counter of its"
             " own; one that requires grad raises.",
             raises("BufferError: Can't export tensors that require gradient", GRAD), _BACK),
        rule("chain:detach-from_dlpack", "torch.from_dlpack(x.detach())",
             "A tensor on the same memory, outside the graph; writes through it bump only its own"
             " version.",
             _BACK),
        rule("__dlpack__", "x.__dlpack__()",
             "A capsule that lends the tensor's memory to another library.",
             raises("BufferError: Can't export tensors that require gradient", GRAD),
             but(VALUES, waits=False)),
        rule("chain:np-from_dlpack", "np.from_dlpack(x)",
             "An array on the tensor's memory that NumPy treats as it was exported.",
             raises("BufferError: Can't export tensors that require gradient", GRAD), _NO_DLPACK,
             ARRAY, needs="numpy", only=When(device="cpu"))),
    *family("Python numbers",
        rule("item", "x[0, 0].item()",
             "One Python number: no tie is left, and a GPU makes the program wait.", VALUES,
             better="keep losses as detached tensors, and read them seldom"),
        rule("tolist", "x.tolist()",
             "Python numbers: no tie is left, and a GPU makes the program wait.", VALUES),
        rule("__float__", "float(x[0, 0])",
             "One Python number: no tie is left, a GPU makes the program wait, and a tensor that"
             " requires grad warns.",
             VALUES, only=When(dtype=(*FLOATS, "int64", "bool")), names="__int__ __index__"),
        rule("__bool__", "bool(x[0, 0])", "True or False: a GPU makes the program wait.", VALUES),
        rule("chain:item-tensor", "torch.tensor(x[0, 0].item())",
             "Through a Python number: a new tensor of the default type, the gradient cut.",
             but(FRESH, dtype="float32", layout="view", waits=True, allocations=0),
             only=When(dtype=FLOATS), better="x[0, 0].detach().clone()"),
        rule("chain:tolist-tensor", "torch.tensor(x.tolist())",
             "Through Python numbers: a new tensor of the default type, slow, the gradient cut.",
             but(FRESH, dtype="float32", layout="contiguous", waits=True), only=When(dtype=FLOATS),
             better="x.detach().clone()"),
        rule("tensor:list", "torch.tensor([x[0, 0], x[0, 1]])",
             "A list of tensors is read number by number: the gradient is cut.",
             but(FRESH, dtype="", layout="contiguous", waits=True, allocations=0),
             only=When(dtype=("float32",)), better="torch.stack([a, b])")),
    *family("Files",
        rule("load", "torch.save(x, path) or torch.load(path)",
             "A copy by way of a file: memory of its own, outside the graph, requires_grad kept.",
             when(GRAD, but(_LOADED, requires_grad="yes", leaf="yes")), _LOADED,
             setup="path = temporary()", names="save"),
        rule("load:mmap", "torch.save(x, path) or torch.load(path, mmap=True)",
             "The file's own pages, read when touched; a write stays private to the process.",
             when(GRAD, but(_LOADED, requires_grad="yes", leaf="yes")), _LOADED,
             setup="path = temporary()", only=When(device="cpu")),
        rule("load:view", "torch.save(x[:1], path) or torch.load(path)",
             "A saved view takes its whole storage along.",
             when(GRAD, but(_LOADED, requires_grad="yes", leaf="yes", layout="view")),
             but(_LOADED, layout="view"), setup="path = temporary()",
             better="torch.save(x[:1].clone(), path)")),
)
