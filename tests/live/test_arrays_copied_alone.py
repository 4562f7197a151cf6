"""Arrays that NumPy copies for nothing, whether PyTorch meets them or not, and right look-alikes."""

import copy
import io
import pickle
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import tether
from programs import check_program, record_program
from tether.record.patches import arrays

START = """\
import copy, hashlib, io, zlib
import numpy as np, torch
rng = np.random.default_rng(0)
table = rng.normal(size=(256, 64)).astype(np.float32)
net = torch.nn.Linear(64, 4)
total = 0.0
"""

NEEDLESS = {
    "what has that format already, out of a tensor": """
        for n in range(6):
            guess = torch.from_numpy(table).mul(9).long().numpy().astype(np.int64)  #! needless-copy guess (note)
            total += int((guess == n).sum())
        for n in range(40):
            same = np.array(table, dtype=np.float32)  #! needless-copy same (note)
            total += float(same.max())
        """,
    "a parameter of a function, over its own name": """
        def spectrum(wave):
            wave = np.array(wave, dtype=np.float32)  #! needless-copy wave (note)
            return torch.from_numpy(wave).square().sum(1)
        for n in range(6):
            total += spectrum(table).sum().item()
        """,
    "a whole buffer, of which rows are taken": """
        class Memory:
            def __init__(self):
                self.parts = {"seen": np.zeros((512, 64), np.float32), "gain": np.zeros(512, np.float32)}
                self.size = 0
            def add(self, rows):
                self.parts["seen"][self.size : self.size + len(rows)] = rows
                self.size += len(rows)
            def draw(self):
                held = {}
                for name in self.parts:
                    held[name] = self.parts[name][: self.size].copy()  #! needless-copy held[name] (note)
                at = rng.integers(0, self.size, 16)
                return {name: one[at] for name, one in held.items()}
        memory = Memory()
        for n in range(8):
            memory.add(table[:64])
            total += float(memory.draw()["seen"].sum())
        """,
    "bytes for a hash, and for a file": """
        out = io.BytesIO()
        def put(rows):
            payload = rows.numpy().tobytes()  #! needless-copy payload (note)
            out.write(payload)
        for n in range(8):
            rows = torch.from_numpy(table) + n
            put(rows)
            digest = hashlib.sha256()
            digest.update(rows.numpy().tobytes())  #! needless-copy rows.numpy().tobytes() (note)
            total += zlib.crc32(rows.numpy().tobytes())  #! needless-copy rows.numpy().tobytes() (note)
        """,
    "the arrays of what holds them": """
        sample = {"image": table, "label": 3}
        def load():
            return copy.deepcopy(sample)  #! needless-copy copy.deepcopy(sample) (note)
        for n in range(8):
            total += float(load()["image"].mean())
        """,
    "flat, of what lies flat": """
        for n in range(8):
            line = table.flatten()  #! needless-copy line (note)
            total += float(line[::7].sum())
        """,
    "kept, where each is made anew": """
        track = []
        for n in range(8):
            rows = table * n
            track.append(rows.copy())  #! needless-copy rows.copy() (note)
        total = float(sum(one.sum() for one in track))
        """,
}

RIGHT = {
    "written afterwards": """
        for n in range(8):
            mine = table.copy()
            mine[n] = 0
            total += float(mine.sum())
        """,
    "what it was made of is written": """
        state = np.zeros((64, 64), np.float32)
        track = []
        for n in range(8):
            state += 1
            track.append(state.copy())
        total = float(sum(one.sum() for one in track))
        """,
    "written only where some value asks for it, which none did": """
        for n in range(8):
            mine = table.copy()
            mine[mine > 1e6] = 0
            total += float(mine.sum())
            other = np.array(table)
            np.clip(other, -100, 100, out=other)
            total += float(other.sum())
        """,
    "written by a tensor on it": """
        for n in range(8):
            mine = torch.from_numpy(table.copy())
            mine.add_(n)
            total += mine.sum().item()
        """,
    "of a parameter that a step moves": """
        wide = torch.nn.Linear(64, 512)
        step = torch.optim.SGD(wide.parameters(), 0.1)
        before = []
        for n in range(4):
            before.append(wide.weight.detach().numpy().copy())
            loss = wide(torch.from_numpy(table)).square().mean()
            step.zero_grad(); loss.backward(); step.step()
        total = float(sum(one.sum() for one in before))
        """,
    "a part, so that the large one goes": """
        kept = []
        for n in range(8):
            large = rng.normal(size=(4096, 64))
            kept.append(large[:64].copy())
            del large
        total = float(sum(one.sum() for one in kept))
        """,
    "put back": """
        for n in range(8):
            before = table.copy()
            table += n
            total += float(table.sum())
            table[...] = before
        """,
    "put back, each by itself": """
        tables = [table, table * 2]
        for n in range(8):
            before = [one.copy() for one in tables]
            for one in tables:
                one += n
            total += float(tables[1].sum())
            for one, old in zip(tables, before):
                one[:] = old
        """,
    "a part that is put back": """
        for n in range(8):
            part = table[n * 8 : n * 8 + 64].copy()
            table[n * 8 : n * 8 + 64] = 0
            total += float(table.sum())
            table[n * 8 : n * 8 + 64] = part
        """,
    "laid out": """
        for n in range(8):
            turned = table.T.copy()
            total += float(turned.view(np.uint8).sum())
        """,
    "another format in one of its runs": """
        for n, kind in enumerate((np.float32, np.float32, np.float64)):
            rows = table.astype(kind)
            same = rows.astype(np.float32)
            total += float(same.sum())
        """,
    "bytes that are kept, compared or a key": """
        known = {}
        for n in range(8):
            rows = table * n
            known[rows.tobytes()] = n
            kept = rows.tobytes()
            total += kept.count(b"a") + hash(rows.tobytes())
        """,
    "bytes of what does not lie in a row": """
        out = io.BytesIO()
        for n in range(8):
            out.write(table.T.tobytes())
        """,
    "bytes for a writer of the program's own": """
        class Out:
            def write(self, data):
                self.last = data + b"."
        out = Out()
        for n in range(8):
            out.write(table.tobytes())
        """,
    "bytes handed on after the array was written": """
        out = io.BytesIO()
        for n in range(8):
            rows = table * n
            payload = rows.tobytes()
            rows[0] = 0
            out.write(payload)
            total += float(rows.sum())
        """,
    "from memory that is not the array's own": """
        view = np.frombuffer(bytes(1 << 16), np.float32)
        wide = np.broadcast_to(np.float32(1), (64, 64))
        for n in range(8):
            total += float(view.copy().sum() + wide.copy().sum())
        """,
    "a deep copy whose dictionary is changed": """
        sample = {"image": table, "label": 3}
        for n in range(8):
            mine = copy.deepcopy(sample)
            mine["label"] = n
            mine["image"][0] = n
            total += float(mine["image"].sum())
        """,
    "small": """
        for n in range(200):
            total += float(table[0].copy().sum())
        """,
    "what another thread writes meanwhile": """
        import threading
        ring, go, done = np.zeros((64, 64), np.float32), threading.Event(), threading.Event()
        def fill():
            go.wait(); ring[:] = 1; done.set()
        threading.Thread(target=fill).start()
        mine = ring.copy()
        go.set(); done.wait()
        total = float(mine.sum())
        """,
}


