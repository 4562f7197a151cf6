"""What NumPy makes anew with the same bytes each time, and what it makes wider than is used."""

import textwrap

import pytest

from programs import check_program, record_program

START = """
import numpy as np, torch
rng = np.random.default_rng(0)
table = rng.normal(size=(400, 300)).astype(np.float32)
weight = torch.randn(300, 8)
"""

AGAIN = {
    "an archive read for each row": """
        np.savez("rows.npz", table=table)
        archive = np.load("rows.npz")
        def row(n):
            values = archive["table"][n]  #! slow-copy values (note)
            return torch.from_numpy(values).double()
        print(sum((row(n) @ weight.double()).sum().item() for n in range(12)))
        """,
    "sorted for each batch, and a part of it given": """
        batches = []
        for n in range(10):
            part = np.sort(table, axis=0)[n * 8 : n * 8 + 8]  #! slow-copy part (note)
            batches.append((torch.from_numpy(part) @ weight).sum())
        print(torch.stack(batches).sum())
        """,
    "data of a seed, drawn again for each epoch": """
        for epoch in range(8):
            fresh = np.random.default_rng(7).normal(size=(200, 300)).astype(np.float32)  #! slow-copy fresh (note)
            order = torch.randperm(200)[:20]
            print((torch.from_numpy(fresh)[order] @ weight).sum().item())
        """,
}

NEW_EACH_TIME = {
    "read once": """
        np.savez("rows.npz", table=table)
        kept = np.load("rows.npz")["table"]
        for n in range(12):
            values = kept[n]
            print((torch.from_numpy(values) @ weight).sum().item())
        """,
    "other values each time": """
        for n in range(12):
            values = table + n
            print((torch.from_numpy(values) @ weight).sum().item())
        """,
    "the same but for one element": """
        for n in range(12):
            values = table.copy()
            values[n, n] += 1
            print((torch.from_numpy(values) @ weight).sum().item())
        """,
    "rows of the same values in another order": """
        for n in range(12):
            values = table[torch.randperm(400).numpy()]
            print((torch.from_numpy(values) @ weight)[:9].sum().item())
        """,
    "copied to be written": """
        for n in range(12):
            values = table.copy()
            query = torch.randn(300).numpy()
            values -= query
            print(np.abs(values).sum(1).argmin())
        """,
    "copied, given, and written as a tensor": """
        for n in range(12):
            values = torch.from_numpy(table.copy())
            values.mul_(torch.rand(300))
            print((values @ weight).sum().item())
        """,
    "many that are alike, and kept": """
        kept = [np.zeros((200, 300), np.float32) for n in range(12)]
        for n in range(12):
            values = kept[n]
            print((torch.from_numpy(values) @ weight).sum().item())
        """,
    "written once in a while": """
        means = np.zeros((200, 300), np.float32)
        for n in range(12):
            values = means.copy()
            print((torch.from_numpy(values) @ weight).sum().item())
            if n == 9:
                means += 1
        """,
}

WIDE = {
    "a mean of NumPy's beside a large picture": """
        mean = torch.from_numpy(rng.normal(size=(3, 1, 1)))
        for n in range(4):
            image = torch.rand(3, 300, 300)
            centred = image - mean  #! slow-copy centred (note)
            print(centred.float().std())
        """,
    "divided as well, and turned": """
        mean, scale = (torch.from_numpy(rng.random((1, 300)) + 1) for n in range(2))
        for n in range(4):
            rows = torch.rand(1000, 300)
            rows = rows - mean  #! slow-copy rows (note)
            rows = rows / scale
            print((rows.t().to(torch.float32).sum(0)).max())
        """,
    "pictures joined as wide as NumPy made them": """
        mean = rng.random((3, 1, 1))
        def picture(n):
            return torch.from_numpy(rng.random((3, 100, 100), dtype=np.float32) - mean)
        for n in range(4):
            batch = torch.stack([picture(n) for n in range(8)])
            print(batch.float().mean())  #! slow-copy batch (note)
        """,
    "a loader's batches": """
        data = [(torch.from_numpy(one), n % 3) for n, one in enumerate(rng.random((32, 3, 90, 90)))]
        for images, targets in torch.utils.data.DataLoader(data, batch_size=8):
            images = images.to(torch.float32)  #! slow-copy images (note)
            print(images.mean() + targets.sum())
        """,
    "chunks joined, and converted for a model": """
        model = torch.nn.Linear(300, 4)
        for n in range(4):
            chunks = [torch.from_numpy(rng.normal(size=(200, 300))) for k in range(3)]
            whole = torch.cat(chunks)
            print(model(whole.float()).sum())  #! slow-copy whole (note)
        """,
}

AS_WIDE_AS_USED = {
    "sums kept in double": """
        total = torch.zeros(300, dtype=torch.float64)
        for n in range(4):
            total = total + torch.rand(1000, 300).double().sum(0)
        print(total.float())
        """,
    "distances summed in double": """
        mean = torch.zeros(1, 300, dtype=torch.float64)
        for n in range(4):
            apart = torch.rand(1000, 300) - mean
            mean = mean + apart.mean(0) / (n + 1)
        print(mean.float())
        """,
    "read in double as well": """
        mean = torch.from_numpy(rng.random((1, 300)))
        for n in range(4):
            rows = torch.rand(1000, 300) - mean
            print(rows.float().sum(), rows.norm())
        """,
    "a number of Python's, and one element": """
        mean = torch.tensor(0.5, dtype=torch.float64)
        for n in range(4):
            print(((torch.rand(1000, 300) - mean) * 2.5).float().sum())
        """,
    "joined in double, for what is summed": """
        for n in range(4):
            rows = torch.stack([torch.from_numpy(rng.random((100, 300))) for k in range(6)])
            print(rows.cumsum(0).float().max())
        """,
    "joined in double, and given to NumPy as well": """
        for n in range(4):
            rows = torch.stack([torch.from_numpy(rng.random((100, 300))) for k in range(6)])
            print(rows.float().max(), rows.numpy().std())
        """,
    "a large operand that is wide": """
        base = torch.rand(1000, 300, dtype=torch.float64)
        for n in range(4):
            print((base - torch.rand(1000, 300)).float().sum())
        """,
}


def program(text):
    return START + textwrap.dedent(text)


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", [*AGAIN.values(), *WIDE.values()], ids=[*AGAIN, *WIDE])
def test_slow(text, tmp_path):
    recording = check_program(program(text), tmp_path)
    assert recording.error is None
    (found,) = [one for one in recording.findings if one.slug == "slow-copy"]
    assert found.bytes >= 1 << 20


QUIET = NEW_EACH_TIME | AS_WIDE_AS_USED


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_quiet(text, tmp_path):
    recording = record_program(program(text), tmp_path)
    assert recording.error is None
    assert [one.message for one in recording.findings if one.slug == "slow-copy"] == []
