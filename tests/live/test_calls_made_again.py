"""Whether a call needs a copy that lies in another way is asked of PyTorch: it is made again.

Where the answer is "no" the numbers are whole and small: their sums are exact in any order.
The answer stands on the line that copies, with a part of the reason where it is not "no".
"""

import gc
import textwrap
import weakref

import pytest
import torch

import tether
from programs import record_program
from test_needless_spellings import check_needs

START = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
cache = torch.zeros(2, 4, 64, 16)
"""

TRIED = {
    "keys and values of a cache, token by token": """
        @torch.inference_mode()
        def decode(n):
            cache[:, :, n] = torch.randint(-4, 5, (2, 4, 16)).float()
            q = torch.randint(-4, 5, (2, 4, 1, 16)).float()
            k = cache[:, :, : n + 1].contiguous()  #? no
            scores = torch.matmul(q, k.transpose(-2, -1)).clamp(-99, 99)
            print(torch.matmul(scores, k).sum())
        for n in range(1, 20):
            decode(n)
        """,
    "the cache is written while the copy lives": """
        k = cache[:, :, :8].contiguous()  #? yes writes
        cache[:, :, 3] = 1.0
        print(torch.matmul(k, k.transpose(-2, -1)).sum())
        """,
    "a mean that adds in another order": """
        x = torch.randn(300, 200)
        y = x.t().contiguous()  #? unknown may rely on its layout
        print(y.mean(1))
        """,
    "the same in one run and not in another": """
        for rows in (3, 300):
            x = torch.randn(rows, 200)
            y = x.t().contiguous()  #? unknown may rely on its layout
            print(y.mean(1))
        """,
    "gradients flow through it": """
        w = torch.randn(16, 16, requires_grad=True)
        y = w.t().contiguous()  #? unknown may rely on its layout
        (torch.ones(2, 16) @ y).sum().backward()
        """,
    "random numbers are drawn of it": """
        y = cache.transpose(2, 3).contiguous()  #? unknown may rely on its layout
        print(F.dropout(y, 0.5).sum())
        """,
    "beams that all have the memory of one sentence": """
        sentence = torch.randint(-4, 5, (1, 30, 16)).float()
        memory = sentence.expand(4, -1, -1)
        for _ in range(5):
            memory = memory.index_select(0, torch.randint(0, 4, (4,)))  #? no
            print(torch.matmul(memory, torch.ones(4, 16, 1)).sum())
        """,
    "beams whose memory is written": """
        memory = torch.randn(1, 30, 16).expand(4, -1, -1)
        for n in range(5):
            memory = memory.index_select(0, torch.randint(0, 4, (4,)))
            memory[n % 4] += 1
            print(torch.matmul(memory, torch.randn(4, 16, 1)).sum())
        """,
    "beams whose order hangs on what they hold": """
        sentence = torch.randint(-4, 5, (1, 30, 16)).float()
        memory = sentence.expand(4, -1, -1)
        for _ in range(5):
            best = torch.matmul(memory, torch.ones(4, 16, 1)).sum((1, 2)).argsort()
            memory = memory.index_select(0, best)  #? no
            print(memory.amax())
        """,
    "beams that are written where no version tells": """
        memory = torch.randn(1, 30, 16).expand(4, -1, -1)
        for n in range(5):
            memory = memory.index_select(0, torch.randint(0, 4, (4,)))
            memory.numpy()[n % 4] += 1
            print(torch.matmul(memory, torch.randn(4, 16, 1)).sum())
        """,
    "beams that differ": """
        memory = torch.randn(4, 30, 16)
        for n in range(5):
            memory = memory.index_select(0, torch.randint(0, 4, (4,)))
            print(torch.matmul(memory, torch.randn(4, 16, 1)).sum())
        """,
}


@pytest.mark.parametrize("name", TRIED)
def test_a_copy_is_tried_without(name, tmp_path):
    check_needs(START + textwrap.dedent(TRIED[name]), tmp_path)


def test_a_call_made_again_leaves_no_trace(tmp_path):
    """What the program draws after it, and how often its own code runs, is as without tether."""
    program = """
        import torch
        torch.manual_seed(3)
        calls = []
        def product(a, b):
            calls.append(1)
            return a @ b
        x = torch.randn(64, 48)
        y = x.t().contiguous()
        print(product(y, torch.ones(64, 2)).sum())
        drawn = torch.rand(1)
        """
    recording = record_program(program, tmp_path)
    trace = recording.trace
    assert [one.same for one in trace.tried] in ([True], [False])
    assert sum(event.operation == "matmul" for event in trace.events) == 1
    names = {}
    exec(textwrap.dedent(program), names)
    again = torch.rand(1)
    torch.manual_seed(3)
    torch.randn(64, 48)
    assert names["drawn"] == torch.rand(1) != again
    assert len(names["calls"]) == 1


def test_what_a_call_writes_or_a_mode_hears_is_not_made_again(tmp_path):
    program = """
        import torch, torch.nn.functional as F
        from torch.utils.flop_counter import FlopCounterMode
        x = torch.randn(64, 48)
        y = x.t().contiguous()
        statistics = torch.zeros(64), torch.ones(64)
        F.batch_norm(y, *statistics, training=True)
        total = torch.zeros(48, 2)
        torch.matmul(y, torch.ones(64, 2), out=total)
        with FlopCounterMode(display=False) as counted:
            y @ torch.ones(64, 2)
        assert counted.get_total_flops() == 2 * 48 * 64 * 2
        """
    recording = record_program(program, tmp_path)
    assert recording.error is None
    assert recording.trace.tried == []


def test_a_call_made_again_keeps_nothing_alive():
    """Not until Python's collector runs either, which is off meanwhile."""
    gc.disable()
    try:
        with tether.record() as recording:
            x = torch.randn(64, 48)
            y = x.t().contiguous()
            print((y @ torch.ones(64, 2)).sum())
            memory = [weakref.ref(one.untyped_storage()) for one in (x, y)]
            del x, y
            assert [one() for one in memory] == [None, None]
    finally:
        gc.enable()
    assert len(recording.trace.tried) == 1
