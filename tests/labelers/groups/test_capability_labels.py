# SPDX-License-Identifier: Apache-2.0
"""mig.capable and mps.capable."""

from __future__ import annotations

import pytest

from discovery.model import GpuSnapshot, Reason
from labelers.decision import Absent, Decision, Keep, Value
from labelers.groups.capability_labels import capability_labels
from labelers.groups.sharing import NOTHING_SHARED, SharedResource, Sharing, SharingStrategy
from labelers.label_settings import LabelSettings
from tests import build

MIG = build.gpu(0)
NO_MIG = build.lacking(build.gpu(1), "mig")
NOT_TOLD = build.lacking(build.gpu(2), "mig", Reason.FAILED, "nvmlDeviceGetMigMode")
CUT = build.gpu(3, mig=build.SPLIT)

TRUE, FALSE = Value(text="true"), Value(text="false")


def shared(strategy: SharingStrategy, replicas: int = 2) -> Sharing:
    resource = SharedResource(name="nvidia.com/gpu", replicas=replicas)
    return Sharing(strategy=strategy, resources=(resource,))


def decided(key: str, gpus: list[GpuSnapshot], sharing: Sharing = NOTHING_SHARED) -> Decision:
    return capability_labels(build.node(gpus), LabelSettings(sharing=sharing))[key]


@pytest.mark.parametrize(
    ("gpus", "decision"),
    [
        ([MIG], TRUE),
        ([NO_MIG, MIG], TRUE),
        ([NO_MIG], FALSE),
        ([MIG, NOT_TOLD], TRUE),
        ([NO_MIG, NOT_TOLD], Keep(reason="nvmlDeviceGetMigMode: failed")),
        (
            [NO_MIG, build.silent(3)],
            Keep(reason="no GPU that answered has MIG, but not all answered"),
        ),
        ([], Absent(reason="this node has no NVIDIA GPU")),
    ],
)
def test_a_node_is_mig_capable_when_a_gpu_is_and_not_when_all_say_no(
    gpus: list[GpuSnapshot], decision: Decision
) -> None:
    assert decided("nvidia.com/mig.capable", gpus) == decision


@pytest.mark.parametrize(
    "sharing",
    [
        NOTHING_SHARED,
        shared(SharingStrategy.TIME_SLICING),
        shared(SharingStrategy.MPS, replicas=1),
        Sharing(strategy=SharingStrategy.MPS),
    ],
)
def test_without_mps_in_the_configuration_mps_capable_is_false(sharing: Sharing) -> None:
    assert decided("nvidia.com/mps.capable", [MIG], sharing) == FALSE


@pytest.mark.parametrize(
    ("gpus", "decision"),
    [
        ([MIG, NO_MIG], TRUE),
        ([MIG, CUT], Absent(reason="MPS sharing is configured, but 0000:13:00.0 has MIG on")),
        ([NOT_TOLD], Keep(reason="nvmlDeviceGetMigMode: failed")),
    ],
)
def test_mps_and_mig_together_cost_one_label(gpus: list[GpuSnapshot], decision: Decision) -> None:
    assert decided("nvidia.com/mps.capable", gpus, shared(SharingStrategy.MPS)) == decision
