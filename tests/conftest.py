"""Around every test: failures inside the recorder are raised, and nothing is left installed.

``python -m pytest`` takes one in `PART` of the programs of a table, so that it is over in four
minutes; it leaves out what is marked ``rest``, which starts several processes and takes many
seconds, and of each file of `browser` takes the first test. ``--rest`` takes the others, ``--long`` all, and the laws that take
minutes at their full length: see `lengths`. Tests that are asked for by file or by name are all run.
"""

import faulthandler
import gc
import os
import sys
import threading

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""There is a process of tests for each core: more threads would wait for one another, spinning."""

UNCAPTURED = pytest.StashKey[int]()
"""The stream of errors as it is outside of the tests."""

LENGTHY = (
    "test_broken",
    "test_processes",
    "test_invisible_operators",
    "test_autosave",
    "test_notebook",
)
"""Files whose tests take longest."""


PART = 36
"""Of a table of programs, one in so many is run where nothing is asked for."""

TABLE = 3
"""Cases from which a test counts as a table."""


def pytest_addoption(parser):
    parser.addoption(
        "--long",
        action="store_true",
        help="run random programs, sweeps of operators and fuzzing at their full length;"
        " `--long -m long` runs those alone",
    )
    parser.addoption(
        "--rest",
        action="store_true",
        help="run the programs that `python -m pytest` leaves out, and nothing else",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "long: a sample of it runs by default, all with --long")
    config.addinivalue_line("markers", "rest: takes many seconds, and runs with --rest")
    if config.getoption("--long"):
        os.environ["TETHER_LONG"] = "1"
    config.stash[UNCAPTURED] = os.dup(2)  # nothing is captured yet
    if not hasattr(config, "workerinput"):  # the workers are given paths, and find this set
        os.environ["TETHER_TESTS"] = _which(config)


def _which(config):
    """Return which programs are run: a part, the rest, or all."""
    if config.getoption("--rest"):
        return "rest"
    asked = config.args_source != config.ArgsSource.TESTPATHS or config.option.keyword
    return "all" if asked or config.getoption("--long") else "part"


def pytest_collection_modifyitems(config, items):
    """Have what takes long begin first: one worker alone with it would be the others' waiting."""
    items.sort(key=lambda item: not item.path.name.startswith(LENGTHY))
    which = os.environ["TETHER_TESTS"]
    if which != "all":
        left_out = set(_left_out(items))
        parts = {wanted: [item for item in items if (item in left_out) == wanted]
                 for wanted in (True, False)}  # fmt: skip
        config.hook.pytest_deselected(items=parts[which != "rest"])
        items[:] = parts[which == "rest"]


def _left_out(items):
    """Yield what is marked so, and of the tables all but one in `PART`, spread over each."""
    tables = {}
    for item in items:
        if item.get_closest_marker("rest"):
            yield item
        elif item.path.parent.name == "browser":  # of each file the first
            tables.setdefault(item.path, []).append(item)
        elif hasattr(item, "callspec") and item.path.parent.name != "unit":  # those are quick
            tables.setdefault((item.path, item.originalname), []).append(item)
    for cases in tables.values():
        if len(cases) >= TABLE:
            yield from (case for place, case in enumerate(cases) if place % PART)


def pytest_collection_finish():
    pass_over_what_stays()


def pass_over_what_stays():
    """Have the collector pass over what lives as long as the tests: it runs thousands of times.

    So does the search for caches as a recording ends, which goes through all objects that are left.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def modules_imported_by_a_test_stay():
    before = len(sys.modules)
    yield
    if len(sys.modules) > before + 20:  # all of `torch._dynamo`, not a program of the test's
        pass_over_what_stays()


@pytest.fixture(autouse=True)
def nothing_takes_for_ever(request):
    """A test that hangs ends its process, and says where it was: also one that hangs in C."""
    import lengths  # which reads what `pytest_configure` sets

    if lengths.PATIENCE:
        uncaptured = request.config.stash[UNCAPTURED]
        faulthandler.dump_traceback_later(lengths.PATIENCE, exit=True, file=uncaptured)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def strict_recorder(monkeypatch):
    monkeypatch.setenv("TETHER_STRICT", "1")


@pytest.fixture(autouse=True)
def nothing_is_left_installed():
    torch = sys.modules.get("torch")
    before = _installed(torch) if torch is not None else None
    yield
    if before is not None:
        assert _installed(torch) == before, (
            "a test left something of tether installed, or PyTorch switched"
        )


def _installed(torch):
    """What a recording replaces while it runs."""
    return {
        "modes": torch._C._len_torch_function_stack(),
        "from_numpy": torch.from_numpy,
        "frombuffer": torch.frombuffer,
        "from_dlpack": torch.from_dlpack,
        "set_": torch.Tensor.set_,
        "Parameter": torch.nn.Parameter.__new__,
        "backward": torch.autograd._engine_run_backward,
        "apply": torch.autograd.Function.__dict__["apply"],
        "zero_grad": torch.optim.Optimizer.zero_grad,
        "has_torch_function": torch.overrides.has_torch_function,
        "thread": threading.Thread._bootstrap_inner,
        "_exit": os._exit,
        # What a test's program may have switched, for all that run after it in this process.
        "overwrites": torch.__future__.get_overwrite_module_params_on_conversion(),
        "swaps": torch.__future__.get_swap_module_params_on_conversion(),
    }
