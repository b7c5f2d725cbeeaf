# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler explain``: from a running extender, or from the cluster itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api import keys, names
from cli.scheduler import explain_command
from kube.api import LEASES, NODES, PODS, PRIORITY_CLASSES, Object
from kube.api_errors import Forbidden, Unreachable
from scheduler.explanation_source import RELATIVE
from scheduler.filters.filter_notes import (
    NO_CANDIDATE,
    NOT_APPLIED,
    ONE_CANDIDATE,
    PRIORITY_UNKNOWN,
)
from tests.cli.conftest import Run
from tests.fakes.api import Call, FakeApi
from tests.scheduler import calls, fleets
from tests.scheduler.extenders import Served, served

TABLE = """\
NODE    RANK  GPUS             GB/S  WHY
whole     10  2,3 100 %  300 of 300  the best
broken     4  0,2 100 %   20 of 300  its GPUs reach 20 of 300 GB/s; whole reaches 300
bare       0  -                   -  no annotation gpuscape.io/topology: does the agent run there?
cpu        -  -                   -  left out: NO_GPUS
""".replace("NO_GPUS", "Insufficient nvidia.com/gpu (2 requested, 0 of 0 left)")
GPU = "nvidia.com/gpu"
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: none}}]
"""
"""Of a cluster where nothing listens."""


class Api(FakeApi):
    """A cluster with four nodes, and a command that is done with it."""

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()

    def with_bare_node(self, name: str, gpus: int | str = 8, **of_node: Any) -> None:
        """A node without an agent; ``of_node``: annotations, labels, spec."""
        meta = {key: of_node.pop(key) for key in ("annotations", "labels") if key in of_node}
        status = {"allocatable": {"pods": "110", "cpu": "64", GPU: str(gpus)}}
        self.server.create(NODES, {"metadata": {"name": name, **meta}, "status": status, **of_node})

    def with_node(
        self,
        name: str,
        pods: dict[str, int],
        *,
        state: str | None = None,
        renewed: str | None = None,
        **of_node: Any,
    ) -> None:
        """A node, and its agent's Lease, which names these pods and their GPUs.

        ``state``: text in the place of the agent's; ``renewed``: when the Lease was.
        """
        self.with_bare_node(name, annotations={keys.TOPOLOGY: fleets.topology()}, **of_node)
        lease = fleets.lease(pods=pods)
        spec = {key: lease["spec"][key] for key in ("holderIdentity", "leaseDurationSeconds")}
        annotations = lease["metadata"]["annotations"] | ({keys.STATE: state} if state else {})
        spec |= {"renewTime": renewed} if renewed else {}
        meta = {"name": names.agent_lease(name), "annotations": annotations}
        self.server.create(LEASES, {"metadata": meta, "spec": spec}, names.NAMESPACE)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """In place of the cluster of the kubeconfig."""
    made = Api()
    made.with_node("broken", {"p": 0b11111010})
    made.with_node("whole", {"q": 0b11110011})
    made.with_bare_node("bare")
    made.with_bare_node("cpu", gpus=0)
    monkeypatch.setattr(explain_command, "_client", lambda _: made)
    return made


@pytest.fixture
def extender() -> Iterator[Served]:
    """One of two nodes, of which b is full."""
    with served() as running:
        yield running


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    """A pod that is not there yet, with two GPUs."""
    return written(tmp_path, {"kind": "Pod", **calls.pod()})


def written(folder: Path, pod: object) -> str:
    file = folder / "pod.yaml"
    file.write_text(json.dumps(pod), encoding="utf-8")
    return str(file)


def train(gpus: int = 2, **spec: Any) -> Object:
    pod = calls.pod(gpus, uid=None)
    return {"metadata": {"name": "train"}, "spec": {**pod["spec"], **spec}}


def found(run: Run, *arguments: str) -> Any:
    return json.loads(said(run, *arguments, "-o", "json"))


def left_out(found: Any) -> dict[str, str]:
    return {each["node"]: each["why"] for each in found["left_out"]}


def ranks(found: Any) -> dict[str, int]:
    return {each["node"]: each["rank"] for each in found["nodes"]}


def said(run: Run, *arguments: str) -> str:
    result = run("scheduler", "explain", *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(run: Run, *arguments: str) -> tuple[int, str]:
    result = run("scheduler", "explain", *arguments)
    assert len(result.output.splitlines()) == 1, result.output
    return result.exit_code, result.output


def test_nodes_are_told_best_first_and_why(run: Run, api: Api) -> None:
    api.server.create(PODS, train(), "default")
    assert said(run, "train") == TABLE


def test_wide_has_more_columns(run: Run, api: Api) -> None:
    api.server.create(PODS, train(), "default")
    head, first, *_ = said(run, "train", "-o", "wide").splitlines()
    assert head.split()[4:] == ["FREE", "LEFT", "FOR", "OTHERS", "CLASS", "WHY"]
    assert first.split()[7:] == ["300", "2,3", "0.0", fleets.gen(), "the", "best"]


def test_json_holds_all_and_node_chooses(run: Run, api: Api) -> None:
    api.server.create(PODS, train(), "default")
    found = json.loads(said(run, "train", "--node", "broken", "-o", "json"))
    assert (found["pod"], found["containers"]) == ("default/train", [2])
    (node,) = found["nodes"]
    assert (node["node"], node["free"]) == ("broken", [0, 2])


def test_it_goes_by_the_settings_of_the_extender(run: Run, api: Api, tmp_path: Path) -> None:
    """Of another resource the pod asks for nothing; some kubelets would refuse it."""
    api.server.create(PODS, train(), "default")
    other = said(run, "train", "--gpu-resource", "nvidia.com/gpu.shared")
    assert other == "Pod default/train asks for no whole GPU: it gets no scores.\n"
    api.with_node("split", {"s": 0b11101110})
    file = tmp_path / "settings.yaml"
    file.write_text("topology-manager: single-numa-node\n", encoding="utf-8")
    found = said(run, "train", "--node", "split", "--config", str(file))
    assert "the kubelet would refuse the pod" in found


def test_the_scope_counts_for_a_pod_of_several_containers(run: Run, api: Api) -> None:
    twice = train(1)
    (container,) = twice["spec"]["containers"]
    twice["spec"]["containers"] = [{**container, "name": name} for name in ("a", "b")]
    api.server.create(PODS, twice, "default")
    api.with_node("split", {"s": 0b11101110})
    strict = ("train", "--node", "split", "--topology-manager", "single-numa-node")
    assert "would refuse" not in said(run, *strict)
    assert "would refuse" in said(run, *strict, "--topology-manager-scope", "pod")


def test_the_leases_may_be_in_another_namespace(run: Run, api: Api) -> None:
    api.server.create(PODS, train(), "default")
    found = said(run, "train", "--agents-namespace", "kube-system")
    assert found.count("the agent's Lease has no annotation gpuscape.io/state") == 2


def test_a_pod_that_runs_is_judged_as_if_it_came_now(run: Run, api: Api) -> None:
    """Its own pair is free for it."""
    api.server.create(PODS, train(nodeName="full"), "default")
    api.with_node("full", {"train": 0b11, "others": 0b11111100})
    found = json.loads(said(run, "train", "--node", "full", "-o", "json"))
    assert found["nodes"][0]["free"] == [0, 1]


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0b11, "is on full and has GPUs 0,1, joined by NVLink."),
        (0b101, "is on full and has GPUs 0,2, not joined by NVLink."),
        (0b1000, "is on full and has GPU 3."),
    ],
)
def test_of_a_pod_that_is_placed_it_says_where_and_on_which_gpus(
    run: Run, api: Api, extender: Served, mask: int, words: str
) -> None:
    """Before the table, with a running extender too; a field of its own in JSON."""
    api.server.create(PODS, train(nodeName="full"), "default")
    api.with_node("full", {"train": mask, "others": 0xFF ^ mask})

    for more in ((), ("--server", f"http://127.0.0.1:{extender.port}")):
        first, empty, head, *_ = said(run, "train", *more).splitlines()
        assert (first, empty) == (f"Pod default/train {words}", "")
        assert head.startswith("NODE")
    gpus = [place for place in range(8) if mask >> place & 1]
    linked = {0b11: True, 0b101: False}.get(mask)
    placed = {"node": "full", "ended": False, "gpus": gpus, "linked": linked}
    assert found(run, "train")["placed"] == placed


def test_of_a_pod_that_is_not_placed_it_says_nothing_about_that(
    run: Run, api: Api, tmp_path: Path
) -> None:
    api.server.create(PODS, train(), "default")
    assert found(run, "train")["placed"] is None
    file = written(tmp_path, {"kind": "Pod", **train(nodeName="whole")})
    assert said(run, "-f", file).startswith("NODE")


def test_a_pod_with_a_mig_device_has_a_part_of_a_gpu(run: Run, api: Api) -> None:
    api.with_node("cut", {"train": 0b100})
    api.server.create(PODS, train(0, nodeName="cut"), "default")
    assert said(run, "train") == (
        "Pod default/train is on cut and has a part of GPU 2.\n\n"
        "Pod default/train asks for no whole GPU: it gets no scores.\n"
    )


def _without_agent(api: Api) -> None:
    api.with_bare_node("full")


def _without_the_pod(api: Api) -> None:
    api.with_node("full", {"others": 0b11})


def _without_right(api: Api) -> None:
    def forbid(call: Call) -> None:
        if call.resource is LEASES:
            raise Forbidden("get leases in gpuscape: forbidden")

    api.with_node("full", {"train": 0b11})
    api.before("get", forbid)


def _with_damage(api: Api) -> None:
    api.with_node("full", {"train": 0b11}, state="{")


def _with_an_earlier_pod(api: Api) -> None:
    """Of the same name; the agent has not written since this one was bound."""
    api.with_node("full", {"train": 0b11}, renewed="2026-01-01T00:00:00.000000Z")


@pytest.mark.parametrize(
    "arrange",
    [_without_agent, _without_the_pod, _without_right, _with_damage, _with_an_earlier_pod],
)
def test_without_published_gpus_it_says_the_node_alone(
    run: Run, api: Api, arrange: Callable[[Api], None]
) -> None:
    arrange(api)
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"}
    pod = {**train(nodeName="full"), "status": {"phase": "Running", "conditions": [bound]}}
    api.server.create(PODS, pod, "default")
    assert said(run, "train").startswith("Pod default/train is on full.\n\nNODE")


def test_a_pod_that_has_ended_has_no_gpus(run: Run, api: Api) -> None:
    api.with_node("full", {"train": 0b11})
    api.server.create(PODS, {**train(nodeName="full"), "status": {"phase": "Succeeded"}}, "default")
    assert said(run, "train").startswith("Pod default/train has ended on full.\n\nNODE")
    assert found(run, "train")["placed"]["gpus"] is None


def test_a_manifest_stands_for_a_pod_that_is_not_there(run: Run, api: Api, manifest: str) -> None:
    assert said(run, "-f", manifest) == TABLE
    assert not api.server.objects(PODS)


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("kind", ["Deployment", "Job", "ReplicaSet", "StatefulSet"])
def test_a_workload_stands_for_the_pod_that_it_would_make(
    run: Run, tmp_path: Path, kind: str
) -> None:
    """With the template's annotations, of which the scores depend, under the workload's name."""
    pod = train()
    template = {"metadata": {"annotations": {"gpuscape.io/link": "nvlink"}}, "spec": pod["spec"]}
    workload = {"kind": kind, "metadata": {"name": "many"}, "spec": {"template": template}}

    answer = found(run, "-f", written(tmp_path, workload))

    ranks = {it["node"]: it["rank"] for it in answer["nodes"]}
    assert answer["pod"].endswith("/many")
    assert answer["link"] == "nvlink"
    assert ranks["whole"] == 10


def test_a_pod_without_whole_gpus_has_no_scores(run: Run, api: Api) -> None:
    api.server.create(PODS, train(0), "default")
    assert said(run, "train") == "Pod default/train asks for no whole GPU: it gets no scores.\n"


def test_a_running_extender_says_what_it_believes(
    run: Run, extender: Served, manifest: str
) -> None:
    url = f"http://127.0.0.1:{extender.port}"
    asked = ("-f", manifest, "--no-filters", "--server")
    answer = found(run, *asked, url)
    assert ranks(answer) == {"a": 10, "b": 0}
    assert (answer["filtered"], answer["left_out"]) == (False, [])
    assert answer["notes"] == [NOT_APPLIED]
    assert answer == found(run, *asked, f"{url}/v1/")
    assert said(run, *asked, url).endswith(f"\n\n{NOT_APPLIED}\n")


def test_nodes_that_are_named_are_shown_with_their_rank_among_all(
    run: Run, extender: Served, manifest: str
) -> None:
    url = f"http://127.0.0.1:{extender.port}"
    asked = ("-f", manifest, "--no-filters", "--server", url, "--node", "b")
    assert ranks(found(run, *asked)) == {"b": 0}
    code, line = refused(run, *asked, "--node", "other")
    assert (code, line) == (2, "Error: there is no node other in the cluster\n")


def test_an_extender_is_asked_about_the_candidates_alone(
    run: Run, api: Api, extender: Served, manifest: str
) -> None:
    """It knows nodes a and b; of the cluster's nodes b is left out, and it knows no other."""
    for name, spec in (("a", {}), ("b", {"unschedulable": True})):
        api.with_bare_node(name, spec=spec)
    url = f"http://127.0.0.1:{extender.port}"
    answer = found(run, "-f", manifest, "--server", url)
    assert {each["node"]: each["reason"] for each in answer["nodes"]} == {
        "a": None,
        **dict.fromkeys(("bare", "broken", "whole"), "unknown_node"),
    }
    assert left_out(answer)["b"] == "node(s) were unschedulable"
    assert answer["filtered"]


