# SPDX-License-Identifier: Apache-2.0
"""A cluster for two users: one node of linked pairs, one with MIG devices, gpuscape on both.

It is installed by the lines of README and docs/helm.md, with the taints and tolerations of
``examples/node-pools``; the device plugins read a configuration of ``examples/time-slicing.yaml``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec.structs import replace

from api import keys
from api.mig_resources import MigStrategy
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription, MigInstanceSpec
from tests import examples, pages
from tests.agent.agent_process import until
from tests.cluster.scheduling import PROFILE
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.node import example_images, handed_out
from tests.node.chart_cluster import ChartCluster, chart_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.handed_out import DeviceGrant, RunningContainer
from tests.node.real_node import SOON, RealNode

MACHINE: Final = "a100-pcie-pairs"
PAIRS: Final = load_machine(MACHINE)
"""Eight GPUs, each linked to one other."""
LINKED: Final = {frozenset({it.a, it.b}) for it in PAIRS.direct}
"""Indices of two GPUs that share links, by the machine's description."""
OTHERS: Final = "search"
"""The third team; it has no file."""
TAINTS: Final = [
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
]
VALUES: Final = (
    " -f examples/node-pools/agent-values.yaml -f examples/labels/agent-values.yaml"
    " --set agent.settings.mig-strategy=mixed"
)
"""What an admin adds to the line that switches the scheduler on."""


def parts() -> MachineDescription:
    """Two linked pairs, and a GPU that is cut into five."""
    instances = tuple(MigInstanceSpec(profile="1g.5gb", start=at, id=7 + at) for at in range(5))
    *whole, cut = PAIRS.gpus[:5]
    gpus = (*whole, replace(cut, mig=True, instances=instances))
    return replace(PAIRS, gpus=gpus, direct=PAIRS.direct[:2])


WHOLE: Final = sum(not gpu.mig for gpu in parts().gpus)
"""GPUs of that node that pods get whole; they come first."""


def plugin_settings(name: str) -> Mapping[str, Any]:
    """A configuration of ``time-slicing.yaml``."""
    found: Mapping[str, Any] = yaml.safe_load(examples.only("time-slicing.yaml")["data"][name])
    return found


@contextmanager
def user_stage(folder: Path) -> Iterator[UserStage]:
    """Scheduler and extender answer within. Raises NotPreparedError and ProgramError."""
    whole = plugin_settings("whole")
    with chart_cluster(
        folder, MACHINE, parts(), strategy=MigStrategy.MIXED, settings=whole
    ) as cluster:
        made = UserStage(cluster)
        both = [made.pairs, made.parts]
        example_images.provide(both, folder)
        for node in both:
            made.taint(node, TAINTS)
        made.taint(made.without_gpus, [])  # what no node with GPUs takes has to run somewhere
        helm = pages.page("docs/helm.md")
        cluster.type(pages.marked(pages.page("README.md"), "helm"))
        cluster.type(pages.marked(helm, "label"))
        cluster.type(pages.marked(helm, "scheduler").rstrip() + VALUES)
        until(lambda: all(map(made.is_labelled, both)), SOON)
        cluster.start_scheduling()
        yield made


