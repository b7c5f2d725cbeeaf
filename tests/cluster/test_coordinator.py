# SPDX-License-Identifier: Apache-2.0
"""The coordinator as its Deployment starts it, with token and policies, on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from api import keys, mig_status_annotation, names
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from fleet.policy.fleet_policy_sync import KEY
from fleet.rollout_settings import RolloutSettings
from kube.api import NODES
from tests.agent.agent_process import until
from tests.cluster.agents import Site
from tests.cluster.logged_requests import logged
from tests.cluster.mig_nodes import (
    SETTLE_SECONDS,
    SLACK_SECONDS,
    SLOTS,
    NodeModel,
    coordinator,
    install_coordinator,
    leader,
    metrics,
    modelled_nodes,
    slots_in_use,
    working,
)
from tests.fleet.rollout_judge import KnownFleet, KnownPod, RolloutJudge
from tests.kube.clusters import client

pytestmark = pytest.mark.cluster

NODE_COUNT = 10
TAINTS = (f"{keys.MIG_LAYOUT_PENDING}:NoSchedule", "example.com/kept=x:NoExecute")
POLICY = """\
version: v1
layouts:
- {name: evicting, nodes: pool=policed, layout: sevenths, drain: evict}
"""


def test_ten_nodes_change_three_at_a_time_and_no_pod_is_deleted(site: Site, tmp_path: Path) -> None:
    plane = site.plane
    install_coordinator(site)
    models = modelled_nodes(site, NODE_COUNT)
    foreign = models[0].name
    plane.kubectl("cordon", foreign)
    models[1].hold("in-the-way")
    # one waits for the layout that its admin asks for, one for its agent's word that none is
    idle = plane.make_node("gpu-idle")
    plane.kubectl("taint", "node", models[2].name, idle, *TAINTS)
    idle_api = client(
        names.AGENT,
        plane.kubeconfig(token=plane.bound_token(site.namespace, names.AGENT, idle)),
    )
    site.edit(models[1].name, labels={"pool": "policed"}, annotations={keys.MIG_LAYOUT: None})
    policy = {"metadata": {"name": names.MIG_POLICY}, "data": {KEY: POLICY}}
    plane.demand("POST", f"/api/v1/namespaces/{site.namespace}/configmaps", policy)
    mark = plane.mark()

    def has_startup_taint(name: str) -> bool:
        taints = site.node(name)["spec"].get("taints") or []
        return any(it["key"] == keys.MIG_LAYOUT_PENDING for it in taints)

    def are_done(*left_out: str) -> bool:
        return all(
            keys.MIG_PERMIT not in site.annotations(it.name) and it.is_done
            for it in models
            if it.name not in left_out
        )

    with working(models):
        with coordinator(site, "first", tmp_path) as address:
            until(lambda: sum(it.is_done for it in models) >= 2)
            assert has_startup_taint(idle)
            until(lambda: metrics(address)["startup_taint_nodes/no-agent"] == 1)
            until(lambda: metrics(address)["startup_taint_oldest_seconds/no-agent"] > 0)
            says = mig_status_annotation.encode(MigStatusAnnotation(v=2, phase=MigPhase.IDLE))
            idle_api.patch(NODES, idle, {"metadata": {"annotations": {keys.MIG_STATUS: says}}})
            until(lambda: not has_startup_taint(idle))
        assert leader(site) == ""
        with coordinator(site, "second", tmp_path) as address:
            until(lambda: are_done(foreign))
            assert not models[0].is_done
            until(lambda: metrics(address)["oldest_wait_seconds/cordoned"] > 0)
            assert metrics(address)["waiting_nodes/cordoned"] == 1
            plane.kubectl("uncordon", foreign)
            until(are_done)
            until(lambda: not has_startup_taint(models[2].name))
            until(lambda: not slots_in_use(site))
            until(lambda: metrics(address)["slots_used"] == 0)
            figures = metrics(address)

    assert (figures["leader"], figures["slots"], figures["policy_nodes/written"]) == (1, SLOTS, 1)
    assert len([name for name in figures if name.startswith("policy_info/")]) == 1
    assert figures["changes_total/applied"] > 0
    for name in (models[2].name, idle):
        taints = site.node(name)["spec"]["taints"]
        assert [it["key"] for it in taints] == ["example.com/kept"]
    for model in models:
        node = site.node(model.name)
        assert not node["spec"].get("unschedulable")
        assert node["metadata"]["annotations"].keys().isdisjoint(names.SCALE_DOWN_GUARDS)
        assert node["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] == "56"
    by_policy = [it.name for it in models if keys.MIG_POLICY in site.annotations(it.name)]
    assert by_policy == [models[1].name]
    account = names.username(names.COORDINATOR, site.namespace)
    judge = RolloutJudge(known_fleet(models))
    judge.take_all(logged(plane.audit(since=mark), account))
    assert judge.faults == []
    assert (judge.evicted, judge.permitted) == (["in-the-way"], NODE_COUNT)
    assert 1 < judge.most_in_change <= SLOTS  # all three only where the machine is fast enough
    events = plane.audit(since=mark, user=account)
    assert [it for it in events if it["verb"] in ("delete", "deletecollection")] == []
    evicted = {it["objectRef"]["name"] for it in events if it["objectRef"].get("subresource")}
    assert evicted == {"in-the-way", *(f"plugin-{it.name}" for it in models)}
    refused = [it for it in events if it["responseStatus"]["code"] in (403, 422)]
    assert refused == []


def known_fleet(models: list[NodeModel]) -> KnownFleet:
    """What is true of these nodes and their pods, of which the second one's has to leave."""
    terms = RolloutSettings(slots=SLOTS, canary_seconds=1.0, settle_seconds=SETTLE_SECONDS)
    known = KnownFleet(terms=terms, slack=SLACK_SECONDS, replicas_are_known=False)
    for model in models:
        plugin = KnownPod(node=model.name, is_plugin=True, grace=False)
        known.pods[f"plugin-{model.name}"] = plugin
    known.pods["in-the-way"] = KnownPod(node=models[1].name, affected=True, grace=False)
    known.drains[models[1].name] = "evict"
    return known