def test_an_extender_that_no_node_is_left_for_is_not_asked_about_all(
    run: Run, api: Api, extender: Served
) -> None:
    api.server.create(PODS, train(nodeSelector={"no": "where"}), "default")
    url = f"http://127.0.0.1:{extender.port}"
    answer = found(run, "train", "--server", url)
    assert (answer["nodes"], len(answer["left_out"])) == ([], 4)
    assert answer["notes"] == [NO_CANDIDATE]


def test_a_pod_of_the_cluster_is_told_to_the_extender(run: Run, api: Api, extender: Served) -> None:
    api.server.create(PODS, train(4), "default")
    url = f"http://127.0.0.1:{extender.port}"
    found = json.loads(said(run, "train", "--server", url, "-o", "json"))
    assert found["containers"] == [4]


def test_an_extender_that_is_not_there_is_said(run: Run, manifest: str) -> None:
    code, line = refused(run, "-f", manifest, "--no-filters", "--server", "http://127.0.0.1:1")
    assert code == 4
    assert line.startswith("Error: http://127.0.0.1:1/v1/explain does not answer: ")


def test_another_server_is_not_taken_for_an_extender(
    run: Run, extender: Served, manifest: str
) -> None:
    url = f"http://127.0.0.1:{extender.port}/elsewhere"
    code, line = refused(run, "-f", manifest, "--no-filters", "--server", url)
    assert code == 4
    assert f"{url}/v1/explain answers 404" in line


