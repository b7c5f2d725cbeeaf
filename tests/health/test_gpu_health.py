# SPDX-License-Identifier: Apache-2.0
"""The health table, row by row, and the counts of GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from api.fabric_kind import FabricKind
from discovery.model import (
    Driver,
    Fabric,
    Gap,
    GpuSnapshot,
    GpuState,
    NodeSnapshot,
    NvLink,
    Reason,
    RemappedRows,
    Topology,
    Xid,
)
from health.gpu_health import gpu_verdict
from health.gpu_rules import GPU_RULES
from health.health_verdict import Health, HealthVerdict
from health.node_health import COUNT_RULES, node_verdict
from labelers.decision import Absent, Keep, Value
from labelers.groups.health_labels import health_labels
from labelers.label_settings import LabelSettings
from labelers.label_values import value_fault
from tests import build

HEALTHY, UNKNOWN, DEGRADED, UNHEALTHY = Health
GOOD_MASK = 0b0001_10_10_10_10
"""Every pair answers no, the configuration is right."""


def rows(**facts: Any) -> RemappedRows:
    plain = {"correctable": 1, "uncorrectable": 2, "pending": False, "failed": False}
    return RemappedRows(**{**plain, **facts})


def fabric(state: int = 3, status: int = 0, mask: int | None = None) -> Fabric:
    uuid = "0a1b2c3d-0000-4000-8000-0123456789ab"
    return Fabric(state=state, status=status, cluster_uuid=uuid, clique_id=1, health_mask=mask)


def ports(active: int, of: int = 4) -> tuple[NvLink, ...]:
    return tuple(NvLink(link=at, active=at < active) for at in range(of))


def linked(
    kind: FabricKind, links: tuple[tuple[int | None, ...], ...], *gpus: GpuSnapshot
) -> NodeSnapshot:
    topology = Topology(gpus=tuple(gpu.bus_id for gpu in gpus), kind=kind, nvlinks=links)
    return build.node(gpus, topology=topology)


FORBIDDEN = (Gap(what="state", reason=Reason.FORBIDDEN, source="nvml"),)

SICK = (
    (build.silent(state=GpuState.LOST), UNHEALTHY, "gpu-lost"),
    (build.silent(state=GpuState.HUNG), UNHEALTHY, "gpu-hung"),
    (build.silent(state=GpuState.UNREADABLE), UNHEALTHY, "gpu-unreadable"),
    (build.silent(state=GpuState.UNREADABLE, gaps=FORBIDDEN), UNKNOWN, "gpu-forbidden"),
    (build.gpu(recovery_action=1), UNHEALTHY, "recovery-reset"),
    (build.gpu(recovery_action=6), UNHEALTHY, "recovery-reset"),
    (build.gpu(recovery_action=2), UNHEALTHY, "recovery-reboot"),
    (build.gpu(recovery_action=7), UNHEALTHY, "recovery-reboot"),
    (build.gpu(recovery_action=5), UNHEALTHY, "recovery-imex"),
    (build.gpu(recovery_action=3), DEGRADED, "recovery-drain"),
    (build.gpu(recovery_action=4), DEGRADED, "recovery-drain"),
    (build.gpu(remapped_rows=rows(failed=True)), UNHEALTHY, "row-remap-failed"),
    (build.gpu(remapped_rows=rows(pending=True)), DEGRADED, "row-remap-pending"),
    (build.gpu(retired_pages_pending=True), DEGRADED, "page-retirement-pending"),
    (build.gpu(fabric=fabric(status=999)), UNHEALTHY, "fabric-failed"),
    (build.gpu(fabric=fabric(state=1)), DEGRADED, "fabric-unfinished"),
    (build.gpu(fabric=fabric(state=2)), DEGRADED, "fabric-unfinished"),
    (build.gpu(fabric=fabric(mask=0b01)), DEGRADED, "fabric-unhealthy"),
    (build.gpu(fabric=fabric(mask=0b01 << 2)), DEGRADED, "fabric-unhealthy"),
    (build.gpu(fabric=fabric(mask=0b01 << 4)), DEGRADED, "fabric-unhealthy"),
    (build.gpu(fabric=fabric(mask=0b01 << 6)), DEGRADED, "fabric-unhealthy"),
    (build.gpu(fabric=fabric(mask=2 << 8)), DEGRADED, "fabric-unhealthy"),
    (build.gpu(fabric=fabric(mask=5 << 8)), DEGRADED, "fabric-unhealthy"),
)

WELL = (
    build.gpu(),
    build.gpu(recovery_action=0, remapped_rows=rows(), retired_pages_pending=False),
    build.gpu(fabric=fabric(mask=GOOD_MASK)),
    build.gpu(fabric=fabric(state=0, status=3)),
    build.gpu(fabric=fabric(mask=0)),
    build.lacking(build.gpu(), "remapped_rows", Reason.FAILED),
)


@pytest.mark.parametrize(("gpu", "health", "reason"), SICK)
def test_each_fault_has_its_health_and_reason(
    gpu: GpuSnapshot, health: Health, reason: str
) -> None:
    verdict = gpu_verdict(gpu, build.node([gpu]))

    assert (verdict.health, verdict.reason, verdict.bus_id) == (health, reason, gpu.bus_id)


@pytest.mark.parametrize("gpu", WELL)
def test_a_gpu_without_faults_is_healthy(gpu: GpuSnapshot) -> None:
    verdict = gpu_verdict(gpu, build.node([gpu]))

    assert (verdict.health, verdict.reason) == (HEALTHY, "")


@pytest.mark.parametrize(
    ("codes", "health", "reason"),
    [
        ((13, 31, 43, 45, 68, 109), HEALTHY, ""),
        ((63, 92, 154), HEALTHY, ""),
        ((94,), DEGRADED, "xid-94"),
        ((999,), DEGRADED, "xid-999"),
        ((13, 79), UNHEALTHY, "xid-79"),
        *(((code,), UNHEALTHY, f"xid-{code}") for code in (48, 62, 64, 74, 95, 119, 120)),
    ],
)
def test_xids_count_by_their_class(codes: tuple[int, ...], health: Health, reason: str) -> None:
    gpu = build.gpu(xids=tuple(Xid(code=code, count=1) for code in codes))

    verdict = gpu_verdict(gpu, build.node([gpu]))

    assert (verdict.health, verdict.reason) == (health, reason)


def test_an_xid_that_is_over_has_no_bearing_on_health() -> None:
    gpu = build.gpu(xids=(Xid(code=79, count=1, over=True), Xid(code=94, count=1)))
    well = build.gpu(xids=(Xid(code=94, count=1, over=True),))

    assert gpu_verdict(gpu, build.node([gpu])).reason == "xid-94"
    assert gpu_verdict(well, build.node([well])).health is HEALTHY


def test_after_a_recovery_a_critical_xid_only_degrades() -> None:
    gpu = build.gpu(xids=(Xid(code=79, count=1),), recovery_action=0)

    assert gpu_verdict(gpu, build.node([gpu])).health is DEGRADED


@pytest.mark.parametrize(
    ("kind", "there"), [(FabricKind.SWITCH, 4), (FabricKind.MESH, 3)], ids=["switch", "mesh"]
)
def test_fewer_links_than_a_peer_degrade_the_gpu_that_has_them_alone(
    kind: FabricKind, there: int
) -> None:
    """Behind a switch the peer's links are all up, though they lead nowhere else."""
    full, less = build.gpu(0, links=ports(4)), build.gpu(1, links=ports(3))
    node = linked(kind, ((0, there), (3, 0)), full, less)

    assert gpu_verdict(full, node).health is HEALTHY
    assert gpu_verdict(less, node).reason == "nvlink-inactive"


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (FabricKind.BRIDGE, build.gpu(1, links=ports(0))),
        (FabricKind.SWITCH, build.gpu(1, links=ports(3), model="Another")),
        (FabricKind.SWITCH, build.gpu(1, links=ports(0), mig=build.SPLIT)),
        (FabricKind.SWITCH, build.lacking(build.gpu(1), "links", Reason.FAILED)),
    ],
    ids=["a bridge may be missing by intent", "another model", "MIG is on", "not told"],
)
def test_fewer_links_with_a_reason_are_no_fault(kind: FabricKind, other: GpuSnapshot) -> None:
    node = linked(kind, ((0, 0), (0, 0)), build.gpu(0, links=ports(4)), other)

    assert gpu_verdict(other, node).health is HEALTHY


