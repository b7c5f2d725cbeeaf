# SPDX-License-Identifier: Apache-2.0
"""Facts and states of a GPU, from the snapshot. Pure."""

from __future__ import annotations

from collections.abc import Callable

from discovery.model import GpuState, Mode, RemappedRows
from discovery.unread import UNREAD_NVIDIA_FACTS
from exporters.gpuscape.gpuscape_family import (
    GPU,
    GpuscapeFamily,
    Series,
    of_gpu_parts,
    of_gpus,
    of_nvidia_gpus,
)
from exporters.gpuscape.node_view import GpuView, NodeView, gpu_labels
from health.health_verdict import Health

_ROWS = "nvmlDeviceGetRemappedRows"


def _driver(node: NodeView) -> Series:
    driver = node.snapshot.driver
    if driver.version is not None:
        cuda = driver.cuda_version and ".".join(map(str, driver.cuda_version))
        yield (driver.version, driver.nvml_version or "", cuda or ""), 1


def _infos(node: NodeView) -> Series:
    for gpu in node.gpus:
        facts, nvidia = gpu.gpu, gpu.gpu.nvidia or UNREAD_NVIDIA_FACTS
        capability = nvidia.compute_capability and ".".join(map(str, nvidia.compute_capability))
        words = (
            _word(facts.index),
            _word(nvidia.minor),
            facts.model or "",
            facts.architecture or "",
            capability or "",
            facts.vbios_version or "",
            _word(facts.numa_node),
            nvidia.virtualization or "",
        )
        yield (*gpu.labels, *words), 1


def _word(number: int | None) -> str:
    return "" if number is None else str(number)


def _up(node: NodeView) -> Series:
    for gpu in node.snapshot.gpus:
        yield gpu_labels(gpu), gpu.state is GpuState.PRESENT


def _health(node: NodeView) -> Series:
    for gpu in node.snapshot.gpus:
        if gpu.bus_id in node.health:
            verdict = node.health[gpu.bus_id]
            for health in Health:
                yield (*gpu_labels(gpu), health.word), health is verdict.health


def _reasons(node: NodeView) -> Series:
    for gpu in node.snapshot.gpus:
        if gpu.bus_id in node.health:
            verdict = node.health[gpu.bus_id]
            yield (*gpu_labels(gpu), verdict.health.word, verdict.reason), 1


def _now(mode: Mode | None) -> bool | None:
    return None if mode is None else mode.current


def _waits(mode: Mode | None) -> bool | None:
    return None if mode is None else mode.pending is not mode.current


def _rows(read: Callable[[RemappedRows], int]) -> Callable[[GpuView], int | None]:
    """A number of the sample's remapped rows, or of the snapshot's where the sample has none."""

    def value(gpu: GpuView) -> int | None:
        nvidia = gpu.gpu.nvidia or UNREAD_NVIDIA_FACTS
        rows = gpu.sample.remapped_rows or nvidia.remapped_rows
        return None if rows is None else read(rows)

    return value


def _row_counts(gpu: GpuView) -> dict[str, float | None]:
    return {
        "corrected": _rows(lambda rows: rows.correctable)(gpu),
        "uncorrected": _rows(lambda rows: rows.uncorrectable)(gpu),
    }


SAMPLED_TOO = frozenset(
    {
        "gpuscape_gpu_row_remap_pending",
        "gpuscape_gpu_row_remap_failed",
        "gpuscape_gpu_remapped_rows_total",
    }
)
"""Families whose newest numbers may be those of a sample."""

