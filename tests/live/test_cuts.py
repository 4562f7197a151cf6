"""The list of cuts: where values that were computed from parameters left the graph for a loss."""

import textwrap

import pytest

from programs import record_program
from tether.analysis.gradients.cuts import Cuts
from tether.report.document.text import render

START = """
import numpy as np, torch, torch.nn as nn
torch.manual_seed(0)
enc, head = nn.Linear(4, 3), nn.Linear(3, 1)
opt = torch.optim.SGD([*enc.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(8, 4)
def train(loss):
    opt.zero_grad(); loss.backward(); opt.step()
"""

# Each cut stands on a line that ends with `#! names`, those of no line are not listed.
LISTED = {
    "a detach beside a way that stays open": """
        for _ in range(3):
            h = enc(x)
            train(head(h).sum() + (h.detach() * head(h)).sum())  #! enc.weight enc.bias
        """,
    "a sample that a library draws without gradients": """
        q = torch.distributions.OneHotCategorical(logits=enc(x))
        z = q.sample()  #! enc.weight enc.bias
        train(head(z).sum() + q.entropy().sum())
        """,
    "a sample of what a library views without gradients": """
        q = torch.distributions.Normal(enc(x), 1.0)
        z = q.sample()  #! enc.weight enc.bias
        train(head(z).sum() + q.mean.sum())
        """,
    "statistics that an evaluation uses": """
        norm = nn.BatchNorm1d(3)
        with torch.no_grad():  #! enc.weight enc.bias
            norm(enc(x))
        norm.eval()
        train(head(norm(enc(x))).sum())
        """,
    "values of another parameter": """
        head.weight.data = enc.weight.mean(1, keepdim=True).T.data.contiguous()  #! enc.weight
        train(head(enc(x)).sum())
        """,
    "values that a Variable wraps, and something asks of that first": """
        for _ in range(3):
            wrapped = torch.autograd.Variable(enc(x).data)  #! enc.weight enc.bias
            assert isinstance(wrapped.data, torch.Tensor)
            train(head(wrapped).sum())
            train(head(enc(x)).sum())
        """,
    "a view that is taken without gradients, and used with them": """
        h = enc(x)
        with torch.no_grad():  #! enc.weight enc.bias
            rows = h[:2]
        train((rows * head(h[2:4])).sum())
        """,
    "a view that is taken without gradients, and computed with": """
        h = enc(x)
        with torch.no_grad():  #! enc.weight enc.bias
            rows = h.view(4, -1).exp()
        train(head(h).sum() * rows.mean())
        """,
    "a block without gradients": """
        with torch.no_grad():  #! enc.weight enc.bias
            target = enc(x)
        train(((enc(x) - target - 1) ** 2).sum() + head(enc(x)).sum())
        """,
    "a block without gradients, and a library's block with them inside it": """
        with torch.no_grad():  #! enc.weight enc.bias
            draw = torch.distributions.Categorical(logits=enc(x)).sample()  # probs: made with gradients on
            target = enc(x)
        train(((enc(x) - target - 1) ** 2).sum() + head(enc(x)).sum() + draw.sum())
        """,
    "a hook that detaches": """
        kept = []
        enc.register_forward_hook(lambda module, given, out: kept.append(out.detach()))  #! enc.weight enc.bias
        train(head(enc(x)).sum() + head(kept[0]).sum())
        """,
    "a threshold that becomes a number": """
        p = torch.sigmoid(head(enc(x)))
        hard = (p > 0.5).float()  #! enc.weight enc.bias head.weight head.bias
        train((p - hard).pow(2).sum())
        """,
    "a number": """
        h = enc(x)
        scale = h.mean().item()  #! enc.weight enc.bias
        train((head(h) * scale).sum())
        """,
    "an element of a memory that was written with what was computed": """
        norms = torch.tensor([2.0, 1.0, 0.5])
        for _ in range(3):
            low = norms[1].item()  #! enc.weight enc.bias
            h = enc(x)
            norms[1] = h.min()
            train((head(h) * low).sum())
        """,
    "an attribute that one line's values come to": """
        class Gauge:
            level = 1.0
            def take(self, level):
                self.level = 0.5 * self.level + level
        gauge = Gauge()
        for _ in range(3):
            h = enc(x)
            train((head(h) * torch.tensor(gauge.level)).sum())
            gauge.take(h.max().item())  #! enc.weight enc.bias
        """,
}

