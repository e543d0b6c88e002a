"""A headless Chromium for tests, driven through its debugging pipe: what a page logs, asks for and shows."""

import base64
import contextlib
import fcntl
import gc
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND"  # the browser's own services stay silent too


class Page:
    """One tab. ``logged``: console messages, log entries, exceptions; ``requested``: all addresses asked for."""

    def __init__(self, to: int, back: int):
        self._to = os.fdopen(to, "wb", 0)
        self._back = os.fdopen(back, "rb", 0)
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self._events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, width: int = 1280, scheme: str = "light") -> None:
        """Load a file and wait for all of it; what was logged and requested before is forgotten."""
        self._events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)[
            "result"
        ].get("value")

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse, scrolled into view."""
        node = f"document.querySelector({selector!r})"
        self.evaluate(f"{node}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.evaluate(
            f"(box => [box.x + box.width / 2, box.y + box.height / 2])({node}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def settle(self) -> None:
        """Wait until the page has done what it was asked: two frames."""
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.call("Runtime.evaluate", expression=frames, awaitPromise=True)

    @property
    def logged(self) -> list[dict]:
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self._events if event["method"] in kinds]

    @property
    def requested(self) -> list[str]:
        sent = [event for event in self._events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def screenshot(self, path: Path, **clip: float) -> None:
        """The page as PNG, or the part that ``clip`` (x, y, width, height) names."""
        options = {"clip": clip | {"scale": 1}} if clip else {}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, **options)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF")["data"])

    def close(self) -> None:
        self._to.close()
        self._back.close()

    def call(self, method: str, **params: Any) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._events.append(answer)

    def _read(self) -> dict:
        while b"\0" not in self._rest:
            chunk = self._back.read(65536)
            if not chunk:
                raise RuntimeError("Chromium closed its pipe")
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


def found() -> str | None:
    return (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )


@contextlib.contextmanager
def page(network: str = NO_NETWORK) -> Iterator[Page]:
    """A tab of a fresh profile; the browser ends on exit."""
    there, to = os.pipe()
    back, here = os.pipe()
    # Chromium reads at 3 and writes at 4: move our ends out of their way first.
    reads, writes = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (there, here))

    def place() -> None:
        os.dup2(reads, 3)
        os.dup2(writes, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [found(), *FLAGS, network, f"--user-data-dir={profile}", "about:blank"]
        silent = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        # 3 and 4 must not be free here, where Popen would use them for itself, nor fall free meanwhile. `pass_fds` will not
        # do: it wants to change whatever is open under these numbers, which may be a font file that takes no change.
        gc.collect()
        gc.disable()
        try:
            spare = _hold(4)
            browser = subprocess.Popen(command, preexec_fn=place, close_fds=False, **silent)
        finally:
            gc.enable()
        for end in (there, here, reads, writes, *spare):
            os.close(end)
        try:
            tab = Page(to, back)
            yield tab
            tab.close()
        finally:
            browser.terminate()
            browser.wait(timeout=20)


def _hold(last: int) -> list[int]:
    """Open all file descriptors up to ``last`` that are not open yet; the new ones, to be closed."""
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] <= last:
        held.append(os.open(os.devnull, os.O_RDONLY))
    return held
