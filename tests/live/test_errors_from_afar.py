"""An error is told with the lines that led to it, however far from the call that PyTorch refused.

The line that a program names with ``#!`` has to be among those that the finding shows.
"""

import pytest

from programs import record_program

PROGRAMS = {
    "a state that a module keeps is carried into the next pass": (
        """
        import torch
        from torch import nn
        class Tracker(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell, self.memory = nn.GRUCell(3, 4), None
            def forward(self, x):
                state = self.cell(x, self.memory)
                self.memory = state  #!
                return state
        tracker = Tracker()
        optimizer = torch.optim.SGD(tracker.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            tracker(torch.randn(2, 3)).sum().backward()
            optimizer.step()
        """,
        "tracker.memory",
    ),
    "an entry of a dictionary is carried": (
        """
        import torch
        from torch import nn
        class Agent:
            def __init__(self):
                self.net, self.carry = nn.Linear(3, 3), {}
            def act(self, who, x):
                known = self.carry.get(who, torch.zeros(3))
                out = torch.tanh(self.net(x) + known)
                self.carry[who] = out  #!
                return out
        agent = Agent()
        for _ in range(3):
            agent.act("left", torch.randn(3)).sum().backward()
        """,
        "agent.carry['left']",
    ),
    "a module that is copied keeps what its forward computed": (
        """
        import copy, torch
        from torch import nn
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin, self.logits = nn.Linear(3, 2), None
            def forward(self, x):
                scores = self.lin(x)
                self.logits = scores  #!
                return scores.softmax(-1)
        def best_of(model):
            return copy.deepcopy(model)
        def fit():
            model = nn.Sequential(nn.Linear(3, 3), Head())
            model(torch.randn(2, 3)).sum().backward()
            return best_of(model)
        fit()
        """,
        "model.1.logits",
    ),
    "features made in inference mode, shown by a view": (
        """
        import torch
        from torch import nn
        def features(body, rows):
            with torch.inference_mode():
                return torch.cat([body(one) for one in rows.split(4)])  #!
        kept = features(nn.Linear(3, 5), torch.randn(8, 3))
        probe = nn.Linear(5, 1)
        def step(start):
            return probe(kept[start : start + 2]).sum()
        step(0).backward()
        """,
        "",
    ),
    "a function that is decorated makes them": (
        """
        import torch
        from torch import nn
        @torch.inference_mode()  #!
        def embed(table, ids):
            return table(ids)
        rows = embed(nn.Embedding(6, 4), torch.arange(6))
        nn.Linear(4, 2)(rows.view(2, 12)[:, :4]).sum().backward()
        """,
        "",
    ),
    "a weight that two modules share comes into two groups": (
        """
        import torch
        from torch import nn
        class Speller(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
                self.out.weight = self.table.weight  #!
                self.mix = nn.Linear(4, 4)
        def optimizer_of(model):
            fast, slow = [*model.out.parameters()], [*model.table.parameters()]
            return torch.optim.Adam([
                {"params": slow + [*model.mix.parameters()]}, {"params": fast, "lr": 0.1},
            ])
        speller = Speller()
        optimizer_of(speller)
        """,
        "",
    ),
    "values that were computed by a helper are to be trained": (
        """
        import torch
        def positive(raw):
            return torch.nn.functional.softplus(raw)
        def start(raw):
            scales = [positive(one) for one in raw]  #!
            return torch.optim.SGD(scales, 0.1)
        start([torch.zeros(2, requires_grad=True)])
        """,
        "scales[0]",
    ),
    "the weights that are asked for went into no loss": (
        """
        import torch
        from torch import nn
        net, x = nn.Linear(3, 1), torch.randn(4, 3)
        fast = [one * 1 for one in net.parameters()]
        def inner(weights):
            loss = net(x).pow(2).mean()  #!
            return torch.autograd.grad(loss, weights)
        inner(fast)
        """,
        "fast[0]",
    ),
    "a Function whose backward gives its gradient once": (
        """
        import torch
        from torch.autograd.function import once_differentiable
        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3
            @staticmethod
            @once_differentiable
            def backward(ctx, grad):
                return 3 * ctx.saved_tensors[0] ** 2 * grad
        class Field(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(1))
            def forward(self, x):
                return Cube.apply(x * self.scale)  #!
        field, x = Field(), torch.randn(5, requires_grad=True)
        (slope,) = torch.autograd.grad(field(x).tanh().sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
        """,
        "",
    ),
    "patches that were made while gradients were off get a learned value": (
        """
        import torch
        @torch.no_grad()  #!
        def patches(rows):
            return rows.view(4, 2)
        fill = torch.nn.Parameter(torch.zeros(2))
        def corrupt(shown):
            shown[0] = fill
            return shown
        corrupt(patches(torch.randn(8))).sum().backward()
        """,
        "shown",
    ),
    "a weight that two modules share is given twice to a call of the module": (
        """
        import torch
        from torch import nn
        from torch.func import functional_call
        class Speller(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
                self.out.weight = self.table.weight  #!
            def forward(self, ids):
                return self.out(self.table(ids))
        speller = Speller()
        moved = {name: one + torch.randn_like(one) for name, one in speller.state_dict().items()}
        functional_call(speller, moved, (torch.arange(3),))
        """,
        "",
    ),
    "rows that are one place, which a state is loaded into": (
        """
        import io
        import torch
        def even(size):
            layer = torch.nn.Linear(size, size, bias=False)
            layer.weight.data = torch.full((1, size), 1 / size).expand(size, -1)  #!
            return layer.requires_grad_(False)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), even(4), torch.nn.Linear(4, 1))
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        model.load_state_dict(torch.load(file))
        """,
        "model.1.weight",
    ),
    "a second derivative of a call that has none": (
        """
        import torch
        from torch.nn.functional import scaled_dot_product_attention
        def slope_of(x):
            score = scaled_dot_product_attention(x, x, x).pow(2).sum()
            (slope,) = torch.autograd.grad(score, x, create_graph=True)  #!
            return slope
        x = torch.randn(1, 2, 8, 16, requires_grad=True)
        slope_of(x).pow(2).sum().backward()
        """,
        "",
    ),
}


