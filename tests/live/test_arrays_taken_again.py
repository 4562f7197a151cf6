"""Arrays that one line takes of one memory again and again: kept beside each other, or in turn."""

import textwrap

import pytest

from programs import record_program

START = """
import numpy as np
import torch

torch.manual_seed(0)
ring, kept, last = torch.zeros(64), [], None

def fill(n):
    ring[n % 64 :] = torch.randn(64 - n % 64)

def heard():
    array = ring.numpy()
    assert torch.is_tensor(ring)
    torch.zeros(1)
    return array

"""

KEPT = {
    "in a list": """
        for n in range(5):
            fill(n)
            kept.append(ring.numpy())  #!
        print(np.mean(kept))
        """,
    "beside another one, in one assignment": """
        for n in range(5):
            fill(n)
            one, two = ring.numpy(), ring.numpy() * 2  #!
            kept.append(one)
        print(np.mean(kept))
        """,
    "before and after, by a function, each round": """
        def took():
            return ring.numpy()  #!
        for n in range(4):
            before = took()
            fill(n)
            after = took()
            print(np.abs(after - before).max())
        """,
    "the first and the last": """
        for n in range(2):
            fill(n)
            kept.append(ring.numpy())  #!
        print(kept[0] - kept[1])
        """,
}

IN_TURN = {
    "bound anew": """
        for n in range(5):
            fill(n)
            heard_now = ring.numpy()
            print(heard_now.mean())
        """,
    "bound anew, in one assignment with a second": """
        for n in range(5):
            fill(n)
            now, twice = ring.cpu().numpy(), ring.numpy() * 2
            print((twice - now).var())
        """,
    "bound anew, beside two calls of PyTorch": """
        for n in range(5):
            fill(n)
            now, total, most = ring.numpy(), ring.sum(), ring.max().item()
            print(now.var(), total, most)
        """,
    "bound anew, from a function that goes on": """
        for n in range(5):
            fill(n)
            now = heard()
            print(now.var())
        """,
    "an attribute": """
        class Screen: pass
        screen = Screen()
        for n in range(5):
            fill(n)
            screen.shown, screen.level = heard(), ring.abs().mean()
            print(screen.shown.var())
        """,
    "an entry": """
        for n in range(5):
            fill(n)
            kept[:] = [heard(), ring.abs().mean()]
            print(kept[0].var())
        """,
    "an argument": """
        def show(array, level):
            print(array.var(), level)
        for n in range(5):
            fill(n)
            show(ring.numpy(), ring.abs().mean())
        """,
    "bound anew in a function that ends": """
        def listen():
            for n in range(2):
                fill(n)
                now = ring.numpy()
                print(now.var())
        listen()
        print(ring.sum())
        """,
    "bound anew in a function that ends, beside a call": """
        def listen():
            for n in range(2):
                fill(n)
                now, level = ring.numpy(), ring.sum()
                print(now.var(), level)
        listen()
        print(ring.sum())
        """,
    "twice": """
        for n in range(2):
            fill(n)
            now, level = heard(), ring.abs().mean()
        print(now.var())
        """,
}


def lines(text, folder):
    recording = record_program(text, folder)
    assert recording.error is None
    return [one.site.line for one in recording.findings if one.slug == "alias-write"]


@pytest.mark.parametrize("name", KEPT)
def test_arrays_that_live_beside_each_other_are_told(name, tmp_path):
    text = START + textwrap.dedent(KEPT[name])
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("#!")]
    assert lines(text, tmp_path) == marked


@pytest.mark.parametrize("name", IN_TURN)
def test_an_array_that_takes_the_place_of_the_last_is_not(name, tmp_path):
    assert lines(START + textwrap.dedent(IN_TURN[name]), tmp_path) == []
