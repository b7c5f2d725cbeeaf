# SPDX-License-Identifier: Apache-2.0
"""From an earlier state of the project to this one and back, by Helm, on real nodes.

Both have their own chart and image. Judges are every version of the Nodes and of the agents' pods
that the API server had, its audit log, and a Prometheus in the cluster that scrapes every second.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from api import names
from tests import pages, previous_tree
from tests.agent.agent_process import until
from tests.controlplane.audit import Event
from tests.controlplane.plane import ADMIN, Object
from tests.deploy.chart import IMAGE
from tests.monitoring.prometheus import Prometheus
from tests.node import prometheus_pod
from tests.node.chart_cluster import ChartCluster, chart_cluster, offer, own_image
from tests.node.container_agents import PODS, is_ready, is_settled, labels_of
from tests.node.real_cluster import AGENT
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]

UPGRADE: Final = pages.page("docs/upgrade.md")
MACHINE: Final = "a100-pcie-pairs"
MOST_GAP_SECONDS: Final = 15.0
SCRAPED: Final = 'DCGM_FI_DEV_GPU_TEMP{gpu="0"}'
AT: Final = f"timestamp({SCRAPED})"
REFUSED: Final = (403, 422)
"""By a role, and by an admission policy."""
AGENTS: Final = f"system:serviceaccount:{names.NAMESPACE}:{AGENT}"
POD: Final = "authentication.kubernetes.io/pod-name"
KILLED: Final = 128 + signal.SIGKILL
"""Exit code of a container that is killed."""
ACCESS: Final = ("clusterroles", "roles", "validatingadmissionpolicies")


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """A cluster in which both have been put where a registry would have them."""

    stage: ChartCluster
    earlier: Path
    """The tree."""
    prometheus: Prometheus

    def set_image(self, version: str) -> None:
        """Change nothing but the agents' image."""
        change = ("set", "image", f"daemonset/{AGENT}", f"agent={IMAGE}:{version}")
        self.stage.cluster.plane.kubectl("-n", names.NAMESPACE, *change)

    def runs(self, version: str) -> bool:
        """Whether on each node one agent of that version does all that it is there for."""
        cluster = self.stage.cluster
        for name in self.stage.gpus:
            images = [it["spec"]["containers"][0]["image"] for it in cluster.pods(name)]
            if images != [f"{IMAGE}:{version}"]:
                return False
            if not is_settled(cluster, cluster.nodes[name], labels_of(MACHINE)):
                return False
        return True

    def newest(self) -> float:
        """When the node that was scraped longest ago was."""
        last = {it.labels["instance"]: it.value for it in self.prometheus.query(AT)}
        return min(last.values()) if last.keys() == self.stage.gpus.keys() else 0.0

    def gaps(self, since: float) -> dict[str, float]:
        """By node: the most seconds between two scrapes that had GPUs."""
        moments: dict[str, list[float]] = {name: [since] for name in self.stage.gpus}
        for found in self.prometheus.samples(SCRAPED, time.time() - since):
            moments[found.labels["instance"]] += [at for at, _ in found.points]
        return {
            name: max(after - before for before, after in pairwise(sorted(its)))
            for name, its in moments.items()
        }


CURRENT: Final = own_image().rpartition(":")[2]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versions]:
    """The earlier one is installed, as its README says, and scraped."""
    folder = tmp_path_factory.mktemp("upgrade")
    earlier = previous_tree.unpack(folder / "earlier")
    image = previous_tree.image(earlier)
    with chart_cluster(folder / "cluster", MACHINE, MACHINE) as stage:
        for node in stage.cluster.nodes.values():
            node.import_image(image)
            offer(node, own_image(), f"{IMAGE}:{previous_tree.VERSION}")
            offer(node, f"{IMAGE}:{CURRENT}", own_image())
        readme = (earlier / "README.md").read_text("utf-8")
        stage.type(pages.marked(readme, "helm"), tree=earlier)
        node = stage.cluster.nodes[next(iter(stage.gpus))]
        with prometheus_pod.running(
            stage.cluster, node, folder / "prometheus", interval="1s"
        ) as prometheus:
            found = Versions(stage=stage, earlier=earlier, prometheus=prometheus)
            until(lambda: found.runs(previous_tree.VERSION), SOON)
            yield found


