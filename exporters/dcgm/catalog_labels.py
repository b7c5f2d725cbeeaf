# SPDX-License-Identifier: Apache-2.0
"""Texts that a counters file can put on every series as labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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


_Text = Callable[[DcgmReading], str | None]


def _of_board(read: Callable[[Board], str | None]) -> _Text:
    def value(reading: DcgmReading) -> str | None:
        board = reading.sample.board
        return None if board is None else read(board)

    return value


def _of_platform(read: Callable[[Platform], str | None]) -> _Text:
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


_OF_DRIVER_AND_GPU: tuple[tuple[int, str, str | None, str, _Text], ...] = (
    (1, "DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION",
     "Version of the driver.", lambda reading: reading.driver.version),
    (2, "DCGM_FI_NVML_VERSION", "DCGM_FI_SYSTEM_NVML_VERSION",
     "Version of NVML.", lambda reading: reading.driver.nvml_version),
    (50, "DCGM_FI_DEV_NAME", "DCGM_FI_DEV_GPU_NAME",
     "Name of the product.", lambda reading: reading.gpu.model),
    (53, "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_BOARD_SERIAL",
     "Serial number of the board.", lambda reading: reading.gpu.serial),
    (54, "DCGM_FI_DEV_UUID", "DCGM_FI_DEV_GPU_UUID",
     "UUID of the GPU.", lambda reading: reading.gpu.uuid),
    (57, "DCGM_FI_DEV_PCI_BUSID", "DCGM_FI_DEV_PCI_BUS_ID",
     "PCI address, with a domain of eight digits.",
     lambda reading: long_bus_id(reading.gpu.bus_id)),
    (68, "DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR", "DCGM_FI_CUDA_GPU_VISIBLE_DEVICES",
     "What DCGM would put into CUDA_VISIBLE_DEVICES: the UUID, or that and the instance.",
     _visible_devices),
    (85, "DCGM_FI_DEV_VBIOS_VERSION", None,
     "Version of the VBIOS.", lambda reading: reading.gpu.vbios_version),
    (172, "DCGM_FI_DEV_FABRIC_CLUSTER_UUID", None,
     "UUID of the NVLink fabric.", _cluster_uuid),
)  # fmt: skip
"""Field, name, the name since DCGM 4.6, in words, where it is read."""

_OF_BOARD: tuple[tuple[int, str, str | None, str, _Text], ...] = (
    (51, "DCGM_FI_DEV_BRAND", "DCGM_FI_DEV_GPU_BRAND",
     "Brand of the product, such as NVIDIA or Tesla.",
     _of_board(lambda board: None if board.brand is None else _BRANDS.get(board.brand))),
    (56, "DCGM_FI_DEV_OEM_INFOROM_VER", "DCGM_FI_DEV_INFOROM_OEM_VERSION",
     "Version of the InfoROM's part for the manufacturer of the system.",
     _of_board(lambda board: board.inforom_oem)),
    (80, "DCGM_FI_DEV_ECC_INFOROM_VER", "DCGM_FI_DEV_INFOROM_ECC_VERSION",
     "Version of the InfoROM's part for ECC.", _of_board(lambda board: board.inforom_ecc)),
    (81, "DCGM_FI_DEV_POWER_INFOROM_VER", "DCGM_FI_DEV_INFOROM_POWER_VERSION",
     "Version of the InfoROM's part for power management.",
     _of_board(lambda board: board.inforom_power)),
    (82, "DCGM_FI_DEV_INFOROM_IMAGE_VER", "DCGM_FI_DEV_INFOROM_IMAGE_VERSION",
     "Version of the whole InfoROM.", _of_board(lambda board: board.inforom_image)),
    (571, "DCGM_FI_DEV_PLATFORM_INFINIBAND_GUID", None,
     "InfiniBand GUID that the platform gives the GPU.",
     _of_platform(lambda platform: platform.infiniband_guid)),
    (572, "DCGM_FI_DEV_PLATFORM_CHASSIS_SERIAL_NUMBER", None,
     "Serial number of the chassis.", _of_platform(lambda platform: platform.chassis_serial)),
)  # fmt: skip
"""The columns of the table above; the readings are made only where somebody asks for them."""

LABEL_ROWS: tuple[LabelRow, ...] = tuple(
    LabelRow(field=field, name=name, renamed=renamed, help=words, value=read, group=group)
    for field, name, renamed, words, read, group in sorted(
        (
            *((*row, None) for row in _OF_DRIVER_AND_GPU),
            *((*row, ReadingGroup.BOARD) for row in _OF_BOARD),
        ),
        key=lambda row: row[0],
    )
)
