"""Copies whose values others take the place of before anything reads them; and those that are read."""

import pytest

from programs import check_program, record_program

FOUND = {
    "an average over clients, begun with a copy of one of them": """
        import copy
        import torch
        from torch import nn

        class Site:
            def __init__(self):
                self.net = nn.Sequential(nn.Linear(40, 60), nn.Tanh(), nn.Linear(60, 5))

        def merged(sites):
            total = copy.deepcopy(sites[0].net)  #! slow-copy total (note)
            with torch.no_grad():
                for p in total.parameters():
                    p.fill_(0.0)
                for site in sites:
                    for p, q in zip(total.parameters(), site.net.parameters()):
                        p.add_(q, alpha=1 / len(sites))
            return total

        sites = [Site() for _ in range(3)]
        for turn in range(8):
            net = merged(sites)
            print(net(torch.ones(2, 40)).sum().item())
            for site in sites:
                site.net.load_state_dict(net.state_dict())
                with torch.no_grad():
                    for p in site.net.parameters():
                        p.add_(torch.randn_like(p), alpha=0.1)
            del net
    """,
    "another client is copied each time": """
        import copy
        import torch

        nets = [torch.nn.Linear(64, 64) for _ in range(5)]
        for turn in range(9):
            mean = copy.deepcopy(nets[turn % 5])  #! slow-copy mean (note)
            for name, p in mean.named_parameters():
                p.data.copy_(torch.stack([dict(net.named_parameters())[name].data for net in nets]).mean(0))
            print(mean(torch.ones(1, 64)).sum().item())
    """,
    "the state of a model, and zeros": """
        import copy
        import torch

        nets = [torch.nn.Linear(50, 50) for _ in range(3)]
        for turn in range(7):
            totals = copy.deepcopy(nets[0].state_dict())  #! slow-copy totals (note)
            for key in totals:
                totals[key].zero_()
            for net in nets:
                for key, value in net.state_dict().items():
                    totals[key] += value / 3
            print(sum(one.abs().sum() for one in totals.values()))
    """,
    "a clone that is assigned to as a whole": """
        import torch

        x, y = torch.randn(80, 80), torch.randn(80, 80)
        for turn in range(4):
            out = x.clone()  #! slow-copy out (note)
            out[:] = y * turn
            print(out.sum(), x.sum())
    """,
    "a clone that is filled in two halves": """
        import torch

        def rotated(x):
            out = x.clone()  #! slow-copy out (note)
            half = x.shape[-1] // 2
            out[..., :half] = -x[..., half:]
            out[..., half:] = x[..., :half]
            return out

        x = torch.randn(64, 64)
        for turn in range(5):
            print((x * 2 + rotated(x)).sum())
    """,
    "row by row": """
        import torch

        x = torch.randn(64, 128)
        for turn in range(5):
            kept = x.clone()  #! slow-copy kept (note)
            for n in range(64):
                kept[n] = x[n] * n
            print(kept.sum() + x.sum())
    """,
    "memory for out=": """
        import torch

        a, b = torch.randn(96, 96), torch.randn(96, 96)
        for turn in range(4):
            room = a.clone()  #! slow-copy room (note)
            torch.mul(a, b, out=room)
            print(room.sum(), a.sum())
    """,
    "noise in the place of a copy": """
        import torch

        x = torch.randn(96, 96)
        for turn in range(4):
            noise = x.clone().normal_()  #! slow-copy noise (note)
            print((x + noise).sum())
    """,
    "a list of gradients that is cleared at once": """
        import torch

        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for turn in range(4):
            opt.zero_grad()
            net(torch.ones(2, 64)).pow(2).sum().backward()
            sums = [p.grad.clone() for p in net.parameters()]  #! slow-copy p.grad (note)
            torch._foreach_zero_(sums)
            for total, p in zip(sums, net.parameters()):
                total.addcmul_(p.grad, p.grad)
            print(sum(one.sum() for one in sums))
            opt.step()
    """,
}

