"""The tables under the verdicts: copies, gradients, and what is left out of both."""

from __future__ import annotations

import pytest

from tether.analysis.history import History
from tether.facts import (
    GRAD_OFF,
    Event,
    Gradients,
    Name,
    OnOthers,
    Operand,
    OptimizerFact,
    Site,
    Trace,
)
from tether.finding import Finding
from tether.report.filters import Selection, ignores, shown_path, silence
from tether.report.tables.copies import Copy, copies, nbytes
from tether.report.tables.gradients import gradients, shortest_names


def tensor(serial: int, storage: int, grad: bool = True, dtype: str = "float32") -> Operand:
    return Operand(serial, storage, 0, 0, (10,), (1,), dtype, grad, False)


def row(*events: Event, **options) -> Copy:
    """Return the one row that these events make at one site."""
    sites = [Site("/m.py", 1), Site("/lib.py", 9, user=False)]
    (made,) = copies(Trace(sites=sites, events=list(events)), **options)
    return made


X, PLAIN = tensor(1, 1), tensor(1, 1, grad=False)


@pytest.mark.parametrize(
    ("operation", "read", "result", "memory", "gradient", "copied"),
    [
        ("clone", X, tensor(2, 2), "owns", "keeps", 40),
        ("clone", PLAIN, tensor(2, 2, grad=False), "owns", "none", 40),
        ("clone", X, tensor(2, 2, grad=False), "owns", "cuts", 40),
        ("detach", X, tensor(2, 1, grad=False), "shares", "cuts", 0),
        ("detach", PLAIN, tensor(2, 1, grad=False), "shares", "none", 0),
        ("data.__get__", X, tensor(2, 1, grad=False), "shares", "cuts", 0),
        ("to", X, X, "shares", "keeps", 0),
        ("to", X, tensor(2, 2, dtype="float64"), "owns", "keeps", 80),
        ("long", X, tensor(2, 2, grad=False, dtype="int64"), "owns", "cuts", 80),
        ("long", PLAIN, tensor(2, 2, grad=False, dtype="int64"), "owns", "none", 80),
        ("contiguous", X, tensor(2, 1), "shares", "keeps", 0),
        ("numpy", PLAIN, None, "shares", "none", 0),
        ("item", X, None, "owns", "cuts", 40),
        ("tensor", None, tensor(2, 2), "owns", "none", 40),
        ("from_numpy", None, tensor(2, 2), "shares", "none", 0),
        ("as_tensor", X, X, "shares", "keeps", 0),
        ("Parameter", X, tensor(2, 1), "shares", "cuts", 0),
    ],
)
def test_what_a_copy_did(operation, read, result, memory, gradient, copied):
    event = Event(operation, 0, (read,) if read else (), (result,) if result else ())
    made = row(event, event._replace(results=event.results))
    assert (made.memory, made.gradient, made.count, made.bytes) == (
        memory,
        gradient,
        2,
        2 * copied,
    )


def test_an_array_that_was_exported_before_is_shared():
    out = Event("numpy", 0, (tensor(1, 7, grad=False),))
    back = Event("as_tensor", 1, (), (tensor(2, 7, grad=False),))
    made = copies(Trace(sites=[Site("/m.py", 1), Site("/m.py", 2)], events=[out, back]))
    assert [one.memory for one in made] == ["shares", "shares"]


def test_a_tensor_on_the_memory_of_an_array_shares_it_and_another_owns():
    sites = [Site("/m.py", 1), Site("/m.py", 2)]
    shares = Event("as_tensor", 0, (), (tensor(1, 1, grad=False),))
    owns = Event("Tensor", 1, (), (tensor(2, 2, grad=False),))
    made = copies(Trace(sites=sites, events=[shares, owns], on_others=[OnOthers(0)]))
    assert [(one.memory, one.bytes) for one in made] == [("shares", 0), ("owns", 40)]


def test_a_line_that_shares_one_array_and_copies_another_varies():
    events = [Event("as_tensor", 0, (), (tensor(n, n, grad=False),)) for n in range(2)]
    (made,) = copies(Trace(sites=[Site("/m.py", 1)], events=events, on_others=[OnOthers(1)]))
    assert (made.memory, made.count, made.bytes) == ("varies", 2, 40)


