# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig cancel``: what it prints, waits for and ends with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api import keys, names
from api.mig_permit_annotation import PermitPhase
from cli.mig.cluster import mig_cancel
from kube.api import CONFIG_MAPS, NODES
from kube.api_errors import Forbidden
from tests.agent.layouts.test_enforced_layouts import EnforcingScene
from tests.cli.conftest import Run
from tests.cli.mig.cluster.test_mig_why import stuck, waiting
from tests.cli.mig.cluster.told_nodes import LAYOUT, NODE, POD, ToldCluster
from tests.fakes.api import Call


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ToldCluster:
    made = ToldCluster()
    monkeypatch.setattr(mig_cancel, "kubeconfig_client", lambda *_: made)
    monkeypatch.setattr(mig_cancel, "_POLL_SECONDS", 0.0)
    return made


def cancel(run: Run, *arguments: str, code: int = 0) -> str:
    result = run("mig", "cancel", NODE, *arguments)
    assert result.exit_code == code, result.output
    return result.output


def document(run: Run, *arguments: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cancel(run, "-o", "json", *arguments, code=code))
    return found


def agent_ends(cluster: ToldCluster, *, after: int) -> None:
    """The agent reports that its request was cancelled, after so many reads of the Node."""
    reads = 0

    def end(_call: Call) -> None:
        nonlocal reads
        reads += 1
        if reads == after:
            status = json.loads(cluster.notes()[keys.MIG_STATUS]) | {"outcome": "cancelled"}
            notes = {keys.MIG_REQUEST: None, keys.MIG_STATUS: json.dumps(status)}
            cluster.server.patch(NODES, NODE, {"metadata": {"annotations": notes}})

    cluster.before("get", end, resource=NODES)


def test_it_says_what_is_undone_and_waits_until_all_is(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(waiting())
    agent_ends(cluster, after=5)
    text = cancel(run)
    assert "Cancelled: nothing of the change has begun." in text
    assert f"  desired layout (annotation {LAYOUT})" in text
    assert text.count("Waiting: the agent ends its request") == 1
    assert "Over; the request's outcome: cancelled." in text
    assert LAYOUT not in cluster.notes()


def test_what_is_not_over_in_time_is_named(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(waiting())
    text = cancel(run, "--timeout", "0", code=7)
    assert "Not over yet:" in text
    assert "  the agent ends its request" in text


def test_a_dry_run_writes_and_waits_for_nothing(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(waiting())
    before = cluster.server.version
    text = cancel(run, "--dry-run")
    assert "Would be cancelled" in text
    assert "Would be undone:" in text
    assert cluster.server.version == before
    assert [call.dry_run for call in cluster.calls if call.verb == "patch"] == [True]


def test_a_change_that_has_begun_ends_with_1(run: Run, cluster: ToldCluster) -> None:
    scene = EnforcingScene()
    scene.asks()
    scene.permit(PermitPhase.PROCEED)
    cluster.with_node(scene.node)
    found = document(run, "--timeout", "0", code=1)
    assert found["verdict"] == "begun"
    assert found["written"] is True
    assert "goes on to its end" in found["text"]
    assert found["left"][0] == "the change goes on to its end"
    assert keys.MIG_PERMIT in cluster.notes()


def test_a_stuck_change_ends_with_1_and_its_command(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(stuck())
    text = cancel(run, code=1)
    assert "Not cancelled: the change is stuck" in text
    assert f"Next: kubectl -n gpuscape exec {POD} -c actuator -- gpuscape mig restore" in text


def test_a_policy_refuses_with_the_command_that_pauses_it(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(waiting(), {"pool": "a"})
    text = "version: v1\nlayouts:\n- {name: all, nodes: pool=a, layout: all-balanced}\n"
    body = {"metadata": {"name": names.MIG_POLICY}, "data": {"policy.yaml": text}}
    cluster.server.create(CONFIG_MAPS, body, names.NAMESPACE)
    before = cluster.server.version
    found = document(run, code=5)
    assert found["verdict"] == "refused"
    assert found["command"] == "kubectl -n gpuscape edit configmap gpuscape-mig-policy"
    assert found["written"] is False
    assert cluster.server.version == before


def test_a_missing_right_ends_with_5(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(waiting())
    cluster.fail("patch", Forbidden("patch Node gpu-7: forbidden: jane"), resource=NODES)
    text = cancel(run, code=5)
    assert "nothing was changed: you may not patch nodes" in text


def test_nothing_to_cancel_and_no_such_node(run: Run, cluster: ToldCluster) -> None:
    assert "there is no node gpu-7" in cancel(run, code=2)
    cluster.with_node({})
    assert "Nothing to cancel: no layout is desired." in cancel(run)


def test_the_keys_of_the_document_stay(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(waiting())
    assert list(document(run, "--dry-run")) == [
        *("node", "verdict", "text", "dry_run", "written", "undone", "left", "outcome"),
        *("notes", "command"),
    ]
