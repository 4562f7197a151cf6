"""Slow copies in programs that are run; what stands on a line is what must be found there.

A program without a mark must give no `slow-copy` at all. What happens between devices is tried on
facts made by hand, in `tests/unit/test_transfer_verdicts.py`.
"""

import pytest

from programs import check_program, record_program
from test_examples import copies, line_of, record
from tether.record.budget import Budget

SLOW = {
    "a table that is counted up place by place": """
        import torch
        table, pixels = torch.zeros(5, 5), torch.randint(0, 5, (1500, 2))
        for one, other in pixels:
            table[one, other] += 1  #! slow-copy table[one, other] (note)
        print(table)
    """,
    "a cache that is filled on, and converted from its beginning at each step": """
        import torch
        store, q = torch.zeros(2, 8, 64, 64, dtype=torch.float16), torch.randn(8, 64)
        for n in range(64):
            store[:, :, n] = torch.randn(2, 8, 64)
            keys, values = store[:, :, : n + 1].float()  #! slow-copy keys, values (note)
            print(torch.einsum("hd,hnd->hn", q, keys).softmax(-1).sum(), values.mean())
    """,
    "rows of an array, one by one for a loader": """
        import numpy as np, torch
        table = np.random.rand(3000, 6).astype(np.float32)
        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 3000
            def __getitem__(self, n):
                return torch.tensor(table[n])  #! slow-copy torch.tensor(table[n]) (note)
        loader = torch.utils.data.DataLoader(Rows(), batch_size=300, shuffle=True)
        for epoch in range(4):
            for batch in loader:
                print(batch.sum())
    """,
    "rows of an array, joined by the program itself": """
        import numpy as np, torch
        table = np.random.rand(3000, 6).astype(np.float32)
        for step in range(30):
            chosen = np.random.permutation(3000)[:300]
            rows = [torch.tensor(table[n]) for n in chosen]  #! slow-copy torch.tensor(table[n]) (note)
            print(torch.stack(rows).mean())
    """,
    "clones of a tensor's rows, for a loader": """
        import numpy as np, torch
        table = np.random.rand(3000, 6).astype(np.float32)
        rows = torch.from_numpy(table)
        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 3000
            def __getitem__(self, n):
                return rows[n].clone()  #! slow-copy rows (note)
        loader = torch.utils.data.DataLoader(Rows(), batch_size=300, shuffle=True)
        for epoch in range(4):
            for batch in loader:
                print(batch.sum())
    """,
    "keys of a cache repeated for the queries that share a head": """
        import torch
        keys = torch.randn(2, 2, 300, 64)
        with torch.no_grad():
            for step in range(6):
                keys[:, :, 200 + step] = torch.randn(2, 2, 64)
                query = torch.randn(2, 8, 1, 64)
                known = keys[:, :, : 201 + step]
                more = known.repeat_interleave(4, dim=1)  #! slow-copy more (note)
                print((query @ more.mT).softmax(-1).max())
    """,
    "the caches of some layers, converted at each step, for one batch after another": """
        import torch
        for batch in range(3):
            memory = torch.randn(2, 400, 64)
            caches = [(memory * n).to(torch.bfloat16) for n in (1, 2, 3)]
            state = torch.randn(2, 1, 64)
            for step in range(30):
                for cache in caches:
                    keys = cache.float()  #! slow-copy keys (note)
                    state = state + (state @ keys.mT).softmax(-1) @ keys
            print(state.sum())
    """,
    "the same expanded and reshaped": """
        import torch
        keys = torch.randn(2, 2, 300, 64)
        with torch.no_grad():
            for step in range(6):
                keys[:, :, 200 + step] = torch.randn(2, 2, 64)
                query = torch.randn(2, 8, 1, 64)
                known = keys[:, :, : 201 + step]
                wide = known[:, :, None].expand(2, 2, 4, 201 + step, 64)
                more = wide.reshape(2, 8, 201 + step, 64)  #! slow-copy more (note)
                print((query @ more.transpose(2, 3)).softmax(-1).max())
    """,
    "one head of keys and values for all queries": """
        import torch
        keys = torch.randn(2, 2, 300, 64)
        with torch.no_grad():
            for step in range(6):
                keys[:, :, 200 + step] = torch.randn(2, 2, 64)
                query = torch.randn(2, 8, 1, 64)
                known = keys[:, :, : 201 + step]
                one = known[:, :1]
                more = one.repeat(1, 8, 1, 1)  #! slow-copy more (note)
                print(torch.nn.functional.scaled_dot_product_attention(query, more, torch.zeros(2, 8, 201 + step, 64)).max())
    """,
    "a cache that lies by time, and is turned for the product": """
        import torch
        keys = torch.randn(2, 2, 300, 64)
        with torch.no_grad():
            for step in range(6):
                keys[:, :, 200 + step] = torch.randn(2, 2, 64)
                query = torch.randn(2, 8, 1, 64)
                known = keys[:, :, : 201 + step]
                late = known.transpose(1, 2)
                more = late.repeat_interleave(4, 2)  #! slow-copy more (note)
                print((query @ more.permute(0, 2, 3, 1)).max())
    """,
    "a cache that is joined on": """
        import torch
        joined = torch.randn(2, 2, 200, 64)
        with torch.no_grad():
            for step in range(6):
                joined = torch.cat([joined, torch.randn(2, 2, 1, 64)], dim=2)
                query = torch.randn(2, 8, 1, 64)
                more = joined.repeat_interleave(4, 1)  #! slow-copy more (note)
                print((query @ more.mT).max())
    """,
    "weights of many models stacked, and added up": """
        import torch
        for round in range(2):
            parts = [torch.randn(70_000) for _ in range(12)]
            both = torch.stack(parts)  #! slow-copy both (note)
            print(both.sum(0).norm())
    """,
    "a mean of what several gave": """
        import torch
        maps = [torch.rand(400, 300) for _ in range(9)]
        mean = torch.stack(maps, dim=-1).mean(dim=-1)  #! slow-copy maps[0] (note)
        print(mean.max())
    """,
    "a sum by weights, along the last dimension": """
        import torch
        parts = [torch.randn(50_000) for _ in range(20)]
        weights = torch.rand(20)
        all_of_them = torch.stack(parts, -1)  #! slow-copy all_of_them (note)
        print((all_of_them * weights).sum(-1).norm())
    """,
    "squares added up, kept as a row": """
        import torch
        parts = [torch.randn(50_000) for _ in range(20)]
        rows = torch.stack(parts)  #! slow-copy rows (note)
        print(rows.square().sum(0, keepdim=True).max())
    """,
    "states of clients, key by key": """
        import torch
        states = [torch.nn.Linear(500, 300).state_dict() for _ in range(8)]
        for key in ('weight',):
            stacked = torch.stack([one[key] for one in states])  #! slow-copy stacked (note)
            print(stacked.mean(0).norm())
    """,
    "moves of a game kept one by one, and drawn again and again": """
        import random, torch
        moves = [(torch.randn(12), n % 3) for n in range(300)]
        for step in range(120):
            drawn = random.sample(moves, 100)
            seen = torch.stack([one for one, _ in drawn])  #! slow-copy seen (note)
            print(seen.mean(0).max())
    """,
    "rows of one line each, joined along the first dimension in another order each time": """
        import torch
        lines = [torch.rand(1, 8) for _ in range(256)]
        for epoch in range(60):
            order = torch.randperm(256).tolist()
            for k in range(0, 256, 64):
                batch = torch.cat([lines[n] for n in order[k : k + 64]], dim=0)  #! slow-copy batch (note)
                print(batch.sum())
    """,
    "what a game shows, kept while it goes on, and drawn from what is there": """
        import collections, random, torch
        seen, total = collections.deque(maxlen=200), 0.0
        for step in range(400):
            seen.append(torch.randn(6))
            if step >= 100:
                batch = torch.stack(random.choices(seen, k=64))  #! slow-copy batch (note)
                total += batch.std().item()
        print(total)
    """,
    "a data set of pairs of tensors behind a loader": """
        import torch
        from torch.utils.data import DataLoader
        pairs = [(torch.randn(9), torch.randn(9, 2)) for _ in range(256)]
        half = sorted(range(256), key=lambda n: n * 37 % 256)
        loader = DataLoader(pairs, batch_size=64, sampler=half)
        for epoch in range(60):
            for x, y in loader:  #! slow-copy pairs[0][0] (note)
                print(x.mean() * y.mean())
    """,
    "a model copied to be asked in another type, at every step": """
        import copy, torch
        model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            loss = model(torch.randn(4, 256)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            exact = copy.deepcopy(model).double()  #! slow-copy exact (note)
            with torch.no_grad():
                print(exact(torch.ones(1, 256, dtype=torch.float64)).sum())
    """,
    "a model copied to keep its state in another type": """
        import copy, torch
        model, kept = torch.nn.Linear(400, 400), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            model(torch.randn(4, 400)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(copy.deepcopy(model).to(torch.float16).state_dict())  #! slow-copy model (note)
        print(sum(one["weight"].float().norm() for one in kept))
    """,
    "maps of features laid out anew for a convolution": """
        import torch
        mix = torch.nn.Conv2d(16, 16, 3, padding=1)
        with torch.no_grad():
            for step in range(4):
                maps = torch.randn(4, 40, 40, 16).permute(0, 3, 1, 2)
                mixed = mix(maps.contiguous())  #! slow-copy maps (note)
                print(mixed.relu().permute(0, 2, 3, 1).reshape(4, -1, 16).mean(1).max())
    """,
    "the same in training, with a step of two": """
        import torch
        mix = torch.nn.Sequential(torch.nn.Conv2d(16, 8, 3, stride=2), torch.nn.BatchNorm2d(8))
        for step in range(4):
            maps = torch.randn(4, 40, 40, 16).transpose(2, 3).transpose(1, 2)
            whole = maps.contiguous()  #! slow-copy whole (note)
            mix(whole).mean((2, 3)).pow(2).sum().backward()
    """,
    "arrays of which each tensor is kept": """
        import numpy as np, torch
        kept, arrays = [], [np.random.rand(300, 100), np.random.rand(300, 100)]
        for step in range(12):
            kept.append([torch.tensor(one, dtype=torch.float32) for one in arrays])  #! slow-copy kept (note)
        print(sum(one.sum() for some in kept for one in some))
    """,
    "a window that moves on by one row at each step": """
        import torch
        window, total = torch.zeros(256, 32), 0.0
        for step in range(120):
            window = torch.cat([window[1:], torch.randn(1, 32)])  #! slow-copy window (note)
            total += window.mean(0).max().item()
        print(total)
    """,
    "a window that is trained on at each step": """
        import torch
        net, window = torch.nn.Linear(32, 1), torch.zeros(256, 32)
        for step in range(120):
            window = torch.cat([window[1:], torch.randn(1, 32)])  #! slow-copy window (note)
            net(window).mean().backward()
    """,
    "the last seconds of a signal, kept in an object": """
        import torch
        class Listener:
            def __init__(self):
                self.heard = torch.zeros(1, 16000)
            def hear(self, chunk):
                self.heard = torch.cat((self.heard[:, 400:], chunk), dim=1)  #! slow-copy self.heard (note)
                return self.heard.abs().amax().item()
        listener = Listener()
        print([listener.hear(torch.randn(1, 400)) for _ in range(60)])
    """,
    "arrays of one rollout, each converted in turn for every batch": """
        import numpy as np, torch
        rng = np.random.default_rng(0)
        for rollout in range(2):
            seen, gains = rng.random((800, 40)), rng.random(800)
            for batch in range(10):
                pick = torch.from_numpy(rng.permutation(800)[:64])
                x, y = (torch.tensor(one, dtype=torch.float32) for one in (seen, gains))  #! slow-copy one (note)
                print((x[pick].mean(1) * y[pick]).sum())
    """,
    "two tables of numbers, converted at each step by one function": """
        import torch
        edges = [[float(n * m) for m in range(50)] for n in range(200)]
        weights = [[float(n + m) for m in range(50)] for n in range(200)]
        def tensor_of(numbers):
            return torch.tensor(numbers)  #! slow-copy numbers (note)
        for step in range(20):
            print((tensor_of(edges) * tensor_of(weights)).sum() * step)
    """,
    "a loss added up element by element": """
        import torch
        x, y = torch.rand(1200, requires_grad=True), torch.rand(1200)
        loss = 0
        for one, other in zip(x, y):
            loss = loss + (one - other) ** 2  #! slow-copy x (note)
        loss.backward()
    """,
    "Python's own sum of a tensor": """
        import torch
        x = torch.rand(2000)
        print(sum(x))  #! slow-copy x (note)
    """,
    "a tensor asked whether it has a number, for many": """
        import torch
        seen = torch.randperm(2500) * 3
        print(sum(n in seen for n in range(2000)))  #! slow-copy seen (note)
    """,
    "angles of frequencies that are kept, made for each batch": """
        import torch
        kept = 1.0 / 10_000 ** (torch.arange(128) / 128)
        scale = torch.nn.Parameter(torch.ones(128))
        for step in range(8):
            angles = torch.outer(torch.arange(400.0), kept)
            turned = angles.sin()  #! slow-copy turned (note)
            (torch.randn(400, 128) * scale * turned).sum().backward()
    """,
    "places of ones, written one by one": """
        import torch
        labels, ones = torch.randint(0, 9, (1200,)), torch.zeros(1200, 9)
        for n in range(1200):
            ones[n, labels[n]] = 1.0  #! slow-copy labels (note)
        print(ones.sum(0))
    """,
    "a model copied to be given other weights": """
        import copy, torch
        model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.BatchNorm1d(300))
        average = [p.detach().clone() for p in model.parameters()]
        for step in range(4):
            trial = copy.deepcopy(model)  #! slow-copy trial (note)
            for kept, p in zip(average, trial.parameters()):
                p.data = kept
            with torch.no_grad():
                print(trial(torch.randn(4, 300)).sum())
                torch._foreach_mul_(average, 0.9)
    """,
    "results that became lists, and a tensor again": """
        import torch
        scores = []
        for batch in range(5):
            scores.extend(torch.rand(40, 60).sort().values.tolist())
        scores = torch.tensor(scores)  #! slow-copy scores (note)
        print(scores.mean(0))
    """,
    "weights of two layers converted for each batch": """
        import torch
        class Frozen(torch.nn.Module):
            def __init__(self, rows, columns):
                super().__init__()
                self.register_buffer("weight", torch.randn(rows, columns).bfloat16())
                self.scale = torch.nn.Parameter(torch.ones(rows))
            def forward(self, x):
                weight = self.weight.to(x.dtype)  #! slow-copy weight (note)
                return torch.nn.functional.linear(x, weight) * self.scale
        model = torch.nn.Sequential(Frozen(256, 128), Frozen(64, 256))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(8):
            model(torch.randn(4, 128)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "weights of whole numbers scaled for each batch": """
        import torch
        def layer(rows, columns):
            return torch.randint(-9, 9, (rows, columns), dtype=torch.int8), torch.rand(rows, 1)
        layers = [layer(256, 128), layer(128, 256)]
        for batch in range(8):
            x = torch.randn(4, 128)
            for weight, scale in layers:
                full = weight.to(x.dtype) * scale  #! slow-copy full (note)
                x = x @ full.T
            print(x.sum())
    """,
    "a number looked for in a tensor, for each of many": """
        import torch
        codes = torch.randperm(800) * 7
        for batch in range(3):
            wanted = codes[torch.randint(0, 800, (400,))]
            rows = []
            for code in wanted:
                rows.append((codes == code).nonzero().item())  #! slow-copy codes (note)
            print(sum(rows))
    """,
    "elements compared one by one": """
        import torch
        guess, truth = torch.randint(0, 3, (900,)), torch.randint(0, 3, (900,))
        right = 0
        for n in range(900):
            if guess[n] == truth[n]:  #! slow-copy guess (note)
                right += 1
        print(right)
    """,
    "a number of each row": """
        import torch
        points, centers = torch.randn(500, 3), torch.randn(6, 3)
        nearest = []
        for n in range(500):
            far = (points[n] - centers).pow(2).sum(1)  #! slow-copy points (note)
            nearest.append(far.argmin().item())
        print(nearest)
    """,
    "a state copied through a stream at each step": """
        import io, torch
        model, other = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            stream = io.BytesIO()
            torch.save(model.state_dict(), stream)  #! slow-copy model.state_dict() (note)
            other.load_state_dict(torch.load(io.BytesIO(stream.getvalue())))
            x = torch.randn(4, 64)
            (model(x) - other(x).detach() - x).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "a matrix that is learned, said again for each of a batch": """
        import torch
        weight = torch.nn.Parameter(torch.randn(80, 80))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for step in range(6):
            x = torch.randn(16, 80, 4)
            both = weight.softmax(1).repeat(16, 1, 1)  #! slow-copy both (note)
            torch.bmm(both, x).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "rows that a loader takes of tensors one by one": """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        table, numbers = torch.rand(2600, 8), torch.rand(2600)
        loader = DataLoader(TensorDataset(table, numbers), batch_size=40, shuffle=True)
        for epoch in range(2):
            for x, y in loader:  #! slow-copy table (note)
                print((x.sum(1) - y).mean())
    """,
    "the rows of a tensor assigned one by one in a graph": """
        import torch
        table = torch.nn.Embedding(50, 16)
        bags = [torch.randint(0, 50, (2 + n % 5,)) for n in range(160)]
        for step in range(4):
            means = torch.zeros(160, 16)
            for n, bag in enumerate(bags):
                means[n] = table(bag).mean(0)  #! slow-copy means (note)
            means.pow(2).sum().backward()
    """,
    "sequences of one length packed": """
        import torch
        from torch.nn.utils.rnn import pack_padded_sequence
        lstm = torch.nn.LSTM(16, 8, batch_first=True)
        for step in range(6):
            batch, lengths = torch.rand(64, 50, 16), torch.full((64,), 50)
            packed = pack_padded_sequence(batch, lengths, batch_first=True)  #! slow-copy packed (note)
            lstm(packed)[1][0].sum().backward()
    """,
    "members of an ensemble stacked for each question": """
        import torch
        from torch.func import stack_module_state
        members = [torch.nn.Sequential(torch.nn.Linear(8, 90), torch.nn.Linear(90, 90))
                   for _ in range(4)]
        @torch.no_grad()
        def predict(x):
            both = stack_module_state(members)  #! slow-copy both (note)
            weights = both[0]
            return (x @ weights["0.weight"].mT @ weights["1.weight"]).mean(0)
        for n in range(20):
            print(predict(torch.rand(4, 8)).sum())
    """,
    "a weight that is built at each time step": """
        import torch
        class Turn(torch.nn.Module):
            def forward(self, x):
                upper = x.triu(1)
                built = torch.matrix_exp(upper - upper.T)  #! slow-copy built (note)
                return built
        layer = torch.nn.Linear(64, 64, bias=False)
        torch.nn.utils.parametrize.register_parametrization(layer, "weight", Turn())
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for step in range(4):
            state = torch.rand(2, 64)
            for n in range(12):
                state = torch.tanh(layer(state))
            optimizer.zero_grad()
            state.sum().backward()
            optimizer.step()
    """,
    "keys of one memory made for each question": """
        import torch
        keys, ask = torch.nn.Linear(32, 64, bias=False), torch.nn.GRUCell(64, 64)
        both = [*keys.parameters(), *ask.parameters()]
        optimizer = torch.optim.SGD(both, lr=0.1)
        for step in range(3):
            memory, state = torch.rand(200, 32), torch.rand(1, 64)
            for n in range(10):
                known = torch.tanh(memory @ keys.weight.T)  #! slow-copy known (note)
                state = ask((state @ known.T).softmax(-1) @ known, state)
            optimizer.zero_grad()
            state.sum().backward()
            optimizer.step()
    """,
    "more vectors of a decomposition than anything reads": """
        import torch
        def smooth(x):
            parts = torch.linalg.svd(x)  #! slow-copy parts (note)
            return parts.U[:, :4] * parts.S[:4] @ parts.Vh[:4]
        for n in range(3):
            print(smooth(torch.rand(700, 20)).sum())
    """,
    "weights of attention that nothing asks for": """
        import torch
        class Mixer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.attend = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            def forward(self, x):
                both = self.attend(x, x, x)  #! slow-copy both (note)
                return both[0]
        mixer = Mixer()
        for n in range(4):
            mixer(torch.rand(4, 200, 8)).sum().backward()
    """,
    "a table of angles made in each call": """
        import torch
        def angles(length, half, base=100.0):
            rates = base ** (-torch.arange(half, dtype=torch.float32) / half)
            turned = torch.outer(torch.arange(length, dtype=torch.float32), rates)
            return turned
        x = torch.rand(1024, 32)
        for layer in range(16):
            x = x * angles(1024, 32).cos()  #! slow-copy angles(1024, 32) (note)
        print(x.sum())
    """,
    "a mask of an area that nothing writes": """
        import torch
        area = torch.rand(256, 256)
        for turn in range(12):
            x = torch.rand(256, 256)
            inside = (area > 0.5).float()  #! slow-copy inside (note)
            print((x * inside).sum())
    """,
    "a grid made for each batch": """
        import torch
        def grid(size):
            down, right = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
            return torch.stack([down, right])  #! slow-copy [down, right] (note)
        for batch in range(12):
            print((grid(128) * batch).sum())
    """,
    "a table that NumPy converts for each batch": """
        import numpy as np, torch
        table = np.random.default_rng(0).normal(size=(4000, 16))
        for n in range(0, 4000, 250):
            x = torch.from_numpy(table.astype(np.float32))  #! slow-copy x (note)
            print(x[n : n + 250].sum())
    """,
    "a whole table scaled at each step, for some of its rows": """
        import torch
        table = torch.rand(4000, 16)
        middle, wide = table.mean(0), table.std(0)
        for n in range(0, 4000, 400):
            rows = torch.randint(0, 4000, (20,))
            scaled = (table - middle) / wide  #! slow-copy scaled (note)
            print(scaled[rows].sum())
    """,
    "what a frozen layer gives of the same, in each epoch": """
        import torch
        frozen, head = torch.nn.Linear(16, 64).requires_grad_(False), torch.nn.Linear(64, 1)
        optimizer, x = torch.optim.SGD(head.parameters(), lr=0.1), torch.rand(1000, 16)
        for epoch in range(8):
            features = frozen(x)  #! slow-copy features (note)
            head(features).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "probabilities taken one by one and stacked": """
        import torch
        scores, chosen = torch.randn(600, 8).log_softmax(-1), [n % 8 for n in range(600)]
        for _ in range(2):
            print(torch.stack([scores[n, k] for n, k in enumerate(chosen)]).sum())  #! slow-copy scores (note)
    """,
    "a reference put into its buffer at each step": """
        import torch
        reference, buffer = torch.randn(300, 300), torch.empty(300, 300)
        for n in range(8):
            buffer.copy_(reference)  #! slow-copy reference (note)
            print((buffer * n).sum())
    """,
    "a target that is given the same weights at each step": """
        import torch
        net, target = torch.nn.Linear(300, 300), torch.nn.Linear(300, 300)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(2):
            for _ in range(6):
                target.load_state_dict(net.state_dict())  #! slow-copy net.state_dict() (note)
                print(target(torch.ones(1, 300)).sum().item())
            optimizer.zero_grad()
            net(torch.ones(4, 300)).sum().backward()
            optimizer.step()
    """,
    "a list that is joined anew at each step": """
        import torch
        seen = []
        for n in range(100):
            seen.append(torch.randn(100))
            print(torch.stack(seen).mean())  #! slow-copy seen (note)
    """,
    "rows drawn one by one and stacked": """
        import torch
        memory = torch.randn(500, 8)
        for _ in range(20):
            drawn = torch.randint(0, 500, (64,)).tolist()
            print(torch.stack([memory[n] for n in drawn]).sum())  #! slow-copy memory (note)
    """,
    "rows that a loader asks for one by one": """
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Table(Dataset):
            def __init__(self, rows):
                self.x, self.y = torch.rand(rows, 8), torch.rand(rows)
            def __len__(self):
                return len(self.x)
            def __getitem__(self, n):
                return self.x[n], self.y[n]  #! slow-copy loader.dataset.x (note)
        loader = DataLoader(Table(2600), batch_size=40, shuffle=True)
        for epoch in range(2):
            for x, y in loader:
                print((x.sum(1) - y).mean().item())
    """,
    "distances put into a table one by one": """
        import torch
        here, there = torch.randn(40, 3), torch.randn(40, 3)
        table = torch.zeros(40, 40)
        for i in range(40):
            for j in range(40):
                table[i, j] = (here[i] - there[j]).norm()  #! slow-copy table (note)
        print(table.sum())
    """,
    "numbers put into a padded batch": """
        import torch
        rows = [[k for k in range(n % 40 + 1)] for n in range(100)]
        batch = torch.zeros(100, 40)
        for i, row in enumerate(rows):
            for j, number in enumerate(row):
                batch[i, j] = number  #! slow-copy batch (note)
        print(batch.sum())
    """,
    "all of a memory stacked for the rows that are drawn": """
        import torch
        memory = [torch.randn(64) for _ in range(500)]
        for turn in range(12):
            drawn = torch.randint(0, 500, (32,))
            print(torch.stack(memory)[drawn].sum())  #! slow-copy memory (note)
    """,
    "rows that become arrays one by one": """
        import numpy as np, torch
        x = torch.randn(100, 64)
        rows = np.stack([row.numpy() for row in x])  #! slow-copy x (note)
        print(rows.sum())
    """,
    "rows standardised one by one, and stacked": """
        import torch
        def standardised(v):
            return (v - v.mean()) / (v.std() + 1e-5)
        x = torch.randn(300, 64)
        print(torch.stack([standardised(v) for v in x]).sum())  #! slow-copy x (note)
    """,
    "rows of two tensors put into their places": """
        import torch
        x, scale, out = torch.randn(400, 64), torch.randn(400), torch.zeros(400)
        for i in range(400):
            out[i] = (x[i] * scale[i]).exp().sum()  #! slow-copy x (note)
        print(out.sum())
    """,
    "lists of arrays that torch.tensor takes apart": """
        import numpy as np, torch
        signals = [np.random.rand(4000).astype(np.float32) for _ in range(200)]
        for n in range(0, 200, 50):
            batch = torch.tensor(tuple(signals[n : n + 50]))  #! slow-copy batch (note)
            print(batch.mean())
    """,
    "the list of edges converted in each epoch": """
        import torch
        edges = [(n, n + 1) for n in range(20_000)]
        for epoch in range(8):
            graph = torch.tensor(edges).t()  #! slow-copy edges (note)
            print(graph.sum())
    """,
    "the same elements laid out in each epoch": """
        import torch
        adjacency, x = torch.rand(300, 300), torch.randn(300, 8, requires_grad=True)
        for epoch in range(6):
            turned = adjacency.t().contiguous()  #! slow-copy turned (note)
            print((turned @ x).sum())
    """,
    "a sparse adjacency made dense in each layer": """
        import torch
        edges = torch.randint(0, 400, (2, 4000), generator=torch.Generator().manual_seed(0))
        adjacency = torch.sparse_coo_tensor(edges, torch.ones(4000), (400, 400)).coalesce()
        layers = [torch.nn.Linear(8, 8) for _ in range(2)]
        x = torch.randn(400, 8)
        for epoch in range(3):
            out = x
            for layer in layers:
                out = adjacency.to_dense() @ layer(out)  #! slow-copy adjacency (note)
            out.sum().backward()
    """,
    "steps stacked by one layer and taken apart by the next": """
        import torch
        cells = [torch.nn.GRUCell(64, 64) for _ in range(2)]
        for batch in range(3):
            seq = torch.randn(32, 40, 64)
            for cell in cells:
                h, outputs = torch.zeros(32, 64), []
                for one in seq.unbind(1):
                    h = cell(one, h)
                    outputs.append(h)
                seq = torch.stack(outputs, 1)  #! slow-copy seq (note)
            h.sum().backward()
    """,
    "frames that are put into their places one by one": """
        import torch
        frames = [torch.randn(n, 8) for n in (300, 200, 250)]
        padded = torch.zeros(3, 300, 8)
        for i, one in enumerate(frames):
            for t in range(len(one)):
                padded[i, t] = one[t]  #! slow-copy frames[0] (note)
        print(padded.sum())
    """,
    "windows of an array converted each time": """
        import numpy as np, torch
        series = np.random.rand(2000, 20)
        for epoch in range(2):
            for n in range(0, 1900, 10):
                window = torch.tensor(series[n : n + 100], dtype=torch.float32)  #! slow-copy window (note)
                print(window.mean())
    """,
    "the same array converted in each epoch": """
        import numpy as np, torch
        table = np.random.rand(400, 300)
        for epoch in range(6):
            features = torch.from_numpy(table).float()  #! slow-copy features (note)
            print(features.sum())
    """,
    "a tensor that grows by each part, and is read at the end": """
        import torch
        whole = torch.empty(0, 1000)
        for n in range(40):
            whole = torch.cat([whole, torch.full((1, 1000), n)])  #! slow-copy whole (note)
        print(whole.sum())
    """,
    "a cache of each layer that grows by a row, and is read at each step": """
        import torch
        def attend(new, past):
            kept = torch.cat([past, new]) if past is not None else new  #! slow-copy kept (note)
            return (kept @ new.t()).softmax(0).mean(), kept
        caches = [None, None]
        for n in range(40):
            for layer in range(2):
                value, caches[layer] = attend(torch.randn(1, 1000), caches[layer])
        print(value)
    """,
    "all of it converted, to take one row": """
        import torch
        pictures = torch.zeros(400, 1000, dtype=torch.uint8)
        print(sum(pictures.float()[n].sum() for n in range(10)))  #! slow-copy pictures (note)
    """,
    "scores of all positions converted, for the last, where the loss takes them all": """
        import torch
        layer = torch.nn.Linear(16, 2000).to(torch.bfloat16)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        def scores(x):
            return layer(x).float()  #! slow-copy layer(x) (note)
        for step in range(4):
            loss = scores(torch.rand(4, 20, 16, dtype=torch.bfloat16)).logsumexp(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for n in range(6):
                print(scores(torch.rand(4, 20, 16, dtype=torch.bfloat16))[:, -1].argmax(-1))
    """,
    "a row of what was computed of each element": """
        import torch
        table = torch.rand(4000, 64)
        for n in range(4):
            moved = table - n  #! slow-copy moved (note)
            print(moved[n].sum())
    """,
    "pictures laid out for a layer that lays them back": """
        import torch
        layers = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 8, 3))
        layers.to(memory_format=torch.channels_last)
        for n in range(4):
            first = layers[0](torch.rand(4, 40, 40, 3).permute(0, 3, 1, 2))
            plain = first.contiguous()  #! slow-copy plain (note)
            print(layers[1](plain).amax())
    """,
    "the best state dict so far, deep copied": """
        import copy, torch
        model = torch.nn.Sequential(torch.nn.Linear(400, 400), torch.nn.Linear(400, 400))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            model(torch.ones(1, 400)).sum().backward()
            optimizer.step()
            best = copy.deepcopy(model.state_dict())  #! slow-copy best (note)
        model.load_state_dict(best)
    """,
    "the same by a comprehension": """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(400, 400), torch.nn.Linear(400, 400))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            model(torch.ones(1, 400)).sum().backward()
            optimizer.step()
            best = {k: v.clone() for k, v in model.state_dict().items()}  #! slow-copy v (note)
        model.load_state_dict(best)
    """,
    "a large copy at each step": """
        import torch
        w = torch.nn.Parameter(torch.zeros(600, 1024))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(6):
            before = w.detach().clone()  #! slow-copy before (note)
            optimizer.zero_grad()
            w.sum().backward()
            optimizer.step()
            print((w - before).abs().max().item())
    """,
    "clone().detach() of small tensors": """
        import torch
        w = torch.nn.Parameter(torch.zeros(20))
        optimizer = torch.optim.SGD([w], lr=0.1)
        history = []
        for step in range(80):
            history.append(w.clone().detach())  #! slow-copy w (note)
            optimizer.zero_grad()
            w.sum().backward()
            optimizer.step()
        print(torch.stack(history).sum())
    """,
    "new_tensor of small tensors": """
        import torch
        x, rows = torch.zeros(100, 8), []
        for step in range(80):
            rows.append(x.new_tensor(x[step]))  #! slow-copy x[step] (note)
            x += 1
        print(torch.stack(rows).sum())
    """,
    "float() of one element at a time": """
        import torch
        losses = torch.rand(150)
        total = 0.0
        for n in range(150):
            total += float(losses[n])  #! slow-copy losses (note)
    """,
    "a bias expanded over a batch, and converted": """
        import torch
        bias = torch.randn(512)
        batch = bias.expand(1024, 512).double()  #! slow-copy batch (note)
        print(batch.sum().item())
    """,
}