def test_a_pod_that_is_not_there_is_named(run: Run, api: Api) -> None:
    del api
    assert refused(run, "train", "-n", "kube-system") == (
        2,
        "Error: there is no pod train in namespace kube-system: see -n\n",
    )


def test_a_node_that_is_not_there_is_named_with_the_nearest_one(run: Run, api: Api) -> None:
    api.server.create(PODS, train(), "default")
    assert refused(run, "train", "--node", "brokn") == (
        2,
        "Error: there is no node brokn in the cluster: did you mean broken?\n",
    )


def test_nodes_are_left_out_as_the_schedulers_filters_do_in_every_format(
    run: Run, api: Api
) -> None:
    api.with_node("cordoned", {}, spec={"unschedulable": True})
    api.with_node("tainted", {}, spec={"taints": [TAINT]})
    api.with_node("other", {}, labels={"zone": "b"})
    for name in ("broken", "whole"):
        api.server.patch(NODES, name, {"metadata": {"labels": {"zone": "a"}}})
    api.server.create(PODS, train(nodeSelector={"zone": "a"}), "default")

    reasons = {
        "bare": "node(s) didn't match Pod's node affinity/selector",
        "cordoned": "node(s) were unschedulable",
        "cpu": "node(s) didn't match Pod's node affinity/selector",
        "other": "node(s) didn't match Pod's node affinity/selector",
        "tainted": "node(s) had untolerated taint {team: a}",
    }
    answer = found(run, "train")
    assert left_out(answer) == reasons
    assert answer["left_out"][1] == {
        "node": "cordoned",
        "filter": "NodeUnschedulable",
        "reasons": ["node(s) were unschedulable"],
        "why": "node(s) were unschedulable",
    }
    assert ranks(answer) == {"whole": 10, "broken": 4}
    assert yaml.safe_load(said(run, "train", "-o", "yaml")) == answer
    for options, dashes in (((), 3), (("-o", "wide"), 6)):
        rows = said(run, "train", *options).splitlines()[3:]
        assert [row.split(maxsplit=dashes + 1) for row in rows] == [
            [node, *"-" * dashes, f"left out: {why}"] for node, why in reasons.items()
        ]


