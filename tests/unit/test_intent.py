"""The decision table of `tether.copying.intent`, without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tether.copying.intent import PLAIN_WORLD, Intent, Refused, Subject, Target, World, decide

CPU = Subject(shape=(4,), formats=frozenset({"contiguous"}))
GRAD = CPU._replace(requires_grad=True)
CUDA = CPU._replace(device="cuda:0")
HALF = CPU._replace(dtype="bfloat16")
SPARSE = CPU._replace(layout="sparse_coo")
CONJ = CPU._replace(dtype="complex64", conj=True)
OUT = Target("cpu", "float32", (4,))


def check_plan(
    subject: Subject, expected: str, world: World = PLAIN_WORLD, **intent: object
) -> None:
    """Assert that `intent` for `subject` is the calls of `expected`, or "refused: a, b"."""
    target = intent.pop("target", None)
    wanted = Intent(**intent, out=target is not None)  # type: ignore[arg-type]
    if expected.startswith("refused"):
        with pytest.raises(Refused) as caught:
            decide(wanted, subject, target, world)  # type: ignore[arg-type]
        for words in expected.removeprefix("refused: ").split(", "):
            assert words in str(caught.value)
        assert caught.value.why
        assert caught.value.instead
        return
    plan = decide(wanted, subject, target, world)  # type: ignore[arg-type]
    assert " ".join(plan.calls) == expected
    assert (plan.memory, plan.grad) == (wanted.memory, wanted.grad)
    assert all(step.why in str(plan) for step in plan.steps)


@pytest.mark.parametrize(
    ("subject", "intent", "expected"),
    [
        (CPU, {}, "clone"),
        (GRAD, {}, "detach clone"),
        (GRAD, {"grad": "keep"}, "clone"),
        (GRAD, {"memory": "share"}, "detach"),
        (GRAD, {"memory": "share", "grad": "keep"}, "alias"),
        (CPU, {"dtype": "float32"}, "clone"),
        (CPU, {"dtype": "float64"}, "convert"),
        (GRAD, {"dtype": "float64"}, "detach convert"),
        (GRAD, {"dtype": "float64", "grad": "keep"}, "convert"),
        (GRAD, {"dtype": "int64", "grad": "keep"}, "refused: no gradient, cut"),
        (GRAD._replace(inference=True), {"grad": "keep"}, "refused: inference mode"),
        (CPU, {"device": "cuda:0"}, "move"),
        (CUDA, {"device": "cuda:0"}, "clone"),
        (CUDA, {}, "clone"),
        (CUDA, {"to": "numpy"}, "move numpy"),
        (CUDA, {"memory": "share", "to": "numpy"}, "refused: cannot reach, own"),
        (CPU, {"memory": "share", "device": "cuda:0"}, "refused: no memory in common, own"),
        (CPU, {"memory": "share", "dtype": "int32"}, "refused: other values, own"),
        (CPU, {"memory": "share", "memory_format": "contiguous"}, "detach"),
        (CPU, {"memory": "share", "memory_format": "channels_last"}, "refused: order, own"),
        (CPU, {"memory": "share", "non_blocking": True}, "refused: waited for"),
        (GRAD, {"to": "numpy"}, "detach clone numpy"),
        (GRAD, {"to": "numpy", "memory": "share"}, "detach numpy"),
        (GRAD, {"to": "numpy", "memory": "share", "readonly": True}, "detach numpy readonly"),
        (GRAD, {"to": "numpy", "grad": "keep"}, "refused: do not flow, cut"),
        (CPU, {"to": "numpy", "device": "cuda:0"}, "refused: host memory"),
        (CPU, {"readonly": True}, "refused: NumPy"),
        (CONJ, {"to": "numpy"}, "clone resolve numpy"),
        (CONJ, {"to": "numpy", "memory": "share"}, "refused: conjugate bit, own"),
        (HALF, {"to": "numpy", "dtype": "float32"}, "convert numpy"),
        (HALF, {"to": "numpy"}, "refused: ml_dtypes, float32"),
        (CPU._replace(dtype="bits8"), {"to": "numpy"}, "refused: no bits8, float32"),
        (SPARSE, {"to": "numpy"}, "refused: sparse_coo, dense=True"),
        (SPARSE, {"to": "numpy", "dense": True}, "dense numpy"),
        (SPARSE, {}, "clone"),
        (SPARSE, {"memory": "share", "dense": True}, "refused: no zeros, own"),
        (CPU, {"pinned": True}, "refused: CUDA"),
        (GRAD, {"to": "dlpack"}, "detach clone dlpack"),
        (GRAD, {"to": "dlpack", "memory": "share"}, "detach dlpack"),
        (CPU, {"non_blocking": True}, "clone pending"),
    ],
)
def test_what_is_decided(subject, intent, expected):
    check_plan(subject, expected, **intent)


@pytest.mark.parametrize(
    ("target", "intent", "expected"),
    [
        (OUT, {}, "write"),
        (OUT._replace(dtype="float64"), {}, "write"),
        (OUT._replace(shape=(5,)), {}, "refused: [5], [4]"),
        (OUT._replace(overlapping=True), {}, "refused: expanded"),
        (OUT._replace(touches_source=True), {}, "refused: shares bytes"),
        (OUT._replace(readonly=True), {}, "refused: read-only"),
        (OUT, {"dtype": "float64"}, "refused: float32, omit dtype"),
        (OUT, {"device": "cuda:0"}, "refused: omit device"),
        (OUT, {"memory": "share"}, "refused: own"),
        (OUT, {"to": "dlpack"}, "refused: capsule"),
        (OUT, {"memory_format": "channels_last"}, "refused: omit memory_format and pinned"),
    ],
)
def test_what_is_decided_for_an_out(target, intent, expected):
    check_plan(CPU, expected, target=target, **intent)


def test_an_out_of_a_graph_is_refused():
    check_plan(GRAD, "refused: source's graph, cut", target=OUT, grad="keep")
    check_plan(CPU, "write", target=OUT)


def test_a_complex_source_keeps_its_imaginary_part():
    check_plan(CONJ, "refused: imaginary", target=OUT)


def test_what_the_machine_has_is_used():
    check_plan(HALF, "clone ml_dtypes", World(ml_dtypes=True), to="numpy")
    check_plan(CPU, "clone pin", World(cuda=True), pinned=True)
    check_plan(CUDA, "move pending", World(cuda=True), pinned=True, device="cpu", non_blocking=True)
    check_plan(CPU, "refused: host memory", World(cuda=True), pinned=True, device="cuda:0")
    check_plan(CPU, "refused: pin it", World(cuda=True), pinned=True, memory="share")


@pytest.mark.parametrize("option", ["memory", "grad", "memory_format"])
def test_a_word_that_is_not_known_is_named(option):
    with pytest.raises(ValueError, match=f"{option}='maybe'"):
        decide(Intent(**{option: "maybe"}), CPU)


def test_the_checker_can_fail():
    with pytest.raises(AssertionError):
        check_plan(GRAD, "clone")
    with pytest.raises(pytest.fail.Exception):
        check_plan(GRAD, "refused: no")


def test_deciding_needs_no_torch():
    program = "import sys, tether.copying.intent as i; i.decide(i.Intent(), i.Subject())"
    program += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
