"""The helper that runs programs can fail, in each way it should."""

import pytest

from programs import check_program

GOOD = """\
import torch
w = torch.ones(3, requires_grad=True)
b = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
(w.detach() * b).sum().backward()  #! gradient-cut w
opt.step()
"""


def test_a_right_expectation_holds(tmp_path):
    check_program(GOOD, tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        GOOD.replace("gradient-cut w", "gradient-cut b"),
        GOOD.replace("gradient-cut w", "gradient-zero w"),
        GOOD.replace("  #! gradient-cut w", ""),
        GOOD.replace("  #! gradient-cut w", "").replace(
            "opt.step()", "opt.step()  #! gradient-cut w"
        ),
        GOOD.replace("w.detach()", "w"),
    ],
)
def test_a_wrong_expectation_fails(wrong, tmp_path):
    with pytest.raises(AssertionError):
        check_program(wrong, tmp_path)
