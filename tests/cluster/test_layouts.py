# SPDX-License-Identifier: Apache-2.0
"""An admin annotates a MIG layout on a Node; its real agent says there what would come of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from api import keys, mig_status_annotation
from api.mig_status_annotation import GpuChangeStatus, MigStatusAnnotation
from tests.actuator.simulated_node import FIVE, node
from tests.agent.agent_process import until
from tests.cluster.agents import Site, agent

pytestmark = pytest.mark.cluster


def test_a_layout_on_the_node_is_judged_there_and_no_instance_is_touched(
    site: Site, tmp_path: Path
) -> None:
    on = node(tmp_path, *FIVE)
    name, before = site.plane.make_node(), on.found()

    def status() -> MigStatusAnnotation:
        text = site.annotations(name).get(keys.MIG_STATUS)
        found = None if text is None else mig_status_annotation.decode(text)
        return found or MigStatusAnnotation(v=1, phase="none")

    site.edit(name, labels={keys.MIG_CONFIG: "all-disabled"})
    with agent(site, name, on.simulation, tmp_path):
        until(lambda: status().phase == "unadopted")
        site.edit(name, annotations={keys.MIG_LAYOUT: '{"0": {"7g.40gb": 2}}'})
        until(lambda: status().phase == "refused")
        assert status().reason.startswith("GPU 0: ")
        until(lambda: "MigLayoutRefused" in reasons(site, name))
        site.edit(name, annotations={keys.MIG_LAYOUT: None}, labels={keys.MIG_CONFIG: "all-1g.5gb"})
        until(lambda: (status().phase, status().asked) == ("planned", "all-1g.5gb"))
        assert status().gpus == (GpuChangeStatus(gpu=0, keep=3, destroy=2, create=4),)
    assert on.found() == before


def reasons(site: Site, name: str) -> set[str]:
    """Of the Events about the Node."""
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    listed = site.plane.demand("GET", path)["items"]
    return {it["reason"] for it in listed if it["regarding"]["name"] == name}
