# SPDX-License-Identifier: Apache-2.0
"""Nodes for the tests of our own families, and the series that come of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from api.fabric_kind import FabricKind
from discovery.gpu_part import GpuPart
from discovery.model import (
    Fabric,
    GpuSnapshot,
    GpuState,
    MigDevice,
    Mode,
    NodeSnapshot,
    NvLink,
    RemappedRows,
    Topology,
)
from discovery.nvml_terms import LinkPeer
from discovery.sample import (
    EccErrors,
    GpuSample,
    HeldDown,
    LinkCounters,
    LinkError,
    MemoryUse,
    NvLinkErrors,
    Pcie,
    PowerLimits,
    ProcessKind,
    RetiredPages,
    TemperatureLimits,
)
from exporters.device_user_names import ContainerUser
from exporters.gpuscape.families import GpuscapeFamilies
from exporters.gpuscape.node_view import GpuAllocation
from exporters.gpuscape.process_use import OfPod, ProcessUse
from exporters.gpuscape.switch_errors import Severity, Sxid
from health.health_verdict import Health, HealthVerdict
from tests import build, exposition

GIB = 1 << 30

HOSTILE = {
    "quote": 'a"b',
    "backslash": "a\\b",
    "newline": "a\nb",
    "all": '\\"\n\\n"',
    "braces": '"} 1\ngpuscape_evil 1',
    "not ASCII": "é漢🚀\x00\x7f\u2028\r",
}

Found = dict[tuple[tuple[str, str], ...], float]
"""Labels without uuid and bus id, sorted by name, to the value."""


def told(
    name: str, snapshot: NodeSnapshot, samples: Iterable[GpuSample] = (), **about: Any
) -> Found:
    """The series of one family; those of several GPUs must differ in another label."""
    return of(GpuscapeFamilies().render(snapshot, samples, **about), name)


def of(body: bytes, name: str) -> Found:
    """The series of one family in an exposition, without uuid and bus id."""
    hidden = ("uuid", "pci_bus_id")
    found = [
        (tuple(pair for pair in labels if pair[0] not in hidden), value)
        for (each, labels), value in exposition.series(body).items()
        if each == name
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def by_gpu(body: bytes, name: str) -> dict[str, float]:
    """The series of one family, by bus id alone."""
    found = [
        (dict(labels)["pci_bus_id"], value)
        for (each, labels), value in exposition.series(body).items()
        if each == name
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def value(name: str, gpu: GpuSnapshot, sample: GpuSample | None = None, **about: Any) -> float:
    """The only series of the family on a node with this GPU alone."""
    samples = () if sample is None else (sample,)
    (found,) = told(name, build.node([gpu]), samples, **about).values()
    return found


def held(*entities: GpuPart, whole: Iterable[str] = (), **facts: Any) -> GpuAllocation:
    """An allocation in which one pod has these."""
    user = ContainerUser(namespace="team", pod="train-0", container="main")
    plain = GpuAllocation(users=dict.fromkeys(entities, (user,)), whole=frozenset(whole))
    return replace(plain, **facts)


def linked(counts: Sequence[Sequence[int | None]], kind: FabricKind = FabricKind.MESH) -> Topology:
    """The topology of ``build.gpu(0)``, ``build.gpu(1)`` … with these NVLinks."""
    plain = build.unlinked([build.gpu(at).bus_id for at in range(len(counts))])
    return replace(plain, kind=kind, nvlinks=tuple(map(tuple, counts)))


def instance(gi: int = 1, profile: str = "1g.5gb", slices: int = 1, **facts: Any) -> MigDevice:
    """A compute instance that fills its GPU instance."""
    return build.mig_device(profile, gi=gi, gpu_instance_slices=slices, **facts)


def split(at: int = 0, *devices: MigDevice, **facts: Any) -> GpuSnapshot:
    """A GPU that is split into these, of seven slices."""
    return build.gpu(at, mig=build.SPLIT, mig_devices=devices, max_mig_devices=7, **facts)


def everything(
    gpus: int = 2, instances: int = 2
) -> tuple[NodeSnapshot, tuple[GpuSample, ...], dict[str, Any]]:
    """A node on which every family has series, and what else is told of it."""
    devices = [instance(gi, placement=(gi, 1)) for gi in range(1, instances + 1)]
    known = [_full_gpu(at, devices) for at in range(gpus)]
    n = range(gpus)
    topology = Topology(
        gpus=tuple(gpu.bus_id for gpu in known),
        nics=("mlx5_0",),
        kind=FabricKind.SWITCH,
        nvlinks=tuple(tuple(0 if i == j else 2 for j in n) for i in n),
        pcie=tuple(tuple(0 if i == j else 4 for j in range(gpus + 1)) for i in range(gpus + 1)),
    )
    samples = tuple(_full_sample(gpu, devices) for gpu in known)
    free = known[-1].bus_id
    about = {
        "allocation": held(
            *(
                GpuPart(gpu.bus_id, device.gpu_instance_id)
                for gpu in known
                for device in gpu.mig_devices
            ),
            *(GpuPart(gpu.bus_id) for gpu in known if not gpu.mig_devices and gpu.bus_id != free),
            whole=[free],
            allocatable={"nvidia.com/gpu": 8},
            allocated={"nvidia.com/gpu": 1},
        ),
        "health": {
            gpu.bus_id: HealthVerdict(health=Health.DEGRADED, reason="nvlink-inactive")
            for gpu in known
        },
        "processes": [_process(gpu) for gpu in known],
        "sxids": [
            Sxid(
                bus_id="0000:05:00.0",
                code=20034,
                severity=Severity.FATAL,
                count=2,
                last_seen_seconds=1e9,
            )
        ],
    }
    return build.node(known, topology=topology), samples, about


def _full_gpu(at: int, devices: Sequence[MigDevice]) -> GpuSnapshot:
    """All but the last of a node's GPUs would do without MIG: it is on where there are devices."""
    return build.gpu(
        at,
        mig=build.SPLIT if devices else build.WHOLE,
        mig_devices=tuple(devices),
        max_mig_devices=7,
        ecc=Mode(current=True, pending=True),
        persistence=True,
        recovery_action=0,
        retired_pages_pending=False,
        vbios_version="92.00",
        numa_node=0,
        fabric=Fabric(
            state=3,
            status=0,
            cluster_uuid="11111111-2222-3333-4444-555555555555",
            clique_id=7,
            health_mask=0b0001_10_10_10_10,
        ),
        links=tuple(
            NvLink(link=link, active=True, peer=LinkPeer.SWITCH, bytes_per_second=25 * 10**9)
            for link in range(2)
        ),
    )