QUIET = {
    "what is written between by `.data`, whose version says nothing": """
        import torch
        for day in range(3):
            room = torch.rand(64, 4096)
            plan = torch.zeros_like(room).uniform_(-1, 1)
            for turn in range(8):
                due = torch.rand(64) < 0.5
                plan.data[due] = (plan + 0.1)[due]
                free = torch.max(torch.min(1 - room, plan.data), 0 - room)
                plan.data[due] = free[due]
            print(plan.sum())
    """,
    "a mask of readings, none of which goes beyond its bound": """
        import torch
        readings = torch.rand(160, 64, 64)
        for first in range(0, 160, 8):
            batch = readings[first : first + 8] * 2
            broken = (batch > 5).float()
            print((batch.exp() * (1 - broken)).sum())
        for first in range(0, 160, 8):
            broken = (readings[first : first + 8] > 5).float()
            print((torch.rand(8, 64, 64) * broken).sum())
    """,
    "a mask of lengths, which are all the longest": """
        import torch
        texts = [["word"] * 512 for _ in range(160 * 12)]
        for first in range(0, len(texts), 160):
            lengths = torch.tensor([len(one) for one in texts[first : first + 160]])
            shown = (torch.arange(512) < lengths[:, None]).float()
            print((torch.rand(160, 512) * shown).sum())
    """,
    "a table that is counted up, and asked for the next place": """
        import torch
        table, pixels = torch.zeros(5, 5), torch.randint(0, 5, (1500, 2))
        for one, other in pixels:
            table[one, other] += 1
            table[table.argmax() // 5, other] += 1
        print(table)
    """,
    "a table that is counted up by one call": """
        import torch
        table, pixels = torch.zeros(5, 5), torch.randint(0, 5, (1500, 2))
        for some in pixels.split(100):
            table.index_put_((some[:, 0], some[:, 1]), torch.ones(100), accumulate=True)
        print(table)
    """,
    "a cache of which each step converts what is new": """
        import torch
        store, q = torch.zeros(2, 8, 64, 64, dtype=torch.float16), torch.randn(8, 64)
        for n in range(64):
            store[:, :, n] = torch.randn(2, 8, 64)
            keys, values = store[:, :, n].float()
            print((q * keys).sum(), values.mean())
    """,
    "a cache whose beginning is written again before it is converted": """
        import torch
        store, q = torch.zeros(2, 8, 64, 64, dtype=torch.float16), torch.randn(8, 64)
        for n in range(64):
            store[:, :, n] = torch.randn(2, 8, 64)
            store[:, :, 0] *= 0.5
            keys, values = store[:, :, : n + 1].float()
            print(torch.einsum("hd,hnd->hn", q, keys).softmax(-1).sum(), values.mean())
    """,
    "a cache whose converted values are written": """
        import torch
        store, q = torch.zeros(2, 8, 64, 64, dtype=torch.float16), torch.randn(8, 64)
        for n in range(64):
            store[:, :, n] = torch.randn(2, 8, 64)
            whole = store[:, :, : n + 1].float()
            whole += 1
            print(whole.sum())
    """,
    "rows of a data set, converted in each epoch": """
        import torch
        rows = [torch.randn(300, 64).to(torch.bfloat16) for _ in range(20)]
        for epoch in range(6):
            for row in rows:
                wide = row.float()
                print((wide @ wide.mT).sum())
    """,
    "rows of an array that are changed one by one": """
        import numpy as np, torch
        table = np.random.rand(3000, 6).astype(np.float32)
        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 3000
            def __getitem__(self, n):
                return torch.tensor(table[n]) + torch.randn(6)
        loader = torch.utils.data.DataLoader(Rows(), batch_size=300, shuffle=True)
        for epoch in range(4):
            for batch in loader:
                print(batch.sum())
    """,
    "rows of arrays of their own": """
        import numpy as np, torch
        table = np.random.rand(3000, 6).astype(np.float32)
        arrays = [np.random.rand(6) for n in range(3000)]
        for step in range(30):
            chosen = np.random.permutation(3000)[:100].tolist()
            print(torch.stack([torch.tensor(arrays[n]) for n in chosen]).mean())
    """,
    "rows of an array that are used by themselves as well": """
        import numpy as np, torch
        table = np.random.rand(3000, 6).astype(np.float32)
        for step in range(30):
            rows = [torch.tensor(one) for one in table[:100]]
            print(torch.stack(rows).mean(), rows[3].max(), rows[7].max())
    """,
    "what an array shows at one time, kept while it is written": """
        import numpy as np, torch
        table = np.random.rand(3000, 6).astype(np.float32)
        now, seen = table[0], []
        for step in range(1500):
            now += 1
            seen.append(torch.tensor(now))
        print(torch.stack(seen).mean())
    """,
    "a few rows of an array": """
        import numpy as np, torch
        table = np.random.rand(3000, 6).astype(np.float32)
        for step in range(4):
            print(torch.stack([torch.tensor(one) for one in table[:100]]).mean())
    """,
    "repeated keys that are read by more than a product": """
        import torch
        keys = torch.randn(2, 2, 300, 64)
        with torch.no_grad():
            for step in range(6):
                keys[:, :, 200 + step] = torch.randn(2, 2, 64)
                query = torch.randn(2, 8, 1, 64)
                known = keys[:, :, : 201 + step]
                more = known.repeat_interleave(4, dim=1)
                print((query @ more.mT).max(), more.exp().sum())
    """,
    "repeated keys that are written for each query": """
        import torch
        keys = torch.randn(2, 2, 300, 64)
        with torch.no_grad():
            for step in range(6):
                keys[:, :, 200 + step] = torch.randn(2, 2, 64)
                query = torch.randn(2, 8, 1, 64)
                known = keys[:, :, : 201 + step]
                more = known.repeat_interleave(4, dim=1)
                more.mul_(torch.rand(8, 1, 1))
                print((query @ more.mT).max())
    """,
    "times that are repeated, within the matrices": """
        import torch
        keys = torch.randn(2, 2, 300, 64)
        with torch.no_grad():
            for step in range(6):
                keys[:, :, 200 + step] = torch.randn(2, 2, 64)
                query = torch.randn(2, 8, 1, 64)
                known = keys[:, :, : 201 + step]
                more = known.repeat_interleave(4, dim=2)
                print((torch.randn(2, 2, 1, 64) @ more.mT).max())
    """,
    "new keys at each step": """
        import torch
        keys = torch.randn(2, 2, 300, 64)
        with torch.no_grad():
            for step in range(6):
                keys[:, :, 200 + step] = torch.randn(2, 2, 64)
                query = torch.randn(2, 8, 1, 64)
                known = keys[:, :, : 201 + step]
                known = torch.randn(2, 2, 201, 64)
                more = known.repeat_interleave(4, dim=1)
                print((query @ more.mT).max())
    """,
    "a few small keys, repeated": """
        import torch
        keys = torch.randn(2, 2, 300, 64)
        with torch.no_grad():
            for step in range(6):
                keys[:, :, 200 + step] = torch.randn(2, 2, 64)
                query = torch.randn(2, 8, 1, 64)
                known = keys[:, :, : 201 + step]
                more = known[:, :, :8].repeat_interleave(4, dim=1)
                print((query @ more.mT).max())
    """,
    "a stack of which the sum and the largest are taken": """
        import torch
        parts = [torch.randn(70_000) for _ in range(12)]
        both = torch.stack(parts)
        print(both.sum(0).norm(), both.amax(0).norm())
    """,
    "a stack that is added up along another dimension": """
        import torch
        parts = [torch.randn(70_000) for _ in range(12)]
        print(torch.stack(parts).sum(1))
    """,
    "many small vectors, stacked and added up": """
        import torch
        for round in range(9):
            parts = [torch.randn(4_000) for _ in range(100)]
            print(torch.stack(parts).sum(0).norm())
    """,
    "a stack of whose parts gradients are asked": """
        import torch
        parts = [torch.randn(70_000, requires_grad=True) for _ in range(12)]
        torch.stack(parts).mean(0).norm().backward()
    """,
    "the median of many, and how far they lie apart": """
        import torch
        parts = [torch.randn(70_000) for _ in range(12)]
        both = torch.stack(parts)
        print(both.median(0).values.norm(), torch.stack(parts).std(0).norm())
    """,
    "tensors that are joined again, when each was written": """
        import random, torch
        rows = [torch.randn(12) for _ in range(300)]
        for step in range(120):
            for one in rows:
                one.mul_(0.9)
            print(torch.stack(random.sample(rows, 100)).mean())
    """,
    "tensors that are joined once, and weights that are joined at each step": """
        import torch
        rows = [torch.nn.Parameter(torch.randn(12)) for _ in range(100)]
        optimizer = torch.optim.SGD(rows, lr=0.1)
        for step in range(110):
            fresh = torch.stack([one.detach() + 1 for one in rows])
            loss = (torch.stack(rows) - fresh).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "tensors of many sizes, joined again": """
        import random, torch
        rows = [torch.randn(random.randrange(3, 20)) for _ in range(300)]
        for step in range(120):
            print(torch.cat(random.sample(rows, 100)).mean())
    """,
    "a few models copied in another type, and one of which both are asked": """
        import copy, torch
        model = torch.nn.Linear(600, 600)
        half = copy.deepcopy(model).half()
        print(half.weight.dtype)
        for step in range(4):
            model = torch.nn.Linear(300, 300)
            both = copy.deepcopy(model)
            print(both.weight.norm(), both.double().weight.norm())
    """,
    "images laid out anew for a view, for two calls, once": """
        import torch
        mix, more = (torch.nn.Conv2d(16, 8, 3, padding=1) for _ in range(2))
        stored = torch.randn(8, 40, 40, 16).permute(0, 3, 1, 2).contiguous()
        with torch.no_grad():
            for step in range(4):
                maps = torch.randn(4, 40, 40, 16).permute(0, 3, 1, 2)
                pooled = torch.nn.functional.max_pool2d(mix(maps.contiguous()), 2)
                print(pooled.view(4, -1).mean(1))
                maps = torch.randn(4, 40, 40, 16).permute(0, 3, 1, 2).contiguous()
                print((mix(maps) + more(maps)).mean())
                print(mix(stored).mean())
    """,
    "states sent as bytes, that lie beside each other": """
        import io, torch
        box = []
        for n in range(5):
            letter = io.BytesIO()
            torch.save({"x": torch.randn(64, 64)}, letter)
            box.append(letter.getvalue())
        print(sum(map(len, box)), sum(torch.load(io.BytesIO(one))["x"].sum() for one in box))
    """,
    "windows that are written": """
        import torch
        window = torch.zeros(256, 32)
        for step in range(120):
            window = torch.cat([window[1:], torch.randn(1, 32)])
            window.mul_(0.9)
        print(window.sum())
    """,
    "a window in a graph of gradients": """
        import torch
        grow = torch.nn.Linear(32, 32)
        window = torch.zeros(256, 32)
        for step in range(20):
            window = torch.cat([window[1:], grow(window[-1:])])
        window.sum().backward()
    """,
    "windows that calls have saved for backward": """
        import torch
        net, window, total = torch.nn.Linear(32, 1), torch.zeros(256, 32), 0.0
        for step in range(60):
            window = torch.cat([window[1:], torch.randn(1, 32)])
            total = total + net(window).mean()
        total.backward()
    """,
    "a window that is an array as well": """
        import torch
        window, arrays = torch.zeros(256, 32), []
        for step in range(60):
            window = torch.cat([window[1:], torch.randn(1, 32)])
            arrays.append(window.numpy())
        print(sum(one.sum() for one in arrays))
    """,
    "columns that move on, which would not lie in one piece": """
        import torch
        window = torch.zeros(256, 64)
        for step in range(60):
            window = torch.cat([window[:, 1:], torch.randn(256, 1)], 1)
            print((window @ torch.ones(64)).sum())
    """,
    "arrays of one rollout, filled again before each is converted": """
        import numpy as np, torch
        rng, seen, gains = np.random.default_rng(0), np.zeros((800, 40)), np.zeros((800, 40))
        for batch in range(20):
            seen[...], gains[...] = rng.random((800, 40)), rng.random((800, 40))
            x, y = (torch.tensor(one, dtype=torch.float32) for one in (seen, gains))
            print((x.mean(1) * y.mean(1)).sum())
    """,
    "arrays of a data set, each converted once in every epoch": """
        import numpy as np, torch
        rows = [np.random.rand(80, 80) for _ in range(30)]
        for epoch in range(4):
            for row in rows:
                print(torch.tensor(row, dtype=torch.float32).sum())
    """,
    "arrays of which each tensor is written": """
        import numpy as np, torch
        arrays = [np.random.rand(300, 100), np.random.rand(300, 100)]
        for step in range(12):
            for one in arrays:
                print(torch.tensor(one, dtype=torch.float32).mul_(step).sum())
    """,
    "a pool that is the mean of all that it is given": """
        import torch
        conv = torch.nn.Conv2d(3, 512, 3, padding=1)
        pool = torch.nn.AdaptiveAvgPool2d((1, 1))
        for _ in range(4):
            pool(torch.relu(conv(torch.randn(16, 3, 4, 4)))).sum().backward()
    """,
    "steps with an element each, that learn or compute with more": """
        import torch
        share, noise = torch.nn.Parameter(torch.tensor(0.5)), torch.randn(400)
        for step in range(3):
            x, path = torch.zeros(()), []
            for n in range(400):
                x = share * x + noise[n]
                path.append(x)
            torch.stack(path).var().backward()
        rates = torch.linspace(1e-4, 0.02, 400)
        left, net = (1 - rates).cumprod(0), torch.nn.Linear(8, 8)
        with torch.no_grad():
            for _ in range(3):
                x = torch.randn(4, 8)
                for n in reversed(range(400)):
                    x = (x - rates[n] / (1 - left[n]).sqrt() * net(x)) / (1 - rates[n]).sqrt()
                print(x.std())
    """,
    "a score of each batch": """
        import torch
        model, rows, labels = torch.nn.Linear(8, 3), torch.randn(5120, 8), torch.arange(5120) % 3
        for epoch in range(6):
            hits = 0
            with torch.no_grad():
                for x, y in zip(rows.split(64), labels.split(64)):
                    hits += (model(x).argmax(1) == y).sum().item()
            print(hits)
    """,
    "copies that are trained, and layers that are filled by chance": """
        import copy, torch
        layer = torch.nn.Linear(400, 400)
        layers = torch.nn.ModuleList([copy.deepcopy(layer) for _ in range(4)])
        for p in layers.parameters():
            p.dim() > 1 and torch.nn.init.xavier_uniform_(p)
        for step in range(4):
            trial = copy.deepcopy(layers)
            optimizer = torch.optim.SGD(trial.parameters(), lr=0.1)
            trial[step](torch.randn(2, 400)).sum().backward()
            optimizer.step()
            print(trial[step].weight.sum())
    """,
    "lists of numbers that were changed, or of Python's own": """
        import torch
        rows = []
        for batch in range(5):
            for row in torch.rand(40, 60).tolist():
                row[7] = 0.5
                rows.append(row)
        print(torch.tensor(rows).mean(0))
        print(torch.tensor([[n / 7 + m for m in range(60)] for n in range(200)]).mean())
    """,
    "the pictures of a set, one for each step": """
        import torch
        pictures = torch.randint(0, 9, (30, 150, 150), dtype=torch.uint8)
        model = torch.nn.Conv2d(1, 2, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(4):
            for n in range(30):
                model(pictures[n].float()[None]).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    """,
    "numbers on which the next ones hang": """
        import torch
        points = torch.randn(900, 3)
        nearest, chosen = (points - points[0]).pow(2).sum(1), [0]
        for _ in range(300):
            best = nearest.argmax().item()
            chosen.append(best)
            nearest = torch.minimum(nearest, (points - points[best]).pow(2).sum(1))
        print(chosen)
        for _ in range(40):
            scores, low, high = torch.randn(2000), -3.0, 3.0
            for _ in range(40):
                middle = (low + high) / 2
                if (scores > middle).sum().item() > 200:
                    low = middle
                else:
                    high = middle
            print(low)
        state, total = torch.zeros(4), 0.0
        for _ in range(1200):
            state = state * 0.9 + torch.randn(4)
            total += state.pow(2).sum().item()
            if state[0] > 2:
                state = torch.zeros(4)
        print(total)
    """,
    "a few classes asked for in each epoch": """
        import torch
        truth = torch.randint(0, 10, (5000,))
        for epoch in range(20):
            guess = (truth + torch.randint(0, 3, (5000,))) % 10
            loss = torch.stack([torch.randn(500).sort().values.mean() for _ in range(30)]).mean()
            print(loss, [(guess[truth == n] == n).float().mean().item() for n in range(10)])
    """,
    "states in memory for files": """
        import io, torch
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            last = io.BytesIO()
            torch.save(model.state_dict(), last)
            loss = model(torch.randn(4, 64)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if loss > 0.3:
                last.seek(0)
                model.load_state_dict(torch.load(last))
        stream = io.BytesIO()
        torch.save(model.state_dict(), stream)
        stream.seek(0)
        torch.nn.Linear(64, 64).load_state_dict(torch.load(stream))
    """,
    "a matrix said again for what needs it so": """
        import torch
        for step in range(6):
            matrix = torch.randn(80, 80)
            both = matrix.repeat(16, 1, 1)
            print(both.view(-1, 80).matmul(torch.randn(80, 2)).sum())
            own = matrix.repeat(16, 1, 1)
            own += torch.randn(16, 1, 1)
            print(own.sum())
    """,
    "a little that is the same at each step, beside much that is not": """
        import torch
        words = torch.randint(0, 50, (32, 40))
        table, head = torch.nn.Embedding(50, 32), torch.nn.Linear(32, 50)
        optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
        for step in range(150):
            scores = head(table(words[:, :-1])).flatten(0, 1)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(scores, words[:, 1:].flatten()).backward()
            optimizer.step()
    """,
    "rows assigned one by one, each made of the one before": """
        import torch
        turn = torch.nn.Linear(16, 16)
        for step in range(4):
            rows = torch.ones(160, 16)
            for n in range(1, 160):
                rows[n] = turn(rows[n - 1].clone())
            rows.sum().backward()
    """,
    "rows assigned one by one where no gradient comes back": """
        import torch
        turn = torch.nn.Linear(16, 16)
        for step in range(4):
            rows = torch.zeros(160, 16)
            for n in range(160):
                with torch.no_grad():
                    rows[n] = turn(torch.rand(1, 16)).squeeze(0)
            turn(rows).sum().backward()
    """,
    "sequences packed of which one is shorter": """
        import torch
        from torch.nn.utils.rnn import pack_padded_sequence
        lstm = torch.nn.LSTM(16, 8, batch_first=True)
        for step in range(6):
            lengths = torch.full((64,), 50)
            lengths[-1] -= int(step == 3)
            packed = pack_padded_sequence(torch.rand(64, 50, 16), lengths, batch_first=True)
            lstm(packed)[1][0].sum().backward()
    """,
    "the last position or all, as the same line asks, and a row beside the whole": """
        import torch
        layer = torch.nn.Linear(16, 2000).to(torch.bfloat16)
        with torch.no_grad():
            for n in range(8):
                x = torch.rand(4, 20, 16, dtype=torch.bfloat16)
                print(layer(x).float()[:, 19 * (n % 2) :].argmax(-1).sum())
        table = torch.rand(4000, 64)
        for n in range(4):
            moved = table - n
            print(moved[n].sum(), moved.mean())
    """,
    "pictures laid out for a layer that keeps them so, for a view, and for two": """
        import torch
        layers = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 8, 3))
        kept = torch.nn.Conv2d(16, 8, 3)
        layers.to(memory_format=torch.channels_last)
        with torch.inference_mode():
            for n in range(4):
                first = layers[0](torch.rand(4, 40, 40, 3).permute(0, 3, 1, 2))
                print(kept(first.contiguous()).amax())
                print(first.contiguous().view(4, -1).softmax(1).amax())
                both = first.contiguous()
                print(layers[1](both).amax(), both.view(4, 16, -1).softmax(2).amax())
    """,
    "members of an ensemble stacked after each round of training": """
        import torch
        from torch.func import stack_module_state
        members = [torch.nn.Linear(90, 90) for _ in range(4)]
        optimizer = torch.optim.SGD([p for one in members for p in one.parameters()], lr=0.1)
        for n in range(8):
            for one in members:
                one(torch.rand(4, 90)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                weights, _ = stack_module_state(members)
                print((torch.rand(2, 90) @ weights["weight"].mT).mean(0).sum())
    """,
    "a weight built once in each forward, with a backward of its own": """
        import torch
        raw = torch.nn.Parameter(torch.rand(64, 64))
        for step in range(3):
            for n in range(12):
                built = torch.matrix_exp(raw - raw.T)
                torch.tanh(torch.rand(2, 64) @ built).sum().backward()
    """,
    "a weight with another angle at each time step": """
        import torch
        raw, state = torch.nn.Parameter(torch.rand(64, 64)), torch.rand(2, 64)
        for n in range(30):
            state = state @ torch.matrix_exp((raw - raw.T) * (n / 30))
        state.sum().backward()
    """,
    "a weight built for the real and for the made": """
        import torch
        raw = torch.nn.Parameter(torch.rand(128, 128))
        optimizer = torch.optim.SGD([raw], lr=0.1)
        def judge(x):
            return (x @ torch.tanh(raw)).mean()
        for step in range(12):
            loss = judge(torch.rand(4, 128)) - judge(torch.randn(4, 128))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "the same work again, to be timed": """
        import time, torch
        a, b = torch.rand(200, 200, requires_grad=True), torch.rand(200, 200)
        for n in range(20):
            began = time.perf_counter()
            c = torch.tanh(a @ b)
            print(c.sum(), time.perf_counter() - began)
    """,
    "weights of a forward that runs again to save memory": """
        import torch
        from torch.utils.checkpoint import checkpoint
        raw = torch.nn.Parameter(torch.rand(128, 128))
        def block(x):
            return torch.tanh(x @ torch.matrix_exp(raw - raw.T))
        x = torch.rand(4, 128)
        for n in range(12):
            checkpoint(block, x + n, use_reentrant=False).sum().backward()
    """,
    "vectors of a decomposition that span the null space": """
        import torch
        for n in range(3):
            u, s, vh = torch.linalg.svd(torch.rand(700, 20))
            print(u[:, 20:].abs().sum(), s.sum(), vh.sum())
    """,
    "eigenvectors that backward needs": """
        import torch
        for n in range(3):
            x = torch.rand(400, 400, requires_grad=True)
            values, vectors = torch.linalg.eigh(x)
            values.sum().backward()
            print(x.grad.sum())
    """,
    "weights of attention kept to be looked at, and read once": """
        import torch
        class Mixer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.attend = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            def forward(self, x):
                mixed, self.weights = self.attend(x, x, x)
                return mixed
        mixers = [Mixer(), Mixer()]
        for n in range(4):
            sum(mixer(torch.rand(4, 200, 8)).sum() for mixer in mixers).backward()
        print(mixers[0].weights.sum())
    """,
    "tables of other numbers each time, and one that is kept": """
        import torch
        kept = torch.outer(torch.arange(1024.0), torch.arange(32.0))
        for step in range(12):
            angles = torch.outer(torch.arange(1024.0) * step, torch.arange(32.0))
            print((angles + kept).sum(), torch.randn(1024, 32).sum(), torch.zeros(1024, 32).sum())
    """,
    "the same input again and again, as a measurement has it": """
        import torch
        net, x = torch.nn.Linear(64, 512), torch.randn(64, 64)
        with torch.no_grad():
            for _ in range(12):
                y = net(x).relu()
        print(y.sum())
    """,
    "a table of which each number is made of those before it": """
        import torch
        cost = torch.rand(40, 40)
        best = torch.zeros(41, 41)
        for i in range(40):
            for j in range(40):
                best[i + 1, j + 1] = cost[i, j] + torch.min(best[i, j + 1], best[i + 1, j])
        print(best[-1, -1])
    """,
    "a target that is given new weights at each step": """
        import torch
        net, target = torch.nn.Linear(300, 300), torch.nn.Linear(300, 300)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(6):
            target.load_state_dict(net.state_dict())
            print(target(torch.ones(1, 300)).sum().item())
            optimizer.zero_grad()
            net(torch.ones(4, 300)).sum().backward()
            optimizer.step()
    """,
    "a buffer that is put back as it was": """
        import torch
        start, state = torch.randn(300, 300), torch.empty(300, 300)
        for n in range(8):
            state.copy_(start)
            state.mul_(n)
            print(state.sum())
    """,
    "a buffer that an array writes in between": """
        import torch
        start, state = torch.randn(300, 300), torch.empty(300, 300)
        shown = state.numpy()
        for n in range(8):
            state.copy_(start)
            shown *= n
            print(state.sum())
    """,
    "a list that is joined at each step, and begun anew": """
        import torch
        seen = []
        for n in range(100):
            seen = [torch.randn(100) for _ in range(n + 1)]
            print(torch.stack(seen).mean())
    """,
    "a list whose parts change and are joined at each step": """
        import torch
        seen = []
        for n in range(100):
            seen.append(torch.randn(100))
            for one in seen:
                one.mul_(0.9)
            print(torch.stack(seen).mean())
    """,
    "rows that a loader asks for one by one, and that are changed one by one": """
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Table(Dataset):
            def __init__(self, rows):
                self.x, self.y = torch.rand(rows, 8), torch.rand(rows)
            def __len__(self):
                return len(self.x)
            def __getitem__(self, n):
                return self.x[n].roll(n), self.y[n]
        loader = DataLoader(Table(2600), batch_size=40, shuffle=True)
        for epoch in range(2):
            for x, y in loader:
                print((x.sum(1) - y).mean().item())
    """,
    "a loader over a few tensors, and one that hands on batches of numbers": """
        import torch
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
        table = TensorDataset(torch.rand(2600, 8), torch.rand(2600))
        batches = BatchSampler(RandomSampler(table), 40, drop_last=False)
        for loader in (DataLoader(table, batch_size=40),
                       DataLoader(table, sampler=batches, batch_size=None)):
            for x, y in loader:
                print((x.sum(1) - y).mean().item())
    """,
    "windows drawn one by one and stacked": """
        import torch
        song = torch.randn(5000, 2)
        for _ in range(20):
            drawn = torch.randint(0, 4900, (64,)).tolist()
            print(torch.stack([song[n : n + 20] for n in drawn]).sum())
    """,
    "the same input again, through two branches": """
        import torch
        net, x = torch.nn.Linear(64, 512), torch.randn(64, 64)
        with torch.no_grad():
            for _ in range(12):
                y = net(x).relu() + net(x).tanh()
        print(y.sum())
    """,
    "a table scaled by what moves, and gives the same": """
        import torch
        table, most = torch.rand(4000, 16), torch.full((), 2.0)
        for n in range(8):
            scaled = table.clamp(max=most)
            print((scaled * torch.rand(4000, 1)).sum())
            most += 1
    """,
    "what a layer that trains gives of the same": """
        import torch
        layer, head = torch.nn.Linear(16, 64), torch.nn.Linear(64, 1)
        optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)
        x = torch.rand(1000, 16)
        for epoch in range(8):
            features = layer(x)
            head(features).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "a table of arrays that changes": """
        import numpy as np, torch
        table = np.random.default_rng(0).normal(size=(4000, 16))
        for n in range(8):
            x = torch.from_numpy(table.astype(np.float32))
            table += 1
            print(x.sum())
    """,
    "a memory stacked once, and rows written": """
        import torch
        memory, rows = [torch.randn(64) for _ in range(500)], torch.zeros(2000, 8)
        for n in range(2000):
            rows[n] = n
        whole = torch.stack(memory)
        for turn in range(12):
            print(whole[torch.randint(0, 500, (32,))].sum(), rows.sum())
    """,
    "a tensor that grows with its graph, for a while only, or is written in between": """
        import torch
        w = torch.ones(1000, requires_grad=True)
        states, last, marked = torch.empty(0, 1000), torch.empty(0, 1000), torch.empty(0, 1000)
        for n in range(40):
            states = torch.cat([states, w[None] * n])
            last = torch.cat([last, torch.full((1, 1000), n)])[-4:]
            marked = torch.cat([marked, torch.full((1, 1000), n)])
            marked[0] = n
            print(states.exp().sum(), last.sum(), marked.sum())
    """,
    "a call with other numbers, of what is written, or by chance": """
        import torch
        edges = torch.randint(0, 400, (2, 4000), generator=torch.Generator().manual_seed(0))
        adjacency = torch.sparse_coo_tensor(edges, torch.ones(4000), (400, 400)).coalesce()
        x, y = torch.rand(400, 400), torch.rand(400, 400)
        for epoch in range(1, 6):
            adjacency.values().mul_(0.5)
            y += 1
            print(adjacency.to_dense().sum(), x.roll(epoch).sum(), y.exp().sum())
            print(x.bernoulli().sum(), torch.nn.functional.dropout(x).sum())
    """,
    "steps stacked and read whole, or taken apart in another way": """
        import torch
        cell = torch.nn.GRUCell(64, 64)
        for batch in range(3):
            h, outputs = torch.zeros(32, 64), []
            for one in torch.randn(40, 32, 64):
                h = cell(one, h)
                outputs.append(h)
            whole, turned = torch.stack(outputs, 1), torch.stack(outputs, 2)
            for one in turned.unbind(0):
                cell(one.t(), torch.zeros(40, 64))
            whole.softmax(1).sum().backward()
    """,
    "parts of an array widened, taken once, masked, or of one that is written": """
        import numpy as np, torch
        pictures = np.random.randint(0, 255, (400, 900), dtype=np.uint8)
        once, series, filled = np.random.rand(2000, 200), np.random.rand(2000, 20), np.random.rand(2000, 20)
        for epoch in range(2):
            for n in range(0, 1900, 10):
                print(torch.tensor(pictures[n // 10], dtype=torch.float32).mean())
                print(torch.tensor(once[n + epoch], dtype=torch.float32).mean())
                window = torch.tensor(series[n : n + 100], dtype=torch.float32)
                window[0] = 0
                filled[n] = 1
                print(window.mean(), torch.tensor(filled[n : n + 100], dtype=torch.float32).mean())
    """,
    "frames that are put where a list says": """
        import torch
        frames, order = torch.randn(1200, 8), torch.randperm(1200).tolist()
        padded = torch.zeros(1200, 8)
        for t in range(len(frames)):
            padded[order[t]] = frames[t]
        print(padded.sum())
    """,
    "rows that differ by a number of their own": """
        import torch
        x, shifts, k = torch.randn(400, 64), list(range(400)), 1.0
        print(torch.stack([x[i].roll(i).abs() + 1 for i in range(400)]).sum())
        print(torch.stack([x[i].roll(shifts[i]).abs() + 1 for i in range(400)]).sum())
        decayed = []
        for v in x:
            k *= 0.99
            decayed.append((v * k).abs() + 1)
        print(torch.stack(decayed).sum())
    """,
    "rows of which each needs the one before": """
        import torch
        x, h, states, out = torch.randn(400, 64), torch.zeros(64), [], torch.zeros(400, 64)
        for v in x:
            h = (v + h).tanh() * 0.5
            states.append(h)
        for i in range(1, 400):
            out[i] = (out[i - 1] * 0.9 + x[i]).tanh()
        print(torch.stack(states).sum() + out.sum())
    """,
    "rows drawn by chance, counted, decided one by one, or too large at once": """
        import torch
        x = torch.randn(400, 64)
        print(torch.stack([torch.dropout(v.abs(), 0.5, True) * 2 for v in x]).sum())
        print(torch.stack([torch.histc(v.abs(), 10) / 64 for v in x]).sum())
        print(torch.stack([v.abs().max() if v.sum() > 0 else v.abs().min() for v in x]).sum())
        print(torch.stack([(x - v).square().sum(1) for v in x]).sum())
    """,
    "converted at once, and a row of each used after": """
        import torch
        pictures = torch.zeros(400, 1000, dtype=torch.uint8).float()
        print(sum(pictures[n].sum() for n in range(10)))
    """,
    "converted whole, and a row and its length used": """
        import torch
        pictures = torch.zeros(400, 1000, dtype=torch.uint8)
        for n in range(10):
            pictures[n] = n
            whole = pictures.float()
            print(whole[n].sum() / whole.norm())
    """,
    "an array that is filled anew, and converted each time": """
        import numpy as np, torch
        frame = np.zeros((400, 300))
        for n in range(6):
            np.copyto(frame, n)
            print(torch.from_numpy(frame).float().sum())
            print(torch.tensor(frame, dtype=torch.float16).sum())
    """,
    "a list whose numbers change, and the pictures of a set one by one": """
        import torch
        edges = [[n, n + 1] for n in range(20_000)]
        pictures = [torch.randint(0, 9, (300, 300), dtype=torch.uint8) for _ in range(4)]
        for n in range(6):
            edges[n][0] += 1
            print(torch.tensor(edges).sum())
            print([one.float().mean() for one in pictures])
    """,
    "what is made of the same again, and kept or written": """
        import torch
        x = torch.randn(400, 300)
        kept = []
        for n in range(6):
            kept.append(x.double())
            y = x.t().contiguous()
            y += n
            print(y.sum())
        print(torch.stack(kept).sum())
    """,
    "detach().clone() of small tensors": """
        import torch
        w = torch.nn.Parameter(torch.zeros(20))
        optimizer = torch.optim.SGD([w], lr=0.1)
        history = []
        for step in range(80):
            history.append(w.detach().clone())
            optimizer.zero_grad()
            w.sum().backward()
            optimizer.step()
    """,
    "clone().detach() whose clone is of use": """
        import torch
        w = torch.nn.Parameter(torch.zeros(20))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(80):
            y = w.clone()
            seen = y.detach()
            y.sum().backward()
            optimizer.step()
    """,
    "clone().detach() of large tensors, where the node is nothing": """
        import torch
        w = torch.nn.Parameter(torch.zeros(100, 1000))
        for step in range(70):
            y = w.clone().detach()
            y += 1
    """,
    "one item() for each step": """
        import torch
        w = torch.nn.Parameter(torch.zeros(20))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(100):
            loss = (w * w).sum()
            loss.backward()
            optimizer.step()
            print(loss.item())
    """,
    "one place of a tensor that is written between": """
        import torch
        x = torch.zeros(100)
        for n in range(99):
            x[n + 1] = x[n] + 1
            print(x[n].item())
    """,
    "large copies that are kept": """
        import torch
        w = torch.nn.Parameter(torch.zeros(600, 1024))
        optimizer = torch.optim.SGD([w], lr=0.1)
        kept = []
        for step in range(5):
            kept.append(w.detach().clone())
            optimizer.zero_grad()
            w.sum().backward()
            optimizer.step()
        print(torch.stack(kept).sum())
    """,
    "the copy of the step before is read after the next is made": """
        import torch
        w = torch.nn.Parameter(torch.zeros(600, 1024))
        optimizer = torch.optim.SGD([w], lr=0.1)
        old = w.detach().clone()
        for step in range(5):
            optimizer.zero_grad()
            w.sum().backward()
            optimizer.step()
            new = w.detach().clone()
            print((new - old).abs().sum())
            old = new
    """,
    "copies of the items of a set, others at each step": """
        import torch
        tiles = torch.randn(64, 100, 100)
        w = torch.nn.Parameter(torch.zeros(100))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(5):
            items = []
            for n in torch.randperm(64)[:32].tolist():
                tile = tiles[n].clone()
                tile[:5] = 0
                items.append(tile)
            optimizer.zero_grad()
            (torch.stack(items) @ w).sum().backward()
            optimizer.step()
            del items, tile
    """,
    "two large copies, before and after": """
        import torch
        w = torch.nn.Parameter(torch.zeros(600, 1024))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(2):
            before = w.detach().clone()
            optimizer.zero_grad()
            w.sum().backward()
            optimizer.step()
            print((w - before).sum())
    """,
    "an expanded tensor made compact because a view wants it": """
        import torch
        keys = torch.randn(4, 1, 64, 512)
        many = keys.expand(4, 8, 64, 512).contiguous().view(4, 8 * 64, 512)
        print(many.sum())
    """,
    "an expanded tensor copied to be written": """
        import torch
        table = torch.randn(512).expand(1024, 512).clone()
        table[0] = 0
        print(table.sum())
    """,
    "torch.tensor of a large tensor, where the way in is nothing": """
        import torch
        x = torch.randn(600, 600)
        for n in range(3):
            y = torch.tensor(x)
            print(y.sum())
    """,
    "a few of everything": """
        import copy, torch
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            x = torch.tensor(torch.randn(3, 4))
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            print([float(one) for one in model.bias], loss.clone().detach())
            best = copy.deepcopy(model.state_dict())
    """,
}


@pytest.mark.parametrize("program", SLOW.values(), ids=SLOW)
def test_slow(program, tmp_path):
    recording = check_program(program, tmp_path)
    (found,) = [one for one in recording.findings if one.slug == "slow-copy"]
    assert found.fix
    assert found.count >= 1


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_quiet(program, tmp_path):
    recording = record_program(program, tmp_path)
    assert recording.error is None
    assert [one.message for one in recording.findings if one.slug == "slow-copy"] == []


def test_a_report_for_others_holds_no_expression(tmp_path):
    recording = check_program(SLOW["new_tensor of small tensors"], tmp_path)
    assert "x[step]" in recording.json()
    assert "step]" not in recording.json(source=False)


# -- the examples of the repository ----------------------------------------------------------------


def test_what_is_made_again_is_named_with_the_line_that_asks_for_it(tmp_path):
    recording = record_program(
        """
        import torch
        def mask(size):
            numbers = torch.arange(size)
            return (numbers[:, None] < numbers[None]).float()
        def attend(x):
            return x * mask(256)
        for step in range(8):
            print(attend(torch.rand(256, 256)).sum())
        """,
        tmp_path,
    )
    (found,) = [one for one in recording.findings if one.slug == "slow-copy"]
    assert found.subject == "(numbers[:, None] < numbers[None]).float()"
    assert [one.site.line for one in found.evidence if one.role == "called"] == [7]


def test_parts_of_an_array_are_all_counted_where_no_time_is_left(tmp_path, monkeypatch):
    """On a busy machine looking may have taken its share of a short run before it ends."""
    monkeypatch.setattr(Budget, "late", lambda _: True)
    check_program(SLOW["windows of an array converted each time"], tmp_path)


def example(name):
    recording = record(name)
    return recording, [one for one in recording.findings if one.slug == "slow-copy"]


def test_one_node_apart():
    name = "one_node_apart"
    recording, (found,) = example(name)
    assert (found.subject, found.count) == ("small", 200)
    assert found.site.line == line_of(name, "small.clone().detach()")
    assert found.fix.text == "Use `small.detach().clone()`."
    assert recording.gradients == []  # nothing here trains
    rows = copies(recording, name)
    for text in ("small.detach().clone()", "small.clone().detach()"):
        line = line_of(name, text)
        assert {rows[line, operation][0] for operation in ("detach", "clone")} == {"shares", "owns"}
        assert rows[line, "detach"][1] == "cuts"


def test_values_off_the_gpu():
    """Bytes by call: on the CPU the clone is the only copy."""
    name = "values_off_the_gpu"
    recording, found = example(name)
    bytes_of = {row.site.expression: (row.memory, row.bytes) for row in recording.copies}
    assert bytes_of["x.detach()"] == ("shares", 0)
    assert bytes_of["shared.clone()"] == ("owns", 4 * 512 * 512)
    if recording.trace.storages[0].device == "cpu":
        assert bytes_of["cloned.cpu()"] == ("shares", 0)
        assert found == []
    else:
        assert bytes_of["cloned.cpu()"] == ("owns", 4 * 512 * 512)
        assert [one.site.expression for one in found] == ["shared.clone()"]


def test_an_element_at_a_time_for_a_log():
    name = "values_for_logging"
    _, (found,) = example(name)
    assert (found.subject, found.count) == ("loss_per_row", 256)
    assert found.site.line == line_of(name, "h = [one.item()")