def test_a_rank_is_among_the_candidates(run: Run, api: Api) -> None:
    """Without the best node the next one is the best."""
    api.server.patch(NODES, "whole", {"spec": {"taints": [TAINT]}})
    api.server.create(PODS, train(), "default")
    assert ranks(found(run, "train")) == {"broken": 10, "bare": 0}
    assert ranks(found(run, "train", "--no-filters")) == {
        "whole": 10,
        "broken": 4,
        "bare": 0,
        "cpu": 0,
    }


def test_node_does_not_change_the_rank(run: Run, api: Api) -> None:
    api.server.create(PODS, train(), "default")
    answer = found(run, "train", "--node", "broken")
    assert (ranks(answer), left_out(answer)) == ({"broken": 4}, {})
    answer = found(run, "train", "--node", "cpu")
    assert (ranks(answer), list(left_out(answer))) == ({}, ["cpu"])


def test_gpus_that_bound_pods_hold_are_not_there(run: Run, api: Api) -> None:
    """Ended pods hold none, and the pod itself holds none of where it runs."""
    for name, gpus, phase in (("half", 5, "Running"), ("over", 3, "Succeeded")):
        pod = train(gpus, nodeName="whole")
        api.server.create(
            PODS, {**pod, "metadata": {"name": name}, "status": {"phase": phase}}, "default"
        )
    api.server.create(PODS, train(5, nodeName="broken"), "default")
    answer = found(run, "train")
    assert left_out(answer) == {
        "cpu": "Insufficient nvidia.com/gpu (5 requested, 0 of 0 left)",
        "whole": "Insufficient nvidia.com/gpu (5 requested, 3 of 8 left)",
    }
    assert "broken" in ranks(answer)