@pytest.mark.parametrize("title", PROGRAMS)
def test_the_line_that_led_to_an_error_is_shown(title, tmp_path):
    text, subject = PROGRAMS[title]
    recording = record_program(text, tmp_path)
    assert recording.error is not None
    (found,) = [one for one in recording.findings if one.slug == "tie-error"]
    shown = {step.site.line for step in found.evidence} | {found.site.line}
    lines = recording.trace.sources[found.site.file].splitlines()
    wanted = next(number for number, line in enumerate(lines, 1) if "#!" in line)
    assert wanted in shown
    unsaid = "not have been used" in str(recording.error) and "at index" not in str(recording.error)
    if subject and not unsaid:  # PyTorch 2.11 and earlier: it does not say which one
        assert found.subject == subject


def test_what_the_message_does_not_speak_of_is_not_told(tmp_path):
    recording = record_program(PROGRAMS["features made in inference mode, shown by a view"][0],
                               tmp_path)  # fmt: skip
    (found,) = [one for one in recording.findings if one.slug == "tie-error"]
    assert not [one for one in found.evidence if "probe.weight" in str(one.text)]
    assert "is an inference tensor" in str(found.message)


def test_of_a_pass_that_failed_no_cut_is_told(tmp_path):
    program = PROGRAMS["a Function whose backward gives its gradient once"][0]
    assert {one.slug for one in record_program(program, tmp_path).findings} == {"tie-error"}


def test_the_group_that_has_what_no_other_has_is_not_named(tmp_path):
    program = PROGRAMS["a weight that two modules share comes into two groups"][0]
    recording = record_program(program.replace("= slow + ", "= ").replace("slow + ", ""), tmp_path)
    assert recording.error is None
    assert recording.trace.given_twice == []


def test_a_parameter_of_an_iterator_that_comes_into_two_groups_is_not_guessed(tmp_path):
    recording = record_program(
        """
        import torch
        body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        net = torch.nn.Sequential(body, head)
        torch.optim.SGD([
            {"params": net.parameters()},
            {"params": head.parameters(), "lr": 0.2},
        ], 0.1)
        """,
        tmp_path,
    )
    (found,) = [one for one in recording.findings if one.slug == "tie-error"]
    assert found.tensors == ()
    assert "A parameter would be in the optimizer twice" in found.message


def test_of_two_scores_that_go_into_a_pass_the_one_that_came_over_the_step_is_named(tmp_path):
    text = """
        import torch
        from torch import nn
        maker, judge = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 4)), nn.Linear(4, 1)
        optimizer, x = torch.optim.Adam(maker.parameters()), torch.randn(5, 3)
        of_made = judge(maker(x))
        of_real = judge(torch.randn(5, 4))
        of_made.mean().backward(retain_graph=True)
        optimizer.step()
        (of_real.mean() - of_made.mean() + judge(torch.randn(5, 4)).square().mean()).backward()
        """
    recording = record_program(text, tmp_path)
    assert recording.error is not None
    (found,) = [one for one in recording.findings if one.slug == "saved-overwritten"]
    assert "`of_made` still carries the graph from before that step" in found.message
