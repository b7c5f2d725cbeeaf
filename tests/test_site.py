# SPDX-License-Identifier: Apache-2.0
"""The site: every page has its place, a broken link ends the build, nothing is from elsewhere."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests import site_clone
from tests.pages import ROOT
from tools import site

LOADS: Final = {"src", "srcset", "poster", "data"}
"""Attributes by which a browser fetches something, of any element."""
LINKED: Final = {"stylesheet", "icon", "preload", "preconnect", "modulepreload", "manifest"}
_ELSEWHERE: Final = re.compile(r"^\s*(?:https?:)?//")
_IN_STYLES: Final = re.compile(r"(?:@import\s+|url\()\s*[\"']?(?:https?:)?//[^\s\"')]+")


class Fetched(HTMLParser):
    """Addresses on other hosts that a page loads; ``href`` of a plain link loads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: text or "" for name, text in attrs}
        loads = {name for name in named if name in LOADS}
        if tag == "link" and LINKED & set(named.get("rel", "").split()):
            loads.add("href")
        self.found += [named[name] for name in loads if _ELSEWHERE.match(named[name])]


def fetched(html: str) -> list[str]:
    """What a browser would get from other hosts to show the page."""
    parser = Fetched()
    parser.feed(html)
    return parser.found + _IN_STYLES.findall(html)


def in_nav(part: Any) -> Iterator[str]:
    """The pages of the navigation, in its order."""
    if isinstance(part, str):
        yield part
    else:
        for item in part.values() if isinstance(part, dict) else part:
            yield from in_nav(item)


NAV: Final = list(in_nav(yaml.safe_load((ROOT / site.CONFIGURATION).read_text("utf-8"))["nav"]))
NOT_IN_NAV: Final = {"code-of-conduct.md", "security-policy.md"}
"""Pages of the root that others lead to."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the generator reads of a clone."""
    return site_clone.copied(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def built(clone: Path) -> Path:
    """The site's folder."""
    return site_clone.built(clone)


def test_every_page_stands_in_the_navigation_once() -> None:
    assert sorted(NAV) == sorted({path for path, _ in site.pages()} - NOT_IN_NAV)


def test_the_second_page_shows_two_users_at_work() -> None:
    """Before anything is explained."""
    assert NAV[:2] == ["index.md", "two-users.md"]


def test_the_site_has_each_page(built: Path) -> None:
    names = [re.sub(r"README\.md$", "index.md", path) for path in NAV]
    pages = [built / name.replace(".md", ".html") for name in names]
    assert [page for page in pages if not page.exists()] == []


def test_no_page_loads_anything_from_another_host(built: Path) -> None:
    files = [*built.rglob("*.html"), *built.rglob("*.svg")]
    assert len(files) > 100
    found = {file.relative_to(built): fetched(file.read_text("utf-8")) for file in files}
    assert {name: urls for name, urls in found.items() if urls} == {}
    styles = {
        file.relative_to(built): _IN_STYLES.findall(file.read_text("utf-8"))
        for file in built.rglob("*.css")
    }
    assert len(styles) > 1
    assert {name: urls for name, urls in styles.items() if urls} == {}


def test_no_page_has_a_diagram_for_which_the_theme_s_script_would_load_another(built: Path) -> None:
    """It fetches a program for diagrams from another host, where a page has one."""
    pages = {file.relative_to(built): file.read_text("utf-8") for file in built.rglob("*.html")}
    assert [name for name, text in pages.items() if re.search(r'class="[^"]*mermaid', text)] == []


@pytest.mark.parametrize(
    "html",
    [
        '<link rel="stylesheet" href="https://fonts.example/css?family=Roboto">',
        '<link rel="preconnect" href="//fonts.example" crossorigin>',
        '<script src="https://cdn.example/mermaid.js"></script>',
        '<img src="http://badges.example/build.svg">',
        "<style>@import url(https://fonts.example/a.css)</style>",
        "<style>@font-face { src: url('//fonts.example/a.woff2') }</style>",
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(html: str) -> None:
    assert len(fetched(html)) == 1


def test_a_link_to_elsewhere_loads_nothing() -> None:
    html = (
        '<a href="https://kubernetes.io/">x</a><img src="assets/a.svg"><link rel="next" href="b">'
    )
    assert fetched(html) == []


def test_each_broken_link_is_an_issue_that_ends_the_build(clone: Path, tmp_path: Path) -> None:
    small = tmp_path / "clone"
    (small / "docs").mkdir(parents=True)
    for name in site.FROM_THE_ROOT:
        (small / name).write_text("# A page\n", "utf-8")
    configuration, _, _ = (clone / site.CONFIGURATION).read_text("utf-8").partition("nav:\n")
    (small / site.CONFIGURATION).write_text(configuration, "utf-8")
    shutil.copytree(clone / "docs" / "stylesheets", small / "docs" / "stylesheets")
    page = small / "docs" / "index.md"
    page.write_text("# Home\n\n[a](changelog.md) [b](#home)\n", "utf-8")
    assert site.build(small).returncode == 0
    page.write_text("# Home\n\n[a](gone.md) [b](changelog.md#gone) [c](../GONE.md)\n", "utf-8")
    done = site.build(small)
    assert done.returncode != 0
    assert "3 issues" in done.stdout


def test_links_follow_pages_that_the_site_has_elsewhere() -> None:
    text = (
        "[a](docs/cli.md#x) [b](deploy/chart) [c](https://x.example/) ![d](docs/pictures/a.svg)\n"
    )
    text += "[e](gone.md)\n```sh\n[f](docs/cli.md)\n```\n"
    assert site.placed(text, "CHANGELOG.md", "docs/changelog.md") == (
        "[a](cli.md#x) b [c](https://x.example/) ![d](pictures/a.svg)\n"
        "[e](gone.md)\n```sh\n[f](docs/cli.md)\n```\n"
    )
    page = "[a](../../CHANGELOG.md) [b](../../README.md) [c](GpuDown.md) [d](../schemas)"
    assert site.placed(page, "docs/runbooks/x.md", "docs/runbooks/x.md") == (
        "[a](../changelog.md) [b](../index.md) [c](GpuDown.md) d"
    )
