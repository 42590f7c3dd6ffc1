"""A browser that tests control: Chromium through its WebDriver, as JSON over HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SECONDS = 90
# Key of an element's id in answers, defined by the protocol.
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window."""

    def __init__(self, driver: str, directory: Path) -> None:
        self._session = driver
        options = {
            "binary": shutil.which("chromium"),
            "args": [
                "--headless=new",
                # Tests run as root, where Chromium's own sandbox does not work.
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
                # The browser's own services are out of reach.
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
                "--window-size=1280,900",
                f"--user-data-dir={directory}",
            ],
        }
        # Pages that ask before they are left are left.
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "unhandledPromptBehavior": "accept",
            "pageLoadStrategy": "none",
        }
        begun = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._session = f"{driver}/session/{begun['sessionId']}"

    def open(self, url: str) -> None:
        """Go to a page, without waiting for it."""
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Return what a script of the page returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": arguments})

    def see(self, selector: str, text: str = "") -> str:
        """Wait for a visible element that has this text, and return all of its text."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].filter(it => it.checkVisibility())"
            ".map(it => it.innerText).find(it => it.includes(arguments[1])) ?? null"
        )
        deadline = time.monotonic() + SECONDS
        while (found := self.run(script, selector, text)) is None:
            assert time.monotonic() < deadline, f"no {selector} with {text!r} in:\n{self.text()}"
            time.sleep(0.05)
        return str(found)

    def text(self) -> str:
        """Return what the page shows."""
        return str(self.run("return document.body.innerText"))

    def click(self, selector: str, text: str = "") -> None:
        """Click on the middle of the first visible element that has this text, once nothing covers it."""
        script = (
            "const it = [...document.querySelectorAll(arguments[0])]"
            ".find(it => it.checkVisibility() && it.innerText.includes(arguments[1]));"
            "if (!it) return null; it.scrollIntoView({block: 'center'}); const box = it.getBoundingClientRect();"
            "const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);"
            "return it.contains(top) || top?.shadowRoot?.contains(it) ? it : null"
        )
        deadline = time.monotonic() + SECONDS
        while True:
            if found := self.run(script, selector, text):
                try:
                    self._call("POST", f"/element/{found[_ELEMENT]}/click", {})
                    return
                except AssertionError as error:
                    # The page has replaced or moved it meanwhile.
                    if not re.search("stale element|intercepted|not interactable", str(error)):
                        raise
            assert time.monotonic() < deadline, f"{selector} with {text!r} cannot be clicked in:\n{self.text()}"
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Press keys, in whatever has the focus."""
        keys = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": keys}]})

    def close(self) -> None:
        """End the browser."""
        self._call("DELETE", "")

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._session + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=2 * SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path} {data!r:.300}: {error.read().decode()}") from None


@contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """Start a browser with its profile in a directory."""
    found = shutil.which("chromedriver"), shutil.which("chromium")
    assert all(found), "install Debian's chromium and chromium-driver; .ci/run does this"
    command = ["chromedriver", "--port=0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as driver:
        try:
            assert driver.stdout
            said = (re.search(r"successfully on port (\d+)", line) for line in driver.stdout)
            started = next(filter(None, said), None)
            assert started, f"chromedriver ended with exit code {driver.wait()}"
            window = Browser(f"http://127.0.0.1:{started[1]}", directory)
            try:
                yield window
            finally:
                window.close()
        finally:
            # Also a browser that did not end.
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
