"""A program of twelve layers and 300 steps gives a page that is small."""

from __future__ import annotations

import pytest
from test_page_in_browser import css, pytestmark  # noqa: F401

from warm import tether

PROGRAM = """\
import torch
from torch import nn
layers = nn.ModuleList(
    nn.ModuleList([nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)]) for _ in range(12)
)
head = nn.Linear(16, 4)
optimizer = torch.optim.AdamW([*layers.parameters(), *head.parameters()], lr=1e-3)
losses = []
for step in range(300):
    x = torch.randn(8, 16)
    for number, (norm, up, down) in enumerate(layers):
        x = x + down(torch.relu(up(norm(x))))
        if number == 5:
            x = x.detach()
    loss = head(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("load")
    (folder / "train.py").write_text(PROGRAM)
    done = tether("run", "-q", "--html", "report.html", "train.py", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


def test_it_is_small(page):
    assert page.stat().st_size < 300_000


def test_the_first_finding_is_the_first_thing_on_it(page, driver):
    driver.get(page.as_uri())
    first = css(driver, "details.v")
    assert "layers.0" in first.text or "layers.[0" in first.text
    assert "x.detach()" in first.text
    assert first.location["y"] < 400
    assert driver.get_log("browser") == []
