"""The pages of diff, memory, bench and the rulebook are of the same make as the report."""

from __future__ import annotations

import json

import pytest
from test_page_in_browser import css, pytestmark, requests, shown, type_into  # noqa: F401

import warm
from tether.measure.cost import Bench, Cost
from tether.operations import RULES
from tether.report import bench, rulebook

PROGRAM = """\
import torch
w = torch.ones(3, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.SGD([w, b], lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    (w{cut} * b).sum().backward()
    optimizer.step()
"""
COSTS = Bench(
    tuple(
        Cost(way, "tensor", size, seconds * size, seconds * size, seconds * size, 9, 1)
        for way, seconds in (("x.clone()", 1e-9), ("torch.tensor(x)", 3e-9))
        for size in (4, 1024, 1 << 20)
    ),
    {4: 1e-9, 1024: 1e-7, 1 << 20: 1e-4},
    machine={"torch": "2.13.0"},
)
WORDS = {"bench": "torch.tensor", "rulebook": "numpy", "memory": "zeros", "diff": "w.detach"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")

    def tether(*arguments, inside=folder):
        done = warm.tether(*arguments, folder=inside)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode

    for name, cut in (("before", ""), ("after", ".detach()")):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(PROGRAM.format(cut=cut))
        tether("run", "-qo", f"../{name}.tether", "train.py", inside=folder / name)
    assert tether("diff", "--quiet", "--html", "diff.html", "before.tether", "after.tether") == 1
    tether("memory", "--html", "memory.html", "after/train.py")
    (folder / "bench.html").write_text(bench.to_html(COSTS))
    rows = [rulebook.Row(rule, "verified", 3) for rule in RULES]
    (folder / "rulebook.html").write_text(rulebook.to_html(rows))
    return folder


@pytest.fixture(params=WORDS)
def page(request, pages, driver):
    """One of the pages, open; afterwards no error was logged and nothing was asked of a net."""
    driver.get_log("performance")
    driver.get("about:blank")
    driver.get((pages / f"{request.param}.html").as_uri())
    yield driver, WORDS[request.param]
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert driver.get_log("browser") == []
    assert all(one.startswith(("file:", "about:", "data:")) for one in requests(driver))


def test_the_search_leaves_the_rows_and_parts_that_fit(page):
    browser, word = page
    rows = shown(browser, "tbody tr")
    type_into(browser, "#search", word)
    found = [one.text for one in browser.find_elements("css selector", "tbody tr") if one.text]
    assert 0 < len(found) < rows
    assert all(word in one.lower() for one in found)
    for part in browser.find_elements("css selector", "section.part"):
        assert (
            part.is_displayed() == (word in part.get_attribute("textContent").lower())
            or not part.text
        )
    assert css(browser, "#shown").text.endswith(f"{len(found)} rows")
    type_into(browser, "#search", "\ue00c")  # Escape
    assert shown(browser, "tbody tr") == rows
    assert shown(browser, "section.part") == len(browser.find_elements("css selector", ".part"))


def test_the_bar_leads_to_each_part(page):
    browser, _ = page
    links = browser.find_elements("css selector", "nav a, #contents a")
    assert links
    for link in links:
        target = link.get_attribute("href").partition("#")[2]
        assert len(browser.find_elements("css selector", f'[id="{target}"]')) == 1


def test_dark_light_keys_and_help(page):
    browser, _ = page
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = browser.execute_script(colour)
    type_into(browser, "body", "t")
    assert browser.execute_script(colour) != before
    type_into(browser, "body", "t")
    assert browser.execute_script(colour) == before
    type_into(browser, "body", "?")
    assert css(browser, "#keys").is_displayed()


def test_a_heading_sorts(page):
    browser, _ = page
    for table in browser.find_elements("css selector", "table")[:3]:
        heading = [one for one in table.find_elements("css selector", "thead th") if one.text][-1]
        number = heading.get_property("cellIndex")
        cells = (
            "return [...arguments[0].tBodies[0].rows].filter((r) => r.cells.length > 1)"
            f".map((r) => r.cells[{number}].textContent)"
        )
        before = browser.execute_script(cells, table)
        heading.click()
        heading.click()
        assert sorted(browser.execute_script(cells, table)) == sorted(before)
        assert heading.get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_it_scrolls_in_one_direction_only(page, width):
    browser, _ = page
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wide, room = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= room <= width


def test_a_rule_has_an_address(pages, driver):
    driver.get((pages / "rulebook.html").as_uri() + "#detach")
    assert "x.detach()" in css(driver, "tr:target").text
    top = driver.execute_script(
        "return document.querySelector('tr:target').getBoundingClientRect().top"
    )
    assert 0 <= top < 1500
    driver.get_log("browser")


def test_a_gained_finding_is_told_as_in_the_report(pages, driver):
    driver.get((pages / "diff.html").as_uri())
    assert "1 finding gained" in css(driver, "header").text
    finding = css(driver, "details.v")
    assert "gradient-cut" in finding.text
    assert "w.detach()" in finding.find_element("css selector", "mark").text
    assert "Drop the detach" in finding.find_element("css selector", ".fix").text
    driver.get_log("browser")


def test_the_peak_is_one_number_in_text_page_and_json(pages):
    done = warm.tether("memory", "--json", "-", "after/train.py", folder=pages)
    peak = json.loads(done.stdout)["memory"]["peak_bytes"]
    assert f"Peak {peak} B at train.py" in done.stderr
    page = (pages / "memory.html").read_text()
    assert f"<b>{peak} B</b>" in page
    assert f"Peak {peak} B at train.py" in page
