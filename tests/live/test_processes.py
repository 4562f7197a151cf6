"""Programs of several processes: each is recorded, and one report tells of all."""

import json
import os
import re
import socket

import pytest

from lengths import at_length
from tether.store.file import load_all
from warm import Child, fresh, python, tether

STARTS = """\
import multiprocessing as mp, os, subprocess, sys, torch

def work(n, queue):
    w = torch.nn.Parameter(torch.ones(3))
    torch.optim.SGD([w], .1)
    (w.detach() * n).sum().add(w.sum() * 0).backward()
    queue.put(w.grad.sum().item())

if __name__ == "__main__":
    for kind in ("fork", "spawn"):
        context = mp.get_context(kind)
        queue = context.SimpleQueue()
        process = context.Process(target=work, args=(2, queue))
        process.start()
        print(kind, queue.get())
        process.join()
        print(process.exitcode)
    child = "import sys, torch; print(torch.ones(3).neg().tolist()); sys.exit(7)"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
    print(done)
    fails = "import torch; torch.ones(3).view(2)"
    print(subprocess.run([sys.executable, "-c", fails], capture_output=True, text=True).stderr)
    print(sorted(os.environ) == sorted(eval(open("environ").read())))
"""


@pytest.mark.rest
def test_processes_that_the_program_starts(tmp_path):
    (tmp_path / "starts.py").write_text(STARTS)
    (tmp_path / "environ").write_text(repr(list(os.environ)))
    bare = python("starts.py", folder=tmp_path)
    done = tether("run", "--children", "-o", "all.tether", "starts.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout)
    assert done.stdout.endswith("True\n")
    assert "ForkProcess-1" in done.stderr
    assert "not recorded" not in done.stderr
    traces = load_all(tmp_path / "all.tether")
    assert [one.process.name for one in traces] == ["ForkProcess-1", "SpawnProcess-2", "", ""]
    assert [any(e.operation == "backward" for e in one.events) for one in traces[:2]] == [True] * 2
    assert [one.outcome for one in traces] == ["finished"] * 3 + ["raised"]
    again = tether("report", "all.tether", folder=tmp_path)
    assert again.stdout.splitlines()[1:] == done.stderr.splitlines()[1:]


@pytest.mark.rest
def test_processes_are_counted_where_they_are_not_asked_for(tmp_path):
    (tmp_path / "starts.py").write_text(STARTS)
    (tmp_path / "environ").write_text(repr(list(os.environ)))
    done = tether("run", "starts.py", folder=tmp_path)
    assert "4 child processes ran and were not recorded" in " ".join(done.stderr.split())


FORKS = """\
import os, sys, torch
child = os.fork()
if child == 0:
    torch.ones(3).neg()
    sys.exit(5)
print(os.waitpid(child, 0)[1] >> 8)
torch.zeros(2).abs()
os._exit(6)
"""


def test_forks_and_os_exit(tmp_path):
    (tmp_path / "forks.py").write_text(FORKS)
    command = ("run", "--children", "-o", "run-{pid}.tether", "forks.py")
    done = tether(*command, folder=tmp_path)
    assert (done.returncode, done.stdout) == (6, "5\n")
    traces = [load_all(file)[0] for file in tmp_path.glob("run-*.tether")]
    called = sorted([event.operation for event in one.events] for one in traces)
    assert called == [["ones", "neg"], ["zeros", "abs"]]
    assert not any(one.gaps for one in traces)


CUSTOM = """\
import sys
print("the program's own sitecustomize", [one for one in sys.path if "startup" in one])
"""
LOOKS = """\
import sys
before = list(sys.meta_path)
import torch
print(sys.path, "sitecustomize" in sys.modules, torch.__loader__, torch.__spec__.loader)
print(len(set(sys.meta_path) - set(before)), sys.argv, __name__)
"""
PARENT = """\
import subprocess, sys
print(subprocess.run([sys.executable, "looks.py", "1"], capture_output=True, text=True))
print(subprocess.run([sys.executable, "-I", "-c", "print(1)"], capture_output=True, text=True))
"""


@pytest.mark.rest
@pytest.mark.parametrize("own", [True, False])
def test_a_child_is_as_it_would_be(tmp_path, own):
    for name, text in (("looks.py", LOOKS), ("parent.py", PARENT)):
        (tmp_path / name).write_text(text)
    environment = dict(os.environ)
    if own:
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "sitecustomize.py").write_text(CUSTOM)
        rest = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path / "own"), rest]))
    bare = fresh("parent.py", folder=tmp_path, env=environment)
    command = ("-m", "tether", "run", "--children", "--json", "all.json", "-q", "parent.py")
    done = fresh(*command, folder=tmp_path, env=environment)

    def plain(text):
        return re.sub(r"0x[0-9a-f]+", "0x", text)

    # While recording, finders of the recorder's own wait for the imports of dynamo and of Numba.
    assert plain(done.stdout) == plain(bare.stdout).replace("\\n0 ", "\\n2 ")
    assert ("own sitecustomize" in done.stdout) is own
    gaps = json.loads((tmp_path / "all.json").read_text())["gaps"]
    assert [(one["code"], one["count"]) for one in gaps] == [("child", 1)]  # Python -I hears nobody


