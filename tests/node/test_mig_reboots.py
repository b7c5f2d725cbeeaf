# SPDX-License-Identifier: Apache-2.0
"""A node that loses its power has its MIG layout again without anybody's help, or ends the change
that it was in; what a reboot is here :meth:`tests.node.mig_stage.MigStage.reboot` says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from api import keys, names
from simulator.simulation import Delay
from tests.agent.agent_process import until
from tests.node.mig_change_trial import single_machine
from tests.node.mig_stage import (
    LAYOUT,
    LONG,
    SEVENTHS,
    SMALL,
    WANTED,
    MigStage,
    mig_stage,
)
from tests.node.node_mig import NodeMig

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

SLOW: Final = "nvmlDeviceCreateGpuInstanceWithPlacement"
"""The call that the power fails in."""
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MigStage]:
    with mig_stage(tmp_path_factory.mktemp("reboot"), single_machine(), single_machine()) as found:
        until(lambda: {found.phase(node) for node in found.nodes} == {"idle"}, LONG)
        yield found


def test_a_layout_is_back_after_a_reboot_without_a_coordinator(stage: MigStage) -> None:
    """The same MIG devices, and the node was never closed. A device plugin that was sooner lists
    them once a coordinator has restarted it."""
    node = next(iter(stage.nodes))
    mig = NodeMig(stage.there.gpus[node])
    stage.annotate(node, mig_layout=LAYOUT)
    until(lambda: stage.is_changed(node), LONG)
    stage.serve(node)
    stage.scale_coordinator(0)
    devices, before = mig.devices(), stage.instances(node)
    boot, since = stage.nodes[node].boot_id, stage.there.cluster.resource_version()

    stage.reboot(node)

    assert stage.nodes[node].boot_id != boot
    until(lambda: len(stage.instances(node)) == len(before), LONG)
    assert not stage.instances(node) & before
    assert mig.devices() == devices
    until(lambda: "Rebooted" in stage.events(node), LONG)
    until(lambda: stage.phase(node) == "unchanged", LONG)

    stage.scale_coordinator(2)
    until(lambda: stage.offers(node) == WANTED, LONG)
    until(lambda: "Running" in {pod["status"]["phase"] for pod in stage.served()}, LONG)
    for version in stage.there.cluster.versions("/api/v1/nodes", since=since, name=node):
        assert not version["spec"].get("unschedulable")
        assert keys.MIG_REQUEST not in version["metadata"]["annotations"]
    stage.stop_serving()


def test_a_change_that_loses_its_power_ends_and_the_node_is_open_again(stage: MigStage) -> None:
    """When some of the old instances are gone, and none of the new ones is there yet."""
    node = list(stage.nodes)[-1]
    simulation = stage.there.gpus[node].simulation
    before, since = stage.instances(node), stage.there.cluster.resource_version()
    slow = simulation.fault(Delay(seconds=5.0), SLOW)
    stage.annotate(node, mig_layout=LAYOUT if len(before) > 2 else SEVENTHS)
    wanted = WANTED if len(before) > 2 else {SMALL: 7}

    until(lambda: stage.instances(node) < before, LONG)
    simulation.clear(slow)
    stage.reboot(node)

    until(lambda: stage.is_changed(node, wanted), LONG)
    ends = stage.ends(node, since)
    assert [end for _, end in ends] == ["applied"], ends
    stage.check_cordons(since)
    for lease in stage.plane.demand("GET", LEASES)["items"]:
        assert keys.MIG_ROLLBACK_RECORD not in (lease["metadata"].get("annotations") or {}), lease
