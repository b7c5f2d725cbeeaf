# SPDX-License-Identifier: Apache-2.0
"""The most that one agent may have to do: sixteen GPUs, of which everything is read and served."""

from __future__ import annotations

import csv
import io
import re
from typing import Final

from api import names
from exporters.dcgm.catalog import CATALOG
from exporters.dcgm.render import Renderer
from exporters.dcgm.series_labels import SeriesIdentity
from tests.agent.agent_process import until
from tests.controlplane.plane import Object
from tests.node.container_agents import Agent, agents, change, labels_of, roll_out
from tests.node.real_cluster import AGENT, RealCluster
from tests.node.real_node import SOON
from tests.observed import observed

MACHINE: Final = "hgx-16"
GPUS: Final = 16
LIMIT_MIB: Final = 192
"""Less than the shipped limit."""
STRATEGIC: Final = "application/strategic-merge-patch+json"
"""Merges containers, variables and volumes by their names."""

_COUNTERS: Final = "every-family"
_FILE: Final = "counters.csv"
_PLACE: Final = "/etc/counters"


def give(cluster: RealCluster) -> dict[str, Agent]:
    """Have the agents read that machine, with all metric groups, within :data:`LIMIT_MIB`."""
    text = io.StringIO()
    csv.writer(text).writerows((it.name, it.kind.value, it.help) for it in CATALOG)
    config_maps = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps"
    body: Object = {"metadata": {"name": _COUNTERS}, "data": {_FILE: text.getvalue()}}
    cluster.plane.demand("POST", config_maps, body)
    variables = {
        "GPUSCAPE_SIMULATE": MACHINE,
        "GPUSCAPE_OWN_FAMILIES": "all",
        "GPUSCAPE_COUNTERS": f"{_PLACE}/{_FILE}",
    }
    container = {
        "name": "agent",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "resources": {"limits": {"memory": f"{LIMIT_MIB}Mi"}},
        "volumeMounts": [{"name": "counters", "mountPath": _PLACE}],
    }
    volume = {"name": "counters", "configMap": {"name": _COUNTERS}}
    spec = {"containers": [container], "volumes": [volume]}
    change(cluster, {"spec": {"template": {"spec": spec}}}, how=STRATEGIC)
    roll_out(cluster)
    return agents(cluster, labels_of(MACHINE))


def take_back(cluster: RealCluster) -> None:
    """Have them as they were."""
    cluster.plane.kubectl("-n", names.NAMESPACE, "rollout", "undo", f"daemonset/{AGENT}")
    roll_out(cluster)
    path = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps/{_COUNTERS}"
    cluster.plane.demand("DELETE", path)


def families() -> set[str]:
    """Names of the DCGM families that the machine has a value of."""
    seen = observed(MACHINE)
    text = Renderer(CATALOG).render(
        seen.snapshot, seen.samples, seen.samples, SeriesIdentity(hostname=MACHINE)
    )
    return families_in(text.decode())


def families_in(text: str) -> set[str]:
    """Names of the DCGM families with a value in a scrape."""
    return set(re.findall(r"^(DCGM_\w+)\{", text, re.MULTILINE))


def working_set_bytes(cluster: RealCluster, agent: Agent) -> float:
    """Memory of the agent's container, as its kubelet counts it for evictions."""
    return kubelets_figure(cluster, agent, "container_memory_working_set_bytes")


def kubelets_figure(cluster: RealCluster, agent: Agent, name: str) -> float:
    """A figure of the agent's container from its kubelet's own metrics, once it is there.

    Source: kubelet, /metrics/cadvisor.
    """
    path = f"/api/v1/nodes/{agent.node.name}/proxy/metrics/cadvisor"
    wanted = (f"{name}{{", 'container="agent"', f'pod="{agent.name}"')
    found: list[str] = []

    def is_there() -> bool:
        lines = cluster.plane.request("GET", path).body.get("text", "").splitlines()
        found.extend(it for it in lines if all(word in it for word in wanted))
        return bool(found)

    until(is_there, SOON)
    return float(found[0].rpartition("} ")[2].split()[0])
