"""Copies that are made before it is asked whether they are kept, and copies kept in case."""

import pytest

from programs import check_program, says

FOUND = {
    "the best weights, offered to what keeps them": """
        import copy
        import torch

        class Best:
            def __init__(self):
                self.loss, self.state = 1e9, None

            def offer(self, loss, state):
                if loss < self.loss:
                    self.loss, self.state = loss, state

        def train(net, best, losses):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            for value in losses:
                optimizer.zero_grad()
                net(torch.ones(4, 200)).square().mean().backward()
                optimizer.step()
                best.offer(value, copy.deepcopy(net.state_dict()))  #! slow-copy net.state_dict() (note)

        net, best = torch.nn.Linear(200, 100), Best()
        train(net, best, [3.0, 2.0, 1.0] + [5.0] * 25)
        net.load_state_dict(best.state)
        print(net(torch.ones(1, 200)).sum().item())
    """,
    "parameters cloned one by one, by a function that may hand them on": """
        import torch

        def candidate(params, score, least):
            values = [p.detach().clone() for p in params]  #! slow-copy p.detach() (note)
            return values if score > least else None

        net, kept, least = torch.nn.Sequential(torch.nn.Linear(200, 100), torch.nn.Linear(100, 9)), None, 0.5
        for step in range(30):
            with torch.no_grad():
                for p in net.parameters():
                    p.add_(0.01 * torch.randn_like(p))
            found = candidate(list(net.parameters()), step / 20 if step < 14 else 0.1, least)
            if found is not None:
                kept = found
        print(sum(p.sum().item() for p in kept))
    """,
    "a position that is seldom accepted": """
        import torch

        class Walk:
            def __init__(self):
                self.now, self.top, self.at = torch.zeros(40_000), -1e9, None

            def look(self, score):
                place = self.now.clone()  #! slow-copy place (note)
                if score <= self.top:
                    return False
                self.top, self.at = score, place
                return True

        walk = Walk()
        for step in range(40):
            walk.now += torch.rand(40_000)
            walk.look(-abs(step - 6.0))
        print(walk.at.mean().item())
    """,
    "a variable that the question behind it hands on": """
        import copy
        import torch

        net, best, top = torch.nn.Linear(200, 100), None, torch.tensor(-1.0)
        for step in range(40):
            with torch.no_grad():
                net.weight.add_(torch.randn_like(net.weight))
                score = -torch.tensor(abs(step - 4.0))
            snapshot = copy.deepcopy(net.state_dict())  #! slow-copy snapshot (note)
            if best is None or score.item() > top.item():
                best, top = snapshot, score
        net.load_state_dict(best)
        print(net.weight.sum().item())
    """,
}

