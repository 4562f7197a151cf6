"""Programs that keep graphs or memory alive in what is neither a list nor a dictionary of names.

Each program says in comments what must be found and where; see `programs.py`.
"""

import gc

import pytest

from programs import check_program, record_program

HEAD = """\
import functools, itertools
import torch
from torch import nn

net = nn.Linear(16, 16)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def step(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss
"""

FOLLOWING = """
def follow(x):
    seen = torch.relu(net(x))
    for k in range(4):
        yield (seen * k).sum()

class Book:
    def __init__(self):
        self.tracks = {}

    def run(self, key):
        track = self.tracks[key] = follow(torch.randn(64, 16))  #MARK
        for loss in track:
            if loss.detach() >= 0:
                break
        END
        return loss

def main():
    book = Book()
    for k in range(6):
        step(net(torch.ones(2, 16)).sum() + book.run(k))
    print(len(book.tracks))
main()
"""

CACHED = """
@functools.lru_cache(maxsize=None)
def distances(x):
    return torch.cdist(x, x).sum()  #MARK

def main():
    for _ in range(6):
        x = net(torch.randn(8, 16))
        step(distances(KEY) + x.sum())
main()
"""

CLASS = """
class Log:
    KEPT

def main():
    for k in range(6):
        loss = step(net(torch.ones(2, 16)).sum())
        PUT
main()
"""

ENDLESS = """
def outputs():
    for _ in range(6):
        yield net(torch.ones(2, 16))MADE

def main():
    endless = itertools.cycle(outputs())
    for _ in range(6):
        step(net(next(endless)).sum())
    print(next(endless))
main()
"""

