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
    "like. They and their admin type what stands here, and this is what came: "
    "`tests/node/test_two_users.py` plays the story on real nodes, checks each step by the "
    "kubelets' own records, and writes this page with `--write-pages`. The name before each `$` is "
    "whose rights the command had."
)
BED: Final = (
    "The nodes have kubelet 1.37.1, containerd 2.4.2, NVIDIA's device plugin 0.19.0 and simulated "
    "A100; a third one, `real-3`, has no GPUs. gpuscape and its scheduler are installed by the "
    "lines of [Helm](helm.md), with `agent-values.yaml` of `examples/node-pools` and of "
    "`examples/labels`. In the place of `registry.example`'s images runs a small program that "
    "prints which devices it was given; it computes nothing. kube-scheduler waits 30 s for the "
    "extender, not 200 ms, since the machine of a test may be busy."
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
        says="The admin makes three priorities, and a namespace with a quota and rights for each "
        "team: [the files](examples.md) are those of `examples/`.",
        typed=_by(
            ADMIN,
            "kubectl apply -f examples/priorities.yaml -f examples/teams/vision.yaml"
            " -f examples/teams/speech.yaml",
        ),
    ),
    "nodes": Scene(
        says="`real-1` has eight GPUs in four linked pairs. `real-2` has two such pairs, and one "
        "GPU more, which is cut into five MIG devices. Models of a third team hold two GPUs there, "
        "one of each pair: the two that are free have no link between them.",
        typed=_by(ADMIN, "gpuscape free --pods"),
    ),
    "where": Scene(
        says="Ana wants to train on two GPUs. Where would they be? `real-2` is the fuller node, "
        "which a scheduler that only packs would take.",
        typed=_by(ADMIN, "gpuscape scheduler explain -f examples/training.yaml"),
    ),
    "training": Scene(
        says="She applies the file.",
        typed=_by("ana", "apply -f examples/training.yaml"),
    ),
    "linked": Scene(
        says="It runs on the node that came first, and prints what the kubelet handed out: two "
        "GPUs, which are a linked pair.",
        typed=(
            *_by("ana", _PODS, "logs job/training"),
            *_by(ADMIN, "gpuscape free --pods"),
        ),
    ),
    "small": Scene(
        says="Ben has a model for which a seventh of a GPU is enough.",
        typed=_by("ben", "apply -f examples/inference-mig.yaml"),
    ),
    "instance": Scene(
        says="It has a MIG device, and no whole GPU was taken for it.",
        typed=_by("ben", _PODS, "logs deployment/inference-mig"),
    ),
    "experiments": Scene(
        says="He also has experiments, of the lowest class: three pods of two GPUs each.",
        typed=_by("ben", "apply -f examples/experiment.yaml"),
    ),
    "full": Scene(
        says="They get the three pairs that are left. Two more models of the third team take the "
        "last two GPUs, and the cluster is full.",
        typed=(*_by("ben", _PODS), *_by(ADMIN, "gpuscape free --pods")),
    ),
    "wanted": Scene(
        says="Now Ana has a model to serve, on two GPUs and of the highest class. No node has "
        "room for it.",
        typed=(
            *_by(ADMIN, "gpuscape scheduler explain -f examples/inference.yaml"),
            *_by("ana", "apply -f examples/inference.yaml"),
        ),
    ),
    "preempted": Scene(
        says="kube-scheduler preempts a pod of the lowest class: one experiment, which has 20 s "
        "to end. Ana's model waits for its place.",
        typed=(
            *_by("ben", f"{_PODS}{_GRACE}", _EVENTS),
            *_by("ana", f"{_PODS}{_NOMINATED}"),
        ),
    ),
    "serves": Scene(
        says="The experiment does not end by itself, and the kubelet kills it when its time is "
        "over. The model gets its two GPUs: a linked pair. Training has run on all the time.",
        typed=(
            *_by("ana", _PODS, "logs deployment/inference"),
            *_by(ADMIN, "gpuscape free --pods"),
        ),
    ),
    "waits": Scene(
        says="The experiment's Job has made another pod, which waits for its turn. To be "
        "preempted does not count as a failure.",
        typed=(
            *_by("ben", _PODS, _JOB),
            *_by(ADMIN, "gpuscape scheduler explain -f examples/experiment.yaml"),
        ),
    ),
    "away": Scene(
        says="Ana takes her model away.",
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
