# SPDX-License-Identifier: Apache-2.0
"""Where panels lead: every dashboard, variable, label and column that a link names is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.monitoring.shipped import RUNBOOKS, dashboards, panels
from tools.monitoring import __main__ as command

DASHBOARDS = dashboards()
OWN_PAGES = {"/alerting/list": {"search"}}
"""Pages that every Grafana has, with what they take."""

ALONG = {"datasource", "cluster"}
"""Variables whose choice goes along, as the time shown does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """One link of a panel."""

    dashboard: str
    panel: Mapping[str, Any]
    url: str
    column: str | None
    """Its heading, where it is a column that leads on."""

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel['title']} {self.column or ''}".rstrip()

    @property
    def to(self) -> str:
        """The dashboard it leads to, or a page of Grafana."""
        return urlsplit(self.url).path.removeprefix("/d/")


def links() -> Iterator[Led]:
    for uid, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            config = panel["fieldConfig"]
            for link in config["defaults"].get("links", ()):
                yield Led(dashboard=uid, panel=panel, url=link["url"], column=None)
            for override in config["overrides"]:
                column = override["matcher"]["options"]
                for changed in override["properties"]:
                    for link in changed["value"] if changed["id"] == "links" else ():
                        yield Led(dashboard=uid, panel=panel, url=link["url"], column=column)


LINKS = list(links())


def variables(uid: str) -> set[str]:
    """Names of what can be chosen on a dashboard."""
    return {it["name"] for it in DASHBOARDS[uid]["templating"]["list"]}


def headings(panel: Mapping[str, Any]) -> dict[str, str]:
    """Heading of each column to the label that it shows."""
    return {
        heading: label
        for change in panel["transformations"]
        if change["id"] == "organize"
        for label, heading in change["options"]["renameByName"].items()
    }


@pytest.mark.parametrize("led", LINKS, ids=str)
def test_a_link_leads_to_a_dashboard_and_variables_that_are_there(led: Led) -> None:
    address = urlsplit(led.url)
    chosen = {name for name, _ in parse_qsl(address.query)}

    if address.path in OWN_PAGES:
        assert chosen == OWN_PAGES[address.path]
        return
    assert address.path == f"/d/{led.to}"
    assert {name.removeprefix("var-") for name in chosen} <= variables(led.to)
    assert all(name.startswith("var-") for name in chosen)
    along = set(re.findall(r"\$\{(\w+):queryparam\}", address.query))
    assert along == ALONG <= variables(led.to) & variables(led.dashboard)
    assert "${__url_time_range}" in address.query


@pytest.mark.parametrize("led", LINKS, ids=str)
def test_a_link_takes_what_its_panel_has(led: Led) -> None:
    """Labels of its series, columns of its row, the cell itself."""
    named = set(re.findall(r"\$\{(__\w+(?:\.\w+)*)\}", led.url)) - {"__url_time_range"}
    legends = "".join(target.get("legendFormat", "") for target in led.panel["targets"])
    columns = headings(led.panel)
    known = {f"__field.labels.{label}" for label in re.findall(r"{{(\w+)}}", legends)}
    if led.column is not None:
        known |= {"__value.raw", *(f"__data.fields.{heading}" for heading in columns)}

    assert named <= known
    if led.column is not None:
        assert led.column in columns


@pytest.mark.parametrize("led", LINKS, ids=str)
def test_a_name_is_chosen_for_the_variable_that_is_of_its_label(led: Led) -> None:
    """No pod's name for a namespace."""
    columns = headings(led.panel)
    for variable, taken in re.findall(r"var-(\w+)=\$\{(__[\w.]+)\}", led.url):
        kind, _, name = taken.removeprefix("__").rpartition(".")
        label = {"field.labels": name, "data.fields": columns.get(name)}.get(kind)
        assert (label or columns[str(led.column)]) == variable


def test_panels_lead_from_the_fleet_to_nodes_from_there_to_pods_and_back() -> None:
    ways = {(led.dashboard, led.to) for led in LINKS}

    assert {
        ("gpuscape-fleet", "gpuscape-node"),
        ("gpuscape-fleet", "gpuscape-pods"),
        ("gpuscape-node", "gpuscape-pods"),
        ("gpuscape-mig", "gpuscape-node"),
        ("gpuscape-mig-changes", "gpuscape-node"),
        ("gpuscape-pods", "gpuscape-pods"),
        ("gpuscape-pods", "gpuscape-node"),
    } <= ways


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_every_table_with_names_leads_to_what_they_name(uid: str) -> None:
    expected = {"Node": "gpuscape-node", "Pod": "gpuscape-pods", "Alert": "/alerting/list"}
    for panel in panels(DASHBOARDS[uid]):
        for heading in headings(panel):
            led = [it.to for it in LINKS if it.panel is panel and it.column == heading]
            assert led == ([expected[heading]] if heading in expected else [])


@pytest.mark.parametrize("uid", ["gpuscape-fleet", "gpuscape-node"])
def test_alerts_lead_to_runbooks_where_their_address_is_given(
    uid: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["--dashboard", uid, "--runbooks", "https://wiki.example/gpus"])

    printed = capsys.readouterr().out
    assert '"url": "https://wiki.example/gpus/${__value.raw}.md"' in printed
    assert "/alerting/list" not in printed
    assert (RUNBOOKS / "GpuDown.md").exists()


def test_without_an_address_what_is_printed_is_what_is_shipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = command.ROOT / "deploy" / "monitoring"
    command.main(["--dashboard", "gpuscape-node"])
    dashboard = capsys.readouterr().out
    command.main([])

    assert dashboard == (shipped / "dashboards" / "gpuscape-node.json").read_text("utf-8")
    assert capsys.readouterr().out == (shipped / "rules" / "prometheus-rule.yaml").read_text()
