# SPDX-License-Identifier: Apache-2.0
"""The agent's file for small made-up nodes."""

from __future__ import annotations

from collections.abc import Iterable

from api.device_exchange import (
    DeviceExchange,
    ExchangedGpu,
    ExchangedMigDevice,
    ExchangedVerdict,
)
from api.fabric_kind import FabricKind
from api.topology_annotation import TopologyAnnotation, with_generation

BOOT = "00000000-0000-4000-8000-000000000000"
PROFILE = "1g.5gb"


def uuid(place: int, kind: str = "GPU") -> str:
    return f"{kind}-00000000-0000-4000-8000-{place:012x}"


def mig(place: int, instance: int, profile: str = PROFILE) -> ExchangedMigDevice:
    number = 10 * place + instance
    return ExchangedMigDevice(
        uuid=uuid(number, "MIG"),
        profile=profile,
        gpu_instance=instance,
        compute_instance=0,
        memory_bytes=5 << 30,
        capability_minors=(100 + 2 * number, 101 + 2 * number),
    )


def gpu(
    place: int, devices: Iterable[ExchangedMigDevice] | None = None, *causes: tuple[str, str]
) -> ExchangedGpu:
    """A GPU; ``devices`` of one in MIG mode, None of one that is not."""
    verdicts = [ExchangedVerdict(health=health, reason=reason) for health, reason in causes]
    return ExchangedGpu(
        uuid=uuid(place),
        index=place,
        bus_id=f"0000:{place + 1:02x}:00.0",
        minor=7 - place,
        numa=place // 2,
        mig_enabled=devices is not None,
        mig_devices=tuple(devices or ()),
        verdicts=tuple(verdicts),
    )


def exchange(
    *gpus: ExchangedGpu, nv: str = "", reading: int = 1, boot_id: str = BOOT, table: str = ""
) -> DeviceExchange:
    """The file; ``nv``: NVLinks of each pair, none of any where it is empty."""
    n = len(gpus)
    pairs = n * (n - 1) // 2
    links = TopologyAnnotation(
        v=1,
        gen="0" * 10,
        n=n,
        fab=FabricKind.BRIDGE,
        lbw=(25,),
        nv=nv or "0" * pairs,
        pc="4" * pairs,
        numa=tuple(gpu.numa or 0 for gpu in gpus),
        ids=("",) * n,
        bus=("",) * n,
        nic=(),
    )
    return DeviceExchange(
        v=1,
        generation=reading,
        reading=reading,
        boot_id=boot_id,
        written_at="2026-01-01T00:00:00Z",
        gpus=gpus,
        links=with_generation(links),
        table=table,
    )