RIGHT = {
    "it asks first": """
        import copy
        import torch

        net, best = torch.nn.Linear(200, 100), None
        for step in range(30):
            with torch.no_grad():
                net.weight.add_(0.1)
            if step in (3, 9, 20):
                best = copy.deepcopy(net.state_dict())
        net.load_state_dict(best)
        print(net.weight.sum().item())
    """,
    "weights to go back to where a step went wrong": """
        import copy
        import torch

        def attempt(net, step):
            backup = copy.deepcopy(net.state_dict())
            with torch.no_grad():
                for p in net.parameters():
                    p.add_(torch.randn_like(p))
            if step in (4, 11):
                net.load_state_dict(backup)

        net = torch.nn.Linear(200, 100)
        for step in range(30):
            attempt(net, step)
        print(net.weight.sum().item())
    """,
    "the last good weights, each replaced by newer ones": """
        import copy
        import torch

        net = torch.nn.Linear(200, 100)
        good = None
        for step in range(30):
            good = copy.deepcopy(net.state_dict())
            with torch.no_grad():
                net.weight.add_(torch.randn_like(net.weight))
        net.load_state_dict(good)
        print(net.weight.sum().item())
    """,
    "a variable that could be gone back to, and never is": """
        import copy
        import torch

        net, best = torch.nn.Linear(200, 100), None
        for step in range(30):
            before = copy.deepcopy(net.state_dict())
            if step in (3, 9):
                best = before
            with torch.no_grad():
                net.weight.add_(torch.randn_like(net.weight))
            if not net.weight.isfinite().all():
                net.load_state_dict(before)
        net.load_state_dict(best)
        print(net.weight.sum().item())
    """,
    "each is better than the one before": """
        import copy
        import torch

        net, best, top = torch.nn.Linear(200, 100), None, -1.0
        for step in range(30):
            with torch.no_grad():
                net.weight.add_(torch.randn_like(net.weight))
            snapshot = copy.deepcopy(net.state_dict())
            if step > top:
                best, top = snapshot, step
        net.load_state_dict(best)
        print(net.weight.sum().item())
    """,
    "two places keep it, one of them in case": """
        import copy
        import torch

        net, best, good, top = torch.nn.Linear(200, 100), None, None, -99.0
        for step in range(30):
            with torch.no_grad():
                net.weight.add_(torch.randn_like(net.weight))
            if good is not None and not net.weight.isfinite().all():
                net.load_state_dict(good)
            snapshot = copy.deepcopy(net.state_dict())
            if step < 29:
                good = snapshot
                if -abs(step - 4.0) > top:
                    best, top = snapshot, -abs(step - 4.0)
        net.load_state_dict(best)
        print(net.weight.sum().item())
    """,
    "the question trains on": """
        import copy
        import torch

        def trained(net):
            with torch.no_grad():
                net.weight.add_(torch.randn_like(net.weight))
            return net.weight.mean().item()

        net, good = torch.nn.Linear(200, 100), None
        for step in range(30):
            before = copy.deepcopy(net.state_dict())
            if trained(net) > 0.0 and step in (2, 7) or good is None:
                good = before
        net.load_state_dict(good)
        print(net.weight.sum().item())
    """,
    "each copy is evaluated": """
        import copy
        import torch

        def tried(net, step):
            trial = copy.deepcopy(net)
            value = trial(torch.ones(1, 200)).sum().item()
            return trial if step == 5 else value

        net, kept = torch.nn.Linear(200, 100), None
        for step in range(30):
            with torch.no_grad():
                net.weight.add_(0.1)
            found = tried(net, step)
            kept = found if step == 5 else kept
        print(kept.weight.sum().item())
    """,
    "the source is written before it is known": """
        import torch

        def relaxed(u, step):
            before = u.clone()
            if step in (3, 8):
                u.mul_(2.0)
            return before if step in (3, 8) else None

        u, kept = torch.rand(40_000), []
        for step in range(30):
            u = u * 0.9
            found = relaxed(u, step)
            if found is not None:
                kept.append(found)
        print(sum(one.sum().item() for one in kept))
    """,
    "most of them are kept": """
        import copy
        import torch

        def sample(net, step):
            state = copy.deepcopy(net.state_dict())
            return state if step % 4 else None

        net, kept = torch.nn.Linear(100, 100), []
        for step in range(40):
            with torch.no_grad():
                net.weight.add_(torch.randn_like(net.weight))
            found = sample(net, step)
            if found:
                kept.append(found)
        print(sum(one["weight"] for one in kept).sum().item())
    """,
    "each is saved": """
        import copy
        import io
        import torch

        def saved(net):
            state = copy.deepcopy(net.state_dict())
            file = io.BytesIO()
            torch.save(state, file)
            return file

        net = torch.nn.Linear(200, 100)
        for step in range(12):
            with torch.no_grad():
                net.weight.add_(0.1)
            file = saved(net)
        print(len(file.getvalue()))
    """,
    "an array of it is asked": """
        import torch

        def looked(w):
            values = w.clone()
            return values.numpy().max()

        w, top = torch.rand(40_000), 0.0
        for step in range(30):
            w += 0.01
            top = max(top, float(looked(w)))
        print(top)
    """,
}


@pytest.mark.parametrize("name", FOUND)
def test_few_of_the_copies_are_kept(name, tmp_path):
    recording = check_program(FOUND[name], tmp_path)
    assert says(recording, "the copy goes before anything")


@pytest.mark.parametrize("name", RIGHT)
def test_each_copy_may_be_wanted(name, tmp_path):
    recording = check_program(RIGHT[name], tmp_path)
    assert not says(recording, "the copy goes before anything")
