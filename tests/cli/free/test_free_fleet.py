# SPDX-License-Identifier: Apache-2.0
"""What is read of a fleet: which nodes count, what is free of them, and who holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from random import Random
from typing import Any

import pytest

from api import keys, names
from forecast.fleet_reading import read_fleet
from kube.api import DEPLOYMENTS, LEASES, NODES, PODS
from kube.api_errors import Forbidden
from scheduler.cluster.node_views import ScoringView
from tests.cli.conftest import Run
from tests.cli.free.free_cluster import GPU, SLICE, Api, found, refused, said
from tests.deploy.deployments import set_deployment
from tests.fakes.api import Call
from tests.scheduler import fleets


def patch(api: Api, name: str, **parts: Any) -> None:
    """Merge this into a node, its status or all else."""
    api.server.patch(NODES, name, parts, status="status" in parts)


def linked_sets(machine: str, free: list[int]) -> list[tuple[int, ...]]:
    """The largest sets of these GPUs of which every two have links, by trying all of them."""
    text = json.loads(fleets.topology(machine))
    pairs = dict(zip(combinations(range(text["n"]), 2), text["nv"], strict=True))
    for size in range(len(free), 1, -1):
        sets = [
            group
            for group in combinations(free, size)
            if all(pairs[pair] != "0" for pair in combinations(group, 2))
        ]
        if sets:
            return sets
    return []


@pytest.mark.parametrize("machine", [fleets.MACHINE, "dgx1-v100"])
def test_of_any_gpus_that_pods_hold_the_others_are_free_and_a_largest_linked_set_is_shown(
    run: Run, api: Api, machine: str
) -> None:
    draw = Random(5)  # noqa: S311  # a test's choice
    masks = {f"node-{at:02}": draw.randrange(256) for at in range(40)}
    for name, mask in masks.items():
        api.with_node(name, {"p": mask} if mask else {}, machine=machine)
    nodes = found(run)["nodes"]
    assert list(nodes) == sorted(masks)
    for name, mask in masks.items():
        free = [at for at in range(8) if not mask >> at & 1]
        linked, sets = nodes[name]["linked"], linked_sets(machine, free)
        assert nodes[name]["free"] == free
        assert (linked is None) is (not sets)
        assert linked is None or tuple(linked["gpus"]) in sets


CONDITIONS: dict[str, tuple[list[dict[str, str]] | None, bool]] = {
    "none": (None, True),
    "an empty list": ([], True),
    "others": ([{"type": "MemoryPressure", "status": "True"}], True),
    "ready": ([{"type": "Ready", "status": "True"}], True),
    "not": ([{"type": "Ready", "status": "False"}], False),
    "unknown": ([{"type": "Ready", "status": "Unknown"}], False),
    "ready among others": (
        [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
        True,
    ),
}


def test_a_node_is_ready_unless_its_kubelet_says_otherwise(run: Run, api: Api) -> None:
    for number, (conditions, _) in enumerate(CONDITIONS.values()):
        api.with_node(f"n{number}")
        patch(api, f"n{number}", status={"conditions": conditions})
    nodes = found(run)["nodes"]
    assert [nodes[f"n{at}"]["ready"] for at in range(len(CONDITIONS))] == [
        ready for _, ready in CONDITIONS.values()
    ]


def test_a_node_counts_where_it_offers_gpus_or_an_agent_has_described_some(
    run: Run, api: Api
) -> None:
    api.with_node("sliced", agent=False, gpus=0, mig=7)
    api.with_node("offered", agent=False, gpus=2)
    api.with_node("described", gpus=0)
    api.with_node("plugin-alone", gpus=4, machine="empty")
    api.with_node("nothing", agent=False, gpus=0)
    nodes = found(run)["nodes"]
    assert {name: node["gpus"] for name, node in nodes.items()} == {
        "described": 8,
        "offered": 2,
        "plugin-alone": 0,
        "sliced": 0,
    }


def test_a_topology_that_cannot_be_read_leaves_what_the_device_plugin_offers(
    run: Run, api: Api
) -> None:
    api.with_node("damaged", gpus=4)
    patch(api, "damaged", metadata={"annotations": {keys.TOPOLOGY: "{"}})
    api.with_node("unlabelled")
    patch(api, "unlabelled", metadata={"labels": None})
    nodes = found(run)["nodes"]
    assert (nodes["damaged"]["gpus"], nodes["damaged"]["free"]) == (4, None)
    assert nodes["damaged"]["why_unknown"]
    assert nodes["unlabelled"]["product"] == ""
    assert "bad topology" in said(run, "-o", "wide")


def test_a_lease_without_a_time_counts_as_renewed_just_now(run: Run, api: Api) -> None:
    api.with_node("no-time", age=500.0)
    lease = names.agent_lease("no-time")
    api.server.patch(LEASES, lease, {"spec": {"renewTime": None}}, names.NAMESPACE)
    api.with_node("old", age=500.0)
    nodes = found(run)["nodes"]
    assert nodes["no-time"]["free"] == list(range(8))
    assert nodes["old"]["free"] is None


def test_other_leases_are_no_agents(run: Run, api: Api) -> None:
    for name in ("coordinator", "mig-slot-0", "bare"):
        meta = {"name": name}
        api.server.create(LEASES, {"metadata": meta, "spec": {}}, names.NAMESPACE)
    api.with_node("bare", agent=False)
    assert refused(run)[0] == 4
    assert said(run, "-l", "pool=a").startswith("NODE"), "of some nodes it is no fault"
    meta = {"name": names.agent_lease("elsewhere")}
    api.server.create(LEASES, {"metadata": meta, "spec": {}}, names.NAMESPACE)
    assert said(run).startswith("NODE")


@pytest.mark.parametrize(
    ("taint", "shown"),
    [
        ({"key": "a", "value": "b", "effect": "NoSchedule"}, ["a=b"]),
        ({"key": "a", "value": "", "effect": "NoSchedule"}, ["a"]),
        ({"key": "a", "effect": "NoExecute"}, ["a"]),
        ({"key": "a", "effect": "PreferNoSchedule"}, []),
        ({"key": "a"}, []),
        ({"key": "node.kubernetes.io/x", "effect": "NoExecute"}, []),
        ({"key": "node.kubernetes.io.example.com/x", "effect": "NoExecute"}, None),
        ({"key": "node.cloudprovider.kubernetes.io/x", "effect": "NoSchedule"}, None),
    ],
)
def test_a_taint_is_shown_where_it_keeps_pods_off_and_no_column_says_so(
    run: Run, api: Api, taint: dict[str, str], shown: list[str] | None
) -> None:
    api.with_node("a", taints=[taint])
    assert found(run)["nodes"]["a"]["taints"] == ([taint["key"]] if shown is None else shown)


def in_namespace(api: Api, name: str, node: str, namespace: str, **limits: str) -> None:
    """A bound pod."""
    api.server.add_namespace(namespace)
    spec = {
        "nodeName": node,
        "containers": [{"name": "main", "resources": {"limits": limits}}],
    }
    pod = {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Running"}}
    api.server.create(PODS, pod, namespace)


def test_pods_count_on_their_own_node_alone(run: Run, api: Api) -> None:
    """Those of other nodes, and of nodes that were not selected, do not."""
    api.with_node("a", mig=7)
    api.with_node("b", mig=7)
    api.with_node("out", mig=7, pool="b")
    for node, count in (("a", 3), ("a", 1), ("b", 2), ("out", 7), ("gone", 7)):
        in_namespace(api, f"m-{node}-{count}", node, "team", **{SLICE: str(count)})
    nodes = found(run, "--pods", "-l", "pool=a")["nodes"]
    assert {name: node["mig"][0]["free"] for name, node in nodes.items()} == {"a": 3, "b": 5}


def test_mig_devices_are_listed_by_resource_and_counted_apart(run: Run, api: Api) -> None:
    other = "nvidia.com/mig-3g.40gb"
    api.with_node("a", mig=7)
    patch(api, "a", status={"allocatable": {other: "2"}})
    in_namespace(api, "m", "a", "team", **{SLICE: "1", other: "2", "cpu": "4"})
    assert found(run, "--pods")["nodes"]["a"]["mig"] == [
        {"resource": SLICE, "total": 7, "free": 6},
        {"resource": other, "total": 2, "free": 0},
    ]


def test_holders_are_named_by_their_own_namespace_and_node(run: Run, api: Api) -> None:
    """A pod of the same name elsewhere is another one."""
    api.with_node("a", {"p": 0b10})
    api.with_node("b", {"p": 0b1})
    in_namespace(api, "p", "a", "other", **{GPU: "1"})
    in_namespace(api, "p", "b", "default", **{GPU: "1"})
    nodes = found(run, "--pods")["nodes"]
    held = {name: [it["pod"] for it in node["holders"]] for name, node in nodes.items()}
    assert held == {"a": [None], "b": ["default/p"]}


def test_pods_that_share_a_gpu_have_an_order(run: Run, api: Api) -> None:
    api.with_node("a", {"q": 0b110, "p": 0b1, "r": 0b1})
    holders = found(run)["nodes"]["a"]["holders"]
    assert [it["gpus"] for it in holders] == [[0], [0], [1, 2]]
    assert holders[0]["key"] < holders[1]["key"]


def places(run: Run, *arguments: str) -> Mapping[str, Any]:
    document: dict[str, Any] = json.loads(said(run, *arguments, "-o", "json"))
    return document


@pytest.mark.parametrize("gpus", range(1, 10))
def test_a_node_with_exactly_so_many_free_gpus_fits_and_one_with_fewer_says_how_many(
    run: Run, api: Api, gpus: int
) -> None:
    for free in range(9):
        api.with_node(f"free-{8 - free}-{free}", {"p": (1 << 8) - 1 >> free} if free < 8 else {})
    document = places(run, str(gpus))
    assert {it["node"] for it in document["nodes"]} == {
        f"free-{8 - free}-{free}" for free in range(gpus, 9)
    }
    out = [(it["node"], it["why"]) for it in document["left_out"]]
    if gpus <= 8:
        assert out == [
            (f"free-{8 - free}-{free}", f"{free} of 8 GPUs are free")
            for free in range(gpus - 1, -1, -1)
        ]
    assert [it["node"] for it in document["left_out"]] == sorted(node for node, _ in out)
    assert document["pod"] == f"a pod of {gpus} GPU{'' if gpus == 1 else 's'}"
    assert document["filtered"] is True


def test_why_too_few_are_free_is_said_as_kube_scheduler_does(run: Run, api: Api) -> None:
    api.with_node("a", {"p": 0xFF})
    (out,) = places(run, "1")["left_out"]
    assert (out["filter"], out["reasons"]) == ("NodeResourcesFit", ["Insufficient nvidia.com/gpu"])


def test_what_bound_pods_ask_for_is_taken_where_pods_are_read(run: Run, api: Api) -> None:
    api.with_node("a")
    in_namespace(api, "new", "a", "team", **{GPU: "6"})
    assert [it["node"] for it in places(run, "4")["nodes"]] == ["a"]
    assert [it["node"] for it in places(run, "4", "--pods")["left_out"]] == ["a"]
    assert [it["node"] for it in places(run, "2", "--pods")["nodes"]] == ["a"]


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_the_taint_of_gpu_nodes_is_tolerated_with_any_value(
    run: Run, api: Api, effect: str
) -> None:
    """Source: Kubernetes documentation, ExtendedResourceToleration."""
    api.with_node("own", taints=[{"key": GPU, "value": "x", "effect": effect}])
    api.with_node("other", taints=[{"key": f"{GPU}x", "effect": effect}])
    document = places(run, "1")
    assert [it["node"] for it in document["nodes"]] == ["own"]
    assert [it["node"] for it in document["left_out"]] == ["other"]
    more = places(run, "1", "--tolerate", f"{GPU}x", "--tolerate", "unused")
    assert {it["node"] for it in more["nodes"]} == {"own", "other"}
    assert keys.TOPOLOGY in more["notes"][0]


def test_the_schedulers_cache_has_of_each_node_what_its_own_watch_would_give_it(api: Api) -> None:
    """Products take turns by their label, and a pod of a job goes by the clique."""
    api.with_node("a")
    patch(api, "a", metadata={"labels": {keys.GPU_PRODUCT: "H100", keys.CLIQUE: "cluster.7"}})
    api.with_node("plain")
    patch(api, "plain", metadata={"labels": None})
    fleet, views = read_fleet(api), {}
    for name in ("a", "plain"):
        detail = fleet.cache.detail(name)
        assert detail is not None
        assert isinstance(detail.view, ScoringView)
        views[name] = detail.view
    assert (views["a"].product, views["a"].clique) == ("H100/8", "cluster.7")
    assert (views["plain"].product, views["plain"].clique) == (fleets.gen(), None)


def test_a_toleration_is_of_its_own_key_alone(run: Run, api: Api) -> None:
    """What stands behind the first = is the value, = included."""
    api.with_node("kept", taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}])
    for tolerated in ("other", "other=gpu", "dedicated=gpu=x"):
        assert places(run, "1", "--tolerate", tolerated)["nodes"] == []
    assert [it["node"] for it in places(run, "1", "--tolerate", "dedicated")["nodes"]] == ["kept"]


def with_two_products(api: Api) -> None:
    """Four free nodes of each: enough for none to be kept for larger pods."""
    for machine in ("dgx1-v100", "hgx-h100"):
        for number in range(4):
            name = f"{machine}-{number}"
            api.with_node(name, machine=machine)
            patch(api, name, metadata={"labels": {keys.GPU_PRODUCT: machine}})


def best_product(document: Mapping[str, Any]) -> str:
    (product,) = {it["node"][:-2] for it in document["nodes"] if it["rank"] == 10}
    return str(product)


@pytest.mark.parametrize(("order", "product"), [("fastest", "hgx-h100"), ("cheapest", "dgx1-v100")])
def test_places_are_ranked_as_the_clusters_extender_is_set(
    run: Run, api: Api, order: str, product: str
) -> None:
    with_two_products(api)
    made = set_deployment("scheduler", f"--product-order={order}")
    api.server.create(DEPLOYMENTS, made, names.NAMESPACE)
    document = places(run, "2")
    assert best_product(document) == product
    assert not any("assumed" in note for note in document["notes"])
    assert "assumed" not in said(run, "2")


@pytest.mark.parametrize("forbidden", [False, True])
def test_where_the_setting_is_not_known_the_default_is_assumed_and_a_note_says_so(
    run: Run, api: Api, forbidden: bool
) -> None:
    def forbid(call: Call) -> None:
        if call.resource == DEPLOYMENTS:
            raise Forbidden("deployments is forbidden")

    with_two_products(api)
    if forbidden:
        made = set_deployment("scheduler", "--product-order=cheapest")
        api.server.create(DEPLOYMENTS, made, names.NAMESPACE)
        api.before("watch", forbid)
    document = places(run, "2")
    assert best_product(document) == "hgx-h100"
    assert "fastest is assumed" in document["notes"][-1]
    assert "fastest is assumed" in " ".join(said(run, "2").split())


def test_without_a_pod_no_deployment_is_read(run: Run, api: Api) -> None:
    with_two_products(api)
    found(run)
    assert DEPLOYMENTS not in {call.resource for call in api.calls}