def program(text):
    return START + textwrap.dedent(text)


@pytest.fixture(autouse=True)
def no_compiler_is_loaded(monkeypatch):
    """NumPy's functions are left alone where another test has imported the real one."""
    monkeypatch.delitem(sys.modules, arrays.BY_IDENTITY, raising=False)


@pytest.mark.parametrize("name", NEEDLESS)
def test_a_needless_copy_is_told(name, tmp_path):
    check_program(program(NEEDLESS[name]), tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_a_needed_copy_is_not(name, tmp_path):
    found = record_program(program(RIGHT[name]), tmp_path)
    assert [one.slug for one in found.findings] == []


def test_numpy_is_as_it_was_after_a_recording():
    before = np.ndarray.copy, np.ndarray.astype, np.array, np.copy
    with tether.record():
        assert np.ndarray.copy is not before[0]
        np.ones(4).copy()
    assert (np.ndarray.copy, np.ndarray.astype, np.array, np.copy) == before
    assert type(np.ones(3).copy).__name__ == "builtin_function_or_method"


def test_arrays_are_copied_as_ever_while_recording():
    class Own(np.ndarray):
        def copy(self, order="C"):
            return super().copy(order)

    with tether.record():
        own = np.ones((64, 64)).view(Own)
        assert type(own.copy()) is Own
        assert type(copy.deepcopy(own)) is Own
        assert np.ma.masked_array([1.0, 2.0]).copy().sum() == 3
        assert pickle.loads(pickle.dumps(np.array)) is np.array  # by its name
        assert pickle.loads(pickle.dumps(np.ndarray.copy)) is np.ndarray.copy
        with pytest.raises(ValueError, match="order"):
            np.ones(3).copy("x")
        with pytest.raises(TypeError):
            np.array()
        written = io.BytesIO()
        written.write(np.ones(600).tobytes())
    assert len(written.getvalue()) == 4800


def test_a_warning_names_the_line_that_converts():
    with tether.record(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        np.array([1 + 1j]).astype(float)
    assert [one.filename for one in caught] == [__file__]


def test_numpys_functions_are_back_before_a_compiler_that_knows_them_is_imported(tmp_path):
    (tmp_path / "numba.py").write_text("import numpy\nARRAY = numpy.array\n")
    (tmp_path / "main.py").write_text(
        "import numpy, tether\nbefore = numpy.array\n"
        "with tether.record():\n    assert numpy.array is not before\n    import numba\n"
        "    assert numba.ARRAY is numpy.array is before\nassert numpy.array is before\n"
    )
    subprocess.run([sys.executable, "main.py"], cwd=tmp_path, check=True)


LISTED = {
    "lists of arrays, each by itself": """
        frames = [rng.normal(size=(1, 40, 40)).astype(np.float32) for _ in range(16)]
        for n in range(12):
            batch = torch.tensor([one.tolist() for one in frames])  #! slow-copy batch (note)
            total += batch.sum().item()
        """,
    "an array that a function lists": """
        def listed(rows):
            return rows.tolist()
        for n in range(12):
            batch = torch.tensor(listed(table))  #! slow-copy batch (note)
            total += net(batch).sum().item()
        """,
    "numbers out of bytes": """
        import struct
        sound = rng.integers(-2000, 2000, 16_000).astype("<i2").tobytes()
        for n in range(12):
            values = struct.unpack("<16000h", sound)
            wave = torch.tensor(values, dtype=torch.float32)  #! slow-copy wave (note)
            total += wave.sum().item()
        """,
    "numbers that the program has as numbers": """
        scores = [float(n) for n in range(4_000)]
        for n in range(12):
            given = torch.tensor([one + n for one in scores])
            total += given.sum().item()
        """,
    "a list that is read for itself beside": """
        for n in range(12):
            words = table.astype(np.int64).tolist()
            total += sum(one[0] for one in words)
            total += torch.tensor([len(one) for one in words]).sum().item()
        """,
}


@pytest.mark.parametrize("name", LISTED)
def test_numbers_on_their_way_into_a_tensor(name, tmp_path):
    check_program(program(LISTED[name]), tmp_path)
