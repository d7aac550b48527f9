"""A headless Chromium that opens files, and what it complained about. Tests skip with the reason where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Browser:
    """A Chromium window. ``console`` are the errors and warnings of all pages opened, ``requests`` what they loaded beside themselves."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.console: list[str] = []

    def open(self, path: Path, width: int = 1280, height: int = 900, fragment: str = "") -> None:
        """Open a file with a viewport of exactly ``width`` by ``height`` CSS pixels."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        )
        self.driver.get("about:blank")
        self.driver.get(path.resolve().as_uri() + fragment)

    def errors(self) -> list[str]:
        """Console messages since the last call, warnings and above."""
        return [f"{e['level']}: {e['message']}" for e in self.driver.get_log("browser") if e["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Everything the open page loaded beside itself."""
        return list(self.js("return performance.getEntriesByType('resource').map(e => e.name)"))

    def js(self, script: str, *arguments: object) -> Any:
        """Run a function body in the page."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """Visible text of the first match."""
        return str(self.js("return document.querySelector(arguments[0]).innerText", selector))

    def count(self, selector: str) -> int:
        """Number of matches."""
        return int(self.js("return document.querySelectorAll(arguments[0]).length", selector))

    def click(self, selector: str) -> None:
        """Click the first match."""
        self.js("document.querySelector(arguments[0]).click()", selector)

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        # Not innerWidth: a phone zooms out over a page that is too wide, and innerWidth grows with it.
        return int(self.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def screenshot(self, path: Path) -> None:
        """Save the whole page as PNG."""
        size = self.js("return [window.innerWidth, document.documentElement.scrollHeight]")
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))


def find_browser() -> tuple[str, str]:
    """Paths of Chromium and its driver; skips the test where either is missing."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = os.environ.get("CHROMIUM") or next((p for n in names if (p := shutil.which(n))), None)
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs Chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    return chromium, driver


@pytest.fixture(scope="module")
def browser_process() -> Iterator[Any]:
    """One Chromium for a module."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = find_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", "--no-first-run"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    window.set_page_load_timeout(60)
    yield window
    window.quit()


@pytest.fixture
def browser(browser_process: Any) -> Browser:
    """The module's Chromium with an empty console."""
    window = Browser(browser_process)
    window.errors()
    return window