def _full_sample(gpu: GpuSnapshot, devices: Sequence[MigDevice]) -> GpuSample:
    ids = [*range(1, 14), 20, 21, 30, 40, 50, 60, 61, 100, 101]
    profiling = tuple((metric, 0.25) for metric in ids)
    use = MemoryUse(free_bytes=3 * GIB, used_bytes=GIB, reserved_bytes=0)
    errors = tuple((error, 1) for error in LinkError)
    return build.sample(
        gpu,
        remapped_rows=RemappedRows(correctable=1, uncorrectable=2, pending=True, failed=False),
        mig_memory=tuple((device.gpu_instance_id, use) for device in devices),
        profiling=profiling,
        mig_profiling=tuple((device.gpu_instance_id, profiling) for device in devices),
        clock_event_reasons=0x24,
        held_down=build.only(HeldDown, power=1.5, thermal=0.0),
        ecc_errors=build.only(EccErrors, corrected_volatile=1, uncorrected_aggregate=2),
        retired_pages=build.only(RetiredPages, corrected=1, uncorrected=2, pending=True),
        power_limits=build.only(PowerLimits, current=400.0, enforced=400.0),
        temperature_limits=build.only(TemperatureLimits, slowdown=90, gpu_most=85, margin=-3),
        pcie=build.only(Pcie, generation=5, width=16, sent_bytes=1, received_bytes=2),
        bar1=MemoryUse(free_bytes=GIB, used_bytes=GIB),
        fan_ratio=0.5,
        performance_state=0,
        nvlink_errors=build.only(NvLinkErrors, crc_flit=1, replay=2),
        links=tuple(
            LinkCounters(link=link.link, received_bytes=1, sent_bytes=2, errors=errors)
            for link in build.nvidia(gpu).links
        ),
    )


def _process(gpu: GpuSnapshot) -> ProcessUse:
    return ProcessUse(
        bus_id=gpu.bus_id,
        pid="4711",
        name="python",
        kinds=(ProcessKind.COMPUTE,),
        pod=OfPod(uid="u", namespace="team", name="train-0"),
        memory_bytes=GIB,
        busy_ratio=0.5,
    )


def all_silent() -> list[GpuSnapshot]:
    """GPUs that are lost, hung or unreadable: by bus id alone, and with facts known before."""
    states = [state for state in GpuState if state is not GpuState.PRESENT]
    known = _full_gpu(0, [instance()])
    return [
        *(build.silent(at, state) for at, state in enumerate(states)),
        *(
            replace(known, bus_id=build.gpu(at + 8).bus_id, state=state)
            for at, state in enumerate(states)
        ),
    ]