def test_a_pod_that_would_preempt_is_not_said_to_stay_pending(
    run: Run, api: Api, tmp_path: Path
) -> None:
    """A pod in the cluster has its priority; that of a manifest is its PriorityClass's."""
    classes: Object = {"metadata": {"name": "high"}, "value": 9}
    for name in ("broken", "whole"):
        pod = train(8, nodeName=name, priority=5 if name == "broken" else 9)
        api.server.create(PODS, {**pod, "metadata": {"name": f"on-{name}"}}, "default")
    api.server.delete(NODES, "bare")
    api.server.create(PODS, train(priority=9), "default")
    sentence = (
        "No node is left, so the scheduler preempts: it deletes default/on-broken (priority 5) "
        "on broken. No extender is asked."
    )
    assert found(run, "train")["notes"] == [sentence]
    file = written(tmp_path, {"kind": "Pod", **train(priorityClassName="high")})
    assert found(run, "-f", file)["notes"] == [PRIORITY_UNKNOWN]
    api.server.create(PRIORITY_CLASSES, classes)
    assert found(run, "-f", file)["notes"] == [sentence]
    api.fail("watch", Forbidden("no"), times=None, resource=PRIORITY_CLASSES)
    assert found(run, "-f", file)["notes"] == [PRIORITY_UNKNOWN]


