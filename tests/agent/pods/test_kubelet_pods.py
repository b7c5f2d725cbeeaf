# SPDX-License-Identifier: Apache-2.0
"""Who holds which GPU, as metrics show it: asked once, kept for a while, in a steady order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import ANY

import pytest

from agent.pods.gpu_allocation import container_users
from agent.pods.known_pods import KnownPod
from agent.pods.kubelet_pods import ASK_SECONDS, KEEP_SECONDS, KubeletPods
from base.errors import Transient
from discovery.gpu_part import GpuPart
from discovery.model import NodeSnapshot
from exporters.device_user_names import Claim, ContainerUser, ContainerUsers
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.node_view import GpuAllocation
from kubelet.allocated_devices import NodeAllocation, allocation
from kubelet.device_resolution import DeviceNames
from kubelet.podresources.allocation_model import (
    ClaimedDevice,
    ContainerDevices,
    PodDevices,
    ResourceDevices,
)
from tests import build, exposition
from tests.log_lines import whys

GPUS = tuple(build.gpu(at) for at in range(3))
A, B, C = (gpu.uuid or "" for gpu in GPUS)
BUS_A, BUS_B, BUS_C = (gpu.bus_id for gpu in GPUS)
NODE = build.node(GPUS)
HOSTILE = 'a"b\\c\nd\udcff{}' + "x" * 10_000


def given(resource: str, *ids: str) -> ResourceDevices:
    return ResourceDevices(resource=resource, ids=ids)


def pod(
    name: str, *resources: ResourceDevices, claims: tuple[ClaimedDevice, ...] = (), **of: str
) -> PodDevices:
    """A pod of the namespace ``team`` with one container, ``main``."""
    container = ContainerDevices(
        name=of.get("container", "main"), resources=resources, claims=claims
    )
    return PodDevices(namespace=of.get("namespace", "team"), name=name, containers=(container,))


def held(
    *pods: PodDevices, node: NodeSnapshot = NODE, **more: Callable[..., object]
) -> ContainerUsers:
    """The device users of what the kubelet tells."""
    told = allocation(pods, (), DeviceNames(node))
    return container_users(told, node, **more)  # type: ignore[arg-type]  # about, where it is given


def user(name: str, **facts: object) -> ContainerUser:
    plain = ContainerUser(namespace="team", pod=name, container="main")
    return replace(plain, **facts)  # type: ignore[arg-type]  # the fields' own types


# what is shown of an answer


def test_a_container_holds_each_of_its_gpus_and_idle_gpus_have_no_entry() -> None:
    found = held(pod("job", given("nvidia.com/gpu", A, C)), pod("idle"))

    assert found == {GpuPart(BUS_A): (user("job"),), GpuPart(BUS_C): (user("job"),)}


def test_mig_devices_are_held_as_gpu_instances() -> None:
    """Whatever the resource is called; two compute instances of one instance are held as one."""
    parts = (build.mig_device(gi=1), build.mig_device(gi=2, ci=0), build.mig_device(gi=2, ci=1))
    node = build.node([build.changed(GPUS[0], mig_devices=parts)])
    first, *second = (part.uuid for part in parts)

    found = held(
        pod("single", given("nvidia.com/gpu", first)),
        pod("mixed", given("nvidia.com/mig-2g.10gb", *second)),
        node=node,
    )

    assert found == {GpuPart(BUS_A, 1): (user("single"),), GpuPart(BUS_A, 2): (user("mixed"),)}


def test_holders_of_shares_are_told_in_one_order_whatever_the_kubelet_s_is() -> None:
    """By namespace, pod, container and share, shares by number."""
    pods = [
        pod("b", given("nvidia.com/gpu.shared", f"{A}::10", f"{A}::9")),
        pod("b", given("nvidia.com/gpu.shared", f"{A}::3"), container="aside"),
        pod("a", given("nvidia.com/gpu.shared", f"{A}::4")),
        pod("z", given("nvidia.com/gpu.shared", f"{A}::5"), namespace="above"),
    ]

    found = held(*pods)

    assert found == held(*reversed(pods))
    assert [
        (each.namespace, each.pod, each.container, each.share) for each in found[GpuPart(BUS_A)]
    ] == [
        ("above", "z", "main", "5"),
        ("team", "a", "main", "4"),
        ("team", "b", "aside", "3"),
        ("team", "b", "main", "9"),
        ("team", "b", "main", "10"),
    ]


def test_a_claim_comes_with_all_that_is_known_of_its_device() -> None:
    """The profile and the UUID are those of the MIG device, not of the GPU."""
    part = build.mig_device("1g.5gb+me", gi=7, placement=(4, 1))
    others = (build.mig_device(gi=7, ci=5),)
    cut_gpus = (
        build.changed(GPUS[1], mig_devices=(part,)),
        build.changed(GPUS[2], mig_devices=others),
    )
    node = build.node([GPUS[0], *cut_gpus])
    whole = ClaimedDevice(claim="c", driver="gpu.nvidia.com", pool="p", device="gpu-0", share="s")
    cut = replace(whole, claim="d", device="gpu-1-mig-1g5gb-me-20-4", share="")

    found = held(pod("job", claims=(whole, cut)), node=node)

    plain = Claim(namespace="team", name="c", driver="gpu.nvidia.com", pool="p", device="gpu-0")
    there = replace(plain, name="d", device=cut.device, mig_profile="1g.5gb+me", mig_uuid=part.uuid)
    assert found == {
        GpuPart(BUS_A): (user("job", share="s", claim=plain),),
        GpuPart(BUS_B, 7): (user("job", claim=there),),
    }


def test_a_claim_on_an_instance_of_several_mig_devices_names_none_of_them() -> None:
    parts = tuple(build.mig_device(gi=7, ci=ci, placement=(4, 2)) for ci in (0, 1))
    node = build.node([build.changed(GPUS[0], mig_devices=parts)])
    claim = ClaimedDevice(claim="c", driver="gpu.nvidia.com", pool="p", device="gpu-0-mig-14-4-2")

    (one,) = held(pod("job", claims=(claim,)), node=node)[GpuPart(BUS_A, 7)]

    assert one.claim is not None
    assert (one.claim.mig_profile, one.claim.mig_uuid) == (None, None)


def test_a_claim_of_an_old_kubelet_has_the_driver_and_the_name_that_lead_to_the_gpu() -> None:
    claim = ClaimedDevice(claim="c", cdi=("k8s.gpu.nvidia.com/device=gpu-0",))

    (one,) = held(pod("job", claims=(claim,)))[GpuPart(BUS_A)]

    assert one.claim == Claim(
        namespace="team",
        name="c",
        driver="gpu.nvidia.com",
        pool="",
        device="k8s.gpu.nvidia.com/device=gpu-0",
    )


def test_two_pods_may_share_one_claim() -> None:
    claim = ClaimedDevice(claim="c", driver="gpu.nvidia.com", pool="p", device="gpu-0")

    found = held(pod("b", claims=(claim,)), pod("a", claims=(claim,)))

    assert [each.pod for each in found[GpuPart(BUS_A)]] == ["a", "b"]


def known(name: str, *, ended: bool = False) -> KnownPod:
    labels = (("app", "train"),)
    return KnownPod(namespace="team", name=name, uid=f"uid-{name}", ended=ended, labels=labels)


def test_uid_and_labels_are_added_where_the_pod_is_known() -> None:
    """Another namespace's pod of the same name is another pod."""
    pods = [
        pod("job", given("nvidia.com/gpu", A)),
        pod("job", given("nvidia.com/gpu", B), namespace="other"),
    ]

    found = held(*pods, about=lambda namespace, name: known(name) if namespace == "team" else None)

    assert found[GpuPart(BUS_A)] == (user("job", uid="uid-job", labels=(("app", "train"),)),)
    assert found[GpuPart(BUS_B)] == (ContainerUser(namespace="other", pod="job", container="main"),)


