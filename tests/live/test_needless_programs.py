"""Was this copy needed? Programs that carry the answer, and a part of the reason, on the line."""

import re
import textwrap

import pytest

from programs import record_program

PROGRAMS = {
    "the state of an optimizer, copied to be loaded once more": """
        import copy, torch
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        def steps():
            for step in range(3):
                optimizer.zero_grad()
                model(torch.ones(8, 64)).pow(2).sum().backward()
                optimizer.step()
        steps()
        kept = copy.deepcopy(optimizer.state_dict())
        for attempt in range(3):
            optimizer.load_state_dict(copy.deepcopy(kept))  #? yes while `kept` lives
            steps()
    """,
    "a window that is moved along, and a row that is put on another": """
        import torch
        window = torch.zeros(2, 64)
        for step in range(4):
            window[:-1] = window[1:].clone()  #? unknown longer parts would overlap
            window[-1] = torch.randn(64)
        table = torch.zeros(4, 64)
        for step in range(4):
            table[0] = table[3].clone()  #? no
            table[3] += 1
        print(window.sum(), table.sum())
    """,
    "a state read from a file, copied for the one optimizer that loads it": """
        import copy, io, torch
        def resumed(blob):
            model = torch.nn.Linear(64, 64)
            adam = torch.optim.Adam(model.parameters())
            if blob is not None:
                kept = torch.load(io.BytesIO(blob))
                model.load_state_dict(kept["model"])
                adam.load_state_dict(copy.deepcopy(kept["adam"]))  #? no
            return model, adam
        blob = None
        for part in range(3):
            model, adam = resumed(blob)
            for step in range(2):
                adam.zero_grad()
                model(torch.ones(8, 64)).pow(2).sum().backward()
                adam.step()
            out = io.BytesIO()
            torch.save({"model": model.state_dict(), "adam": adam.state_dict()}, out)
            blob = out.getvalue()
    """,
    "the state of an optimizer that is gone, cloned for the next one": """
        import torch
        model = torch.nn.Linear(64, 64)
        def begun(state):
            sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            if state is not None:
                own = {
                    number: {"momentum_buffer": one["momentum_buffer"].clone()}  #? no
                    for number, one in state["state"].items()
                }
                sgd.load_state_dict({**state, "state": own})
            return sgd
        def trained(state):
            sgd = begun(state)
            state = None
            for step in range(2):
                sgd.zero_grad()
                model(torch.ones(8, 64)).pow(2).sum().backward()
                sgd.step()
            return sgd.state_dict()
        box = [None]
        for part in range(3):
            box.append(trained(box.pop()))
    """,
    "one state read from a file, copied for each of two optimizers": """
        import copy, io, torch
        models = [torch.nn.Linear(64, 64) for _ in range(2)]
        optimizers = [torch.optim.Adam(one.parameters()) for one in models]
        def steps(model, optimizer):
            for step in range(2):
                optimizer.zero_grad()
                model(torch.ones(8, 64)).pow(2).sum().backward()
                optimizer.step()
        steps(models[0], optimizers[0])
        out = io.BytesIO()
        torch.save(optimizers[0].state_dict(), out)
        def load():
            kept = torch.load(io.BytesIO(out.getvalue()))
            for one in optimizers:
                one.load_state_dict(copy.deepcopy(kept))  #? yes an optimizer holds it
        load()
        for model, optimizer in zip(models, optimizers):
            steps(model, optimizer)
    """,
    "a state read from a file, which lives on beside the steps": """
        import copy, io, torch
        def trained(blob):
            model = torch.nn.Linear(64, 64)
            adam = torch.optim.Adam(model.parameters())
            kept = torch.load(io.BytesIO(blob)) if blob else None
            if kept is not None:
                adam.load_state_dict(copy.deepcopy(kept))  #? yes an optimizer holds it
            for step in range(2):
                adam.zero_grad()
                model(torch.ones(8, 64)).pow(2).sum().backward()
                adam.step()
            out = io.BytesIO()
            torch.save(adam.state_dict(), out)
            return out.getvalue()
        blob = None
        for part in range(3):
            blob = trained(blob)
    """,
    "the state of an optimizer that steps on, copied for another": """
        import copy, torch
        def made():
            model = torch.nn.Linear(64, 64)
            return model, torch.optim.Adam(model.parameters())
        def steps(model, adam):
            for step in range(2):
                adam.zero_grad()
                model(torch.ones(8, 64)).pow(2).sum().backward()
                adam.step()
        first, second = made(), made()
        for part in range(3):
            steps(*first)
            second[1].load_state_dict(copy.deepcopy(first[1].state_dict()))  #? yes line 10 writes
            steps(*second)
    """,
    "halves of what is gone, cloned by a line each": """
        import torch
        def halves(x):
            both = x * 2
            low, high = both.chunk(2)
            low = low.clone()  #? no
            high = high.clone()  #? no
            return low, high
        for n in range(4):
            low, high = halves(torch.randn(400, 200))
            print(low.norm().item(), high.norm().item())
    """,
    "three parts laid out for an object that keeps them": """
        import torch
        class Heads:
            def __init__(self, q, k, v):
                self.q = q.clone()  #? no
                self.k = k.clone()  #? no
                self.v = v.clone()  #? no
        layer = torch.nn.Linear(64, 192).requires_grad_(False)
        for n in range(4):
            heads = Heads(*layer(torch.randn(300, 64)).t().chunk(3))
            print((heads.q * heads.k).amax().item(), heads.v.amax().item())
    """,
    "one half of what is gone": """
        import torch
        def half(x):
            low, high = (x * 2).chunk(2)
            return low.clone(), high.norm()  #? yes beside it be freed
        for n in range(4):
            low, size = half(torch.randn(400, 200))
            print(low.norm().item(), size.item())
    """,
    "halves of which one lives on": """
        import torch
        def halves(x):
            low, high = (x * 2).chunk(2)
            low = low.clone()  #? unknown copies of other parts of that stay
            high = high.clone()  #? yes beside it be freed
            return low, high
        kept = []
        for n in range(4):
            low, high = halves(torch.randn(400, 200))
            print(low.norm().item())
            kept.append(high)
            del low
        print(sum(one.norm().item() for one in kept))
    """,
    "halves of which one is written while the other lives": """
        import torch
        def halves(x):
            both = x * 2
            low, high = both.chunk(2)
            low = low.clone()  #? unknown copies of other parts of that stay
            high = high.clone()  #? yes writes
            high.mul_(3)
            print(both.norm().item())
            return low, high
        for n in range(4):
            low, high = halves(torch.randn(400, 200))
            print(low.norm().item(), high.norm().item())
    """,
    "a model copied for its state to be saved": """
        import copy, io, torch
        def save(model, step):
            other = copy.deepcopy(model)  #? no
            torch.save(other.state_dict(), io.BytesIO())
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.randn(8, 4)).pow(2).sum().backward()
            optimizer.step()
            save(model, step)
    """,
    "the state of a copied model, saved with more": """
        import copy, io, torch
        def save(model, step):
            state = {"step": step, "model": copy.deepcopy(model).state_dict()}  #? no
            torch.save(state, io.BytesIO())
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.randn(8, 4)).pow(2).sum().backward()
            optimizer.step()
            save(model, step)
    """,
    "a copied model saved as a whole, in another mode": """
        import copy, io, torch
        def save(model, step):
            other = copy.deepcopy(model).eval()  #? yes Parameter of its own
            torch.save(other, io.BytesIO())
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.randn(8, 4)).pow(2).sum().backward()
            optimizer.step()
            save(model, step)
    """,
    "a copied model saved in half precision": """
        import copy, io, torch
        def save(model, step):
            other = copy.deepcopy(model).half()  #? yes Parameter of its own
            torch.save(other.state_dict(), io.BytesIO())
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.randn(8, 4)).pow(2).sum().backward()
            optimizer.step()
            save(model, step)
    """,
    "a copied model of which a part goes before it is saved": """
        import copy, io, torch
        def save(model, step):
            other = copy.deepcopy(model)  #? yes Parameter of its own
            del other[1]
            torch.save(other.state_dict(), io.BytesIO())
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.randn(8, 4)).pow(2).sum().backward()
            optimizer.step()
            save(model, step)
    """,
    "a copied model that is changed before it is saved": """
        import copy, io, torch
        def save(model, step):
            other = copy.deepcopy(model)  #? yes writes
            other[0].weight.data.clamp_(-1, 1)
            torch.save(other.state_dict(), io.BytesIO())
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.randn(8, 4)).pow(2).sum().backward()
            optimizer.step()
            save(model, step)
    """,
    "a copied model that is saved after the next step": """
        import copy, io, torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.randn(8, 4)).pow(2).sum().backward()
            optimizer.step()
            if step:
                torch.save(other.state_dict(), io.BytesIO())
            other = copy.deepcopy(model)  #? yes writes
    """,
    "a copied model that is saved, and asked as well": """
        import copy, io, torch
        def save(model, step):
            other = copy.deepcopy(model)  #? yes Parameter of its own
            print(other(torch.ones(2, 4)).sum().item())
            torch.save(other.state_dict(), io.BytesIO())
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.randn(8, 4)).pow(2).sum().backward()
            optimizer.step()
            save(model, step)
    """,
    "a clone that is copied on by its own line, of an array too large to be watched": """
        import numpy as np, torch
        pixels = np.ones((4200, 32, 32), dtype=np.float32)
        images = torch.from_numpy(pixels).permute(0, 2, 1)
        first = images.clone().double()  #? no
        print(first[0, 0, 0])
    """,
    "the same on two lines, between which the array may be written": """
        import numpy as np, torch
        pixels = np.ones((4200, 32, 32), dtype=np.float32)
        images = torch.from_numpy(pixels).permute(0, 2, 1)
        copied = images.clone()  #? unknown an array on its memory may have been written unheard
        pixels += 1
        print(copied.contiguous()[0, 0, 0])
    """,
    "clones of arrays that are gone, joined by the same line": """
        import numpy as np, torch
        arrays = [np.full(50, n, dtype=np.float32) for n in range(6)]
        for step in range(2):
            batch = torch.stack([torch.from_numpy(one).clone() for one in arrays])  #? no
            print(batch.mean())
    """,
    "clones of arrays that are joined, and read by themselves too": """
        import numpy as np, torch
        arrays = [np.full(50, n, dtype=np.float32) for n in range(6)]
        for step in range(2):
            parts = [torch.from_numpy(one).clone() for one in arrays]  #? unknown array
            batch, _ = torch.stack(parts), arrays[0].fill(9)
            print(batch.mean(), parts[0].mean())
    """,
    "a copy that is made only where it must be": """
        import torch
        for n in range(6):
            x = torch.randn(8, 8)
            print((x.t() if n % 2 else x).contiguous().max())  #? no
    """,
    "a layout that outlives the copy": """
        import torch
        def doubled(x):
            x = x.contiguous()  #? yes could not give a view of its source
            return x * 2
        for n in range(3):
            twice = doubled(torch.randn(8, 4).t())
            print(twice.view(-1)[1])
    """,
    "the best weights kept, which the last happen to be": """
        import copy, torch
        model = torch.nn.Linear(2, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for n in range(3):
            model(torch.ones(4, 2)).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            best = copy.deepcopy(model.state_dict())  #? yes line 7 writes
        model.load_state_dict(best)
    """,
    "a residual connection": """
        import torch
        conv = torch.nn.Conv1d(3, 3, 1)
        def block(x):
            identity = x.clone()  #? no
            return conv(x).relu() + identity
        block(torch.randn(1, 3, 4)).sum().backward()
    """,
    "the input is written in place after": """
        import torch
        conv = torch.nn.Conv1d(3, 3, 1)
        def block(x):
            identity = x.clone()  #? yes line 6 writes `x` while `identity` lives
            return conv(x.relu_()) + identity
        block(torch.randn(1, 3, 4)).sum().backward()
    """,
    "the copy is written, its source lives": """
        import torch
        x = torch.randn(4)
        y = x.clone()  #? yes line 5 writes `y` while `x` lives
        y += 1
        print(x, y)
    """,
    "the copy is written, its source is gone": """
        import torch
        def f(x):
            y = (x * 2).clone()  #? no
            y += 1
            return y
        f(torch.randn(4))
    """,
    "of a copy of a copy one may go": """
        import torch
        def f(x):
            a = x.clone()  #? no
            b = a.clone()  #? yes line 7 writes `b`
            del a
            b.add_(1)
            return b.sum()
        x = torch.ones(3)
        print(f(x), x)
    """,
    "the best weights so far, which each epoch improved and the last of which is loaded": """
        import torch
        from copy import deepcopy
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        best_loss, best = float("inf"), None
        for _ in range(3):
            loss = model(torch.ones(4, 2)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if loss.item() < best_loss:
                best_loss = loss.item()
                best = deepcopy(model.state_dict())  #? yes writes `model.weight` while
        model.load_state_dict(best)
    """,
    "states of each epoch that nothing reads": """
        import torch
        from copy import deepcopy
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            best = deepcopy(model.state_dict())  #? no
    """,
    "weights that train on": """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        best = None
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            best = model.weight.detach().clone()  #? yes line 9 writes
            kept = best if _ == 0 else kept
        print(best, kept)
    """,
    "weights that train on, and nothing reads": """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        best = None
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            best = model.weight.detach().clone()  #? no
    """,
    "the last of the weights, kept": """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
        best = model.weight.detach().clone()  #? unknown line 7 writes
        print(best)
    """,
    "the gradient of a parameter, before the next backward": """
        import torch
        w = torch.ones(3, requires_grad=True)
        (w * 2).sum().backward()
        first = w.grad.clone()  #? yes line 6 writes
        (w * 3).sum().backward()
        print(first, w.grad)
    """,
    "a leaf of its own": """
        import torch
        x = torch.ones(3)
        y = x.clone().requires_grad_()  #? yes its own requires_grad
        (y * x).sum().backward()
    """,
    "a detached alias that nothing else holds is as good": """
        import torch
        x = torch.ones(3) * 2
        y = x.detach().clone().requires_grad_()  #? no
        (y * 2).sum().backward()
    """,
    "an optimizer trains the copy": """
        import torch
        x = torch.ones(3)
        y = x.detach().clone().requires_grad_()  #? yes line 7 writes `y`
        optimizer = torch.optim.SGD([y], lr=0.1)
        y.sum().backward()
        optimizer.step()
    """,
    "a hook on the copy": """
        import torch
        w = torch.ones(3, requires_grad=True)
        x = w * 2
        y = x.clone()  #? yes has a hook of its own
        y.register_hook(lambda g: g * 2)
        (x + y).sum().backward()
    """,
    "the gradient of the copy": """
        import torch
        w = torch.ones(3, requires_grad=True)
        x = w * 2
        y = x.clone()  #? yes retains its own gradient
        y.retain_grad()
        (x + y).sum().backward()
    """,
    "differentiated by name": """
        import torch
        w = torch.ones(3, requires_grad=True)
        y = w.clone()  #? yes differentiated by name
        torch.autograd.grad((w * y).sum(), y)
    """,
    "a small part of much": """
        import torch
        def first():
            table = torch.randn(50_000)
            return table[:10].clone()  #? yes lets 199,960 bytes beside it be freed
        head = first()
        print(head.sum())
    """,
    "an array on the copy is written": """
        import torch
        x = torch.ones(4)
        y = x.clone()  #? yes an array wrote `y` while `x` lives
        y.numpy()[...] = 7
        print(x, y)
    """,
    "an array on the source is written while the copy lives": """
        import torch
        x = torch.ones(4)
        a = x.numpy()
        y = x.clone()  #? yes
        a += 1
        print(x, y)
    """,
    "an array is written last of all": """
        import torch
        x = torch.ones(4)
        a = x.numpy()
        y = x.clone()  #? yes the end of the recording comes after an array wrote `x`
        print(y)
        a += 1
    """,
    "a transfer that nobody waited for": """
        import torch
        buffer = torch.zeros(4)
        def send(x):
            buffer.copy_(x)
            y = buffer.clone()  #? unknown the transfer of line 7 may read it for longer
            return y.to(torch.float64, non_blocking=True)
        print(send(torch.ones(4)), send(torch.zeros(4)))
    """,
    "a layout for view": """
        import torch
        x = torch.randn(3, 4)
        y = x.t().contiguous()  #? yes view at line 5 could not give a view of its source
        print(y.view(-1))
    """,
    "a layout that reshape would copy to have": """
        import torch
        x = torch.randn(2, 3, 4)
        y = x.transpose(1, 2).contiguous()  #? yes reshape at line 6 would copy without it
        assert y.square is not None
        print(y.reshape(2, 12).amax(1))
    """,
    "a view that the source has as well": """
        import torch
        x = torch.randn(6, 4)
        print(x[:, :2].contiguous().view(2, 3, 2).amax(0))  #? no
    """,
    "a view that the source has as well, read by what may rely on strides": """
        import torch
        x = torch.randn(6, 4)
        print(x[:, :2].contiguous().view(2, 3, 2).sum())  #? unknown sum at line 4 may rely on its layout
    """,
    "an index in another layout": """
        import torch
        rows = torch.tensor([[0, 1], [2, 0]])
        table = torch.nn.Embedding(3, 4)
        print(table(rows.t().contiguous()).sum())  #? yes
    """,
    "a closure in a step": """
        import torch
        w = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.LBFGS([w], max_iter=3)
        def closure():
            optimizer.zero_grad()
            loss = (w * 2).square().sum()
            shown = loss.detach().clone()  #? no
            loss.backward()
            print(shown)
            return loss
        optimizer.step(closure)
    """,
    "a closure's copy of what its step writes": """
        import torch
        w = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([w], lr=0.1)
        seen = []
        def closure():
            loss = (w * 2).square().sum()
            loss.backward()
            seen[:] = [w.detach().clone()]  #? unknown inside an optimizer's step
            return loss
        optimizer.step(closure)
        print(seen, w)
    """,
    "a copy that goes in a closure, when its step has written": """
        import torch
        w = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.LBFGS([w], max_iter=3)
        first = []
        def closure():
            optimizer.zero_grad()
            loss = (w * 2).square().sum()
            loss.backward()
            if len(first) == 1:
                first.append(0)
            elif first:
                print(first[0])
                first.clear()
            return loss
        first.append(w.detach().clone())  #? yes line 17 writes
        optimizer.step(closure)
    """,
    "a copy that goes in a hook, when the gradient was added to": """
        import torch
        w = torch.nn.Parameter(torch.ones(2))
        v = torch.nn.Parameter(torch.ones(2))
        (w * 2).sum().backward()
        before = [w.grad.clone()]  #? yes line 8 writes
        v.register_post_accumulate_grad_hook(lambda _: print(before.pop()))
        ((w * 2) + (v * 3).exp()).sum().backward()
    """,
    "a library's copy of what it writes at its next call, wherever that may come": """
        import torch
        net = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(2, 3))
        for _ in range(2):
            net(torch.ones(4, 2)).sum().backward()  #? unknown at other times
    """,
    "a copy that a library makes for whoever calls it": """
        import dataclasses, torch
        @dataclasses.dataclass
        class Box:
            one: torch.Tensor
        box = Box(torch.ones(2))
        plain = dataclasses.asdict(box)  #? unknown a library's other callers
        print(plain, box)
    """,
    "a layout that a maximum does not need": """
        import torch
        x = torch.randn(3, 4)
        print(x.t().contiguous().amax(1))  #? no
    """,
    "a state_dict on its way into another model": """
        import copy, torch
        one, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        def hand_over():
            weights = copy.deepcopy(one.state_dict())  #? no
            other.load_state_dict(weights)
        hand_over()
    """,
    "a model of its own": """
        import copy, torch
        one = torch.nn.Linear(2, 2)
        other = copy.deepcopy(one)  #? yes becomes a Parameter of its own
        print(other(torch.ones(2)))
    """,
    "gradients in another order": """
        import torch
        w = torch.ones(3, requires_grad=True)
        def f():
            x = w * 2
            y = x.clone()  #? unknown added up in another order
            return (x.sin() + x.cos() + y).sum()
        f().backward()
    """,
    "a buffer of a module": """
        import torch
        class Counter(torch.nn.Module):
            def __init__(self, start):
                super().__init__()
                self.register_buffer("count", start.clone())  #? unknown a module holds it
        counter = Counter(torch.zeros(2))
        print(counter.count)
    """,
    "a Parameter's copy kept by a module": """
        import torch
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(2))
                with torch.no_grad():
                    self.first = self.weight.clone()  #? unknown a Parameter would be registered
            def forward(self):
                return self.weight - self.first
        layer = Layer()
        print(layer())
    """,
    "inside an autograd.Function": """
        import torch
        class Same(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()  #? unknown inside an autograd.Function
            @staticmethod
            def backward(ctx, g):
                return g
        print(Same.apply(torch.ones(2)))
    """,
    "both in one file": """
        import io, torch
        x = torch.randn(3)
        y = x.clone()  #? yes saves it as memory of its own
        torch.save({"x": x, "y": y}, io.BytesIO())
    """,
    "one of several runs of the line needed it": """
        import torch
        def f(x, write):
            y = x.clone()  #? yes line 6 writes `y`
            if write:
                y.add_(1)
            return y.sum()
        x = torch.ones(2)
        f(x, False); f(x, True); f(x, False)
        print(x)
    """,
    "the running statistics of a batch norm": """
        import torch
        norm = torch.nn.BatchNorm1d(2)
        before = norm.running_mean.clone()  #? yes line 5 writes
        norm(torch.randn(4, 2))
        print(before, norm.running_mean)
    """,
    "the state of an optimizer": """
        import torch
        w = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.Adam([w])
        def step():
            w.sum().backward()
            optimizer.step()
        step()
        before = optimizer.state[w]["exp_avg"].clone()  #? yes writes `optimizer.state[w]['exp_avg']`
        step()
        print(before)
    """,
    "nothing reads it but a view that its source could not give": """
        import torch
        def f(x):
            y = x.t().contiguous()  #? yes view at line 5 could not give a view of its source
            rows = y.view(-1)
            return x.sum()
        f(torch.randn(2, 3))
    """,
    "nothing reads it but a view that its source gives as well": """
        import torch
        def f(x):
            y = x.clone()  #? no
            rows = y.view(-1)
            return x.sum()
        f(torch.randn(2, 3))
    """,
    "a guard that asks whether anything has changed": """
        import torch
        frozen = torch.nn.Linear(2, 2).requires_grad_(False)
        before = {k: v.clone() for k, v in frozen.state_dict().items()}  #? yes line 7 compares it
        for _ in range(3):
            frozen(torch.randn(4, 2))
        print(all(torch.equal(v, before[k]) for k, v in frozen.state_dict().items()))
    """,
    "how far a tensor is from where it was": """
        import torch
        x = torch.randn(4)
        start = x.clone()  #? yes line 5 compares it with `x`
        moved = x - start
        print(moved)
    """,
    "a comparison with another": """
        import torch
        x, other = torch.randn(4), torch.randn(4)
        y = x.clone()  #? no
        print(x.sum(), torch.equal(y, other))
    """,
    "a complex tensor": """
        import torch
        z = torch.ones(2, dtype=torch.complex64)
        y = z.conj().clone()  #? unknown conjugated in name only
        print(y)
    """,
    "a write that was meant for it went into another copy": """
        import torch
        x = torch.randn(8, 4)
        def masked(x):
            y = x.clone()  #? unknown what line 6 writes was meant for it
            y[x > 0][:2] = 0
            return y
        print((masked(x) - x).abs().sum())
    """,
    "a write that went into a copy of another": """
        import torch
        x, other = torch.randn(8, 4), torch.randn(8, 4)
        def masked(x):
            y = x.clone()  #? no
            other[x > 0][:2] = 0
            return y * 2
        print((masked(x) - x).abs().sum())
    """,
    "what is alive when the program raises": """
        import torch
        x = torch.ones(2)
        y = x.clone()  #? unknown both are alive where the recording ends
        raise SystemError
    """,
}
_TWO_LOSSES = """
        import torch
        net = torch.nn.Linear(64, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            kept = []
            for column in range(2):
                optimizer.zero_grad(set_to_none=NONE)
                net(torch.ones(8, 64))[:, column].square().sum().backward()
                kept.append([p.grad.clone() for p in net.parameters()])  #? NEEDED
            for p, one, other in zip(net.parameters(), *kept):
                p.grad = one + other
            optimizer.step()
    """

