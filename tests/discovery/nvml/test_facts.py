# SPDX-License-Identifier: Apache-2.0
"""Every fact of a GPU comes from the call that it is said to come from, or is a gap of its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from discovery.model import (
    Driver,
    Fabric,
    Gap,
    GpuSnapshot,
    GpuState,
    MigDevice,
    Mode,
    NvLink,
    Reason,
    RemappedRows,
)
from discovery.nvml.facts import read_driver, read_gpu, unreadable
from discovery.nvml.session import open_gpu
from discovery.nvml_terms import Architecture, LinkPeer, Virtualization
from simulator.description.machine_schema import FabricSpec, MigInstanceSpec
from simulator.simulation import Return
from tests import build, machines
from tests.discovery.sampling import Sampler, leaves, small

GIB, MIB = 1 << 30, 1 << 20
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LOST, UNKNOWN = 3, 4, 6, 15, 999
"""NVML_ERROR_* of nvml.h."""
CLUSTER = "01234567-89ab-cdef-0123-456789abcdef"

WHOLE = machines.gpu(
    0,
    uuid="GPU-11111111-2222-3333-4444-555555555555",
    serial="1650522000001",
    minor=3,
    numa_id=2,
    virtualization=1,
    fabric=FabricSpec(cluster_uuid=CLUSTER, clique_id=5, health_mask=0x16, health_summary=3),
)
SPLIT = machines.gpu(
    1,
    mig=True,
    instances=(
        MigInstanceSpec(profile="3g.20gb", start=4, id=2, compute=(1, 2)),
        MigInstanceSpec(profile="1g.5gb", start=0, id=9),
    ),
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sampler]:
    directory: Path = tmp_path_factory.mktemp("machine")
    with small(directory, WHOLE, SPLIT, fabric=True) as machine:
        machine.simulation.set_readings(
            WHOLE.bus_id,
            remapped_correctable=3,
            remapped_uncorrectable=2,
            remap_pending=True,
            remap_failed=False,
        )
        yield machine


@pytest.fixture(autouse=True)
def _healthy(machine: Sampler) -> Iterator[None]:
    yield
    machine.simulation.clear()


def handle(bus_id: str) -> Any:
    found, gap = open_gpu(bus_id)
    assert gap is None
    return found


def read(bus_id: str, *peers: str) -> GpuSnapshot:
    return read_gpu(bus_id, handle(bus_id), {peer: handle(peer) for peer in peers})


def test_a_driver_has_its_versions() -> None:
    """CUDA's comes as 1000 times the major one plus 10 times the minor one: 12040 is 12.4."""
    assert read_driver() == Driver(
        version="550.54.15", nvml_version="12.550.54.15", cuda_version=(12, 4)
    )


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("nvmlSystemGetDriverVersion", "version"),
        ("nvmlSystemGetNVMLVersion", "nvml_version"),
        ("nvmlSystemGetCudaDriverVersion_v2", "cuda_version"),
    ],
)
def test_a_version_that_cannot_be_read_is_a_gap(machine: Sampler, call: str, what: str) -> None:
    machine.simulation.fault(Return(code=UNKNOWN), call)
    driver = read_driver()
    assert getattr(driver, what) is None
    assert driver.gaps == (
        Gap(what=what, reason=Reason.FAILED, source=call, detail="Unknown Error"),
    )


def test_a_gpu_has_the_facts_that_the_driver_gives_in_base_units() -> None:
    link = NvLink(
        link=0, active=True, version=7, peer=LinkPeer.SWITCH, bytes_per_second=25_000_000_000
    )
    gpu = read(WHOLE.bus_id, SPLIT.bus_id)
    found = build.gpu_facts(gpu)
    gaps = found.pop("gaps")
    assert found == {
        "bus_id": "0000:10:00.0",
        "state": GpuState.PRESENT,
        "minor": 3,
        "uuid": "GPU-11111111-2222-3333-4444-555555555555",
        "serial": "1650522000001",
        "model": "NVIDIA Small",
        "architecture": Architecture.HOPPER,
        "compute_capability": (8, 0),
        "pci_device_id": 0x20B010DE,
        "pci_subsystem_id": 0x134F10DE,
        "vbios_version": "92.00.45.00.03",
        "memory_bytes": 40 * GIB,
        "memory_bus_bits": 5120,
        "ecc": Mode(current=True, pending=True),
        "mig": Mode(current=False, pending=False),
        "max_mig_devices": 0,
        "mig_devices": (),
        "fabric": Fabric(
            state=3,
            status=0,
            cluster_uuid=CLUSTER,
            clique_id=5,
            health_mask=0x16,
            health_summary=3,
        ),
        "links": (link, replace(link, link=1)),
        "remapped_rows": RemappedRows(correctable=3, uncorrectable=2, pending=True, failed=False),
        "retired_pages_pending": None,
        "recovery_action": 0,
        "virtualization": Virtualization.PASSTHROUGH,
        "persistence": True,
        "own_numa_node": 2,
        "ancestors": (("0000:11:00.0", 3),),
        # not the driver's
        "index": None,
        "pci_class": None,
        "numa_node": None,
        "cpu_affinity": None,
        "xids": (),
    }
    assert [(gap.what, gap.reason) for gap in gaps] == [
        ("retired_pages_pending", Reason.UNSUPPORTED)  # Ampere and later remap rows
    ]


