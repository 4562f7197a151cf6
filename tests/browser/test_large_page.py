"""The page at the size it has to bear, and what a reader without a mouse or a wide screen has."""

from __future__ import annotations

import itertools
import time

import pytest
from large_report import large
from selenium.webdriver.support.ui import WebDriverWait
from test_page_in_browser import css, page, pytestmark, shown  # noqa: F401

from tether.report.page import page as page_of
from tether.report.recording import Recording

TYPICAL = 300_000  # bytes


def test_a_typical_program_is_a_small_page():
    assert len(page_of.render(large(3, 180, 12, parameters=24)).encode()) < TYPICAL


@pytest.fixture(scope="module")
def big(driver, tmp_path_factory):
    """A page of 20,000 lines and 2,000 findings, open in the browser."""
    about = large(20, 999, 2_000)
    text = page_of.render(about)
    file = tmp_path_factory.mktemp("big") / "big.html"
    file.write_text(text, encoding="utf-8")
    driver.set_window_size(1280, 1000)
    driver.get(file.as_uri())
    whole = "return document.readyState === 'complete'"
    WebDriverWait(driver, 60).until(lambda _: driver.execute_script(whole))
    yield driver
    assert driver.get_log("browser") == []


def enter(selector, value):
    return (
        f"const box = document.querySelector('{selector}');"
        f"box.value = '{value}';box.dispatchEvent(new Event('input'))"
    )


def test_everything_is_on_it(big):
    count = "return document.querySelectorAll(arguments[0]).length"
    assert big.execute_script(count, "details.v") == 2_000
    assert big.execute_script(count, ".l") == 20 * 999


@pytest.mark.parametrize(
    ("selector", "value", "left"),
    [("#search", "layer777.", 1), ("#slug", "gradient-cut", 500), ("#file", "3", None)],
)
def test_a_filter_answers(big, selector, value, left):
    big.execute_script(enter(selector, value))
    shown_now = css(big, "#shown").text
    assert left is None or shown_now.startswith(f"{left} of 2000 findings")
    assert not shown_now.startswith("2000 of 2000")
    big.execute_script(enter(selector, ""))
    assert css(big, "#shown").text == ""


def test_a_far_line_is_reached_and_its_file_is_named(big):
    big.execute_script("location.hash = '#s15-800'")
    time.sleep(0.5)
    line, name, bar = big.execute_script(
        "const line = document.getElementById('s15-800');"
        "const name = line.closest('details.file').firstElementChild;"
        "return [line, name, document.querySelector('nav')].map((e) => {"
        " const r = e.getBoundingClientRect(); return [r.top, r.bottom]; })"
    )
    assert bar[1] < line[0] < 1000
    assert name[0] == pytest.approx(bar[1], abs=2), "the file's name stays below the bar"


def test_the_theme_turns(big):
    big.execute_script("document.querySelector('#theme').click()")
    big.execute_script("document.querySelector('#theme').click()")


@pytest.fixture
def small(driver, page):  # noqa: F811
    driver.set_window_size(1280, 1500)
    driver.get("about:blank")
    driver.get(page)
    yield driver
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    driver.set_window_size(1280, 1500)


def test_a_mark_in_focus_lights_up_its_memory_too(small):
    small.execute_script("document.querySelector('#s0-20 summary').focus()")
    lit = [one.get_attribute("id") for one in small.find_elements("css selector", ".l.lit")]
    assert lit == ["s0-19", "s0-20"]
    small.execute_script("document.querySelector('#search').focus()")
    assert shown(small, ".l.lit") == 0


def test_a_narrow_screen_scrolls_in_one_direction_only(small):
    small.set_window_size(500, 900)
    wide, room = small.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= room


def test_on_paper_there_are_no_controls_and_every_verdict_is_open(small):
    css(small, "#finding-1 > summary").click()
    small.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    small.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert shown(small, "button, nav, .skip") == 0
    assert css(small, "#finding-1 .ends").is_displayed()
    assert shown(small, "#source, .src") == 2


def test_the_parts_are_landmarks_and_headings_skip_no_level(small):
    levels = small.execute_script(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map((e) => +e.tagName[1])"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for landmark in ("header", "nav[aria-label]", "main", "footer", "[role=status]"):
        assert small.find_elements("css selector", landmark)
    headless = "return [...document.querySelectorAll('table')].filter((t) => !t.tHead).length"
    assert small.execute_script(headless) == 0


def test_inside_a_notebook_the_page_works_in_its_frame(driver, tmp_path):
    """The frame is sandboxed: its script runs, its links lead to its own lines."""
    recording = Recording(large(1, 180, 3, parameters=9).trace, prepared=True)
    recording.findings = list(large(1, 180, 3, parameters=9).findings)
    file = tmp_path / "cell.html"
    file.write_text(f"<body>{recording._repr_html_()}</body>", encoding="utf-8")
    driver.get_log("browser")
    driver.get(file.as_uri())
    assert "1 error" in css(driver, "p").text
    driver.switch_to.frame(css(driver, "iframe"))
    try:
        css(driver, "#finding-1 .ends a").click()
        assert css(driver, ".l:target").get_attribute("id") == "s0-4"
        css(driver, "#theme").click()
        css(driver, "#search").send_keys("layer1.")
        assert css(driver, "#shown").text.startswith("1 of 3 findings")
    finally:
        driver.switch_to.default_content()
    assert driver.get_log("browser") == []