def test_a_leaf_made_of_a_tensor_with_a_graph_has_no_way_back():
    leaf = X._replace(tensor=2, storage=2, leaf=True)
    assert row(Event("tensor", 0, (X,), (leaf,))).gradient == "cuts"
    assert row(Event("as_tensor", 0, (X,), (leaf._replace(leaf=False),))).gradient == "keeps"


def test_copy_into_a_tensor():
    target, source = tensor(1, 1, grad=False), tensor(2, 2)
    event = Event("copy_", 0, (target, source), (tensor(1, 1),), (tensor(1, 1),))
    assert (row(event).memory, row(event).gradient, row(event).bytes) == ("owns", "keeps", 40)
    off = event._replace(results=(target,), writes=(target,), grad_mode=GRAD_OFF)
    assert row(off).gradient == "cuts"


def test_a_view_this_time_and_a_copy_that_time():
    same = Event("contiguous", 0, (X,), (X,))
    other = Event("contiguous", 0, (X,), (tensor(2, 2),))
    assert row(same, other).memory == "varies"
    assert row(same, other).bytes == 40


def test_one_line_that_keeps_in_training_and_cuts_in_evaluation():
    keeps = Event("clone", 0, (X,), (tensor(2, 2),))
    cuts = Event("clone", 0, (X,), (tensor(2, 2, grad=False),), grad_mode=GRAD_OFF)
    made = copies(Trace(sites=[Site("/m.py", 1)], events=[keeps, keeps, cuts]))
    assert [(one.gradient, one.count) for one in made] == [("keeps", 2), ("cuts", 1)]


def test_one_line_that_keeps_a_gradient_where_there_is_one_is_one_row():
    keeps = Event("clone", 0, (X,), (tensor(2, 2),))
    bare = Event("clone", 0, (PLAIN,), (tensor(3, 3, grad=False),))
    assert (row(bare, keeps).gradient, row(bare, keeps).count) == ("keeps", 2)
    cuts = Event("clone", 0, (X,), (tensor(2, 2, grad=False),), grad_mode=GRAD_OFF)
    made = copies(Trace(sites=[Site("/m.py", 1)], events=[bare, cuts]))
    assert [(one.gradient, one.count) for one in made] == [("none", 1), ("cuts", 1)]


def test_library_calls_are_told_apart_and_others_left_out():
    inside = Event("clone", 0, (X,), (tensor(2, 2),), inner=1)
    assert row(inside).library
    assert not row(inside._replace(inner=0)).library
    assert copies(Trace(sites=[Site("/m.py", 1)], events=[Event("add", 0, (X, X))])) == []
    assert copies(Trace(events=[Event("clone", -1, (X,))])) == []


def test_needed_is_what_one_is_told():
    event = Event("clone", 0, (X,), (tensor(2, 2),))
    assert row(event).needed == "unknown"
    assert row(event, needed={(0, "clone"): ("no", "")}).needed == "no"


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float32", 4),
        ("bfloat16", 2),
        ("bool", 1),
        ("complex64", 8),
        ("float8_e4m3fn", 1),
        ("int64", 8),
        ("uint8", 1),
        ("complex128", 16),
        ("qint8", 1),
    ],
)
def test_bytes_of_a_dtype(dtype, size):
    assert nbytes(tensor(1, 1, dtype=dtype)) == 10 * size


# ------------------------------------------------------------------------------------ gradients


def table(*moments: dict[int, str], moment="step", held=(0, 1)) -> list[tuple[str, str]]:
    names = [Name(0, "net.w", 0, holder=0), Name(1, "net.b", 0, holder=0), Name(2, "w2", 0)]
    trace = Trace(names=names)
    trace.optimizers = [OptimizerFact("SGD", -1, 0, held)] if held else []
    trace.gradients = [Gradients(moment, n, -1, 0, one) for n, one in enumerate(moments)]
    return [(one.name, one.status) for one in gradients(History(trace))]


