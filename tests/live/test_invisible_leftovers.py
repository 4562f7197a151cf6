"""Whatever ends a recording, nothing of tether is left installed, and failures stay inside."""

import copyreg
import gc
import io
import pickle
import sys
import threading
import weakref

import pytest
import torch
import torch._dynamo  # what its import changes is none of our doing

from tether.record.session import Session
from tether.store.fields import check

OWNERS = (
    "torch", "torch.overrides", "torch.autograd", "torch.autograd.Function", "torch.Tensor",
    "torch.nn.Parameter", "torch.nn.Module", "torch.optim.Optimizer", "torch.optim.adam",
    "torch.optim.adam.Adam", "torch.optim.sgd", "torch.optim.SGD", "torch.utils.dlpack",
    "torch.jit", "torch.jit._trace", "threading.Thread", "sys", "builtins", "os",
    "torch.autograd.grad_mode.inference_mode", "torch.optim.optimizer", "signal",
)  # fmt: skip

for kind in (torch.optim.Adam, torch.optim.SGD):  # whose first instance wraps the class's step
    kind([torch.ones(1, requires_grad=True)], lr=1)

for tensor in (torch.ones(1), torch.nn.Parameter(torch.ones(1))):
    copyreg._slotnames(type(tensor))  # kept with the class when one is pickled first


def owner(path):
    first = path.split(".")
    while ".".join(first) not in sys.modules:
        first.pop()
    found = sys.modules[".".join(first)]
    for part in path.split(".")[len(first) :]:
        found = getattr(found, part)
    return found


def installed():
    """Everything that a recording might replace, by identity."""
    found = {
        f"{path}.{name}": id(value)
        for path in OWNERS
        for name, value in vars(owner(path)).items()
        if path != "sys" or name in ("meta_path", "excepthook", "stdout", "stderr", "settrace")
    }
    module = sys.modules["torch.optim.optimizer"]
    found["hooks"] = (
        len(module._global_optimizer_pre_hooks), len(module._global_optimizer_post_hooks),
    )  # fmt: skip
    found["finders"] = [type(one).__name__ for one in sys.meta_path]
    found["modes"] = torch._C._len_torch_function_stack()
    found["jit"] = len(torch.jit._builtins._get_builtin_table())
    return found


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = installed()
    yield
    after = installed()
    assert {k: v for k, v in after.items() if before.get(k) != v} == {}
    assert before.keys() == after.keys()


def work():
    x = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.Adam([x])
    (x * 2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return x


def test_the_fixture_can_fail():
    before = installed()
    session = Session()
    session.start()
    try:
        during = installed()
    finally:
        session.mute()
    assert sum(during[key] != before[key] for key in before) > 15


def test_after_an_exception():
    session = Session()
    session.start()
    try:
        with pytest.raises(ZeroDivisionError):
            work().sum() / 0 and 1 / 0
        with pytest.raises(ZeroDivisionError):
            torch.optim.SGD([work()], lr=1).step(lambda: 1 / 0)
        with pytest.raises(RuntimeError):
            torch.ones(2) @ torch.ones(3)
    finally:
        check(session.stop())


def test_when_it_ends_in_the_middle_of_things():
    session = Session()
    session.start()
    x = work()
    x.register_hook(lambda _: session.mute())
    (x * 2).sum().backward()
    assert torch.ones(2).neg() is not None
    check(session.stop())


def test_when_it_ends_in_a_step():
    session = Session()
    session.start()
    x = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.1)

    def closure():
        session.mute()
        loss = (x * 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    check(session.stop())


def test_twice_and_again():
    for _ in range(3):
        session = Session()
        session.start()
        work()
        assert session.stop().events
        session.mute()


def test_one_in_the_other():
    outer, inner = Session(), Session()
    outer.start()
    inner.start()
    work()
    assert inner.stop().events
    work()
    assert outer.stop().events


def test_a_thread_that_outlives_it():
    session, go, seen = Session(), threading.Event(), []
    session.start()

    def late():
        go.wait(10)
        seen.append(work())

    thread = threading.Thread(target=late)
    thread.start()
    check(session.stop())
    go.set()
    thread.join()
    assert seen[0].shape == (3,)


def test_steps_that_never_come():
    session = Session(steps=(5, 9))
    session.start()
    work()
    trace = session.stop()
    check(trace)
    assert not trace.events


@pytest.mark.parametrize("broken", ["snapshot", "meet", "refresh", "bury", "find"])
def test_a_failing_recorder_does_not_disturb_the_program(monkeypatch, broken):
    monkeypatch.delenv("TETHER_STRICT", raising=False)
    session = Session()

    def fails(*_):
        raise ZeroDivisionError("a fault in the recorder")

    monkeypatch.setattr(session.recorder.tape.who, broken, fails)
    if broken == "bury":
        session.recorder.tape.who.dead.append(None)
    session.start()
    try:
        x = work()
        torch.from_numpy(torch.ones(2).numpy()).set_(torch.ones(3))
        torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
        torch.autograd.grad((x * 3).sum(), x)
        with torch.inference_mode():
            torch.ones(2)
    finally:
        session.mute()
    assert any(code == "failed" for code, *_ in session.recorder.tape.gaps)


def test_the_record_keeps_no_tensor_and_makes_no_garbage():
    gc.collect()
    before = sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())
    session = Session()
    session.start()
    for _ in range(20):
        work()
    assert gc.collect() == 0
    session.mute()
    assert sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects()) == before
    check(session.stop())


def test_pickles_and_saved_files_are_the_same_bytes():
    """Of the same objects: a pickle holds the address of a storage."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    x = torch.randn(6)
    things = [x, x[2:].view(2, 2), model, model.state_dict(), optimizer.state_dict(), optimizer]

    def written():
        found = []
        for thing in things:
            found += [pickle.dumps(thing, protocol) for protocol in (2, 5)]
            for options in ({}, {"_use_new_zipfile_serialization": False}):
                file = io.BytesIO()
                torch.save(thing, file, **options)
                found.append(file.getvalue())
            found.append(repr(thing).encode())
        return found

    before = written()
    session = Session()
    session.start()
    try:
        during = written()
    finally:
        check(session.stop())
    assert during == before
    assert written() == before


def test_no_tensor_lives_longer_and_no_reference_is_added():
    def counts():
        x = torch.randn(3, requires_grad=True)
        y = (x * 2).exp()
        z = y.detach()[1:]
        seen = [sys.getrefcount(one) for one in (x, y, z, y.grad_fn, y.untyped_storage())]
        seen += [len(gc.get_referrers(one)) for one in (x, y, z)]
        gone = []
        for name, one in (("y", y), ("z", z), ("storage", y.untyped_storage())):
            weakref.finalize(one, gone.append, name)
        y.sum().backward()
        del y
        seen.append(list(gone))
        del z
        seen.append(list(gone))
        return seen

    gc.collect()
    bare = counts()
    session = Session()
    session.start()
    try:
        recorded = counts()
    finally:
        session.stop()
    assert recorded == bare
    assert bare[-2:] == [["y"], ["y", "z"]]
