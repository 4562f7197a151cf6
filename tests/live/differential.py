"""Runs a program twice, bare and recorded, and compares everything that can be seen of it.

``same(program)`` asserts that stdout, stderr (warnings with their file and line, tracebacks with
tether's frames taken out), the exit code and the random streams agree, and returns the trace's
operations. Programs print what matters; `SHOW` gives them ``show(x)``, which prints the exact bits
of tensors in any container.

The processes are forked from one that has imported torch, so a pair takes a tenth of a second.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SHOW = """
import torch, hashlib
def show(*values):
    for value in values:
        print(_bits(value))
def _bits(v):
    if isinstance(v, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            if v.layout is not torch.strided or v.is_quantized or v.is_nested:
                text = repr(v)
            elif v.device.type == "meta":
                text = "meta"
            else:
                d = v.detach().resolve_conj().resolve_neg().cpu().contiguous()
                text = hashlib.sha1(d.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
            return (type(v).__name__, str(v.dtype), tuple(v.shape), v.requires_grad, text)
    if isinstance(v, (list, tuple)):
        return [_bits(x) for x in v]
    if isinstance(v, dict):
        return {k: _bits(x) for k, x in v.items()}
    return v
"""

_SERVER = r"""
import json, os, sys, types
import torch, torch._dynamo, numpy
from tether.store.fields import check
from tether.record.session import Session
from tether.record.sites import is_worn, without_our_frames

def run(job):
    import traceback
    out = os.open(job["out"], os.O_WRONLY | os.O_CREAT)
    err = os.open(job["err"], os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1); os.dup2(err, 2)
    os.chdir(job["folder"])
    torch.set_num_threads(1)
    torch.manual_seed(0); numpy.random.seed(0)
    path = job["path"]
    main = types.ModuleType("__main__"); main.__file__ = path
    sys.modules["__main__"] = main
    sys.argv = [path]
    sys.path.insert(0, job["folder"])
    code = compile(open(path).read(), path, "exec")
    session = Session(**job["options"]) if job["recorded"] else None
    mine, status, facts = sys.modules, 0, {}
    if session: session.start()
    try:
        exec(code, main.__dict__)
        for thread in [t for t in job_threads() if not t.daemon]:
            thread.join()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        status = 1
        if session: session.mute()
        kept = without_our_frames(error.__traceback__.tb_next, is_worn)
        text = "".join(traceback.format_exception(type(error), error, kept))
        os.write(2, text.encode())
    for stream in (sys.__stdout__, sys.__stderr__, sys.stdout):
        try: stream.flush()
        except Exception: pass
    random = torch.random.get_rng_state().sum().item(), float(numpy.random.rand())
    if session:
        trace = session.stop(main.__dict__)
        check(trace)
        facts = {"operations": [e.operation for e in trace.events],
                 "gaps": [g.code for g in trace.gaps],
                 "raised": [r.message for r in trace.raised]}
    facts["random"] = random
    with open(job["facts"], "w") as file:
        json.dump(facts, file)
    return status

def job_threads():
    import threading
    return [t for t in threading.enumerate() if t is not threading.main_thread()]

for line in sys.stdin:
    job = json.loads(line)
    if "preload" in job:
        for name in job["preload"]:
            getattr(__import__(name, fromlist=["x"]), "GPT2Model", None)
        print(0, flush=True)
        continue
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = run(job)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)
"""

_STAMP = re.compile(  # of the log lines of torch and its profiler
    r"^(?:[WEI]\d{4} [\d:.]+ \d+ |(?:USDT|STAGE|ERROR):[\d: -]+)", re.MULTILINE
)


@dataclass
class Seen:
    """What one run showed."""

    stdout: str
    stderr: str
    code: int
    random: list[float]
    operations: list[str]
    gaps: list[str]
    raised: list[str]


_server: subprocess.Popen[str] | None = None


def _start() -> subprocess.Popen[str]:
    global _server  # noqa: PLW0603 -- one for all tests
    if _server is None or _server.poll() is not None:
        _server = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TETHER_STRICT": "1", "OMP_NUM_THREADS": "1"},
        )
    return _server


def run(program: str, *, recorded: bool, **options: object) -> Seen:
    """Run `program` once; `options` are those of `Session`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(program)
        server = _start()
        assert server.stdin is not None
        assert server.stdout is not None
        job = {
            "path": str(path), "folder": folder, "recorded": recorded, "options": options,
            "out": f"{folder}/out", "err": f"{folder}/err", "facts": f"{folder}/facts",
        }  # fmt: skip
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        facts = json.loads(Path(folder, "facts").read_text()) if code != 99 else {}
        stderr = Path(folder, "err").read_text().replace(folder, "FOLDER")
        return Seen(
            Path(folder, "out").read_text().replace(folder, "FOLDER"),
            _STAMP.sub("", stderr),
            code,
            facts.get("random", []),
            facts.get("operations", []),
            facts.get("gaps", []),
            facts.get("raised", []),
        )


def preload(*modules: str) -> None:
    """Import modules once, in the process that all programs from now on are forked from."""
    server = _start()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps({"preload": modules}) + "\n")
    server.stdin.flush()
    server.stdout.readline()


def same(program: str, *, may_fail: bool = False, **options: object) -> Seen:
    """Assert that `program` cannot be told apart bare and recorded; return the recorded run.

    With `may_fail`, one that fails bare is not run again, and its own run is returned.
    """
    program = SHOW + program
    bare = run(program, recorded=False)
    if may_fail and bare.code:
        return bare
    watched = run(program, recorded=True, **options)
    assert bare.code != 99, bare.stderr
    assert watched.stdout == bare.stdout
    assert watched.stderr == bare.stderr
    assert watched.code == bare.code
    assert watched.random == bare.random
    return watched
