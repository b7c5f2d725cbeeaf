# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, driven by its own protocol over two pipes.

Names of other hosts do not resolve in it, so a page that asks for one gets nothing, here as behind
a firewall. Source: Chrome DevTools Protocol; ``--remote-debugging-pipe`` of Chromium: messages are
JSON that a zero byte ends, read from descriptor 3 and written to 4.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ANSWER_SECONDS: Final = 120.0
"""For one answer of the browser; pages are small, the machine may be busy."""
_FLAGS: Final = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
_LOADED: Final = "Page.loadEventFired"


class BrowserError(Exception):
    """There is no browser, it has ended, or it refuses what it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What a page did while it was opened."""

    errors: tuple[str, ...]
    """Lines of the console that are errors, exceptions and failed loads."""
    requests: tuple[str, ...]
    """Addresses that it asked for, its own included."""


class Chromium:
    """One page of a browser."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process = process
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        found = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One call of the protocol. Raises BrowserError."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message(method)
            if answer.get("id") == self._number:
                break
            self._events.append(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, url: str) -> Visit:
        """Open a page and wait until it and all it loads is there."""
        self._events.clear()
        answer = self.ask("Page.navigate", url=url)
        if "errorText" in answer:
            raise BrowserError(f"{url}: {answer['errorText']}")
        while not any(event.get("method") == _LOADED for event in self._events):
            self._events.append(self._message(url))
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
        return Visit(
            errors=tuple(_errors(self._events)),
            requests=tuple(
                event["params"]["request"]["url"]
                for event in self._events
                if event.get("method") == "Network.requestWillBeSent"
            ),
        )

    def run(self, script: str) -> Any:
        """The value of an expression in the page, awaited. Raises BrowserError where it throws."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(_thrown(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def size(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Have a window of so many pixels, and the colours that the person prefers."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self) -> bytes:
        """The window as PNG."""
        data: str = self.ask("Page.captureScreenshot", format="png")["data"]
        return base64.b64decode(data)

    def _message(self, waiting_for: str) -> dict[str, Any]:
        """The next one. Raises BrowserError where none comes."""
        end = time.monotonic() + ANSWER_SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._read, 1 << 20) if ready else b""
            if not more:
                why = "has ended" if ready else f"was silent for {ANSWER_SECONDS:.0f} s"
                raise BrowserError(f"the browser {why} ({waiting_for})")
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


def _errors(events: list[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "assert"):
                texts = (str(it.get("value", it.get("description"))) for it in parameters["args"])
                yield " ".join(texts)
            case "Runtime.exceptionThrown":
                yield _thrown(parameters["exceptionDetails"])
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                entry = parameters["entry"]
                yield f"{entry['text']} {entry.get('url', '')}"


def _thrown(details: dict[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details["text"])


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Chromium]:
    """A browser while the block lasts, with its profile in ``folder``. Raises BrowserError."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise BrowserError(f"there is no browser: install Chromium (one of {', '.join(PROGRAMS)})")
    theirs_read, write = os.pipe()
    read, theirs_write = os.pipe()
    # as root it has no sandbox, and it opens nothing but pages of ours
    own = () if os.geteuid() else ("--no-sandbox",)
    command = [program, *_FLAGS, *own, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    wrapped = f'exec "$@" 3<&{theirs_read} 4>&{theirs_write}'
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", wrapped, "bash", *command],
            pass_fds=(theirs_read, theirs_write),
            env={**os.environ, "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(theirs_read)
    os.close(theirs_write)
    try:
        yield Chromium(process, write, read)
    finally:
        os.close(write)
        os.close(read)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
