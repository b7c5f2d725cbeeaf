# SPDX-License-Identifier: Apache-2.0
"""Pages of a folder, opened in the browser from a server of our own: what is wrong with each."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.browser.chromium import Chromium
from tests.served import answering

WIDTHS: Final = (1280, 400)
"""Pixels: a window on a laptop, and a telephone."""
_INSIDE: Final = ("data:", "blob:")
_TOO_WIDE: Final = """
(() => {
  const page = document.scrollingElement, wide = page.clientWidth;
  const boxed = it => {
    for (let up = it; up && up !== document.body; up = up.parentElement)
      if (getComputedStyle(up).overflowX !== "visible") return true;
    return false;
  };
  const inside = document.querySelector("article") ?? document.body;
  const out = [...inside.querySelectorAll("*")].filter(
    it => it.getBoundingClientRect().right > wide + 1 && !boxed(it)
  );
  const named = out.map(it => `${it.tagName.toLowerCase()} ${it.textContent.trim().slice(0, 40)}`);
  return page.scrollWidth > wide ? [`scrolls to ${page.scrollWidth}`, ...named] : named;
})()
"""
"""What is wider than the window and not in a box that scrolls by itself."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its own name
        """Nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's files, with a slash at the end, while the block lasts."""
    handler = functools.partial(_Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with answering(server):
        yield f"http://127.0.0.1:{server.server_port}/"


def faults(browser: Chromium, base: str, name: str) -> Iterator[str]:
    """What is wrong with one page, on every width."""
    browser.size(WIDTHS[0])
    visit = browser.open(base + name)
    for error in visit.errors:
        yield f"console: {error}"
    for url in visit.requests:
        if not url.startswith((base, *_INSIDE)):
            yield f"asks another host: {url}"
    for width in WIDTHS:
        browser.size(width)
        for what in browser.run(_TOO_WIDE):
            yield f"at {width} pixels: {what}"
