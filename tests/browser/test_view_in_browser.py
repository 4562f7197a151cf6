"""`tether view --web` from the outside: served to this machine alone, and live while a program runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.support.ui import WebDriverWait
from test_page_in_browser import css, pytestmark, requests  # noqa: F401

import tether
import warm

PROGRAM = """\
import pathlib, sys, time
import torch
used = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(used.parameters(), lr=0.1)
def train(cut):
    out = used(torch.ones(2, 3))
    loss = (out.detach() if cut else out).sum() * torch.ones((), requires_grad=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
for word in sys.argv[1:]:
    while not pathlib.Path(word).exists():
        train(cut=True)
print("ended")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


class Served:
    """The command in a process group of its own, as a shell starts it."""

    def __init__(self, folder, *arguments):
        self.process = warm.Child(
            *("-m", "tether", "view", "--web", *arguments),
            folder=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            alone=True,
        )
        line = self.process.stderr.readline().decode()
        found = re.fullmatch(r"tether: the report is at (http://127\.0\.0\.1:\d+/\S+/) .*\n", line)
        assert found, line + self.process.stderr.read().decode()
        self.address = found[1]

    def interrupt(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def ended(self):
        """Return the exit code, and what was written to both streams."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out.decode(), err.decode().splitlines()

    def get(self, path=""):
        parts = urlsplit(self.address)
        connection = http.client.HTTPConnection(parts.netloc, timeout=30)
        connection.request("GET", (parts.path + path) if not path.startswith("/") else path)
        answer = connection.getresponse()
        return answer, answer.read().decode()

    def state(self):
        return json.loads(self.get("state")[1])

    def until(self, holds):
        for _ in range(600):
            now = self.state()
            if holds(now):
                return now
            time.sleep(0.1)
        raise AssertionError(now)


@pytest.fixture
def serve(folder):
    made = []

    def start(*arguments):
        made.append(Served(folder, *arguments))
        return made[-1]

    yield start
    for one in made:
        if one.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(one.process.pid, signal.SIGKILL)
            one.process.communicate()


def record(folder):
    (folder / "done").touch()
    code = "import torch\nfor _ in range(9): x = torch.ones(3) + 1\n"
    assert warm.tether("run", "-qo", "run.tether", "-c", code, folder=folder).returncode == 0


def test_a_recording_is_served_to_this_machine_until_ctrl_c(folder, serve):
    record(folder)
    served = serve("run.tether")
    now = served.until(lambda state: state["version"] == 1)
    assert now == {"version": 1, "state": "ended", "calls": 18, "findings": 0}
    answer, page = served.get()
    assert answer.status == 200
    assert "default-src 'none'" in page.replace("&#39;", "'")
    assert {answer.headers[name] for name in ("X-Frame-Options", "Cache-Control")} == {
        "DENY", "no-store"}  # fmt: skip
    for path in ("/", "/state", "other", "../state"):
        assert served.get(path)[0].status == 404
    served.interrupt()
    assert served.ended() == (0, "", ["tether: the report is no longer served"])


def test_a_port_that_is_taken_is_one_line(folder, serve):
    record(folder)
    served = serve("run.tether")
    port = str(urlsplit(served.address).port)
    done = warm.tether("view", "--web", "--port", port, "run.tether", folder=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tether: cannot serve on port {port}: Address already in use\n"


@pytest.mark.rest
def test_findings_appear_while_the_program_runs(folder, serve, driver):
    driver.get_log("performance")
    served = serve("-o", "kept.tether", "--", "train.py", "never", "done")
    driver.get(served.address)
    # The page may be made anew between any two looks at it.
    wait = WebDriverWait(driver, 60, ignored_exceptions=(WebDriverException,))
    wait.until(lambda _: "gradient-cut" in css(driver, "details.v").text)
    wait.until(lambda _: "The program is running: 1 finding in " in css(driver, "#live").text)

    def offered(_):
        if css(driver, "#live button").is_displayed():
            return True
        css(driver, "details.v").click()  # who reads is not interrupted
        return False

    wait.until(offered)
    before = css(driver, "body").get_attribute("data-version")
    assert served.state()["version"] > int(before)
    css(driver, "#live button").click()
    wait.until(lambda _: css(driver, "body").get_attribute("data-version") != before)

    (folder / "never").touch()
    (folder / "done").touch()
    served.until(lambda state: state["state"] == "ended")
    wait.until(lambda _: css(driver, "#live").text == "")
    assert "is still running" not in css(driver, "header").text
    assert driver.get_log("browser") == []
    asked = requests(driver)
    assert {f"{served.address}state", served.address} <= asked
    assert all(one.startswith((served.address, "about:", "data:")) for one in asked)

    served.interrupt()
    code, out, err = served.ended()
    assert (code, out, err) == (0, "ended\n", ["tether: the report is no longer served"])
    wait.until(lambda _: "tether view has ended" in css(driver, "#live").text)
    assert (folder / "kept.tether").is_file()
    driver.get_log("browser")  # it tells that the server is gone


@pytest.mark.rest
def test_ctrl_c_stops_the_program_first_and_then_the_page(folder, serve):
    served = serve("train.py", "never")
    served.until(lambda state: state["findings"] == 1)
    served.interrupt()
    now = served.until(lambda state: state["state"] == "ended")
    assert now["findings"] == 1
    assert "interrupted" in served.get()[1]
    served.interrupt()
    code, _, err = served.ended()
    assert code == 130
    first = "tether: the program was interrupted; its report is served until the next Ctrl-C"
    assert first in err
    assert err[-1] == "tether: the report is no longer served"


AT_EXIT = """\
import atexit, pathlib, time
def wait():
    while not pathlib.Path("gone").exists():
        time.sleep(0.02)
atexit.register(wait)
"""


@pytest.mark.rest
def test_a_program_that_is_still_ending_has_not_ended(folder, serve):
    """Its recording is whole by then, but a Ctrl-C would still be its own."""
    (folder / "train.py").write_text(AT_EXIT + PROGRAM)
    served = serve("-o", "kept.tether", "--", "train.py", "done")
    served.until(lambda state: state["version"])
    (folder / "done").touch()
    for _ in range(600):
        if "is still running" not in served.get()[1]:
            break  # the page shows the whole recording
        time.sleep(0.1)
    assert tether.load(folder / "kept.tether").trace.outcome == "finished"
    assert served.state()["state"] == "running"
    (folder / "gone").touch()
    served.until(lambda state: state["state"] == "ended")
    served.interrupt()
    assert served.ended() == (0, "ended\n", ["tether: the report is no longer served"])


def test_a_recording_that_grows_is_followed(folder, serve):
    (folder / "done").touch()
    command = ("-m", "tether", "run", "-qo", "run.tether", "train.py", "never")
    running = warm.Child(*command, folder=folder, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if (folder / "run.tether").exists():
                break
            time.sleep(0.1)
        served = serve("run.tether")
        first = served.until(lambda state: state["version"])
        assert first["state"] == "partial"
        later = served.until(lambda state: state["calls"] > first["calls"])
        assert later["version"] > first["version"]
        (folder / "never").touch()
        served.until(lambda state: state["state"] == "ended")
    finally:
        running.kill()
        running.wait()


def test_a_program_that_cannot_be_run_serves_nothing(folder, serve):
    (folder / "wrong.py").write_text("if\n")
    served = serve("wrong.py")
    code, _, err = served.ended()
    assert code == 2
    assert err[-1] == "tether: nothing was recorded, so there is no report"
    assert any("wrong.py is not valid Python" in line for line in err)
