"""The timer, the account of memory and the ways: facts, never a time that must be short."""

import pytest
import torch

import tether
from tether.measure import allocations, bench, machine_limits, timing


def test_every_way_is_run_as_often_as_the_others():
    runs = []
    names = {"runs": runs}
    ways = {name: timing.Statement(f"runs.append('{name}')", names) for name in "abc"}
    found = timing.interleaved(ways, 60.0, rounds=4)
    assert {len(sample.times) for sample in found.values()} == {4}
    for name, sample in found.items():
        assert runs.count(name) >= 4 * sample.calls
        assert all(time > 0 for time in sample.times)


def test_time_that_is_over_ends_the_rounds_but_never_below_the_least():
    found = timing.interleaved({"a": timing.Statement("1", {})}, 0.0, rounds=1000)
    assert len(found["a"].times) == timing.LEAST


def test_progress_only_grows_and_ends_at_one():
    heard = []
    timing.interleaved({"a": timing.Statement("1", {})}, 60.0, rounds=5, progress=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([1.0, 1.01, 0.99, 1.0, 1.02, 1.0], ""),
        ([1.0, 1.0, 1.0, 2.0, 2.0, 2.0], "became slower"),
        ([2.0, 2.0, 2.0, 1.0, 1.0, 1.0], "became faster"),
        ([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0], "apart"),
        ([1.0], "one sample"),
    ],
)
def test_noise_is_said_in_words(times, said):
    words = timing.noise(timing.Samples(tuple(times), 1, 0.0))
    assert said in words
    assert bool(words) == bool(said)


@pytest.mark.parametrize(
    ("expression", "allocated", "peak", "memory", "gradient"),
    [
        ("x.clone()", 4000, 4000, "none", "descendant"),
        ("x.detach()", 0, 0, "same", "cut"),
        ("x.detach().clone().clone()", 8000, 8000, "none", "cut"),
        ("x.detach().numpy().copy()", 4000, 4000, "none", "cut"),
        ("x.detach().numpy()", 0, 0, "same", "cut"),
        ("x[:10]", 0, 0, "overlaps", "descendant"),
        ("tether.copy(x)", 4000, 4000, "none", "cut"),
    ],
)
def test_the_account_of_one_call(expression, allocated, peak, memory, gradient):
    x = torch.ones(1000, requires_grad=True)
    names = {"x": x, "torch": torch, "tether": tether}
    found = allocations.account(timing.eval_of(expression, names), x)
    assert (found.allocated, found.peak, found.waits) == (allocated, peak, 0)
    assert found.memory == memory
    assert (found.gradient == "cut") == (gradient == "cut")


def test_a_temporary_counts_to_the_peak_only_while_it_lives():
    x = torch.ones(1000)

    def call():
        first = x.clone()
        del first
        return x.clone()

    found = allocations.account(call, x)
    assert (found.allocated, found.peak) == (8000, 4000)


def test_a_result_that_is_no_tensor_is_said():
    x = torch.ones(3)
    found = allocations.account(x.tolist, x)
    assert "list" in found.note
    assert found.memory == ""


def test_fresh_memory_faults_and_mapped_memory_does_not():
    x = torch.ones(8 << 20, dtype=torch.uint8)
    held = x.clone()
    before = timing.page_faults()
    held.copy_(x)
    mapped = timing.page_faults() - before
    before = timing.page_faults()
    machine_limits.fresh(8 << 20, huge=False).copy_(x)
    assert timing.page_faults() - before >= (8 << 20) // 65536  # pages of 64 KB at most
    assert mapped < 100


def test_the_machine_s_limits_have_names_and_speeds():
    found = machine_limits.measure(1 << 22, 0.1)
    names = [one.name for one in found]
    assert "mapped memory, one thread" in names
    assert "fresh memory, small pages" in names
    assert all(one.low <= one.seconds <= one.high and one.speed > 0 for one in found)


def test_the_usual_ways_at_two_sizes():
    measured = bench.run(sizes=[2, 4096], seconds=0.2)
    assert {cost.nbytes for cost in measured.costs} == {2, 4096}
    assert set(measured.floor) == {2, 4096}
    large = {cost.way: cost for cost in measured.costs if cost.nbytes == 4096}
    assert set(large) == {way.expression for way in bench.WAYS}
    assert "requires grad" in large["x.clone().numpy()"].note
    for way, cost in large.items():
        if way != "x.clone().numpy()":
            assert (cost.memory, cost.allocated) == ("none", 4096), way
    small = {cost.way: cost for cost in measured.costs if cost.nbytes == 2}
    assert "cannot require grad" in small["x.clone().detach().numpy()"].note
    assert small["x.clone().detach()"].seconds > 0


def test_sizes_that_become_the_same_are_measured_once():
    setting = bench.Setting("float32", "n,64")
    measured = bench.run([bench.Way("x.t()", "e")], [1, 4, 256], setting, seconds=0.1)
    assert [cost.nbytes for cost in measured.costs] == [256]


@pytest.mark.parametrize(
    ("text", "shape"), [("n", (None,)), ("n,64", (None, 64)), ("(2, n, 3)", (2, None, 3))]
)
def test_shapes(text, shape):
    assert bench.shape_of(text) == shape


@pytest.mark.parametrize("text", ["", "3", "n,n", "n,x", "n,0"])
def test_bad_shapes(text):
    with pytest.raises(ValueError, match=r"shape|exactly one n"):
        bench.shape_of(text)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_cuda_device():
    setting = bench.Setting(device="cuda")
    ways = [bench.Way("x.clone()", "e"), bench.Way("x.cpu()", "e")]
    measured = bench.run(ways, [1 << 20], setting, seconds=0.5)
    clone, to_host = measured.costs
    assert (clone.allocated, clone.waits) == (1 << 20, 0)
    assert to_host.waits >= 1
    assert {one.name for one in machine_limits.measure(1 << 22, 0.2)} >= {"pinned to device"}