def test_mig_devices_have_their_sizes_their_place_and_the_name_of_their_profile() -> None:
    """Slices, multiprocessors and memory are those of the A100's table in the MIG user guide."""
    gpu = read(SPLIT.bus_id)
    one, two, single = gpu.mig_devices
    common: dict[str, Any] = {"jpeg_engines": 0, "ofa_engines": 0, "encoders": 0}
    third: dict[str, Any] = common | {
        "gpu_instance_id": 2,
        "placement": (4, 4),
        "memory_bytes": 19968 * MIB,
        "gpu_instance_slices": 3,
        "copy_engines": 3,
        "decoders": 2,
    }
    facts = build.nvidia(gpu)
    assert (facts.mig, facts.max_mig_devices) == (Mode(current=True, pending=True), 7)
    assert one == MigDevice(**third | {
        "uuid": one.uuid, "compute_instance_id": 0, "profile": "1c.3g.20gb",
        "multiprocessors": 14, "compute_instance_slices": 1,
    })  # fmt: skip
    assert two == MigDevice(**third | {
        "uuid": two.uuid, "compute_instance_id": 1, "profile": "2c.3g.20gb",
        "multiprocessors": 28, "compute_instance_slices": 2,
    })  # fmt: skip
    assert single == MigDevice(**common | {
        "uuid": single.uuid, "gpu_instance_id": 9, "compute_instance_id": 0, "profile": "1g.5gb",
        "placement": (0, 1), "memory_bytes": 4864 * MIB, "multiprocessors": 14,
        "gpu_instance_slices": 1, "compute_instance_slices": 1, "copy_engines": 1, "decoders": 0,
    })  # fmt: skip
    assert len({it.uuid for it in gpu.mig_devices}) == 3
    assert all(it.uuid.startswith("MIG-") for it in gpu.mig_devices)


FACTS_OF: Mapping[str, tuple[str, ...]] = {
    "nvmlDeviceGetUUID": ("uuid",),
    "nvmlDeviceGetName": ("model",),
    "nvmlDeviceGetMinorNumber": ("minor",),
    "nvmlDeviceGetSerial": ("serial",),
    "nvmlDeviceGetVbiosVersion": ("vbios_version",),
    "nvmlDeviceGetArchitecture": ("architecture",),
    "nvmlDeviceGetCudaComputeCapability": ("compute_capability",),
    "nvmlDeviceGetMemoryInfo": ("memory_bytes",),
    "nvmlDeviceGetMemoryBusWidth": ("memory_bus_bits",),
    "nvmlDeviceGetPciInfo_v3": ("pci_device_id", "pci_subsystem_id"),
    "nvmlDeviceGetEccMode": ("ecc",),
    "nvmlDeviceGetPersistenceMode": ("persistence",),
    "nvmlDeviceGetVirtualizationMode": ("virtualization",),
    "nvmlDeviceGetRemappedRows": ("remapped_rows",),
    "nvmlDeviceGetNumaNodeId": ("own_numa_node",),
    "nvmlDeviceGetMigMode": ("mig",),
    "nvmlDeviceGetMaxMigDeviceCount": ("max_mig_devices",),
    "nvmlDeviceGetFieldValues": ("recovery_action", "link_rates"),
    "nvmlDeviceGetGpuFabricInfoV": ("fabric",),
    "nvmlDeviceGetNvLinkState": ("links", "links"),
    "nvmlDeviceGetNvLinkVersion": ("links", "links"),
    "nvmlDeviceGetTopologyCommonAncestor": ("ancestors",),
}
"""Call to the facts that are missing without it; each of the two links leaves a gap."""


