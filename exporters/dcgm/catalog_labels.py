# SPDX-License-Identifier: Apache-2.0
"""Facts that a counters file can put on every series as labels."""

from __future__ import annotations

from discovery.model import Driver, GpuSnapshot
from exporters.dcgm.dcgm_family import LabelRow

LABEL_ROWS: tuple[LabelRow, ...] = (
    LabelRow(
        field=1,
        name="DCGM_FI_DRIVER_VERSION",
        renamed="DCGM_FI_SYSTEM_DRIVER_VERSION",
        help="Version of the driver.",
        value=lambda driver, _: driver.version,
    ),
    LabelRow(
        field=2,
        name="DCGM_FI_NVML_VERSION",
        renamed="DCGM_FI_SYSTEM_NVML_VERSION",
        help="Version of NVML.",
        value=lambda driver, _: driver.nvml_version,
    ),
    LabelRow(
        field=5,
        name="DCGM_FI_CUDA_DRIVER_VERSION",
        help="Newest CUDA that the driver supports: 12040 is 12.4.",
        value=lambda driver, _: _cuda(driver),
    ),
    LabelRow(
        field=50,
        name="DCGM_FI_DEV_NAME",
        renamed="DCGM_FI_DEV_GPU_NAME",
        help="Name of the product.",
        value=lambda _, gpu: gpu.model,
    ),
    LabelRow(
        field=53,
        name="DCGM_FI_DEV_SERIAL",
        renamed="DCGM_FI_DEV_BOARD_SERIAL",
        help="Serial number of the board.",
        value=lambda _, gpu: gpu.serial,
    ),
    LabelRow(
        field=54,
        name="DCGM_FI_DEV_UUID",
        renamed="DCGM_FI_DEV_GPU_UUID",
        help="UUID of the GPU.",
        value=lambda _, gpu: gpu.uuid,
    ),
    LabelRow(
        field=55,
        name="DCGM_FI_DEV_MINOR_NUMBER",
        renamed="DCGM_FI_DEV_GPU_MINOR_NUMBER",
        help="Number of the device file: 0 is /dev/nvidia0.",
        value=lambda _, gpu: None if gpu.minor is None else str(gpu.minor),
    ),
    LabelRow(
        field=63,
        name="DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY",
        renamed="DCGM_FI_CUDA_GPU_COMPUTE_CAPABILITY",
        help="Compute capability as DCGM writes it: 65536 times the first number plus the second.",
        value=lambda _, gpu: _compute_capability(gpu),
    ),
    LabelRow(
        field=85,
        name="DCGM_FI_DEV_VBIOS_VERSION",
        help="Version of the VBIOS.",
        value=lambda _, gpu: gpu.vbios_version,
    ),
    LabelRow(
        field=172,
        name="DCGM_FI_DEV_FABRIC_CLUSTER_UUID",
        help="UUID of the NVLink fabric.",
        value=lambda _, gpu: (
            gpu.fabric.cluster_uuid if gpu.fabric is not None and gpu.fabric.attached else None
        ),
    ),
)


def _cuda(driver: Driver) -> str | None:
    """As the CUDA runtime writes it."""
    if driver.cuda_version is None:
        return None
    major, minor = driver.cuda_version
    return str(1000 * major + 10 * minor)


def _compute_capability(gpu: GpuSnapshot) -> str | None:
    if gpu.compute_capability is None:
        return None
    major, minor = gpu.compute_capability
    return str((major << 16) + minor)
