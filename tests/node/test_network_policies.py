# SPDX-License-Identifier: Apache-2.0
"""The chart's network policies on real nodes whose network enforces them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from api import names
from tests import pages
from tests.agent.agent_process import until
from tests.cluster.scheduling import PROFILE
from tests.controlplane.plane import Object
from tests.node import prometheus_pod
from tests.node.chart_cluster import (
    HOW_TO_CHANGE,
    KUBE_SCHEDULER,
    ChartCluster,
    chart_cluster,
)
from tests.node.gpu_cluster import NAMESPACE, PODS
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.network import SERVICE_IP
from tests.node.policy_enforcer import PolicyEnforcer
from tests.node.policy_paths import NAMES, Origin, Place
from tests.node.real_cluster import AGENT
from tests.node.real_node import SOON
from tests.node.service_address import ADDRESS

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

MACHINE: Final = "a100-pcie-pairs"
PARTS: Final = ("scheduler.enabled=true", "mig.mode=enforce", "agent.migDevices=sys-admin")
"""Values with which all programs run."""
ELSEWHERE: Final = 8080
EXTENDER: Final = 8443
MONITORING: Final = "monitoring"
STRANGER: Final = "stranger"
OURS: Final = {
    "agent": "metrics",
    "coordinator": "metrics",
    "scheduler": "https",
    "kube-scheduler": "https",
    "certificates": "probes",
}
"""Component to a port of its: all that listen, but for the agent's probes."""
Paths = frozenset[tuple[str, str]]
"""From whom to where connections come about."""

NEEDED: Final[Paths] = frozenset(
    {
        *((component, place) for component in OURS for place in ("API server", "names")),
        ("kube-scheduler", "scheduler"),
    }
)
"""What our programs ask for."""
BY_EVERYBODY: Final = ("agent", "coordinator", "scheduler", "kube-scheduler")
"""Who answers anybody where no namespace is named."""
OUTSIDE: Final = ("API server", "names", "stranger", "stranger's 8443")
"""Where our policies say nothing about those of other namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All programs of the chart on two nodes, and pods of two other namespaces on each."""

    chart: ChartCluster

    def set(self, **values: str) -> None:
        """Have the chart with policies or without."""
        words = f"networkPolicies.enabled={values['enabled']},monitoring.onlyFor={values['only']}"
        self.chart.type(f"{HOW_TO_CHANGE} --set {words}")
        self.roll_out()

    def roll_out(self) -> None:
        """Wait until all programs are ready, by the kubelets' probes."""
        deployments = (names.COORDINATOR, names.SCHEDULER, KUBE_SCHEDULER, names.CERTIFICATES)
        self.chart.roll_out(f"daemonset/{AGENT}", *(f"deployment/{it}" for it in deployments))

    def pod(self, component: str) -> Object:
        """One of a program's that runs."""
        ours = f"labelSelector=app.kubernetes.io%2Fcomponent%3D{component}"
        path = f"/api/v1/namespaces/{names.NAMESPACE}/pods?{ours}"
        found = self.chart.cluster.plane.demand("GET", path)["items"]
        return next(
            it
            for it in found
            if it["status"]["phase"] == "Running" and "deletionTimestamp" not in it["metadata"]
        )

    def origin(self, pod: Object) -> Origin:
        """Where its connections come from."""
        metadata = pod["metadata"]
        node = self.chart.cluster.nodes[pod["spec"]["nodeName"]]
        return Origin(node=node, namespace=metadata["namespace"], pod=metadata["name"])

    def origins(self) -> Mapping[str, Origin]:
        """Our programs, and pods of others on either node."""
        found = {component: self.origin(self.pod(component)) for component in OURS}
        for node in self.chart.cluster.nodes.values():
            for namespace in (STRANGER, MONITORING):
                origin = Origin(node=node, namespace=namespace, pod=node.name)
                found[f"{namespace} on {node.name}"] = origin
        return found

    def places(self) -> Mapping[str, Place]:
        """Where they try to connect to, by name."""
        pods = {component: self.pod(component) for component in OURS}
        found = {
            component: (str(pod["status"]["podIP"]), _port(pod, OURS[component]))
            for component, pod in pods.items()
        }
        agent = pods["agent"]
        found["agent's probes"] = (found["agent"][0], _port(agent, "probes"))
        found["API server"], found["names"] = (SERVICE_IP, 443), NAMES
        path = f"/api/v1/namespaces/{STRANGER}/pods/{agent['spec']['nodeName']}"
        stranger = str(self.chart.cluster.plane.demand("GET", path)["status"]["podIP"])
        found["stranger"] = (stranger, ELSEWHERE)
        found["stranger's 8443"] = (stranger, EXTENDER)
        return found

    def open(self) -> Paths:
        """The paths on which somebody answers, from a pod to itself left out."""
        origins, places = self.origins(), self.places()
        return frozenset(
            (whence, where)
            for whence, origin in origins.items()
            for (where, place), answers in zip(
                places.items(), origin.reaches(places.values()).values(), strict=True
            )
            if answers and not where.startswith(whence)
        )

    def comes_to(self, expected: Paths) -> None:
        """Wait until these paths are open and no others: rules follow policies a moment later.

        Fails with what is open in the end.
        """
        with contextlib.suppress(AssertionError):
            until(lambda: self.open() == expected, SOON / 4)
        found = self.open()
        assert sorted(found - expected) == [], "open, and should not be"
        assert sorted(expected - found) == [], "closed, and should not be"

    def others(self, *places: str, by: str = "") -> Paths:
        """Paths to these places from pods of other namespaces, or of one of them."""
        nodes = self.chart.cluster.nodes
        return frozenset(
            (f"{namespace} on {node}", place)
            for namespace in ([by] if by else [STRANGER, MONITORING])
            for node in nodes
            for place in places
        )