FAMILIES: tuple[GpuscapeFamily, ...] = (
    GpuscapeFamily(
        name="gpuscape_driver_info",
        help="Versions of the NVIDIA driver, NVML and the newest CUDA it supports; always 1.",
        labels=("driver_version", "nvml_version", "cuda_version"),
        series=_driver,
        source="nvmlSystemGet{DriverVersion,NVMLVersion,CudaDriverVersion}",
    ),
    GpuscapeFamily(
        name="gpuscape_gpu_info",
        help="Facts about a GPU that answers; always 1.",
        labels=(
            *GPU,
            "index",
            "minor",
            "model",
            "architecture",
            "compute_capability",
            "vbios_version",
            "numa_node",
            "virtualization",
        ),
        series=_infos,
        source="the snapshot; a fact that the GPU does not report has no label",
    ),
    GpuscapeFamily(
        name="gpuscape_gpu_up",
        help="1 if the GPU answered in the last discovery cycle, else 0: lost, hung, unreadable or "
        "initialising.",
        labels=GPU,
        series=_up,
        source="every GPU that sysfs shows or that was known before",
    ),
    GpuscapeFamily(
        name="gpuscape_gpu_health",
        help="1 for the present health of the GPU, 0 for the others.",
        labels=(*GPU, "health"),
        series=_health,
        source="the table of health on the page about labels",
    ),
    GpuscapeFamily(
        name="gpuscape_gpu_health_info",
        help="Health of the GPU and its worst reason; always 1.",
        labels=(*GPU, "health", "reason"),
        series=_reasons,
        source="the table of health on the page about labels",
    ),
    of_nvidia_gpus(
        "gpuscape_gpu_recovery_action",
        "What the driver asks for: 0 nothing, 1 GPU reset, 2 node reboot, 3 drain peers, 4 drain"
        " and reset, 5 IMEX, 6 bus reset, 7 system reboot.",
        lambda nvidia: nvidia.recovery_action,
        source="field NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
    ),
    of_nvidia_gpus(
        "gpuscape_gpu_persistence_enabled",
        "1 if the driver stays loaded while no program uses the GPU, else 0.",
        lambda nvidia: nvidia.persistence,
        source="nvmlDeviceGetPersistenceMode",
    ),
    of_gpus(
        "gpuscape_gpu_ecc_enabled",
        "1 if memory errors are corrected, else 0.",
        lambda gpu: _now(gpu.gpu.ecc),
        source="nvmlDeviceGetEccMode, the current mode",
    ),
    of_gpus(
        "gpuscape_gpu_ecc_change_pending",
        "1 if the next reset switches ECC, else 0.",
        lambda gpu: _waits(gpu.gpu.ecc),
        source="nvmlDeviceGetEccMode, the pending mode against the current",
    ),
    of_nvidia_gpus(
        "gpuscape_gpu_mig_enabled",
        "1 if the GPU can be split into GPU instances now, else 0.",
        lambda nvidia: _now(nvidia.mig),
        source="nvmlDeviceGetMigMode, the current mode; GPUs that cannot have no series",
    ),
    of_nvidia_gpus(
        "gpuscape_gpu_mig_change_pending",
        "1 if the next reset switches MIG, else 0.",
        lambda nvidia: _waits(nvidia.mig),
        source="nvmlDeviceGetMigMode, the pending mode against the current",
    ),
    of_gpus(
        "gpuscape_gpu_row_remap_pending",
        "1 if memory rows wait for a reset to be replaced, else 0.",
        _rows(lambda rows: rows.pending),
        source=_ROWS,
    ),
    of_gpus(
        "gpuscape_gpu_row_remap_failed",
        "1 if a memory row could not be replaced: the GPU must be replaced; else 0.",
        _rows(lambda rows: rows.failed),
        source=_ROWS,
    ),
    of_gpu_parts(
        "gpuscape_gpu_remapped_rows_total",
        "Memory rows replaced by spares, by the errors they had.",
        "error",
        _row_counts,
        source=_ROWS,
    ),
    of_nvidia_gpus(
        "gpuscape_gpu_page_retirement_pending",
        "1 if memory pages wait for a reset to be taken out of use, else 0.",
        lambda nvidia: nvidia.retired_pages_pending,
        source="nvmlDeviceGetRetiredPagesPendingStatus",
    ),
)
