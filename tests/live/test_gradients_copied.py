"""Copies of gradients: needless where nothing writes those again, or each could be asked alone."""

import pytest

from programs import check_program, record_program

START = """\
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))

def loss(part=slice(None)):
    return F.cross_entropy(net(x[part]), y[part])

"""

NEEDLESS = {
    "two tasks, of which the gradients are let go": """
        for n in range(6):
            kept = []
            for half in (slice(0, 32), slice(32, 64)):
                net.zero_grad(set_to_none=True)
                loss(half).backward()
                kept.append([p.grad.clone() for p in net.parameters()])  #! needless-copy kept[0][0] (note)
            net.zero_grad(set_to_none=True)
            for p, a, b in zip(net.parameters(), *kept):
                p.grad = a + b
            opt.step()
        """,
    "by the optimizer's own clearing, as it is called": """
        before = None
        for n in range(6):
            opt.zero_grad()
            loss().backward()
            grads = {name: one.grad.detach().clone() for name, one in net.named_parameters()}  #! needless-copy before['0.weight'] (note)
            if before is not None:
                print(sum((grads[one] * before[one]).sum() for one in grads))
            opt.zero_grad()
            before = grads
            for name, one in net.named_parameters():
                one.grad = grads[name] / 2
            opt.step()
        """,
    "joined to ask for numbers that are none": """
        def healthy():
            flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()])  #! needless-copy flat (note)
            return torch.isfinite(flat).all()

        for n in range(6):
            opt.zero_grad()
            loss().backward()
            if healthy():
                opt.step()
        """,
    "joined for the largest": """
        for n in range(6):
            opt.zero_grad()
            loss().backward()
            every = [p.grad.view(-1) for p in net.parameters()]
            print(torch.cat(every).abs().max())  #! needless-copy torch.cat(every) (note)
            opt.step()
        """,
}

RIGHT = {
    "the next pass adds to them": """
        for n in range(6):
            opt.zero_grad()
            loss(slice(0, 32)).backward()
            first = [p.grad.clone() for p in net.parameters()]
            loss(slice(32, 64)).backward()
            print(sum((p.grad - a).norm() for p, a in zip(net.parameters(), first)))
            opt.step()
        """,
    "they are cleared in place": """
        before = None
        for n in range(6):
            opt.zero_grad(set_to_none=False)
            loss().backward()
            grads = [p.grad.clone() for p in net.parameters()]
            if before is not None:
                print(sum((a * b).sum() for a, b in zip(grads, before)))
            before = grads
            opt.step()
        """,
    "they are clipped, and compared with what they were": """
        for n in range(6):
            opt.zero_grad()
            loss().backward()
            raw = [p.grad.clone() for p in net.parameters()]
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            print(sum((p.grad - a).norm() for p, a in zip(net.parameters(), raw)))
            opt.step()
        """,
    "a second clearing keeps what another parameter has": """
        for n in range(6):
            net[0].zero_grad(set_to_none=True)
            loss().backward()
            kept = [p.grad.clone() for p in net.parameters()]
            net[0].zero_grad(set_to_none=True)
            loss().backward()
            print(sum(one.sum() for one in kept))
            opt.step()
            opt.zero_grad()
        """,
    "joined for a norm": """
        for n in range(6):
            opt.zero_grad()
            loss().backward()
            flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
            print(torch.isfinite(flat).all(), flat.norm())
            opt.step()
        """,
    "joined for which of all is the largest": """
        for n in range(6):
            opt.zero_grad()
            loss().backward()
            flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
            print(flat.abs().argmax(), flat.abs().max())
            opt.step()
        """,
    "a mask of all is taken out": """
        for n in range(6):
            opt.zero_grad()
            loss().backward()
            bad = torch.cat([p.grad.reshape(-1) for p in net.parameters()]).isnan()
            print(bad.any(), bad.numpy().sum())
            opt.step()
        """,
    "the largest of each column": """
        rows = [torch.randn(64, 512) for _ in range(4)]
        for n in range(6):
            print(torch.cat(rows).amax(0).sum())
        """,
    "many small ones, of which each call would cost more": """
        few = [torch.randn(30) for _ in range(200)]
        for n in range(6):
            print(torch.cat(few).isfinite().all())
        """,
    "the largest, with a gradient": """
        parts = [torch.randn(64, 512, requires_grad=True) for _ in range(4)]
        for n in range(6):
            torch.cat([one.flatten() for one in parts]).abs().max().backward()
        """,
}


@pytest.mark.parametrize("name", NEEDLESS)
def test_needless(name, tmp_path):
    check_program(START + NEEDLESS[name].replace("\n        ", "\n"), tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_right(name, tmp_path):
    recording = record_program(START + RIGHT[name].replace("\n        ", "\n"), tmp_path)
    assert recording.error is None
    told = [f"{one.slug} {one.site.line} {one.message}" for one in recording.findings]
    assert not [one for one in told if one.startswith("needless-copy")]