def test_reached_once_is_reached():
    assert table({0: "none", 1: "zero"}, {0: "some", 1: "none"}) == [
        ("net.w", "reached"),
        ("net.b", "zero"),
    ]
    assert table({0: "unchecked"}) == [("net.w", "reached"), ("net.b", "none")]


def test_only_what_an_optimizer_holds_counts():
    assert table({0: "none", 2: "none"}, held=(0,)) == [("net.w", "none")]
    assert table({0: "none", 2: "some"}, moment="backward", held=()) == [
        ("net.w", "none"),
        ("w2", "reached"),
    ]
    assert table() == []


def test_what_only_keeps_numbers_is_no_parameter_of_the_program():
    assert table({0: "some", 2: "none"}, moment="backward", held=()) == [("net.w", "reached")]


def test_gradients_point_at_their_finding():
    finding = Finding("gradient-cut", "warning", "net.w", Site("/m.py", 1), "", "", tensors=(0,))
    trace = Trace(names=[Name(0, "net.w", 0)], optimizers=[OptimizerFact("SGD", -1, 0, (0,))])
    trace.gradients = [Gradients("step", 0, -1, 0, {0: "none"})]
    assert gradients(History(trace), [finding, finding])[0].finding == 0
    assert gradients(History(trace))[0].finding is None


def test_shortest_names():
    names = [Name(0, "agent.net.w", 0), Name(0, "net.w", 0), Name(0, "ten.w", 0)]
    assert shortest_names(History(Trace(names=names))) == {0: "net.w"}


# -------------------------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("file", "folder", "shown"),
    [
        ("/a/b/c.py", "/a", "b/c.py"),
        ("/a/b/c.py", "/a/", "b/c.py"),
        ("/ab/c.py", "/a", "/ab/c.py"),
        ("C:\\a\\b\\c.py", "C:\\a", "b/c.py"),
        ("<string>", "/a", "<string>"),
        ("/a/c.py", "", "/a/c.py"),
    ],
)
def test_shown_path(file, folder, shown):
    assert shown_path(file, folder) == shown


@pytest.mark.parametrize(
    ("include", "omit", "user", "wanted"),
    [
        ((), (), True, True),
        ((), (), False, False),
        (("models/*",), (), False, True),
        (("other/*",), (), True, False),
        ((), ("models/*.py",), True, False),
        ((), ("net.py",), True, False),
        ((), ("et.py",), True, True),
        (("*.py",), ("./models/*",), True, False),
        (("/home/me/app/*",), (), True, True),
    ],
)
def test_selection(include, omit, user, wanted):
    place = Site("/home/me/app/models/net.py", 3, user=user)
    assert Selection("/home/me/app", include, omit).wants(place) is wanted


def finding(slug: str, line: int, end: int = 0) -> Finding:
    return Finding(slug, "warning", "x", Site("/m.py", line, 1, end or line, 5), "", "")


def test_silenced_on_its_line():
    text = (
        "x = y.detach()  # tether: ignore[gradient-cut]\n"
        "z = '# tether: ignore[alias-write]'\n"
        "f(\n  a)  # why: tether: ignore[a]  # tether:ignore[ alias-write , tie-lost ]\n"
    )
    sources = {"/m.py": text}
    found = [finding("gradient-cut", 1), finding("alias-write", 1), finding("alias-write", 3, 4)]
    left = silence(found, sources)
    assert left[:1] == [found[1]]
    assert [(one.slug, one.severity, one.site.line, one.subject) for one in left[1:]] == [
        ("unused-ignore", "note", 4, "# tether: ignore[tie-lost]")
    ]


def test_a_comment_that_names_nothing():
    (note,) = silence([], {"/m.py": "x = 1  # tether: ignore\n"})
    assert "has to name a verdict" in note.message
    assert (note.site.column, note.site.end_column) == (8, 24)


def test_comments_in_what_is_not_python():
    text = "x = 1  # tether: ignore[a]\ny = (  # tether: ignore[b]\n"
    assert [one.slug for one in ignores({"/m.py": text})][:1] == ["a"]
    assert ignores({"/m.py": "no comment"}) == []