NOT_LISTED = {
    "constants beside an element that was written with what was computed": """
        norms = torch.tensor([2.0, 1.0, 0.5])
        for _ in range(3):
            h, high = enc(x), norms[0].item()
            temper = norms[2:].clone()
            norms[1] = h.min()
            train((head(h) * high / temper.item()).sum())
        """,
    "another object's attribute of the same name": """
        class Gauge:
            level = 1.0
            def take(self, level):
                self.level = 0.5 * self.level + level
        shown, used = Gauge(), Gauge()
        def show():
            shown.take(enc(x).max().item())
        for number in range(3):
            show()
            train((head(enc(x)) * torch.tensor(used.level)).sum())
            used.take(x[number].max().item())
        """,
    "what no loss was computed from": """
        h = enc(x)
        print(h.detach().mean(), h.argmax(1))
        train(head(h).sum())
        """,
    "a class that a library draws and that chooses": """
        row = torch.distributions.Categorical(logits=enc(x)).sample()
        train(nn.Embedding(3, 3)(row).sum() + head(enc(x)).sum())
        """,
    "truths that choose": """
        h = enc(x)
        train(torch.where(h > 0, h, -h).sum() + head(h).sum())
        """,
    "the forward of a custom Function": """
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, h):
                return h * 2
            @staticmethod
            def backward(ctx, grad):
                return grad * 2
        train(head(Double.apply(enc(x))).sum())
        """,
    "what no optimizer trains": """
        frozen = nn.Linear(4, 3)
        frozen.requires_grad_(False)
        with torch.no_grad():
            target = frozen(x)
        train(((enc(x) - target) ** 2).sum() + head(enc(x)).sum())
        """,
    "a tensor of which only the shape or the type is asked": """
        h = enc(x)
        scale = torch.ones(1, 3).expand_as(h) * h.new_ones(8, 3) * torch.zeros_like(h).add(1)
        train(head(h * scale.view_as(h)).sum())
        """,
    "parameters that are moved to another type and back": """
        both = nn.Sequential(enc, head).to(torch.bfloat16).float()
        for _ in range(3):
            train(both(x).sum())
        """,
    "what batch norm keeps of a call without gradients, and does not use in training": """
        norm = nn.Sequential(enc, nn.BatchNorm1d(3), head)
        for _ in range(3):
            train(norm(x).sum())
            with torch.no_grad():
                print(norm(x).sum().item())
        """,
    "weights that are held within bounds, and frozen for one of two losses": """
        for _ in range(3):
            for one in head.parameters():
                one.data.clamp_(-0.1, 0.1)
            head.requires_grad_(True)
            train(head(x[:, :3]).sum())
            head.requires_grad_(False)
            train(head(enc(x)).sum())
        """,
    "the next step's values": """
        for _ in range(3):
            train(head(enc(x)).sum())
        """,
}


def listed(text, folder):
    """Return the lines that the list of a program's cuts names, each with the parameters."""
    found = record_program(text, folder).history.get(Cuts).found
    return {(one.site.line, " ".join(one.names)) for one in found}


@pytest.mark.parametrize("name", LISTED)
def test_a_cut_is_listed(name, tmp_path):
    text = START + textwrap.dedent(LISTED[name])
    marks = [(n, line.split("#!")) for n, line in enumerate(text.splitlines(), 1)]
    wanted = {(n, parts[1].strip()) for n, parts in marks if len(parts) > 1}
    assert listed(text, tmp_path) == wanted


@pytest.mark.parametrize("name", NOT_LISTED)
def test_nothing_else_is(name, tmp_path):
    assert listed(START + textwrap.dedent(NOT_LISTED[name]), tmp_path) == set()


def test_the_report_shows_those_that_no_finding_speaks_of(tmp_path):
    text = START + textwrap.dedent(LISTED["a detach beside a way that stays open"])
    report = render(record_program(text, tmp_path).document())
    assert "values that left the gradient graph and went into a loss" in report
    cut = START + "train(head(enc(x).detach()).sum())\n"
    report = render(record_program(cut, tmp_path).document())
    assert "gradient-cut" in report
    assert "values that left" not in report


COPIED = """
        import copy
        slow = copy.deepcopy(enc)
        for p in slow.parameters():
            p.requires_grad_(False)
        for _ in range(3):
            with torch.no_grad():
                goal = slow(x)
            loss = (head(enc(x)) - goal.sum()).pow(2).sum()
            train(loss)
"""


def test_a_copy_that_is_a_leaf_is_used_where_a_loss_takes_it_in(tmp_path):
    text = START + textwrap.dedent(COPIED)
    (cut,) = [
        one for one in record_program(text, tmp_path).history.get(Cuts).found
        if "deepcopy" in one.what
    ]  # fmt: skip
    used = text.splitlines()[cut.entered.line - 1].strip()
    assert used.startswith("loss = ")


def test_the_table_names_files_once_and_parameters_whole(tmp_path):
    text = START + textwrap.dedent(LISTED["a detach beside a way that stays open"])
    lines = render(record_program(text, tmp_path).document(), width=80).splitlines()
    first = lines.index("values that left the gradient graph and went into a loss") + 3
    assert lines[first].split()[:2] in (["line", "because"], ["line", "called"])
    assert lines[first + 1] == "program.py"
    assert "  enc (2)  " in lines[first + 2]


BLOCK = """
        for _ in range(3):
            with torch.no_grad():
                goal = head(enc(x))
            train((head(enc(x)) - goal - 1).pow(2).sum())
"""


def test_calls_of_one_block_are_one_row(tmp_path):
    recording = record_program(START + textwrap.dedent(BLOCK), tmp_path)
    report = render(recording.document(), width=200)
    assert report.count("ran with gradients switched off") == 1
    assert "(and 1 more call)" in report
    whole = render(recording.document(show_all=True), width=200)
    assert whole.count("ran with gradients switched off") == 2


FIRST_USED = """
old = nn.Linear(4, 3)
for _ in range(3):
    old.load_state_dict(enc.state_dict())
    with torch.no_grad():
        weights, target = old(x).softmax(1), old(x)
    h = enc(x)
    near = (h - target).square()
    far = head(near * weights)
    train(far.sum())
"""


def test_a_cut_is_first_used_where_the_first_of_its_values_comes_in(tmp_path):
    text = START + textwrap.dedent(FIRST_USED)
    found = record_program(text, tmp_path).history.get(Cuts).found
    (cut,) = [one for one in found if "state_dict" in one.what]
    assert text.splitlines()[cut.entered.line - 1].strip().startswith("near = ")
