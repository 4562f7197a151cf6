"""What autograd made of each call, and the graph of a backward pass, as facts."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

from lengths import LONG, sampled
from tether.record.session import Session
from tether.store.fields import check


def recorded(run):
    session = Session()
    session.start()
    try:
        run()
    finally:
        session.mute()
    trace = session.recorder.trace()
    check(trace)
    return trace


def kinds(trace):
    return {event.operation: trace.kinds[event.kind] for event in trace.events if event.kind >= 0}


def test_a_call_says_what_it_saved_and_where_its_graph_leads():
    w = torch.ones(3, requires_grad=True)

    def run():
        h = w.exp()
        (h * torch.ones(3)).sum()
        torch.round(h)
        torch.div(h, 2, rounding_mode="floor")

    found = kinds(recorded(run))
    assert found["exp"].nodes == ("ExpBackward0",)
    assert found["exp"].saved == (1,), "its result"
    assert found["exp"].edges == ((0, 0, -1),)
    assert found["mul"].saved == (1,), "the factor of what requires grad"
    assert found["sum"].saved == ()
    assert found["div"].rounds
    assert not found["round"].rounds


def test_what_depends_on_a_word_is_another_kind():
    w = torch.ones(3, requires_grad=True)

    def run():
        torch.div(w, 2, rounding_mode="floor")
        torch.div(w, 2, rounding_mode=None)
        torch.div(w, 2, rounding_mode="trunc")

    trace = recorded(run)
    assert [trace.kinds[event.kind].rounds for event in trace.events] == [True, False, True]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def test_a_custom_function_says_what_it_keeps_checked_and_unchecked():
    w = torch.ones(3, requires_grad=True)
    kind = kinds(recorded(lambda: Scaled.apply(w, torch.ones(3))))["apply"]
    assert (kind.saved, kind.held) == ((0,), (1,))


def test_hooks_on_saved_tensors_are_not_run():
    w, seen = torch.ones(3, requires_grad=True), []

    def run():
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, seen.append):
            w.exp()

    kind = kinds(recorded(run))["exp"]
    assert not kind.known
    assert seen == []


def test_the_graph_of_a_backward_pass_is_walked():
    w, unused = (torch.ones(3, requires_grad=True) for _ in range(2))

    def run():
        h = w.exp()
        (h + unused.detach()).sum().backward()

    trace = recorded(run)
    (walk,) = trace.walks
    assert trace.events[walk.event].operation == "backward"
    assert len(walk.leaves) == 1
    reads = {event.operation: event.reads for event in trace.events}
    assert walk.leaves[0] == reads["exp"][0].tensor
    numbers = [n for first, last in walk.nodes for n in range(first, last + 1)]
    calls = [event for event in trace.events if event.kind >= 0]
    made = [event.operation for event in calls if event.nodes - 1 in numbers]
    assert made == ["exp", "add", "sum"]


def test_a_second_pass_says_which_nodes_had_been_freed():
    w = torch.ones(3, requires_grad=True)

    def run():
        h = w.exp()
        loss = h.sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()

    trace = recorded(run)
    assert [bool(walk.freed) for walk in trace.walks] == [False, True]


def truly_saved(call):
    """The memory of every tensor that autograd hands to hooks on saved tensors."""
    found = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: found.append(x.untyped_storage()._cdata) or x, lambda x: x
    ):
        result = call()
    return set(found), result


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_what_is_read_off_the_nodes_is_what_the_hooks_are_given(part):
    """For PyTorch's own samples of its operators, each in a fresh recording."""
    wrong, tried = [], 0
    for op in sampled(op_db[part::4], 30):
        if torch.float32 not in op.dtypes or not op.supports_autograd or "sparse" in op.name:
            continue
        samples = op.sample_inputs("cpu", torch.float32, requires_grad=True)
        for sample in itertools.islice(samples, 1):
            outcome = compared(op, sample)
            if outcome is not None:
                tried += 1
                wrong += [] if outcome == "" else [f"{op.name}: {outcome}"]
    assert tried > (60 if LONG else 10)
    assert not wrong


def compared(op, sample):
    """What is said of one call against the truth: None where there is nothing to compare."""
    call = lambda: op(sample.input, *sample.args, **sample.kwargs)  # noqa: E731
    try:
        truth, _ = truly_saved(call)
    except Exception:
        return None
    session = Session()
    session.start()
    try:
        result = call()
    finally:
        session.mute()
    trace, who = session.recorder.trace(), session.recorder.tape.who
    events = [event for event in trace.events if event.kind >= 0]
    if len(events) != 1:
        return None
    kind, operands = trace.kinds[events[0].kind], (*events[0].reads, *events[0].results)
    said = {operands[at].storage for at in kind.saved}
    given = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    memories = {}
    for one in given:
        storage = who.storage_of(one) if isinstance(one, torch.Tensor) else None
        if storage is not None:
            memories[storage.serial] = one.untyped_storage()._cdata
    wanted = {storage for storage, memory in memories.items() if memory in truth}
    extra, missing = said & memories.keys() - wanted, wanted - said
    del result
    return f"claimed {extra}, missed {missing}" if extra or missing else ""


def test_linear_keeps_its_input_only_where_the_weight_wants_a_gradient():
    x, w = torch.randn(2, 3), torch.randn(4, 3, requires_grad=True)

    def run():
        F.linear(x, w)
        F.linear(x.requires_grad_(), w.detach())

    trace = recorded(run)
    saved = [trace.kinds[event.kind].saved for event in trace.events if event.kind >= 0]
    assert (0,) in saved
    assert (1,) in saved