@pytest.mark.parametrize("call", FACTS_OF)
def test_a_call_that_fails_costs_its_facts_and_leaves_gaps_with_their_names(
    machine: Sampler, call: str
) -> None:
    before = read(WHOLE.bus_id, SPLIT.bus_id)
    machine.simulation.fault(Return(code=UNKNOWN), call, bus_id=WHOLE.bus_id)
    gpu = read(WHOLE.bus_id, SPLIT.bus_id)
    gaps = [gap for gap in gpu.gaps if gap not in before.gaps]
    assert gaps == [
        Gap(what=what, reason=Reason.FAILED, source=call, detail="Unknown Error")
        for what in FACTS_OF[call]
    ]
    changed = {path.partition(".")[0] for path, _ in leaves(before).items() ^ leaves(gpu).items()}
    behind = {"max_mig_devices"} if call == "nvmlDeviceGetMigMode" else set()
    behind |= {"links"} if "link_rates" in FACTS_OF[call] else set()
    assert changed == {what for what in FACTS_OF[call] if what != "link_rates"} | behind


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetAttributes_v2",
        "nvmlDeviceGetGpuInstanceById",
        "nvmlGpuInstanceGetInfo",
    ],
)
def test_a_mig_device_of_which_something_cannot_be_read_is_left_out_with_a_gap(
    machine: Sampler, call: str
) -> None:
    machine.simulation.fault(Return(code=UNKNOWN), call, bus_id=SPLIT.bus_id, times=1)
    gpu = read(SPLIT.bus_id)
    assert [it.gpu_instance_id for it in gpu.mig_devices] == [2, 9]  # the first one is missing
    assert [gap for gap in gpu.gaps if gap.what == "mig_devices"] == [
        Gap(what="mig_devices", reason=Reason.FAILED, source=call, detail="Unknown Error")
    ]


def test_without_the_right_to_see_mig_devices_the_gap_names_the_fix(machine: Sampler) -> None:
    """The driver then lists none, as if there were none, and refuses to look up an instance."""
    machine.simulation.fault(
        Return(code=NOT_FOUND), "nvmlDeviceGetMigDeviceHandleByIndex", bus_id=SPLIT.bus_id
    )
    machine.simulation.fault(
        Return(code=NO_PERMISSION), "nvmlDeviceGetGpuInstanceById", bus_id=SPLIT.bus_id
    )
    gpu = read(SPLIT.bus_id)
    assert gpu.mig_devices == ()
    (gap,) = (gap for gap in gpu.gaps if gap.what == "mig_devices")
    assert (gap.reason, gap.source) == (Reason.FORBIDDEN, "nvmlDeviceGetGpuInstanceById")
    assert gap.detail.startswith("Insufficient Permissions; ")
    assert "mig/monitor" in gap.detail


def test_a_gpu_in_mig_mode_that_has_no_device_has_no_gap(machine: Sampler) -> None:
    not_found = Return(code=NOT_FOUND)
    machine.simulation.fault(not_found, "nvmlDeviceGetMigDeviceHandleByIndex", bus_id=SPLIT.bus_id)
    machine.simulation.fault(not_found, "nvmlDeviceGetGpuInstanceById", bus_id=SPLIT.bus_id)
    gpu = read(SPLIT.bus_id)
    assert (gpu.mig_devices, gpu.gap("mig_devices")) == ((), None)


def test_a_profile_that_the_driver_does_not_list_leaves_its_devices_out(machine: Sampler) -> None:
    machine.simulation.fault(
        Return(code=UNKNOWN), "nvmlDeviceGetGpuInstanceProfileInfo*", bus_id=SPLIT.bus_id
    )
    gpu = read(SPLIT.bus_id)
    assert gpu.mig_devices == ()
    assert [gap for gap in gpu.gaps if gap.what == "mig_devices"] == [
        Gap(
            what="mig_devices",
            reason=Reason.FAILED,
            source="nvmlDeviceGetGpuInstanceProfileInfo",
            detail=f"no profile with id {number}, so its name is not known",
        )
        for number in (9, 9, 19)
    ]


def test_a_mig_mode_that_cannot_be_read_leaves_a_gap_for_the_memory_of_instances(
    machine: Sampler,
) -> None:
    """Their series would be gone without a reason."""
    assert machine.sample(SPLIT.bus_id, ()).mig_memory != ()
    machine.simulation.fault(Return(code=UNKNOWN), "nvmlDeviceGetMigMode", bus_id=SPLIT.bus_id)
    sample = machine.sample(SPLIT.bus_id, ())
    assert sample.mig_memory == ()
    assert [gap for gap in sample.gaps if gap.source == "nvmlDeviceGetMigMode"] == [
        Gap(
            what="mig_memory",
            reason=Reason.FAILED,
            source="nvmlDeviceGetMigMode",
            detail="Unknown Error",
        )
    ]


def test_a_gpu_that_cannot_have_mig_lacks_no_memory_of_instances(machine: Sampler) -> None:
    machine.simulation.fault(
        Return(code=NOT_SUPPORTED), "nvmlDeviceGetMigMode", bus_id=WHOLE.bus_id
    )
    sample = machine.sample(WHOLE.bus_id, ())
    assert not [gap for gap in sample.gaps if gap.source == "nvmlDeviceGetMigMode"]


