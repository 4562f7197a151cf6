"""However a copy is spelled: what made that which was there already, and look-alikes that did not.

The answer stands on the line that copies, with a part of the reason where it is not "no".
"""

import re
import textwrap

import pytest

from programs import record_program
from tether.analysis.copies.needs import needs

START = """
import copy, torch, numpy as np
x, b = torch.arange(24.).view(6, 4), torch.arange(4.)
"""

SPELLINGS = {
    "rows in an order that the values give, which is theirs in each of many runs": """
        for n in range(9):
            y = (x + n) * 2
            z = y[y[:, 0].argsort()]  #? unknown hangs on the values
            print(z.sum())
        """,
    "rows in such an order, once another one": """
        for n in range(9):
            y = (x + n) * (2 if n < 8 else -2)
            z = y[y[:, 0].argsort()]  #? unknown not all of its runs
            print(z.sum())
        """,
    "the first dimensions whole, and a list of the last in order": """
        for n in range(3):
            y = (x + n)[..., [0, 1, 2]]  #? no
            print((y * 2).sum())
        """,
    "a range of places that grows": """
        for n in range(1, 6):
            y = x.index_select(0, torch.arange(n))  #? no
            print((y * 2).sum())
        """,
    "one place at a time": """
        for n in range(3):
            y = x.index_select(0, torch.tensor([n]))
            print((y * 2).sum())
        """,
    "a mask of other values, which takes everything": """
        for n in range(9):
            values, places = torch.rand(50).topk(6)
            y = places[values > 0.01]  #? unknown hangs on the values
            print(y.sum())
        """,
    "such a list in another order": """
        for n in range(3):
            y = (x + n)[..., [0, 2, 1]]
            print((y * 2).sum())
        """,
    "padded by nothing": """
        for n in range(3):
            y = torch.nn.functional.pad(x + n, (0, 0, 0, 0))  #? no
            print(y.sum())
        """,
    "padded to a multiple, which the size was already": """
        for n in range(3):
            y = torch.nn.functional.pad(x + n, (0, 0, 0, -x.shape[0] % 3))  #? unknown may be others
            print(y.sum())
        """,
    "rolled by a shift that came to nothing": """
        for n in range(3):
            y = torch.roll(x + n, len(x) % 3, 0)  #? unknown may be others
            print(y.sum())
        """,
    "pooled to the size that it had": """
        for n in range(3):
            y = torch.nn.functional.interpolate(x[None] + n, size=4)  #? unknown may be others
            print(y.sum())
        """,
    "joined behind a cache that holds nothing yet": """
        for n in range(3):
            y = torch.cat([torch.empty(0, 4), x + n])
            print(y[-6:].sum())
        """,
    "joined behind a cache that holds nothing at first": """
        seen = x[:0]
        for n in range(3):
            y = torch.cat([seen, x + n])
            print(y[-6:].sum())
            seen = y[-6:]
        """,
    "padded by nothing, and by a row": """
        for n in range(3):
            y = torch.nn.functional.pad(x[n:], (0, 0, 0, n))  #? unknown not all of its runs
            print(y.sum())
        """,
    "padded by nothing, and written": """
        for n in range(3):
            y = torch.nn.functional.pad(x, (0, 0))  #? yes writes
            y += 1
            print(x.sum() + y.sum())
        """,
    "cat of one": "y = torch.cat([x])  #? no\nprint(y.sum())",
    "stack of one, indexed": "y = torch.stack([x])  #? no\nprint(y[0].sum())",
    "stack of rows that lie side by side": "y = torch.stack([x[0], x[1]])  #? no\nprint(y.sum())",
    "stack, then unbind": "y, z = torch.stack([b, x[0]]).unbind()  #? no\nprint(y * z)",
    "stack, taken apart by a library that is handed it": """
        pair = torch.utils.data.TensorDataset(torch.stack([b, x[5]]))  #? unknown in one piece
        print(pair[0], pair[1])
        """,
    "stack, taken apart by a function of the program's that is handed it": """
        def range_of(pair):
            return pair[1] - pair[0]
        print(range_of(torch.stack([b, x[5]])))  #? no
        """,
    "stack, read as one": "y = torch.stack([b, x[5]])  #? yes in one piece\nprint(y.sum())",
    "stack along another dimension": "y = torch.stack(x.unbind(1), 1)  #? no\nprint(y.sum())",
    "split, then cat": "y = torch.cat(x.split(2))  #? no\nprint(y.sum())",
    "cat with a part of no elements": "y = torch.cat([x[:0], x])\nprint(y.sum())",
    "parts of a list that another function filled, joined once": """
        def batches(whole):
            yield from whole.split(2)
        kept = [one for one in batches(x)]
        y = torch.cat(kept)  #? unknown ran once
        print(y.sum())
        """,
    "parts of a list that another function filled, joined again": """
        def batches(whole):
            yield from whole.split(2)
        for n in range(2):
            kept = [one for one in batches(x)]
            y = torch.cat(kept)  #? no
            print(y.sum())
        """,
    "a list of one that may hold more": """
        kept = []
        kept.append(x + 1)
        y = torch.cat(kept)  #? unknown ran once
        print(y.sum())
        """,
    "split, then cat in another order": "y = torch.cat(x.split(3)[::-1])  #? yes in one piece\nprint(y.sum())",
    "an index of everything in order": "y = x[torch.arange(6)]  #? no\nprint(y.sum())",
    "an index that is in order at first": """
        for rows in ([0, 1, 2], [0, 2, 1]):
            y = x[rows]  #? unknown not all of its runs
            print(y.sum())
        """,
    "a list of everything in order": "y = x[:, [0, 1, 2, 3]]  #? no\nprint(y.sum())",
    "index_select": "y = x.index_select(0, torch.arange(6))  #? no\nprint(y.sum())",
    "a region by index": "y = x[torch.arange(1, 4)]  #? no\nprint(y.sum())",
    "a mask of ones": "y = x[torch.ones(6, dtype=torch.bool)]  #? no\nprint(y.sum())",
    "masked_select of all": "y = x.masked_select(torch.ones(6, 4, dtype=torch.bool))  #? no\nprint(y.sum())",
    "a guard against values that are not there": """
        y = x[~torch.isnan(x)]  #? unknown hangs on the values
        z = torch.where(x.isnan(), 0.0, x)  #? unknown hangs on the values
        print(y.sum(), z.sum())
        """,
    "rows in an order that they have already": """
        y = x[x[:, 0].argsort()]  #? unknown hangs on the values
        print(y.sum())
        """,
    "a mask like another tensor": """
        y = x[torch.ones_like(x, dtype=torch.bool)]  #? no
        print(y.sum())
        """,
    "a mask by lengths that are all full": """
        mask = torch.arange(6) < torch.tensor(6)
        print(x[mask].sum())  #? no
        """,
    "the choice is written": """
        y = x[torch.arange(6)]  #? yes writes `y`
        y += 1
        print(y, x)
        """,
    "repeat where broadcasting does": "y = b.repeat(6, 1)  #? no\nprint((x + y).sum())",
    "repeat that is written": """
        y = (b * 2).repeat(6, 1)  #? yes of which several elements would be one
        y[0] += 1
        print(y)
        """,
    "repeat read by what may rely on strides": "y = b.repeat(6, 1)  #? unknown may rely on its layout\nprint(y.mean())",
    "expand, then contiguous": "y = b.expand(6, 4).contiguous()  #? no\nprint((x * y).sum())",
    "a number format there and back": "y = x.double().float()  #? no\nprint(y.sum())",
    "a number format there and back, a view between": """
        y = x.double().t()[1:, 2:4].float()  #? no
        print(y.t() * 2)
        """,
    "a number format there and back, what is computed between": """
        y = (x.double()[1:] + 1).float()
        print(y.sum())
        """,
    "a number format that loses something": "y = x.half().float()\nprint(y.sum())",
    "there and back, written between": """
        w = x.double()
        x += 1
        y = w.float()  #? yes line 6 writes
        print(y.sum(), x.sum())
        """,
    "there and back once, and written between each later time": """
        w = x.double()
        for _ in range(3):
            y = w.float()  #? unknown not all of its runs
            print(y.sum())
            w.add_(0.1)
        """,
    "a gradient that a backward of the program's own returns": """
        class Straight(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.round()

            @staticmethod
            def backward(ctx, gradient):
                through = gradient.clone()  #? unknown inside a backward pass
                return through
        w = torch.randn(9, requires_grad=True)
        for _ in range(3):
            Straight.apply(w * 2).pow(2).sum().backward()
        """,
    "permuted there and back with a copy between": """
        y = x.t().contiguous().t()  #? no
        print((y + 1).amax())
        """,
    "permuted there and back with two copies": """
        y = x.t().contiguous()  #? no
        print(y.t().contiguous().sum())  #? no
        """,
    "permuted there and back with two copies, asked how it lies": """
        y = x.t().contiguous()  #? no
        z = y.t().contiguous()  #? no
        print(z.data.is_contiguous(), z.sum())
        """,
    "asked how it lies, and nothing else": """
        y = b.repeat(2, 1)  #? yes would answer otherwise without it
        print(y.is_contiguous())
        """,
    "asked for its strides": """
        y = x.t().contiguous()  #? yes would answer otherwise without it
        print(y.stride(), y.amax())
        """,
    "asked for strides that are the same": """
        y = x.clone()  #? no
        print(y.stride(), y.sum())
        """,
    "permuted there and back, read by what may rely on strides": """
        y = x.t().contiguous().t()  #? no
        print(y.sum())
        """,
    "a tensor of an array of a tensor": "y = torch.tensor(x.numpy())  #? no\nprint(y.sum())",
    "a tensor of an array of a tensor that has gone": """
        y = torch.tensor(x.detach().numpy())  #? no
        print(y.sum())
        """,
    "a tensor of an array of a tensor that has gone, and is written on": """
        y = torch.tensor(x.detach().numpy())  #? yes
        x += 1
        print(y.sum(), x.sum())
        """,
    "a tensor of a part of an array": "y = torch.tensor(x.numpy()[1:3])  #? no\nprint(y.sum())",
    "by way of a copied array": """
        array = x.numpy().copy()
        y = torch.from_numpy(array)  #? no
        print(y.sum())
        """,
    "by way of a copied array that is written": """
        array = x.numpy().copy()
        y = torch.from_numpy(array)  #? yes
        array += 1
        print(y.sum(), x.sum())
        """,
    "an equal list out of a text": """
        text = str(x.tolist())
        def read(text):
            return [[float(one) for one in row.split(",")] for row in text[2:-2].split("], [")]
        y = torch.tensor(read(text))
        print(y.sum(), x.sum())
        """,
    "whole numbers out of a file": """
        import os, tempfile
        whole, path = torch.arange(9) % 4, os.path.join(tempfile.mkdtemp(), "whole")
        np.save(path, whole.numpy())
        def load(path):
            return np.load(path + ".npy")
        y = torch.from_numpy(load(path))
        z = torch.tensor(load(path).tolist())
        print(y.sum(), z.sum(), whole.sum())
        """,
    "a part of a list": "y = torch.tensor(x.tolist()[1:])\nprint(y.sum(), x.sum())",
    "whole numbers by way of a list": """
        whole = torch.arange(9) % 4
        kept = whole.tolist()
        y = torch.tensor(kept)  #? no
        print(y.sum(), whole.sum())
        """,
    "a backup of what nobody changes": """
        kept = x.clone()  #? no
        print(x.sum())
        x.copy_(kept)
        del kept
        x.add_(1)
        print(x.sum())
        """,
    "a backup of a model that nobody changes": """
        model = torch.nn.Linear(2, 1)
        def evaluate():
            kept = copy.deepcopy(model.state_dict())  #? no
            print(model(torch.ones(4, 2)).sum())
            model.load_state_dict(kept)
        evaluate()
        """,
    "a backup that backward needs as it was": """
        w = torch.ones(4, requires_grad=True)
        kept = x.clone()  #? yes while `kept` lives
        loss = (kept * w).sum()
        x.copy_(kept)
        loss.backward()
        print(x.sum(), w.grad)
        """,
    "a backup of what is changed": """
        kept = x.clone()  #? yes writes `x` while
        x.add_(1)
        x.copy_(kept)
        print(x.sum())
        """,
    "a backup that is changed": """
        kept = x.clone()  #? yes writes
        kept[0] = 1
        x.copy_(kept)
        print(x.sum())
        """,
    "a backup put back elsewhere": """
        kept = x.clone()  #? yes writes `x` while
        x.copy_(kept.flip(0))
        x[:2].copy_(kept[2:4])
        print(x.sum())
        """,
    "by way of a list": "y = torch.tensor(x.tolist())  #? no\nprint(y.sum())",
    "a tensor that shows an array": "y = torch.from_numpy(x.numpy())\nprint(y.sum())",
    "a tensor of an array": """
        array = np.random.rand(4, 3)
        y = torch.tensor(array)  #? no
        print(y.sum(), array.sum())
        """,
    "a tensor of an array that shows it": """
        array = np.random.rand(4, 3)
        y = torch.from_numpy(array)
        print(y.sum(), array.sum())
        """,
    "a tensor of an array that is filled again": """
        array = np.zeros(4)
        for n in range(3):
            array[:] = n
            y = torch.tensor(array)  #? yes was written
            print(y.sum())
        """,
    "a tensor of an array, written": """
        array = np.random.rand(4, 3)
        y = torch.tensor(array)  #? yes writes `y` while its array lives
        y += 1
        print(y.sum(), array.sum())
        """,
    "a tensor of an array that was made for it, written": """
        y = torch.tensor(np.random.rand(4, 3))  #? no
        y += 1
        print(y.sum())
        """,
    "a tensor of a small part of an array": """
        def part():
            return torch.tensor(np.random.rand(40, 3)[3])  #? yes lets 936 bytes
        print(part().sum())
        """,
    "memory whose address is taken": """
        y = x.t().contiguous()  #? unknown its address
        print(y.data_ptr() > 0)
        """,
    "a model that takes the place of another": """
        model = torch.nn.Linear(2, 1)
        other = copy.deepcopy(model).eval()  #? no
        with torch.no_grad():
            print(other(torch.ones(4, 2)))
        """,
    "a model beside another": """
        model = torch.nn.Linear(2, 1)
        other = copy.deepcopy(model).eval()  #? yes a Parameter of its own
        with torch.no_grad():
            print(other(torch.ones(4, 2)), model(torch.ones(4, 2)))
        """,
    "a buffer that is filled once and read": """
        y = torch.empty_like(x)
        y.copy_(x)  #? no
        print(y.sum())
        """,
    "a buffer that is filled twice": """
        y = torch.empty_like(x)
        y.copy_(x)  #? yes writes `y`
        y.copy_(x + 1)
        print(y.sum(), x.sum())
        """,
    "a clone that is only joined": """
        y = b.clone()  #? no
        print(torch.cat([y, y + 1]).sum())
        """,
    "saved for backward": """
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                ctx.save_for_backward(a.clone())  #? no
                return a * a
            @staticmethod
            def backward(ctx, g):
                return 2 * ctx.saved_tensors[0] * g
        w = torch.ones(3, requires_grad=True)
        Square.apply(w).sum().backward()
        print(w.grad)
        """,
    "zeros that are filled whole": "y = torch.zeros_like(x)\ny.copy_(x)  #? no\nprint(y.sum())",
    "a state that is filled at first, and put back later": """
        state = torch.empty(6, 4)
        for n in range(3):
            state.copy_(x)  #? unknown not all of its runs
            state = state + n
        print(state.sum())
        """,
    "a copy of what a call has just made": "y = torch.zeros(4).clone()  #? no\nprint(y.sum())",
    "an average of weights that nothing reads": """
        model = torch.nn.Linear(2, 1)
        shadow = {k: v.detach().clone() for k, v in model.named_parameters()}  #? no
        for _ in range(3):
            with torch.no_grad():
                for k, v in model.named_parameters():
                    shadow[k].mul_(0.9).add_(v, alpha=0.1)
        """,
    "an average of weights that is read": """
        model = torch.nn.Linear(2, 1)
        shadow = {k: v.detach().clone() for k, v in model.named_parameters()}  #? yes writes
        for _ in range(3):
            with torch.no_grad():
                for k, v in model.named_parameters():
                    shadow[k].mul_(0.9).add_(v, alpha=0.1)
        print(shadow)
        """,
    "a model copied at each step, never used": """
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            best = copy.deepcopy(model)  #? no
        """,
    "a copy under a default device": """
        with torch.device("cpu"):
            y = x.clone()  #? no
        print(y.sum())
        """,
    "a copy under a default device, by a function written in Python": """
        with torch.device("cpu"):
            y = torch.nn.functional.pad(x, (0, 0))  #? no
        print(y.sum())
        """,
    "a copy where a default device was set": """
        torch.set_default_device("cpu")
        y = torch.cat([x])  #? no
        torch.set_default_device(None)
        print(y.sum())
        """,
    "a copy under a default device that is written": """
        with torch.device("cpu"):
            y = x.clone()  #? yes writes
            y.add_(1)
        print(x.sum(), y.sum())
        """,
    "the library's copy under a default device": """
        with torch.device("cpu"):
            y = torch.nn.functional.normalize(x)
        print(y.sum())
        """,
    "places of a sparse tensor, which no call is heard to take": """
        places = torch.stack([torch.arange(4), torch.arange(4)])  #? unknown nothing was heard
        square = torch.sparse.FloatTensor(places, torch.ones(4), (6, 6))
        print(torch.sparse.mm(square, x).sum())
        """,
    "places of a sparse tensor, put together by a function": """
        def square(n):
            places = torch.stack([torch.arange(n), torch.arange(n)])  #? unknown nothing was heard
            return torch.sparse.FloatTensor(places, torch.ones(n), (6, 6))
        print(torch.sparse.mm(square(4).coalesce(), x).sum())
        """,
    "parts put together, each read by itself": """
        y = torch.stack([torch.arange(4.), torch.ones(4)])  #? no
        print(y[0].sum(), y[1].sum())
        """,
    "laid out anew, and back as before by the next": """
        conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        for _ in range(3):
            seen = torch.rand(2, 8, 8, 3).permute(0, 3, 1, 2)
            with torch.no_grad():
                first = seen.contiguous()  #? no
                last = first.to(memory_format=torch.channels_last)  #? no
                print(conv(last).sum())
        """,
    "laid out anew, and back with another type": """
        conv = torch.nn.Conv2d(3, 4, 3).double().to(memory_format=torch.channels_last)
        for _ in range(3):
            seen = torch.rand(2, 8, 8, 3).permute(0, 3, 1, 2)
            with torch.no_grad():
                first = seen.contiguous()  #? no
                last = first.to(torch.float64, memory_format=torch.channels_last)
                print(conv(last).sum())
        """,
    "laid out anew, and cloned as it lay before, to be written": """
        for _ in range(3):
            seen = torch.rand(2, 8, 8, 3).permute(0, 3, 1, 2)
            first = seen.contiguous()  #? no
            last = first.clone(memory_format=torch.channels_last)  #? yes writes
            last.mul_(2)
            print((last + seen).max())
        """,
    "laid out anew, read so, and back": """
        for _ in range(3):
            seen = torch.rand(2, 8, 8, 3).permute(0, 3, 1, 2)
            first = seen.contiguous()  #? yes view
            print(first.view(2, -1).max(), first.to(memory_format=torch.channels_last).max())
        """,
    "laid out anew, and back to be written": """
        for _ in range(3):
            seen = torch.rand(2, 8, 8, 3).permute(0, 3, 1, 2)
            first = seen.contiguous()  #? unknown
            last = first.to(memory_format=torch.channels_last)
            last.mul_(2)
            print((last + seen).max())
        """,
    "laid out anew, and otherwise than it lay": """
        conv = torch.nn.Conv2d(8, 4, 3).to(memory_format=torch.channels_last)
        for _ in range(3):
            seen = torch.rand(2, 8, 3, 8).permute(0, 3, 1, 2)[:, :, :, 1:].transpose(1, 3)
            with torch.no_grad():
                first = seen.contiguous()  #? unknown
                last = first.to(memory_format=torch.channels_last)
                print(last.view(-1).sum() if last.is_contiguous() else last.sum())
        """,
    "a model copied at each step, and used": """
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            best = copy.deepcopy(model)  #? yes writes
            print(best(torch.ones(1, 2)))
        """,
}
_MARK = re.compile(r"#\?\s*(yes|no|unknown)\s*(.*?)\s*$")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SPELLINGS)
def test_it_does_not_matter_how_a_copy_is_spelled(name, tmp_path):
    check_needs(START + textwrap.dedent(SPELLINGS[name]), tmp_path)


def check_needs(text, tmp_path):
    """Compare what is said of each line's copies with the line's mark; without one nothing is."""
    history = record_program(text, tmp_path).history
    found = {}
    for (site, inner, _), need in needs(history).items():
        if inner < 0:
            found.setdefault(history.site(site).line, []).append((need.needed, need.reason))
    for number, line in enumerate(text.splitlines(), 1):
        match = _MARK.search(line)
        if match is None:
            assert ("no", "") not in found.get(number, []), line
        else:
            assert all(match[1] == needed and match[2] in why for needed, why in found[number]), (
                found[number]
            )