PROGRAMS |= {
    "gradients of two losses, each let go before the next": _TWO_LOSSES.replace(
        "NONE", "True"
    ).replace("NEEDED", "no"),
    "gradients of two losses that are cleared in place": _TWO_LOSSES.replace(
        "NONE", "False"
    ).replace("NEEDED", "yes writes `p.grad`"),
}
_MARK = re.compile(r"#\?\s*(yes|no|unknown)\s*(.*?)\s*$")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_known_whether_a_copy_was_needed(name, tmp_path):
    text = textwrap.dedent(PROGRAMS[name])
    rows = record_program(text, tmp_path).copies
    expected = {
        number: match.groups()
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _MARK.search(line))
    }
    for line, (needed, reason) in expected.items():
        found = [
            (row.needed, row.reason)
            for row in rows
            if row.site.line == line and row.operation in ("clone", "contiguous", "__deepcopy__")
        ]
        assert found, f"no copy at line {line}"
        for answer, why in found:
            assert answer == needed, why
            assert reason in why


def test_a_line_of_another_file_is_named_with_it(tmp_path):
    (tmp_path / "strings.py").write_text("def tune(rows):\n    return rows.view(-1)\n")
    text = (
        "import torch\nfrom strings import tune\n"
        "for _ in range(3):\n    rows = torch.randn(4, 8).t().contiguous()\n    tune(rows).sum()\n"
    )
    recording = record_program(text, tmp_path)
    (row,) = [one for one in recording.copies if one.operation == "contiguous"]
    said = "view at strings.py:2 could not give a view of its source, whose elements lie in another"
    assert row.reason == f"{said} order"