class UserStage:
    """The cluster, and what is true there."""

    def __init__(self, cluster: ChartCluster) -> None:
        self.cluster = cluster
        self.plane = cluster.cluster.plane
        self.pairs, self.parts, self.without_gpus = cluster.cluster.nodes.values()

    def taint(self, node: RealNode, taints: list[dict[str, str]]) -> None:
        """Have these on a Node and no others."""
        body = {"spec": {"taints": taints}}
        path = f"/api/v1/nodes/{node.name}"
        self.plane.demand("PATCH", path, body, content_type=MERGE_PATCH)

    def is_labelled(self, node: RealNode) -> bool:
        """Whether its agent has labelled it, and has published who holds what."""
        labels = node.object()["metadata"]["labels"]
        annotations = self.cluster.cluster.lease(node.name).get("metadata", {}).get("annotations")
        return keys.NVLINK_ISLAND in labels and keys.STATE in (annotations or {})

    def pods(self, team: str, owner: str) -> list[Object]:
        """Those of one Job or Deployment that are not asked to end."""
        listed = self.plane.demand("GET", f"/api/v1/namespaces/{team}/pods")["items"]
        return [
            it
            for it in listed
            if f"{it['metadata']['name']}-".startswith(f"{owner}-")
            and "deletionTimestamp" not in it["metadata"]
        ]

    def phases(self, team: str, owner: str) -> list[str]:
        """Of those pods, in the order of the alphabet."""
        return sorted(it["status"]["phase"] for it in self.pods(team, owner))

    def started(self, team: str, owner: str, number: int = 1) -> list[Object]:
        """Those pods, when so many run and no others are there."""
        until(lambda: self.phases(team, owner) == ["Running"] * number, SOON)
        return self.pods(team, owner)

    def gpus_of(self, pod: Object, node: RealNode) -> frozenset[int]:
        """Indices of what the kubelet of the node has handed out to it."""
        metadata = pod["metadata"]
        held = self.cluster.held(node)
        return frozenset(held.get(f"{metadata['namespace']}/{metadata['name']}", ()))

    def grant(self, pod: Object, node: RealNode) -> DeviceGrant:
        """The only one of its only container."""
        uid = pod["metadata"]["uid"]
        (found,) = (it for it in handed_out.grants(node) if it.pod_uid == uid)
        return found

    def container(self, pod: Object, node: RealNode) -> RunningContainer:
        """Its only one, which runs there."""
        uid = pod["metadata"]["uid"]
        (found,) = (it for it in handed_out.running(node) if it.pod_uid == uid)
        return found

    def versions(self, since: str) -> list[Object]:
        """Of the pods of all teams, in the order in which they were written."""
        every = self.cluster.cluster.versions("/api/v1/pods", since=since)
        teams = {*examples.PEOPLE, OTHERS}
        return [it for it in every if it["metadata"]["namespace"] in teams]

    def add_model(self, name: str, node: RealNode | None = None) -> None:
        """Have a model of the third team on one GPU, of a node or of any; it runs then."""
        pod = gpu_pod(name, gpus("serve", 1), node=node.name if node else None)
        pod["spec"] |= {
            "schedulerName": PROFILE,
            "priorityClassName": "inference",
            "tolerations": [{"operator": "Exists"}],
        }
        path = f"/api/v1/namespaces/{OTHERS}/pods"
        self.plane.demand("POST", path, pod)
        found = f"{path}/{name}"
        until(lambda: self.plane.demand("GET", found)["status"]["phase"] == "Running", SOON)

    def leave_free(self, node: RealNode, wanted: set[int]) -> None:
        """Have models on all whole GPUs of a node but these; the extender knows it then."""
        self.plane.account(OTHERS, "default")
        for number in range(1, WHOLE + 1):
            self.add_model(f"model-{number}", node)
        for name, its in self.cluster.held(node).items():
            if its & wanted:
                path = f"/api/v1/namespaces/{OTHERS}/pods/{name.partition('/')[2]}"
                self.plane.demand("DELETE", f"{path}?gracePeriodSeconds=0")
        until(lambda: self.cluster.free(node, WHOLE) == wanted, SOON)

    def agrees(self) -> bool:
        """Whether ``gpuscape free`` shows what the kubelets have handed out of whole GPUs."""
        shown = json.loads(self.cluster.type("gpuscape free --pods -o json"))["nodes"]
        for node in (self.pairs, self.parts):
            (its,) = (it for it in shown if it["node"] == node.name)
            whole = range(len(PAIRS.gpus) if node is self.pairs else WHOLE)
            holders = {
                it["pod"]: set(it["gpus"]) for it in its["holders"] if {*it["gpus"]} <= {*whole}
            }
            held = self.cluster.held(node)
            if holders != held or {*its["free"]} != {*whole} - set().union(*held.values()):
                return False
        return True

    def remove_users(self) -> None:
        """Take away what the teams have applied; no pod of theirs is left then."""
        options = ("--ignore-not-found", "--cascade=foreground", "--wait=false")
        for name, team in examples.USERS.items():
            self.plane.kubectl("-n", team, "delete", *options, "-f", examples.FOLDER / name)
        paths = [f"/api/v1/namespaces/{team}/pods" for team in examples.PEOPLE]
        until(lambda: not any(self.plane.demand("GET", it)["items"] for it in paths), SOON)
