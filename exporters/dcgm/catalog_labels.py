# SPDX-License-Identifier: Apache-2.0
"""Texts that a counters file can put on every series as labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from discovery.bus_id import long_bus_id
from discovery.sample import Board, Platform, ReadingGroup
from exporters.dcgm.dcgm_family import DcgmReading, LabelRow

_BRANDS: Mapping[int, str] = {
    0: "Unknown",
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA vGaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}
"""NVML_BRAND_* by DCGM's words. Source: DCGM 4.6.0, ``DcgmCacheManager.cpp``."""


def _of_board(read: Callable[[Board], str | None]) -> Callable[[DcgmReading], str | None]:
    def value(reading: DcgmReading) -> str | None:
        board = reading.sample.board
        return None if board is None else read(board)

    return value


def _of_platform(read: Callable[[Platform], str | None]) -> Callable[[DcgmReading], str | None]:
    return _of_board(lambda board: None if board.platform is None else read(board.platform))


def _visible_devices(reading: DcgmReading) -> str | None:
    """CUDA_VISIBLE_DEVICES in the form of DCGM 4.6.0 (``GenerateCudaVisibleDevicesValue``)."""
    gpu = reading.gpu
    if gpu.uuid is None or not gpu.mig_enabled:
        return gpu.uuid
    return f"MIG-{gpu.uuid}" + ("" if reading.instance is None else f"/{reading.instance}")


def _cluster_uuid(reading: DcgmReading) -> str | None:
    fabric = reading.nvidia.fabric
    return fabric.cluster_uuid if fabric is not None and fabric.attached else None


_board = partial(LabelRow, group=ReadingGroup.BOARD)

LABEL_ROWS: tuple[LabelRow, ...] = (
    LabelRow(
        field=1,
        name="DCGM_FI_DRIVER_VERSION",
        renamed="DCGM_FI_SYSTEM_DRIVER_VERSION",
        help="Version of the driver.",
        value=lambda reading: reading.driver.version,
    ),
    LabelRow(
        field=2,
        name="DCGM_FI_NVML_VERSION",
        renamed="DCGM_FI_SYSTEM_NVML_VERSION",
        help="Version of NVML.",
        value=lambda reading: reading.driver.nvml_version,
    ),
    LabelRow(
        field=50,
        name="DCGM_FI_DEV_NAME",
        renamed="DCGM_FI_DEV_GPU_NAME",
        help="Name of the product.",
        value=lambda reading: reading.gpu.model,
    ),
    _board(
        field=51,
        name="DCGM_FI_DEV_BRAND",
        renamed="DCGM_FI_DEV_GPU_BRAND",
        help="Brand of the product, such as NVIDIA or Tesla.",
        value=_of_board(lambda board: None if board.brand is None else _BRANDS.get(board.brand)),
    ),
    LabelRow(
        field=53,
        name="DCGM_FI_DEV_SERIAL",
        renamed="DCGM_FI_DEV_BOARD_SERIAL",
        help="Serial number of the board.",
        value=lambda reading: reading.gpu.serial,
    ),
    LabelRow(
        field=54,
        name="DCGM_FI_DEV_UUID",
        renamed="DCGM_FI_DEV_GPU_UUID",
        help="UUID of the GPU.",
        value=lambda reading: reading.gpu.uuid,
    ),
    _board(
        field=56,
        name="DCGM_FI_DEV_OEM_INFOROM_VER",
        renamed="DCGM_FI_DEV_INFOROM_OEM_VERSION",
        help="Version of the InfoROM's part for the manufacturer of the system.",
        value=_of_board(lambda board: board.inforom_oem),
    ),
    LabelRow(
        field=57,
        name="DCGM_FI_DEV_PCI_BUSID",
        renamed="DCGM_FI_DEV_PCI_BUS_ID",
        help="PCI address, with a domain of eight digits.",
        value=lambda reading: long_bus_id(reading.gpu.bus_id),
    ),
    LabelRow(
        field=68,
        name="DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR",
        renamed="DCGM_FI_CUDA_GPU_VISIBLE_DEVICES",
        help="What DCGM would put into CUDA_VISIBLE_DEVICES: the UUID, or that and the instance.",
        value=_visible_devices,
    ),
    _board(
        field=80,
        name="DCGM_FI_DEV_ECC_INFOROM_VER",
        renamed="DCGM_FI_DEV_INFOROM_ECC_VERSION",
        help="Version of the InfoROM's part for ECC.",
        value=_of_board(lambda board: board.inforom_ecc),
    ),
    _board(
        field=81,
        name="DCGM_FI_DEV_POWER_INFOROM_VER",
        renamed="DCGM_FI_DEV_INFOROM_POWER_VERSION",
        help="Version of the InfoROM's part for power management.",
        value=_of_board(lambda board: board.inforom_power),
    ),
    _board(
        field=82,
        name="DCGM_FI_DEV_INFOROM_IMAGE_VER",
        renamed="DCGM_FI_DEV_INFOROM_IMAGE_VERSION",
        help="Version of the whole InfoROM.",
        value=_of_board(lambda board: board.inforom_image),
    ),
    LabelRow(
        field=85,
        name="DCGM_FI_DEV_VBIOS_VERSION",
        help="Version of the VBIOS.",
        value=lambda reading: reading.gpu.vbios_version,
    ),
    LabelRow(
        field=172,
        name="DCGM_FI_DEV_FABRIC_CLUSTER_UUID",
        help="UUID of the NVLink fabric.",
        value=_cluster_uuid,
    ),
    _board(
        field=571,
        name="DCGM_FI_DEV_PLATFORM_INFINIBAND_GUID",
        help="InfiniBand GUID that the platform gives the GPU.",
        value=_of_platform(lambda platform: platform.infiniband_guid),
    ),
    _board(
        field=572,
        name="DCGM_FI_DEV_PLATFORM_CHASSIS_SERIAL_NUMBER",
        help="Serial number of the chassis.",
        value=_of_platform(lambda platform: platform.chassis_serial),
    ),
)
