"""The recorder hears what the user wrote: one test for each way of making or tying a tensor."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import tether
from tether.analysis.history import History
from tether.analysis.sharing.acts import Acts
from tether.facts import GRAD_INFERENCE, GRAD_OFF, GRAD_ON
from tether.operations.table import operation as row_of
from tether.record.functions import learn
from tether.record.session import Session
from tether.store.fields import check
from tether.store.layout import TABLES


class Recorded:
    """``with Recorded() as r: ...``; afterwards `r.trace`."""

    def __enter__(self):
        self.session = Session()
        self.session.start()
        return self

    def __exit__(self, *_):
        self.trace = self.session.stop()
        check(self.trace)

    def events(self, operation):
        return [event for event in self.trace.events if event.operation == operation]

    def one(self, operation):
        (event,) = self.events(operation)
        return event

    def line(self, event):
        site = self.trace.sites[event.site]
        assert site.file == __file__
        return site.line


def here():
    """Line of the caller."""
    import sys

    return sys._getframe(1).f_lineno


def shares(event):
    return event.results[0].storage in {one.storage for one in event.reads}


X = torch.arange(6.0).reshape(2, 3)
CALLS = {
    "clone": (lambda x: x.clone(), False),
    "detach": (lambda x: x.detach(), True),
    "data.__get__": (lambda x: x.data, True),
    "view": (lambda x: x.view(6), True),
    "contiguous": (lambda x: x.contiguous(), True),
    "to": (lambda x: x.to(torch.float64), False),
    "cpu": (lambda x: x.cpu(), True),
    "tensor": (lambda x: torch.tensor(x), False),
    "new_tensor": (lambda x: x.new_tensor(x), False),
    "as_tensor": (lambda x: torch.as_tensor(x), True),
    "Parameter": (lambda x: nn.Parameter(x), True),
    "__getitem__": (lambda x: x[0], True),
    "T.__get__": (lambda x: x.T, True),
    "from_dlpack": (lambda x: torch.from_dlpack(x), False),
}


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("operation", CALLS)
def test_a_call_is_one_event_with_its_sharing(operation):
    call, shared = CALLS[operation]
    x = X.clone()
    with Recorded() as r:
        made = call(x)
    event = r.one(operation)
    assert shares(event) == shared
    assert event.results[0].shape == tuple(made.shape)
    assert f"torch.{event.results[0].dtype}" == str(made.dtype)


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("item", lambda x: x.sum().item()),
        ("__float__", lambda x: float(x.sum())),
        ("tolist", lambda x: x.tolist()),
        ("numpy", lambda x: x.numpy()),
        ("__array__", lambda x: np.asarray(x)),
        ("__bool__", lambda x: bool(x.sum())),
    ],
)
def test_values_that_leave_are_heard(operation, call):
    x = X.clone()
    with Recorded() as r:
        call(x)
    assert r.events(operation)


def test_the_recorder_gives_every_table():
    """A table that it forgets would be empty in every recording, and nothing would say so."""
    recorder = Session().recorder
    assert recorder.tables().keys() == TABLES.keys() - {"sites"}
    assert Session(memory=True).recorder.tables().keys() == TABLES.keys() - {"sites"}


def test_no_storage_is_seen_twice_and_no_serial_comes_back():
    with Recorded() as r:
        for _ in range(200):
            torch.empty(1000)
    serials = [event.results[0].storage for event in r.events("empty")]
    assert len(set(serials)) == 200


def test_an_operand_carries_what_was_true_then():
    x, y = torch.zeros(3), torch.ones(3)
    with Recorded() as r:
        x.sum()
        x.data = y
        x.sum()
    before, after = (event.reads[0] for event in r.events("sum"))
    assert before.tensor == after.tensor
    assert before.storage != after.storage
    assert after.storage == r.one("data.__set__").reads[1].storage


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.__setitem__(0, 5.0),
        lambda x: torch.add(x, 1, out=x),
        lambda x: x.__iadd__(1),
        lambda x: torch._foreach_add_([x], 1),
        lambda x: nn.functional.relu(x, inplace=True),
        lambda x: nn.init.zeros_(x),
    ],
)
def test_a_write_is_seen_by_its_version(write):
    x = torch.ones(3)
    with Recorded() as r:
        write(x)
    (event,) = [event for event in r.trace.events if event.writes]
    assert event.writes[0].tensor == event.reads[0].tensor
    assert event.writes[0].version > event.reads[0].version


def test_batch_norm_writes_its_statistics_although_their_version_stays():
    norm = nn.BatchNorm1d(3)
    with Recorded() as r:
        norm(torch.randn(4, 3))
        norm.eval()
        norm(torch.randn(4, 3))
    training, evaluation = r.events("batch_norm")
    assert len(training.writes) == 2
    assert not evaluation.writes


def test_set_takes_over_another_storage():
    x, y = torch.zeros(3), torch.ones(4)
    with Recorded() as r:
        x.set_(y)
        x.sum()
    event = r.one("set_")
    assert event.results[0].storage == event.reads[1].storage
    assert r.one("sum").reads[0].storage == event.reads[1].storage


def test_arrays_lead_back_to_the_tensor_they_came_from():
    x = torch.zeros(4)
    with Recorded() as r:
        array = x.numpy()
        back = torch.from_numpy(array[1:])
        other = torch.as_tensor(array)
        assert back.numel() == 3
        assert other.numel() == 4
    exit_ = r.trace.events.index(r.one("numpy"))
    entries = {r.trace.events.index(r.one(name)) for name in ("from_numpy", "as_tensor")}
    assert {(b.exit, b.entry, b.certain) for b in r.trace.bridges} == {
        (exit_, entry, True) for entry in entries
    }
    source = r.trace.storages[r.one("numpy").reads[0].storage]
    part = r.trace.storages[r.one("from_numpy").results[0].storage]
    assert source.memory == part.memory >= 0
    assert part.start - source.start == 4


def test_two_tensors_on_one_array_have_one_memory():
    array = np.zeros(4, dtype=np.float32)
    with Recorded() as r:
        a, b = torch.as_tensor(array), torch.from_numpy(array)
        assert a.data_ptr() == b.data_ptr()
    memories = {
        r.trace.storages[r.one(name).results[0].storage].memory
        for name in ("as_tensor", "from_numpy")
    }
    assert len(memories) == 1
    assert memories != {-1}


def test_a_write_through_an_exported_array_is_found_by_its_effect():
    x = torch.zeros(4)
    with Recorded() as r:
        array = x.numpy()
        array[:] = 7
        x.sum()
    (unseen,) = r.trace.unseen
    assert unseen.storage == r.one("sum").reads[0].storage
    assert r.trace.events[unseen.event].operation == "numpy"


def test_heard_writes_are_not_taken_for_silent_ones():
    x = torch.zeros(4)
    with Recorded() as r:
        array = x.numpy()
        x.add_(1)
        x.sum()
        assert array[0] == 1
    assert r.trace.unseen == []


def test_grad_mode_switches_have_the_line_of_the_with():
    x = torch.ones(3, requires_grad=True)

    @torch.no_grad()
    def under_decorator():
        return x * 4

    with Recorded() as r:
        x * 1
        with torch.no_grad():
            line = here() - 1
            x * 2
        with torch.inference_mode():
            x * 3
        under_decorator()
    modes = [event.grad_mode for event in r.events("mul")]
    assert modes == [GRAD_ON, GRAD_OFF, GRAD_INFERENCE, GRAD_OFF]
    switches = [event for event in r.events("set_grad_enabled") if not event.flags]
    assert r.line(switches[0]) == line
    assert r.line(switches[1]) == under_decorator.__wrapped__.__code__.co_firstlineno


def test_a_parameter_of_inference_mode_has_no_version():
    with Recorded() as r, torch.inference_mode():
        nn.Linear(3, 3)(nn.Parameter(X.clone()))
    assert [one.results[0].version for one in r.events("Parameter")] == [-1, -1, -1]
    assert r.trace.gaps == []


def test_a_library_call_is_told_at_the_users_line():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with Recorded() as r:
        net(X)
        line = here() - 1
    for operation in ("linear", "relu"):
        event = r.one(operation)
        assert r.line(event) == line
        assert event.inner != event.site
        assert not r.trace.sites[event.inner].user


def test_custom_functions_and_hooks_are_heard_in_their_spans():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.exp()

        @staticmethod
        def backward(ctx, gradient):
            return gradient.mul(2)

    w = torch.ones(3, requires_grad=True)
    with Recorded() as r:
        y = Double.apply(w)
        y.register_hook(lambda gradient: gradient.neg())
        y.sum().backward()
    apply = r.one("apply")
    assert apply.detail == "Double"
    assert apply.results[0].requires_grad
    assert r.trace.spans[r.one("exp").span].kind == "function"
    assert r.trace.spans[r.one("mul").span].kind == "backward"
    kinds = {span.kind: span for span in r.trace.spans}
    assert set(kinds) >= {"function", "backward"}
    assert r.trace.events.index(r.one("neg")) < r.trace.events.index(r.one("backward"))
    assert r.trace.spans[r.one("neg").span].kind == "backward"


def test_gradients_are_told_after_backward_and_before_a_step():
    w, v = (torch.ones(3, requires_grad=True) for _ in range(2))
    opt = torch.optim.SGD([w, v], lr=0.1)
    with Recorded() as r:
        (w * 0).sum().backward()
        opt.step()
    moments = {fact.moment: fact for fact in r.trace.gradients}
    assert sorted(moments["step"].status.values()) == ["none", "zero"]
    (optimizer,) = r.trace.optimizers
    assert optimizer.kind == "SGD"
    assert set(optimizer.tensors) == set(moments["step"].status)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS])
def test_a_step_tells_what_it_wrote(kind):
    """Also where the closure reads the parameters again, after the first of several writes."""
    w, unused = (torch.ones(3, requires_grad=True) for _ in range(2))
    opt = kind([w, unused], lr=0.1)

    def closure():
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with Recorded() as r:
        opt.step(closure)
    (step,) = [event for event in r.trace.events if event.operation == "step"]
    (product,) = {e.reads[0].tensor for e in r.trace.events if e.operation == "mul" and e.reads}
    written = {one.tensor: one.version for one in step.writes}
    assert written[product] == w._version
    assert len(written) == 1 + (unused._version > 0)  # LBFGS adds zero where there is no gradient


def test_threads_are_heard():
    x = torch.ones(3)

    def work():
        return x.neg()

    with Recorded() as r:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: x.abs(), range(4)))
    assert r.one("neg").thread > 0
    assert len(r.events("abs")) == 4


def test_an_exception_passes_through_and_is_a_fact():
    with Recorded() as r, pytest.raises(RuntimeError) as caught:
        torch.ones(3).view(2)
    (raised,) = r.trace.raised
    assert raised.message == str(caught.value)
    assert not raised.fatal


def test_nothing_is_kept_alive():
    import weakref

    with Recorded() as r:
        x = torch.ones(3)
        y = x + 1
        gone = weakref.ref(y)
        del y
        assert gone() is None
        z = x.view(3)
        del x
        assert z.sum() == 3
    assert len([life for life in r.trace.tensors.values() if life.died >= 0]) >= 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        lambda: torch.empty(3, device="meta"),
        lambda: torch.ones(3, dtype=torch.complex64).conj(),
    ],
    ids=["sparse", "quantized", "nested", "meta", "conj"],
)
@pytest.mark.filterwarnings("ignore")
def test_unusual_tensors_are_survived(make):
    with Recorded() as r:
        x = make()
        assert type(x.clone()) is type(x)
    assert r.events("clone")
    assert not [gap for gap in r.trace.gaps if gap.code == "failed"]


def test_functorch_wrappers_stand_on_what_they_wrap():
    x = torch.ones(2, 3)
    with Recorded() as r:
        torch.vmap(lambda row: row.sin())(x)
        torch.func.grad(lambda t: t.cos().sum())(x)
    storage = {event.reads[0].storage for name in ("sin", "cos") for event in r.events(name)}
    assert len(storage) == 1
    assert storage != {-1}


def test_a_limit_keeps_the_last_calls():
    session = Session(limit=100)
    session.start()
    x = torch.ones(3)
    for _ in range(5000):
        x.neg()
    trace = session.stop()
    check(trace)
    assert 100 <= len(trace.events) <= 1200
    assert trace.ended == 5001
    assert len(trace.kept) == 1, "the call that made x, which is alive"
    assert trace.events[0].operation == "ones"
    assert any(gap.code == "forgotten" for gap in trace.gaps)


def test_of_the_calls_that_a_limit_keeps_all_lives_are_known():
    session = Session(limit=100)
    session.start()
    drawn = torch.rand(4, 4)
    labels = (drawn * 3).long()
    weight = torch.nn.Parameter(torch.zeros(4))
    del drawn
    for _ in range(2000):
        labels[0, 0].item()
        with torch.no_grad():
            weight.add_(1)
    trace = session.stop()
    check(trace)
    assert trace.kept, "what made the labels, of numbers that are gone"
    shown = [one for event in trace.events for one in (*event.reads, *event.results)]
    assert all(one.storage in trace.storages and one.tensor in trace.tensors for one in shown)
    made = next(event for event in trace.events if event.operation == "Parameter")
    gone = trace.tensors[made.reads[0].tensor].died
    assert 0 <= gone < trace.dropped
    assert trace.first_after(gone) <= len(trace.kept)
    assert History(trace).get(Acts).all == [], "who shows the weight beside it is gone"


def test_a_limit_bounds_the_memory_of_a_recording_of_any_length():
    def size_after(calls):
        session = Session(limit=1000)
        session.start()
        x, kept = torch.ones(3), []
        for number in range(calls):
            y = x.neg()
            if number % 500 == 0:
                kept.append(y)
        who, log = session.recorder.tape.who, session.recorder.tape.log
        lives = len(who.dead_tensors) + len(who.dead_storages)
        size = len(who.rows) + lives + len(log.heads) + len(log.rows)
        trace = session.stop()
        check(trace)
        read = {operand.tensor for one in trace.events for operand in one.reads}
        assert read == {trace.events[-1].reads[0].tensor}
        assert len(trace.kept) >= len(kept) - 3, "what made the tensors that are alive"
        return size

    assert size_after(40_000) < 1.5 * size_after(10_000)


@pytest.mark.parametrize(
    ("move", "ahead"),
    [
        (lambda x: x.to("cpu", non_blocking=True), True),
        (lambda x: x.to("cpu", torch.float32, True), True),
        (lambda x: x.to(torch.float64, True), True),
        (lambda x: x.to(torch.ones(1), True, False), True),
        (lambda x: x.type(torch.float64, True), True),
        (lambda x: torch.empty(3).copy_(x, True), True),
        (lambda x: x.to("cpu", torch.float32, False, True), False),  # the fourth is copy
        (lambda x: x.to(torch.float64), False),
        (lambda x: torch.empty(3).copy_(x), False),
    ],
)
def test_a_copy_told_by_place_not_to_wait_is_noted(move, ahead):
    x = torch.ones(3)
    with Recorded() as r:
        move(x)
    (event,) = [one for one in r.trace.events if one.operation in ("to", "type", "copy_")]
    assert event.non_blocking is ahead


def test_where_cuda_takes_its_flag():
    """Without a device the call itself cannot be made."""
    from tether.record.functions import first_bool

    x = torch.ones(3)
    assert first_bool((x, None, True))
    assert first_bool((x, 0, True))
    assert not first_bool((x, 0, False))
    assert not first_bool((x, "cuda"))


def test_a_call_that_python_specialises_stays_one_place():
    """CPython 3.11 makes a call of a builtin from another instruction once it is warm."""

    def numbers(tensors):
        return [float(one) for one in tensors]

    with Recorded() as r:
        for _ in range(50):
            numbers([torch.ones(()), torch.zeros(())])
    events = [event for event in r.trace.events if event.operation == "__float__"]
    assert len(events) == 100
    assert len({event.site for event in events}) == 1


def test_only_the_programs_own_questions_how_elements_lie_are_events():
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    session = Session()
    session.start()
    x = torch.from_numpy(np.ones((4, 4), np.float32))
    net(x[torch.arange(4)]).sum().backward()
    optimizer.step()
    torch.tensor(x.tolist()), torch.tensor(x.numpy())
    x[torch.tensor([0, 0])] = x[:2].clone()
    x.data = x.t().contiguous()
    tether.copy(net.state_dict())
    copy.deepcopy(net)
    asked = x.stride(), x.is_contiguous()
    trace = session.stop()
    questions = [one for one in trace.events if row_of(one.operation).strides]
    own = [one for one in questions if trace.sites[one.inner].file == __file__]
    assert asked == ((4, 1), True)
    assert [one.operation for one in own] == ["stride", "is_contiguous"]
    assert not [one for one in questions if "/tether/" in trace.sites[one.inner].file]


def test_a_mark_for_the_profiler_leaves_no_event_and_its_error_does():
    enter = torch.ops.profiler._record_function_enter_new
    with Recorded() as r:
        with torch.autograd.profiler.record_function("mine"):
            torch.ones(2) + 1
        with pytest.raises(RuntimeError):
            enter(torch.ones(2))
    names = [event.operation for event in r.trace.events]
    assert names == ["ones", "add", "ones", "_record_function_enter_new"]
    assert len(r.trace.events[-1].reads) == 1


def test_a_number_of_an_operation_may_be_a_tensor():
    """So an operation that takes numbers is not one that has nothing to do with tensors."""
    assert learn(torch.ops.profiler._record_function_enter_new).untied
    assert not learn(torch.ops.aten.arange.default).untied
    assert not learn(torch.ops.aten.add.Tensor).untied
    assert not learn(torch.set_grad_enabled).untied
