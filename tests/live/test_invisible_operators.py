"""PyTorch's own table of operators, with its own samples: bare against recorded.

Outputs, gradients and versions are the same bits; and what was recorded is true: who shares
memory with whom, and who was written, measured outside of the recorder. The ordinary run takes
the first sample of every other operator, ``--long`` two of each, ``TETHER_ALL=1`` all there are.
"""

import os
import warnings

import pytest
import torch

from lengths import LONG, sampled
from tether.record.names import holders
from tether.record.session import Session

methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
ALL = bool(os.environ.get("TETHER_ALL"))
SAMPLES = 10**9 if ALL else 2 if LONG else 1
# Their result is memory that nobody wrote, or differs from one bare run to the next.
UNDEFINED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided",
    "empty_permuted", "nn.functional.rrelu"}  # fmt: skip


def tensors(value, into=None):
    into = [] if into is None else into
    if isinstance(value, torch.Tensor):
        into.append(value)
    elif isinstance(value, (list, tuple)):
        for one in value:
            tensors(one, into)
    elif isinstance(value, dict):
        for one in value.values():
            tensors(one, into)
    return into


def copied(value):
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return value.detach().clone().requires_grad_(value.requires_grad)
        room = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        if room.untyped_storage().nbytes() and 0 not in value.stride():
            room.copy_(value.detach())
        else:
            room = value.detach().clone(memory_format=torch.preserve_format)
        return room.requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)([copied(one) for one in value])
    if type(value) is dict:
        return {key: copied(one) for key, one in value.items()}
    return value


def bits(value):
    if value.layout is not torch.strided or value.is_quantized:
        return repr(value)
    plain = value.detach().resolve_conj().resolve_neg()
    room = torch.empty(plain.numel(), dtype=plain.dtype).copy_(plain.reshape(-1))
    return (value.dtype, value.shape, value.stride(), value.requires_grad, room.view(torch.uint8))


def equal(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return a[:-1] == b[:-1] and torch.equal(a[-1], b[-1])


def memory(tensor):
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None


class Run:
    """One call of an operator, with its backward pass."""

    def __init__(self, op, sample):
        self.given = copied([sample.input, *sample.args])
        self.named = copied(sample.kwargs)
        self.inputs = tensors([self.given, self.named])
        self.before = [one._version for one in self.inputs]
        self.error = None
        self.outputs, self.grads = [], []
        torch.manual_seed(0)
        try:
            self.outputs = tensors(op(*self.given, **self.named))
            live = [one for one in self.outputs if one.requires_grad and one.grad_fn is not None]
            leaves = [one for one in self.inputs if one.requires_grad and one.is_leaf]
            if live and leaves:
                total = sum(one.abs().sum() if one.is_complex() else one.sum() for one in live)
                self.grads = torch.autograd.grad(total.to_dense(), leaves, allow_unused=True)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"

    def moved(self):
        return [one._version - was for one, was in zip(self.inputs, self.before, strict=True)]


def compare(name, bare, seen):
    assert bare.error == seen.error, name
    assert bare.moved() == seen.moved(), name
    for what in ("inputs", "outputs", "grads"):
        ours, theirs = getattr(seen, what), getattr(bare, what)
        assert len(ours) == len(theirs), (name, what)
        for a, b in zip(ours, theirs, strict=True):
            if a is None or b is None:
                assert a is b, (name, what)
            elif name not in UNDEFINED:
                assert equal(bits(a), bits(b)), (name, what)
    sharing = [
        [memory(a) == memory(b) for b in (*run.outputs, *run.inputs)] for run in (bare, seen)
        for a in run.outputs
    ]  # fmt: skip
    assert sharing[: len(sharing) // 2] == sharing[len(sharing) // 2 :], name


def check_record(name, session, run, first):
    """What the record says of the call against what can be measured."""
    who = session.recorder.tape.who
    known = [who.snapshot(one) for one in (*run.inputs, *run.outputs)]
    for one, snapshot in zip((*run.inputs, *run.outputs), known, strict=True):
        assert snapshot[2] in (-1, one._version), name
        assert snapshot[3] == one.requires_grad, name
    everyone = [*run.inputs, *run.outputs]
    for a, left in zip(everyone, known, strict=True):
        for b, right in zip(everyone, known, strict=True):
            if None not in (memory(a), memory(b)) and -1 not in (left[1], right[1]):
                assert (memory(a) == memory(b)) == (left[1] == right[1]), name
    if run.error:
        return
    events = session.recorder.trace().events[first:]
    written = {operand.tensor for event in events for operand in event.writes}
    for one, moved, snapshot in zip(run.inputs, run.moved(), known[: len(run.inputs)], strict=True):
        assert not moved or snapshot[0] in written, (name, "a write was missed")
        del one
    returned = {operand.tensor for event in events for operand in event.results}
    for snapshot in known[len(run.inputs) :]:
        given = snapshot[0] in {one[0] for one in known[: len(run.inputs)]}
        assert snapshot[0] in returned or given, (name, "a result was missed")


def of(op):
    """Return the operator's samples: floats where it takes them, else whatever it takes."""
    types = op.supported_dtypes("cpu")
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool):
        if dtype in types:
            return op.sample_inputs(
                "cpu",
                dtype,
                requires_grad=op.supports_autograd
                and (dtype.is_floating_point or dtype.is_complex),
            )
    return op.sample_inputs("cpu", next(iter(types)))


def try_all(ops):
    calls, failures = 0, []
    for op in ops:
        try:
            torch.manual_seed(1)
            samples = []
            for sample in of(op):
                samples.append(sample)
                if len(samples) >= SAMPLES:
                    break
        except Exception:  # its samples need what is not installed
            continue
        session = Session()
        session.recorder.naming.maybe_search = lambda _: None  # pytest's own frames are large
        for sample in samples:
            bare = Run(op, sample)
            session.start()
            first = session.recorder.tape.log.count
            try:
                seen = Run(op, sample)
            finally:
                session.mute()
            calls += 1
            try:
                compare(op.name, bare, seen)
                check_record(op.name, session, seen, first)
            except AssertionError as error:
                failures.append(f"{op.name}: {str(error)[:200]}")
        gaps = [gap for gap in session.recorder.tape.gaps if gap[0] == "failed"]
        failures += [f"{op.name}: {gap}" for gap in gaps]
    return calls, failures


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_every_operator(part, monkeypatch):
    monkeypatch.setattr(holders, "VISITS", 200)  # the table of operators is in reach of each search
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls, failures = try_all(sampled(methods.op_db[part::4], 40))
    assert not failures, "\n".join(failures)
    assert calls > (150 if LONG else 25)
    print(f"{calls} calls")
