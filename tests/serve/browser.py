"""Chromium for the tests of the explorer page, or the reason why it is missing."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PATIENCE = 20  # seconds; a slow machine with other work needs a few

# Every element with text, with the contrast of the text against its background.
CONTRASTS = """
const channel = (value) => (value /= 255, value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
const canvas = Object.assign(document.createElement("canvas"), {width: 1, height: 1});
const painter = canvas.getContext("2d", {willReadFrequently: true});
const color = (text) => {
  painter.clearRect(0, 0, 1, 1);
  painter.fillStyle = text;
  painter.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = painter.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
};
const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
const behind = (element) => {
  if (!element) return color("Canvas");
  const own = color(getComputedStyle(element).backgroundColor);
  return own[3] === 1 ? own : over(own, behind(element.parentElement));
};
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
return [...document.querySelectorAll("body *")].flatMap((element) => {
  const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("").trim();
  const box = element.getBoundingClientRect();
  const style = getComputedStyle(element);
  if (!text || box.width < 2 || style.visibility === "hidden") return [];
  if (element.closest("option, .unseen, noscript")) return [];
  const drawn = element instanceof SVGElement;
  const ground = behind(drawn ? element.closest("svg").parentElement : element);
  const ink = over(color(drawn ? style.fill : style.color), ground);
  const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
  return [[element.tagName + "." + (element.getAttribute("class") ?? ""), text.slice(0, 40), (a + 0.05) / (b + 0.05)]];
});
"""


def needed() -> str | None:
    """Return what is missing for browser tests as a sentence, or None."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "no selenium; `make setup` brings it"
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        return f"no {' and no '.join(missing)}; `make browser` installs them where there is apt-get"
    return None


@contextmanager
def served(runs, token: str | None = None) -> Iterator[str]:
    """Start a server of these runs in a thread of this process, which has loaded all modules; yield its address."""
    import uvicorn

    from rgcn.serve import Address, Limits, create_app, load_models
    from rgcn.serve.address import bound_socket, url_of
    from rgcn.serve.server import protocol_for

    address, limits = Address(port=0, token=token), Limits()
    listening = bound_socket(address)
    app = create_app(load_models(runs, device="cpu"), limits, token=token, hosts=address.hosts)
    server = uvicorn.Server(uvicorn.Config(app, http=protocol_for(limits), ws="none", log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield url_of(address, listening)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()


class Browser:
    """Headless Chromium with the operations of the tests. Waits are explicit; there is no sleep."""

    def __init__(self):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        # Tests run as root in containers, where chromium's sandbox cannot start, with little shared memory.
        for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "window-size=1280,900"):
            options.add_argument(f"--{argument}")
        for argument in ("disable-background-networking", "no-first-run", "disable-component-update", "lang=en-US"):
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_page_load_timeout(PATIENCE)
        self.driver.set_script_timeout(PATIENCE)

    def close(self) -> None:
        self.driver.quit()

    def fresh(self) -> None:
        """Reset the browser: no cached answers, no token, desktop size, light theme, empty logs."""
        self.command("Network.enable")
        self.command("Network.clearBrowserCache")
        self.command("Emulation.clearDeviceMetricsOverride")
        self.colors("light")
        if self.driver.current_url.startswith("http"):
            self.run("sessionStorage.clear()")
        self.driver.get("about:blank")
        self.complaints()
        self.requested()

    def command(self, name: str, **arguments):
        return self.driver.execute_cdp_cmd(name, arguments)

    def phone(self) -> None:
        self.command("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)

    def colors(self, scheme: str) -> None:
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def offline(self, is_offline: bool) -> None:
        self.command(
            "Network.emulateNetworkConditions",
            offline=is_offline, latency=0, downloadThroughput=-1, uploadThroughput=-1,
        )  # fmt: skip

    def open(self, address: str) -> None:
        """Open a page. An address that differs only in its #part would not load anything."""
        self.driver.get("about:blank")
        self.driver.get(address)

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def imported(self, module: str, expression: str, *arguments):
        """Evaluate an expression over a module of the page: `m` is the module, `a` are the arguments."""
        return self.driver.execute_async_script(
            "const [address, expression, a, done] = arguments;"
            f"import(address).then((m) => done({expression})).catch((error) => done('failed: ' + error));",
            module, expression, list(arguments),
        )  # fmt: skip

    def until(self, truth, words: str):
        """Wait until `truth()` is true; stale elements are looked up again."""
        from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        ignored = (NoSuchElementException, StaleElementReferenceException)
        try:
            return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05, ignored_exceptions=ignored).until(
                lambda _: truth()
            )
        except TimeoutException:
            self.screenshot("failed")
            seen = self.run("return document.body.innerText")
            raise AssertionError(f"not within {PATIENCE} s: {words}. The page says:\n{seen[:1500]}") from None

    def see(self, selector: str, text: str = ""):
        """Return the first visible element of a selector that contains a text."""
        return self.until(
            lambda: next((e for e in self.all(selector) if e.is_displayed() and text in e.text), None),
            f"{selector} with {text!r}",
        )

    def all(self, selector: str):
        return self.driver.find_elements("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector)

    def click(self, selector: str, text: str = "") -> None:
        """Click as a person does: scroll into view, then click at its position."""
        element = self.see(selector, text)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def press(self, *keys: str) -> None:
        """Send keys to the focused element."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def wait_until_loaded(self, heading: str) -> None:
        """Wait until the page of a node is complete, with all requests answered."""
        self.see("h1", heading)
        self.until(lambda: not self.all("main [aria-busy], main[aria-busy]"), f"{heading} drawn to the end")

    @property
    def focused(self):
        return self.driver.switch_to.active_element

    @property
    def sideways(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def contrasts(self) -> list[tuple[str, str, float]]:
        return [tuple(row) for row in self.run(CONTRASTS)]

    def screenshot(self, name: str) -> None:
        """Save a screenshot of the whole page among the artifacts of the build."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))

    def whole_screenshot(self, name: str) -> None:
        import base64

        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        picture = self.command("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        (SCREENSHOTS / f"{name}.png").write_bytes(base64.b64decode(picture["data"]))

    def complaints(self) -> list[str]:
        """Return what the browser wrote to its console since the last call."""
        return [f"{row['level']}: {row['message']}" for row in self.driver.get_log("browser") if row["level"] != "INFO"]

    def requested(self) -> list[str]:
        """Return the addresses that pages requested since the last call."""
        rows = [json.loads(row["message"])["message"] for row in self.driver.get_log("performance")]
        return [
            row["params"]["request"]["url"] for row in rows if row["method"] == "Network.requestWillBeSent"
        ]  # fmt: skip


def browser_or_skip() -> Browser:
    words = needed()
    if words:
        pytest.skip(words)
    return Browser()