# -- ranks -----------------------------------------------------------------------------------------

RANKS = """\
import os, sys, torch, torch.distributed as dist, hashlib

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        hidden = self.body(x)
        if dist.get_rank() == 1:
            hidden = hidden.detach()
        return self.head(hidden)

dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    loss = model(torch.full((2, 4), 1.0 + dist.get_rank())).sum()
    optimizer.zero_grad()
    loss.backward()
    for p in model.head.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
values = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
with open(f"values-{dist.get_rank()}", "wb") as file:
    file.write(values)
dist.destroy_process_group()
"""


def values_of(folder, count=2):
    return [(folder / f"values-{rank}").read_bytes() for rank in range(count)]


# On a port of its own (`--standalone`): tests run beside each other.
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def run_bare(folder, *arguments, count=2):
    """Run all ranks without tether and without a launcher, and return their values."""
    meeting = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [
        Child(*arguments, folder=folder, env={**os.environ, **meeting, "RANK": str(rank)})
        for rank in range(count)
    ]
    assert [one.wait(120) for one in ranks] == [0] * count
    return values_of(folder, count)


def free_port():
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return str(some.getsockname()[1])


@pytest.mark.rest
def test_ranks_that_a_launcher_starts(tmp_path):
    (tmp_path / "train.py").write_text(RANKS)
    bare = run_bare(tmp_path, "train.py")
    files = ("-o", "run-{rank}.tether", "--json", "all.json")
    done = tether("run", *files, *LAUNCH, "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert values_of(tmp_path) == bare
    assert sorted(one.name for one in tmp_path.glob("*.tether")) == ["run-0.tether", "run-1.tether"]
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["processes"] == ["rank 0", "rank 1"]
    assert [(one["slug"], one["ranks"]) for one in found["findings"]] == [
        ("gradient-cut", ["rank 1"])
    ]
    rows = {one["name"]: one["ranks"] for one in found["gradients"]}
    assert rows == {
        "model.body.weight": "reached in rank 0, none in rank 1",
        "model.body.bias": "reached in rank 0, none in rank 1",
        "model.head.weight": "",
        "model.head.bias": "",
    }
    assert [one["code"] for one in found["gaps"]] == []
    (trace,) = load_all(tmp_path / "run-1.tether")
    reduced = [one for one in trace.events if one.operation in ("allreduce", "all_reduce")]
    assert len(reduced) == 6
    assert {trace.sites[one.site].expression for one in reduced} == {"dist.all_reduce(p.grad)"}
    assert all(one.reads[0].storage == one.writes[0].storage for one in reduced)
    again = tether("report", "run-0.tether", "run-1.tether", folder=tmp_path)
    assert again.stdout.partition("\n")[2] == done.stderr[-len(again.stdout.partition("\n")[2]) :]


@pytest.mark.rest
def test_ranks_that_are_each_run_under_tether(tmp_path):
    (tmp_path / "train.py").write_text(RANKS)
    run = ("-m", "tether", "run", "-o", "run.tether")
    done = python(*LAUNCH, *run, "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(one.name for one in tmp_path.glob("*.tether")) == ["run-0.tether", "run-1.tether"]
    assert "tether: train.py (rank 1 of 2)" in done.stderr


@pytest.mark.rest
def test_ranks_that_the_program_spawns_itself(tmp_path):
    body = RANKS[RANKS.index("torch.manual_seed") :]
    head = RANKS[: RANKS.index("dist.init")]
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    (tmp_path / "train.py").write_text(
        f"""{head}
def main(rank):
    dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=rank, world_size=2)
{indented}
if __name__ == "__main__":
    torch.multiprocessing.spawn(main, nprocs=2)
"""
    )
    done = tether("run", "--children", "-o", "run-{rank}.tether", "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(one.name for one in tmp_path.glob("*.tether")) == ["run-0.tether", "run-1.tether"]
    assert "in rank 1" in done.stderr


ENGINES = """\
import sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
        self.unused = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.body(x).detach())

dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
alike = sys.argv[1] == "tensor"  # all ranks are given the same rows
if sys.argv[1] == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
elif sys.argv[1] == "fsdp":
    from torch.distributed.fsdp import fully_shard
    for part in (model.body, model.head, model):
        fully_shard(part, mesh=mesh)
else:
    from torch.distributed.tensor import Replicate, parallel
    split = {"body": parallel.ColwiseParallel(output_layouts=Replicate())}
    split["head"] = parallel.RowwiseParallel(input_layouts=Replicate())
    model = parallel.parallelize_module(model, mesh, split)
optimizer = torch.optim.AdamW(model.parameters(), 0.1, foreach=not alike)
torch.manual_seed(0 if alike else dist.get_rank())
for step in range(3):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with open(f"values-{dist.get_rank()}", "wb") as file:
    for value in model.state_dict().values():
        value = value.to_local() if hasattr(value, "to_local") else value
        file.write(value.numpy().tobytes())
dist.destroy_process_group()
"""


@pytest.mark.rest
@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "count"),
    [
        ("ddp", 2),
        ("fsdp", 2),
        *at_length(("ddp", 4), ("fsdp", 4), ("tensor", 2), ("tensor", 4)),
    ],
)
def test_ranks_under_an_engine(tmp_path, engine, count):
    (tmp_path / "train.py").write_text(ENGINES)
    bare = run_bare(tmp_path, "train.py", engine, count=count)
    launch = (*LAUNCH[:-1], str(count))
    done = tether("run", "--json", "all.json", *launch, "train.py", engine, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert values_of(tmp_path, count) == bare
    found = json.loads((tmp_path / "all.json").read_text())
    graver = [one for one in found["findings"] if one["severity"] != "note"]
    assert all(one["ranks"] == [f"rank {rank}" for rank in range(count)] for one in graver)
    cut = next(one for one in graver if one["slug"] == "gradient-cut")
    unused = next(one for one in graver if one["slug"] == "gradient-unused")
    assert cut["site"]["line"] == 11
    assert {cut["subject"], *cut["also"]} >= {one for one in NAMED[engine] if "body" in one}
    assert unused["subject"] in NAMED[engine]
    assert sorted(one["name"] for one in found["gradients"]) == sorted(NAMED[engine])


NAMED = {
    engine: [f"model.{prefix}{part}.{kind}" for part in ("body", "head", "unused")
             for kind in ("weight", "bias")]
    for engine, prefix in (("ddp", "module."), ("fsdp", ""), ("tensor", ""))
}  # fmt: skip


PIPELINE = """\
import torch, torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

class Stage(torch.nn.Module):
    def __init__(self, last):
        super().__init__()
        self.body, self.gate, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), last

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        if self.last:
            gate = gate.detach()
        return torch.relu(self.body(x)) * gate

dist.init_process_group("gloo")
rank, count = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
module = Stage(rank == count - 1)
stage = PipelineStage(module, rank, count, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(module.parameters(), 0.1)
torch.manual_seed(7)
x, y = torch.randn(8, 8), torch.randn(8, 8)
for step in range(3):
    optimizer.zero_grad()
    schedule.step(*[x] * (rank == 0), **{"target": y} if rank == count - 1 else {})
    optimizer.step()
with open(f"values-{rank}", "wb") as file:
    for value in module.state_dict().values():
        file.write(value.numpy().tobytes())
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.parametrize("count", at_length(2, 4))
def test_the_stages_of_a_pipeline(tmp_path, count):
    (tmp_path / "train.py").write_text(PIPELINE)
    bare = run_bare(tmp_path, "train.py", count=count)
    launch = (*LAUNCH[:-1], str(count))
    done = tether("run", "--json", "all.json", *launch, "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert values_of(tmp_path, count) == bare
    found = json.loads((tmp_path / "all.json").read_text())
    (cut,) = [one for one in found["findings"] if one["severity"] != "note"]
    last = f"rank {count - 1}"
    assert (cut["slug"], cut["site"]["line"], cut["ranks"]) == ("gradient-cut", 12, [last])
    others = "rank 0" if count == 2 else f"ranks 0-{count - 2}"
    rows = {one["name"]: one["ranks"] for one in found["gradients"]}
    assert rows["module.gate.weight"] == f"reached in {others}, none in {last}"
    assert rows["module.body.weight"] == ""
