# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler explain``: from a running extender, or from the cluster itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import keys, names
from cli.scheduler import explain_command
from kube.api import LEASES, NODES, PODS, Object
from kube.api_errors import Forbidden
from tests.cli.conftest import Run
from tests.fakes.api import FakeApi
from tests.scheduler import calls, fleets
from tests.scheduler.extenders import Served, served

TABLE = """\
NODE    RANK  GPUS             GB/S  WHY
whole     10  2,3 100 %  300 of 300  the best
broken     1  0,2 100 %   20 of 300  slower between its GPUs, of what its product can be, than whole
cpu        0  -                   -  no annotation gpuscape.io/topology: does the agent run there?
"""


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
    """A cluster with three nodes, and a command that is done with it."""

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()

    def with_node(self, name: str, pods: dict[str, int]) -> None:
        """A node, and its agent's Lease, which names these pods and their GPUs."""
        annotations = {keys.TOPOLOGY: fleets.topology()}
        self.server.create(NODES, {"metadata": {"name": name, "annotations": annotations}})
        lease = fleets.lease(pods=pods)
        spec = {key: lease["spec"][key] for key in ("holderIdentity", "leaseDurationSeconds")}
        meta = {"name": names.lease(name), "annotations": lease["metadata"]["annotations"]}
        self.server.create(LEASES, {"metadata": meta, "spec": spec}, names.NAMESPACE)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """In place of the cluster of the kubeconfig."""
    made = Api()
    made.with_node("broken", {"p": 0b11111010})
    made.with_node("whole", {"q": 0b11110011})
    made.server.create(NODES, {"metadata": {"name": "cpu"}})
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


def train(gpus: int = 2, **spec: str) -> Object:
    pod = calls.pod(gpus, uid=None)
    return {"metadata": {"name": "train"}, "spec": {**pod["spec"], **spec}}


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


def test_a_manifest_stands_for_a_pod_that_is_not_there(run: Run, api: Api, manifest: str) -> None:
    assert said(run, "-f", manifest) == TABLE
    assert not api.server.objects(PODS)


def test_a_pod_without_whole_gpus_has_no_scores(run: Run, api: Api) -> None:
    api.server.create(PODS, train(0), "default")
    assert said(run, "train") == "Pod default/train asks for no whole GPU: it gets no scores.\n"


def test_a_running_extender_says_what_it_believes(
    run: Run, extender: Served, manifest: str
) -> None:
    url = f"http://127.0.0.1:{extender.port}"
    found = json.loads(said(run, "-f", manifest, "--server", url, "-o", "json"))
    assert [(node["node"], node["rank"]) for node in found["nodes"]] == [("a", 10), ("b", 0)]
    assert found == json.loads(said(run, "-f", manifest, "--server", f"{url}/v1/", "-o", "json"))


def test_an_extender_is_asked_about_the_nodes_that_are_named(
    run: Run, extender: Served, manifest: str
) -> None:
    url = f"http://127.0.0.1:{extender.port}"
    chosen = ("--node", "b", "--node", "other", "-o", "json")
    found = json.loads(said(run, "-f", manifest, "--server", url, *chosen))
    assert {node["node"]: node["reason"] for node in found["nodes"]} == {
        "b": None,
        "other": "unknown_node",
    }


def test_a_pod_of_the_cluster_is_told_to_the_extender(run: Run, api: Api, extender: Served) -> None:
    api.server.create(PODS, train(4), "default")
    url = f"http://127.0.0.1:{extender.port}"
    found = json.loads(said(run, "train", "--server", url, "-o", "json"))
    assert found["containers"] == [4]


def test_an_extender_that_is_not_there_is_said(run: Run, manifest: str) -> None:
    code, line = refused(run, "-f", manifest, "--server", "http://127.0.0.1:1")
    assert code == 4
    assert line.startswith("Error: http://127.0.0.1:1/v1/explain does not answer: ")


def test_another_server_is_not_taken_for_an_extender(
    run: Run, extender: Served, manifest: str
) -> None:
    url = f"http://127.0.0.1:{extender.port}/elsewhere"
    code, line = refused(run, "-f", manifest, "--server", url)
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


def test_a_node_that_an_extender_does_not_know_may_not_exist(
    run: Run, extender: Served, manifest: str
) -> None:
    url = f"http://127.0.0.1:{extender.port}"
    found = json.loads(said(run, "-f", manifest, "--server", url, "--node", "nosuch", "-o", "json"))
    (node,) = found["nodes"]
    assert (node["rank"], node["why"]) == (
        0,
        "no node of this name in the cluster, or not seen yet",
    )


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


@pytest.mark.parametrize("arguments", [(), ("train", "-f", "pod.yaml")])
def test_one_pod_is_named(run: Run, arguments: tuple[str, ...]) -> None:
    code, line = refused(run, *arguments)
    assert (code, "name a pod of the cluster or give a manifest with -f" in line) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Deployment", "holds no Pod"),
        ("- kind: Pod", "holds no Pod"),
        ("{", "not valid YAML"),
        ("{kind: Pod, spec: {containers: 7}}", "is not as a Pod should be: Expected `array"),
    ],
)
def test_a_bad_manifest_is_named(run: Run, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text, encoding="utf-8")
    code, line = refused(run, "-f", str(file))
    assert (code, str(file) in line, said in line) == (2, True, True)