def test_an_ended_pod_holds_nothing_any_more_whatever_the_kubelet_lists() -> None:
    pods = [pod("old", given("nvidia.com/gpu", A)), pod("new", given("nvidia.com/gpu", A))]

    found = held(*pods, about=lambda _, name: known(name, ended=name == "old"))

    assert [each.pod for each in found[GpuPart(BUS_A)]] == ["new"]


def test_an_ended_pod_without_devices_changes_nothing() -> None:
    """As kubelets list them that have taken the devices back."""
    assert held(pod("old", given("nvidia.com/gpu")), pod("older")) == {}


def test_text_is_passed_on_as_it_is() -> None:
    """Escaping and cutting are the renderer's."""
    (one,) = held(pod(HOSTILE, given("nvidia.com/gpu", A), container=HOSTILE))[GpuPart(BUS_A)]

    assert (one.pod, one.container) == (HOSTILE, HOSTILE)


# asking


class Scene:
    """Pods over a kubelet whose answers a test sets."""

    def __init__(self, **more: object) -> None:
        self.told: tuple[PodDevices, ...] = (pod("job", given("nvidia.com/gpu", A)),)
        self.offered: tuple[ResourceDevices, ...] = (given("nvidia.com/gpu", A, B, C),)
        self.away = ""
        self.asked: list[str] = []
        self.shown: list[ContainerUsers | None] = []
        self.allocation: GpuAllocation | None = None
        self.given: list[NodeAllocation] = []
        self.snapshot: NodeSnapshot | None = NODE
        self.own = AgentMetrics("0", lambda: 0.0)
        self.pods = KubeletPods(
            self,
            node="node-a",
            snapshot=lambda: self.snapshot,
            update_metrics=lambda change: change(self.own),
            show=self._show,
            allocated=lambda _snapshot, given: self.given.append(given),
            wall=lambda: 1_700_000_000.0,
            **more,  # type: ignore[arg-type]  # resources and resolve, where they are set
        )

    def list(self) -> tuple[PodDevices, ...]:
        self.asked.append("list")
        if self.away:
            raise Transient(self.away)
        return self.told

    def allocatable(self) -> tuple[ResourceDevices, ...]:
        self.asked.append("allocatable")
        return self.offered

    def metric(self, name: str) -> float:
        return exposition.series(self.own.render())[name, (("source", "pod-resources"),)]

    def _show(self, allocation: GpuAllocation | None) -> None:
        self.allocation = allocation
        self.shown.append(None if allocation is None else allocation.users)


