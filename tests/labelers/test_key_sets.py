# SPDX-License-Identifier: Apache-2.0
"""For each MIG strategy, the compatible keys are exactly those that upstream writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.mig_resources import MigStrategy
from discovery.model import Driver, Fabric, GpuSnapshot, NodeSnapshot, Vgpu
from labelers.compose import decide_labels
from labelers.label_settings import LabelSettings
from tests import build, expected_keys

START = 1_700_000_000
ALWAYS = expected_keys.TIMESTAMP | expected_keys.VGPU_PRESENT | expected_keys.NONE
STRATEGY = expected_keys.STRATEGY

CUT = build.gpu(0, mig=build.SPLIT, mig_devices=(build.mig_device("1g.5gb"),))
EMPTY = build.gpu(0, mig=build.SPLIT)
UNIFIED = build.lacking(build.gpu(0), "memory_bytes")
MANY = build.gpu(
    0,
    mig=build.SPLIT,
    mig_devices=(
        build.mig_device("1g.5gb+me", gi=1),
        build.mig_device("3g.20gb", gi=2),
        build.mig_device("1c.2g.10gb", gi=3),
    ),
)
IN_RACK = build.gpu(
    0,
    fabric=Fabric(
        state=3, status=0, cluster_uuid="0a1b2c3d-0000-4000-8000-0123456789ab", clique_id=1
    ),
)


def node(
    *gpus: GpuSnapshot, vgpu: Vgpu | None = None, driver: Driver | None = None
) -> NodeSnapshot:
    plain = build.node(gpus)
    host = replace(plain.host, vgpu=vgpu or Vgpu(present=False))
    return replace(plain, host=host, driver=driver or plain.driver)


NO_DRIVER = node(build.silent(), driver=Driver())


@pytest.mark.parametrize(
    ("strategy", "machine", "keys"),
    [
        (MigStrategy.NONE, node(build.gpu()), ALWAYS),
        (MigStrategy.NONE, node(CUT), ALWAYS),
        (MigStrategy.NONE, node(UNIFIED), ALWAYS - expected_keys.MEMORY),
        (MigStrategy.NONE, node(IN_RACK), ALWAYS | expected_keys.CLIQUE),
        (
            MigStrategy.NONE,
            node(
                build.gpu(),
                vgpu=Vgpu(present=True, host_driver_version="460.16", host_driver_branch="r460_00"),
            ),
            ALWAYS | expected_keys.VGPU_HOST,
        ),
        (MigStrategy.SINGLE, node(build.gpu()), ALWAYS | STRATEGY),
        (MigStrategy.SINGLE, node(CUT), ALWAYS | STRATEGY | expected_keys.SINGLE),
        (MigStrategy.SINGLE, node(EMPTY), ALWAYS | STRATEGY),
        (MigStrategy.MIXED, node(build.gpu()), ALWAYS | STRATEGY),
        (MigStrategy.MIXED, node(EMPTY), ALWAYS | STRATEGY),
        (MigStrategy.MIXED, node(CUT), ALWAYS | STRATEGY | expected_keys.mixed(["1g.5gb"])),
        (
            MigStrategy.MIXED,
            node(MANY),
            ALWAYS | STRATEGY | expected_keys.mixed(["1g.5gb.me", "3g.20gb", "1c.2g.10gb"]),
        ),
        *((strategy, node(), expected_keys.NO_GPU) for strategy in MigStrategy),
        *((strategy, NO_DRIVER, expected_keys.NO_GPU) for strategy in MigStrategy),
    ],
)
def test_the_keys_are_upstreams_and_no_others(
    strategy: MigStrategy, machine: NodeSnapshot, keys: frozenset[str]
) -> None:
    settings = LabelSettings(mig_strategy=strategy, timestamp_seconds=START)

    assert expected_keys.nvidia(decide_labels(machine, settings).values) == keys


def test_a_whole_node_has_all_of_gpuscapes_own_keys() -> None:
    machine = node(build.gpu(0, memory_bus_bits=5120), build.gpu(1, memory_bus_bits=5120))

    own = {key for key in decide_labels(machine, LabelSettings()).values if "gpuscape.io/" in key}

    assert own == {
        "gpuscape.io/count.MOCKMODEL",
        "gpuscape.io/memory.MOCKMODEL",
        "gpuscape.io/gpu.architecture",
        "gpuscape.io/gpu.memory-type",
        "gpuscape.io/gpu.expected",
        "gpuscape.io/gpu.found",
        "gpuscape.io/gpu.health",
        "gpuscape.io/nvlink.class",
        "gpuscape.io/nvlink.island",
    }
