"""What a program hands out, without a recorder: the oracle of `test_broken_programs`.

Its results are what its functions return, what its variables hold at the end, what it prints, and
the error that it ends with; its memory is the nodes of graphs and the bytes that are alive when a
function that the module calls returns, and at the end.
"""

import contextlib
import json
import math
import subprocess

from warm import python

RUN = """
import contextlib, gc, io, json, random, re, sys, types, warnings
import numpy as np, torch
warnings.simplefilter("ignore")
random.seed(0); np.random.seed(0); torch.manual_seed(0)
path = sys.argv[1]
sys.argv = [path]
results, memory = {}, {"nodes": 0, "bytes": 0, "leaves": 0}
MOST = 3000

def add(where, value, depth=0):
    if depth > 6 or len(results) > MOST: return
    if isinstance(value, torch.Tensor):
        try:
            flat = value.detach().to("cpu").to(torch.complex128 if value.is_complex() else torch.float64).reshape(-1)
            ramp = torch.arange(1., len(flat) + 1, dtype=torch.float64)
            flat = torch.view_as_real(flat).sum(1) if flat.is_complex() else flat
            if flat.numel() == 1: return add(where, float(flat[0]), depth)
            row = [list(value.shape), *(float(x) for x in (flat.sum(), flat.abs().sum(), flat @ ramp))]
        except Exception as error:
            row = type(error).__name__
        results.setdefault(where, []).append(row)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        add(where, torch.from_numpy(value.astype(np.float64)), depth)
    elif isinstance(value, (bool, int, float, str)) or value is None:
        results.setdefault(where, []).append(value if isinstance(value, str) or value is None else float(value))
    elif isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        results.setdefault(where, []).append(len(value))
        for number, one in enumerate(list(value)[:64]): add(where + "[]", one, depth + 1)
    elif isinstance(value, dict):
        for key, one in list(value.items())[:64]: add(where + "{" + str(key) + "}", one, depth + 1)
    elif isinstance(value, torch.nn.Module):
        for key, one in list(value.state_dict().items())[:64]: add(where + "." + key, one, depth + 1)
    elif hasattr(value, "__dict__") and type(value).__module__ == "__main__":
        for key, one in list(vars(value).items())[:64]: add(where + "." + key, one, depth + 1)

def graph(tensors):
    waiting, seen = [one.grad_fn for one in tensors if getattr(one, "grad_fn", None) is not None], set()
    while waiting:
        node = waiting.pop()
        if node in seen: continue
        seen.add(node)
        waiting += [one for one, _ in node.next_functions if one is not None]
    return seen

engine = torch.autograd._engine_run_backward
def run_backward(losses, *args, **kwargs):
    leaves = sum(hasattr(one, "variable") for one in graph(losses))
    memory["leaves"] = max(memory["leaves"], leaves)
    return engine(losses, *args, **kwargs)
torch.autograd._engine_run_backward = run_backward

def weigh():
    gc.collect()
    tensors = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
    tensors += [one.grad for one in tensors if one.is_leaf and one.grad is not None]
    seen, storages = graph(tensors), {}
    for one in tensors:
        with contextlib.suppress(Exception):
            storages[one.untyped_storage()._cdata] = one.untyped_storage().nbytes()
    memory["nodes"] = max(memory["nodes"], len(seen))
    memory["bytes"] = max(memory["bytes"], sum(storages.values()))

def profile(frame, event, value):
    if event == "return" and frame.f_code.co_filename == path and frame.f_code.co_name[0] != "<":
        with torch._C.DisableTorchFunction(), torch.no_grad():
            add(frame.f_code.co_qualname, value)
            above = frame.f_back
            if above is not None and above.f_code.co_name == "<module>": weigh()

main = types.ModuleType("__main__")
main.__file__ = path
sys.modules["__main__"] = main
error, printed = "", io.StringIO()
text = open(path).read()
sys.path.insert(0, ".")
with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
    sys.setprofile(profile)
    try: exec(compile(text, path, "exec"), main.__dict__)
    except BaseException as raised: error = f"{type(raised).__name__}: {raised}".split("\\n")[0][:300]
    sys.setprofile(None)
torch.set_grad_enabled(True)
weigh()
for name, value in list(main.__dict__.items()):
    if not name.startswith("__"):
        with torch.no_grad(): add("= " + name, value)
text = re.sub(r"grad_fn=<\\w+>|tensor|requires_grad=True", "", printed.getvalue())
results["printed"] = [float(x) if x[-1] not in "e" else x for x in re.findall(r"-?\\d+\\.?\\d*(?:e[-+]\\d+)?|True|False|None", text)]
json.dump({"results": results, "memory": memory, "error": error}, open("outcome.json", "w"))
"""


def outcome_of(folder, name="main.py"):
    """Run a program that lies in a folder; return what it handed out, or None if it hangs."""
    (folder / "run.py").write_text(RUN)
    answer = folder / "outcome.json"
    answer.unlink(missing_ok=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        python("run.py", name, folder=folder, timeout=60)
    return json.loads(answer.read_text()) if answer.exists() else None


def differs(one, other):
    """Return what differs between two outcomes: "error", "gradients", "results", "memory", or ""."""
    if one["error"] != other["error"]:
        return "error"
    if other["memory"]["leaves"] < one["memory"]["leaves"]:
        return "gradients"
    if not _same(one["results"], other["results"]):
        return "results"
    nodes, more = one["memory"]["nodes"], other["memory"]["nodes"]
    return "memory" if more > 2 * nodes + 20 else ""


def _same(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6) or (
            one != one and other != other
        )
    return one == other