QUIET = {
    "copies that are used side by side": """
        import copy
        import torch

        net = torch.nn.Linear(80, 80)
        nets = [copy.deepcopy(net) for _ in range(4)]
        for n, one in enumerate(nets):
            one.load_state_dict({k: v * n for k, v in net.state_dict().items()})
        for one in nets:
            print(one(torch.ones(1, 80)).sum())
    """,
    "the last copy is kept beside the next": """
        import copy
        import torch

        net, last = torch.nn.Linear(80, 80), None
        for turn in range(6):
            mean = copy.deepcopy(net)
            for p in mean.parameters():
                p.data.zero_()
            for p, q in zip(mean.parameters(), net.parameters()):
                p.data.add_(q.data)
            if last is not None:
                print((mean.weight - last.weight).norm())
            last = mean
            torch.nn.init.normal_(net.weight)
    """,
    "the weights are replaced and the statistics used": """
        import copy
        import torch

        net = torch.nn.Sequential(torch.nn.Linear(30, 30), torch.nn.BatchNorm1d(30))
        net(torch.randn(9, 30))
        for turn in range(30):
            mean = copy.deepcopy(net).eval()
            for p in mean.parameters():
                p.data.zero_()
                p.data.add_(turn)
            print(mean(torch.ones(2, 30)).sum().item())
    """,
    "one part is not overwritten": """
        import torch

        x = torch.randn(128, 128)
        for turn in range(6):
            out = x.clone()
            out[:100] = 0
            out[101:] = 1
            print(out.sum(), x.sum())
    """,
    "places that an index names": """
        import torch

        x, order = torch.randn(128, 128), torch.randperm(128)
        for turn in range(6):
            out = x.clone()
            out[order[:127]] = x[order[1:]]
            other = x.clone()
            other[[0, 3, 5]] = 0
            third = x.clone()
            third[x > 0] = 0
            print(out.sum(), other.sum(), third.sum())
    """,
    "read before": """
        import torch

        x = torch.randn(128, 128)
        for turn in range(6):
            old = x.clone()
            print(old.norm())
            old.zero_()
            same = x.clone()
            same[:] = same.flip(0)
            same.mul_(0)
            view = x.clone()
            numbers = view.numpy()
            view[:] = float(numbers.sum())
            print(x.sum(), same.sum(), view.sum())
    """,
    "out= reads what it writes": """
        import torch

        x, y = torch.randn(128, 128), torch.randn(128, 128)
        for turn in range(6):
            total = x.clone()
            torch.add(total, y, out=total)
            print(total.sum(), x.sum())
    """,
    "layers begun by chance": """
        import copy
        import torch

        layer = torch.nn.Linear(80, 80)
        for turn in range(5):
            fresh = copy.deepcopy(layer)
            fresh.reset_parameters()
            print(fresh(torch.ones(1, 80)).sum())
    """,
    "other structures each time": """
        import copy
        import torch

        nets = [torch.nn.Linear(60, 60 + n) for n in range(6)]
        for net in nets:
            total = copy.deepcopy(net)
            for p in total.parameters():
                p.data.zero_()
            print(total(torch.ones(1, 60)).sum())
    """,
    "some of it is taken by numbers before": """
        import torch

        rows, some = torch.rand(400, 400), torch.tensor([3, 7, 11])
        for turn in range(20):
            work = rows.clone()
            taken = work[some]
            work.fill_(0.0)
            print(taken.sum().item(), work.sum().item())
    """,
    "made once, and small": """
        import copy
        import torch

        net = torch.nn.Linear(80, 80)
        average = copy.deepcopy(net)
        for p in average.parameters():
            p.data.zero_()
        for turn in range(6):
            for p, q in zip(average.parameters(), net.parameters()):
                p.data.lerp_(q.data, 0.1)
            small = net.bias.detach().clone()
            small.fill_(1)
            print(small.sum(), average.weight.sum())
    """,
}


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_found(program, tmp_path):
    recording = check_program(program, tmp_path)
    (found,) = [one for one in recording.findings if one.slug == "slow-copy"]
    assert "replaced by others before anything reads them" in found.message


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_quiet(program, tmp_path):
    recording = record_program(program, tmp_path)
    assert recording.error is None
    assert [one.message for one in recording.findings if "replaced by" in one.message] == []


def test_what_else_is_read_is_to_be_copied_still(tmp_path):
    recording = record_program(
        QUIET["the weights are replaced and the statistics used"].replace("30", "500"), tmp_path
    )
    (found,) = [one for one in recording.findings if "replaced by others" in one.message]
    assert "What else is read of it, as buffers, is to be copied still." in found.fix.text
