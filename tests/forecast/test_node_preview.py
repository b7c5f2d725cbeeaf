# SPDX-License-Identifier: Apache-2.0
"""What becomes of each Node of a rollout: by its agent, by tables, or not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from api import keys, mig_request_annotation, mig_status_annotation
from api.mig_mode_change import ModeChange
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_resources import MigStrategy
from api.mig_status_annotation import (
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
    desired_digest,
)
from base.errors import BadInput
from forecast.node_gpus import node_gpus
from forecast.node_preview import (
    NodeImpact,
    NodePreview,
    RolloutRequest,
    cluster_offers,
    node_preview,
)
from forecast.resource_forecast import forecast_resources
from kube.objects.node import Node
from mig.configs.config_choice import LayoutChoice
from mig.configs.mig_config_file import parse_mig_configs
from mig.mode_permission import ModePermission
from mig.planner import MigPlan, plan
from tests.forecast.preview_objects import GPU, asked, mig, node
from tests.mig.mig_gpus import A30, A100, A100_80, H100, OFF, ON, RTX_PRO, mig_gpu

MACHINES = {
    "dgx-a100": A100,
    "dgx-a100-80gb": A100_80,
    "a30-pair": A30,
    "hgx-h100": H100,
    "rtx-pro-6000": RTX_PRO,
}
RESETLESS = ("hgx-h100", "rtx-pro-6000")
GPUS = {"a30-pair": 2, "rtx-pro-6000": 4}
LAYOUTS = (
    "all-disabled",
    "all-enabled",
    "all-balanced",
    "all-1g.10gb",
    "all-1g.6gb",
    "all-2g.10gb",
)


def preview(
    seen: Any, wish: RolloutRequest, *, pods: tuple[str, ...] = (), drivers: tuple[str, ...] = ()
) -> NodePreview:
    return node_preview(seen, wish, pods=pods, slice_drivers=drivers)


@pytest.mark.parametrize("by", ModeChange)
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("strategy", ["mixed", "single"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_foretold_is_what_the_planner_finds_with_the_driver_at_hand(
    machine: str, layout: str, strategy: str, cut: bool, by: ModeChange
) -> None:
    """With the driver's own profiles and modes, which the cluster does not have."""
    count = GPUS.get(machine, 8)
    there = {mig("1g.1gb"): 1} if cut else {GPU: count}
    more = {keys.GPU_PRODUCT: "X-MIG-1g.1gb"} if cut and strategy == "single" else {}
    gpus = node_gpus(
        Node.from_object(node(machine=machine, strategy=strategy, offers=there, labels=more))
    )
    assert (gpus.mig, gpus.unknown) == (cut, "")

    found = forecast_resources(asked(layout).meaning, gpus, by)

    driver = [
        replace(
            mig_gpu(at, MACHINES[machine], mode=ON if cut else OFF),
            resetless=machine in RESETLESS,
            model=gpus.product,
        )
        for at in range(count)
    ]
    try:
        wanted = LayoutChoice(layout=layout).gpu_layouts(driver)
    except BadInput:
        assert "no configuration" in found.refused
        return
    modes = ModePermission(by=by)
    truth = plan(driver, wanted, {}, strategy=MigStrategy(strategy), modes=modes)
    if isinstance(truth, MigPlan):
        assert (found.offers, found.refused) == (truth.allocatable, "")
    else:
        assert found.refused == "; ".join({it.detail: it for it in truth.obstacles})


def test_a_node_gains_and_loses_by_name() -> None:
    found = preview(node(), asked("all-1g.10gb"))
    assert (found.fate, found.now, found.then) == (
        NodeImpact.CHANGES,
        {GPU: 8},
        {mig("1g.10gb"): 56},
    )
    nodes = [node("a"), node("b")]
    now, then = cluster_offers(nodes, [preview(nodes[0], asked("all-1g.10gb"))])
    assert (now, then) == ({GPU: 16}, {GPU: 8, mig("1g.10gb"): 56})


def test_single_makes_gpus_of_instances_and_none_is_refused() -> None:
    single = preview(node(strategy="single"), asked("all-1g.10gb"))
    assert (single.fate, single.then) == (NodeImpact.CHANGES, {GPU: 56})
    none = preview(node(strategy="none"), asked("all-1g.10gb"))
    assert none.fate is NodeImpact.REFUSED
    assert "strategy none offers whole GPUs alone" in none.why


def test_a_part_of_the_gpus_is_told_where_all_are_whole() -> None:
    wish = asked('{"0-3": {"1g.10gb": 7}}')
    found = preview(node(), wish)
    assert (found.then, found.why) == ({GPU: 4, mig("1g.10gb"): 28}, "GPUs 0, 1, 2, 3 of 8")
    cut = preview(node(offers={GPU: 4, mig("3g.40gb"): 8}), wish)
    assert cut.fate is NodeImpact.UNKNOWN
    assert "leaves some GPUs as they are" in cut.why
    assert cut.after == {GPU: 4, mig("3g.40gb"): 8}


