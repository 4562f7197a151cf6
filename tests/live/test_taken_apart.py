"""What is one tensor or array, taken apart on its way to a file or a tensor."""

import pytest

from programs import check_program, record_program

FOUND = {
    "rows cloned and pickled": """
        import pickle
        import torch

        table = torch.randn(1500, 16)
        kept = {n: row.clone() for n, row in enumerate(table)}
        data = pickle.dumps(kept)  #! slow-copy kept[0] (note)
        print(len(data))
    """,
    "vectors of each step saved in a list": """
        import io
        import torch

        def run():
            state, seen = torch.zeros(8), []
            for step in range(1200):
                state = state * 0.9 + torch.randn(8)
                seen.append(state)
            return seen

        seen = run()
        torch.save({"seen": seen}, io.BytesIO())  #! slow-copy seen[0] (note)
    """,
    "rows that are views, pickled": """
        import pickle
        import torch

        table = torch.randn(1100, 8)
        rows = list(table)
        print(len(pickle.dumps(rows)))  #! slow-copy rows[0] (note)
    """,
    "an item of an array, by way of lists": """
        import numpy as np
        import torch

        images = np.random.default_rng(0).random((40, 40, 40))

        class Images(torch.utils.data.Dataset):
            def __len__(self):
                return len(images)

            def __getitem__(self, n):
                return torch.tensor(images[n].tolist())  #! slow-copy torch.tensor(images[n].tolist()) (note)

        total = 0.0
        for batch in torch.utils.data.DataLoader(Images(), batch_size=8):
            total += batch.mean().item()
        print(total)
    """,
    "the list of an array, by a variable": """
        import numpy as np
        import torch

        draw = np.random.default_rng(0)
        total = torch.zeros(())
        for step in range(20):
            noise = draw.normal(size=(60, 30))
            values = noise.tolist()
            total = total + torch.tensor(values).sum()  #! slow-copy torch.tensor(values) (note)
        print(total)
    """,
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_taken_apart_is_told(name, tmp_path):
    check_program(FOUND[name], tmp_path)


QUIET = {
    "a network and its optimizer": """
        import io
        import pickle
        import torch

        net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(600)])
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, io.BytesIO())
        pickle.dumps(net)
    """,
    "documents of lengths of their own": """
        import pickle
        import torch

        documents = [torch.randint(0, 500, (3 + n % 400,)) for n in range(1500)]
        print(len(pickle.dumps(documents)))
    """,
    "one tensor, and a few beside it": """
        import io
        import pickle
        import torch

        table = torch.randn(4000, 16)
        for _ in range(3):
            pickle.dumps({"table": table, "mean": table.mean(0)})
            torch.save([table, *table[:20].clone()], io.BytesIO())
    """,
    "lists of the program's own": """
        import torch

        grid = [[float(row * column % 7) for column in range(80)] for row in range(80)]
        torch.manual_seed(0)
        table = torch.tensor(grid)
        total = torch.zeros(())
        for step in range(20):
            noise = [[float(step * n % 13 + m) for n in range(40)] for m in range(40)]
            total = total + torch.tensor(noise).sum() * table[step].sum()
        print(total)
    """,
    "a list of an array, once": """
        import numpy as np
        import torch

        values = torch.tensor(np.random.default_rng(0).random((200, 100)).tolist())
        print(values.sum().item())
    """,
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_apart_for_a_reason_is_not(name, tmp_path):
    recording = record_program(QUIET[name], tmp_path)
    said = [one for one in recording.findings if "serialised" in one.message]
    said += [one for one in recording.findings if "numbers of Python" in one.message]
    assert not said
