"""Arrays that NumPy copied on their way into PyTorch, and arrays that look so and are right."""

import textwrap

import pytest

from programs import check_program, record_program
from tether.record.arrays.lives import CALLED_BACK_IN_TIME

START = """\
import copy
import numpy as np, torch
rng = np.random.default_rng(0)
table = rng.normal(size=(256, 64)).astype(np.float32)
images = rng.integers(0, 255, (8, 32, 64, 3), dtype=np.uint8)
net = torch.nn.Linear(64, 4)
total = 0.0
"""

NEEDLESS = {
    "a slice that is copied": """
        for n in range(8):
            cut = slice(n * 32, n * 32 + 32)
            rows = torch.from_numpy(table[cut].copy())  #! needless-copy table[cut].copy() (note)
            total += net(rows).sum().item()
        """,
    "an array made of an array, a line before": """
        for n in range(8):
            lo, hi = n * 32, (n + 1) * 32
            part = np.array(table[lo:hi])  #! needless-copy part (note)
            total += net(torch.from_numpy(part)).sum().item()
        """,
    "converted to the format that it has, of an object": """
        class Loader:
            def __init__(self, rows):
                self.rows = rows
            def take(self, at):
                chosen = self.rows[at : at + 32].astype("float32")  #! needless-copy chosen (note)
                return torch.as_tensor(chosen)
        loader = Loader(table)
        for n in range(6):
            total += net(loader.take(n)).sum().item()
        """,
    "deeply copied out of a dictionary": """
        kept = {"a": table, "b": table[:128] + 1}
        for n in range(6):
            for key in kept:
                mine = copy.deepcopy(kept[key])  #! needless-copy mine (note)
                total += net(torch.from_numpy(mine)).sum().item()
        """,
    "turned, and laid out for what takes any strides": """
        batch = torch.empty(8, 3, 32, 64)
        for step in range(3):
            for n in range(8):
                image = images[n]
                planes = np.require(image.transpose(2, 0, 1), requirements="C")  #! needless-copy planes (note)
                batch[n].copy_(torch.from_numpy(planes))
            total += batch.div_(255).sum().item()
        """,
    "joined of one, for a tensor by elements": """
        for n in range(6):
            one = np.concatenate([table[n * 8 : n * 8 + 32]])  #! needless-copy one (note)
            total += torch.from_numpy(one).mul(2).add(n).sum().item()
        """,
    "copied, and a part of it given": """
        for n in range(6):
            whole = np.array(table, copy=True)  #! needless-copy whole (note)
            half = whole[n * 8 : n * 8 + 64]
            total += net(torch.from_numpy(half)).sum().item()
        """,
    "in another shape": """
        flat = table.reshape(-1)
        for n in range(6):
            square = flat.reshape(16, 16, 64).copy()  #! needless-copy square (note)
            total += net(torch.from_numpy(square)).sum().item()
        """,
    "widened and narrowed back": """
        for n in range(6):
            wide = table[n * 8 : n * 8 + 32].astype(np.float64)  #! needless-copy wide (note)
            total += net(torch.from_numpy(wide).float()).sum().item()
        """,
    "widened, cut, and narrowed as it is put elsewhere": """
        out = torch.empty(4, 64)
        for n in range(6):
            rows = np.asarray(table, dtype=float)  #! needless-copy rows (note)
            rows = rows[n : n + 16]
            out.copy_(torch.from_numpy(rows)[:4])
            total += net(out).sum().item()
        """,
    "turned, and copied twice": """
        for n in range(6):
            back = table[n * 8 : n * 8 + 64].T.copy()  #! needless-copy back (note)
            total += net(torch.tensor(back, dtype=torch.float64).float().T.contiguous()).sum().item()
        """,
    "a line that copies in some runs only": """
        for n in range(8):
            rows = table[n * 8 : n * 8 + 64]
            rows = rows.copy() if n % 2 else rows + 1  #! needless-copy rows (note)
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "a function of the program's, that changed nothing": """
        def augmented(array, by=0):
            return array + by if by else array.copy()  #! needless-copy array.copy() (note)
        for n in range(6):
            total += net(torch.from_numpy(augmented(table[n * 8 : n * 8 + 64]))).sum().item()
        """,
    "an array behind a property": """
        class Source:
            @property
            def rows(self):
                return rng.normal(size=(64, 64)).astype(np.float32)
        source = Source()
        for n in range(6):
            total += net(torch.from_numpy(source.rows.copy())).sum().item()  #! needless-copy source.rows.copy() (note)
        """,
    (BETWEEN_TWO_CALLS := "written when the copy has gone"): """
        buffer = np.zeros((64, 64), np.float32)
        for n in range(6):
            buffer[:] = table[n * 8 : n * 8 + 64] + n
            given = torch.from_numpy(buffer.copy())  #! needless-copy buffer.copy() (note)
            total += net(given).sum().item()
            del given
        """,
    "copied in a comprehension": """
        for n in range(4):
            parts = [table[k * 32 : k * 32 + 32] for k in range(8)]
            total += sum(net(torch.from_numpy(part.copy())).sum().item() for part in parts)  #! needless-copy part.copy() (note)
        """,
}  # fmt: skip

RIGHT = {
    "a buffer that is filled again while the tensor lives": """
        frame, history = np.zeros((64, 64), np.float32), []
        for n in range(6):
            frame[:] = rng.normal(size=(64, 64))
            history.append(torch.from_numpy(frame.copy()))
        total += torch.stack(history).std().item()
        """,
    "normalised in place as an array": """
        for n in range(6):
            rows = table[n * 8 : n * 8 + 64].copy()
            rows -= rows.mean(0)
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "normalised in place as a tensor": """
        for n in range(6):
            rows = torch.from_numpy(table[n * 8 : n * 8 + 64].copy())
            rows.sub_(rows.mean(0))
            total += net(rows).sum().item()
        """,
    "written as an array when the tensor is there": """
        for n in range(6):
            array = table[n * 8 : n * 8 + 64].copy()
            rows = torch.from_numpy(array)
            array[array < 0] = 0
            total += net(rows).sum().item()
        """,
    "a slice of a large array that goes": """
        kept = []
        for n in range(6):
            large = rng.normal(size=(4000, 64)).astype(np.float32)
            kept.append(torch.from_numpy(large[:64].copy()))
            del large
        total += torch.stack(kept).sum().item()
        """,
    "an order that strides of PyTorch cannot say": """
        for n in range(6):
            rows = np.ascontiguousarray(table[n * 8 : n * 8 + 64, ::-1])
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "of bytes that may not be written": """
        fixed = np.frombuffer(table.tobytes(), np.float32).reshape(256, 64)
        for n in range(6):
            total += net(torch.from_numpy(fixed[n * 8 : n * 8 + 64].copy())).sum().item()
        """,
    "of an array that is locked": """
        table.flags.writeable = False
        for n in range(6):
            total += net(torch.from_numpy(table[n * 8 : n * 8 + 64].copy())).sum().item()
        """,
    "of a mapped file": """
        table.tofile("table.bin")
        mapped = np.memmap("table.bin", np.float32, "r", shape=(256, 64))
        for n in range(6):
            total += net(torch.from_numpy(np.array(mapped[n * 8 : n * 8 + 64]))).sum().item()
        """,
    "of one row that is shown many times": """
        for n in range(6):
            rows = np.broadcast_to(table[n], (64, 64)).copy()
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "a format that changes values": """
        exact = rng.normal(size=(256, 64))
        for n in range(6):
            rows = exact[n * 8 : n * 8 + 64].astype(np.float32)
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "numbers of another kind": """
        for n in range(6):
            pixels = images[n].astype(np.float32)
            total += torch.from_numpy(pixels).mean().item()
        """,
    "wide numbers that are computed with": """
        for n in range(6):
            wide = torch.from_numpy(table[n * 8 : n * 8 + 64].astype(np.float64))
            total += (wide.sum(0) / 64).float().sum().item()
        """,
    "wide numbers that are narrowed, and computed with as well": """
        for n in range(6):
            wide = torch.from_numpy(table[n * 8 : n * 8 + 64].astype(np.float64))
            total += wide.float().sum().item() + wide.std().item()
        """,
    "an array that is kept, and written later": """
        kept = []
        for n in range(6):
            mine = table[n * 8 : n * 8 + 64].copy()
            kept.append(mine)
            total += net(torch.from_numpy(mine)).sum().item()
        for mine in kept:
            mine *= 0.5
        """,
    "an array that is kept beside its tensor's copy, and written later": """
        kept = []
        for n in range(6):
            mine = table[n * 8 : n * 8 + 64].astype(np.float32)
            kept.append(mine)
            total += net(torch.tensor(mine, dtype=torch.float64).float()).sum().item()
        for mine in kept:
            mine *= 0.5
        """,
    "laid out for a view": """
        for n in range(6):
            planes = np.ascontiguousarray(images[n].transpose(2, 0, 1))
            total += torch.from_numpy(planes).view(3, -1).float().mean(1).sum().item()
        """,
    "laid out for a product of matrices": """
        for n in range(6):
            turned = np.ascontiguousarray(table[n * 8 : n * 8 + 64].T)
            total += (torch.from_numpy(turned) @ torch.ones(64, 3)).sum().item()
        """,
    "limits that nothing goes beyond": """
        for n in range(6):
            rows = np.clip(table[n * 8 : n * 8 + 64], -50, 50)
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "numbers that are all numbers": """
        for n in range(6):
            rows = np.nan_to_num(table[n * 8 : n * 8 + 64])
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "an array that is sorted already": """
        ordered = np.sort(table, axis=0)
        for n in range(6):
            total += net(torch.from_numpy(np.sort(ordered[n * 8 : n * 8 + 64], axis=0))).sum().item()
        """,
    "an order that is the same by chance": """
        order = np.arange(64)
        for n in range(6):
            rows = table[n * 8 : n * 8 + 64][order]
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "a border of no width": """
        def padded(rows, width):
            return torch.from_numpy(np.pad(rows, width))
        for n in range(6):
            total += net(padded(table[n * 8 : n * 8 + 64], 0)).sum().item()
        """,
    "what is put in the place of what is missing, and nothing was": """
        for n in range(6):
            rows = table[n * 8 : n * 8 + 64].copy()
            rows[np.isnan(rows)] = 0
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "limited as an array when the tensor is there, and nothing is beyond": """
        for n in range(6):
            rows = table[n * 8 : n * 8 + 64].copy()
            given = torch.from_numpy(rows)
            np.clip(rows, -50, 50, out=rows)
            total += net(given).sum().item()
        """,
    "handed to a function that may write it": """
        def limited(array):
            np.clip(array, -50, 50, out=array)
        for n in range(6):
            rows = table[n * 8 : n * 8 + 64].copy()
            limited(rows)
            total += net(torch.from_numpy(rows)).sum().item()
        """,
    "two arrays that are equal, neither made of the other": """
        weights = np.zeros((64, 64), np.float32)
        for n in range(6):
            fresh = np.zeros_like(weights)
            total += net(torch.from_numpy(fresh)).sum().item()
        """,
    "drawn in an order by a generator": """
        ones = np.ones((64, 64), np.float32)
        for n in range(6):
            total += net(torch.from_numpy(np.random.permutation(ones))).sum().item()
        """,
    "the array itself": """
        for n in range(6):
            part = np.ascontiguousarray(table[n * 8 : n * 8 + 64])
            total += net(torch.from_numpy(part)).sum().item()
        """,
    "small arrays": """
        for n in range(30):
            total += net(torch.from_numpy(table[n].copy())).sum().item()
        """,
    "a tensor that is kept, of an array that is written at the end": """
        best = torch.from_numpy(table.copy())
        total += net(best).sum().item()
        table *= 2
        total += net(best).sum().item()
        """,
}  # fmt: skip


def program(text):
    return START + textwrap.dedent(text) + "print(total)\n"


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def copies_told(recording):
    return [one.message for one in recording.findings if one.slug == "needless-copy"]


@pytest.mark.parametrize("name", NEEDLESS)
def test_a_copy_on_the_way_into_pytorch(name, tmp_path):
    if name == BETWEEN_TWO_CALLS and not CALLED_BACK_IN_TIME:
        pytest.skip("when the copy has gone is known at the next call")
    recording = check_program(program(NEEDLESS[name]), tmp_path)
    assert recording.error is None
    assert len(copies_told(recording)) == 1


@pytest.mark.parametrize("name", RIGHT)
def test_what_looks_so_and_is_right(name, tmp_path):
    recording = record_program(program(RIGHT[name]), tmp_path)
    assert recording.error is None
    assert copies_told(recording) == []


# -- what the recorder does to the program ---------------------------------------------------------

UNTOUCHED = {
    "an array is resized in place while a copy of it is a tensor": """
        rows = rng.normal(size=(64, 64)).astype(np.float32)
        kept = torch.from_numpy(rows.copy())
        rows.resize((80, 64), refcheck=True)
        total += kept.sum().item() + rows.shape[0]
        """,
    (WITH_ITS_NAME := "an array goes when its last name does"): """
        import weakref
        for n in range(4):
            rows = table[n * 8 : n * 8 + 64] + 1
            gone = weakref.ref(rows)
            tensor = torch.from_numpy(rows.copy())
            del rows
            assert gone() is None
        """,
    "an attribute is asked for by no one else": """
        class Source:
            asked = 0
            def __getattr__(self, name):
                Source.asked += 1
                return table[:64]
            @property
            def rows(self):
                Source.asked += 1
                return table[:64]
        class Rows(list):
            def __getitem__(self, n):
                Source.asked += 1
                return table[:64]
        source, listed = Source(), Rows()
        for n in range(3):
            torch.from_numpy(source.rows.copy())
            torch.from_numpy(source.others.copy())
            torch.from_numpy(listed[n].copy())
        assert Source.asked == 9, Source.asked
        """,
    "random numbers come as they would": """
        np.random.seed(0)
        drawn = [torch.from_numpy(np.random.permutation(table[:64])).sum() for n in range(3)]
        after = np.random.rand()
        np.random.seed(0)
        [np.random.permutation(table[:64]) for n in range(3)]
        assert after == np.random.rand()
        """,
    "a function of the program's is called once for each run": """
        calls = []
        def changed(row):
            calls.append(row.shape)
            return row
        for n in range(3):
            torch.from_numpy(np.apply_along_axis(changed, 1, table[:64]))
        assert len(calls) == 192, len(calls)
        """,
    "warnings come as they would": r"""
        import warnings
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            for n in range(3):
                rows = table[:64].astype(np.float64)
                rows = rows.astype(np.float32)
                torch.from_numpy(np.array(rows).reshape(-1, 64))
        assert heard == [], heard
        """,
}  # fmt: skip


@pytest.mark.parametrize("name", UNTOUCHED)
def test_the_program_does_not_notice(name, tmp_path):
    if name == WITH_ITS_NAME and not CALLED_BACK_IN_TIME:
        pytest.skip("an array that is held goes at the next call")
    assert record_program(program(UNTOUCHED[name]), tmp_path).error is None


def test_what_is_recorded_of_a_copy(tmp_path):
    text = """
        whole = np.asarray(table, dtype=np.float64)
        part = whole[8:72, ::2]
        tensor = torch.from_numpy(part)
        table[9] += 1
        print(tensor.float().sum())
        """
    (fact,) = record_program(program(text), tmp_path).trace.arrays_copied
    assert (fact.source, fact.dtype, fact.strides, fact.shared) == (
        "table",
        "float32",
        (64, 2),
        True,
    )
    assert (fact.changed, fact.beside) == ("yes", (256 * 64 - 64 * 32) * 4)


def test_a_run_without_the_other_array_is_recorded_as_one(tmp_path):
    text = """
        for n in range(5):
            rows = table[n : n + 64]
            torch.from_numpy(rows.copy() if n < 3 else rows + 1)
            torch.from_numpy(np.array(rows))
        """
    recording = record_program(program(text), tmp_path)
    lines = {recording.trace.sites[one.site].line for one in recording.trace.arrays_copied}
    assert lines == {12}
    assert all(one.source == "rows" for one in recording.trace.arrays_copied)
