# SPDX-License-Identifier: Apache-2.0
"""A cluster for ``gpuscape mig why`` and ``cancel``, with Nodes that the agent's own code wrote."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from api import keys, names
from kube.api import LEASES, NODES, PODS
from kube.lease import micro_time
from tests.fakes.api import FakeApi

NODE: Final = "gpu-7"
POD: Final = "agent-x7"
MANAGER: Final = "kubectl-annotate"


class ToldCluster(FakeApi):
    """One node with an agent's pod and Lease, and a coordinator that acts."""

    def __init__(self) -> None:
        super().__init__(manager=MANAGER)
        for name in (names.COORDINATOR_LEASE, names.agent_lease(NODE)):
            self.server.create(LEASES, _lease(name), names.NAMESPACE)
        labels = {"app.kubernetes.io/name": "gpuscape", "app.kubernetes.io/component": "agent"}
        pod = {
            "metadata": {"name": POD, "labels": labels},
            "spec": {"nodeName": NODE, "containers": [{"name": "agent"}]},
        }
        self.server.create(PODS, pod, names.NAMESPACE)

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()

    def with_node(
        self,
        annotations: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        *,
        capacity: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """The Node has these; who wrote the layout is a person at kubectl."""
        metadata = {"name": NODE, "labels": dict(labels or {}), "annotations": dict(annotations)}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"conditions": ready, "capacity": dict(capacity or {})}
        body = {"metadata": metadata, "spec": spec, "status": status}
        self.server.create(NODES, body, manager=MANAGER)

    def notes(self) -> dict[str, str]:
        """The Node's annotations."""
        return dict(self.server.get(NODES, NODE)["metadata"].get("annotations") or {})


def _lease(name: str) -> dict[str, Any]:
    renewed = micro_time(datetime.fromtimestamp(time.time(), UTC))
    return {"metadata": {"name": name}, "spec": {"holderIdentity": "c-0", "renewTime": renewed}}


LAYOUT: Final = keys.MIG_LAYOUT
