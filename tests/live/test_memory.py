"""Memory by line and variable: exact on small programs, and against counters of other kinds."""

import json
import os
import sys
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import warm
from test_examples import EXAMPLES, line_of
from tether.analysis.history import History
from tether.analysis.memory import Memory
from tether.record.running import Program, run
from tether.record.session import Session
from tether.report.formats.json import to_json
from tether.report.page.memory_drawing import drawings
from tether.report.recording import Recording, prepare
from tether.report.tables import memory as rendered
from tether.store.fields import check
from tether.store.file import load, save

TRAINING = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.GELU(), torch.nn.Linear(200, 10))
opt = torch.optim.Adam(model.parameters())
x = torch.randn(32, 100)
kept = []
for _ in range(6):
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    kept.append(loss.detach())
"""
PARAMETERS = 4 * (100 * 200 + 200 + 200 * 10 + 10)


def measured(text, folder, *, memory=True, name="program.py"):
    """Run a program under the recorder with memory asked for, as `tether memory` does."""
    path = folder / name
    path.write_text(text)
    endings = []
    saved = sys.argv, sys.path[:], sys.modules["__main__"]

    def finish(ending):
        endings.append(ending)
        return 0

    try:
        run(Program("script", str(path)), Session(memory=memory), finish)
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = saved
    (ending,) = endings
    assert ending.error is None
    prepare(ending.trace)
    check(ending.trace)
    return Memory(History(ending.trace))


def by_line(memory):
    return {
        row.site.line: (row.allocated, row.freed, row.held_end, row.held_peak, row.count)
        for row in memory.lines
    }


def consistent(memory):
    """What must hold between the tables of any account."""
    assert sum(row.allocated for row in memory.lines) == memory.allocated
    assert all(row.allocated == row.freed + row.held_end for row in memory.lines)
    assert sum(row.held_end for row in memory.lines) == memory.held_end
    assert sum(row.held_peak for row in memory.lines) == memory.peak
    assert sum(part.nbytes for part in memory.composition) == memory.peak
    assert memory.timeline[-1][1] == memory.held_end


def test_four_bytes_and_many_megabytes(tmp_path):
    memory = measured(
        "import torch\n"
        "a = torch.ones(1)\n"
        "b = a\n"
        "c = a.clone()\n"
        "v = a[:1].view(1).detach()\n"
        "n = torch.ones(4 << 20)\n"
        "del n\n"
        "e = torch.ones(0)\n",
        tmp_path,
    )
    big = 16 << 20
    assert by_line(memory) == {
        2: (4, 0, 4, 4, 1),
        4: (4, 0, 4, 4, 1),
        6: (big, big, 0, big, 1),
        8: (0, 0, 0, 0, 1),
    }
    assert memory.peak == big + 8
    assert memory.peak_site.line == 6
    assert {part.variable for part in memory.composition} == {"a, b, v", "c", "n"}
    consistent(memory)


def test_the_example_of_a_clone(tmp_path):
    name = "memory_of_a_clone"
    memory = measured((EXAMPLES / f"{name}.py").read_text(), tmp_path)
    rows = by_line(memory)
    assert rows[line_of(name, "a = torch.ones")] == (4, 0, 4, 4, 1)
    assert rows[line_of(name, "c = a.clone()")] == (4, 0, 4, 4, 1)
    assert rows[line_of(name, "copy = large.clone()")] == (64 << 20, 64 << 20, 0, 64 << 20, 1)
    assert set(rows) == {
        line_of(name, text)
        for text in ("a = torch.ones", "c = a.clone()", "large = torch", "copy = large.clone()")
    }  # `b = a` and `same = large` allocate nothing
    assert memory.peak_site.line == line_of(name, "copy = large.clone()")
    assert memory.peak == 2 * (64 << 20) + 8


def test_memory_shared_with_an_array_counts_once(tmp_path):
    memory = measured(
        "import numpy, torch\n"
        "array = numpy.zeros(1000)\n"
        "t = torch.from_numpy(array)\n"
        "u = torch.from_numpy(array)\n"
        "w = torch.ones(10)\n"
        "back = torch.from_numpy(w.numpy())\n",
        tmp_path,
    )
    assert memory.held_end == 8000 + 40
    assert by_line(memory)[3][0] == 8000
    assert 4 not in by_line(memory)
    assert 6 not in by_line(memory)


def test_memory_that_grows_under_a_tensor(tmp_path):
    memory = measured(
        "import torch\n"
        "x = torch.ones(100)\n"
        "b = torch.empty(0)\n"
        "torch.mul(x, x, out=b)\n"
        "c = torch.ones(10)\n"
        "c.resize_(1000).zero_()\n",
        tmp_path,
    )
    assert memory.held_end == 400 + 400 + 4000


def test_kinds_in_a_training_loop(tmp_path):
    memory = measured(TRAINING, tmp_path)
    kinds = memory.by_kind()
    assert kinds["parameter"] == kinds["gradient"] == PARAMETERS
    assert kinds["optimizer state"] == 2 * PARAMETERS + 4 * 4  # two averages, four step counts
    assert kinds["input"] == 32 * 100 * 4
    rows = by_line(memory)
    assert rows[12][2] == kinds["optimizer state"]
    assert rows[11] == (6 * PARAMETERS, 5 * PARAMETERS, PARAMETERS, PARAMETERS, 24)
    variables = {part.variable for part in memory.composition}
    assert {"model.0.weight", "model.0.weight.grad", "exp_avg of model.2.bias"} <= variables
    consistent(memory)


def test_the_depth_is_off_unless_asked_for(tmp_path):
    plain = measured(TRAINING, tmp_path, memory=False)
    assert not {"gradient", "optimizer state"} & plain.by_kind().keys()
    assert {11, 12} & by_line(plain).keys() == set()
    assert plain._history.trace.attached == []


def test_what_the_graph_alone_keeps(tmp_path):
    memory = measured(
        "import torch\n"
        "w = torch.ones(100, requires_grad=True)\n"
        "def forward():\n"
        "    hidden = w.exp()\n"  # exp saves its result, the sine its argument: the same memory
        "    unsaved = w + 1\n"
        "    return hidden.sin().sum() + unsaved.sum()\n"
        "loss = forward()\n"
        "loss.backward()\n",
        tmp_path,
    )
    kinds = {memory._history.site(b.site).line: memory.kind(b, b.born) for b in memory.blocks}
    assert kinds[4] == "activation"
    assert kinds[5] == "temporary"
    assert kinds[2] == "parameter"


def test_growth_names_the_line(tmp_path):
    leaking = TRAINING.replace("kept.append(loss.detach())", "kept.append(torch.ones(1000))")
    growth = measured(leaking, tmp_path).growth
    assert len(growth.held) == 6
    assert growth.per_step == 4000
    assert [(site.line, size) for site, size in growth.lines] == [(13, 16000)]
    steady = measured(TRAINING.replace("    kept.append(loss.detach())\n", ""), tmp_path).growth
    assert steady.per_step == 0
    assert steady.lines == ()


class _Counter(TorchDispatchMode):
    """Another account of the same thing, below autograd: every storage that an operation returns."""

    def __init__(self):
        super().__init__()
        self.alive, self.held, self.peak, self.total = {}, 0, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        known = {
            one.untyped_storage()._cdata
            for one in tree_leaves((args, kwargs))
            if isinstance(one, torch.Tensor)
        }
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.untyped_storage()._cdata not in known:
                self.add(one.untyped_storage())
        return result

    def add(self, storage):
        if id(storage) in self.alive:
            return
        key, size = id(storage), storage.nbytes()
        self.alive[key] = weakref.ref(storage, lambda _: self.gone(key, size))
        self.held += size
        self.total += size
        self.peak = max(self.peak, self.held)

    def gone(self, key, size):
        if self.alive.pop(key, None) is not None:
            self.held -= size


FORWARD = """
import torch
torch.manual_seed(1)
def block(x, w):
    y = x @ w
    y = y.relu()
    return y + x