def test_gpus_that_need_a_reset_are_refused_as_their_agent_would() -> None:
    found = preview(node(machine="dgx-a100"), asked("all-1g.5gb"))
    assert found.fate is NodeImpact.REFUSED
    assert "by a reset of the whole GPU, and mig-mode-change is off" in found.why
    on = {keys.MIG_MODE_CHANGE: "driver"}
    allowed = preview(node(machine="dgx-a100", annotations=on), asked("all-1g.5gb"))
    assert (allowed.then, allowed.sets_modes) == ({mig("1g.5gb"): 56}, True)
    for text, setting in (("off", ModeChange.DRIVER), ("yes", ModeChange.DRIVER)):
        written = node(machine="dgx-a100", annotations={keys.MIG_MODE_CHANGE: text})
        kept = preview(written, asked("all-1g.5gb", mode_change=setting))
        assert (kept.fate, "mig-mode-change is" in kept.why) == (NodeImpact.REFUSED, True)
    never = preview(node(machine="dgx-a100"), asked('{"all": {"2g.10gb": 4}}'))
    assert never.why == "4 of 2g.10gb, of which the GPU allows 3"
    again = preview(node(machine="dgx-a100", offers={mig("3g.20gb"): 16}), asked("all-1g.5gb"))
    assert again.then == {mig("1g.5gb"): 56}


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ('{"all": {"1g.10gb": 8}}', "8 of 1g.10gb, of which the GPU allows 7"),
        ('{"all": {"4g.40gb": 1, "3g.40gb": 2}}', "12 memory units"),
        ('{"all": {"1g.5gb": 1}}', "has no profile '1g.5gb'"),
        ('{"8": {"1g.10gb": 1}}', "there is no GPU 8"),
        ("all-1g.5gb", "no configuration"),
    ],
)
def test_what_no_such_gpu_takes_is_refused(layout: str, why: str) -> None:
    found = preview(node(), asked(layout))
    assert found.fate is NodeImpact.REFUSED
    assert why in found.why


def test_the_agents_own_configurations_give_a_name_its_meaning() -> None:
    text = "version: v1\nmig-configs:\n  mine:\n  - devices: all\n    mig-enabled: true\n"
    configs = parse_mig_configs(text + "    mig-devices: {1g.20gb: 4}\n", "f")
    assert preview(node(), asked("mine", configs=configs)).then == {mig("1g.20gb"): 32}
    unknown = preview(node(), asked("mine", unknown="nobody knows"))
    assert (unknown.fate, unknown.why) == (NodeImpact.UNKNOWN, "nobody knows")
    written = preview(node(), asked('{"all": {"7g.80gb": 1}}', unknown="nobody knows"))
    assert written.then == {mig("7g.80gb"): 8}


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (node(annotations={keys.TOPOLOGY: "{"}), "gpuscape.io/topology"),
        (node(machine="mixed"), "several models"),
        (node(labels={f"{GPU}.replicas": "4"}), "shared out"),
        (node(offers={f"{GPU}.shared": 32}), "shared out"),
        (node(machine="gb10", labels={keys.MIG_CAPABLE: "true"}), "is not in gpuscape's table"),
    ],
)
def test_what_the_cluster_does_not_know_is_not_guessed(seen: Any, why: str) -> None:
    found = preview(seen, asked("all-enabled"))
    assert found.fate is NodeImpact.UNKNOWN
    assert why in found.why
    assert found.then is None


def miss(text: str) -> str:
    """A topology of which one GPU's UUID is not known."""
    return text.replace('{"v":1,', '{"v":1,"miss":[3],')


def test_gpus_that_are_not_all_seen_are_not_counted_on() -> None:
    seen = node()
    seen["metadata"]["annotations"][keys.TOPOLOGY] = miss(
        seen["metadata"]["annotations"][keys.TOPOLOGY]
    )
    assert "does not know all of its GPUs" in preview(seen, asked("all-enabled")).why
    fewer = node(labels={"gpuscape.io/count.NVIDIA-H100-80GB-HBM3": "7"})
    assert "their model is not known" in preview(fewer, asked("all-enabled")).why


def test_a_sick_gpu_is_not_offered_now_and_still_is_a_whole_one() -> None:
    found = preview(node(offers={GPU: 7}, capacity={GPU: "8"}), asked('{"0": {"7g.80gb": 1}}'))
    assert (found.now, found.then) == ({GPU: 7}, {GPU: 7, mig("7g.80gb"): 1})


def test_a_name_of_two_boards_is_unknown_where_a_filter_tells_them_apart() -> None:
    text = "version: v1\nmig-configs:\n  mine:\n  - devices: all\n    mig-enabled: false\n"
    seen = node(machine="a100-pcie-pairs", offers={mig("1g.5gb"): 56})
    both = parse_mig_configs(text, "f")
    one = parse_mig_configs(text + '    device-filter: "0x20F110DE"\n', "f")
    told = preview(seen, asked("mine", configs=both))
    assert (told.fate, "reset" in told.why) == (NodeImpact.REFUSED, True)
    assert "boards of NVIDIA-A100-PCIE-40GB differ" in preview(seen, asked("mine", configs=one)).why


AWAY = [{"type": "Ready", "status": "Unknown"}]