@contextmanager
def judged(versions: Versions, version: str) -> Iterator[int]:
    """What happens in the block leads to agents of that version, and nothing is missing meanwhile.

    Agents are replaced one after the other, and each ends by itself: one that is killed may hold
    NVML, and leaves its Lease. Gives a mark in the audit log.
    """
    cluster = versions.stage.cluster
    until(lambda: versions.newest() > 0, SOON)
    wanted = {name: published(versions, name) for name in versions.stage.gpus}
    before = [pod for name in versions.stage.gpus for pod in cluster.pods(name)]
    since, began = cluster.resource_version(), time.time()
    yield cluster.plane.mark()
    until(lambda: versions.runs(version), SOON)
    ended = time.time()
    until(lambda: versions.newest() > ended, SOON)
    lost = [
        f"{it['metadata']['name']}: {key}"
        for it in cluster.versions("/api/v1/nodes", since=since)
        for key in wanted.get(it["metadata"]["name"], set()) - it["metadata"]["labels"].keys()
    ]
    assert lost == []
    gaps = versions.gaps(began)
    assert max(gaps.values()) < MOST_GAP_SECONDS, gaps
    later = [it for it in cluster.versions(PODS, since=since) if is_agent(it)]

    assert killed(later) == set()
    assert together(before, later) == []


def is_agent(pod: Object) -> bool:
    """Whether it is one of the DaemonSet, of either version."""
    return bool(pod["metadata"]["labels"].get("app.kubernetes.io/component") == "agent")


def killed(pods: Sequence[Object]) -> set[str]:
    """Those of which a container did not end by itself; ``pods``: every version of each."""
    return {
        pod["metadata"]["name"]
        for pod in pods
        for container in pod["status"].get("containerStatuses", ())
        for state in (container.get("state", {}), container.get("lastState", {}))
        if state.get("terminated", {}).get("exitCode") == KILLED
    }


def together(before: Sequence[Object], later: Sequence[Object]) -> list[str]:
    """Those that were deleted while another node's agent had left and the next was not yet ready.

    ``before``: the pods, one for each node; ``later``: each version since, oldest first.
    """
    serving = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in before}
    nodes, leaving, found = set(serving), set[str](), []
    for pod in later:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        if "deletionTimestamp" in pod["metadata"]:
            if name not in leaving and serving.keys() | {node} != nodes:
                found.append(name)
            leaving.add(name)
            if serving.get(node) == name:
                del serving[node]
        elif is_ready(pod):
            serving[node] = name
    return found


def published(versions: Versions, node: str) -> set[str]:
    """The Node's labels of the agent."""
    labels = versions.stage.cluster.nodes[node].object()["metadata"]["labels"]
    assert labels_of(MACHINE).keys() <= labels.keys()
    return {key for key in labels if key.startswith(("nvidia.com/", "gpuscape.io/"))}


def refused(versions: Versions, since: int) -> list[Event]:
    """Requests of agents for which they had no right."""
    events = versions.stage.cluster.plane.audit(since=since, user=AGENTS)
    return [
        it
        for it in events
        if it["responseStatus"]["code"] in REFUSED and "dryRun" not in it["requestURI"]
    ]


def test_an_upgrade_by_helm_and_its_rollback_leave_labels_and_scrapes_alone(
    versions: Versions,
) -> None:
    """Helm writes kinds that it does not know last: admission policies come after the DaemonSet."""
    cluster = versions.stage.cluster
    old = {it["metadata"]["name"] for name in versions.stage.gpus for it in cluster.pods(name)}
    with judged(versions, CURRENT) as since:
        versions.stage.type(pages.marked(UPGRADE, "helm"))
    assert refused(versions, since) == []
    written = cluster.plane.audit(since=since, user=ADMIN, verb=("create", "update", "patch"))
    rights = [it["stageTimestamp"] for it in written if it["objectRef"]["resource"] in ACCESS]
    begun = [
        it["requestReceivedTimestamp"]
        for it in cluster.plane.audit(since=since, user=AGENTS, resource="nodes")
        if not old.issuperset(it["user"]["extra"][POD])
    ]
    assert begun
    assert max(rights) < min(begun)

    with judged(versions, previous_tree.VERSION) as since:
        versions.stage.type(pages.marked(UPGRADE, "helm-back"))
    assert refused(versions, since) == []


def test_agents_whose_image_is_one_version_apart_from_their_policies_lose_no_label(
    versions: Versions,
) -> None:
    """The new one under the earlier policies, then the earlier one under the new ones."""
    with judged(versions, CURRENT):
        versions.set_image(CURRENT)
    with judged(versions, CURRENT):
        versions.stage.type(pages.marked(UPGRADE, "helm"))
    with judged(versions, previous_tree.VERSION) as since:
        versions.set_image(previous_tree.VERSION)
    assert refused(versions, since) == []
