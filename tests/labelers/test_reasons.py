# SPDX-License-Identifier: Apache-2.0
"""Why a label is kept or absent, word for word: people search for these sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api import keys
from api.fabric_kind import FabricKind
from api.mig_resources import MigStrategy
from discovery.model import (
    Driver,
    Fabric,
    Gap,
    GpuSnapshot,
    Host,
    MigDevice,
    NodeSnapshot,
    Reason,
    Topology,
    Vgpu,
)
from discovery.nvml_terms import Architecture
from labelers.annotations import node_annotations
from labelers.compose import decide_labels
from labelers.decision import Absent, Decision, Decisions, Keep
from labelers.label_settings import LabelSettings
from tests import build

NONE, SINGLE, MIXED = MigStrategy.NONE, MigStrategy.SINGLE, MigStrategy.MIXED
SLICES = "nvidia.com/gpu.slices.gi"
PROFILES = "nvidia.com/mig-<profile>.count"
MODELS = (keys.MODEL_COUNT_FAMILY, keys.MODEL_MEMORY_FAMILY)
HOSTS = (keys.VGPU_HOST_VERSION, keys.VGPU_HOST_BRANCH)
LINKS = (keys.NVLINK_CLASS, keys.NVLINK_ISLAND)
RACKS = ("0a1b2c3d-0000-4000-8000-0123456789ab", "00002c3d-0000-4000-8000-0123456789ab")
SMALL, LARGE = build.mig_device("1g.5gb"), build.mig_device("3g.20gb", gi=2)


def one(**facts: Any) -> NodeSnapshot:
    return build.node([build.gpu(**facts)])


def without(what: str, reason: Reason = Reason.FAILED) -> NodeSnapshot:
    """One GPU that lacks a reading."""
    return build.node([build.lacking(build.gpu(), what, reason, "nvmlAsked")])


def driven(**facts: Any) -> NodeSnapshot:
    return build.node([build.gpu()], driver=Driver(**facts))


def cut(at: int, *devices: MigDevice) -> GpuSnapshot:
    return build.gpu(at, mig=build.SPLIT, mig_devices=devices)


def in_fabric(at: int = 0, state: int = 3, rack: str = RACKS[0]) -> GpuSnapshot:
    fabric = Fabric(state=state, status=0, cluster_uuid=rack, clique_id=1)
    return build.gpu(at, fabric=fabric)


def blind(kind: FabricKind, *, settling: bool = False) -> NodeSnapshot:
    """Two GPUs, one of which did not report its links to the other."""
    gpus = (build.gpu(0), build.gpu(1))
    links = ((0, 4, None), (4, 0, 4), (None, 4, 0))
    topology = Topology(gpus=tuple(gpu.bus_id for gpu in gpus), kind=kind, nvlinks=links)
    return build.node(gpus, topology=topology, settling=settling)


def labels(node: NodeSnapshot, strategy: MigStrategy = NONE) -> Decisions:
    decided = decide_labels(node, LabelSettings(mig_strategy=strategy))
    assert decided.failures == ()
    return decided.decisions


UNKNOWN_LINKS = "the NVLinks of a GPU are not known"
SILENT = build.node([build.gpu(0), build.silent(1)])


@pytest.mark.parametrize(
    ("node", "of", "decision"),
    [
        (build.node(), "nvidia.com/gpu.count", Absent(reason="this node has no NVIDIA GPU")),
        (build.node([build.silent()]), keys.MODE, Keep(reason="no GPU answered")),
        (one(), keys.TIMESTAMP, Absent(reason="switched off")),
        *((one(), key, Absent(reason="no GPU of another model")) for key in MODELS),
        *(
            (SILENT, key, Keep(reason="the model of 0000:11:00.0 is not known: it did not answer"))
            for key in MODELS
        ),
        (
            SILENT,
            "nvidia.com/gpu.count",
            Keep(reason="the model of 0000:11:00.0 is not known: it did not answer", otherwise="1"),
        ),
        (
            replace(SILENT, settling=True),
            "nvidia.com/gpu.count",
            Keep(reason="the model of 0000:11:00.0 is not known: it did not answer"),
        ),
        (without("model"), keys.OWN_ARCHITECTURE, Keep(reason="nvmlAsked: failed")),
        (without("architecture"), keys.OWN_ARCHITECTURE, Keep(reason="nvmlAsked: failed")),
        (one(architecture=None), keys.OWN_ARCHITECTURE, Keep(reason="architecture was not read")),
        (
            one(architecture=Architecture.OTHER),
            keys.OWN_ARCHITECTURE,
            Absent(reason="an architecture newer than this version of gpuscape"),
        ),
        (without("memory_bus_bits"), keys.MEMORY_TYPE, Keep(reason="nvmlAsked: failed")),
        (one(), keys.CLIQUE, Keep(reason="fabric was not read")),
        (
            without("fabric", Reason.UNSUPPORTED),
            keys.CLIQUE,
            Absent(reason="nvmlAsked: unsupported"),
        ),
        (
            build.node([in_fabric(state=0)]),
            keys.CLIQUE,
            Absent(reason="no GPU is in a fabric"),
        ),
        (
            build.node([in_fabric(state=2)]),
            keys.CLIQUE,
            Keep(reason="registration with the fabric is in progress"),
        ),
        (
            build.node([in_fabric(at, rack=rack) for at, rack in enumerate(RACKS)]),
            keys.CLIQUE,
            Absent(reason=f"GPUs are in several cliques: {RACKS[1]}.1, {RACKS[0]}.1"),
        ),
        *((blind(FabricKind.NONE), key, Keep(reason=UNKNOWN_LINKS)) for key in LINKS),
        (
            blind(FabricKind.MESH),
            keys.NVLINK_CLASS,
            Keep(reason=UNKNOWN_LINKS, otherwise="mesh"),
        ),
        (blind(FabricKind.MESH, settling=True), keys.NVLINK_CLASS, Keep(reason=UNKNOWN_LINKS)),
        *(
            (
                driven(version="400", cuda_version=(8, 0)),
                f"nvidia.com/cuda.{part}",
                Absent(reason="driver version '400' is not of the form X.Y or X.Y.Z"),
            )
            for part in ("driver.major", "driver-version.minor", "driver.rev")
        ),
        *(
            (
                driven(
                    version="400.300",
                    gaps=(Gap(what="cuda_version", reason=Reason.FAILED, source="nvmlCuda"),),
                ),
                f"nvidia.com/cuda.runtime.{part}",
                Keep(reason="nvmlCuda: failed"),
            )
            for part in ("major", "minor")
        ),
        (
            driven(cuda_version=(8, 0)),
            "nvidia.com/cuda.driver-version.full",
            Keep(reason="version was not read"),
        ),
        *(
            (
                build.node([build.gpu()], host=Host(name="a", vgpu=Vgpu(present=True))),
                key,
                Absent(reason="the vGPU's configuration space has no host driver record"),
            )
            for key in HOSTS
        ),
        *(
            (
                build.node([build.gpu()], host=Host(name="a", vgpu=Vgpu(present=False))),
                key,
                Absent(reason="no GPU here is a vGPU"),
            )
            for key in HOSTS
        ),
        (one(), keys.MIG_STRATEGY, Absent(reason="the MIG strategy is none")),
        (one(), SLICES, Absent(reason="MIG strategy none")),
        (one(), PROFILES, Absent(reason="MIG strategy none")),
    ],
)
def test_a_label_without_a_value_has_its_reason(
    node: NodeSnapshot, of: str, decision: Decision
) -> None:
    assert labels(node)[of] == decision


@pytest.mark.parametrize(
    ("gpus", "strategy", "of", "decision"),
    [
        ((build.gpu(),), SINGLE, SLICES, Absent(reason="no GPU has MIG on")),
        ((build.gpu(),), SINGLE, PROFILES, Absent(reason="MIG strategy single")),
        ((cut(0),), SINGLE, SLICES, Absent(reason="a GPU with MIG on has no MIG device")),
        (
            (cut(0, SMALL), build.gpu(1)),
            SINGLE,
            SLICES,
            Absent(reason="MIG is on for some GPUs and off for others"),
        ),
        (
            (cut(0, LARGE, SMALL),),
            SINGLE,
            SLICES,
            Absent(reason="there are MIG devices of several profiles: 1g.5gb, 3g.20gb"),
        ),
        (
            (cut(0, SMALL), build.silent(1, model="MOCKMODEL")),
            SINGLE,
            "nvidia.com/gpu.count",
            Keep(reason="a GPU did not answer for its MIG devices", otherwise="1"),
        ),
        ((cut(0, SMALL),), MIXED, SLICES, Absent(reason="MIG strategy mixed")),
        ((cut(0, SMALL),), MIXED, PROFILES, Absent(reason="no MIG device of another profile")),
        (
            (cut(0, SMALL), build.silent(1, model="MOCKMODEL")),
            MIXED,
            PROFILES,
            Keep(reason="a GPU did not answer for its MIG devices"),
        ),
        (
            (
                cut(0, SMALL),
                build.lacking(cut(1, SMALL), "mig_devices", Reason.FORBIDDEN, "nvmlAsked"),
            ),
            MIXED,
            PROFILES,
            Keep(reason="nvmlAsked: forbidden"),
        ),
    ],
)
def test_a_label_of_mig_devices_without_a_value_has_its_reason(
    gpus: tuple[GpuSnapshot, ...], strategy: MigStrategy, of: str, decision: Decision
) -> None:
    assert labels(build.node(gpus), strategy)[of] == decision


def test_a_topology_that_is_not_whole_names_the_gpus_whose_links_or_uuid_is_missing() -> None:
    node = build.node([build.gpu(0), build.silent(1), build.gpu(2, uuid=None)])
    decision = node_annotations(node)[keys.TOPOLOGY]
    assert isinstance(decision, Keep)
    assert decision.reason == "links or UUID not known: 0000:11:00.0, 0000:12:00.0"
