# SPDX-License-Identifier: Apache-2.0
"""``scheduler explain`` leaves out the nodes that kube-scheduler leaves out, for its reasons, and
shows of the others the ranks that the extender answers it with."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import main
from scheduler.filters.filter_notes import NO_CANDIDATE, ONE_CANDIDATE
from tests.agent.agent_process import until
from tests.cluster import gpu_fleet
from tests.cluster.extender import PATIENT, Extender, extender
from tests.cluster.front import Front, forwarded
from tests.cluster.gpu_fleet import Written
from tests.cluster.scheduling import GPU, PROFILE, SERVICE, Stage, configuration
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.controlplane.versions import VERSIONS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NODES = (
    Written(name="plain-1", machine="dgx1-v100", labels={"zone": "a"}),
    Written(name="plain-2", machine="dgx1-v100", labels={"zone": "a", "generation": "7"}),
    Written(name="other", machine="dgx1-v100", labels={"zone": "b", "generation": "9"}),
    Written(name="worded", machine="dgx1-v100", labels={"zone": "c", "generation": "new"}),
    Written(name="cordoned", machine="dgx1-v100", labels={"zone": "a"}),
    Written(name="tainted", machine="dgx1-v100", labels={"zone": "a"}),
    Written(name="evicting", machine="dgx1-v100", labels={"zone": "a"}),
    Written(name="soft", machine="dgx1-v100", labels={"zone": "a"}),
    Written(name="small", machine="a30-pair", labels={"zone": "a"}),
    Written(name="busy", machine="dgx1-v100", labels={"zone": "a"}),
    Written(name="crowded", machine="dgx1-v100", labels={"zone": "a"}),
    Written(name="ended", machine="dgx1-v100", labels={"zone": "a"}),
)
SPECS: dict[str, Object] = {
    "cordoned": {"unschedulable": True},
    "tainted": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]},
    "evicting": {"taints": [{"key": "sick", "effect": "NoExecute"}]},
    "soft": {"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]},
}
ROOM: dict[str, Object] = {"small": {"cpu": "2", "memory": "4Gi"}, "crowded": {"pods": "1"}}
BOUND: tuple[tuple[str, int, Object, str], ...] = (
    ("busy", 5, {"cpu": "100", "memory": "1Ti"}, "Running"),
    ("busy", 1, {"cpu": "20"}, "Pending"),
    ("crowded", 1, {}, "Running"),
    ("ended", 8, {"cpu": "128"}, "Succeeded"),
    ("ended", 8, {"cpu": "128"}, "Failed"),
)
"""Node, GPUs, other requests and phase of pods that are there."""

TOO_MANY = 16
"""GPUs that no node has: where a pod asks for them, the scheduler says why of every node."""


def about(key: str, operator: str, *values: str) -> Object:
    """One expression."""
    return {"key": key, "operator": operator, "values": list(values)}


def affine(*terms: Object) -> Object:
    """A pod's spec with these terms of required node affinity."""
    required = {"nodeSelectorTerms": list(terms)}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return {"affinity": {"nodeAffinity": node}}


def labelled(*expressions: Object) -> Object:
    """A term about labels."""
    return {"matchExpressions": list(expressions)}


def named(operator: str, name: str) -> Object:
    """A term about the Node's name."""
    return {"matchFields": [about("metadata.name", operator, name)]}


def tolerating(*tolerations: Object) -> Object:
    """A pod's spec with these."""
    return {"tolerations": list(tolerations)}


def asking(
    first: tuple[Object, ...] = (), *, requests: Object | None = None, **more: str
) -> Object:
    """A pod's spec with these requests, and init containers."""
    limits = {"nvidia.com/gpu": "1"}
    main_one = {"name": "main", "image": "none"}
    resources = {"limits": limits, "requests": {**(requests or {}), **more, **limits}}
    init = [{"name": f"init-{at}", "image": "none", **each} for at, each in enumerate(first)]
    return {"containers": [{**main_one, "resources": resources}], "initContainers": init}


def init(sidecar: bool = False, **requests: str) -> Object:
    """An init container."""
    more = {"restartPolicy": "Always"} if sidecar else {}
    return {"resources": {"requests": requests}, **more}