def test_links_up_at_one_end_only_degrade_both_gpus() -> None:
    gpus = build.gpu(0), build.gpu(1), build.gpu(2)
    node = linked(FabricKind.BRIDGE, ((0, 4, 0), (3, 0, None), (0, None, 0)), *gpus)

    assert [gpu_verdict(gpu, node).reason for gpu in gpus] == [
        "nvlink-asymmetric",
        "nvlink-asymmetric",
        "",
    ]


@pytest.mark.parametrize("kind", [FabricKind.NONE, FabricKind.SWITCH])
def test_links_up_at_one_end_only_are_no_fault_behind_switches(kind: FabricKind) -> None:
    gpus = build.gpu(0), build.gpu(1)
    node = linked(kind, ((0, 4), (3, 0)), *gpus)

    expected = "" if kind is FabricKind.SWITCH else "nvlink-asymmetric"
    assert [gpu_verdict(gpu, node).reason for gpu in gpus] == [expected] * 2


def test_links_up_at_one_end_only_are_no_fault_of_a_gpu_with_mig_on() -> None:
    cut, whole = build.gpu(0, mig=build.SPLIT), build.gpu(1)
    node = linked(FabricKind.BRIDGE, ((0, 4), (0, 0)), cut, whole)

    assert gpu_verdict(cut, node).health is HEALTHY
    assert gpu_verdict(whole, node).reason == "nvlink-asymmetric"


