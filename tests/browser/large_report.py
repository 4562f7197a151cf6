"""A report of the size that the page has to bear: 20,000 source lines and 2,000 findings."""

from __future__ import annotations

from tether.analysis.history import History
from tether.facts import Event, Gradients, Name, Operand, OptimizerFact, Site, StorageFact, Trace
from tether.finding import Edit, Evidence, Finding, Fix, Severity
from tether.report.document.findings import Findings
from tether.report.document.grouping import in_order
from tether.report.tables.copies import copies
from tether.report.tables.gradients import gradients
from tether.source.annotate import annotate

FOLDER = "/home/me/app"
STEP = """\
def step_{n}(model, x):
    \"\"\"Run layer {n} once; what comes out is cut off and copied.\"\"\"
    hidden = model.layer{n}(x)
    out = hidden.detach()  # cut
    kept = hidden.clone()
    kept += 1.5
    return out + kept


"""
CALLS = (  # line of the step, operation, expression, whether the result has memory of its own
    (2, "linear", "model.layer{n}(x)", True),
    (3, "detach", "hidden.detach()", False),
    (4, "clone", "hidden.clone()", True),
    (5, "__iadd__", "kept += 1.5", False),
    (6, "add", "out + kept", True),
)
KINDS: tuple[tuple[str, Severity], ...] = (
    ("untracked-write", "error"),
    ("gradient-cut", "warning"),
    ("alias-write", "warning"),
    ("needless-copy", "note"),
)


def large(files: int, lines: int, findings: int, parameters: int = 200) -> Findings:
    """Return a report of `files` files of `lines` lines each (a multiple of 9)."""
    trace = Trace(program=["train.py"], folder=FOLDER, torch="2.13.0")
    for number in range(files):
        _file(trace, f"{FOLDER}/package/module_{number:02}.py", lines // 9)
    annotate(trace, elsewhere=False)
    names = [f"model.block{n // 10}.layer{n % 10}.weight" for n in range(parameters)]
    trace.names = [Name(n, name, 0) for n, name in enumerate(names)]
    trace.optimizers = [OptimizerFact("SGD", 0, 0, tuple(range(parameters)))]
    status = {n: "none" if n % 3 == 0 else "some" for n in range(parameters)}
    trace.gradients = [Gradients("step", 0, 0, 0, status)]
    found = in_order([_finding(trace, n) for n in range(findings)])
    return Findings(trace, found, gradients(History(trace), found), copies(trace))


def _file(trace: Trace, file: str, steps: int) -> None:
    trace.sources[file] = "".join(STEP.format(n=n) for n in range(steps))
    for n in range(steps):
        lines = STEP.format(n=n).split("\n")
        made = len(trace.storages)
        for at, operation, text, owns in CALLS:
            expression, line = text.format(n=n), 9 * n + at + 1
            column = lines[at].index(expression) + 1
            end = column + len(expression)
            place = Site(file, line, column, line, end, f"step_{n}", 9 * n + 1)
            trace.sites.append(place)
            storage = len(trace.storages) if owns else made
            if owns:
                born = len(trace.events)
                trace.storages[storage] = StorageFact(16384, "cpu", born, born + 9)
            grad = operation != "detach"
            read = Operand(made, made, 0, 0, (64, 64), (64, 1), "float32", True, False)
            gave = read._replace(tensor=storage, storage=storage, requires_grad=grad)
            writes = (read._replace(version=1),) if operation == "__iadd__" else ()
            results = () if writes else (gave,)
            trace.events.append(Event(operation, len(trace.sites) - 1, (read,), results, writes))


def _finding(trace: Trace, number: int) -> Finding:
    slug, severity = KINDS[number % len(KINDS)]
    steps = len(trace.sites) // len(CALLS)
    first = number * 11 % steps * len(CALLS)
    cut, written = trace.sites[first + 1], trace.sites[first + 3]
    edit = Edit(cut.file, cut.line, cut.column, cut.end_line, cut.end_column, "hidden")
    return Finding(
        slug,
        severity,
        f"model.layer{number}.weight",
        cut,
        "detach",
        f"`model.layer{number}.weight` got no gradient: `hidden.detach()` cuts its only way.",
        (f"model.layer{number}.bias",),
        (Evidence("cut", cut, "cut here"), Evidence("written", written, "written here")),
        ("nothing writes the gradient by hand",),
        Fix("Leave detach out.", (edit,)),
        count=3,
        bytes=1000 + number,
    )
