# SPDX-License-Identifier: Apache-2.0
"""A GPU that tells everything, each number its own, and as NVML never gives them all at once."""

from __future__ import annotations

from typing import Any

from discovery.model import Fabric, GpuSnapshot, Mode, RemappedRows
from discovery.nvml_terms import Virtualization
from discovery.sample import (
    GPU_NUMBERS,
    NVLINK_NUMBERS,
    Board,
    Clocks,
    EccErrors,
    GpuSample,
    HeldDown,
    LinkCounters,
    LinkError,
    MemoryUse,
    NvLinkErrors,
    Pcie,
    Platform,
    PowerLimits,
    RetiredPages,
    SpareRows,
    TemperatureLimits,
)
from tests import build

KIB = 1024
MIB = 1 << 20
LINKS = 18
SECONDS = 10.0
"""Between the two samples."""


def gpu(at: int = 0, **facts: Any) -> GpuSnapshot:
    """With fabric, serial number and the rest."""
    everything = {
        "serial": "1322621012345",
        "vbios_version": "96.00.74.00.09",
        "recovery_action": 3,
        "persistence": True,
        "pci_device_id": 0x234010DE,
        "pci_subsystem_id": 0x16A710DE,
        "virtualization": Virtualization.HOST_VGPU,
        "ecc": Mode(current=False, pending=True),
        "fabric": Fabric(
            state=3,
            status=0,
            cluster_uuid="11111111-2222-3333-4444-555555555555",
            clique_id=7,
            health_mask=21930,
            health_summary=2,
        ),
    }
    return build.gpu(at, **(everything | facts))


def memory(at: int = 0) -> MemoryUse:
    """1000 MiB in use of 4000 that are not reserved, and ``at`` more of each."""
    return MemoryUse(
        free_bytes=(3000 + at) * MIB,
        used_bytes=1000 * MIB + at * MIB,
        reserved_bytes=(500 + at) * MIB,
    )


def profiling(at: int = 0) -> tuple[tuple[int, float], ...]:
    """Every metric that is a ratio, every one that is bytes each second, and every total."""
    ratios = [*range(1, 14), *range(30, 38), *range(40, 48), 50, 51]
    rates = [20, 21, 60, 61, *range(62, 98), *range(100, 104)]
    totals = range(248, 261)
    return (
        *((metric, float(10**9 * metric + at)) for metric in totals),
        *((metric, metric / 1000 + at / 100) for metric in ratios),
        *((metric, (metric - 100 + at) / 100) for metric in range(160, 164)),
        *((metric, float(metric * MIB + at)) for metric in rates),
    )


def sample(of: GpuSnapshot, at_seconds: float = 100.0, **readings: Any) -> GpuSample:
    """One sample; what is counted grows with ``at_seconds``."""
    moved = int((at_seconds - 100) * 1000 * KIB)  # 1 "MB" each second, as DCGM has it
    instances = list(dict.fromkeys(device.gpu_instance_id for device in of.mig_devices))
    everything: dict[str, Any] = {
        "at_seconds": at_seconds,
        "sm_clock_hertz": 1_980_000_000,
        "memory_clock_hertz": 2_619_000_000,
        "gpu_celsius": 45,
        "memory_celsius": 62,
        "power_watts": 700.25,
        "instant_power_watts": 712.5,
        "energy_joules": 57585.599,
        "pcie_replays": 4,
        "gpu_busy_ratio": 0.57,
        "memory_busy_ratio": 0.29,
        "encoder_busy_ratio": 1.0,
        "decoder_busy_ratio": 0.03,
        "memory": memory(),
        "nvlink_received_bytes": 10**15 + 5 * moved,
        "nvlink_sent_bytes": 10**15 + 3 * moved,
        "remapped_rows": RemappedRows(correctable=3, uncorrectable=2, pending=True, failed=False),
        "vgpu_licensed": True,
        "mig_memory": tuple((instance, memory(instance)) for instance in instances),
        "profiling": profiling(),
        "mig_profiling": tuple((instance, profiling(instance)) for instance in instances),
        "clock_event_reasons": 0x104,
        "held_down": HeldDown(
            power=1.000000001,
            thermal=2.5,
            sync_boost=3.0,
            board_limit=4.0,
            low_utilization=5.0,
            reliability=6.0,
            application_clocks=7.0,
            base_clocks=8.0,
            software_thermal=9.0,
            hardware_thermal=10.0,
            power_brake=11.0,
        ),
        "ecc_errors": EccErrors(
            corrected_volatile=11,
            uncorrected_volatile=12,
            corrected_aggregate=13,
            uncorrected_aggregate=14,
        ),
        "retired_pages": RetiredPages(corrected=15, uncorrected=16, pending=True),
        "power_limits": PowerLimits(
            current=650.0, enforced=600.0, default=700.0, lowest=200.0, highest=701.5
        ),
        "temperature_limits": TemperatureLimits(
            slowdown=87, shutdown=92, gpu_most=85, memory_most=95, margin=-3
        ),
        "clocks": Clocks(
            video=1_545_000_000,
            application_sm=1_755_000_000,
            application_memory=2_619_000_000,
            highest_sm=1_980_000_000,
            highest_memory=2_620_000_000,
            highest_video=1_546_000_000,
        ),
        "pcie": Pcie(
            generation=5, width=16, sent_bytes=7000 + moved, received_bytes=8000 + 2 * moved
        ),
        "bar1": MemoryUse(free_bytes=100 * MIB, used_bytes=28 * MIB),
        "fan_ratio": 0.33,
        "performance_state": 2,
        "board": Board(
            brand=14,
            inforom_oem="2.1",
            inforom_ecc="7.16",
            inforom_power="3.2",
            inforom_image="G520.0200.00.05",
            compute_mode=3,
            confidential=True,
            boosts_by_itself=False,
            pcie_generation=6,
            pcie_width=32,
            inforom_checksum=4_000_000_083,
            sram_exceeded=True,
            memory_unrepairable=True,
            cpu_affinity=(70, 71, 72, (1 << 64) - 73),
            memory_affinity=(86, 87, 88, (1 << 63) + 89),
            platform=Platform(
                infiniband_guid="0x00000000000005a1",
                chassis_serial="C572",
                slot=173,
                tray=174,
                host_id=175,
                peer_type=176,
                module_id=177,
            ),
        ),
        "spare_rows": SpareRows(
            all_left=600, many_left=31, some_left=32, few_left=33, none_left=34
        ),
        "numbers": tuple((number, 7000 + number) for number in (*NVLINK_NUMBERS, *GPU_NUMBERS)),
        "memory_errors": tuple(
            ((error, counter, location), 100_000 + 100 * error + 10 * counter + location)
            for error in range(2)
            for counter in range(2)
            for location in range(8)
        ),
        "link_errors": tuple(
            ((link, error), 200_000 + 10 * link + error)
            for link in range(LINKS)
            for error in range(4)
        ),
        "nvlink_errors": NvLinkErrors(crc_flit=21, crc_data=22, replay=23, recovery=24),
        "links": tuple(
            LinkCounters(
                link=link,
                received_bytes=10**12 + 2 * (link + 1) * moved,
                sent_bytes=10**12 + (link + 1) * moved,
                errors=tuple((error, at) for at, error in enumerate(LinkError)),
            )
            for link in range(LINKS)
        ),
    }
    return build.sample(of, **(everything | readings))
