# SPDX-License-Identifier: Apache-2.0
"""What the agent's own recorder sends passes the policy, whatever its Node is called."""

from __future__ import annotations

import contextlib

import pytest

from agent.cluster.membership import EVENT_BUDGET
from api import names
from kube.events import Recorder
from tests.access.stage import Roles, Stage
from tests.controlplane.plane import Plane
from tests.kube.clusters import client

LONG = ".".join(["n" * 63, "o" * 63, "p" * 63, "q" * 7 + "-" + "r" * 53])
"""As long as a Node's name can be; cut at 200 characters it would end in a dash."""


@pytest.mark.cluster
@pytest.mark.parametrize("long", [False, True], ids=["usual", "longest"])
def test_events_of_the_agent_are_taken_and_counted(plane: Plane, long: bool) -> None:
    stage = Stage(plane, Roles.SHIPPED)
    node = LONG if long else stage.node
    if long:
        plane.demand("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    uid = plane.demand("GET", f"/api/v1/nodes/{node}")["metadata"]["uid"]
    about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    kubeconfig = plane.kubeconfig(token=plane.bound_token(stage.namespace, names.AGENT, node))

    def recorded() -> Recorder:
        made = Recorder(api, controller=names.AGENT, instance="agent-1", budget=EVENT_BUDGET)
        made.record(about, reason="Tried", action="Try", note="n" * 2000, warning=True)
        made.flush()
        return made

    try:
        stage.wait_until_enforced()
        with contextlib.closing(client(names.AGENT, kubeconfig)) as api:
            dropped = [recorded().dropped for _ in range(2)]
    finally:
        stage.close()
        if long:
            plane.demand("DELETE", f"/api/v1/nodes/{node}")

    events = plane.events_about(node, namespace=names.EVENT_NAMESPACE)
    ours = [it for it in events if it["reportingController"] == names.AGENT and "series" in it]
    assert dropped == [0, 0]
    assert [it["series"]["count"] for it in ours] == [2]