kept = []
x = torch.randn(50, 50)
ws = [torch.randn(50, 50) for _ in range(4)]
for w in ws:
    x = block(x, w)
    kept.append(x[:, :1].clone())
del x
"""


def test_agrees_with_a_count_below_autograd(tmp_path):
    memory = measured(FORWARD, tmp_path)
    counter, space = _Counter(), {}
    with counter:
        exec(compile(FORWARD, "program", "exec"), space)
    assert memory.allocated == counter.total
    assert memory.peak == counter.peak
    assert memory.held_end == counter.held
    assert counter.peak > 8 * 50 * 50 * 4 / 2  # the counter counts
    consistent(memory)


RESIDENT = """
import os, torch
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident()
big = torch.ones(32 << 20)
half = big[: 16 << 20].clone()
grown = resident() - before
with open("grown.txt", "w") as file:
    file.write(str(grown))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="Linux tells resident pages")
def test_agrees_with_the_pages_of_the_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory = measured(RESIDENT, tmp_path)
    grown = int((tmp_path / "grown.txt").read_text())
    assert memory.held_end == (32 << 22) + (16 << 22)
    assert abs(grown - memory.held_end) < 8 << 20


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_agrees_with_the_allocator_of_the_device(tmp_path):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    memory = measured(
        "import torch\n"
        "a = torch.ones(1, device='cuda')\n"
        "c = a.clone()\n"
        "big = torch.ones(1 << 20, device='cuda')\n"
        "more = big.clone()\n"
        "del big\n",
        tmp_path,
    )
    own = Memory(memory._history, "cuda:0")
    (fact,) = memory._history.trace.allocators
    assert own.held_end == fact.held - before == (4 << 20) + 8
    assert own.peak == fact.peak - before == (8 << 20) + 8