@pytest.mark.parametrize(("scheduler", "is_reserved"), [("ours", True), ("others", False)])
def test_room_of_a_nominated_pod_is_not_offered(
    run: Run, api: Api, scheduler: str, is_reserved: bool
) -> None:
    """Each scheduler knows its own nominated pods alone."""
    api.server.delete(NODES, "bare")
    api.server.patch(NODES, "broken", {"spec": {"unschedulable": True}})
    waiting = train(8, schedulerName=scheduler, priority=9)
    nominated = {"metadata": {"name": "first"}, "status": {"nominatedNodeName": "whole"}}
    api.server.create(PODS, {**waiting, **nominated}, "default")
    api.server.create(PODS, train(schedulerName="ours", priority=9), "default")
    answer = found(run, "train")
    if is_reserved:
        assert ranks(answer) == {}
        assert answer["notes"] == [
            NO_CANDIDATE,
            "Room on whole is reserved for default/first: nominated, and not bound yet.",
        ]
    else:
        assert (ranks(answer), answer["notes"]) == ({"whole": 10}, [ONE_CANDIDATE])


def test_the_node_that_a_manifest_names_is_the_only_one(run: Run, api: Api, tmp_path: Path) -> None:
    """But where a pod runs already says nothing of where it may."""
    del api
    pod = {"kind": "Pod", **train(nodeName="broken")}
    answer = found(run, "-f", written(tmp_path, pod))
    assert ranks(answer) == {"broken": 10}
    assert set(left_out(answer).values()) == {"node(s) didn't match the requested node name"}
    assert answer["notes"] == [ONE_CANDIDATE]


def test_what_the_filters_do_not_cover_is_said_below_the_table(run: Run, api: Api) -> None:
    api.server.create(PODS, train(topologySpreadConstraints=[SPREAD]), "default")
    _, lines = said(run, "train").split("\n\n")
    assert lines == (
        "The scheduler may leave out more of these nodes. Not evaluated here: "
        "topology spread constraints.\n"
    )


@pytest.mark.parametrize(("more", "is_relative"), [(497, False), (498, True)])
def test_that_scores_of_many_candidates_are_relative_is_said(
    run: Run, api: Api, more: int, is_relative: bool
) -> None:
    """Three are there already."""
    for at in range(more):
        api.with_bare_node(f"more-{at}")
    api.server.create(PODS, train(), "default")
    assert (RELATIVE in found(run, "train", "--node", "whole")["notes"]) is is_relative


def test_a_cluster_that_is_away_is_said_with_a_running_extender_too(
    run: Run, extender: Served, manifest: str, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG, encoding="utf-8")
    url = f"http://127.0.0.1:{extender.port}"
    asked = ("-f", manifest, "--server", url, "--timeout", "0.3", "--kubeconfig", str(file))
    code, line = refused(run, *asked)
    assert (code, "the cluster was not read within 0.3 s" in line) == (4, True)


def test_a_node_that_makes_no_sense_is_named(run: Run, api: Api, manifest: str) -> None:
    api.with_bare_node("odd", gpus="many")
    code, line = refused(run, "-f", manifest)
    assert (code, "Node odd: status.allocatable.nvidia.com/gpu: 'many'" in line) == (2, True)


