"""How long arrays live, by weak references and, where those come too late, by holding them."""

import sys
import weakref

import numpy as np
import pytest
import torch

import test_arrays_copied_alone as alone
import test_copied_into_pytorch as into
from programs import check_program, record_program
from tether.record.arrays import lives as array_lives
from tether.record.arrays.lives import ArrayLives
from tether.record.arrays.memory import ByteSum
from tether.record.patches import arrays

LATE = {name: text for name, text in into.NEEDLESS.items() if name != into.BETWEEN_TWO_CALLS}


@pytest.fixture(params=[True, False], ids=["referred", "held"])
def lives(request, monkeypatch):
    if request.param and not array_lives.CALLED_BACK_IN_TIME:
        pytest.skip("this NumPy gives the memory up first")
    monkeypatch.setattr(array_lives, "CALLED_BACK_IN_TIME", request.param)
    return ArrayLives()


def test_the_memory_is_there_when_an_array_goes(lives):
    array, seen = np.arange(1 << 16), []
    before = ByteSum(array)
    life = lives.follow(array, lambda: seen.append(before.changed()))
    view = array[5:]
    del array
    lives.look()
    assert life() is view.base
    assert seen == []
    del view
    lives.look()
    assert life() is None
    assert seen == [False]


def test_it_has_gone_for_who_asks_before_the_next_call(lives):
    array, seen = np.arange(100), []
    life = lives.follow(array, lambda: seen.append("gone"))
    del array
    assert life() is None
    assert seen == ["gone"]


def test_several_follow_one_array_and_one_leaves(lives):
    array, seen = np.arange(100), []
    first, second = (lives.follow(array, lambda n=n: seen.append(n)) for n in range(2))
    first.leave()
    assert second() is array
    assert first() is None
    del array
    lives.look()
    assert seen == [1]


def test_nothing_is_held_when_all_have_left_or_the_recording_ends(lives):
    arrays = [np.arange(100) for _ in range(2)]
    gone = [weakref.ref(one) for one in arrays]
    followed = [lives.follow(one, lambda: None) for one in arrays]
    followed[0].leave()
    lives.end()
    arrays.clear()
    assert [one() for one in gone] == [None, None]


def test_many_are_asked_in_turns(lives):
    arrays = [np.arange(4) for _ in range(100)]
    seen = []
    followed = [
        lives.follow(one, lambda n=n: seen.append(n)) for n, one in enumerate(arrays)
    ]  # fmt: skip
    arrays.clear()
    for _ in range(25):
        lives.look()
    assert sorted(seen) == list(range(100))
    assert len(followed) == 100


def test_what_fails_as_an_array_goes_holds_nothing(monkeypatch):
    monkeypatch.setattr(array_lives, "CALLED_BACK_IN_TIME", False)
    lives = ArrayLives()

    def fails():
        raise RuntimeError("as it goes")

    lives.follow(np.arange(3), fails)
    with pytest.raises(RuntimeError):
        lives.look()
    assert not lives.held


@pytest.fixture
def held(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, arrays.BY_IDENTITY, raising=False)  # of another test
    monkeypatch.setattr(array_lives, "CALLED_BACK_IN_TIME", False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", alone.NEEDLESS)
def test_a_needless_copy_is_told_of_arrays_that_are_held(name, tmp_path, held):
    check_program(alone.program(alone.NEEDLESS[name]), tmp_path)


@pytest.mark.parametrize("name", LATE)
def test_a_copy_into_pytorch_is_told_of_arrays_that_are_held(name, tmp_path, held):
    check_program(into.program(LATE[name]), tmp_path)


@pytest.mark.parametrize("module", [alone, into], ids=["alone", "into"])
def test_nothing_is_told_of_needed_copies_that_are_held(module, tmp_path, held):
    for name, text in module.RIGHT.items():
        found = record_program(module.program(text), tmp_path)
        assert not [one for one in found.findings if one.slug == "needless-copy"], name


def test_an_array_goes_before_the_next_call_at_the_latest(tmp_path, held):
    text = """
        import weakref
        for n in range(4):
            rows = table[n * 8 : n * 8 + 64] + 1
            gone = weakref.ref(rows)
            tensor = torch.from_numpy(rows.copy())
            del rows
            total += tensor.sum().item()
            assert gone() is None
        """
    assert record_program(into.program(text), tmp_path).error is None


def test_a_file_that_is_written_to_is_told_of_as_its_array_goes(tmp_path, held):
    np.zeros((64, 64), np.float32).tofile("rows.bin")
    text = """\
import numpy as np, torch
def shift():
    rows = np.memmap("rows.bin", np.float32, "r+", shape=(64, 64))
    torch.from_numpy(rows).add_(1)
shift()
print(torch.ones(2).sum())
"""
    assert record_program(text, tmp_path).trace.mapped_files
    assert torch.ones(1).item() == 1
