# SPDX-License-Identifier: Apache-2.0
"""Every dashboard whole in a real browser: each panel has data, and nothing of it is cut off.

With ``--write-pages`` the pictures are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser import chromium
from tests.browser.chromium import Chromium
from tests.browser.opened_pages import served
from tests.monitoring import drawn_dashboard, shipped
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.shipped import CHOSEN
from tests.pages import ROOT

DASHBOARDS: Final = shipped.dashboards()
NODE: Final = "h100-0"
"""Of all it has most to show: pods, links, NICs, and trouble."""
EMPTY: Final[Mapping[str, frozenset[str]]] = {}
"""Panels without data, by dashboard: what the simulated fleet does not have."""
PICTURES: Final = {
    uid: ROOT / "docs" / "pictures" / f"{uid.replace('gpuscape', 'dashboard')}.svg"
    for uid in ("gpuscape-fleet", "gpuscape-node")
}
MOST_BYTES: Final = 150_000
"""Of a picture."""
_CUT_OFF: Final = """
[...document.querySelectorAll("section")].flatMap(panel => {
  const edge = panel.getBoundingClientRect(), title = panel.dataset.title, out = [];
  for (const box of panel.querySelectorAll("h2, .tall, .legend, .stats, .body"))
    if (box.scrollWidth > box.clientWidth + 1) out.push(`${title}: wider than its panel`);
  for (const it of panel.querySelectorAll("b, .name, .axis span, h2")) {
    const at = it.getBoundingClientRect();
    const isScrolled = it.closest(".tall") !== null;
    if (at.right > edge.right || at.left < edge.left || (!isScrolled && at.bottom > edge.bottom))
      out.push(`${title}: ${it.textContent} is cut off`);
  }
  const plot = panel.querySelector(".plot");
  if (plot && plot.clientWidth < 150) out.push(`${title}: no room for its lines`);
  return [...new Set(out)];
})
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium.running(tmp_path_factory.mktemp("browser")) as running:
        running.size(drawn_dashboard.WIDTH)
        yield running


@pytest.fixture(scope="module")
def found(prometheus: Prometheus) -> Mapping[str, Mapping[int, Any]]:
    """What each panel of each dashboard shows, after a minute of scraping."""
    prometheus.wait_for(f"up offset {drawn_dashboard.SECONDS:.0f}s", seconds=300)
    made = {}
    for uid, dashboard in DASHBOARDS.items():
        own = {"$instance": NODE} if uid == "gpuscape-node" else {}
        answers = drawn_dashboard.answered(prometheus, dashboard, CHOSEN | own)
        shown = drawn_dashboard.shown(answers)
        made[uid] = {panel["id"]: it for (panel, _), it in zip(answers, shown, strict=True)}
    return made


def cut_off(browser: Chromium, content: str, folder: Path) -> list[str]:
    """What cannot be read of a dashboard. Fails where the page has an error."""
    (folder / "page.html").write_text(drawn_dashboard.page(content), "utf-8")
    with served(folder) as base:
        assert browser.open(f"{base}page.html").errors == ()
        found: list[str] = browser.run(_CUT_OFF)
    return found


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("uid", DASHBOARDS)
def test_every_panel_has_data_and_nothing_is_cut_off(
    browser: Chromium,
    found: Mapping[str, Mapping[int, Any]],
    tmp_path: Path,
    pytestconfig: pytest.Config,
    uid: str,
) -> None:
    content = drawn_dashboard.content(DASHBOARDS[uid], found[uid])
    unreadable = cut_off(browser, content, tmp_path)
    height = browser.run("document.querySelector('.page').offsetHeight")
    drawn = drawn_dashboard.picture(DASHBOARDS[uid], content, height)
    if uid in PICTURES and pytestconfig.getoption("--write-pages"):
        PICTURES[uid].write_text(drawn, "utf-8")

    assert set(without_data(content)) == EMPTY.get(uid, frozenset())
    assert unreadable == []
    assert len(drawn.encode()) < MOST_BYTES


def without_data(content: str) -> list[str]:
    """Titles of panels that say that there is nothing to show."""
    return re.findall(r'data-title="([^"]*)"><h2>[^<]*</h2><div class="body none"', content)


def panel(kind: str, **more: Any) -> dict[str, Any]:
    """A dashboard with one small panel."""
    of = {"type": kind, "title": "Heat", "id": 1, "gridPos": {"x": 0, "y": 0, "w": 3, "h": 4}}
    field = {"noValue": "-", "custom": {"fillOpacity": 8}}
    of |= {"fieldConfig": {"defaults": field}, "options": {"textMode": "auto"}}
    return {"title": "gpuscape / Small", "panels": [of | more]}


def number(text: str, name: str = "") -> list[dict[str, Any]]:
    return [{"name": name, "text": text, "color": "#ffffff", "percent": 0.5}]


@pytest.mark.long
@pytest.mark.parametrize(
    ("dashboard", "shown", "what"),
    [
        (panel("stat"), number("8"), []),
        (panel("stat"), number("8" * 40), ["Heat: wider than its panel"]),
        (panel("stat", title="Heat of " * 9), number("8"), ["wider than its panel"]),
        (panel("bargauge"), number("8", "GPU " * 20), ["Heat: wider than its panel"]),
        (
            panel("timeseries"),
            {
                "lines": [
                    {
                        "name": "GPU 0",
                        "color": "#ffffff",
                        "points": [[0, 1], [1, 2]],
                        "floor": [0, 0],
                        "legend": ["2", "2"],
                    }
                ],
                "ticks": [[0, "0"], [2, "2"]],
                "heads": ["Last *", "Max"],
            },
            ["Heat: no room for its lines"],
        ),
    ],
)
def test_what_cannot_be_read_is_found(
    browser: Chromium, tmp_path: Path, dashboard: dict[str, Any], shown: Any, what: list[str]
) -> None:
    browser.size(drawn_dashboard.WIDTH)
    found = cut_off(browser, drawn_dashboard.content(dashboard, {1: shown}), tmp_path)
    assert found == [] if not what else all(any(one in it for it in found) for one in what), found


NOTHING: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("stat", "bargauge", "table", "state-timeline"), ()),
    "timeseries": {"lines": [], "ticks": [], "heads": []},
}


@pytest.mark.parametrize("kind", NOTHING)
def test_a_panel_without_data_is_found(kind: str) -> None:
    assert without_data(drawn_dashboard.content(panel(kind), {1: NOTHING[kind]})) == ["Heat"]
    assert without_data(drawn_dashboard.content(panel("stat"), {1: number("8")})) == []


@pytest.mark.parametrize("uid", PICTURES)
def test_a_picture_is_of_the_dashboard_as_it_is(uid: str) -> None:
    """Its figures are those of one run; its panels are all that there are, in their places."""
    text = PICTURES[uid].read_text("utf-8")
    assert re.findall(r'<div class="row"[^>]*>([^<]*)<|<h2>([^<]*)<', text) == [
        (it["title"], "") if it["type"] == "row" else ("", it["title"])
        for it in drawn_dashboard.with_rows(DASHBOARDS[uid])
    ]
    of = drawn_dashboard.fingerprint(DASHBOARDS[uid])
    assert f'data-of="{of}"' in text, "run this file's long tests with --write-pages"
