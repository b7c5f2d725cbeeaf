# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory with GPU nodes, and what ``gpuscape free`` says of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from api import keys, names
from kube.api import LEASES, NODES, PODS
from kube.lease import micro_time
from tests.cli.conftest import Run
from tests.fakes.api import FakeApi
from tests.scheduler import fleets

GPU = "nvidia.com/gpu"
SLICE = "nvidia.com/mig-1g.10gb"
NOW = 1_000_000.0
PRODUCT = "NVIDIA-A100-PCIE-40GB"


class Api(FakeApi):
    """A cluster, and a command that is done with it."""

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()

    def with_node(
        self,
        name: str,
        pods: dict[str, int] | None = None,
        *,
        age: float = 10.0,
        agent: bool = True,
        gpus: int = 8,
        mig: int = 0,
        ready: str = "True",
        pool: str = "a",
        machine: str = fleets.MACHINE,
        **spec: Any,
    ) -> None:
        """A node whose agent renewed its Lease so many seconds ago; ``pods``: name to mask."""
        labels = {"pool": pool, keys.GPU_PRODUCT: PRODUCT}
        annotations = {keys.TOPOLOGY: fleets.topology(machine)} if agent else {}
        allocatable = {"pods": "110", GPU: str(gpus), **({SLICE: str(mig)} if mig else {})}
        conditions = [{"type": "Ready", "status": ready}]
        meta = {"name": name, "labels": labels, "annotations": annotations}
        status = {"allocatable": allocatable, "conditions": conditions}
        self.server.create(NODES, {"metadata": meta, "spec": spec, "status": status})
        if agent:
            lease = fleets.lease(pods=pods or {}, of=fleets.gen(machine))
            renewed = micro_time(datetime.fromtimestamp(NOW - age, UTC))
            meta = {
                "name": names.agent_lease(name),
                "annotations": lease["metadata"]["annotations"],
            }
            its = {**lease["spec"], "renewTime": renewed}
            self.server.create(LEASES, {"metadata": meta, "spec": its}, names.NAMESPACE)

    def with_pod(
        self, name: str, node: str, resource: str = GPU, count: int = 2, phase: str = "Running"
    ) -> None:
        """A pod that is bound."""
        container = {"name": "main", "resources": {"limits": {resource: str(count)}}}
        spec = {"nodeName": node, "containers": [container]}
        pod = {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}
        self.server.create(PODS, pod, "default")


def said(run: Run, *arguments: str) -> str:
    result = run("free", *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(run: Run, *arguments: str) -> tuple[int, str]:
    result = run("free", *arguments)
    assert len(result.output.splitlines()) == 1, result.output
    return result.exit_code, result.output


def found(run: Run, *arguments: str) -> dict[str, Any]:
    """The document, its nodes by name."""
    document = json.loads(said(run, *arguments, "-o", "json"))
    nodes = {node["node"]: node for node in document["nodes"]}
    return {**document, "nodes": nodes}
