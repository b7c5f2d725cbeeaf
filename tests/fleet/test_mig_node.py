# SPDX-License-Identifier: Apache-2.0
"""Nodes and pods as the coordinator reads them."""

from __future__ import annotations

from typing import Any

import pytest

from api import keys
from fleet.gpu_pod import gpu_pod_of, is_gpu_or_client_pod
from fleet.mig_node import UnavailableReason, node_of
from tests.fleet.simulated_fleet import TERMS

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def node(status: Any = READY, **more: Any) -> Any:
    """A Node; ``more`` are parts of its metadata, or its spec."""
    spec = more.pop("spec", {})
    return {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1", **more},
        "spec": spec,
        "status": status,
    }


@pytest.mark.parametrize(
    ("seen", "away"),
    [
        (node(), None),
        (node({}), UnavailableReason.NOT_READY),
        (
            node({"conditions": [{"type": "Ready", "status": "Unknown"}]}),
            UnavailableReason.NOT_READY,
        ),
        (node(deletionTimestamp="2026-11-20T08:00:00Z"), UnavailableReason.REMOVAL),
        (
            node(spec={"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}),
            UnavailableReason.REMOVAL,
        ),
        (node(spec={"taints": [{"key": "karpenter.sh/disrupted"}]}), UnavailableReason.REMOVAL),
        (node(spec={"taints": [{"key": "node.kubernetes.io/unschedulable"}]}), None),
        (
            node(labels={"nvidia.com/gpu-driver-upgrade-state": "drain-required"}),
            UnavailableReason.DRIVER_UPGRADE,
        ),
        (node(labels={"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}), None),
        (
            node(labels={"nvidia.com/gpu.deploy.nvsm": "mine_paused-for-driver-upgrade"}),
            UnavailableReason.DRIVER_UPGRADE,
        ),
        (node(labels={"nvidia.com/gpu.deploy.nvsm": "paused-for-mig-change"}), None),
        (node(annotations={"weave.works/kured-reboot-in-progress": "x"}), UnavailableReason.REBOOT),
    ],
)
def test_a_node_is_available_unless_somebody_else_works_on_it(
    seen: Any, away: UnavailableReason | None
) -> None:
    assert node_of(seen, TERMS.resources).away is away


def test_damaged_annotations_are_none_and_a_zero_is_offered_by_nobody() -> None:
    notes = {keys.MIG_REQUEST: "{", keys.MIG_STATUS: '{"v":99}', keys.MIG_PERMIT: "[]"}
    status = READY | {
        "allocatable": {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7", "cpu": "4"}
    }
    found = node_of(node(status, annotations=notes), TERMS.resources)
    assert (found.request, found.status, found.permit) == (None, None, None)
    assert (found.status_damaged, found.permit_text) == (True, "[]")
    assert found.allocatable == (("nvidia.com/mig-1g.10gb", 7),)
    assert found.counts
    assert not node_of(node(), TERMS.resources).counts


@pytest.mark.parametrize(
    ("status", "placed"),
    [
        ({"phase": "Pending"}, False),
        ({"phase": "Pending", "startTime": "2026-11-20T08:00:00Z"}, True),
        ({"phase": "Running"}, True),
        ({"phase": "Unknown"}, True),
    ],
)
def test_a_pod_has_its_devices_once_its_kubelet_has_written_its_status(
    status: Any, placed: bool
) -> None:
    pod = {"metadata": {"namespace": "d", "name": "p", "uid": "u"}, "status": status}
    assert gpu_pod_of(pod, TERMS).is_placed is placed


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("asked", ["requests", "limits"])
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "cpu"])
def test_a_pod_holds_gpus_by_any_of_its_containers(kind: str, asked: str, resource: str) -> None:
    spec = {"nodeName": "n", kind: [{"resources": {asked: {resource: "1"}}}]}
    pod = {"metadata": {"namespace": "d", "name": "p", "uid": "u"}, "spec": spec}
    assert is_gpu_or_client_pod(pod, TERMS) is (resource != "cpu")
    assert gpu_pod_of(pod, TERMS).holds is (resource != "cpu")
    assert not gpu_pod_of(pod | {"status": {"phase": "Failed"}}, TERMS).holds


@pytest.mark.parametrize("limits", [{"nvidia.com/gpu": "0"}, {"nvidia.com/gpumem": "3000"}])
def test_a_pod_that_asks_for_no_gpu_holds_none(limits: dict[str, str]) -> None:
    """Charts render an amount of 0 for CPUs; HAMi counts memory under a name of its own."""
    spec = {"nodeName": "n", "containers": [{"resources": {"limits": limits}}]}
    pod = {"metadata": {"namespace": "d", "name": "p", "uid": "u"}, "spec": spec}
    assert not is_gpu_or_client_pod(pod, TERMS)
    assert not gpu_pod_of(pod, TERMS).holds


@pytest.mark.parametrize(
    ("selector", "label"),
    [
        ({}, ""),
        ({"nvidia.com/gpu.deploy.dcgm-exporter": "true"}, "nvidia.com/gpu.deploy.dcgm-exporter"),
        ({"nvidia.com/gpu.deploy.driver": "true"}, ""),
        ({"nvidia.com/gpu.present": "true"}, ""),
        (
            {"pool": "a100", "nvidia.com/gpu.deploy.client": "true"},
            "nvidia.com/gpu.deploy.client",
        ),
    ],
)
def test_a_part_of_the_operator_is_known_by_the_label_that_pauses_it(
    selector: dict[str, str], label: str
) -> None:
    """It asks for no GPU and keeps all open. Never the driver's own pod."""
    spec = {"nodeName": "n", "nodeSelector": selector}
    pod = {"metadata": {"namespace": "d", "name": "p", "uid": "u"}, "spec": spec}
    assert is_gpu_or_client_pod(pod, TERMS) is bool(label)
    assert gpu_pod_of(pod, TERMS).paused_by == label
    assert gpu_pod_of(pod | {"status": {"phase": "Succeeded"}}, TERMS).paused_by == ""
