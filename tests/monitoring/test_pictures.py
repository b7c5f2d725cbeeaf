# SPDX-License-Identifier: Apache-2.0
"""The picture of a dashboard: its panels, filled by Grafana's own code with a machine's links.

With ``--write-pages`` it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from agent.settings.agent_settings import AgentSettings
from agent.single_reading import take_snapshot
from labelers.annotations import topology_of
from tests.monitoring import shipped
from tests.monitoring.grafana import Table, tables
from tests.monitoring.panel_svg import panels_svg
from tests.monitoring.prometheus import Series
from tests.pages import ROOT

pytestmark = pytest.mark.cluster

PICTURE = ROOT / "docs" / "pictures" / "dashboard-links.svg"
MACHINE = "dgx1-v100"
DASHBOARD = "gpuscape-node"
MATRICES = {"NVLinks between GPUs": "nv", "PCIe between GPUs": "pc"}
"""Panels, and where the topology has what they show."""


def rows(digits: str, count: int) -> Iterator[Series]:
    """The series that the agent serves of a matrix, given its upper triangle."""
    cells = {}
    for pair, digit in zip(combinations(range(count), 2), digits, strict=True):
        cells[pair] = cells[pair[::-1]] = str(int(digit, 36))
    for gpu in range(count):
        peers = {f"to_{peer:02}": cells[gpu, peer] for peer in range(count) if peer != gpu}
        yield Series(labels={"index": str(gpu)} | peers, points=((1.7e9, 1),))


def shown() -> dict[str, Table]:
    """What Grafana makes of the panels."""
    topology = topology_of(take_snapshot(replace(AgentSettings(), simulate=MACHINE)))
    of = {it["title"]: it for it in shipped.panels(shipped.dashboards()[DASHBOARD])}
    asked = [
        (of[title], [list(rows(getattr(topology, where), topology.n))])
        for title, where in MATRICES.items()
    ]
    return dict(zip(MATRICES, tables(asked), strict=True))


def test_the_picture_is_what_grafana_s_code_makes_of_the_dashboard_s_json(
    pytestconfig: pytest.Config,
) -> None:
    found = shown()
    made = panels_svg("gpuscape / Node", list(found.items()))
    if pytestconfig.getoption("--write-pages"):
        PICTURE.write_text(made, "utf-8")
    links = found["NVLinks between GPUs"]
    assert [column.name for column in links] == ["GPU", *map(str, range(8))]
    assert links[4].texts[:3] == ("2", "1", "2")
    assert PICTURE.read_text("utf-8") == made, "run this test with --write-pages"
