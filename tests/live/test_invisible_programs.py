"""Programs of every kind behave, bit for bit, as if nobody recorded them."""

import pytest

from differential import run, same

PROGRAMS = {
    "a profiler, a dispatch mode, anomaly mode and a flop counter hear no operation more": """
from torch.profiler import profile, ProfilerActivity
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
class Names(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names.append(str(func)); return func(*args, **(kwargs or {}))
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
dead = torch.nn.Parameter(torch.zeros(3))
def train(steps):
    opt = torch.optim.Adam([*net.parameters(), dead])
    for _ in range(steps):
        loss = net(torch.randn(3, 4)).square().mean() + (dead * 0).sum()
        opt.zero_grad(); loss.backward(); opt.step()
        kept.append(loss.detach().numpy())
kept, names = [], []
with profile(activities=[ProfilerActivity.CPU]) as seen: train(5)
show(sorted((e.key, e.count) for e in seen.key_averages()))
with Names(): train(5)
print(names)
with FlopCounterMode(display=False) as flops: train(2)
show(flops.get_total_flops())
with torch.autograd.detect_anomaly(check_nan=False): train(1)
with torch.sparse.check_sparse_tensor_invariants(): show(torch.eye(3).to_sparse() @ torch.ones(3, 1))
""",
    "tensors that swap, and all that is built on it": """
c, d = torch.ones(2), torch.arange(3.0)
torch.utils.swap_tensors(c, d); show(c, d, c + 1)
torch.__future__.set_swap_module_params_on_conversion(True)
m = torch.nn.Linear(4, 4); before = [id(p) for p in m.parameters()]
m.to(torch.float64); m.load_state_dict(torch.nn.Linear(4, 4).double().state_dict())
show([id(p) for p in m.parameters()] == before, m.weight.dtype)
opt = torch.optim.SGD(m.parameters(), lr=0.1)
m(torch.ones(2, 4).double()).sum().backward(); opt.step(); show(m.weight, m.weight.grad)
from torch.testing._internal.two_tensor import TwoTensor
n = torch.nn.Linear(2, 2)
n.weight = torch.nn.Parameter(TwoTensor(torch.ones(2, 2), torch.ones(2, 2)))
show(n.to(torch.float64).weight.dtype)
""",
    "vmap, grad, jacrev, functional_call": """
from torch.func import vmap, grad, jacrev, jacfwd, hessian, functional_call, vjp, jvp
x = torch.randn(5, 3)
f = lambda v: (v.sin() ** 2).sum()
show(vmap(f)(x), grad(f)(x[0]), jacrev(torch.sin)(x[0]), jacfwd(torch.cos)(x[0]), hessian(f)(x[0]))
out, pull = vjp(f, x[0]); show(out, pull(torch.ones(())))
show(jvp(f, (x[0],), (torch.ones(3),)))
m = torch.nn.Linear(3, 2)
p = {k: v.detach() for k, v in m.named_parameters()}
loss = lambda p, x: functional_call(m, p, (x,)).square().sum()
show(grad(loss)(p, x), vmap(grad(loss), (None, 0))(p, x))
""",
    "checkpoint, autocast": """
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.ReLU(), torch.nn.Linear(4, 4))
x = torch.randn(3, 4, requires_grad=True)
for reentrant in (False, True):
    with torch.autocast("cpu", torch.bfloat16):
        y = checkpoint(m, x, use_reentrant=reentrant)
    y.float().square().sum().backward()
    show(y, x.grad, [p.grad for p in m.parameters()])
""",
    "custom functions and hooks of all kinds": """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x); ctx.mark_dirty(y); y.add_(1)
        return x * 2, y
    @staticmethod
    def backward(ctx, g, h):
        x, = ctx.saved_tensors
        print("backward", type(x).__name__); return g * 2 + x, h
class Ctxless(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x): return x.exp()
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, g): return g * ctx.saved_tensors[0]
x = torch.randn(3, requires_grad=True); y = torch.zeros(3)
a, b = Double.apply(x, y); show(a, b, y, y._version)
show(torch.func.vmap(Ctxless.apply)(torch.randn(2, 3)))
m = torch.nn.Linear(3, 3)
m.register_forward_pre_hook(lambda m, i: print("pre"))
m.register_forward_hook(lambda m, i, o: o * 2)
m.register_full_backward_hook(lambda m, gi, go: print("full", len(gi)))
m.weight.register_hook(lambda g: g * 3)
m.weight.register_post_accumulate_grad_hook(lambda p: print("post", p.grad is not None))
z = m(a + b); z.register_hook(lambda g: print("z")); z.retain_grad()
z.grad_fn.register_hook(lambda gi, go: print("node")); z.grad_fn.register_prehook(lambda go: print("nodepre"))
with torch.autograd.graph.saved_tensors_hooks(lambda t: (print("pack"), t)[1], lambda t: (print("unpack"), t)[1]):
    w = (z * z).sum()
with torch.autograd.graph.save_on_cpu():
    w = w + z.exp().sum()
w.backward(); show(x.grad, m.weight.grad, z.grad)
torch.autograd.graph.register_multi_grad_hook((x, m.weight), lambda gs: print("multi", len(gs)))
with torch.autograd.detect_anomaly(check_nan=False):
    (x * 2).sum().backward()
""",
    "warnings: file, line, count, registry": """
import warnings
def once(): return torch.arange(3).T if False else torch.ones(2, requires_grad=True)
for i in range(3):
    torch.tensor(torch.ones(2))
    torch.tensor(torch.ones(2)); torch.ones(3).T
    torch.nn.functional.mse_loss(torch.ones(3), torch.ones(3, 1))
y = once() * 2
y.grad
y.grad
torch.nn.functional.softmax(torch.ones(3))
float(torch.ones(1, requires_grad=True))
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    torch.tensor(torch.ones(2)); torch.nn.functional.l1_loss(torch.ones(3), torch.ones(3, 1))
print([(w.filename[-10:], w.lineno, w.category.__name__) for w in seen])
print(sorted((str(k[0])[:20], k[2]) for k in globals().get("__warningregistry__", {}) if isinstance(k, tuple)))
warnings.simplefilter("error")
try: torch.tensor(torch.ones(2))
except UserWarning as e: print("raised", e)
""",
    "a warning from within a scheduler": """
import warnings
w = torch.ones(1, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    torch.optim.lr_scheduler.ReduceLROnPlateau(opt).step(w * 2)
print([(one.filename[-16:], one.lineno) for one in seen])
""",
    "repr, pickle and saved bytes": """
import io, pickle, copy, hashlib
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
opt = torch.optim.AdamW(m.parameters()); m(torch.randn(4, 3)).sum().backward(); opt.step()
x = torch.randn(3, requires_grad=True); y = (x * 2).view(3)
print(x, y, repr(m), m.weight if hasattr(m, "weight") else "", f"{x.sum():.3f}", str(opt))
for thing in (x, m, m.state_dict(), opt.state_dict(), [x.detach(), x.detach()[1:]]):
    again = pickle.loads(pickle.dumps(thing)); print(type(again).__name__)  # holds an address
    f = io.BytesIO(); torch.save(thing, f); show(hashlib.sha1(f.getvalue()).hexdigest(), len(f.getvalue()))
f.seek(0); show(torch.load(f, weights_only=True)); show([p for p in copy.deepcopy(m).parameters()])
print(x.__dict__, vars(m[0]).keys(), dir(x) == dir(torch.Tensor) or sorted(set(dir(x)) - set(dir(torch.Tensor))))
""",
    "memory is released where it was, and no cycle is added": """
import gc, sys, weakref
gc.collect(); gc.disable()
class Box: pass
gone = []
def f():
    x = torch.randn(3, requires_grad=True); y = (x * 2).exp(); z = y.detach()[1:]; a = z.numpy()
    for n, t in (("x", x), ("y", y), ("z", z)): weakref.finalize(t, gone.append, n)
    weakref.finalize(y.untyped_storage(), gone.append, "storage")
    print(sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(y.grad_fn))
    y.sum().backward(); del y; print(gone)
    torch.stack([x, x]).sum(); print(gone); return a
a = f(); print(gone); del a; print(gone)
m = torch.nn.Linear(3, 3); weakref.finalize(m.weight, gone.append, "w"); o = torch.optim.Adam(m.parameters())
m(torch.ones(3)).sum().backward(); o.step(); o.zero_grad(); del m, o; gc.collect(); print(gone)
try:
    big = torch.ones(3); weakref.finalize(big, gone.append, "big"); big @ torch.ones(4)
except RuntimeError as e: print(e)
del big; print(gone)
print(gc.collect())
""",
    "nested, sparse, quantized, named, complex, meta, fake": """
s = torch.eye(3).to_sparse().requires_grad_(); (torch.sparse.mm(s, torch.ones(3, 2))).sum().backward(); show(s, s.grad)
show(torch.eye(3).to_sparse_csr() @ torch.ones(3, 1))
n = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]); show(n * 2, n.to_padded_tensor(0.0), list((n + 1).unbind()))
j = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged, requires_grad=True); (j.sin() * 2).values().sum().backward(); print(j.grad is not None)
q = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8); show(q, q.dequantize(), q.int_repr())
print(torch.ones(2, 3, names=("a", "b")).sum("a"))
c = torch.randn(3, dtype=torch.cfloat, requires_grad=True); (c.conj() * c).real.sum().backward(); show(c.grad, torch.view_as_real(c), c.imag, c.conj().is_conj())
print((torch.ones(3, device="meta") + 1))
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode() as fake:
    print(torch.nn.Linear(3, 4)(torch.ones(2, 3)))
from torch.fx.experimental.proxy_tensor import make_fx
print(make_fx(lambda x: x.sin() + 1)(torch.ones(3)).code)
print(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())).code)
from torch.masked import masked_tensor
""",
    "subclasses and modes of the user's": """
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print("heard", getattr(func, "__name__", func), [t.__name__ for t in types])
        return super().__torch_function__(func, types, args, kwargs or {})
x = torch.ones(3).as_subclass(Loud); y = x * 2; y += 1; show(y); z = torch.cat([y, y]); z.sum()
p = torch.nn.Parameter(torch.ones(3).as_subclass(Loud)); (p * 2).sum().backward()
o = torch.optim.SGD([p], lr=0.1); o.step(); o.zero_grad()
class Fn(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        print("fn", func.__name__); return func(*args, **(kwargs or {}))
class Di(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        print("di", func); return func(*args, **(kwargs or {}))
with Fn(), Di():
    torch.nn.functional.softmax(torch.ones(2, requires_grad=True), 0).sum().backward()
with torch._C.DisableTorchFunction(): torch.ones(3) + 1
with torch.device("meta"): print(torch.ones(2).device)
torch.set_default_device("cpu"); show(torch.ones(2))
""",
    "attention keeps its fused kernels": """
for train in (False, True):
    for fast in (False, True):
        torch.manual_seed(1)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        enc = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=fast).train(train)
        mha = torch.nn.MultiheadAttention(8, 2, batch_first=True).train(train)
        x = torch.randn(2, 5, 8); pad = torch.tensor([[False] * 5, [False, False, False, True, True]])
        with torch.no_grad():
            show(enc(x), enc(x, src_key_padding_mask=pad), mha(x, x, x)); show(mha(x, x, x, need_weights=False))
        show(enc(x), mha(x, x, x, key_padding_mask=pad))
""",
    "TorchScript": """
@torch.jit.script
def f(x: torch.Tensor, n: int) -> torch.Tensor:
    for i in range(n): x = torch.nn.functional.relu(x) + i
    return x
show(f(torch.randn(3), 3)); print(f.code)
m = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(), torch.nn.BatchNorm1d(3)))
show(m(torch.randn(4, 3))); print(m.code)
t = torch.jit.trace(torch.nn.Linear(3, 3), torch.randn(2, 3)); print(t.graph); show(t(torch.ones(2, 3)))
a = torch.jit.script(torch.nn.MultiheadAttention(4, 2)); show(a(torch.ones(2, 1, 4), torch.ones(2, 1, 4), torch.ones(2, 1, 4)))
@torch.jit.script
def asks(x: torch.Tensor) -> bool: return torch.overrides.has_torch_function((x,))
print(asks(torch.ones(2)))
""",
    "data loader workers, fork and spawn": """
from torch.utils.data import DataLoader, TensorDataset
import multiprocessing, os
data = TensorDataset(torch.arange(12.).view(6, 2), torch.arange(6))
for workers in (0, 2):
    for x, y in DataLoader(data, batch_size=2, num_workers=workers, shuffle=True, generator=torch.Generator().manual_seed(3)):
        show(x, y)
def work(n): return (torch.ones(3) * n).sum().item()
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(work, range(4)))
pid = os.fork()
if pid == 0: (torch.ones(2) * 2).sum(); os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""",
    "threads and asyncio": """
import threading, asyncio, concurrent.futures
out = {}
def work(n):
    x = torch.full((3,), float(n), requires_grad=True)
    with torch.no_grad(): y = x * 2
    (x * 3).sum().backward(); out[n] = (x.grad, y, torch.is_grad_enabled())
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
show([out[n] for n in range(4)])
with concurrent.futures.ThreadPoolExecutor(3) as pool: show(list(pool.map(lambda n: torch.ones(2) * n, range(5))))
async def go(n):
    with torch.set_grad_enabled(n % 2 == 0):
        x = torch.ones(2, requires_grad=True) * n; return x
async def main(): return await asyncio.gather(*[go(n) for n in range(4)])
show(asyncio.run(main()))
def boom(): raise ValueError("in a thread")
threading.excepthook = lambda a: print(a.exc_type, a.exc_value)
t = threading.Thread(target=boom); t.start(); t.join()
""",
    "exceptions, their text and what is left afterwards": """
import traceback
def tries(f):
    try: f()
    except Exception as e: print(type(e).__name__, str(e)[:300], e.__cause__, e.__context__)
x = torch.ones(3, requires_grad=True)
tries(lambda: x.add_(1)); tries(lambda: x.numpy()); tries(lambda: torch.ones(2) @ torch.ones(3)); tries(lambda: x.backward())
y = x.exp(); y.add_(1); tries(lambda: y.sum().backward()); tries(lambda: torch.nn.Linear(2, 2)(torch.ones(3)))
tries(lambda: torch.nn.Parameter("no")); tries(lambda: torch.from_numpy([1])); tries(lambda: x.view(7)); tries(lambda: bool(torch.ones(2)))
with torch.inference_mode(): i = torch.ones(3)
tries(lambda: i.requires_grad_()); tries(lambda: (x * i).sum().backward()); tries(lambda: i._version)
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g): raise KeyError("bad")
tries(lambda: Bad.apply(x).sum().backward())
o = torch.optim.SGD([x], lr=1); tries(lambda: o.step(lambda: 1 / 0)); print(torch._C._len_torch_function_stack() <= 1)
def deep(): return torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 5]))
deep()
""",
    "exit by sys.exit": "import sys\nx = torch.ones(3) * 2\nshow(x)\nsys.exit(7)\n",
    "an exception ends it": "def f(x):\n    return torch.relu(x).view(5)\nf(torch.ones(3))\n",
    "an exception in a module ends it": "m = torch.nn.Sequential(torch.nn.Linear(2, 2))\nm(torch.ones(3))\n",
    "stdout replaced, modules cleared, chdir, source deleted": """
import sys, io, os, gc
os.remove(__file__); os.chdir("/"); real = sys.stdout; sys.stdout = io.StringIO()
x = torch.ones(3, requires_grad=True); (x * 2).sum().backward(); show(x.grad)
text = sys.stdout.getvalue(); sys.stdout = real; print(text)
for name in [n for n in sys.modules if n.startswith("tether") or n in ("linecache", "functools")]: del sys.modules[name]
show(x.clone().detach().numpy().sum()); globals().pop("__file__"); gc.collect(); show(torch.relu(x))
""",
    "methods of Tensor redefined, code without source": """
add, clone = torch.Tensor.__add__, torch.Tensor.clone
torch.Tensor.__add__ = lambda a, b: add(a, b)
torch.Tensor.clone = lambda self, *a: clone(self, *a)
torch.Tensor.stride = lambda *a: 1 / 0
torch.Tensor.is_cpu = property(lambda self: 1 / 0)
torch.Tensor.untyped_storage = lambda *a: 1 / 0
x = torch.ones(3); show((x + 1).clone())
exec(compile("y = torch.ones(3) * 2\\nshow(y)", "<nowhere>", "exec"))
exec("z = y.relu()\\nz += 1\\nshow(z)"); eval("show(torch.ones(2).neg())")
f = (lambda: x.mul(2)); f.__code__ = f.__code__.replace(co_linetable=b"", co_filename="gone.py"); show(f())
""",
    "functions and methods replaced by louder ones are called as often as ever": """
import torch.nn.functional as F
def loud(owner, name):
    real = getattr(owner, name)
    def mine(*a, **k):
        print(name); return real(*a, **k)
    setattr(owner, name, mine)
for n in ("clone","backward","sum","size","relu","__add__","__getitem__","requires_grad_","detach","split","norm","add_","__mul__","__repr__","item","__array__", "numpy","to"): loud(torch.Tensor, n)
for n in ("softmax","linear","cross_entropy","max_pool1d", "dropout"): loud(F, n)
loud(torch,"clone"); loud(torch,"stack"); loud(torch, "einsum"); loud(torch.nn.init, "uniform_")
real_grad = torch.Tensor.grad
torch.Tensor.grad = property(lambda s: (print("grad get"), real_grad.__get__(s))[1], lambda s, v: (print("grad set"), real_grad.__set__(s, v))[1])
class Callable:
    def __init__(s, f): s.f=f
    def __call__(s,*a,**k): print("obj"); return s.f(*a,**k)
torch.Tensor.exp = Callable(torch.Tensor.exp)
x=torch.ones(3, requires_grad=True)
y=(x.clone()+1)*2; y[0].sum().backward(); show(x.grad); x.grad=None
print(x.size(), torch.clone(x), x.detach().relu().add_(1), x.detach().requires_grad_().split(2), x.norm().item(), x.detach().numpy(), x.to(torch.float64))
print(F.softmax(x,0), F.linear(x,torch.ones(2,3)), F.cross_entropy(x[None], torch.tensor([1])), torch.stack([x,x]), torch.einsum("i->",x), F.max_pool1d(torch.ones(1,1,4),2))
print(torch.nn.Linear(2,2)(torch.ones(1,2)).shape, torch.Tensor.exp(x), x.tanh())
""",
    "a list of the program's own class that is given to PyTorch again": """
class Loud(list):
    def __getitem__(self, at): print("item", at); return list.__getitem__(self, at)
    def __iter__(self): print("iter"); return list.__iter__(self)
    def __len__(self): print("len"); return list.__len__(self)
numbers = Loud(range(2000))
for _ in range(3): show(torch.tensor(numbers), torch.as_tensor(numbers))
""",
    "an array of the program's own class": """
import numpy as np
class Loud(np.ndarray):
    @property
    def base(self): print("base")
    @property
    def __array_interface__(self): print("interface"); return super().__array_interface__
    @property
    def nbytes(self): print("nbytes"); return 1
numbers = np.arange(64.0).view(Loud)
x = torch.from_numpy(numbers).mul_(2); x.numpy()[1] = 2.0; x.add_(1)
show(torch.tensor(numbers[8:]), torch.as_tensor(numbers), torch.tensor(np.asarray(numbers)[8:]), x)
for row in np.arange(64.0).reshape(8, 8).view(Loud): show(torch.tensor(row), torch.tensor(row).float())
""",
    "warnings that count frames upwards": """
import warnings, torch.nn as nn, torch.nn.functional as F
def all_of_them(x):
    nn.Softmax()(x); nn.LogSoftmax()(x); nn.Softmin()(x); nn.Sequential(nn.Softmax())(x)
    F.softmax(x); F.log_softmax(x); F.softmin(x); F.gumbel_softmax(x, dim=0); F.softmax(x, _stacklevel=4)
class Mine(nn.Module):
    def forward(self, x): return F.softmax(x, _stacklevel=6)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(2): all_of_them(torch.ones(2, 3))
    Mine()(torch.ones(2, 3))
    torch.func.vmap(nn.Softmax())(torch.ones(2, 3, 3))
for w in seen: print(w.filename, w.lineno, w.category.__name__, w.message)
for _ in range(3): all_of_them(torch.ones(2, 3))
nn.Softmax()(torch.ones(3)); show(nn.Softmax()(torch.ones(3)))
print(torch.jit.script(nn.Softmax(dim=0))(torch.ones(2)), torch.jit.script(nn.Softmax()).code)
import inspect; print(inspect.getsource(F._get_softmax_dim))
""",
    "warnings at the line that called": """
import warnings, numpy as np
def all_of_them(m, opt, fixed):
    torch.from_numpy(fixed); torch.as_tensor(fixed); torch.frombuffer(b"abcd", dtype=torch.uint8)
    torch.tensor(torch.ones(3)); (m.weight * 2).grad; torch.ones(3, dtype=torch.complex64).float()
    torch.optim.lr_scheduler.StepLR(opt, 1).step(5); torch.ones(2, 3, 4).T
    torch.meshgrid(torch.arange(2), torch.arange(3)); m.weight.sum().backward(create_graph=True)
    torch.Tensor([fixed, fixed])
fixed = np.zeros(3); fixed.setflags(write=False)
m = torch.nn.Linear(3, 3); opt = torch.optim.SGD(m.parameters(), 0.1)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(2): all_of_them(m, opt, fixed)
for w in seen: print(w.filename, w.lineno, w.category.__name__, w.message)
kept = torch.ones(3)
kept.volatile = False
kept.clone().volatile = True
kept.storage(); print(len(kept.storage()))
torch.set_default_tensor_type(torch.FloatTensor); print(torch.ones(1).dtype)
""",
    "containers with code of their own": """
class Lazy(dict):
    def items(self): print("items"); return super().items()
    def values(self): print("values"); return super().values()
    def __iter__(self): print("iter"); return super().__iter__()
class Seq(list):
    def __iter__(self): print("list iter"); return super().__iter__()
    @property
    def __class__(self): print("class"); return list
class Thing:
    @property
    def __class__(self): print("thing"); return dict
    def __getattr__(self, name): print("attr", name); raise AttributeError(name)
lazy, seq, thing = Lazy(a=torch.ones(2)), Seq([torch.ones(2), torch.ones(2)]), Thing()
w = torch.ones(2, requires_grad=True); o = torch.optim.Adam([w])
for _ in range(3): o.zero_grad(); (w * torch.stack(list(seq)).sum()).sum().backward(); o.step()
show(torch.ops.aten.add(lazy["a"], 1), w); print(torch.utils._pytree.tree_map(lambda t: t + 1, dict(lazy)))
""",
    "replaced and put back, and a library's own protocol": """
real = torch.Tensor.clone
for _ in range(2):
    torch.Tensor.clone = lambda self: (print("mine"), real(self))[1]
    show(torch.ones(2).clone()); torch.Tensor.clone = real; show(torch.ones(2).clone())
def theirs(x):
    print("theirs")
    if torch.overrides.has_torch_function((x,)): return torch.overrides.handle_torch_function(theirs, (x,), x)
    return x * 2
show(theirs(torch.ones(2)))
backward = torch.Tensor.backward
torch.Tensor.backward = lambda self, *a, **k: (print("backward"), backward(self, *a, **k))[1]
x = torch.ones(2, requires_grad=True); (x * 2).sum().backward(); x.sum().backward(); show(x.grad)
""",
    "random streams": """
import random, numpy
g = torch.Generator().manual_seed(4)
show(torch.randn(3), torch.rand(2, generator=g), torch.nn.Dropout()(torch.ones(8)), torch.randperm(5), torch.nn.Linear(3, 3).weight)
print(random.random() >= 0, numpy.random.rand()); show(torch.bernoulli(torch.full((5,), 0.5)), torch.get_rng_state().sum())
with torch.random.fork_rng(): torch.rand(3)
show(torch.empty(3).normal_(), torch.distributions.Normal(0, 1).rsample((2,)))
""",
}
COMPILED = {
    "compiled: the same graphs, no recompilation": """
graphs = []
def backend(gm, example): graphs.append(len(list(gm.graph.nodes))); return gm.forward
m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
opt = torch.optim.Adam(m.parameters()); c = torch.compile(m, backend=backend, fullgraph=True)
for _ in range(3): opt.zero_grad(); loss = c(torch.randn(8, 4)).square().mean(); loss.backward(); opt.step()
@torch.compile(backend=backend)
def f(x):
    y = x.sin(); torch._dynamo.graph_break(); return y.cos()
show(f(torch.ones(3)), loss); step = torch.compile(opt.step, backend=backend); step(); step()
layer = torch.compile(torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval(), backend=backend)
with torch.no_grad(): show(layer(torch.ones(2, 3, 8)))
@torch._dynamo.disable
def quiet(x): return x * 2
@torch.compile(backend=backend)
def calls(x): return quiet(x.sin()) + 1
show(calls(torch.ones(2)), torch.from_numpy(__import__("numpy").ones(2)))
print(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)).graph_module.code)
@torch.compile(backend=backend)
def fails(x): return x.view(7)
try: fails(torch.ones(3))
except Exception as e: print(type(e).__name__)
show(torch.ones(2).relu()); print(graphs, torch._dynamo.utils.counters["stats"])
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_shows(name):
    watched = same(PROGRAMS[name])
    assert watched.operations
    assert not [gap for gap in watched.gaps if gap == "failed"]


@pytest.mark.rest
def test_compiled_code_runs_compiled_and_is_told_from_its_graphs():
    watched = same(COMPILED["compiled: the same graphs, no recompilation"])
    assert watched.operations.count("sin") >= 2  # of graphs that are parted by a break
    assert watched.operations.count("compiled") >= 1  # what no graph covers
    assert "relu" in watched.operations  # heard again after a region that raised
    assert "compiled" in watched.gaps


def test_eagerly_a_compiled_function_is_heard():
    program = """
import torch
f = torch.compile(lambda x: x.sin() + 1)
print(f(torch.ones(2)))
"""
    watched = run(program, recorded=True, eager=True)
    assert watched.code == 0, watched.stderr
    assert "sin" in watched.operations
    assert "compiled" not in watched.operations


def test_only_the_steps_asked_for_are_recorded():
    program = """
w = torch.ones(3, requires_grad=True); o = torch.optim.Adam([w])
for i in range(6):
    if i in (0, 1, 4, 5): assert torch._C._len_torch_function_stack() == 0, i
    o.zero_grad(); (w * 2).sum().backward(); o.step(); show(w)
"""
    watched = same(program, steps=(2, 4))
    assert watched.operations.count("step") == 2
    assert watched.operations.count("backward") == 2
    assert watched.gaps == ["steps"]


def test_the_comparison_can_fail():
    with pytest.raises(AssertionError):
        same("print(torch._C._len_torch_function_stack())")
    with pytest.raises(AssertionError):
        same("import sys; sys.exit(torch._C._len_torch_function_stack())")
