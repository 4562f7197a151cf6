"""One browser for all files of a process: it takes longer to start than most of the tests."""

import pytest
from one_browser import CHROMIUM, DRIVER


@pytest.fixture(scope="session")
def chromium():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for one in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(one)
    options.add_argument("--window-size=1280,1500")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield made
    made.quit()


@pytest.fixture(scope="module")
def driver(chromium):
    """The browser as it was when it was started: nothing of another file's tests is left."""
    chromium.get("about:blank")
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    chromium.execute_cdp_cmd(
        "Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "local_storage"}
    )
    chromium.set_window_size(1280, 1500)
    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    return chromium