@pytest.mark.parametrize("arguments", [("train",), ("-f", "{manifest}", "--timeout", "0.3")])
def test_an_api_server_that_is_away_has_the_exit_code_of_the_page(
    run: Run, manifest: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG, encoding="utf-8")
    named = [each.format(manifest=manifest) for each in arguments]
    code, line = refused(run, *named, "--kubeconfig", str(file))
    assert code == 4
    assert "refused" in line


def test_a_cluster_that_does_not_tell_all_in_time_says_what_is_missing(
    run: Run, api: Api, manifest: str
) -> None:
    api.fail("watch", Forbidden("watch leases: 403: no"), times=None, resource=LEASES)
    code, line = refused(run, "-f", manifest, "--timeout", "0.3")
    assert code == 4
    assert "the cluster was not read within 0.3 s: watch leases: 403: no" in line


def test_nodes_that_may_be_read_in_part_only_are_said(run: Run, api: Api, manifest: str) -> None:
    """The filters need more of a Node than its metadata."""

    def refuse(call: Call) -> None:
        if not call.metadata_only:
            raise Forbidden("watch nodes: 403: no")

    api.before("watch", refuse, resource=NODES)
    code, line = refused(run, "-f", manifest, "--timeout", "0.3")
    assert (code, "was not read within 0.3 s: watch nodes: 403: no" in line) == (4, True)
    assert "whole" in said(run, "-f", manifest, "--no-filters")


def test_pods_that_may_not_be_read_are_said_with_a_running_extender_too(
    run: Run, api: Api, extender: Served, manifest: str
) -> None:
    api.fail("watch", Forbidden("watch pods: 403: no"), times=None, resource=PODS)
    url = f"http://127.0.0.1:{extender.port}"
    code, line = refused(run, "-f", manifest, "--server", url, "--timeout", "0.3")
    assert (code, "was not read within 0.3 s: watch pods: 403: no" in line) == (4, True)


def test_a_cluster_that_was_away_is_read_later(
    run: Run, api: Api, extender: Served, manifest: str
) -> None:
    api.fail("watch", Unreachable("watch pods: away"), resource=PODS)
    url = f"http://127.0.0.1:{extender.port}"
    assert found(run, "-f", manifest, "--server", url)["filtered"]


@pytest.mark.parametrize("arguments", [(), ("train", "-f", "pod.yaml")])
def test_one_pod_is_named(run: Run, arguments: tuple[str, ...]) -> None:
    code, line = refused(run, *arguments)
    assert (code, "name a pod of the cluster or give a manifest with -f" in line) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Deployment", "holds no Pod"),
        ("{kind: Job, spec: {template: {metadata: {name: a}}}}", "holds no Pod"),
        ("{kind: Job, metadata: 7, spec: {template: {spec: {}}}}", "holds no Pod"),
        ("{kind: DaemonSet, spec: {template: {spec: {}}}}", "Deployment, Job, ReplicaSet or"),
        ("{kind: Job, metadata: {}, spec: {template: {spec: 7}}}", "not as a Pod should be"),
        ("- kind: Pod", "holds no Pod"),
        ("{", "not valid YAML"),
        ("{kind: Pod, spec: {containers: 7}}", "is not as a Pod should be: Expected `array"),
        ("{kind: Pod, spec: {tolerations: [{effect: 7}]}}", "`$.spec.tolerations[0].effect`"),
        ("{kind: Pod, spec: {tolerations: [{operator: Is}]}}", "spec.tolerations[0].operator is"),
        ("{kind: Pod, spec: {overhead: {cpu: x}}}", "spec.overhead.cpu: 'x' is no quantity"),
    ],
)
def test_a_bad_manifest_is_named(run: Run, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text, encoding="utf-8")
    code, line = refused(run, "-f", str(file))
    assert (code, str(file) in line, said in line) == (2, True, True)
