# SPDX-License-Identifier: Apache-2.0
"""A real node goes from NVIDIA's MIG manager to gpuscape and back, by the page's lines.

Both sides are the real programs in pods: the manager's DaemonSet, agent, actuator, coordinator, and
NVIDIA's device plugin, which the manager stops and starts. Judges are pods that hold an instance,
the births of instances in the machine's state, and the audit log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from api import keys, names
from api.mig_status_annotation import RequestSource
from tests.agent.agent_process import until
from tests.cluster.mig_manager_page import PACED, play
from tests.controlplane.plane import ADMIN
from tests.node.mig_change_trial import single_machine
from tests.node.mig_holder import MigHolderPod
from tests.node.mig_manager import HERE, PLUGIN_HERE, MigManager
from tests.node.mig_stage import LARGE, LONG, SMALL, WANTED, MigStage, mig_stage
from tests.node.node_doctor import examined
from tests.node.real_cluster import AGENT
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

SMALLS: Final = "all-1g.5gb"
LARGES: Final = "all-3g.20gb"
"""Names of default configurations, the same here and there."""
SEVEN: Final = {SMALL: 7}
OURS: Final = f"system:serviceaccount:{names.NAMESPACE}:{AGENT}"


def test_a_node_and_its_pods_go_over_and_come_back(tmp_path: Path) -> None:
    with mig_stage(tmp_path / "cluster", single_machine()) as stage:
        (node,) = stage.nodes
        cluster, real = stage.there.cluster, stage.nodes[node]
        manager = MigManager.install(stage.plane, [real], tmp_path)
        asked = {"pool": "a100", HERE: "true", PLUGIN_HERE: "true", keys.MIG_CONFIG: SMALLS}
        cluster.label(node, asked)

        # beside it: what the label asks for is done by the manager alone, and the doctor names it
        until(lambda: stage.offers(node) == SEVEN, LONG)
        until(lambda: shown(stage, node) == ("unadopted", SMALLS, "success"), PACED)
        assert manager.stops(real) == 1
        assert len(manager.pods()) == 1
        assert manager_found(stage).startswith("NVIDIA's MIG manager (")
        holder = MigHolderPod.start(stage.there, real, "holder", SMALL)
        made = stage.instances(node)

        # over: the pod runs on, its instance and all others are the same
        play(stage.plane, "to gpuscape")
        until(lambda: not manager.pods(), SOON)
        mark = stage.plane.mark()
        until(lambda: shown(stage, node) == ("unchanged", "", "success"), PACED)
        holder.check()
        assert stage.instances(node) == made
        assert manager_found(stage) == ""

        # the label is obeyed, as soon as the pod lets go
        cluster.label(node, {keys.MIG_CONFIG: LARGES})
        until(lambda: stage.phase(node) == "waiting", PACED)
        holder.check()
        assert stage.instances(node) == made
        holder.delete()
        until(lambda: stage.is_changed(node), PACED)
        until(lambda: shown(stage, node) == ("unchanged", "", "success"), PACED)
        assert stage.offers(node) == WANTED
        assert writers(stage, node, mark) == {
            keys.MIG_CONFIG: {ADMIN},
            keys.MIG_CONFIG_STATE: {OURS},
        }

        # and back, next to another pod, from where an annotation asks for the same
        holder = MigHolderPod.start(stage.there, real, "late", LARGE)
        made = stage.instances(node)
        stage.annotate(node, mig_layout=LARGES)
        until(lambda: is_asked_by_annotation(stage, node), PACED)
        play(stage.plane, "back")
        until(lambda: shown(stage, node) == ("unadopted", LARGES, "success"), PACED)
        holder.check()
        assert stage.instances(node) == made
        assert manager.stops(real) == 0
        assert manager_found(stage) != ""
        holder.delete()
        until(lambda: not holder.is_there, SOON)

        # the label is the manager's, also where it changes while the manager is away
        cluster.label(node, {HERE: "false"})
        until(lambda: not manager.pods(), SOON)
        mark = stage.plane.mark()
        cluster.label(node, {keys.MIG_CONFIG: SMALLS})
        until(lambda: shown(stage, node) == ("unadopted", SMALLS, "success"), PACED)
        assert stage.instances(node) == made
        cluster.label(node, {HERE: "true"})
        until(lambda: manager.stops(real) == 1, LONG)
        until(lambda: shown(stage, node) == ("unadopted", SMALLS, "success"), PACED)
        until(lambda: stage.offers(node) == SEVEN, LONG)
        assert writers(stage, node, mark) == {
            keys.MIG_CONFIG: {ADMIN},
            keys.MIG_CONFIG_STATE: {manager.user},
        }


def shown(stage: MigStage, node: str) -> tuple[str, str, str]:
    """The agent's phase, the label that it does not obey, and the label's state by whoever."""
    status = stage.status(node)
    state = stage.object(node)["metadata"]["labels"].get(keys.MIG_CONFIG_STATE, "")
    return ("", "", state) if status is None else (status.phase, status.unadopted, state)


def is_asked_by_annotation(stage: MigStage, node: str) -> bool:
    """Whether the agent has seen the annotation, which wins over the label."""
    status = stage.status(node)
    return status is not None and status.source is RequestSource.ANNOTATION


def manager_found(stage: MigStage) -> str:
    """Whom the doctor on the node names as another owner of its layouts; empty for nobody."""
    return examined(stage.there, "--mig-mode=enforce").causes.get("rival-mig-manager", "")


def writers(stage: MigStage, node: str, since: int) -> dict[str, set[str]]:
    """Label to the users who have written it on a Node since a mark of the audit log."""
    found: dict[str, set[str]] = {keys.MIG_CONFIG: set(), keys.MIG_CONFIG_STATE: set()}
    for event in stage.plane.audit(since=since, resource="nodes", name=node):
        body = event.get("requestObject") or {}
        for key in found.keys() & ((body.get("metadata") or {}).get("labels") or {}).keys():
            found[key].add(event["user"]["username"])
    return found
