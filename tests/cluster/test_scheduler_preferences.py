# SPDX-License-Identifier: Apache-2.0
"""A real kube-scheduler follows what people prefer, against the extender's highest rank."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.cluster import gpu_fleet
from tests.cluster.front import Front, Reply
from tests.cluster.gpu_fleet import Written
from tests.cluster.scheduling import PROFILE, Stage, configuration
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.controlplane.versions import VERSIONS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RANKED, PREFERRED = "ranked", "preferred"
"""Nodes: the extender's best, by all that it has; and the one that people prefer."""
NODES = tuple(
    Written(name=name, machine="dgx1-v100", labels={"name": name}) for name in (RANKED, PREFERRED)
)
STOCK, LIGHT = "stock-weights", "stock-weights-light-extender"
"""Profiles: kube-scheduler's own weights, with the extender's shipped one and with the page's 1."""
WISH = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What people have written: in the pod, and in the cluster."""

    affinity: Object = field(default_factory=dict)
    avoid: str = ""
    """Node with a taint PreferNoSchedule."""


def to_node(weight: int, *nodes: str) -> Object:
    expression = {"key": "name", "operator": "In", "values": list(nodes)}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def to_pods(weight: int, app: str) -> Object:
    selector = {"matchLabels": {"app": app}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return {"weight": weight, "podAffinityTerm": term}


WISHES = {
    "a node, weight 1": Wish(affinity={"nodeAffinity": {WISH: [to_node(1, PREFERRED)]}}),
    "a node, weight 100": Wish(affinity={"nodeAffinity": {WISH: [to_node(100, PREFERRED)]}}),
    "pods": Wish(affinity={"podAffinity": {WISH: [to_pods(1, PREFERRED)]}}),
    "no such pods": Wish(affinity={"podAntiAffinity": {WISH: [to_pods(1, RANKED)]}}),
    "no taint": Wish(avoid=RANKED),
}
HALF = Wish(
    affinity={"nodeAffinity": {WISH: [to_node(50, RANKED, PREFERRED), to_node(50, PREFERRED)]}}
)
"""One of two equal preferences is for one node alone."""


def best_and_worst(_path: str, body: bytes) -> Reply:
    """The whole range of ranks between the two nodes."""
    listed = json.loads(body)["NodeNames"]
    ranks = [{"Host": name, "Score": 10 if name == RANKED else 0} for name in listed]
    return Reply(body=json.dumps(ranks).encode())


@pytest.fixture(scope="module", params=VERSIONS)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """With a kube-scheduler of the shipped profile and one of stock weights, and one more."""
    with Stage.running(tmp_path_factory.mktemp("stage"), request.param) as made:
        gpu_fleet.add_nodes(made.plane, NODES)
        for name in (RANKED, PREFERRED):
            made.add_pod(name=f"on-{name}", labels={"app": name}, spec={"nodeName": name})
        front = Front(made.server, best_and_worst)
        with front.serving() as address:
            shipped = configuration(address, made.client, leads=False, timeout="30s")
            both = [*shipped["profiles"], {"schedulerName": STOCK}]
            made.start_scheduler({**shipped, "profiles": both})
            (extender,) = shipped["extenders"]
            light: dict[str, Any] = {
                **shipped,
                "profiles": [{"schedulerName": LIGHT}],
                "extenders": [{**extender, "weight": 1}],
            }
            made.start_scheduler(light, LIGHT)
            yield made


def landed(stage: Stage, profile: str, wish: Wish) -> str:
    """Where a pod lands that prefers this."""
    taint = {"key": "slow", "effect": "PreferNoSchedule"}
    for name in (RANKED, PREFERRED):
        spec = {"spec": {"taints": [taint] if name == wish.avoid else None}}
        stage.plane.demand("PATCH", f"/api/v1/nodes/{name}", spec, content_type=MERGE_PATCH)
    pod = stage.add_pod(2, scheduler=profile, spec={"affinity": wish.affinity})
    node = stage.placed(pod)
    stage.remove_pod(pod)
    return node


@pytest.mark.parametrize("profile", [PROFILE, STOCK, LIGHT])
def test_without_a_preference_the_rank_decides(stage: Stage, profile: str) -> None:
    assert landed(stage, profile, Wish()) == RANKED


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("profile", [PROFILE, LIGHT])
def test_a_preference_outweighs_the_whole_range_of_ranks(
    stage: Stage, profile: str, wish: str
) -> None:
    """In the shipped profile, and with stock weights where the extender's is the page's."""
    assert landed(stage, profile, WISHES[wish]) == PREFERRED


def test_half_of_all_preferences_does_so_too_in_the_shipped_profile(stage: Stage) -> None:
    assert landed(stage, PROFILE, HALF) == PREFERRED


@pytest.mark.parametrize("wish", WISHES)
def test_with_stock_weights_and_the_shipped_one_of_the_extender_no_preference_does(
    stage: Stage, wish: str
) -> None:
    """Why the page says which weights go together."""
    assert landed(stage, STOCK, WISHES[wish]) == RANKED
