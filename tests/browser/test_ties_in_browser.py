"""The drawn ties and the source beside them, in a real browser, wide and narrow."""

from __future__ import annotations

import pytest
from test_page_in_browser import css, pytestmark, requests, shown  # noqa: F401

from warm import tether

PROGRAM = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(14))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            if number == 9:
                x = x.detach()
            x = layer(x).relu()
        return self.head(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters())
best = net.state_dict()
losses = []
for _ in range(5):
    loss = net(torch.ones(4, 8)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)
net.load_state_dict(best)
"""


@pytest.fixture(scope="module")
def tied(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tied")
    (folder / "train.py").write_text(PROGRAM)
    done = tether("run", "-q", "--html", "r.html", "train.py", folder=folder)
    assert done.returncode == 0, done.stderr
    return (folder / "r.html").as_uri()


@pytest.fixture
def open_page(driver, tied):
    """Opens the page at a width, dark or light; at the end nothing was logged or fetched."""

    def opened(width: int = 1400, scheme: str = "light"):
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get("about:blank")
        driver.get_log("performance")
        driver.get(tied)
        return driver

    yield opened
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert driver.get_log("browser") == []
    assert all(url.startswith(("file:", "about:")) for url in requests(driver))


def node(browser, words):
    found = browser.find_elements("css selector", "#graph a.node")
    return next(one for one in found if words in one.text)


def test_the_cut_is_drawn_between_what_lost_its_gradient_and_what_did_not(open_page):
    browser = open_page()
    tops = {
        words: node(browser, words).rect["y"]
        for words in ("layers.[0-8]", "detach", "layers.[9-13]", "loss.backward")
    }
    assert sorted(tops, key=tops.get) == list(tops)
    assert shown(browser, "#graph .dead.w") == 2
    assert shown(browser, "#graph .live") == 2
    assert "w" in node(browser, "layers.[0-8]").get_attribute("class").split()
    assert "w" not in node(browser, "head").get_attribute("class").split()
    assert shown(browser, "#graph .tie.w") >= 2  # best, losses


def test_a_node_leads_to_its_line_and_opens_the_finding(open_page):
    browser = open_page()
    cut = css(browser, "details.v[data-s=gradient-cut]")
    browser.execute_script("for (const v of document.querySelectorAll('details.v')) v.open = false")
    node(browser, "detach").click()
    assert browser.current_url.endswith("#s0-14")
    assert css(browser, "#s0-14 details.m ol").is_displayed()
    assert cut.get_attribute("open")
    assert "off" in node(browser, "losses").get_attribute("class").split()


def test_the_drawing_moves_and_grows_by_mouse_and_keyboard(open_page):
    browser = open_page()
    box = "return document.getElementById('graph').getAttribute('viewBox')"
    home = browser.execute_script(box)
    css(browser, "#tools button[data-z='1.25']").click()
    near = browser.execute_script(box)
    assert float(near.split()[2]) == pytest.approx(float(home.split()[2]) / 1.25)
    node(browser, "head").send_keys("\ue015")  # arrow down
    assert float(browser.execute_script(box).split()[1]) > float(near.split()[1])
    node(browser, "head").send_keys("0")
    assert browser.execute_script(box).split() == [f"{float(n):g}" for n in home.split()]
    browser.execute_script(
        "const g = document.getElementById('graph');"
        "const at = (type, x, y) => g.dispatchEvent(new PointerEvent(type,"
        " {clientX: x, clientY: y, bubbles: true}));"
        "at('pointerdown', 900, 300); at('pointermove', 940, 330); at('pointerup', 940, 330)"
    )
    assert float(browser.execute_script(box).split()[0]) < float(home.split()[0])


def test_colour_is_only_where_a_finding_speaks(open_page):
    browser = open_page()
    coloured = browser.execute_script(
        "return [...document.querySelectorAll('.l')].filter((l) => l.querySelector('.g.w,.g.e,.g.o'))"
        ".map((l) => l.id)"
    )
    assert "s0-14" in coloured
    assert "s0-15" not in coloured, "relu in the forward pass is healthy"
    barred = browser.execute_script("return document.querySelectorAll('.l.x').length")
    assert len(coloured) <= barred < 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_the_code_has_the_width(open_page, scheme):
    browser = open_page(390, scheme)
    wide, code, first = browser.execute_script(
        "const c = document.querySelector('#s0-14 code').getBoundingClientRect();"
        "const p = document.querySelector('#s0-14').getBoundingClientRect();"
        "return [document.documentElement.scrollWidth, c.left - p.left, p.width]"
    )
    assert wide <= 390
    assert code < 60
    assert first > 300
    assert node(browser, "detach").is_displayed()
    assert css(browser, "#finding-1 .fix").is_displayed()


def test_a_table_is_sorted_and_its_numbers_are_links(open_page):
    browser = open_page()
    heads = browser.find_elements("css selector", "#tables table:first-of-type th[scope=col]")
    count = next(one for one in heads if one.text == "parameter" or one.text == "module")
    count.click()
    assert count.get_attribute("aria-sort") == "descending"
    link = css(browser, "#tables td a[href^='#finding-']")
    link.click()
    assert "#finding-" in browser.current_url


def test_the_keys_are_told_and_the_whole_nav_is_one_line(open_page):
    browser = open_page()
    css(browser, "body").send_keys("?")
    assert css(browser, "#keys").is_displayed()
    css(browser, "#keys button").click()
    assert not css(browser, "#keys").is_displayed()
    assert css(browser, "nav").rect["height"] < 50


def test_each_finding_fits_a_screen_with_its_repair(open_page):
    browser = open_page()
    for one in browser.find_elements("css selector", "details.v"):
        assert one.rect["height"] < 700
        fix = one.find_element("css selector", ".fix")
        assert fix.rect["y"] + fix.rect["height"] - one.rect["y"] < 500


def test_the_slider_shows_a_line_of_a_step_and_finds_the_write(open_page):
    browser = open_page()
    slide = (
        "const w = document.getElementById('when'); w.value = arguments[0];"
        "w.dispatchEvent(new Event('input'))"
    )
    browser.execute_script(slide, 0)
    assert css(browser, "#then").text.startswith("step 1 of 5, line ")
    assert shown(browser, ".l.then") == 1
    css(browser, "#act").click()
    told = css(browser, "#then").text
    assert "optimizer.step()" in told
    assert "step() writes what best (" in told
    assert css(browser, ".l.then code").text == "    optimizer.step()"
    css(browser, "#when").send_keys("\ue010")  # End: the whole run again
    assert css(browser, "#then").text.startswith("the whole run")
    assert shown(browser, ".l.then") == 0


def test_a_name_clicked_tells_the_lines_of_its_memory(open_page):
    browser = open_page()
    browser.execute_script("document.querySelector('#s0-14').scrollIntoView({block: 'center'})")
    css(browser, "#s0-14 i[data-g]").click()
    assert css(browser, "#why").is_displayed()
    told = css(browser, "#why ol").text
    assert "x = x.detach()" in told
    assert "finding #" in css(browser, "#why").text
    css(browser, "body").send_keys("\ue00c")  # Escape
    assert not css(browser, "#why").is_displayed()
