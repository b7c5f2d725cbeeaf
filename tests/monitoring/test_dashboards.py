# SPDX-License-Identifier: Apache-2.0
"""The dashboards as files: what Grafana needs to show them, and nothing made by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import pytest

from discovery.model import Xid
from exporters.dcgm.catalog import DEFAULT_FAMILIES
from exporters.desired_layout_metrics import DesiredLayoutState
from exporters.gpuscape.agent_metrics import AgentMetrics, ProgramUse
from exporters.gpuscape.core_families import CORE, ServedFamilies
from tests import build, exposition
from tests.deploy.dockerfile import REPOSITORY
from tests.monitoring.shipped import asked, dashboards, panels, rules, variables
from tools.monitoring.files import files

DASHBOARDS = dashboards()


def everything(of: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Panels and the headings between them."""
    for panel in of["panels"]:
        yield panel
        yield from panel.get("panels", ())


def test_the_files_are_as_they_are_declared() -> None:
    for path, text in files(REPOSITORY).items():
        assert (REPOSITORY / path).read_text("utf-8") == text, f"{path}: run `make docs`"


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_a_dashboard_is_known_by_the_name_of_its_file(uid: str) -> None:
    assert DASHBOARDS[uid]["uid"] == uid
    assert DASHBOARDS[uid]["title"].startswith("gpuscape / ")


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_panels_have_numbers_of_their_own_and_places_of_their_own(uid: str) -> None:
    found = list(everything(DASHBOARDS[uid]))
    numbers = [panel["id"] for panel in found]
    cells = [
        {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        for panel in found
        for at in (panel["gridPos"],)
    ]

    assert len(set(numbers)) == len(numbers)
    assert all(x < 24 for cell in cells for x, _ in cell)
    assert not any(one & other for one, other in combinations(cells, 2))


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_every_panel_explains_itself_and_asks_the_data_source_that_is_chosen(uid: str) -> None:
    for panel in panels(DASHBOARDS[uid]):
        assert panel["description"].endswith(".")
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_the_variables_that_queries_use_can_be_chosen(uid: str) -> None:
    chosen = {it["name"] for it in DASHBOARDS[uid]["templating"]["list"]}
    used = {
        name
        for each in asked()
        if each.dashboard == uid
        for name in re.findall(r"\$([a-z]\w*)", each.expression)
    }

    assert chosen == used | {"datasource"}


AGENTS = "gpuscape_(?!scheduler_|coordinator_)"


def named(prefix: str) -> set[str]:
    """Metrics that panels, variables, and rules ask for; ``prefix`` is a regular expression."""
    expressions = [it.expression for it in asked()] + [it["expr"] for it in rules()]
    # a recording rule's own series have colons around ours
    pattern = rf"(?<![\w:]){prefix}\w+(?![\w:])"
    return set(re.findall(pattern, " ".join([*expressions, *variables().values()])))


def test_queries_ask_for_what_is_served_unless_told_otherwise() -> None:
    """DCGM families are those of the default set: a dashboard needs no file of counters."""
    assert named("DCGM_")
    assert named("DCGM_") <= {family.name for family in DEFAULT_FAMILIES}


def test_queries_ask_for_families_of_the_core() -> None:
    own = AgentMetrics("0", lambda: 0.0, ServedFamilies.CORE)
    own.snapshot_taken(build.node([build.gpu(xids=(Xid(code=1, count=1),))]), 0.0)
    own.samples_taken(0.0)
    own.programs_use({"agent": ProgramUse(cpu_seconds=0.0, resident_bytes=0)})
    own.set_desired_layout(
        DesiredLayoutState(
            phase="failed", since_seconds=0.0, retries={"rolled-back": 1}, enforced=True
        )
    )
    about_itself = exposition.parse(own.render() + own.render_now())
    summaries = {f"{name}_{part}" for name in about_itself for part in ("sum", "count")}

    assert named(AGENTS) <= CORE.keys() | about_itself.keys() | summaries


def test_the_core_has_no_family_that_nobody_reads() -> None:
    assert named(AGENTS) >= CORE.keys()