@pytest.mark.parametrize(
    ("seen", "wish", "why"),
    [
        (node(labels={keys.MIG_CAPABLE: "false"}), {}, "none of its GPUs has MIG"),
        (node(phase=""), {}, "no agent manages MIG there"),
        (node(conditions=AWAY), {}, "it is not ready"),
        (node(spec={"unschedulable": True}), {}, "cordoned by somebody"),
        (node(), {"mode": "observe"}, "its agent only plans (mig-mode observe)"),
        (node(), {"mode": "off"}, "its agent does not look (mig-mode off)"),
        (node(labels={"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}), {}, "GKE"),
    ],
)
def test_nodes_where_nothing_would_happen_are_left_out_with_the_reason(
    seen: Any, wish: Mapping[str, str], why: str
) -> None:
    found = preview(seen, asked("all-1g.10gb", **wish))
    assert found.fate is NodeImpact.OUT
    assert why in found.why
    assert found.after == found.now


def test_other_owners_of_mig_are_seen_by_pods_and_slices() -> None:
    wish = asked("all-1g.10gb")
    manager = preview(node(), wish, pods=("gpu-operator/nvidia-mig-manager-x",))
    claims = preview(node(), wish, drivers=("gpu.nvidia.com",))
    assert "NVIDIA's MIG manager (pod gpu-operator/nvidia-mig-manager-x)" in manager.why
    assert "NVIDIA's DRA driver" in claims.why
    assert {manager.fate, claims.fate} == {NodeImpact.OUT}


def says(phase: str, layout: str = "all-1g.10gb", *, request: Any = None, reason: str = "") -> Any:
    """A Node whose agent was asked for a layout already."""
    wish = desired_digest(RequestSource.ANNOTATION, layout)
    status = MigStatusAnnotation(v=2, phase=phase, desired_digest=wish, reason=reason)
    notes = {
        keys.MIG_LAYOUT: layout,
        keys.MIG_STATUS: mig_status_annotation.encode(status),
    }
    if request is not None:
        notes[keys.MIG_REQUEST] = mig_request_annotation.encode(request)
    return node(machine="mixed", annotations=notes)


def test_an_agent_that_was_asked_already_knows_better_than_any_table() -> None:
    request = MigRequestAnnotation(
        v=2,
        request="0" * 16,
        plan="0" * 16,
        gpus=(0,),
        pods=("0011aabb",),
        programs=("python 42",),
        allocatable={GPU: 1},
    )
    waits = preview(says(MigPhase.WAITING, request=request), asked("all-1g.10gb"))
    assert (waits.fate, waits.then, waits.by_agent) == (NodeImpact.CHANGES, {GPU: 1}, True)
    assert waits.pods == frozenset({"0011aabb"})
    assert waits.why == "desired already: waiting; in its way: python 42"
    refused = preview(says(MigPhase.REFUSED, reason="no such thing"), asked("all-1g.10gb"))
    assert (refused.fate, refused.why) == (NodeImpact.REFUSED, "no such thing")
    assert preview(says(MigPhase.UNCHANGED), asked("all-1g.10gb")).fate is NodeImpact.SAME
    other = preview(says(MigPhase.UNCHANGED), asked("all-balanced"))
    assert (other.fate, other.by_agent) == (NodeImpact.UNKNOWN, False)


def test_what_an_agent_said_of_another_wish_does_not_count() -> None:
    """The Node asks for this now, and the status is of what it asked for before."""
    late = node(annotations={keys.MIG_LAYOUT: "all-1g.10gb"}, phase=MigPhase.UNCHANGED)
    found = preview(late, asked("all-1g.10gb"))
    assert (found.fate, found.by_agent) == (NodeImpact.CHANGES, False)
    before = says(MigPhase.UNCHANGED)
    before["metadata"]["annotations"][keys.MIG_LAYOUT] = "all-balanced"
    assert not preview(before, asked("all-1g.10gb")).by_agent


def test_a_rollout_that_takes_a_node_out_of_the_fleet_policy_says_so() -> None:
    notes = {keys.MIG_LAYOUT: "all-balanced", keys.MIG_POLICY: "training/0011"}
    found = preview(node(annotations=notes), asked("all-1g.10gb"))
    assert found.why == "its layout is the fleet policy's (training), and would be so no more"
    assert preview(node(annotations=notes), asked("all-balanced")).why == ""


def test_a_node_that_offers_the_same_already_is_said_to_stay() -> None:
    found = preview(node(offers={mig("1g.10gb"): 56}), asked("all-1g.10gb"))
    assert (found.fate, found.why) == (NodeImpact.SAME, "it offers the same already")


def test_how_pods_leave_is_the_rollouts_else_the_nodes() -> None:
    seen = node(annotations={keys.DRAIN: "node"})
    assert preview(seen, asked("all-1g.10gb")).drain == "node"
    assert preview(seen, asked("all-1g.10gb", drain="evict")).drain == "evict"
    assert preview(seen, asked("all-1g.10gb", usual_drain="evict")).drain == "node"
    assert preview(node(), asked("all-1g.10gb", usual_drain="evict")).drain == "evict"