def _port(pod: Object, name: str) -> int:
    ports = [it for each in pod["spec"]["containers"] for it in each.get("ports", ())]
    return next(int(it["containerPort"]) for it in ports if it["name"] == name)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Rules of a foreign program are in force on every node; there are no policies yet."""
    with chart_cluster(tmp_path_factory.mktemp("policies"), MACHINE) as chart:
        cluster, helm = chart.cluster, pages.page("docs/helm.md")
        enforcers = [PolicyEnforcer.start(cluster, node) for node in cluster.nodes.values()]
        chart.type(pages.marked(pages.page("README.md"), "helm"))
        chart.type(pages.marked(helm, "label"))
        chart.type(f"{HOW_TO_CHANGE}{''.join(f' --set {each}' for each in PARTS)}")
        found = Stage(chart=chart)
        chart.start_scheduling()
        found.roll_out()
        # from here on connections to the Service come from whom they come from
        address = str(found.pod("scheduler")["status"]["podIP"])
        for enforcer in enforcers:
            enforcer.translate(ADDRESS, 443, f"{address}:{EXTENDER}")
        for namespace in (STRANGER, MONITORING):
            cluster.plane.account(namespace, "default")
            for name in cluster.nodes:
                _make_pod(chart, namespace, name)
        for node in cluster.nodes.values():
            for port in (ELSEWHERE, EXTENDER):
                Origin(node=node, namespace=STRANGER, pod=node.name).listen(port)
        yield found


def _make_pod(chart: ChartCluster, namespace: str, node: str) -> None:
    """Have a pod on a node, with the node's name; it runs when this returns."""
    plane, path = chart.cluster.plane, f"/api/v1/namespaces/{namespace}/pods"
    pod = gpu_pod(node, gpus("main", 0))
    pod["spec"] |= {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
    plane.demand("POST", path, pod)
    until(lambda: plane.demand("GET", f"{path}/{node}")["status"]["phase"] == "Running", SOON)


def test_without_policies_whoever_tries_gets_through(stage: Stage) -> None:
    stage.set(enabled="false", only="")
    origins, places = stage.origins(), stage.places()
    stage.comes_to(frozenset((a, b) for a in origins for b in places if not b.startswith(a)))


def test_with_policies_programs_reach_what_they_need_and_are_asked_on_their_ports_alone(
    stage: Stage,
) -> None:
    stage.set(enabled="true", only="")
    stage.comes_to(NEEDED | stage.others(*BY_EVERYBODY, *OUTSIDE))


def test_with_a_namespace_for_metrics_no_other_pod_gets_through_and_all_goes_on(
    stage: Stage,
) -> None:
    chart, cluster = stage.chart, stage.chart.cluster
    chart.type(pages.marked(pages.page("docs/helm.md"), "policies"))
    stage.comes_to(NEEDED | stage.others(*OUTSIDE) | stage.others(*BY_EVERYBODY, by=MONITORING))

    # policies hold back no node whose pods they are, and every other one
    agent = stage.places()["agent"]
    has_it = {stage.pod("agent")["spec"]["nodeName"]}
    from_nodes = {it.name: Origin(node=it).reaches([agent])[agent] for it in cluster.nodes.values()}
    assert {name for name, answers in from_nodes.items() if answers} == has_it

    # an agent that starts behind them is ready, and Prometheus has its readings
    cluster.plane.kubectl("-n", names.NAMESPACE, "rollout", "restart", f"daemonset/{AGENT}")
    stage.roll_out()
    (gpu_node,) = (cluster.nodes[name] for name in stage.chart.gpus)
    folder = cluster.plane.folder / "prometheus"
    with prometheus_pod.running(cluster, gpu_node, folder, namespace=MONITORING) as prometheus:
        until(lambda: len(prometheus.query("DCGM_FI_DEV_GPU_TEMP")) == 8, SOON)

    # kube-scheduler asks the extender, and the extender learns what the agent publishes
    pod = gpu_pod("ranked", gpus("main", 2))
    pod["spec"]["schedulerName"] = PROFILE
    cluster.plane.demand("POST", PODS, pod)
    try:
        deployment = f"deployment/{names.SCHEDULER}"
        logs = ("-n", names.NAMESPACE, "logs", deployment, "--all-pods", "--tail=-1")
        allocated = f'"pod": "{NAMESPACE}/ranked"'
        until(lambda: allocated in cluster.plane.kubectl(*logs), SOON)
    finally:
        cluster.plane.demand("DELETE", f"{PODS}/ranked?gracePeriodSeconds=0")
        until(lambda: not chart.held(gpu_node), SOON)