def test_what_it_knows_survives_the_file(tmp_path):
    memory = measured(TRAINING, tmp_path)
    save(memory._history.trace, tmp_path / "run.tether")
    again = Memory(History(load(tmp_path / "run.tether")))
    assert again.composition == memory.composition
    assert again.lines == memory.lines


def test_the_timeline_in_one_line():
    assert rendered.sparkline([], 10) == ""
    assert rendered.sparkline([(0, 8), (1, 0), (2, 4)], 10) == "█ ▄"
    assert rendered.sparkline([(0, 1), (99, 8)], 10) == "▁▁▁▁▁▁▁▁▁█"
    assert rendered.sparkline([(0, 8), (1, 0), (98, 0), (99, 0)], 4) == "█   "


def test_plots_stack_up_to_what_is_held(tmp_path):
    memory = measured(TRAINING, tmp_path)
    times, series = rendered.by_kind_over_time(memory)
    held = dict(memory.timeline)
    assert [sum(column) for column in zip(*series.values(), strict=True)] == [
        held[at] for at in times
    ]
    pytest.importorskip("matplotlib")
    rendered.write_plot(memory._history, str(tmp_path / "m.svg"))
    assert "</svg>" in (tmp_path / "m.svg").read_text()
    (axes,) = rendered.draw(memory._history).axes
    told = [text.get_text() for text in axes.get_legend().get_texts()]
    assert told == [rendered.WORDS.get(kind, kind) for kind in series]
    assert "activation, kept for backward only" in told


@pytest.mark.parametrize("memory", [True, False])
def test_a_page_names_a_peak_only_where_all_is_counted_and_the_line_that_grows(tmp_path, memory):
    grows = TRAINING.replace("loss.detach()", "torch.ones(1000)")
    history = measured(grows, tmp_path, memory=memory)._history
    (drawn,) = drawings(history)
    text, site = drawn.growth
    assert (
        text == "From optimizer step 2 to 6 the memory held grew by 3.9 KiB a step, most of it at"
    )
    assert site.line == 13
    page = Recording(history.trace, prepared=True).html(source=False)
    assert ("Peak of memory on cpu" in page) == memory
    assert ("What calls returned held at most" in page) == (not memory)
    made = to_json(Recording(history.trace, prepared=True).about)["memory"]
    peak = Memory.of(history).peak
    assert (made["peak_bytes"], made["returned_peak_bytes"]) == (
        (peak, None) if memory else (None, peak)
    )


def test_a_run_names_the_line_that_grows_and_a_saved_recording_knows_it(tmp_path):
    (tmp_path / "leak.py").write_text(TRAINING.replace("loss.detach()", "torch.ones(1000)"))
    said = "the memory held grew by 3.9 KiB a step, most of it at leak.py:13"
    done = tether("run", "-o", "r.tether", "leak.py", folder=tmp_path)
    assert said in " ".join(done.stderr.split())
    done = tether("report", "r.tether", "--json", "r.json", folder=tmp_path)
    assert said in " ".join(done.stdout.split())
    made = json.loads((tmp_path / "r.json").read_text())["memory"]
    assert made["growth_per_step_bytes"] == 4000
    assert [(one["site"]["line"], one["bytes"]) for one in made["growth_lines"]] == [(13, 16000)]


