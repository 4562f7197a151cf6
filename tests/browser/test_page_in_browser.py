"""The page in a real browser, headless: what a reader does with it, and that nothing leaves it.

Skipped where no Chromium or no Selenium is installed (`apt-get install chromium chromium-driver`,
`pip install selenium`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warm import tether

pytest.importorskip("selenium.webdriver", reason="Selenium is not installed")
from one_browser import CHROMIUM, DRIVER
from selenium.webdriver import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.skipif(
    not CHROMIUM or not DRIVER, reason="Chromium and its driver are not installed"
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "detached_before_third_layer.py"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("page") / "report.html"
    done = tether("run", "-q", "--html", str(file), str(EXAMPLE), folder=file.parent)
    assert done.returncode == 0, done.stderr
    assert file.stat().st_size < 300_000
    return file.as_uri()


@pytest.fixture
def browser(driver, page):
    """The page, freshly opened; afterwards no error was logged and nothing was asked of a net."""
    driver.get_log("performance")
    driver.get("about:blank")
    driver.get(page)
    yield driver
    assert driver.get_log("browser") == []
    asked = requests(driver)
    assert page in asked, "requests are seen at all"
    assert all(url.startswith(("file:", "about:", "data:")) for url in asked)


def requests(driver) -> set[str]:
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }


def css(browser, selector):
    return browser.find_element("css selector", selector)


def shown(browser, selector) -> int:
    found = browser.find_elements("css selector", selector)
    return sum(one.is_displayed() for one in found)


def type_into(browser, selector, text):
    css(browser, selector).send_keys(text)


def circles_become(browser, count):
    """Wait for the drawn link: a browser tells of a fold a moment after it."""
    script = "return document.querySelectorAll('svg.link circle').length"
    WebDriverWait(browser, 5).until(lambda _: browser.execute_script(script) == count)


def test_a_mark_opens_its_chain(browser):
    line = css(browser, "#s0-20")
    assert "cut" in line.find_element("css selector", "summary").text
    assert not line.find_element("css selector", "ol").is_displayed()
    line.find_element("css selector", "summary").click()
    assert "shared by detach" in line.find_element("css selector", "ol").text


def test_a_link_leads_to_the_line_and_back(browser):
    css(browser, "#finding-1 .ends a").click()
    assert browser.current_url.endswith("#s0-20")
    assert css(browser, "#s0-20").is_displayed()
    css(browser, "#s0-20 summary").click()
    css(browser, "#s0-20 details.m > a").click()
    assert browser.current_url.endswith("#finding-1")


def test_the_search_looks_into_findings_source_and_tables(browser):
    assert shown(browser, "details.v") == 1
    type_into(browser, "#search", "layer1")
    assert shown(browser, "details.v") == 1
    assert shown(browser, ".l.hit") == 3
    assert css(browser, "#shown").text == "1 of 1 findings, 3 lines, 3 rows"
    type_into(browser, "#search", " no-such-thing")
    assert shown(browser, "details.v") == 0
    assert css(browser, "#shown").text == "0 of 1 findings, 0 lines, 0 rows"
    type_into(browser, "#search", "\ue00c")  # Escape
    assert shown(browser, "details.v") == 1
    assert css(browser, "#shown").text == ""


def test_the_theme_switches_and_is_kept(browser):
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = browser.execute_script(colour)
    css(browser, "#theme").click()
    after = browser.execute_script(colour)
    assert after != before
    browser.refresh()
    assert browser.execute_script(colour) == after
    css(browser, "body").send_keys("t")
    assert browser.execute_script(colour) == before


def test_a_name_lights_up_the_lines_on_its_memory(browser):
    name = css(browser, "#s0-20 i[data-g]")
    assert name.text.startswith("out2")
    ActionChains(browser).move_to_element(name).perform()
    lit = [one.get_attribute("id") for one in browser.find_elements("css selector", ".l.lit")]
    assert lit == ["s0-19", "s0-20"]


def test_the_two_ends_of_a_verdict_are_joined(browser):
    circles_become(browser, 2)  # those of the first verdict
    css(browser, "#finding-1 > summary").click()
    circles_become(browser, 0)
    css(browser, "#finding-1 > summary").click()
    circles_become(browser, 2)
    ends = browser.execute_script(
        "const middle = (e) => { const r = e.getBoundingClientRect(); return r.top + 10; };"
        "const line = (n) => middle(document.getElementById('s0-' + n));"
        "return [[...document.querySelectorAll('svg.link circle')].map((c) => {"
        " const r = c.getBoundingClientRect(); return r.top + r.height / 2; }), [line(20), line(31)]]"
    )
    assert ends[0] == pytest.approx(ends[1], abs=2)


def test_the_keyboard_alone_is_enough(browser):
    body = css(browser, "body")
    body.send_keys("j")
    focused = browser.switch_to.active_element
    assert focused.tag_name == "summary"
    assert "gradient-cut" in focused.text
    focused.send_keys("\ue007")  # Enter
    assert not css(browser, "#finding-1 p").is_displayed()
    focused.send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"


def test_the_peak_is_made_of_lines_that_one_can_go_to(browser):
    rows = browser.find_elements("css selector", ".parts tbody tr")
    shares = [float(row.find_element("css selector", ".share").text[:-1]) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert shares == sorted(shares, reverse=True)
    rows[0].find_element("css selector", "a").click()
    assert "#s0-" in browser.current_url


def test_every_control_has_a_name_and_every_part_a_heading(browser):
    nameless = browser.execute_script(
        "return [...document.querySelectorAll('button,input,select,a,summary')]"
        ".filter((e) => !(e.textContent.trim() || e.title || e.ariaLabel || (e.labels && e.labels.length))).length"
    )
    assert nameless == 0
    headings = [one.text for one in browser.find_elements("css selector", "h2")]
    assert headings[:4] == ["findings", "ties", "source", "memory"]


def test_it_reads_without_scripts(browser, page):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page)
        assert "layer1.weight" in css(browser, "#finding-1").text
        assert shown(browser, "nav .js") == 0
        css(browser, "#s0-20 summary").click()
        assert css(browser, "#s0-20 ol").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_script_of_the_programs_cannot_run(browser):
    """The page's own policy stops what escaping would have let through."""
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.hit = 1';"
        "document.body.append(s)"
    )
    assert browser.execute_script("return window.hit") is None
    complaints = browser.get_log("browser")
    assert any("Content Security Policy" in one["message"] for one in complaints)
