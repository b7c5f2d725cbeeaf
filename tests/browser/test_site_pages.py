# SPDX-License-Identifier: Apache-2.0
"""Every page of the site in a real browser: no error, no other host, nothing wider than it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

from tests import site_clone
from tests.browser.chromium import Chromium
from tests.browser.opened_pages import faults, served

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SHELL: Final = "<!doctype html><html lang=en><meta charset=utf-8><link rel=icon href=data:,>"
SOON: Final = 60.0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's folder."""
    return site_clone.built(site_clone.copied(tmp_path_factory.mktemp("clone")))


def test_every_page_opens_without_a_fault(browser: Chromium, built: Path) -> None:
    names = sorted(str(it.relative_to(built)) for it in built.rglob("*.html"))
    with served(built) as base:
        found = {name: list(faults(browser, base, name)) for name in names}

    assert len(names) > 100
    assert {name: its for name, its in found.items() if its} == {}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<p>well</p>", None),
        ("<pre style='overflow:auto'>" + "x" * 400 + "</pre>", None),
        ("<script>console.error('bad')</script>", "console: bad"),
        ("<script>nothing()</script>", "console: ReferenceError: nothing is not defined"),
        ("<img src=gone.svg>", "console: Failed to load resource"),
        ("<img src=https://badges.example/a.svg>", "asks another host: https://badges.example/"),
        ("<script>fetch('//cdn.example/a')</script>", "asks another host: http://cdn.example/a"),
        ("<pre>" + "x" * 60 + "</pre>", "at 400 pixels: scrolls to"),
        ("<div style='width:1400px'>wide</div>", "at 1280 pixels: scrolls to 14"),
        (
            "<style>html{overflow-x:hidden}</style><div style='width:1400px'>cut off</div>",
            "at 1280 pixels: div cut off",
        ),
    ],
)
def test_a_fault_of_a_page_is_found(
    browser: Chromium, tmp_path: Path, body: str, fault: str | None
) -> None:
    (tmp_path / "page.html").write_text(f"{SHELL}<body>{body}</body></html>")
    with served(tmp_path) as base:
        found = list(faults(browser, base, "page.html"))

    assert (found == []) if fault is None else any(it.startswith(fault) for it in found), found


_LINKS: Final = """
(() => {
  const all = from => [...from.querySelectorAll("*")].flatMap(
    it => [it, ...(it.shadowRoot ? all(it.shadowRoot) : [])]
  );
  return all(document).map(it => it.href).filter(it => it?.includes?.("?h="));
})()
"""
"""Links with a word to be marked: what the search found, wherever the theme puts it."""


def test_the_search_finds_a_page_and_leads_there(browser: Chromium, built: Path) -> None:
    with served(built) as base:
        browser.size(1280)
        browser.open(f"{base}index.html")
        browser.run("document.querySelector('.md-search__button, label[for=__search]').click()")
        end = time.monotonic() + SOON
        found: list[str] = []
        while not found:
            assert time.monotonic() < end, "nothing is found"
            if browser.run("document.activeElement !== document.body"):
                browser.ask("Input.insertText", text="quota ")
            time.sleep(0.5)
            found = browser.run(_LINKS)
        visit = browser.open(next(it for it in found if "two-users.html" in it))

        assert visit.errors == ()
        assert "quota" in browser.run("document.querySelector('article mark').textContent")


def test_a_person_who_prefers_dark_colours_gets_them(browser: Chromium, built: Path) -> None:
    script = "document.body.getAttribute('data-md-color-scheme')"
    with served(built) as base:  # an address of its own, so that nothing is remembered
        browser.size(1280, dark=True)
        browser.open(f"{base}index.html")
        dark = browser.run(script)
    with served(built) as base:
        browser.size(1280)
        browser.open(f"{base}index.html")
        light = browser.run(script)

    assert (dark, light) == ("slate", "default")
