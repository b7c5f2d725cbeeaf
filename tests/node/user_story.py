# SPDX-License-Identifier: Apache-2.0
"""The story of two users: what they and their admin type, and a sentence before each part.

``tests/node/test_two_users.py`` plays it on real nodes and keeps what came; the page is that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests import examples
from tests.controlplane.plane import ADMIN
from tests.controlplane.programs import ROOT
from tests.node.admin_shell import Recording
from tests.node.chart_cluster import ChartCluster

PAGE: Final = ROOT / "docs/two-users.md"
TITLE: Final = "The story of two users"
ABOUT: Final = (
    "Ana trains and serves large models, Ben small ones, and there are fewer GPUs than both would "
    "like. This page shows what they and their admin type, and what the commands print. "
    "`tests/node/test_two_users.py` plays the story on real nodes, checks each step by the "
    "kubelets' own records, and writes this page with `--write-pages`. Each command runs with the "
    "rights of the person before the `$`."
)
BED: Final = (
    "The nodes have kubelet 1.37.1, containerd 2.4.2, NVIDIA's device plugin 0.19.0 and simulated "
    "A100; a third one, `real-3`, has no GPUs. gpuscape and its scheduler are installed as on the "
    "page [Helm](helm.md), with `agent-values.yaml` of `examples/node-pools` and of "
    "`examples/labels`. A small program replaces the images of `registry.example`: it prints the "
    "devices that it got, and computes nothing. kube-scheduler waits 30 s for the extender, not "
    "200 ms, because the test machine may be busy."
)
_PODS: Final = (
    "get pods -o custom-columns=POD:.metadata.generateName,NODE:.spec.nodeName,PHASE:.status.phase"
)
_GRACE: Final = ",GRACE:.metadata.deletionGracePeriodSeconds"
_NOMINATED: Final = ",NOMINATED:.status.nominatedNodeName"
_EVENTS: Final = (
    "get events --field-selector=reason=Preempted -o custom-columns="
    "REASON:.reason,BY:.reportingComponent,POD:.involvedObject.name"
)
_JOB: Final = (
    "get job experiment -o custom-columns="
    "JOB:.metadata.name,ACTIVE:.status.active,FAILED:.status.failed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is typed without waiting for anything in between."""

    says: str
    typed: tuple[tuple[str, str], ...]
    """Who, and what."""


def _by(who: str, *commands: str) -> tuple[tuple[str, str], ...]:
    team = next((team for team, person in examples.PEOPLE.items() if person == who), "")
    begins = f"kubectl -n {team} " if team else ""
    return tuple((who, f"{begins}{command}") for command in commands)


SCENES: Final = {
    "teams": Scene(
        says="The admin creates three priority classes, and for each team a namespace with a "
        "quota and rights. [The files](examples.md) are in `examples/`.",
        typed=_by(
            ADMIN,
            "kubectl apply -f examples/priorities.yaml -f examples/teams/vision.yaml"
            " -f examples/teams/speech.yaml",
        ),
    ),
    "nodes": Scene(
        says="`real-1` has eight GPUs in four linked pairs. `real-2` has two such pairs, and one "
        "more GPU, which is divided into five MIG devices. Models of a third team hold two GPUs "
        "there, one of each pair, so the two free GPUs have no link between them.",
        typed=_by(ADMIN, "gpuscape free --pods"),
    ),
    "where": Scene(
        says="Ana wants to train on two GPUs. Which node would the pod get? `real-2` is the "
        "fuller node; a scheduler that only packs would choose it.",
        typed=_by(ADMIN, "gpuscape scheduler explain -f examples/training.yaml"),
    ),
    "training": Scene(
        says="She applies the file.",
        typed=_by("ana", "apply -f examples/training.yaml"),
    ),
    "linked": Scene(
        says="The pod runs on the node with the best rank. It prints the devices that the "
        "kubelet allocated: two GPUs, a linked pair.",
        typed=(
            *_by("ana", _PODS, "logs job/training"),
            *_by(ADMIN, "gpuscape free --pods"),
        ),
    ),
    "small": Scene(
        says="Ben has a model that needs only a seventh of a GPU.",
        typed=_by("ben", "apply -f examples/inference-mig.yaml"),
    ),
    "instance": Scene(
        says="It has a MIG device and uses no whole GPU.",
        typed=_by("ben", _PODS, "logs deployment/inference-mig"),
    ),
    "experiments": Scene(
        says="He also has experiments, with the lowest priority: three pods with two GPUs each.",
        typed=_by("ben", "apply -f examples/experiment.yaml"),
    ),
    "full": Scene(
        says="They get the three remaining pairs. Two more models of the third team take the "
        "last two GPUs, and the cluster is full.",
        typed=(*_by("ben", _PODS), *_by(ADMIN, "gpuscape free --pods")),
    ),
    "wanted": Scene(
        says="Now Ana wants to serve a model on two GPUs, with the highest priority. No node has "
        "room for it.",
        typed=(
            *_by(ADMIN, "gpuscape scheduler explain -f examples/inference.yaml"),
            *_by("ana", "apply -f examples/inference.yaml"),
        ),
    ),
    "preempted": Scene(
        says="kube-scheduler preempts a pod with the lowest priority: one experiment, which has "
        "20 s to end. Ana's model waits for its GPUs.",
        typed=(
            *_by("ben", f"{_PODS}{_GRACE}", _EVENTS),
            *_by("ana", f"{_PODS}{_NOMINATED}"),
        ),
    ),
    "serves": Scene(
        says="The experiment does not end by itself, so the kubelet kills it after the 20 s. The "
        "model gets its two GPUs: a linked pair. Training ran all the time.",
        typed=(
            *_by("ana", _PODS, "logs deployment/inference"),
            *_by(ADMIN, "gpuscape free --pods"),
        ),
    ),
    "waits": Scene(
        says="The experiment's Job has created another pod, which waits. The preemption does not "
        "count as a failure.",
        typed=(
            *_by("ben", _PODS, _JOB),
            *_by(ADMIN, "gpuscape scheduler explain -f examples/experiment.yaml"),
        ),
    ),
    "away": Scene(
        says="Ana deletes her model.",
        typed=_by("ana", "delete -f examples/inference.yaml"),
    ),
    "again": Scene(
        says="The third experiment runs on that pair.",
        typed=(*_by("ben", _PODS), *_by("ana", _PODS)),
    ),
}
"""By name, in the order of the page."""


class Story(Recording):
    """Plays the scenes in a cluster and keeps what came."""

    def __init__(self, cluster: ChartCluster) -> None:
        plane = cluster.cluster.plane
        super().__init__(plane.folder)
        self._cluster = cluster
        self._who: dict[str, Path] = {ADMIN: plane.kubeconfig()} | {
            person: plane.kubeconfig(person, (team,)) for team, person in examples.PEOPLE.items()
        }
        self._left = list(SCENES)
        self.says(BED)

    def play(self, name: str) -> list[str]:
        """The next scene, which has this name; what its commands print. Fails where one does."""
        assert name == self._left.pop(0)
        scene = SCENES[name]
        self.says(scene.says)
        every = []
        for who, command in scene.typed:
            printed = self._cluster.type(command, kubeconfig=self._who[who])
            self.keep(who, command, printed)
            every.append(printed)
        return every

    def written(self) -> str:
        """The page, when all scenes were played."""
        assert self._left == []
        return self.page(TITLE, ABOUT)