def test_one_question_serves_the_lease_and_the_metrics() -> None:
    scene = Scene()

    assert scene.pods.ask(0.0) == ASK_SECONDS

    assert scene.asked == ["list", "allocatable"]
    assert scene.shown == [{GpuPart(BUS_A): (user("job"),)}]
    assert [each.whole for each in scene.given] == [{BUS_A, BUS_B, BUS_C}]
    assert scene.allocation is not None
    assert scene.allocation.whole == {BUS_A, BUS_B, BUS_C}
    assert scene.metric("gpuscape_source_up") == 1


def test_resources_are_told_with_what_there_is_of_them_and_what_is_taken() -> None:
    scene = Scene()
    scene.told = (pod("job", given("nvidia.com/gpu", A), given("nvidia.com/mig-1g.5gb", "MIG-x")),)

    scene.pods.ask(0.0)

    assert scene.allocation is not None
    assert scene.allocation.allocatable == {"nvidia.com/gpu": 3}
    assert scene.allocation.allocated == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1}


def test_what_is_offered_is_what_the_kubelet_offers_now() -> None:
    """A device plugin goes away, and what pods have stays theirs; another one comes."""
    scene = Scene()
    found = []
    for offered in (scene.offered, (), (given("nvidia.com/gpu", B),)):
        scene.offered = offered
        scene.pods.ask(0.0)
        assert scene.allocation is not None
        allocatable, allocated = scene.allocation.allocatable, scene.allocation.allocated
        found.append((scene.given[-1].whole, allocatable, allocated))

    assert found == [
        (frozenset((BUS_A, BUS_B, BUS_C)), {"nvidia.com/gpu": 3}, {"nvidia.com/gpu": 1}),
        (frozenset(), {}, {"nvidia.com/gpu": 1}),
        (frozenset((BUS_B,)), {"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1}),
    ]


def test_of_a_resource_that_nobody_has_none_is_taken() -> None:
    scene = Scene()
    scene.told = ()
    scene.pods.ask(0.0)
    assert scene.allocation is not None
    assert scene.allocation.allocatable == {"nvidia.com/gpu": 3}
    assert scene.allocation.allocated == {}


def test_before_the_first_snapshot_nobody_is_asked() -> None:
    scene = Scene()
    scene.snapshot = None

    assert scene.pods.ask(0.0) == ASK_SECONDS

    assert (scene.asked, scene.shown) == ([], [])


def test_holders_stay_through_a_restart_of_the_kubelet_and_then_go() -> None:
    """The state on the Lease hears nothing of what was not told anew."""
    scene = Scene()
    scene.pods.ask(100.0)
    scene.away = "no such socket"

    scene.pods.ask(100.0 + KEEP_SECONDS)
    scene.pods.ask(100.1 + KEEP_SECONDS)
    scene.pods.ask(105.0 + KEEP_SECONDS)

    there: ContainerUsers = {GpuPart(BUS_A): (user("job"),)}
    assert scene.shown == [there, there, None, None]
    assert len(scene.given) == 1
    assert scene.metric("gpuscape_source_up") == 0


def test_what_stays_is_about_the_devices_and_pods_as_they_are_now() -> None:
    """The API server still reports pods that end, and the driver GPUs that are lost."""
    ended: list[str] = []
    scene = Scene(about=lambda _, name: known(name, ended=name in ended))
    scene.told = (
        pod("job", given("nvidia.com/gpu", A)),
        pod("other", given("example.com/gpu", B)),
    )
    scene.pods.ask(0.0)
    scene.away = "no such socket"
    ended.append("job")
    scene.pods.ask(5.0)
    ended.clear()
    scene.snapshot = build.node(GPUS[1:])
    scene.pods.ask(10.0)
    holds = user("job", uid="uid-job", labels=(("app", "train"),))
    assert scene.shown == [{GpuPart(BUS_A): (holds,)}, {}, {}]


def test_a_kubelet_that_comes_back_is_believed_at_once() -> None:
    scene = Scene()
    scene.away = "no such socket"
    scene.pods.ask(0.0)
    scene.away = ""

    scene.pods.ask(5.0)

    assert scene.shown == [None, {GpuPart(BUS_A): (user("job"),)}]


def test_kept_holders_follow_the_devices() -> None:
    """A GPU instance that was made anew has the same id, and no pod has it."""
    part = build.mig_device(gi=1)
    scene = Scene()
    scene.snapshot = build.node([build.changed(GPUS[0], mig_devices=(part,))])
    scene.told = (pod("job", given("nvidia.com/mig-1g.5gb", part.uuid)),)
    scene.pods.ask(0.0)
    anew = replace(part, uuid="MIG-another")
    scene.snapshot = build.node([build.changed(GPUS[0], mig_devices=(anew,))])
    scene.away = "no such socket"

    scene.pods.ask(5.0)

    assert scene.shown == [{GpuPart(BUS_A, 1): (user("job"),)}, {}]


def test_further_resource_names_count() -> None:
    scene = Scene(resources=("acme.com/tesla",))
    scene.told = (pod("job", given("acme.com/tesla", B)), pod("nic", given("acme.com/nic", A)))

    scene.pods.ask(0.0)

    assert scene.shown == [{GpuPart(BUS_B): (user("job"),)}]


def test_names_of_claims_are_looked_up_where_somebody_knows_them() -> None:
    claim = ClaimedDevice(claim="c", driver="gpu.nvidia.com", pool="node-a", device="odd")
    scene = Scene(resolve=lambda _driver, _pool, device: C if device == "odd" else None)
    scene.told = (pod("job", claims=(claim,)),)

    scene.pods.ask(0.0)

    assert scene.shown == [{GpuPart(BUS_C): (user("job", claim=ANY),)}]


def test_unknown_devices_are_counted_and_logged_once_and_no_more_than_a_few(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.told = (pod("job", given("nvidia.com/gpu", A, *(f"GPU-{n}" for n in range(8)))),)
    caplog.set_level(logging.WARNING)

    scene.pods.ask(0.0)
    scene.pods.ask(5.0)

    assert scene.metric("gpuscape_unknown_devices") == 8
    assert scene.shown[0] == {GpuPart(BUS_A): (user("job"),)}
    (why,) = whys(caplog, "GPU to pod mapping incomplete")
    assert why == (
        "devices that this node does not have: nvidia.com/gpu GPU-0, nvidia.com/gpu GPU-1, "
        "nvidia.com/gpu GPU-2, nvidia.com/gpu GPU-3, nvidia.com/gpu GPU-4 and 3 more"
    )


def test_the_log_names_few_unknown_devices_and_says_nothing_where_there_are_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    for unknown in ((), ("GPU-y", "GPU-x"), ()):
        scene.told = (pod("job", given("nvidia.com/gpu", A, *unknown)),)
        scene.pods.ask(0.0)
    assert whys(caplog, "GPU to pod mapping incomplete") == [
        "devices that this node does not have: nvidia.com/gpu GPU-x, nvidia.com/gpu GPU-y"
    ]


def test_a_kubelet_that_is_away_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.away = "no such socket"
    caplog.set_level(logging.WARNING)

    scene.pods.ask(0.0)
    scene.pods.ask(5.0)

    assert whys(caplog, "GPU to pod mapping incomplete") == ["no such socket"]
