"""The pool of mapped memory and the number of threads."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading

import pytest
import torch
import torch.multiprocessing

import tether
from tether.copying import pool, steps, threads

SIZE = 33 << 20


@pytest.fixture(autouse=True, scope="module")
def quick_collections():
    """Have the collector pass over all that is there before these tests, which run it often."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_is_left_out():
    gc.collect()
    tether.pool.trim()
    before = tether.pool.stats()
    yield
    gc.collect()
    after = tether.pool.stats()
    assert after.leased_blocks == before.leased_blocks
    tether.pool.trim()
    assert tether.pool.stats().idle_bytes == 0


def source(nbytes: int = SIZE) -> torch.Tensor:
    return torch.arange(nbytes // 4, dtype=torch.int32)


def test_memory_is_used_again():
    x = source()
    address = tether.copy(x).data_ptr()
    before = tether.pool.stats()
    again = tether.copy(x)
    assert again.data_ptr() == address
    assert torch.equal(again, x)
    after = tether.pool.stats()
    assert (after.hits - before.hits, after.misses) == (1, before.misses)
    assert address % pool.HUGE_PAGE == 0


def test_a_view_or_an_array_holds_the_block():
    view = tether.copy(source())[3:5]
    assert tether.pool.stats().leased_blocks == 1
    array = view.numpy()
    del view
    assert tether.pool.stats().leased_blocks == 1
    assert array.tolist() == [3, 4]
    del array
    assert tether.pool.stats().leased_blocks == 0


def test_it_is_an_ordinary_tensor(tmp_path):
    x = source()
    copied = tether.copy(x)
    plain = x.clone()
    for name in ("_version", "is_leaf", "requires_grad", "dtype", "shape"):
        assert getattr(copied, name) == getattr(plain, name)
    assert not copied._is_view()
    assert type(copied.untyped_storage()) is torch.UntypedStorage
    assert copied.untyped_storage().nbytes() == plain.untyped_storage().nbytes()
    torch.save(copied, tmp_path / "pooled")
    torch.save(plain, tmp_path / "plain")
    sizes = [(tmp_path / name).stat().st_size for name in ("pooled", "plain")]
    assert abs(sizes[0] - sizes[1]) < 1000
    assert torch.equal(pickle.loads(pickle.dumps(copied)), x)
    assert torch.equal(copied.resize_(5), x[:5])
    assert tether.copy(x).share_memory_().is_shared()
    with pytest.raises(RuntimeError, match="not resizable"):
        copied.resize_(SIZE)


def test_the_limit_holds(monkeypatch):
    monkeypatch.setattr(tether.pool, "limit", 80 << 20)
    x = source()
    held = [tether.copy(x) for _ in range(4)]
    assert tether.pool.stats().leased_blocks == 4
    del held
    idle = tether.pool.stats()
    assert (idle.idle_blocks, idle.idle_bytes) == (2, 2 * pool.capacity_for(SIZE))
    assert tether.pool.trim(to=40 << 20) == pool.capacity_for(SIZE)
    assert "idle" in str(idle)


def test_the_switch(monkeypatch):
    monkeypatch.setattr(tether.pool, "enabled", False)
    copied = tether.copy(source())
    assert copied.untyped_storage().resizable()
    assert tether.pool.stats().leased_blocks == 0


def test_the_environment_turns_it_off():
    program = "import tether, sys; sys.exit(tether.pool.enabled)"
    environment = dict(os.environ, TETHER_POOL="0")
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@pytest.mark.parametrize("nbytes", [1, pool.HUGE_PAGE, pool.HUGE_PAGE + 1, SIZE, 1 << 30, 10**10])
def test_a_block_fits_and_wastes_at_most_an_eighth(nbytes):
    capacity = pool.capacity_for(nbytes)
    assert capacity % pool.HUGE_PAGE == 0
    assert nbytes <= capacity < max(nbytes * 1.13, nbytes + pool.HUGE_PAGE)


def test_without_memory_to_map_pytorch_is_asked(monkeypatch):
    def refuse(capacity: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(pool, "_Block", refuse)
    x = source()
    copied = tether.copy(x)
    assert torch.equal(copied, x)
    assert copied.untyped_storage().resizable()


def test_many_threads_share_it():
    x = source(2 << 20)
    wrong: list[int] = []

    def work(number: int) -> None:
        mine = x + number
        for _ in range(60):
            copied = steps.own(mine, pooled_from=1)
            view = copied[7:]
            del copied
            if not torch.equal(view, mine[7:]):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_block_can_come_back_in_another_thread_and_from_a_cycle():
    copied = [tether.copy(source())]
    worker = threading.Thread(target=copied.clear)
    worker.start()
    worker.join()
    assert tether.pool.stats().leased_blocks == 0
    ring: list[object] = [tether.copy(source())]
    ring.append(ring)
    del ring
    gc.collect()
    assert tether.pool.stats().leased_blocks == 0


def test_a_block_that_comes_back_under_the_lock_waits_for_it():
    copied = tether.copy(source())
    with pool._pool._lock:
        del copied  # as the garbage collector does, in the middle of a lease
    assert tether.pool.stats().leased_blocks == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_starts_anew():
    x = source()
    kept = tether.copy(x)
    spare = tether.copy(x)
    del spare
    with pool._pool._lock:  # held by another thread, for all the child knows
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)
            fine = tether.pool.stats()[:4] == (1, pool.capacity_for(SIZE), 0, 0)
            kept.zero_()
            mine = tether.copy(x)
            fine = fine and bool((mine[::999] == x[::999]).all())
            del kept
            fine = fine and tether.pool.stats().idle_blocks == 1
            os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(kept, x)


def test_it_survives_the_end_of_the_interpreter():
    program = (
        "import torch, tether\n"
        "kept = tether.copy(torch.ones(9 << 20))\n"
        "class Late:\n"
        "    def __init__(self, x): self.x = x\n"
        "    def __del__(self): self.x = None\n"
        "late = Late(tether.copy(kept)); late.me = late\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stderr == ""


def test_one_thread_is_this_callers_business():
    before = torch.get_num_threads()
    inside = threads.single_threaded(torch.get_num_threads)
    assert torch.get_num_threads() == before
    if threads._openmp() is not None:
        assert inside == 1


class Copies:
    """Copies that take a stated time each way, and which way each was made."""

    def __init__(self, monkeypatch, shared: float, alone: float) -> None:
        self.costs = {"shared": shared, "alone": alone}
        self.used: list[str] = []
        now = [0.0]

        def made(name: str) -> None:
            self.used.append(name)
            now[0] += self.costs[name]

        self._made = made
        monkeypatch.setattr(threads, "_classes", [threads._Class() for _ in range(64)])
        monkeypatch.setattr(threads, "_clock", lambda: now[0])
        monkeypatch.setattr(threads, "single_threaded", lambda function: made("alone"))
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def make(self, count: int, nbytes: int = 8 << 20) -> list[str]:
        """Make copies and return the ways they were made."""
        before = len(self.used)
        for _ in range(count):
            threads.paced(lambda: self._made("shared"), nbytes)
        return self.used[before:]


def test_the_better_way_is_learnt(monkeypatch):
    copies = Copies(monkeypatch, shared=10, alone=1)
    assert copies.make(1000)[-300:].count("alone") > 270
    copies.costs = {"shared": 1, "alone": 10}
    assert copies.make(1000)[-300:].count("shared") > 270


def test_a_few_copies_are_enough_to_choose(monkeypatch):
    copies = Copies(monkeypatch, shared=10, alone=1)
    assert copies.make(8)[-4:] == ["alone"] * 4
    assert copies.make(1, nbytes=16 << 20) == ["alone"]  # as what was learnt next to it says


def test_a_stall_is_answered_at_once_and_its_end_noticed(monkeypatch):
    copies = Copies(monkeypatch, shared=1, alone=2)
    copies.make(1000)
    copies.costs["shared"] = 100  # a neighbour took a core
    assert copies.make(100).count("shared") < 25
    copies.costs["shared"] = 1
    assert copies.make(400)[-100:].count("shared") > 90
    small = 1 << 20
    copies.costs = {"shared": 1, "alone": 2}
    copies.make(1000, small)
    copies.costs["shared"] = 100
    assert copies.make(100, small).count("shared") < 35


def test_one_thread_leaves_nothing_to_choose(monkeypatch):
    copies = Copies(monkeypatch, shared=10, alone=1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert set(copies.make(100)) == {"shared"}