def test_links_of_a_gpu_that_the_topology_does_not_have_are_not_compared() -> None:
    node = linked(FabricKind.BRIDGE, ((0, 4), (3, 0)), build.gpu(0), build.gpu(1))
    other = build.gpu(2)

    assert gpu_verdict(other, node).health is HEALTHY


@pytest.mark.parametrize(("mask", "health"), [(1 << 8, HEALTHY), (2 << 8, DEGRADED)])
def test_of_the_fabrics_configuration_only_the_wrong_ones_degrade(
    mask: int, health: Health
) -> None:
    gpu = build.gpu(fabric=fabric(mask=mask))
    assert gpu_verdict(gpu, build.node([gpu])).health is health


def test_of_findings_as_bad_the_first_in_the_table_counts_and_xids_come_last() -> None:
    gpu = build.gpu(
        recovery_action=1, remapped_rows=rows(failed=True), xids=(Xid(code=79, count=1),)
    )
    later = build.gpu(1, remapped_rows=rows(failed=True), xids=(Xid(code=79, count=1),))

    assert gpu_verdict(gpu, build.node([gpu])).reason == "recovery-reset"
    assert gpu_verdict(later, build.node([later])).reason == "row-remap-failed"
    assert node_verdict(build.node([later, gpu])) == gpu_verdict(gpu, build.node([later, gpu]))


def test_of_gpus_as_ill_the_first_on_the_bus_is_named() -> None:
    node = build.node([build.gpu(0), build.silent(1), build.silent(2)])
    assert node_verdict(node) == HealthVerdict(
        health=UNHEALTHY, reason="gpu-lost", bus_id="0000:11:00.0"
    )


def test_the_worst_finding_of_a_gpu_counts() -> None:
    gpu = build.gpu(remapped_rows=rows(pending=True, failed=True), xids=(Xid(code=94, count=3),))

    assert gpu_verdict(gpu, build.node([gpu])).reason == "row-remap-failed"


@pytest.mark.parametrize(
    ("gpus", "health", "reason"),
    [
        ([build.gpu(0), build.gpu(1)], "healthy", None),
        ([build.gpu(0), build.silent(1)], "unhealthy", "gpu-lost"),
        ([build.gpu(0, recovery_action=4), build.gpu(1)], "degraded", "recovery-drain"),
        (
            [build.gpu(0), build.silent(1, GpuState.UNREADABLE, gaps=FORBIDDEN)],
            "unknown",
            "gpu-forbidden",
        ),
    ],
)
def test_a_node_is_as_ill_as_its_worst_gpu(
    gpus: list[GpuSnapshot], health: str, reason: str | None
) -> None:
    labels = health_labels(build.node(gpus), LabelSettings())

    assert labels["gpuscape.io/gpu.health"] == Value(text=health)
    assert labels["gpuscape.io/gpu.health-reason"] == (
        Absent(reason="healthy") if reason is None else Value(text=reason)
    )


def test_expected_and_found_gpus_are_told_apart() -> None:
    node = build.node([build.gpu(0), build.silent(1)])

    labels = health_labels(node, LabelSettings())

    assert labels["gpuscape.io/gpu.expected"] == Value(text="2")
    assert labels["gpuscape.io/gpu.found"] == Value(text="1")


def test_without_a_driver_health_is_unknown_and_nothing_counts_as_lost() -> None:
    gpus = [build.silent(at, GpuState.UNREADABLE) for at in range(2)]
    labels = health_labels(build.node(gpus, driver=Driver()), LabelSettings())

    why = "no driver answers: version was not read"
    assert labels == {
        "gpuscape.io/gpu.expected": Keep(reason=why, otherwise="2"),
        "gpuscape.io/gpu.found": Keep(reason=why),
        "gpuscape.io/gpu.health": Value(text="unknown"),
        "gpuscape.io/gpu.health-reason": Value(text="no-driver"),
    }


def test_a_driver_that_does_not_answer_in_time_is_named_as_the_reason() -> None:
    gap = Gap(what="version", reason=Reason.HUNG, source="device reader")
    node = build.node([build.silent(0)], driver=Driver(gaps=(gap,)))

    assert node_verdict(node) == HealthVerdict(health=Health.UNKNOWN, reason="driver-hung")


def test_a_driver_that_hides_its_version_does_not_make_answering_gpus_ill() -> None:
    assert node_verdict(build.node([build.gpu()], driver=Driver())).health is HEALTHY


def test_reasons_are_unique_label_values_and_each_rule_names_its_source() -> None:
    reasons = [*(it.reason for it in GPU_RULES), *(it.reason for it in COUNT_RULES)]

    assert len(set(reasons)) == len(reasons)
    assert [rule for rule in GPU_RULES if value_fault(rule.reason) or not rule.source] == []


def test_every_rule_is_met_by_a_case_here() -> None:
    tested = {reason for _, _, reason in SICK} | {"nvlink-inactive", "nvlink-asymmetric"}

    assert tested == {rule.reason for rule in GPU_RULES}