KEPT = {
    "generators that wait in a dictionary": FOLLOWING.replace("END", "").replace(
        "#MARK", "#! graph-retained book.tracks"
    ),
    "generators that were closed": FOLLOWING.replace("END", "track.close()"),
    "a cache whose keys are new tensors": CACHED.replace("KEY", "x").replace(
        "#MARK", "#! graph-retained distances.__cache__"
    ),
    "a cache whose key is one constant": CACHED.replace("KEY", "ONES").replace(
        "\ndef main", "\nONES = torch.ones(8, 16)\n\ndef main"
    ),
    "a list of a class": CLASS.replace("KEPT", "kept = []").replace(
        "PUT", "Log.kept.append(loss)  #! graph-retained Log.kept"
    ),
    "numbers in a list of a class": CLASS.replace("KEPT", "kept = []").replace(
        "PUT", "Log.kept.append(loss.item())"
    ),
    "keys of several parts": CLASS.replace("KEPT", "kept = {}").replace(
        "PUT", 'Log.kept[k, "loss"] = loss  #! graph-retained Log.kept'
    ),
    "a set": CLASS.replace("KEPT", "kept = set()").replace(
        "PUT", "Log.kept.add(loss)  #! graph-retained Log.kept"
    ),
    "a set without graphs": CLASS.replace("KEPT", "kept = set()").replace(
        "PUT", "Log.kept.add(loss.detach())"
    ),
    "what an endless iterator repeats": ENDLESS.replace(
        "MADE", "  #! graph-retained endless"
    ),
    "what an endless iterator repeats, without a graph": ENDLESS.replace("MADE", ".detach()"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_who_keeps_graphs(name, tmp_path):
    check_program(HEAD + KEPT[name], tmp_path)


def _lines(recording):
    one = next(one for one in recording.findings if one.slug == "graph-retained")
    return {step.site.line: step.text for step in one.evidence}


def test_a_generator_that_waits_is_told_with_its_line(tmp_path):
    text = HEAD + KEPT["generators that wait in a dictionary"]
    waits = text.splitlines().index("        yield (seen * k).sum()") + 1
    recording = check_program(text, tmp_path)
    assert "a generator waits here" in _lines(recording)[waits]


def test_a_cache_is_told_with_the_line_that_makes_it_one(tmp_path):
    text = HEAD + KEPT["a cache whose keys are new tensors"]
    decorator = text.splitlines().index("@functools.lru_cache(maxsize=None)") + 1
    recording = check_program(text, tmp_path)
    assert "the cache of this function" in _lines(recording)[decorator]


CLOSED = """
def run():
    hidden = torch.relu(net(torch.randn(4096, 16)))
    return hidden.sum(), lambda: hidden.mean()

later = []
for _ in range(40):
    total, back = run()
    later.append(back)
print(len(later))
"""


def test_what_a_function_keeps_is_not_laid_to_the_variable_of_the_last_run(tmp_path):
    recording = record_program(HEAD + CLOSED, tmp_path)
    assert recording.findings
    assert all("`total`" not in one.message for one in recording.findings)
    assert any("`later`" in one.message for one in recording.findings)


VIEWED = """
rows, spread = [], []
for _ in range(6):
    hidden = net(torch.randn(64, 16))
    step(hidden.pow(2).mean())
    BODY
print(len(rows))
"""
HARDEST = "worst = int(hidden.detach().abs().sum(1).argmax())"
VIEWS = {
    "a row": ("with torch.no_grad(): rows.append(hidden[3])", True),
    "a row that is looked for": (f"{HARDEST}\n    with torch.no_grad(): rows.append(hidden[worst])",
                                True),
    "a view of a view": ("with torch.no_grad(): rows.append(hidden.t()[:2][1])", True),
    "rows in a dictionary": ("with torch.no_grad(): spread.append({'row': hidden[0]})", True),
    "the whole in another shape": ("with torch.no_grad(): rows.append(hidden.view(-1))", True),
    "a copy of a row": ("with torch.no_grad(): rows.append(hidden[3].clone())", False),
    "a row of what has no graph": ("rows.append(hidden.detach()[3])", False),
    "a row that was detached": ("with torch.no_grad(): rows.append(hidden[3].detach())", False),
    "a row of data": ("rows.append(hidden.data[3])", False),
    "rows taken by an index": ("with torch.no_grad(): rows.append(hidden[[3, 4]])", False),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_without_a_graph_holds_that_of_its_base(name, tmp_path):
    body, holds = VIEWS[name]
    recording = record_program(HEAD + VIEWED.replace("BODY", body), tmp_path)
    found = [one.message for one in recording.findings if one.slug == "graph-retained"]
    assert len(found) == holds, found
    assert all("is a view of it" in one and "`hidden`" in one for one in found)


GROWING = {
    "a list made anew": """
kept = []
for _ in range(5):
    kept = kept + [step(net(torch.ones(2, 16)).sum())]  #! kept
""",
    "a tuple made anew, of an attribute": """
class Log:
    kept = ()
    def add(self, loss):
        self.kept = (*self.kept, loss)  #! log.kept
log = Log()
for _ in range(5):
    log.add(step(net(torch.ones(2, 16)).sum()))
""",
    "a list in a dictionary, beside one that is made in each turn": """
kept = {"loss": [], "count": []}
for count in range(5):
    turn = {"loss": step(net(torch.ones(2, 16)).sum()), "count": count}
    for name, value in turn.items():
        kept[name].append(value)  #! kept
""",
    "values beside one that is made in each turn": """
kept = []
for count in range(5):
    turn = {"loss": step(net(torch.ones(2, 16)).sum())}
    kept = [*kept, turn["loss"].item()]
""",
    "the last one alone": """
kept = []
for count in range(5):
    kept = kept[:0] + [step(net(torch.ones(2, 16)).sum())]
""",
}


@pytest.mark.parametrize("name", GROWING)
def test_the_line_by_which_a_container_grows(name, tmp_path):
    text = HEAD + GROWING[name]
    found = [one for one in record_program(text, tmp_path).findings if one.slug == "graph-retained"]
    marked = [(n, line.partition("#! ")[2]) for n, line in enumerate(text.splitlines(), 1)
              if "#!" in line]  # fmt: skip
    assert [(one.site.line, one.subject) for one in found] == marked


SUMMED = """
data = [torch.randn(4, 16) for _ in range(10)]

def epoch():
    total, seen = 0.0, []
    for x in data:
        loss = step(net(x).pow(2).mean())
        BODY
    return END

for _ in range(2):
    print(epoch())
"""
SUMS = {
    "added in place": ("total += loss", "float(total)", True),
    "added anew": ("total = total + loss * len(x)", "total.item() / 10", True),
    "a list that is summed": ("seen.append(loss)", "torch.stack(seen).mean().item()", True),
    "numbers": ("total += loss.item()", "total", False),
    "without a graph": ("total += loss.detach()", "float(total)", False),
    "rounded numbers of a list": ("seen.append(float(loss))", "sum(seen)", False),
    "a few steps": ("total = loss if len(seen) % 4 == 0 else total + loss; seen.append(0)",
                    "float(total)", False),
    "one pass for all": (
        "total = total + net(x).pow(2).mean()",
        "(opt.zero_grad(), total.backward(), opt.step(), total.item())[-1]", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_losses_that_are_summed_up_after_their_passes(name, tmp_path):
    body, end, told = SUMS[name]
    recording = record_program(HEAD + SUMMED.replace("BODY", body).replace("END", end), tmp_path)
    found = [one for one in recording.findings if one.slug == "graph-retained"]
    assert bool(found) == told, found


DECODING = """
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(16, 16)
        self.register_buffer("keys", torch.zeros(12, 16))

    def forward(self, x, at):
        self.keys[at] = VALUE
        return (self.keys[: at + 1] @ x).softmax(0).sum()

decoder, kept = Decoder(), torch.zeros(16)
for at in range(RUNS):
    with torch.set_grad_enabled(MODE):
        print(decoder(torch.randn(16), at).item())
        BODY
"""
STATES = {
    "keys with gradients on": ("self.key(x)", 12, "True", "", True),
    "a state that goes on": (
        "0", 12, "True", "decoder.state = decoder.key(vars(decoder).get('state', kept))", True
    ),
    "keys without gradients": ("self.key(x)", 12, "False", "", False),
    "keys that are detached": ("self.key(x).detach()", 12, "True", "", False),
    "a few": ("self.key(x)", 3, "True", "", False),
    "a variable": ("0", 12, "True", "kept = decoder.key(kept)", False),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_what_an_object_holds_of_runs_without_a_backward_pass(name, tmp_path):
    value, runs, mode, body, told = STATES[name]
    text = DECODING.replace("VALUE", value).replace("RUNS", str(runs)).replace("MODE", mode)
    recording = record_program(HEAD + text.replace("BODY", body), tmp_path)
    found = [one.severity for one in recording.findings if one.slug == "graph-retained"]
    assert found == ["note"] * told


RING = """
import gc, weakref

class Sampler:
    def __init__(self, x):
        self.x, self.cache = x, None
        HOLDS

    def draw(self):
        y = torch.tanh(net(self.x)).repeat(1, SIZE)
        KEEPS
        return y

def run(k):
    sampler = Sampler(torch.randn(64, 16))
    step(sampler.draw().sum())

def main():
    gc.disable()  # so that the collector comes when it is asked
    for k in range(8):
        run(k)
    AFTER
main()
"""
OWN = "self.own = self", "self.cache = y"
COLLECTED = "gc.collect(); step(net(torch.ones(2, 16)).sum()); gc.enable()"
RINGS = {
    "an object that holds itself": (*OWN, "32", "gc.enable()", ["note"]),
    "two that hold each other": (
        "self.hook = functools.partial(Sampler.draw, self)", "self.cache = y", "32", "gc.enable()",
        ["note"],
    ),
    "a tensor that leads back to its maker": (
        "", "self.cache = y; y.made_by = self", "32", "gc.enable()", ["note"]
    ),
    "collected while it runs": (*OWN, "32", COLLECTED, ["note"]),
    "never collected": (*OWN, "32", "", ["warning"]),
    "few bytes": (*OWN, "1", "gc.enable()", []),
    "no ring": ("", "self.cache = y", "32", "gc.enable()", []),
    "a weak reference": ("self.own = weakref.ref(self)", "self.cache = y", "32", "gc.enable()", []),
    "without a graph": ("self.own = self", "self.cache = y.detach()", "32", "gc.enable()", []),
    "let go": (
        "self.own = self", "self.cache = y; self.own = None", "32", "gc.enable()", []
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RINGS)
def test_graphs_in_rings_of_objects_that_go_with_the_collector(name, tmp_path):
    holds, keeps, size, after, expected = RINGS[name]
    text = RING
    for word, what in (("HOLDS", holds), ("KEEPS", keeps), ("SIZE", size), ("AFTER", after)):
        text = text.replace(word, what or "pass")
    try:
        recording = record_program(HEAD + text, tmp_path)
    finally:
        gc.enable()
    found = [one.severity for one in recording.findings if one.slug == "graph-retained"]
    assert found == expected


def test_what_a_result_keeps_of_an_exception_is_no_ring_while_it_is_kept(tmp_path):
    text = """
import dataclasses

@dataclasses.dataclass
class Result:
    loss: float = 0.0
    error: Exception = None

def case(k):
    y = torch.tanh(net(torch.randn(256, 16))).repeat(1, 32)
    if k % 2:
        raise AssertionError("too large")
    step(y.sum())
    return y.sum().item()

def main():
    results = []
    for k in range(12):
        try:
            results.append(Result(loss=case(k)))
        except AssertionError as error:
            results.append(Result(error=error))
    print(len(results))
main()
"""
    found = [
        one
        for one in record_program(HEAD + text, tmp_path).findings
        if one.slug == "graph-retained"
    ]
    assert [(one.severity, one.subject) for one in found] == [("warning", "results")]


HOOKS = {
    "its own tensor": ("def scale(grad):\n        return grad * size(x)", True),
    "what the tensor holds": (
        "norm = size(x)\n    def scale(grad):\n        return grad * norm",
        False,
    ),
}


@pytest.mark.parametrize("name", HOOKS)
def test_the_line_of_a_hook_that_holds_what_it_is_on(name, tmp_path):
    body, told = HOOKS[name]
    text = f"""
def size(x):
    return min(x.detach().norm().item(), 1.0)

def watch(x):
    {body}
    x.register_hook(scale)
    return x

for _ in range(6):
    step(watch(net(torch.ones(2, 16)).tanh()).sum())
"""
    recording = record_program(HEAD + text, tmp_path)
    assert told == any(one.slug == "graph-retained" for one in recording.findings)
    hooks = (HEAD + text).splitlines().index("    x.register_hook(scale)") + 1
    assert not told or "this hook reads" in _lines(recording)[hooks]


def test_the_line_that_keeps_exceptions(tmp_path):
    text = """
def tried(size):
    hidden = torch.relu(net(torch.ones(4096, 16)))
    if size > 2:
        raise ValueError("too large")
    return step(hidden.sum())

failed = []
for size in range(40, 0, -1):
    try:
        tried(size)
    except ValueError as error:
        failed.append((size, error))
"""
    fills = (HEAD + text).splitlines().index("        failed.append((size, error))") + 1
    assert "`failed` is filled here" in _lines(record_program(HEAD + text, tmp_path))[fills]


def test_the_line_that_goes_on_from_a_state(tmp_path):
    text = """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x, state):
        return torch.tanh(self.inner(x) + state)

class Monitor:
    def __init__(self):
        self.cell, self.state, self.last = Cell(), torch.zeros(4096, 16), None

    def update(self, x):
        self.state = self.cell(x, self.state)
        self.last = self.state.mean(1)

def main():
    monitor = Monitor()
    for _ in range(40):
        monitor.update(torch.randn(4096, 16))

step(net(torch.ones(2, 16)).sum())
main()
"""
    goes = (HEAD + text).splitlines().index("        self.last = self.state.mean(1)") + 1
    assert "goes on from" in _lines(record_program(HEAD + text, tmp_path))[goes]