def test_levels_to_a_lost_gpu_are_a_gap_and_the_others_are_read(machine: Sampler) -> None:
    machine.simulation.fault(
        Return(code=LOST), "nvmlDeviceGetTopologyCommonAncestor", bus_id=SPLIT.bus_id, times=1
    )
    gpu = read_gpu(
        WHOLE.bus_id,
        handle(WHOLE.bus_id),
        {"0000:ee:00.0": handle(SPLIT.bus_id), SPLIT.bus_id: handle(SPLIT.bus_id)},
    )
    assert gpu.state is GpuState.PRESENT
    assert build.nvidia(gpu).ancestors == ((SPLIT.bus_id, 3),)
    gap = gpu.gap("ancestors")
    assert gap is not None
    assert (gap.reason, gap.source) == (Reason.LOST, "nvmlDeviceGetTopologyCommonAncestor")
    assert "GPU is lost" in gap.detail


def test_a_gpu_that_cannot_be_read_has_its_place_and_why() -> None:
    gpu = unreadable(WHOLE.bus_id, GpuState.LOST, Reason.LOST, "nvmlDeviceGetUUID", "GPU is lost")
    assert leaves(gpu) == {"state": GpuState.LOST}
    assert gpu.gaps == (
        Gap(what="state", reason=Reason.LOST, source="nvmlDeviceGetUUID", detail="GPU is lost"),
    )


def test_a_link_that_is_down_has_no_rate_and_no_far_end(machine: Sampler) -> None:
    machine.simulation.links_down(WHOLE.bus_id, 1)
    links = build.nvidia(read(WHOLE.bus_id)).links
    machine.simulation.links_down(WHOLE.bus_id)
    assert [(it.link, it.active, it.version, it.peer, it.bytes_per_second) for it in links] == [
        (0, True, 7, LinkPeer.SWITCH, 25_000_000_000),
        (1, False, None, None, None),
    ]


@pytest.mark.parametrize(
    ("features", "licensed"),
    [
        ((), False),
        (((1, 0),), False),
        (((1, 1),), True),
        (((2, 1),), False),  # a licence, and not that of a vGPU
        (((2, 0), (1, 2)), True),
    ],
)
def test_a_vgpu_is_licensed_where_its_feature_is_in_a_state_above_0(
    machine: Sampler,
    monkeypatch: pytest.MonkeyPatch,
    features: list[tuple[int, int]],
    licensed: bool,
) -> None:
    """Code 1 is NVML_GRID_LICENSE_FEATURE_CODE_VGPU; what is beyond the count is none."""
    answer = pynvml.c_nvmlGridLicensableFeatures_v4_t()
    answer.isGridLicenseSupported, answer.licensableFeaturesCount = 1, len(features)
    for place, (code, state) in enumerate([*features, (1, 1)]):
        feature = answer.gridLicensableFeatures[place]
        feature.featureCode, feature.featureState = code, state
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGridLicensableFeatures_v4", lambda _: answer)
    machine.history.rediscovered({WHOLE.bus_id})
    assert machine.sample(WHOLE.bus_id, ()).vgpu_licensed is licensed
    answer.isGridLicenseSupported = 0
    assert machine.sample(WHOLE.bus_id, ()).vgpu_licensed is licensed  # asked once a discovery
    machine.history.rediscovered({WHOLE.bus_id})
    assert machine.sample(WHOLE.bus_id, ()).vgpu_licensed is False


@pytest.mark.parametrize("value", [2, -1, 0xFFFFFFFF])
def test_a_flag_is_0_or_1_and_anything_else_is_garbage(
    monkeypatch: pytest.MonkeyPatch, value: int
) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPersistenceMode", lambda _: value)
    gpu = read(WHOLE.bus_id)
    gap = gpu.gap("persistence")
    assert build.nvidia(gpu).persistence is None
    assert gap is not None
    assert (gap.reason, gap.detail) == (Reason.GARBAGE, f"{value} is not in 0..1")


def test_a_gpu_that_is_lost_on_the_way_says_which_call_showed_it(machine: Sampler) -> None:
    machine.simulation.fault(Return(code=LOST), "nvmlDeviceGetSerial", bus_id=WHOLE.bus_id)
    gpu = read(WHOLE.bus_id)
    gap = gpu.gap("state")
    assert (gpu.state, build.nvidia(gpu).minor, gpu.serial, gpu.vbios_version) == (
        GpuState.LOST, 3, None, None,
    )  # fmt: skip
    assert gap is not None
    assert (gap.reason, gap.source) == (Reason.LOST, "nvml")
    assert gap.detail == "nvmlDeviceGetSerial: GPU is lost"