NOWHERE = ("nowhere", "a resource that no node has")
REFUSED = ("Gt of a word", "Gt of a word, or")
"""The API server takes these, the command takes them only of a pod that is there."""
CASES: dict[str, Object] = {
    "nothing": {},
    "selector": {"nodeSelector": {"zone": "a"}},
    "two labels": {"nodeSelector": {"zone": "a", "generation": "7"}},
    NOWHERE[0]: {"nodeSelector": {"zone": "z"}},
    "In": affine(labelled(about("zone", "In", "b", "c"))),
    "NotIn": affine(labelled(about("zone", "NotIn", "b", "c"))),
    "NotIn, no label": affine(labelled(about("generation", "NotIn", "7"))),
    "Exists": affine(labelled(about("generation", "Exists"))),
    "DoesNotExist": affine(labelled(about("generation", "DoesNotExist"))),
    "Gt": affine(labelled(about("generation", "Gt", "7"))),
    "Lt": affine(labelled(about("generation", "Lt", "9"))),
    REFUSED[0]: affine(labelled(about("generation", "Gt", "many"))),
    REFUSED[1]: affine(
        labelled(about("generation", "Gt", "many")), labelled(about("zone", "In", "b"))
    ),
    "empty or": affine({}, labelled(about("zone", "In", "b", "c"))),
    "or": affine(labelled(about("zone", "In", "b")), labelled(about("generation", "Lt", "8"))),
    "and": affine(labelled(about("zone", "In", "a"), about("generation", "Exists"))),
    "selector and affinity": {
        "nodeSelector": {"zone": "a"},
        **affine(labelled(about("generation", "DoesNotExist"))),
    },
    "by name": affine(named("In", "plain-1"), named("In", "tainted"), named("In", "soft")),
    "not by name": affine(named("NotIn", "plain-1")),
    "by name and label": affine({**named("In", "plain-2"), **labelled(about("zone", "In", "a"))}),
    "tolerates a value": tolerating({"key": "team", "value": "a", "effect": "NoSchedule"}),
    "tolerates another value": tolerating({"key": "team", "operator": "Equal", "value": "b"}),
    "tolerates another effect": tolerating(
        {"key": "sick", "operator": "Exists", "effect": "NoSchedule"}
    ),
    "tolerates by key": tolerating({"key": "sick", "operator": "Exists"}),
    "tolerates all": tolerating({"operator": "Exists"}),
    "tolerates NoSchedule": tolerating({"operator": "Exists", "effect": "NoSchedule"}),
    "tolerates the cordon": tolerating(
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    ),
    "cpu": asking(cpu="20"),
    "cpu in thousandths": asking(cpu="2001m"),
    "memory": asking(memory="1.5Ti"),
    "memory of a node": asking(memory="2Ti"),
    NOWHERE[1]: asking(requests={"ephemeral-storage": "1Gi"}),
    "init containers": asking((init(cpu="100"), init(cpu="2")), cpu="1"),
    "sidecars": asking((init(sidecar=True, cpu="2"), init(cpu="7")), cpu="1"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The scheduler, the extender, and who sees what they say to each other."""

    stage: Stage
    helper: Extender
    front: Front
    folder: Path

    def explained(self, *arguments: str) -> Any:
        """What the command prints as JSON."""
        kubeconfig = str(self.stage.plane.kubeconfig())
        command = ("scheduler", "explain", *arguments, "--kubeconfig", kubeconfig, "-o", "json")
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
        return json.loads(result.output)

    def refused(self, spec: Object, gpus: int) -> tuple[Counter[str], Any]:
        """Reasons with their counts that the scheduler has for a pod that no node can take, and
        what is explained of the pod."""
        pod = self.stage.add_pod(gpus, spec=spec)
        until(lambda: _message(self.stage.pod(pod)) != "")
        counts = _counts(_message(self.stage.pod(pod)))
        explained = self.explained(pod, "-n", self.stage.namespace)
        self.stage.remove_pod(pod)
        return counts, explained

    def placed(self, spec: Object, gpus: int) -> tuple[str, list[str] | None, dict[str, int], Any]:
        """Where a pod lands, the nodes that the extender was asked about, the scores that it
        answered, and what was explained of the pod before."""
        explained = self.explained("-f", str(self._manifest(spec, gpus)))
        pod = self.stage.add_pod(gpus, spec=spec)
        node = self.stage.placed(pod)
        calls = zip(list(self.front.calls), list(self.front.replies), strict=False)
        its = [each for each in calls if each[0]["Pod"]["metadata"]["name"] == pod]
        self.stage.remove_pod(pod)
        until(lambda: pod.encode() not in self.helper.ask("GET", f"/debug/nodes/{node}")[1])
        if not its:
            return node, None, {}, explained
        call, reply = its[-1]
        scores = {each["Host"]: each["Score"] for each in json.loads(reply)}
        return node, sorted(call["NodeNames"]), scores, explained

    def _manifest(self, spec: Object, gpus: int) -> Path:
        container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "not-there", "namespace": self.stage.namespace},
            "spec": {"schedulerName": PROFILE, "containers": [container], **spec},
        }
        file = self.folder / "pod.json"
        file.write_text(json.dumps(pod), encoding="utf-8")
        return file


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("stage")
    with Stage.running(folder, request.param) as stage:
        _fill(stage)
        with extender(stage, tmp_path_factory.mktemp("extender"), PATIENT) as helper:
            front = Front(stage.server, forwarded(helper.port, stage.client, SERVICE))
            with front.serving() as address:
                stage.start_scheduler(configuration(address, stage.client, timeout="30s"))
                yield Cluster(stage=stage, helper=helper, front=front, folder=folder)


@pytest.mark.parametrize("case", CASES)
def test_nodes_are_left_out_for_the_reasons_of_the_scheduler(cluster: Cluster, case: str) -> None:
    spec = CASES[case]
    if "containers" in spec:
        spec = {**spec, "containers": [_with_gpus(spec["containers"][0], TOO_MANY)]}

    counts, explained = cluster.refused(spec, TOO_MANY)

    reasons = Counter(reason for each in explained["left_out"] for reason in each["reasons"])
    alike: Counter[str] = Counter()
    for reason, count in reasons.items():
        alike[_alike(reason)] += count
    assert counts == alike
    assert explained["nodes"] == []
    assert explained["notes"][0] == NO_CANDIDATE


@pytest.mark.parametrize("case", [case for case in CASES if case not in (*NOWHERE, *REFUSED)])
def test_the_extender_is_asked_about_the_candidates_and_answers_their_ranks(
    cluster: Cluster, case: str
) -> None:
    node, asked, scores, explained = cluster.placed(CASES[case], 1)

    ranks = {each["node"]: each["rank"] for each in explained["nodes"]}
    if asked is None:
        assert list(ranks) == [node]
        assert explained["notes"][0] == ONE_CANDIDATE
        return
    assert asked == sorted(ranks)
    assert node in ranks
    assert scores == (ranks if len(set(ranks.values())) > 1 else {})


def _fill(stage: Stage) -> None:
    """All that is there before the scheduler starts."""
    plane = stage.plane
    gpu_fleet.add_nodes(plane, NODES)
    gpu_fleet.tell_states(plane, NODES)
    for name, spec in SPECS.items():
        plane.demand("PATCH", f"/api/v1/nodes/{name}", {"spec": spec}, content_type=MERGE_PATCH)
    for name, room in ROOM.items():
        path = f"/api/v1/nodes/{name}/status"
        status = {"status": {"allocatable": room, "capacity": room}}
        plane.demand("PATCH", path, status, content_type=MERGE_PATCH)
    pods = f"/api/v1/namespaces/{plane.namespace('bound')}/pods"
    for at, (node, gpus, requests, phase) in enumerate(BOUND):
        pod = gpu_fleet.pod(f"bound-{at}", gpus, node)
        pod["spec"]["containers"][0]["resources"]["requests"] = requests
        plane.demand("POST", pods, pod)
        ended: Object = {"status": {"phase": phase}}
        plane.demand("PATCH", f"{pods}/bound-{at}/status", ended, content_type=MERGE_PATCH)


def _with_gpus(container: Object, gpus: int) -> Object:
    limits: Object = {GPU: str(gpus)}
    requests = {**container["resources"]["requests"], **limits}
    return {**container, "resources": {"limits": limits, "requests": requests}}


def _message(pod: Object) -> str:
    """What the Event FailedScheduling says too; empty before the scheduler was there."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
            return str(condition.get("message", ""))
    return ""


def _counts(message: str) -> Counter[str]:
    """Reason to its number of nodes: ``0/3 nodes are available: 2 one, 1 other. preemption: …``"""
    counted = message.partition("nodes are available: ")[2].partition(". ")[0].rstrip(".")
    assert counted, message
    found: Counter[str] = Counter()
    for each in re.split(r", (?=[0-9]+ )", counted):
        number, _, reason = each.partition(" ")
        found[_alike(reason)] += int(number)
    return found


def _alike(reason: str) -> str:
    """The reason without what differs between versions: which taint, and who narrowed to names."""
    if re.match(r"node\(s\) had untolerated taint", reason):
        return "taint"
    if reason == "node(s) didn't satisfy plugin(s) [NodeAffinity]":
        return "node(s) didn't match Pod's node affinity/selector"
    return reason
