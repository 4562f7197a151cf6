"""Calls that compute, and gave what was there already; and look-alikes that did not, or may not.

The answer stands on the line that computes, with a part of the reason where it is not "no". What a
call gives is looked at from 64 KiB on.
"""

import textwrap

import pytest

from programs import record_program
from test_needless_spellings import check_needs

START = """
import copy, torch, numpy as np
torch.manual_seed(0)
x, w = torch.randn(200, 100), torch.ones(100, 3)
"""

COMPUTED = {
    "a mask of ones": "y = x * torch.ones(200, 1)  #? no\nprint((y @ w).sum())",
    "a mask of ones on the left": "y = torch.ones(200, 1) * x  #? no\nprint((y @ w).sum())",
    "a mask that is not all ones": "y = x * (torch.arange(200) < 199)[:, None]\nprint((y @ w).sum())",
    "a mask that is all ones at first": """
        for n in (200, 150):
            y = x * (torch.arange(200) < n)[:, None]  #? unknown not all of its runs
            print((y @ w).sum())
        """,
    "a factor of one": "y = x / 1.0  #? no\nprint((y @ w).sum())",
    "a factor of two": "y = x * 2.0\nprint((y @ w).sum())",
    "zeros to begin a sum with": "y = torch.zeros(200, 100) + x  #? no\nprint((y @ w).sum())",
    "a sum that goes on in place": """
        y = torch.zeros(200, 100) + x  #? yes writes
        y += 1
        print((y @ w).sum(), x.sum())
        """,
    "nothing is masked": """
        y = x.masked_fill(torch.zeros(200, 1, dtype=torch.bool), 0.0)  #? no
        print((y @ w).sum())
        """,
    "what an adapter adds, which begins with zeros": """
        base, down = torch.nn.Linear(100, 100), torch.nn.Linear(100, 4)
        up = torch.nn.Parameter(torch.zeros(100, 4))
        with torch.no_grad():
            y = base(x) + down(x) @ up.t()  #? unknown computed of parameters
        print((y @ w).sum())
        """,
    "a guard that met nothing": "y = x.clamp(-99, 99)  #? unknown hangs on the values\nprint((y @ w).sum())",
    "a mask of the values themselves": """
        y = x * (x == x)  #? unknown hangs on the values
        print((y @ w).sum())
        """,
    "a mask of what goes beyond a bound, where nothing did": """
        limits = torch.rand(200, 1)
        for n in range(3):
            far = (limits > 3).float()
            y = x * (1 - far)  #? unknown hangs on a comparison
            print((y @ w).sum())
        """,
    "the same call twice": "y = x.relu()\nz = y.relu()  #? no\nprint((z @ w).sum())",
    "turned round twice": "y = x.flip(0)\nz = y.flip(0)  #? no\nprint((z @ w).sum(), y[0])",
    "turned round along another dimension": "y = x.flip(0)\nz = y.flip(1)\nprint((z @ w).sum(), y[0])",
    "sorted by length, and back": """
        order = torch.randperm(200)
        y = x[order]
        z = y[order.argsort()]  #? no
        print((z @ w).sum())
        """,
    "sorted, changed, and back": """
        order = torch.randperm(200)
        y = x[order] + 1
        z = y[order.argsort()]
        print((z @ w).sum())
        """,
    "bytes scaled, and back": """
        image = torch.randint(0, 256, (300, 300), dtype=torch.uint8)
        shown = image / 255
        whole = (shown * 255).round()  #? unknown hangs on the values
        back = whole.to(torch.uint8)  #? no
        print(back.sum(), shown.sum())
        """,
    "what it was made of has gone": """
        image = torch.randint(0, 256, (300, 300), dtype=torch.uint8)
        image = image / 255
        image = (image * 255).round().to(torch.uint8)
        print(image.sum())
        """,
    "a model that learned to give back what it is given": """
        table = torch.eye(300)
        code = torch.randint(0, 300, (20_000,))
        back = (table[code] @ table).argmax(1)
        print(back.sum(), code.sum())
        """,
    "an equal tensor that it is not made of": """
        one, other = (torch.arange(20_000.) for _ in range(2))
        print(one.sum(), other.sum())
        """,
    "a list that is all that is left of a tensor": """
        def asked(n):
            return (x * n + n).tolist()
        for n in range(3):
            y = torch.tensor(asked(n))  #? no
            print((y @ w).sum())
        """,
    "a list that is changed before it comes back": """
        def asked(n):
            return (x * n + n).tolist()
        for n in range(3):
            numbers = asked(n)
            numbers[3][4] = 0.5
            y = torch.tensor(numbers)
            print((y @ w).sum())
        """,
    "a factor of one in a graph": """
        v = torch.randn(200, 100, requires_grad=True)
        y = v * 1.0  #? no
        (y @ w).sum().backward()
        """,
    "a mask of ones over zeros in a graph: the gradient of those is unknown": """
        v = torch.randn(200, 100, requires_grad=True)
        y = v.relu()
        z = y * torch.ones(200, 1)
        (z @ w).sum().backward()
        """,
    "a factor that is one, and learned": """
        scale = torch.ones(1, requires_grad=True)
        y = x * scale  #? yes gets a gradient
        (y @ w).sum().backward()
        """,
    "division that rounds, in a graph": """
        v = torch.arange(20_000.).view(200, 100).requires_grad_()
        y = torch.div(v, 1, rounding_mode="floor")  #? unknown another gradient
        (y @ w).sum().backward()
        """,
    "turned round twice in a graph": """
        v = torch.randn(200, 100, requires_grad=True)
        y = v.flip(0)
        z = y.flip(0)
        (z @ w).sum().backward()
        """,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPUTED)
def test_what_computes_may_give_what_is_there(name, tmp_path):
    turns = textwrap.indent(textwrap.dedent(COMPUTED[name]), "    ")
    check_needs(f"{START}\nfor turn in range(2):\n{turns}", tmp_path)


def test_one_run_says_little(tmp_path):
    check_needs(START + "y = x * 1.0  #? unknown ran once\nprint((y @ w).sum())", tmp_path)


def test_it_is_said_which_tensor_is_there_already(tmp_path):
    text = "for n in range(2):\n    y = torch.lerp(torch.rand_like(x), x, 1.0)\n    print((y @ w).sum())"
    (found,) = record_program(START + text, tmp_path).findings
    assert found.slug == "needless-copy"
    assert "is `x` over again, element by element" in found.message