def test_a_growth_of_a_few_bytes_is_told_only_to_who_asks(tmp_path):
    memory = measured(TRAINING, tmp_path)
    assert memory.growth.per_step == 4
    assert memory.growing is None


def test_batches_of_another_length_are_no_growth(tmp_path):
    longer = TRAINING.replace(
        "for _ in range(6):", "for n in range(8):\n    x = torch.ones(n, 100)"
    )
    memory = measured(longer.replace("    kept.append(loss.detach())\n", ""), tmp_path)
    assert memory.growth.per_step == 400
    assert memory.growing is None


def tether(*arguments, folder):
    return warm.tether(*arguments, folder=folder, env={**os.environ, "COLUMNS": "100"})


def test_the_command(tmp_path):
    (tmp_path / "p.py").write_text("import sys, torch\na = torch.ones(1)\nprint(sys.argv[1:])\n")
    done = tether("memory", "--json", "m.json", "p.py", "--lr", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['--lr', '1']\n"
    assert "Peak 4 B at p.py:2" in done.stderr
    made = json.loads((tmp_path / "m.json").read_text())["memory"]
    (row,) = made["lines"]
    assert row["site"]["line"] == 2
    assert {key: row[key] for key in row if key != "site"} == {
        "allocated": 4, "freed": 0, "held_end": 4, "held_peak": 4, "count": 1
    }  # fmt: skip
    done = tether("run", "--memory", "--json", "-", "-q", "p.py", folder=tmp_path)
    report = json.loads(done.stdout.split("\n", 1)[1])
    assert report["memory"]["peak_bytes"] == 4
    assert report["memory"]["lines"] == made["lines"]
    done = tether("run", "--memory", "p.py", folder=tmp_path)
    assert "Memory on cpu" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("memory",), "nothing to run"),
        (("memory", "gone.py"), "there is no file"),
        (("memory", "--plot", "a.txt", "p.py"), "a plot is written as"),
        (("memory", "--json", "gone/m.json", "p.py"), "no such folder"),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, says):
    done = tether(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1


MAPPED = """\
import torch
base = torch.zeros(100)
view = base[10:20]
other = base[50:]
gone = torch.ones(8, dtype=torch.float64)
del gone
array = base.numpy()
again = torch.from_numpy(array)
w = torch.ones(4, requires_grad=True)
total = (w * 2).exp().sum()
"""


def on_it(plot):
    return [(one.name, one.first, one.end) for one in plot.tenants]


def test_the_map_places_every_tensor_on_its_bytes(tmp_path):
    memory = measured(MAPPED, tmp_path)
    end = len(memory._history.events)
    plots = {plot.block.nbytes: plot for plot in memory.map(end)}
    assert set(plots) == {400, 16, 4}  # base; w and the result of exp; total
    assert on_it(plots[400]) == [
        ("base", 0, 400), ("again", 0, 400), ("view", 40, 80), ("other", 200, 400)
    ]  # fmt: skip
    assert plots[400].site.line == 2
    assert [on_it(plot) for plot in memory.map(end) if plot.kind == "parameter"] in (
        [],
        [[("w", 0, 16)]],
    )
    assert sum(plot.block.nbytes for plot in memory.map()) == memory.peak


def test_the_map_at_a_line(tmp_path):
    memory = measured(MAPPED, tmp_path)
    before = memory.map(memory.moment_of("program.py", 5))
    assert [plot.block.nbytes for plot in before] == [400, 64]
    assert on_it(before[1]) == [("gone", 0, 64)]
    with pytest.raises(LookupError, match=r"no call was recorded at program.py:6"):
        memory.moment_of("program.py", 6)


def test_the_map_as_it_is_printed(tmp_path):
    (tmp_path / "program.py").write_text(MAPPED)
    ended = tether("memory", "--json", "-", "--map", "program.py:4", "program.py", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "view 40:80" in ended.stderr
    (plot,) = json.loads(ended.stdout)["memory"]["map"]
    assert plot["bytes"] == 400
    assert {"name": "other", "first": 200, "end": 400} in plot["tensors"]


def test_a_moment_that_is_none(tmp_path):
    (tmp_path / "program.py").write_text(MAPPED)
    ended = tether("memory", "--map", "noon", "program.py", folder=tmp_path)
    assert ended.returncode == 2
    assert "--map takes peak, end or FILE:LINE, not 'noon'" in ended.stderr
