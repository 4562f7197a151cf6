"""Tensors made by a type's own name, `torch.FloatTensor(x)`: what is told, and what stays as it is."""

import pytest

from programs import check_program, record_program

START = """\
import numpy as np, torch
rng = np.random.default_rng(0)
table = rng.normal(size=(256, 64)).astype(np.float32)
net = torch.nn.Linear(64, 4)
total = 0.0
"""

TOLD = {
    "a copy for what shows the array's own memory": """
        for n in range(8):
            cut = slice(n * 32, n * 32 + 32)
            rows = torch.FloatTensor(table[cut].copy())  #! needless-copy table[cut].copy() (note)
            total += net(rows).sum().item()
        """,
    "the same by the older name of all": """
        for n in range(8):
            part = np.array(table[n : n + 64])  #! needless-copy part (note)
            total += net(torch.Tensor(part)).sum().item()
        """,
    "a list that has not changed": """
        pairs = [[n, n + 1] for n in range(40_000)]
        for n in range(8):
            edges = torch.LongTensor(pairs)  #! slow-copy edges (note)
            total += edges[n:].sum().item()
        """,
    "a list of arrays": """
        for n in range(8):
            rows = [table[one] for one in rng.permutation(256)[:64]] * 8
            batch = torch.FloatTensor(rows)  #! slow-copy batch (note)
            total += net(batch).sum().item()
        """,
    "an array that is written while the tensor shows it": """
        kept = []
        frame = np.zeros((32, 64), np.float32)
        for n in range(4):
            frame[...] = n
            kept.append(torch.FloatTensor(frame))  #! alias-write kept
        total = float(sum(net(one).sum() for one in kept))
        """,
}

QUIET = {
    "an array of another type is converted": """
        wide = table.astype(np.float64)
        for n in range(6):
            rows = torch.FloatTensor(wide[n : n + 32] + n)
            total += net(rows).sum().item()
        """,
    "the copy is written, and the table read again": """
        for n in range(6):
            rows = torch.FloatTensor(table[n : n + 32].copy())
            rows.mul_(2.0)
            total += net(rows).sum().item() + table[n : n + 32].sum()
        """,
    "one array that is filled again, and copied": """
        kept = []
        frame = np.zeros((32, 64), np.float32)
        for n in range(4):
            frame[...] = n
            kept.append(torch.FloatTensor(frame.copy()))
        total = float(sum(net(one).sum() for one in kept))
        """,
    "a list that grows": """
        seen = [0.5] * 2000
        for n in range(6):
            seen.append(float(n))
            total += torch.FloatTensor(seen).sum().item()
        """,
    "sizes, and tensors": """
        for n in range(6):
            empty = torch.FloatTensor(4, 64).zero_()
            again = torch.FloatTensor(empty)
            total += net(again).sum().item()
        """,
}


@pytest.mark.parametrize("name", TOLD)
def test_told(name, tmp_path):
    check_program(START + TOLD[name].replace("\n        ", "\n"), tmp_path)


@pytest.mark.parametrize("name", QUIET)
def test_quiet(name, tmp_path):
    recording = record_program(START + QUIET[name].replace("\n        ", "\n"), tmp_path)
    assert recording.error is None
    assert [f"{one.slug} {one.site.line}" for one in recording.findings] == []


def test_a_type_is_what_it_was(tmp_path):
    recording = record_program(
        """
        import pickle
        import numpy as np, torch
        x = torch.FloatTensor([[1.0, 2.0]])
        kind = torch.FloatTensor
        assert isinstance(x, kind) and not isinstance(x, torch.LongTensor)
        assert isinstance(x, (torch.LongTensor, kind)) and issubclass(kind, kind)
        assert repr(kind) == "<class 'torch.FloatTensor'>" and kind.__name__ == "FloatTensor"
        assert kind.dtype is torch.float32 and kind == torch.FloatTensor != torch.LongTensor
        assert pickle.loads(pickle.dumps(kind)) is kind
        assert x.type(torch.DoubleTensor).dtype is torch.float64 and x.type() == "torch.FloatTensor"
        assert kind(3, 4).shape == (3, 4) and kind(x).data_ptr() == x.data_ptr()
        assert torch.Tensor(2).shape == (2,) and torch.Tensor().shape == (0,)
        torch.set_default_tensor_type(torch.DoubleTensor)
        assert torch.zeros(1).dtype is torch.float64
        torch.set_default_tensor_type("torch.FloatTensor")
        assert torch.zeros(1).dtype is torch.float32

        class Mine(torch.Tensor):
            pass

        assert type(Mine([1.0])) is Mine

        class Own(torch.Tensor):
            def __new__(cls, data, extra):
                made = super().__new__(cls, data)
                made.extra = extra
                return made

        assert Own([1.0, 2.0], 3).extra == 3
        try:
            torch.FloatTensor("a")
        except TypeError as error:
            assert "invalid data type" in str(error)

        @torch.jit.script
        def add(x: torch.FloatTensor):
            return x + 1

        assert add(x).shape == (1, 2)
        """,
        tmp_path,
    )
    assert recording.error is None
    assert not [gap for gap in recording.trace.gaps if gap.code not in ("compiled", "scripted")]


def test_the_names_are_put_back(tmp_path):
    import torch

    before = torch.FloatTensor, torch.cuda.LongTensor, torch._C._set_default_tensor_type
    record_program("import torch\nkind = torch.FloatTensor\nx = kind([1.0, 2.0])", tmp_path)
    now = torch.FloatTensor, torch.cuda.LongTensor, torch._C._set_default_tensor_type
    assert all(one is other for one, other in zip(before, now, strict=True))
    assert "__new__" not in vars(torch.Tensor)
    assert torch.Tensor([1.0, 2.0]).tolist() == [1.0, 2.0]
